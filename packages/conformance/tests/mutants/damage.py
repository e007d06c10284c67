"""Writing into the rows of a `LockedStore` over bytes what this version does not write."""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve

from coatcheck.codec import Document, dumps, encode_task
from coatcheck.lifecycle import Settlement
from coatcheck.locked import ByteRecords, LockedStore
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import pack
from coatcheck.store import Filter, Started, Store
from coatcheck.task import JSON, Task
from coatcheck_conformance import make_drafts
from coatcheck_conformance.drafts import HANDLER
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_conformance.store.spec import Repair

__all__ = ["corrupt", "previous"]


async def corrupt(store: Store, task_id: str) -> Repair:
    """Overwrite a stored row with what no version has written."""
    before = await _swapped(store, task_id, b"T{}")

    async def repair() -> None:
        await _swapped(store, task_id, before)

    return repair


async def previous(store: Store) -> list[Task]:
    """Write rows as a version did that kept no history, and as one does that knows a field more."""
    lease = timedelta(minutes=5)
    await store.add(make_drafts(2))
    claims = await store.claim_submissions("worker-1", [HANDLER], 2, lease)
    for answer in await store.start(claims.tasks, lease):
        assert isinstance(answer, Started)
        await store.settle([Settlement(task=answer.task, event=accepted())])
    await store.add(make_drafts(2))
    written = []
    for number, task in enumerate(await store.find(Filter())):
        version = _newer if number % 2 else _earlier
        read, document = version(task, encode_task(task))
        await _swapped(store, task.id, b"T" + dumps(document).encode())
        written.append(read)
    return written


def _earlier(task: Task, document: Document) -> tuple[Task, Document]:
    del document["history"]
    return evolve(task, history=()), document


def _newer(task: Task, document: Document) -> tuple[Task, Document]:
    extra: dict[str, JSON] = {"escalation": {"level": 2, "to": ["ada"]}}
    region: dict[str, JSON] = {"region": "north"}
    route, progress = {**document["route"], **region}, {**document.get("progress", {}), **region}
    read = evolve(
        task,
        extra=extra,
        route=evolve(task.route, extra_json=dumps(region)),
        progress=evolve(task.progress, extra_json=dumps(region)),
    )
    return read, {**document, **extra, "route": route, "progress": progress}


async def _swapped(store: Store, task_id: str, value: bytes) -> bytes:
    """Write the bytes of a task's row, and return those that were there."""
    assert isinstance(store, LockedStore)
    key = pack(("task", task_id))

    def swap(ledger: Ledger) -> bytes:
        assert isinstance(ledger.records, ByteRecords)
        before = ledger.records.get_bytes(key)
        ledger.records.put_bytes(key, value)
        assert before is not None
        return before

    return await store._do(swap)
