"""Copies that share no container: what makes a snapshot a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coatcheck.evolving import changer
from coatcheck.task import JSON, Outcome, QueryParams, Task

__all__ = ["copy_json", "isolated"]

_PLAIN = frozenset({str, int, float, bool, type(None)})

_with_json = changer(Task, "params", "metadata", "query_params", "outcome", "extra")
_with_result = changer(Outcome, "result")
_with_provider_params = changer(QueryParams, "provider_params")


def copy_json(value: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return a copy of `value` that shares no container with it; tuples become lists, mappings dicts.

    It does not recurse, so values of any depth are copied at whatever depth of the stack.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict and (not value or _PLAIN.issuperset(map(type, value.values()))):
        return value.copy()
    copied: list[JSON] = [value]
    left: list[tuple[Any, Any]] = [(copied, 0)]
    while left:
        container, place = left.pop()
        inner = container[place]
        kind = type(inner)
        if kind is dict or (kind is not list and isinstance(inner, Mapping)):
            container[place] = made = dict(inner)
            left += [(made, key) for key, each in made.items() if type(each) not in _PLAIN]
        elif kind is list or (isinstance(inner, Sequence) and not isinstance(inner, str)):
            container[place] = items = list(inner)
            left += [(items, index) for index, each in enumerate(items) if type(each) not in _PLAIN]
    return copied[0]


def isolated(task: Task) -> Task:
    """Return `task` with JSON containers of its own, so that nobody can change a stored one through it."""
    query_params, outcome = task.query_params, task.outcome
    if query_params is not None:
        query_params = _with_provider_params(
            query_params, provider_params=copy_json(query_params.provider_params)
        )
    if type(outcome.result) not in _PLAIN:
        outcome = _with_result(outcome, result=copy_json(outcome.result))
    return _with_json(
        task,
        params=copy_json(task.params),
        metadata=copy_json(task.metadata),
        query_params=query_params,
        outcome=outcome,
        extra=copy_json(task.extra),
    )
