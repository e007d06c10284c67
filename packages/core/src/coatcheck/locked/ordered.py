"""Ordered records: what a `LockedStore` keeps everything in, and how they become bytes.

A key is a tuple of texts, whole numbers and instants, whose first part names an index. Keys of one index
have the same kinds of parts in the same places, and sort as tuples do. A record is a task, a gate, another
key, or a JSON value. A store that can hold bytes under bytes, in order, has `ByteRecords` do the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, cast

from coatcheck.codec import decode_gate, decode_task, dumps, encode_gate, encode_task, loads
from coatcheck.errors import UndecodableRow
from coatcheck.gates import Gate
from coatcheck.task import JSON, Task, as_millis, from_millis

__all__ = [
    "MILLISECOND",
    "ByteRecords",
    "Key",
    "Part",
    "Record",
    "Records",
    "above",
    "pack",
    "task_key",
    "unpack",
]

Part: TypeAlias = str | int | datetime
Key: TypeAlias = tuple[Part, ...]
Record: TypeAlias = "Task | Gate | Key | JSON"

MILLISECOND = timedelta(milliseconds=1)


def above(prefix: Key) -> Key:
    """Return the lowest key above all keys that begin with `prefix`."""
    last = prefix[-1]
    if isinstance(last, str):
        return (*prefix[:-1], last + "\0")
    if isinstance(last, datetime):
        return (*prefix[:-1], last + MILLISECOND)
    return (*prefix[:-1], last + 1)


class Records(ABC):
    """The records of a store, inside one exclusive section. What is written is kept if the section ends well."""

    @abstractmethod
    def get(self, key: Key) -> Record:
        """Return the record of `key`, or None.

        Raises:
            UndecodableRow: there is one, and this version cannot read it.
        """

    @abstractmethod
    def put(self, key: Key, record: Record) -> None:
        """Write a record, which is never None, in place of the one that `key` may have."""

    def mark(self, key: Key) -> None:
        """Write a key that says everything by being there."""
        self.put(key, True)  # noqa: FBT003 - a record

    @abstractmethod
    def delete(self, key: Key) -> bool:
        """Delete the record of `key`, and return whether there was one."""

    @abstractmethod
    def scan(self, first: Key, last: Key, limit: int | None = None) -> Sequence[Key]:
        """Return the keys from `first` up to, not including, `last`, ascending: the lowest `limit`."""

    def under(self, prefix: Key, limit: int | None = None) -> Sequence[Key]:
        """Return the keys that begin with `prefix`, ascending: the lowest `limit`."""
        return self.scan(prefix, above(prefix), limit)

    def first(self, prefix: Key) -> Key | None:
        """Return the lowest key that begins with `prefix`, or None."""
        found = self.scan(prefix, above(prefix), 1)
        return found[0] if found else None


class ByteRecords(Records):
    """Ordered records over bytes. Subclass it with four methods on bytes, and a `LockedStore` is at hand."""

    @abstractmethod
    def get_bytes(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""

    @abstractmethod
    def put_bytes(self, key: bytes, value: bytes) -> None:
        """Write a value in place of the one that `key` may have."""

    @abstractmethod
    def delete_bytes(self, key: bytes) -> bool:
        """Delete the value of `key`, and return whether there was one."""

    @abstractmethod
    def scan_bytes(self, first: bytes, last: bytes, limit: int | None) -> Iterable[bytes]:
        """Return the keys from `first` up to, not including, `last`, ascending: the lowest `limit`."""

    def get(self, key: Key) -> Record:
        """Decode it."""
        value = self.get_bytes(pack(key))
        return None if value is None else _decode(value)

    def put(self, key: Key, record: Record) -> None:
        """Encode it."""
        self.put_bytes(pack(key), _encode(record))

    def delete(self, key: Key) -> bool:
        """Delete it."""
        return self.delete_bytes(pack(key))

    def scan(self, first: Key, last: Key, limit: int | None = None) -> Sequence[Key]:
        """Decode them."""
        return [unpack(key) for key in self.scan_bytes(pack(first), pack(last), limit)]


def task_key(task_id: str) -> bytes:
    """Return the key under which a `LockedStore` over bytes keeps a task: for tests that damage one."""
    return pack(("task", task_id))


# ------------------------------------------------------------------ keys as bytes

_TEXT, _NUMBER, _INSTANT = 2, 3, 4
_NUMBER_BYTES, _NUMBER_OFFSET = 12, 1 << 95
_INSTANT_BYTES, _INSTANT_OFFSET = 8, 1 << 63


def pack(key: Key) -> bytes:
    """Return `key` as bytes that sort as the keys do."""
    packed = bytearray()
    for part in key:
        if isinstance(part, str):
            packed.append(_TEXT)
            packed += part.encode().replace(b"\0", b"\0\xff")
            packed.append(0)
        elif isinstance(part, datetime):
            packed.append(_INSTANT)
            packed += (as_millis(part) + _INSTANT_OFFSET).to_bytes(_INSTANT_BYTES)
        else:
            packed.append(_NUMBER)
            packed += (part + _NUMBER_OFFSET).to_bytes(_NUMBER_BYTES)
    return bytes(packed)


def unpack(packed: bytes) -> Key:
    """Return the key that `pack` made these bytes of; raise `UndecodableRow` if it made no such."""
    parts: list[Part] = []
    at = 0
    while at < len(packed):
        kind, at = packed[at], at + 1
        if kind == _TEXT:
            end = packed.index(0, at)
            while packed[end + 1 : end + 2] == b"\xff":
                end = packed.index(0, end + 1)
            parts.append(packed[at:end].replace(b"\0\xff", b"\0").decode())
            at = end + 1
        elif kind == _NUMBER:
            parts.append(int.from_bytes(packed[at : at + _NUMBER_BYTES]) - _NUMBER_OFFSET)
            at += _NUMBER_BYTES
        elif kind == _INSTANT:
            parts.append(from_millis(int.from_bytes(packed[at : at + _INSTANT_BYTES]) - _INSTANT_OFFSET))
            at += _INSTANT_BYTES
        else:
            raise UndecodableRow(f"no key of a locked store: {packed!r}")
    return tuple(parts)


# ------------------------------------------------------------------ records as bytes


def _encode(record: Record) -> bytes:
    if isinstance(record, Task):
        return b"T" + dumps(encode_task(record)).encode()
    if isinstance(record, Gate):
        return b"G" + dumps(encode_gate(record)).encode()
    if isinstance(record, tuple):
        return b"K" + pack(cast("Key", record))
    return b"J" + dumps(record).encode()


def _decode(value: bytes) -> Record:
    tag, body = value[:1], value[1:]
    if tag == b"J":
        return loads(body)
    if tag == b"K":
        return unpack(body)
    document = loads(body) if tag in (b"T", b"G") else None
    if not isinstance(document, dict):
        raise UndecodableRow(f"no record of a locked store: {value[:40]!r}")
    return decode_task(document) if tag == b"T" else decode_gate(document)
