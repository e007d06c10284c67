"""The suite of selectors: all topics in one class."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from coatcheck.errors import CoatcheckError
from coatcheck.selector import Selection
from coatcheck.task import JSON
from coatcheck_conformance.policy.choosing import Choosing
from coatcheck_conformance.policy.heeding import Heeding
from coatcheck_conformance.policy.selecting import (
    ANSWER_SECONDS,
    SelectorTrial,
    document,
    options,
    selection,
    selector_rule,
)
from coatcheck_conformance.policy.spec import ANY_PARAMS, SelectorSpec, candidate_names
from coatcheck_conformance.policy.watching import growth, longest_gap_seconds, staying_inside, unchanged
from coatcheck_conformance.rules import Level, spec_rule

__all__ = ["SelectorConformance"]

_GAP_SECONDS = 0.2
_MUCH = 3_000
"""Blocks of memory, after ten thousand steps."""

_STRANGE: Sequence[object] = (
    None,
    "",
    "text \x00 \N{SNOWMAN}",
    7,
    0.5,
    True,
    [],
    [1, [2]],
    {},
    {"a": {"b": 1}},
    set(),
)


class SelectorConformance(Choosing, Heeding):
    """Every promise of the selectors' contract. Subclass it, and give the fixture `selector_spec`."""

    fixture = "selector_spec"

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return how to make the selector under test."""
        pytest.fail(f"{type(self).__name__} needs a fixture `selector_spec` that returns a SelectorSpec")

    # ------------------------------------------------------------------ its answer

    @selector_rule("SELECTOR-ANSWER-1")
    async def test_it_answers_one_of_the_candidates(self, trial: SelectorTrial) -> None:
        """The selector's answer must be one of the candidates, however many there are."""
        for count in range(2, 31):
            for number in range(2 * count):
                candidates = candidate_names(count)
                assert await trial.choose(candidates, number=number) in candidates

    @selector_rule("SELECTOR-ANSWER-2")
    async def test_one_candidate_is_the_answer(self, trial: SelectorTrial) -> None:
        """With one candidate, that is the answer."""
        for number in range(5):
            assert (
                await trial.choose(candidate_names(1, number), number=number) == candidate_names(1, number)[0]
            )

    @selector_rule("SELECTOR-ANSWER-3")
    async def test_candidates_come_and_go(self, trial: SelectorTrial) -> None:
        """It answers one of the present candidates, whichever there were before: params of another type have others."""
        groups = [
            candidate_names(5),
            candidate_names(2),
            candidate_names(4, 10),
            candidate_names(2, 3),
            candidate_names(7),
            candidate_names(2, 20),
        ]
        for number in range(60):
            candidates = groups[number % len(groups)]
            assert await trial.choose(candidates, number=number) in candidates

    # ------------------------------------------------------------------ how it is called

    @selector_rule("SELECTOR-CALL-1")
    async def test_it_is_awaited(self, trial: SelectorTrial) -> None:
        """A selector returns an awaitable; a plain function that returns the key is none."""
        call = cast("Callable[[Selection], object]", trial.selector)
        params = trial.spec.params[0] if trial.spec.params else document(0)
        answer = call(selection(params, options(), candidate_names(3)))
        assert inspect.isawaitable(answer), f"it returned {answer!r} and no awaitable; write `async def`"
        await answer

    @selector_rule("SELECTOR-CALL-2")
    async def test_the_same_selection_may_come_again(self, trial: SelectorTrial) -> None:
        """It is called once for a task, and tasks may be alike: the same selection may come any number of times."""
        params = trial.spec.params[0] if trial.spec.params else document(0)
        asked = selection(params, options(), candidate_names(3))
        for _ in range(100):
            assert await trial.ask(asked) in asked.candidates

    @selector_rule("SELECTOR-CALL-3")
    async def test_many_are_asked_at_once(self, trial: SelectorTrial) -> None:
        """Many submissions ask at once, on one loop, and each gets one of its own candidates."""
        groups = [candidate_names(4, 10 * (number % 7)) for number in range(210)]
        answers = await asyncio.gather(
            *(trial.choose(candidates, number=number) for number, candidates in enumerate(groups))
        )
        for candidates, answer in zip(groups, answers, strict=True):
            assert answer in candidates

    @selector_rule("SELECTOR-CALL-4")
    async def test_a_cancelled_call_holds_up_no_other(self, trial: SelectorTrial) -> None:
        """A call that is cancelled, since its caller has gone, holds up no other."""
        calls = [
            asyncio.ensure_future(trial.choose(candidate_names(3), number=number)) for number in range(20)
        ]
        await asyncio.sleep(0)
        for each in calls[::2]:
            each.cancel()
        async with asyncio.timeout(ANSWER_SECONDS):
            await asyncio.gather(*calls, return_exceptions=True)
            assert await trial.choose(candidate_names(3)) in candidate_names(3)

    @spec_rule("selector_spec", "SELECTOR-CALL-5")
    def test_it_works_on_one_loop_after_another(self, spec: SelectorSpec) -> None:
        """A selector has no opening and no closing, so it works on whatever loop calls it."""
        trial = SelectorTrial(spec, spec.create())
        for _ in range(3):
            answers = asyncio.run(_several(trial))
            assert set(answers) <= set(candidate_names(3))

    # ------------------------------------------------------------------ what it may do to others

    @selector_rule("SELECTOR-READ-1")
    async def test_params_stay_as_they_are(self, trial: SelectorTrial) -> None:
        """A selection is read-only: what is persisted is not the selector's to change."""
        for params in trial.spec.params or (document(0), document(1)):
            with unchanged("the selector", params):
                await trial.choose(candidate_names(3), params=params)

    @selector_rule("SELECTOR-READ-2")
    async def test_options_stay_as_they_are(self, trial: SelectorTrial) -> None:
        """A selection is read-only: the submit options are not the selector's to change."""
        for number in range(5):
            given = options(tenant_id=f"tenant-{number}")
            with unchanged("the selector", given):
                await trial.choose(candidate_names(3), given=given)

    @selector_rule("SELECTOR-LOOP-1")
    async def test_it_does_not_block_the_loop(self, trial: SelectorTrial) -> None:
        """It awaits what it waits for: a heartbeat on the loop goes on while it is asked."""
        gap = await longest_gap_seconds(lambda number: trial.choose(candidate_names(3), number=number), 60)
        assert gap < _GAP_SECONDS, f"the loop stood still for {gap:.2f} s"

    @selector_rule("SELECTOR-LOOP-2")
    async def test_it_answers_soon(self, trial: SelectorTrial) -> None:
        """`submit` returns at once, so a selector answers within a second, also with many candidates."""
        for number in range(3):
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await trial.choose(candidate_names(100), number=number)
            except TimeoutError:
                pytest.fail(f"it has not answered within {ANSWER_SECONDS:g} s")

    # ------------------------------------------------------------------ what it may be asked

    @selector_rule("SELECTOR-INPUT-1", requires=[ANY_PARAMS])
    async def test_it_takes_any_params(self, trial: SelectorTrial) -> None:
        """It takes the params of any handler, or refuses them by an error of coatcheck's, which the submitter sees."""
        for params in _STRANGE:
            asked = selection(params, options(), candidate_names(3))
            try:
                assert await trial.ask(asked) in asked.candidates
            except CoatcheckError:
                continue

    @selector_rule("SELECTOR-INPUT-2")
    async def test_it_takes_any_options(self, trial: SelectorTrial) -> None:
        """Nothing of the submit options is needed: it answers also if there are none, or strange ones."""
        strange = options(tenant_id="\N{SNOWMAN} /", dedup_key="k", metadata={"": None, "deep": [[{}]]})
        sparse: list[dict[str, JSON]] = [{}, {"metadata": {}}, {"priority": -(2**31), "metadata": {}}]
        for given in (*sparse, strange):
            assert await trial.choose(candidate_names(3), given=given) in candidate_names(3)

    @spec_rule("selector_spec", "SELECTOR-MAKE-1")
    def test_making_one_does_nothing_outside(self, spec: SelectorSpec) -> None:
        """An app can stand at module level: making a selector does no I/O."""
        spec.create()  # what it imports may be read
        with staying_inside("making the selector"):
            spec.create()

    @spec_rule("selector_spec", "SELECTOR-MEMORY-1", level=Level.SHOULD)
    def test_it_does_not_grow_with_the_tasks(self, spec: SelectorSpec) -> None:
        """It remembers no tasks: ten thousand of them, of as many tenants, make it no larger to speak of."""
        trial = SelectorTrial(spec, spec.create())
        with asyncio.Runner() as runner:
            grown = growth(lambda number: runner.run(_hundred(trial, number)), 100, warm_up=2)
        assert grown < _MUCH, f"it grew by {grown} blocks of memory"


async def _several(trial: SelectorTrial) -> list[str]:
    answers = await asyncio.gather(*(trial.choose(candidate_names(3), number=number) for number in range(10)))
    return [str(each) for each in answers]


async def _hundred(trial: SelectorTrial, number: int) -> None:
    for each in range(100):
        await trial.choose(candidate_names(3), number=100 * number + each)
