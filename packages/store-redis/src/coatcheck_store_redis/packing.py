"""Commands as bytes: packed as fast as can be, since a step has thousands of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["packed"]

_in_c: Callable[[Any], bytes] | None
try:
    from hiredis import pack_command as _in_c
except ImportError:
    _in_c = None


def packed(commands: Sequence[tuple[str | bytes | int | float, ...]]) -> bytes:
    """Return commands as they go on the wire."""
    return b"".join(list(map(_in_c or _packed, commands)))


def _packed(command: tuple[str | bytes | int | float, ...]) -> bytes:
    words = [word if type(word) is bytes else str(word).encode() for word in command]
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
