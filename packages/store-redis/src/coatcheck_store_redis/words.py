"""Texts of callers inside records and fields of hashes, where no control characters may stand."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from coatcheck.codec import dumps, loads

__all__ = ["dedup_field", "plain", "written"]

_ESCAPED = frozenset('"\\')


def written(text: str) -> str:
    """Return a text as it stands in a record: as in JSON, without the quotes."""
    if text.isascii() and text.isprintable() and _ESCAPED.isdisjoint(text):
        return text
    return dumps(text)[1:-1]


@lru_cache(maxsize=8192)
def plain(text: bytes) -> str:
    """Return the text that stands in a record as `text`."""
    return cast("str", loads(b'"' + text + b'"')) if b"\\" in text else text.decode()


def dedup_field(tenant_id: str | None, key: str | None) -> str:
    """Return under which field the holder of a dedup key is found; none, if there is no key."""
    if key is None:
        return ""
    # a tab cannot stand in what is written
    return f"={written(key)}" if tenant_id is None else f"{written(tenant_id)}\t{written(key)}"
