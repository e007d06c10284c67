"""What selectors make of how the candidates stand in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from attrs import define, field

from coatcheck.errors import CoatcheckError, StoreUnavailable
from coatcheck.gates import Gate, GateUsage, Pause, Rate
from coatcheck.selector import Load, Outcomes, Standing
from coatcheck_conformance.policy.selecting import SelectorTrial, selector_rule
from coatcheck_conformance.policy.snapshots import START
from coatcheck_conformance.policy.spec import LOAD, OUTCOMES, PAUSES, ROOM, SelectorSpec, candidate_names
from coatcheck_conformance.rules import Kind, Suite, spec_rule

__all__ = ["Heeding", "Told"]

_TIMES = 12
_GOOD, _BAD = Outcomes(good=100), Outcomes(bad=100)


@define(eq=False)
class Told(Standing):
    """A standing that a test tells, and that counts how often it is asked."""

    usages: Mapping[str, Sequence[GateUsage]] = field(factory=dict)
    loads: Mapping[str, Load] = field(factory=dict)
    ends: Mapping[str, Outcomes] = field(factory=dict)
    error: Exception | None = None
    """Raised instead of any answer."""
    asked: list[str] = field(factory=list, init=False)

    async def gates(self) -> Mapping[str, Sequence[GateUsage]]:
        """Return what was told."""
        self._note("gates")
        return self.usages

    async def load(self) -> Mapping[str, Load]:
        """Return what was told."""
        self._note("load")
        return self.loads

    async def outcomes(self, within: timedelta) -> Mapping[str, Outcomes]:
        """Return what was told, whatever the time."""
        self._note("outcomes")
        return self.ends

    def _note(self, name: str) -> None:
        self.asked.append(name)
        if self.error is not None:
            raise self.error


def _gate(
    name: str,
    *,
    used: int = 0,
    granted: int = 0,
    concurrency: int | None = None,
    rate: Rate | None = None,
    pause: Pause | None = None,
) -> GateUsage:
    gate = Gate(name=name, concurrency=concurrency, rate=rate, pause=pause)
    return GateUsage(gate=gate, used=used, granted=granted)


_FOR_EVER = Pause(reason="maintenance", since=START)
_FOR_A_WHILE = Pause(reason="429", since=START, until=START + timedelta(hours=1))


def _usages(
    names: Sequence[str], special: Mapping[str, GateUsage], *more: GateUsage
) -> dict[str, list[GateUsage]]:
    """Return the gates of each: a special one, or one with all the room there can be; and those of all."""
    return {key: [special.get(key, _gate(f"own/{key}", concurrency=1_000_000)), *more] for key in names}


async def _answers(trial: SelectorTrial, names: Sequence[str], standing: Standing) -> set[object]:
    return {await trial.choose(names, number=number, standing=standing) for number in range(_TIMES)}


class Heeding(Suite):
    """Pauses, outcomes, room and load, for those who heed them; and no stumbling over any of it for all."""

    @selector_rule("SELECTOR-STANDING-1", requires=[PAUSES])
    async def test_who_is_paused_gets_nothing(self, trial: SelectorTrial) -> None:
        """A handler that has a paused gate gets nothing while another has none."""
        names = candidate_names(4)
        for left in (names[:1], names[1:2], names[1:], names[:3]):
            for pause in (_FOR_EVER, _FOR_A_WHILE):
                paused = {key: _gate(f"own/{key}", pause=pause) for key in names if key not in left}
                assert await _answers(trial, names, Told(usages=_usages(names, paused))) <= set(left)

    @selector_rule("SELECTOR-STANDING-2", requires=[OUTCOMES])
    async def test_who_does_badly_gets_nothing(self, trial: SelectorTrial) -> None:
        """A handler whose tasks end badly gets nothing while those of another end well; a few failures are no sign."""
        names = candidate_names(3)
        for bad in (_BAD, Outcomes(good=20, bad=80)):
            told = Told(ends={names[0]: bad, names[1]: _GOOD, names[2]: bad})
            assert await _answers(trial, names, told) == {names[1]}
        told = Told(ends={names[0]: Outcomes(good=99, bad=1), names[1]: _BAD, names[2]: _BAD})
        assert await _answers(trial, names, told) == {names[0]}

    @selector_rule("SELECTOR-STANDING-3", requires=[ROOM])
    async def test_who_has_no_room_gets_nothing(self, trial: SelectorTrial) -> None:
        """A handler gets nothing while its slots are taken, its rate is spent, or tasks that wait will do that."""
        names = candidate_names(3)
        full = (
            (_gate("full", used=5, concurrency=5), 0),
            (_gate("overfull", used=7, concurrency=5), 0),
            (_gate("spent", granted=3, rate=Rate(3)), 0),
            (_gate("spoken for", used=2, concurrency=5), 3),
        )
        for usage, waiting in full:
            for free in (names[0], names[2]):
                told = Told(
                    usages=_usages(names, {key: usage for key in names if key != free}),
                    loads={key: Load(waiting=waiting) for key in names},
                )
                assert await _answers(trial, names, told) == {free}, f"{usage}, {waiting} waiting"

    @selector_rule("SELECTOR-STANDING-4")
    async def test_it_answers_however_the_candidates_stand(self, trial: SelectorTrial) -> None:
        """It answers however the candidates stand: a task behind a closed gate waits, and that is better than none."""
        names = candidate_names(4)
        closed = {key: _gate(f"own/{key}", used=9, concurrency=1, pause=_FOR_EVER) for key in names}
        everywhere = _gate("everywhere", pause=_FOR_A_WHILE)
        busy = dict.fromkeys(names, Load(waiting=1_000_000, active=1_000_000))
        ends = dict.fromkeys(names, _BAD)
        for told in (
            Told(usages=_usages(names, closed), loads=busy, ends=ends),
            Told(usages=_usages(names, {}, everywhere)),
            Told(ends=ends),
            Told(usages={names[0]: []}, loads={names[1]: Load(active=1)}, ends={names[2]: _BAD}),
        ):
            assert await _answers(trial, names, told) <= set(names)

    @selector_rule("SELECTOR-STANDING-5")
    async def test_a_store_that_cannot_be_asked_is_no_surprise(self, trial: SelectorTrial) -> None:
        """If the store cannot be asked it answers all the same, or raises an error of coatcheck's, and recovers."""
        names = candidate_names(3)
        for _ in range(_TIMES):
            try:
                answer = await trial.choose(names, standing=Told(error=StoreUnavailable("it is down")))
            except CoatcheckError:
                continue
            assert answer in names
        assert await trial.choose(names, standing=Told()) in names

    @selector_rule("SELECTOR-STANDING-6", requires=[PAUSES])
    async def test_a_gate_of_all_speaks_for_none(self, trial: SelectorTrial) -> None:
        """A paused gate that the task passes at every handler, such as its tenant's, hides no other pause."""
        names = candidate_names(3)
        paused = {names[1]: _gate("own", pause=_FOR_EVER)}
        told = Told(usages=_usages(names, paused, _gate("tenant/acme", pause=_FOR_A_WHILE)))
        assert names[1] not in await _answers(trial, names, told)

    @selector_rule("SELECTOR-LOAD-1", requires=[LOAD])
    async def test_who_has_least_to_do_gets_the_task(self, trial: SelectorTrial) -> None:
        """Whoever has the fewest tasks gets this one; of equals, the first by key."""
        names = candidate_names(4)
        for numbers, first in (((3, 1, 2, 1), 1), ((0, 0, 0, 0), 0), ((9, 8, 7, 6), 3), ((2, 1, 5, 1), 1)):
            told = Told(loads={key: Load(active=number) for key, number in zip(names, numbers, strict=True)})
            assert await _answers(trial, names, told) == {names[first]}, f"of {numbers}"
        told = Told(loads={names[0]: Load(waiting=5), **{key: Load(active=4) for key in names[1:]}})
        assert await _answers(trial, names, told) == {names[1]}

    @selector_rule("SELECTOR-LOAD-2", requires=[LOAD])
    async def test_counts_are_read_once(self, trial: SelectorTrial) -> None:
        """For one selection the counts are read once, however many candidates there are."""
        names = candidate_names(20)
        told = Told(loads={key: Load(active=number) for number, key in enumerate(names)})
        await trial.choose(names, standing=told)
        assert told.asked.count("load") == 1

    @spec_rule("selector_spec", "SELECTOR-THREAD-1", kind=Kind.STOCHASTIC)
    def test_threads_share_it(self, spec: SelectorSpec) -> None:
        """One selector serves several threads at once, each with a loop of its own."""
        trial, names = SelectorTrial(spec, spec.create()), candidate_names(5)

        async def several(first: int) -> list[object]:
            calls = (trial.choose(names[: 2 + n % 3], number=first + n) for n in range(30))
            return list(await asyncio.gather(*calls))

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(asyncio.run, several(number)) for number in range(8)]
            answers = {answer for each in asked for answer in each.result()}
        assert answers <= set(names)
