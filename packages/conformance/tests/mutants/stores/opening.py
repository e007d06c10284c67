"""Mutants of S1, S15 and S16: the clock, what is declared, opening and closing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from coatcheck import lifecycle
from coatcheck.clock import Clock
from coatcheck.evolving import evolve
from coatcheck.memory import MemoryStore, _MemoryRecords
from coatcheck.store import Capability
from coatcheck.task import Task
from coatcheck_conformance import StoreConformance, StoreSpec
from mutants import Mutant, register
from mutants.stores import breaks_store

_MINUTE = timedelta(minutes=1)


@breaks_store("STORE-CLOCK-1")
def now_in_another_zone(patch: pytest.MonkeyPatch) -> None:
    """Tells the time as it is in some other place."""
    good = MemoryStore.now

    async def now(self):
        return (await good(self)).astimezone(timezone(timedelta(hours=2)))

    patch.setattr(MemoryStore, "now", now)


@breaks_store("STORE-CLOCK-2")
def now_in_hundredths(patch: pytest.MonkeyPatch) -> None:
    """Tells the time to a hundredth of a second, so that it stands still in between."""
    good = MemoryStore.now

    async def now(self):
        at = await good(self)
        return at.replace(microsecond=at.microsecond // 10_000 * 10_000)

    patch.setattr(MemoryStore, "now", now)


@breaks_store("STORE-CLOCK-3")
def query_stamped_by_host(patch: pytest.MonkeyPatch) -> None:
    """Stamps when a query was answered by the clock of the worker that asked."""
    good = lifecycle.settled

    def settled(task, settlement, now):
        after = good(task, settlement, now)
        if not isinstance(after, Task) or after.progress.queried_at == task.progress.queried_at:
            return after
        at = datetime.now(UTC).replace(microsecond=0)
        return evolve(after, progress=evolve(after.progress, queried_at=at))

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-CLOCK-4")
def time_goes_on_by_host(patch: pytest.MonkeyPatch) -> None:
    """Asks for the time once, when it is opened, and adds what has passed since by the clock of the host."""
    good_open, good_now = MemoryStore.open, MemoryStore._now
    opened: dict[int, datetime] = {}

    async def open_(self):
        opened[id(self)] = datetime.now(UTC)
        await good_open(self)

    def now(self):
        passed = (datetime.now(UTC) - opened[id(self)]) // _MINUTE
        return good_now(self) + passed * _MINUTE

    patch.setattr(MemoryStore, "open", open_)
    patch.setattr(MemoryStore, "_now", now)


# ------------------------------------------------------------------ what is declared, opening and closing


@breaks_store("STORE-OPEN-1")
def capabilities_in_plain_words(patch: pytest.MonkeyPatch) -> None:
    """Declares its capabilities as texts."""
    words = frozenset(str(each.value) for each in (Capability.NOTIFIES,))
    patch.setattr(MemoryStore, "capabilities", property(lambda self: words))


class _Leaky(MemoryStore):
    """Shows the URL that it was made with as it is."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._url = url

    @property
    def url(self) -> str:
        """The password is in it."""
        return self._url


register(
    Mutant(
        name="url_shows_password",
        rule="STORE-OPEN-2",
        suite=StoreConformance,
        spec=lambda _: StoreSpec(
            f"{__name__}:_Leaky", "leaky://ada:s3cret@db.example.com/tasks", clock="clock"
        ),
    )
)


@breaks_store("STORE-OPEN-3")
def opening_twice_is_fine(patch: pytest.MonkeyPatch) -> None:
    """Lets an open store be opened again."""
    good = MemoryStore.open

    async def open_(self):
        if not self._opened:
            await good(self)

    patch.setattr(MemoryStore, "open", open_)


@breaks_store("STORE-OPEN-4")
def bound_to_its_first_loop(patch: pytest.MonkeyPatch) -> None:
    """Keeps what belongs to the event loop in which it was opened first."""
    good = MemoryStore.open
    loops: dict[MemoryStore, asyncio.AbstractEventLoop] = {}

    async def open_(self):
        loop = asyncio.get_running_loop()
        if loops.setdefault(self, loop) is not loop:
            message = "it is bound to a different event loop"
            raise RuntimeError(message)
        await good(self)

    patch.setattr(MemoryStore, "open", open_)


@breaks_store("STORE-OPEN-5")
def setup_starts_anew(patch: pytest.MonkeyPatch) -> None:
    """Drops what is there when it creates the schema."""

    async def setup(self):
        self._records = _MemoryRecords()

    patch.setattr(MemoryStore, "setup", setup)
