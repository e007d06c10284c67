"""Whoever has least to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from attrs import frozen

from coatcheck import ConfigurationError, Selection
from coatcheck.recipes import imported
from coatcheck_selectors.sequences import in_order

__all__ = [
    "ActiveCounts",
    "LeastActive",
    "LeastActiveSettings",
    "create_least_active",
    "least_active",
]

ActiveCounts: TypeAlias = Callable[[str], int | Awaitable[int]]
"""Returns how much a handler, by its key, has to do now: at least 0. It does not block."""


@frozen(kw_only=True, eq=False)
class LeastActive:
    """Takes the candidate that has least to do, and the first by key of those that have equally little."""

    provider: ActiveCounts | None = None
    """Who counts; None counts the tasks in the store that have not ended, of the whole fleet."""

    async def __call__(self, selection: Selection) -> str:
        """Read the count of each candidate once, and return who has least.

        Raises:
            ConfigurationError: a count is no integer, or negative.
        """
        candidates = in_order(selection)
        counts = await self._counts(selection, candidates)
        for key, count in zip(candidates, counts, strict=True):
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                message = (
                    f"{self.provider!r} counts {count!r} tasks of {key!r}; a count is an integer from 0 on"
                )
                raise ConfigurationError(message)
        return min(zip(counts, candidates, strict=True))[1]

    async def _counts(self, selection: Selection, candidates: tuple[str, ...]) -> list[int]:
        if self.provider is None:
            load = await selection.standing.load()
            return [load[key].total if key in load else 0 for key in candidates]
        answers = [self.provider(key) for key in candidates]
        waited = await asyncio.gather(*(each for each in answers if isinstance(each, Awaitable)))
        late = iter(waited)
        return [next(late) if isinstance(each, Awaitable) else each for each in answers]


@frozen(kw_only=True)
class LeastActiveSettings:
    """Settings of the selector ``least-active``."""

    provider: str | None = None
    """The ``module:attribute`` of a function that counts; None counts in the store."""


def least_active(provider: ActiveCounts | None = None) -> LeastActive:
    """Return a selector that takes the candidate with least to do, by the counts of `provider` or of the store."""
    return LeastActive(provider=provider)


def create_least_active(settings: LeastActiveSettings) -> LeastActive:
    """Return what configuration asks for.

    Raises:
        PluginError: the provider cannot be imported.
    """
    found = imported(settings.provider) if settings.provider is not None else None
    return least_active(cast("ActiveCounts | None", found))
