"""One selector, made for one rule, and what it is asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeVar, cast

from attrs import define, field, frozen

from coatcheck.selector import Selection, Selector, Standing
from coatcheck.task import JSON
from coatcheck_conformance.policy.spec import SelectorSpec
from coatcheck_conformance.rules import Kind, Level, Suite, spec_rule

__all__ = ["ANSWER_SECONDS", "SelectorTrial", "document", "options", "selection", "selector_rule"]

_S = TypeVar("_S", bound=Suite)
ANSWER_SECONDS = 1.0


@define(eq=False)
class _Document:
    """Params that can be changed."""

    url: str
    pages: list[int] = field(factory=lambda: [1, 2, 3])
    notes: dict[str, list[str]] = field(factory=lambda: {"seen by": []})


def document(number: int) -> object:
    """Return params of the kit's own."""
    return _Document(f"https://files.example.com/{number}.pdf")


def options(**given: JSON) -> dict[str, JSON]:
    """Return ordinary submit options, with some changed."""
    ordinary: dict[str, JSON] = {
        "account_id": "eu",
        "tenant_id": "acme",
        "priority": 3,
        "metadata": {"team": "blue", "tags": ["a"]},
    }
    return {**ordinary, **given}


def selection(
    params: object, given: Mapping[str, JSON], candidates: Collection[str], standing: Standing | None = None
) -> Selection:
    """Return a selection as the manager makes it."""
    return Selection(
        params=params,
        options=MappingProxyType(dict(given)),
        candidates=tuple(sorted(candidates)),
        standing=standing or Standing(),
    )


@frozen
class SelectorTrial:
    """A selector that was just made."""

    spec: SelectorSpec
    selector: Selector

    async def choose(
        self,
        candidates: Collection[str],
        *,
        number: int = 0,
        params: object = None,
        given: Mapping[str, JSON] | None = None,
        standing: Standing | None = None,
    ) -> object:
        """Return its answer, awaited if it has to be."""
        if params is None:
            examples = self.spec.params
            params = examples[number % len(examples)] if examples else document(number)
        if given is None:
            given = options(tenant_id=f"tenant-{number}")
        return await self.ask(selection(params, given, candidates, standing))

    async def ask(self, asked: Selection) -> object:
        """Return its answer to this selection, awaited if it has to be."""
        answer: object = cast("Callable[[Selection], object]", self.selector)(asked)
        return await answer if inspect.isawaitable(answer) else answer


def selector_rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[Callable[[_S, SelectorTrial], Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that makes ``async def (self, trial)`` a rule for selectors, run on a loop of its own."""

    def decorate(body: Callable[[_S, SelectorTrial], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        async def run(suite: _S, spec: SelectorSpec) -> None:
            async with asyncio.timeout(spec.patience.total_seconds()):
                await body(suite, SelectorTrial(spec, spec.create()))

        @wraps(body)
        def test(suite: _S, spec: SelectorSpec) -> None:
            asyncio.run(run(suite, spec))

        return spec_rule("selector_spec", id, level=level, kind=kind, requires=requires)(test)

    return decorate
