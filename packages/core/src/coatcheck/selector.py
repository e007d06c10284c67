"""The contract of selectors: which of several handlers gets a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from attrs import frozen

from coatcheck.task import JSON

__all__ = ["Selection", "Selector"]


@frozen(kw_only=True)
class Selection:
    """What a selector decides on: read-only."""

    params: object
    """What is being submitted; a copy, so that a selector cannot change what is persisted."""
    options: Mapping[str, JSON]
    """The submit options that were given, as JSON."""
    candidates: tuple[str, ...]
    """Keys of the handlers that take these params, sorted; the answer must be one of them."""


Selector: TypeAlias = Callable[[Selection], Awaitable[str]]
"""Returns the key of the handler that gets the task; called once for a task, its answer is persisted."""
