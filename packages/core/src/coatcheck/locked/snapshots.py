"""Tasks on their way into and out of a `LockedStore`: proven to be storable, and sharing no container."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coatcheck.codec import dumps
from coatcheck.errors import NotPersistable
from coatcheck.evolving import evolve
from coatcheck.task import QueryParams, Task

__all__ = ["MAX_DEPTH", "proven", "snapshot"]

MAX_DEPTH = 500
"""How deep stored JSON is nested at most: what goes in must come out at any depth of the stack."""

_PLAIN = frozenset({str, int, float, bool, type(None)})


def snapshot(task: Task) -> Task:
    """Return `task` with JSON containers of its own, so that nobody can change a stored one through it."""
    query_params, outcome, params = task.query_params, task.outcome, task.params
    changes: dict[str, Any] = {"metadata": _copy(task.metadata)}
    if params is not None:
        changes["params"] = _copy(params)
    if query_params is not None:
        changes["query_params"] = QueryParams(
            external_task_id=query_params.external_task_id,
            provider_params=_copy(query_params.provider_params),
        )
    if outcome.result is not None:
        changes["outcome"] = evolve(outcome, result=_copy(outcome.result))
    return evolve(task, **changes)


def _copy(value: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return what `copy_json` would, without recursion: deep values are copied at whatever depth of the stack."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if not value and kind is dict:
        return {}
    copied: list[Any] = [None]
    left: list[tuple[Any, Any, Any, int]] = [(value, copied, 0, 0)]
    while left:
        source, target, place, depth = left.pop()
        if type(source) is dict or isinstance(source, Mapping):
            made: Any = dict.fromkeys(source)
            inner: Iterable[tuple[Any, Any]] = source.items()
        elif isinstance(source, Sequence) and not isinstance(source, str):
            made = [None] * len(source)
            inner = enumerate(source)
        else:
            target[place] = source
            continue
        if depth == MAX_DEPTH:
            raise NotPersistable("value", f"is nested deeper than {MAX_DEPTH} levels")
        target[place] = made
        for key, each in inner:
            if type(each) in _PLAIN:
                made[key] = each
            else:
                left.append((each, made, key, depth + 1))
    return copied[0]


def proven(task: Task, before: Task | None = None) -> Task:
    """Return a snapshot of `task` for the store to keep; what came from outside since `before` is storable.

    Raises:
        NotPersistable: it holds NaN or an infinity, a lone surrogate, or something that is no JSON, or is
            nested too deeply.
    """
    if before is None:
        _check_texts(_texts_of_draft(task))
        dumps(task.params, path="params")
        if task.metadata:
            dumps(task.metadata, path="metadata")
        return snapshot(task)
    _check_texts(_texts_of_outcome(task))
    fraction = task.progress.fraction
    if fraction is not None and not (type(fraction) is float and math.isfinite(fraction)):
        dumps(fraction, path="progress")
    if task.outcome.result is not None and task.outcome.result is not before.outcome.result:
        dumps(task.outcome.result, path="result")
    query_params = task.query_params
    if query_params is not None and query_params is not before.query_params and query_params.provider_params:
        dumps(query_params.provider_params, path="provider_params")
    return snapshot(task)


def _check_texts(texts: Mapping[str, object]) -> None:
    """Raise `NotPersistable` naming the text that cannot be stored."""
    try:
        "".join(filter(None, texts.values())).encode()  # type: ignore[arg-type]  # what is no text is refused
    except (TypeError, UnicodeEncodeError):
        for name, value in texts.items():
            dumps(value, path=name)  # type: ignore[arg-type]
            if value is not None and not isinstance(value, str):
                raise NotPersistable(name, f"is a text, not {value!r}") from None


def _texts_of_draft(task: Task) -> dict[str, object]:
    route, identity = task.route, task.identity
    return {
        "id": task.id,
        "handler_key": route.handler_key,
        "provider_key": route.provider_key,
        "account_id": route.account_id,
        "tenant_id": route.tenant_id,
        "gates": "".join(route.gates),
        "query_gate": route.query_gate,
        "params_digest": identity.params_digest,
        "idempotency_key": identity.idempotency_key,
        "dedup_key": identity.dedup_key,
    }


def _texts_of_outcome(task: Task) -> dict[str, object]:
    error, progress = task.outcome.error, task.progress
    return {
        "error.code": error and error.code,
        "error.message": error and error.message,
        "error.provider_code": error and error.provider_code,
        "provider_status": progress.provider_status,
        "external_task_id": task.external_task_id,
        "note": task.history[-1].note if task.history else None,
        "worker_id": task.history[-1].worker_id if task.history else None,
    }
