"""What the conformance kit needs to reach into the keys of a Redis store; named across a spawn."""

from __future__ import annotations

import json
import struct
from datetime import timedelta
from typing import Any, cast

from attrs import evolve

from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started, Store
from coatcheck.task import JSON, Task
from coatcheck_conformance import make_drafts
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_conformance.store.spec import Repair
from coatcheck_store_redis import RedisStore

REVISION = struct.Struct(">I")
LEASE = timedelta(minutes=5)
NEWER: dict[str, JSON] = {"escalation": {"level": 2}}
"""A field of a task that this version does not know."""


async def ask(store: Store, *command: Any) -> Any:
    """Send one command to the store's server."""
    redis = cast("RedisStore", store)
    (answer,) = await redis.calls.connected.send(redis.prefix, [command])
    if isinstance(answer, Exception):
        raise answer
    return answer


async def document_of(store: Store, task_id: str) -> bytes:
    """Return the document of a stored task."""
    return cast("bytes", await ask(store, "GET", f"{cast('RedisStore', store).prefix}d:{task_id}"))


async def overwrite(store: Store, task_id: str, document: bytes) -> bytes:
    """Overwrite the document of a task, as an edit by hand would; return what was there."""
    before = await document_of(store, task_id)
    prefix = cast("RedisStore", store).prefix
    record = bytearray(await ask(store, "GET", f"{prefix}t:{task_id}"))
    (revision,) = REVISION.unpack_from(record, 2)
    REVISION.pack_into(record, 2, revision + 1)
    await ask(store, "MSET", f"{prefix}t:{task_id}", bytes(record), f"{prefix}d:{task_id}", document)
    return before


async def corrupt(store: Store, task_id: str) -> Repair:
    """Damage the stored document of a task."""
    before = await overwrite(store, task_id, b'{"half')

    async def repair() -> None:
        await overwrite(store, task_id, before)

    return repair


async def previous(store: Store) -> list[Task]:
    """Write rows as a version does that has no history yet, or that has one field more."""
    await store.add(make_drafts(2))
    claims = await store.claim_submissions("worker-1", ["kit:one"], 2, LEASE)
    started = [each for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]
    await store.settle([Settlement(task=each.task, event=accepted()) for each in started])
    await store.add(make_drafts(2))
    written = []
    for number, task in enumerate(await store.find(Filter())):
        document = json.loads(await document_of(store, task.id))
        document |= NEWER if number % 2 else {"history": []}
        await overwrite(store, task.id, json.dumps(document).encode())
        written.append(evolve(task, extra=NEWER) if number % 2 else evolve(task, history=()))
    return written
