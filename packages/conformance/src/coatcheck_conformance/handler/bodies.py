"""Answers without an end, and answers that unpack to gigabytes: no handler takes more than it can hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable

from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.replies import Ending, Reply
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Bodies"]

_MIB = 1024 * 1024
_ON_THE_WAY_BYTES = 16 * _MIB
"""What the buffers between two sockets may hold, and what else is allocated meanwhile."""


async def _peak_bytes(make: Callable[[], Awaitable[Call]]) -> int:
    """Make a call and return how much memory it took at most."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        await make()
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        if not tracing:
            tracemalloc.stop()


class Bodies(Suite):
    """One broken answer never takes the worker's memory."""

    @handler_rule("HANDLER-BODY-1")
    async def test_an_answer_without_an_end_is_cut_off(self, trial: Trial) -> None:
        """An answer is read within a limit, whatever the server sends: a flood is neither taken nor believed."""
        job = await trial.accepted()
        flood = Reply.of(b"", headers={"content-type": "application/json"}, ending=Ending.FLOOD)
        calls: dict[str, Callable[[], Awaitable[Call]]] = {
            "submit": lambda: trial.submit(flood),
            "query": lambda: trial.query(flood, job),
        }
        for name, make in calls.items():
            trial.server.flooded_bytes = 0
            await make()
            taken = trial.server.flooded_bytes
            assert taken <= trial.spec.answer_limit_bytes + _ON_THE_WAY_BYTES, (
                f"{name} took {taken // _MIB} MiB of an answer that does not end; "
                f"the spec allows {trial.spec.answer_limit_bytes // _MIB}"
            )

    @handler_rule("HANDLER-BODY-2")
    async def test_an_answer_that_unpacks_without_an_end_is_cut_off(self, trial: Trial) -> None:
        """An answer is unpacked within a limit: a small one that unpacks to very much costs no more than that."""
        job = await trial.accepted()
        limit = trial.spec.answer_limit_bytes
        bomb = trial.script.accepted.gzipped(b" " * (4 * limit + 32 * _MIB))
        calls: dict[str, Callable[[], Awaitable[Call]]] = {
            "submit": lambda: trial.submit(bomb),
            "query": lambda: trial.query(bomb, job),
        }
        for name, make in calls.items():
            peak = await _peak_bytes(make)
            assert peak <= 3 * limit + _ON_THE_WAY_BYTES, (
                f"{name} took {peak // _MIB} MiB of memory for an answer of {len(bomb.body) // 1024} KiB"
            )
