"""Mutants of S21: numbers that a fleet counts together."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve
from file_store import FileStore

from coatcheck.errors import InvalidParams
from coatcheck.locked import tallying
from coatcheck.memory import MemoryStore
from coatcheck.tallies import Counted, counted
from coatcheck.task import from_millis
from mutants.stores import Base, breaks_store


@breaks_store("STORE-TALLY-1")
def a_batch_is_read_once(patch: pytest.MonkeyPatch) -> None:
    """Reads all tallies of a batch before it counts on the first."""
    good = tallying._read

    def count(ledger, counts):
        read = {each.name: good(ledger, each.name) for each in counts}
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(tallying, "_read", lambda _, name: read[name])
            return [tallying._count(ledger, each) for each in counts]

    patch.setattr(tallying, "count", count)


@breaks_store("STORE-TALLY-2")
def at_most_is_passed_once(patch: pytest.MonkeyPatch) -> None:
    """Asks whether there was room before, and not whether there is room for all of it."""

    def count(wanted, total, now):
        if wanted.at_most is not None and total < wanted.at_most < total + wanted.amount:
            return Counted(total, total + wanted.amount, counted=True)
        return counted(wanted, total, now)

    patch.setattr(tallying, "counted", count)


@breaks_store("STORE-TALLY-2")
def no_room_refuses_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Counts nothing after the first count of a batch that had no room."""
    good = tallying._count

    def count(ledger, counts):
        answers: list[Counted] = []
        for each in counts:
            full = any(not answer.counted for answer in answers)
            answers.append(good(ledger, evolve(each, amount=0, at_most=None) if full else each))
        return answers

    patch.setattr(tallying, "count", count)


@breaks_store("STORE-TALLY-3")
def a_look_makes_a_tally(patch: pytest.MonkeyPatch) -> None:
    """Writes whatever it has read."""
    good = tallying._count

    def count(ledger, wanted):
        answer = good(ledger, wanted)
        if not wanted.amount and ledger.records.get(("tally", wanted.name)) is None:
            until = int((ledger.now + wanted.lifetime).timestamp() * 1000)
            ledger.records.put(("tally", wanted.name), [0, until])
            ledger.records.mark(("expiry", from_millis(until), wanted.name))
        return answer

    patch.setattr(tallying, "_count", count)


@breaks_store("STORE-TALLY-4")
def a_clock_starts_once(patch: pytest.MonkeyPatch) -> None:
    """Takes the store's time for a new tally, and never looks at it again."""

    def count(wanted, total, now):
        return counted(evolve(wanted, clock=wanted.clock and total == 0), total, now)

    patch.setattr(tallying, "counted", count)


@breaks_store("STORE-TALLY-5")
def tallies_live_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Counts on whatever was counted before."""
    good = tallying._count

    def count(ledger, wanted):
        known = ledger.records.get(("tally", wanted.name))
        if known:
            ledger.records.put(
                ("tally", wanted.name), [known[0], max(known[1], int(ledger.now.timestamp() * 1000) + 1)]
            )
        return good(ledger, wanted)

    patch.setattr(tallying, "_count", count)
    patch.setattr(tallying, "_sweep", lambda *_: None)


@breaks_store("STORE-TALLY-5")
def the_last_lifetime_counts(patch: pytest.MonkeyPatch) -> None:
    """Shortens the life of a tally by a count that needs it for a shorter time."""
    good = tallying._count

    def count(ledger, wanted):
        answer = good(ledger, wanted)
        if answer.counted and wanted.amount:
            expires = int((ledger.now + wanted.lifetime).timestamp() * 1000)
            ledger.records.put(("tally", wanted.name), [answer.total, expires])
        return answer

    patch.setattr(tallying, "_count", count)


@breaks_store("STORE-TALLY-6")
def prefixes_ignore_case(patch: pytest.MonkeyPatch) -> None:
    """Compares the beginnings of names as LIKE does."""
    good = tallying.tallies

    def tallies(ledger, prefix, limit):
        found = good(ledger, "", 10_000)
        return [each for each in found if each.name.lower().startswith(prefix.lower())][:limit]

    patch.setattr(tallying, "tallies", tallies)


@breaks_store("STORE-TALLY-7")
def large_totals_are_floats(patch: pytest.MonkeyPatch) -> None:
    """Counts with seven digits less."""

    def count(wanted, total, now):
        answer = counted(wanted, total, now)
        if abs(answer.total) < 10**15:
            return answer
        return evolve(answer, total=round(answer.total, -3))

    patch.setattr(tallying, "counted", count)


@breaks_store("STORE-TALLY-7")
def a_batch_that_fails_is_half_counted(patch: pytest.MonkeyPatch) -> None:
    """Tells that a total is too large after it has counted the rest."""
    good = MemoryStore.count

    async def count(self, counts):
        answers: list[Counted] = []
        failure: InvalidParams | None = None
        for each in counts:
            try:
                answers += await good(self, [each])
            except InvalidParams as error:
                failure = error
        if failure is not None:
            raise failure
        return answers

    patch.setattr(MemoryStore, "count", count)


@breaks_store("STORE-TALLY-8")
def counts_are_written_afterwards(patch: pytest.MonkeyPatch) -> None:
    """Reads in one step and writes in the next."""
    good = MemoryStore.count

    async def count(self, counts):
        looked = await good(self, [evolve(each, amount=0, at_most=None, clock=False) for each in counts])
        await asyncio.sleep(0)

        def write(ledger):
            for each, before in {
                each.name: (each, was) for each, was in zip(counts, looked, strict=True)
            }.values():
                known = ledger.records.get(("tally", each.name))
                if known:
                    ledger.records.put(("tally", each.name), [before.total, known[1]])
            return tallying.count(ledger, counts)

        return await self._do(write)

    patch.setattr(MemoryStore, "count", count)


@breaks_store("STORE-TALLY-9", base=Base.FILE)
def each_process_counts_for_itself(patch: pytest.MonkeyPatch) -> None:
    """Keeps what it has counted to itself, and writes it where nobody else reads it."""
    good = FileStore.count

    async def count(self, counts):
        own = [evolve(each, name=f"{each.name}\x1f{id(self)}") for each in counts]
        return await good(self, own)

    async def tallies(self, prefix="", *, limit=100):
        found = await listed(self, prefix, limit=10_000)
        mine = f"\x1f{id(self)}"
        return [
            evolve(each, name=each.name.removesuffix(mine)) for each in found if each.name.endswith(mine)
        ][:limit]

    listed = FileStore.tallies
    patch.setattr(FileStore, "count", count)
    patch.setattr(FileStore, "tallies", tallies)
