"""The suite of selectors."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeVar, cast

import pytest
from attrs import define, field, frozen

from coatcheck.errors import CoatcheckError
from coatcheck.selector import Selection, Selector
from coatcheck.task import JSON
from coatcheck_conformance.policy.spec import ANY_PARAMS, SelectorSpec
from coatcheck_conformance.policy.watching import growth, longest_gap_seconds, staying_inside, unchanged
from coatcheck_conformance.rules import Kind, Level, Suite, spec_rule

__all__ = ["SelectorConformance"]

_S = TypeVar("_S", bound=Suite)
_ANSWER_SECONDS = 1.0
_GAP_SECONDS = 0.2
_MUCH = 3_000
"""Blocks of memory, after ten thousand steps."""


@define(eq=False)
class _Document:
    """Params that can be changed."""

    url: str
    pages: list[int] = field(factory=lambda: [1, 2, 3])
    notes: dict[str, list[str]] = field(factory=lambda: {"seen by": []})


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


def _options(**given: JSON) -> dict[str, JSON]:
    ordinary: dict[str, JSON] = {
        "account_id": "eu",
        "tenant_id": "acme",
        "priority": 3,
        "metadata": {"team": "blue", "tags": ["a"]},
    }
    return {**ordinary, **given}


def _names(count: int, first: int = 0) -> tuple[str, ...]:
    return tuple(sorted(f"kit:provider-{number:03}" for number in range(first, first + count)))


@frozen
class _Trial:
    """A selector that was just made."""

    spec: SelectorSpec
    selector: Selector

    async def choose(
        self,
        candidates: Collection[str],
        *,
        number: int = 0,
        params: object = None,
        options: Mapping[str, JSON] | None = None,
    ) -> object:
        """Return its answer, awaited if it has to be."""
        if params is None:
            examples = self.spec.params
            params = examples[number % len(examples)] if examples else _document(number)
        given = options if options is not None else _options(tenant_id=f"tenant-{number}")
        return await self.ask(_selection(params, given, candidates))

    async def ask(self, selection: Selection) -> object:
        """Return its answer to this selection, awaited if it has to be."""
        answer: object = cast("Callable[[Selection], object]", self.selector)(selection)
        return await answer if inspect.isawaitable(answer) else answer


def _document(number: int) -> _Document:
    return _Document(f"https://files.example.com/{number}.pdf")


def _selection(params: object, options: Mapping[str, JSON], candidates: Collection[str]) -> Selection:
    return Selection(
        params=params, options=MappingProxyType(dict(options)), candidates=tuple(sorted(candidates))
    )


def _selector_rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[Callable[[_S, _Trial], Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that makes ``async def (self, trial)`` a rule for selectors, run on a loop of its own."""

    def decorate(body: Callable[[_S, _Trial], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        async def run(suite: _S, spec: SelectorSpec) -> None:
            async with asyncio.timeout(spec.patience.total_seconds()):
                await body(suite, _Trial(spec, spec.create()))

        @wraps(body)
        def test(suite: _S, spec: SelectorSpec) -> None:
            asyncio.run(run(suite, spec))

        return spec_rule("selector_spec", id, level=level, kind=kind, requires=requires)(test)

    return decorate


class SelectorConformance(Suite):
    """Every promise of the selectors' contract. Subclass it, and give the fixture `selector_spec`."""

    fixture = "selector_spec"

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return how to make the selector under test."""
        pytest.fail(f"{type(self).__name__} needs a fixture `selector_spec` that returns a SelectorSpec")

    # ------------------------------------------------------------------ its answer

    @_selector_rule("SELECTOR-ANSWER-1")
    async def test_it_answers_one_of_the_candidates(self, trial: _Trial) -> None:
        """The selector's answer must be one of the candidates, however many there are."""
        for count in range(2, 31):
            for number in range(2 * count):
                candidates = _names(count)
                assert await trial.choose(candidates, number=number) in candidates

    @_selector_rule("SELECTOR-ANSWER-2")
    async def test_one_candidate_is_the_answer(self, trial: _Trial) -> None:
        """With one candidate, that is the answer."""
        for number in range(5):
            assert await trial.choose(_names(1, number), number=number) == _names(1, number)[0]

    @_selector_rule("SELECTOR-ANSWER-3")
    async def test_candidates_come_and_go(self, trial: _Trial) -> None:
        """It answers one of the present candidates, whichever there were before: params of another type have others."""
        groups = [_names(5), _names(2), _names(4, 10), _names(2, 3), _names(7), _names(2, 20)]
        for number in range(60):
            candidates = groups[number % len(groups)]
            assert await trial.choose(candidates, number=number) in candidates

    # ------------------------------------------------------------------ how it is called

    @_selector_rule("SELECTOR-CALL-1")
    async def test_it_is_awaited(self, trial: _Trial) -> None:
        """A selector returns an awaitable; a plain function that returns the key is none."""
        call = cast("Callable[[Selection], object]", trial.selector)
        params = trial.spec.params[0] if trial.spec.params else _document(0)
        answer = call(_selection(params, _options(), _names(3)))
        assert inspect.isawaitable(answer), f"it returned {answer!r} and no awaitable; write `async def`"
        await answer

    @_selector_rule("SELECTOR-CALL-2")
    async def test_the_same_selection_may_come_again(self, trial: _Trial) -> None:
        """It is called once for a task, and tasks may be alike: the same selection may come any number of times."""
        params = trial.spec.params[0] if trial.spec.params else _document(0)
        selection = _selection(params, _options(), _names(3))
        for _ in range(100):
            assert await trial.ask(selection) in selection.candidates

    @_selector_rule("SELECTOR-CALL-3")
    async def test_many_are_asked_at_once(self, trial: _Trial) -> None:
        """Many submissions ask at once, on one loop, and each gets one of its own candidates."""
        groups = [_names(4, 10 * (number % 7)) for number in range(210)]
        answers = await asyncio.gather(
            *(trial.choose(candidates, number=number) for number, candidates in enumerate(groups))
        )
        for candidates, answer in zip(groups, answers, strict=True):
            assert answer in candidates

    @_selector_rule("SELECTOR-CALL-4")
    async def test_a_cancelled_call_holds_up_no_other(self, trial: _Trial) -> None:
        """A call that is cancelled, since its caller has gone, holds up no other."""
        calls = [asyncio.ensure_future(trial.choose(_names(3), number=number)) for number in range(20)]
        await asyncio.sleep(0)
        for each in calls[::2]:
            each.cancel()
        async with asyncio.timeout(_ANSWER_SECONDS):
            await asyncio.gather(*calls, return_exceptions=True)
            assert await trial.choose(_names(3)) in _names(3)

    @spec_rule("selector_spec", "SELECTOR-CALL-5")
    def test_it_works_on_one_loop_after_another(self, spec: SelectorSpec) -> None:
        """A selector has no opening and no closing, so it works on whatever loop calls it."""
        trial = _Trial(spec, spec.create())
        for _ in range(3):
            answers = asyncio.run(_several(trial))
            assert set(answers) <= set(_names(3))

    # ------------------------------------------------------------------ what it may do to others

    @_selector_rule("SELECTOR-READ-1")
    async def test_params_stay_as_they_are(self, trial: _Trial) -> None:
        """A selection is read-only: what is persisted is not the selector's to change."""
        for params in trial.spec.params or (_document(0), _document(1)):
            with unchanged("the selector", params):
                await trial.choose(_names(3), params=params)

    @_selector_rule("SELECTOR-READ-2")
    async def test_options_stay_as_they_are(self, trial: _Trial) -> None:
        """A selection is read-only: the submit options are not the selector's to change."""
        for number in range(5):
            options = _options(tenant_id=f"tenant-{number}")
            with unchanged("the selector", options):
                await trial.choose(_names(3), options=options)

    @_selector_rule("SELECTOR-LOOP-1")
    async def test_it_does_not_block_the_loop(self, trial: _Trial) -> None:
        """It awaits what it waits for: a heartbeat on the loop goes on while it is asked."""
        gap = await longest_gap_seconds(lambda number: trial.choose(_names(3), number=number), 60)
        assert gap < _GAP_SECONDS, f"the loop stood still for {gap:.2f} s"

    @_selector_rule("SELECTOR-LOOP-2")
    async def test_it_answers_soon(self, trial: _Trial) -> None:
        """`submit` returns at once, so a selector answers within a second, also with many candidates."""
        for number in range(3):
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await trial.choose(_names(100), number=number)
            except TimeoutError:
                pytest.fail(f"it has not answered within {_ANSWER_SECONDS:g} s")

    # ------------------------------------------------------------------ what it may be asked

    @_selector_rule("SELECTOR-INPUT-1", requires=[ANY_PARAMS])
    async def test_it_takes_any_params(self, trial: _Trial) -> None:
        """It takes the params of any handler, or refuses them by an error of coatcheck's, which the submitter sees."""
        for params in _STRANGE:
            selection = _selection(params, _options(), _names(3))
            try:
                assert await trial.ask(selection) in selection.candidates
            except CoatcheckError:
                continue

    @_selector_rule("SELECTOR-INPUT-2")
    async def test_it_takes_any_options(self, trial: _Trial) -> None:
        """Nothing of the submit options is needed: it answers also if there are none, or strange ones."""
        strange = _options(tenant_id="\N{SNOWMAN} /", dedup_key="k", metadata={"": None, "deep": [[{}]]})
        sparse: list[dict[str, JSON]] = [{}, {"metadata": {}}, {"priority": -(2**31), "metadata": {}}]
        for options in (*sparse, strange):
            assert await trial.choose(_names(3), options=options) in _names(3)

    @spec_rule("selector_spec", "SELECTOR-MAKE-1")
    def test_making_one_does_nothing_outside(self, spec: SelectorSpec) -> None:
        """An app can stand at module level: making a selector does no I/O."""
        spec.create()  # what it imports may be read
        with staying_inside("making the selector"):
            spec.create()

    @spec_rule("selector_spec", "SELECTOR-MEMORY-1", level=Level.SHOULD)
    def test_it_does_not_grow_with_the_tasks(self, spec: SelectorSpec) -> None:
        """It remembers no tasks: ten thousand of them, of as many tenants, make it no larger to speak of."""
        trial = _Trial(spec, spec.create())
        with asyncio.Runner() as runner:
            grown = growth(lambda number: runner.run(_hundred(trial, number)), 100, warm_up=2)
        assert grown < _MUCH, f"it grew by {grown} blocks of memory"


async def _several(trial: _Trial) -> list[str]:
    answers = await asyncio.gather(*(trial.choose(_names(3), number=number) for number in range(10)))
    return [str(each) for each in answers]


async def _hundred(trial: _Trial, number: int) -> None:
    for each in range(100):
        await trial.choose(_names(3), number=100 * number + each)
