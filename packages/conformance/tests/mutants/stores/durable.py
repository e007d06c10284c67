"""Mutants of S15: what outlives closing, and crashes."""

from __future__ import annotations

from functools import partial

import pytest
from file_store import FileStore

from coatcheck.gates import Gate
from coatcheck.locked import changes
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


_unwritten: dict[str, list[tuple[Gate, bool, tuple[str | None, ...]]]] = {}


@breaks_store("STORE-DURABLE-3", base=Base.FILE)
def gates_are_written_behind(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges a gate's limits, and writes them with its next step."""
    good = FileStore._step

    async def set_gate(self, name, *, only_if_new=False, who=None, reason=None, **limits):
        _unwritten.setdefault(self._path, []).append((Gate(name=name, **limits), only_if_new, (who, reason)))
        self._look_again()

    def step(self, work):
        for wanted, only_if_new, (who, reason) in _unwritten.pop(self._path, ()):
            write = partial(changes.set_gate, wanted=wanted, who=who, reason=reason, only_if_new=only_if_new)
            good(self, write)
        return good(self, work)

    patch.setattr(FileStore, "set_gate", set_gate)
    patch.setattr(FileStore, "_step", step)
