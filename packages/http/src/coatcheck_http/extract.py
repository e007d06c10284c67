"""Looking things up in providers' JSON, which names one thing in several ways."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from coatcheck.task import JSON

__all__ = ["first", "first_object", "first_text", "form_text", "items", "lookup", "number"]


def lookup(document: JSON, path: str) -> JSON:
    """Return what is at `path`, such as ``data.extract_result.0.state``, or None. Numbers index lists."""
    found = document
    for step in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, Sequence) and not isinstance(found, str) and step.isdecimal():
            found = found[int(step)] if int(step) < len(found) else None
        else:
            return None
    return found


def first(document: JSON, *paths: str) -> JSON:
    """Return the first that is not empty, as null, blank text, and empty lists and objects are, or None."""
    for path in paths:
        found = lookup(document, path)
        if isinstance(found, str) and not found.strip():
            continue
        if found is None or (isinstance(found, (Mapping, Sequence)) and not found):
            continue
        return found
    return None


def first_text(document: JSON, *paths: str) -> str | None:
    """Return the first that is a non-blank string or a number, as a string without outer blanks, or None."""
    for path in paths:
        found = lookup(document, path)
        if isinstance(found, str) and found.strip():
            return found.strip()
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            return str(found)
    return None


def first_object(document: JSON, *paths: str) -> Mapping[str, JSON]:
    """Return the first that is an object with something in it, or an empty one."""
    for path in paths:
        found = lookup(document, path)
        if isinstance(found, Mapping) and found:
            return found
    return {}


def items(document: JSON, path: str) -> Sequence[JSON]:
    """Return the list at `path`, or an empty one if there is none."""
    found = lookup(document, path)
    return found if isinstance(found, Sequence) and not isinstance(found, str) else ()


def number(document: JSON, path: str) -> float | None:
    """Return the number at `path`, or None; text is none, nor are true and false."""
    found = lookup(document, path)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def form_text(value: JSON) -> str:
    """Return a value as a field of a form: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
