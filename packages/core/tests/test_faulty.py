"""The store that fails on demand."""

from datetime import timedelta
from typing import Any

import pytest

from coatcheck.errors import CoatcheckError, StoreUnavailable, Unsupported
from coatcheck.events import Abandon, Accepted, Proof
from coatcheck.faulty import FaultyStore
from coatcheck.memory import MemoryStore
from coatcheck.store import Filter, Store
from coatcheck.task import QueryParams
from coatcheck.testing import ManualClock

SECOND = timedelta(seconds=1)
ACCEPTED = Accepted(query_params=QueryParams(external_task_id="x"), delay=SECOND)
CALLS: dict[str, tuple[Any, ...]] = {
    "open": (),
    "setup": (),
    "now": (),
    "add": ([],),
    "get_many": ([],),
    "find": (Filter(),),
    "claim_submissions": ("w", ["h"], 1, SECOND),
    "claim_queries": ("w", ["h"], 1, SECOND),
    "claim_stale": ("w", ["h"], 1, SECOND),
    "start": ([], SECOND),
    "settle": ([],),
    "renew": ([], SECOND),
    "request_cancellation": ("x",),
    "nudge": ("h", "x"),
    "set_gate": ("g",),
    "pause_gate": ("g",),
    "resume_gate": ("g",),
    "delete_gate": ("g",),
    "gates": (),
    "gate_history": ("g",),
    "count": ([],),
    "tallies": (),
    "wait": (["h"], timedelta()),
    "stats": (),
    "purge": (ManualClock().now(),),
    "attest": ("x", 1, Proof(event=ACCEPTED)),
    "resolve": ("x", 0, Abandon()),
    "set_aside": (),
    "release_set_aside": (),
    "close": (),
}


def test_every_step_of_a_store_is_tried_below() -> None:
    """A new step joins the list."""
    assert CALLS.keys() == set(Store.__abstractmethods__) - {"capabilities", "url"}


async def test_every_step_is_passed_on_and_can_fail() -> None:
    """Before it happens, after it happened, and not at all."""
    inner = MemoryStore()
    store = FaultyStore(inner)
    assert (store.url, store.capabilities) == (inner.url, inner.capabilities)
    for name, arguments in CALLS.items():
        keywords = {"reason": "r"} if name == "pause_gate" else {}
        if name not in ("open", "close"):
            store.fail(name)
            with pytest.raises(StoreUnavailable):
                await getattr(store, name)(*arguments, **keywords)
        try:
            await getattr(store, name)(*arguments, **keywords)
        except CoatcheckError:
            assert name in ("attest", "resolve")
        assert name in store.calls


async def test_faults_can_be_taken_back() -> None:
    """After `recover` the store works again."""
    store = FaultyStore(MemoryStore())
    async with store:
        store.fail("stats", times=5, after=True, error=ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await store.stats()
        store.recover()
        await store.stats()


def test_what_it_cannot_do_is_refused() -> None:
    """An unknown step, by name; a transaction that the wrapped store cannot join."""
    store = FaultyStore(MemoryStore())
    with pytest.raises(AttributeError, match="no step 'setle'; there are: .*settle"):
        store.fail("setle")
    with pytest.raises(Unsupported):
        store.join([], object())
