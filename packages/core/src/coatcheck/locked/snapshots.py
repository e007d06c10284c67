"""Tasks on their way into a `LockedStore`: proven to be storable, and sharing no container."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from coatcheck.codec import dumps
from coatcheck.codec import isolated as snapshot
from coatcheck.errors import NotPersistable
from coatcheck.task import Task

__all__ = ["MAX_DEPTH", "proven", "snapshot"]

MAX_DEPTH = 500
"""How deep stored JSON is nested at most: what goes in must come out at any depth of the stack."""

_CONTAINERS = (dict, list, tuple)
_FEW, _LARGE = 16, 1 << 63


def proven(task: Task, before: Task | None = None) -> Task:
    """Return a snapshot of `task` for the store to keep; what came from outside since `before` is storable.

    Raises:
        NotPersistable: it holds NaN or an infinity, a lone surrogate, or something that is no JSON, or is
            nested too deeply.
    """
    if before is None:
        _check_texts(_texts_of_draft(task))
        _check(task.params, "params")
        if task.metadata:
            _check(task.metadata, "metadata")
        return snapshot(task)
    _check_texts(_texts_of_outcome(task))
    fraction = task.progress.fraction
    if fraction is not None and not (type(fraction) is float and math.isfinite(fraction)):
        dumps(fraction, path="progress")
    result, query_params = task.outcome.result, task.query_params
    if result is not None and result is not before.outcome.result:
        _check(result, "result")
    if query_params is not None and query_params is not before.query_params and query_params.provider_params:
        _check(query_params.provider_params, "provider_params")
    return snapshot(task)


def _check(value: object, path: str) -> None:
    """Raise `NotPersistable` if `value` is no JSON that can be stored, and read back at any depth of the stack."""
    if _is_plain(value):
        return
    dumps(value, path=path)  # type: ignore[arg-type]  # that is the question
    depth, level = 0, [value] if isinstance(value, _CONTAINERS) else []
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise NotPersistable(path, f"is nested deeper than {MAX_DEPTH} levels")
        level = [each for outer in level for each in _members(outer) if isinstance(each, _CONTAINERS)]


def _is_plain(value: object) -> bool:
    """Whether `value` is small and flat, as most are, and storable at sight; if not, that says nothing."""
    if type(value) is not dict or len(value) > _FEW:
        return False
    for name, each in value.items():
        kind = type(each)
        if kind is str:
            if not each.isascii():
                return False
        elif kind is int:
            if not -_LARGE < each < _LARGE:
                return False
        elif kind is not bool and each is not None:
            return False
        if type(name) is not str or not name.isascii():
            return False
    return True


def _members(container: Any) -> Iterable[object]:  # noqa: ANN401 - a JSON object or array
    return container.values() if isinstance(container, dict) else container


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
