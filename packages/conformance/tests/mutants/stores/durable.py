"""Mutants of S15: what outlives closing, and crashes."""

from __future__ import annotations

from functools import partial

import pytest
from file_store import FileStore

from coatcheck.gates import Gate
from coatcheck.locked import steps
from mutants.stores import Base, breaks_store


def _drop_at_close(patch: pytest.MonkeyPatch, index: str) -> None:
    """Keep what one index says in memory."""
    good = FileStore.close

    def drop(ledger):
        for key in ledger.records.under((index,)):
            ledger.records.delete(key)

    async def close(self):
        if self._opened:
            await self._do(drop)
        await good(self)

    patch.setattr(FileStore, "close", close)


@breaks_store("STORE-DURABLE-1", base=Base.FILE)
def callbacks_are_kept_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Remembers in memory that a callback came early."""
    _drop_at_close(patch, "nudge")


@breaks_store("STORE-DURABLE-2", base=Base.FILE)
def the_blocked_are_kept_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Remembers in memory who waits behind which closed gate."""
    _drop_at_close(patch, "park")


_unwritten: dict[str, list[tuple[Gate, bool]]] = {}


@breaks_store("STORE-DURABLE-3", base=Base.FILE)
def gates_are_written_behind(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges a gate's limits, and writes them with its next step."""
    good = FileStore._step

    async def set_gate(self, name, *, concurrency=None, rate=None, only_if_new=False):
        wanted = Gate(name=name, concurrency=concurrency, rate=rate)
        _unwritten.setdefault(self._path, []).append((wanted, only_if_new))
        self._look_again()

    def step(self, work):
        for wanted, only_if_new in _unwritten.pop(self._path, ()):
            good(self, partial(steps.set_gate, wanted=wanted, only_if_new=only_if_new))
        return good(self, work)

    patch.setattr(FileStore, "set_gate", set_gate)
    patch.setattr(FileStore, "_step", step)
