"""JSON as text: exact, compact, and nothing that a store could not hold."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from coatcheck.errors import NotPersistable, UndecodableRow
from coatcheck.task import JSON

__all__ = ["digest", "dumps", "loads"]

_write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_write_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode
_CONTAINERS = (dict, list, tuple)
_LEAVES = frozenset({str, int, float, bool, type(None)})
_read = json.JSONDecoder().raw_decode


def dumps(value: JSON, *, path: str = "value") -> str:
    """Return `value` as compact JSON text that any store can hold and `loads` reads back equal.

    Raises:
        NotPersistable: it holds NaN or an infinity, a lone surrogate, a key that is no string, or no JSON
            value; `path` is where it starts.
    """
    try:
        text = _write(value)
        if not text.isascii():
            text.encode("utf-8")
        if isinstance(value, _CONTAINERS):
            _check_keys(value)
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise NotPersistable(
            path, f"holds the lone surrogate {broken!r}, which is no text; remove or replace it"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPersistable(path, f"is not JSON: {error}") from error
    return text


def _check_keys(container: Any) -> None:  # noqa: ANN401 - an object or array
    """Refuse keys that are no strings: `json` writes them as strings, so they would come back changed."""
    values = container
    if isinstance(container, dict):
        for key in container:
            if not isinstance(key, str):
                message = f"an object's keys are strings, and one is {key!r}"
                raise TypeError(message)
        values = container.values()
    if _LEAVES.issuperset(map(type, values)):
        return
    for each in values:
        if isinstance(each, _CONTAINERS):
            _check_keys(each)


def loads(text: str | bytes) -> JSON:
    """Return the value of a JSON text; raise `UndecodableRow` if it is none."""
    try:
        if isinstance(text, str):
            value, end = _read(text)
            if end == len(text):
                return cast("JSON", value)
        return cast("JSON", json.loads(text))  # also what stands between spaces
    except (ValueError, RecursionError) as error:
        raise UndecodableRow(f"not JSON: {error}") from error


def digest(value: JSON) -> str:
    """Return the SHA-256 of `value` as canonical JSON, in hex."""
    try:
        return hashlib.sha256(_write_sorted(value).encode("utf-8")).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPersistable("params", f"is not JSON: {error}") from error
