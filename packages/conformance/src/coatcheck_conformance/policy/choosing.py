"""What selectors promise of their choice, if they do: shares, and one handler for one key."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import gcd
from typing import cast

import pytest

from coatcheck.errors import CoatcheckError
from coatcheck_conformance.policy.selecting import SelectorTrial, selector_rule
from coatcheck_conformance.policy.spec import CLOSED, KEYED, SHARES, SelectorSpec, candidate_names
from coatcheck_conformance.rules import Kind, Suite, spec_rule

__all__ = ["Choosing"]

_KEYS = tuple(f"key {number}" for number in range(1_000))
_FEW = _KEYS[:50]
_ELSEWHERE = """
import asyncio, pickle, sys
sys.path[:], factory, settings, asked = pickle.load(sys.stdin.buffer)
from coatcheck_conformance.policy.selecting import SelectorTrial
from coatcheck_conformance.policy.spec import SelectorSpec
spec = SelectorSpec(factory, settings=settings)
async def choose():
    trial = SelectorTrial(spec, spec.create())
    return [await trial.choose(names, params=params, given=given) for names, params, given in asked]
print(asyncio.run(choose()))
"""


def _cycle(shares: Mapping[str, int], candidates: Collection[str]) -> Counter[str]:
    """Return how often each comes until everything begins anew."""
    divisor = gcd(*(shares[key] for key in candidates))
    return Counter({key: shares[key] // divisor for key in candidates})


async def _turns(trial: SelectorTrial, candidates: Collection[str], count: int) -> Counter[object]:
    return Counter([await trial.choose(candidates, number=number) for number in range(count)])


async def _by_key(
    trial: SelectorTrial, keys: Collection[str], candidates: Collection[str]
) -> dict[str, object]:
    assert trial.spec.keyed is not None
    answers = {}
    for key in keys:
        params, given = trial.spec.keyed(key)
        answers[key] = await trial.choose(candidates, params=params, given=given)
    return answers


class Choosing(Suite):
    """The shares of the candidates, and one handler for one key."""

    @selector_rule("SELECTOR-SHARE-1", requires=[SHARES])
    async def test_each_comes_as_often_as_its_share(self, trial: SelectorTrial) -> None:
        """With weights 2 and 1, every three turns are exactly two and one; so for any weights and any candidates."""
        for candidates in (candidate_names(2), candidate_names(3), candidate_names(5, 7)):
            cycle = _cycle(trial.spec.shares, candidates)
            for _ in range(3):
                assert await _turns(trial, candidates, cycle.total()) == cycle

    @selector_rule("SELECTOR-SHARE-2", requires=[SHARES])
    async def test_sets_of_candidates_have_their_own_turns(self, trial: SelectorTrial) -> None:
        """Params of one type never disturb the turns of another: each set of candidates has a sequence of its own."""
        groups = (candidate_names(2, 10), candidate_names(4, 20))
        cycles = [_cycle(trial.spec.shares, each) for each in groups]
        turns = cycles[0].total() * cycles[1].total()
        seen: list[Counter[object]] = [Counter(), Counter()]
        for number in range(turns):
            for group, counted in zip(groups, seen, strict=True):
                counted[await trial.choose(group, number=number)] += 1
        for cycle, counted in zip(cycles, seen, strict=True):
            times = turns // cycle.total()
            assert counted == {key: times * share for key, share in cycle.items()}

    @spec_rule("selector_spec", "SELECTOR-SHARE-3", requires=[SHARES], kind=Kind.STOCHASTIC)
    def test_threads_share_the_turns(self, spec: SelectorSpec) -> None:
        """Threads and tasks that ask at once take turns of one sequence, and none is lost or given twice."""
        trial, candidates = SelectorTrial(spec, spec.create()), candidate_names(3)
        cycle = _cycle(spec.shares, candidates)

        async def several() -> Counter[object]:
            calls = (trial.choose(candidates, number=number) for number in range(10 * cycle.total()))
            return Counter(await asyncio.gather(*calls))

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(asyncio.run, several()) for _ in range(4)]
            counted = sum((each.result() for each in asked), Counter[object]())
        assert counted == {key: 40 * share for key, share in cycle.items()}

    @selector_rule("SELECTOR-SHARE-4", requires=[CLOSED])
    async def test_a_candidate_without_a_share_is_an_error_at_once(self, trial: SelectorTrial) -> None:
        """A candidate that the table does not have is an error of coatcheck's at the first selection that has it."""
        stranger = "kit:stranger"
        with pytest.raises(CoatcheckError, match=stranger):
            await trial.choose((*candidate_names(2), stranger))
        assert await trial.choose(candidate_names(2)) in candidate_names(2)

    @selector_rule("SELECTOR-KEY-1", requires=[KEYED])
    async def test_the_same_key_has_the_same_handler(self, trial: SelectorTrial) -> None:
        """The same key goes to the same handler, whatever was asked before, and whoever is asked."""
        first = await _by_key(trial, _FEW, candidate_names(10))
        assert await _by_key(trial, _FEW[::-1], candidate_names(10)) == first
        another = SelectorTrial(trial.spec, trial.spec.create())
        assert await _by_key(another, _FEW[::-1], candidate_names(10)) == first

    @spec_rule("selector_spec", "SELECTOR-KEY-2", requires=[KEYED])
    def test_processes_agree_on_the_handler_of_a_key(self, spec: SelectorSpec) -> None:
        """A key has the same handler in every process, also tomorrow: nothing depends on Python's hash seed."""
        assert spec.keyed is not None
        asked = [(candidate_names(10), *map(_plain, spec.keyed(key))) for key in _FEW]
        told = pickle.dumps((sys.path, spec.factory, dict(spec.settings), asked))
        answers = {
            subprocess.run(  # noqa: S603 - Python itself
                [sys.executable, "-c", _ELSEWHERE],
                input=told,
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(answers) == 1, "two processes disagree"

    @selector_rule("SELECTOR-KEY-3", requires=[KEYED])
    async def test_only_the_keys_of_who_goes_move(self, trial: SelectorTrial) -> None:
        """Adding or removing a handler moves only the keys that it must: its own."""
        names = candidate_names(10)
        before = await _by_key(trial, _KEYS[:300], names)
        for gone in (names[0], names[4], names[9]):
            left = await _by_key(trial, _KEYS[:300], [each for each in names if each != gone])
            moved = {key for key in before if before[key] != left[key]}
            assert moved == {key for key, at in before.items() if at == gone}

    @selector_rule("SELECTOR-KEY-4", requires=[KEYED])
    async def test_each_handler_has_about_as_many_keys(self, trial: SelectorTrial) -> None:
        """Of ten handlers each has about a tenth of the keys."""
        names = candidate_names(10)
        counted = Counter((await _by_key(trial, _KEYS, names)).values())
        fewest, most = (bound(counted[each] for each in names) for bound in (min, max))
        assert fewest >= len(_KEYS) / 20, f"one has only {fewest} of {len(_KEYS)} keys"
        assert most <= len(_KEYS) / 5, f"one has {most} of {len(_KEYS)} keys"


def _plain(value: object) -> object:
    """Return a mapping as a dict, which can go to another process."""
    return dict(cast("Mapping[object, object]", value)) if isinstance(value, Mapping) else value
