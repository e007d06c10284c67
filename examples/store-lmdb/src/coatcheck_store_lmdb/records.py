"""Records of any key length in LMDB, whose own keys end at 511 bytes.

A key of less than 503 bytes is one key of LMDB, behind eight zero bytes. A longer one is split: under its first 503
bytes there is a *link*, the number of a node, and behind that number the rest of the key goes on in the same way. So
keys that begin alike share their links, no key is hashed, and LMDB's order is the order of the keys: within a node a
link is longer than every other key, so none equals it, and all that begin with it lie where it lies.
"""

from collections.abc import Iterator
from itertools import islice

import lmdb

from coatcheck.locked import ByteRecords

_NUMBER = 8
"""How many bytes begin each key of LMDB: the number of its node."""

_ROOT = bytes(_NUMBER)

LONGEST_KEY = 511
"""LMDB's own limit. Part of the format, like all that follows from it."""

_CHUNK = LONGEST_KEY - _NUMBER

FORMAT_KEY = b"\0"
"""Where the file says in which format it is. Lies before all records."""


class LmdbRecords(ByteRecords):
    """The records as one write transaction sees them."""

    def __init__(self, transaction: "lmdb.Transaction[bytes]") -> None:
        self._transaction = transaction
        self._cursor = transaction.cursor()

    def get_bytes(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        way = self._way(key)
        return None if way is None else self._transaction.get(way[-1])

    def put_bytes(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        node = _ROOT
        newest: int | None = None
        while len(key) >= _CHUNK:
            link, key = node + key[:_CHUNK], key[_CHUNK:]
            known = self._transaction.get(link)
            if known is None:
                newest = (self._newest_node() if newest is None else newest) + 1
                known = newest.to_bytes(_NUMBER, "big")
                self._transaction.put(link, known)
            node = known
        self._transaction.put(node + key, value)

    def delete_bytes(self, key: bytes) -> bool:
        """Delete a key and the links that led to it alone; say whether it was there."""
        way = self._way(key)
        if way is None or not self._transaction.delete(way.pop()):
            return False
        while way:
            node = self._transaction.get(way[-1])
            if node is None or self._has_records(node):
                break
            self._transaction.delete(way.pop())
        return True

    def scan_bytes(self, first: bytes, last: bytes, limit: int | None) -> list[bytes]:
        """Return the keys from `first` up to `last`, which is not among them, in order."""
        return list(islice(self._scan(first, last), limit))

    def _scan(self, first: bytes, last: bytes) -> Iterator[bytes]:
        cursor = self._cursor
        node, before = _ROOT, b""  # what the keys of this node begin with
        ways_back: list[tuple[bytes, bytes, bytes]] = []
        there = cursor.set_range(node + first[:_CHUNK])
        while True:
            at = cursor.key() if there else b""
            key = before + at[_NUMBER:]
            if at[:_NUMBER] != node or key >= last:
                if not ways_back:
                    return
                node, before, link = ways_back.pop()
                there = cursor.set_range(link) and cursor.next()
            elif len(at) < LONGEST_KEY:
                yield key
                there = cursor.next()
            else:
                ways_back.append((node, before, at))
                node, before = cursor.value(), key
                rest = first[len(key) :] if first.startswith(key) else b""
                there = cursor.set_range(node + rest[:_CHUNK])

    def _way(self, key: bytes) -> list[bytes] | None:
        """Return the links that lead to a key, and LMDB's key for it; None if a link is missing."""
        way: list[bytes] = []
        node: bytes | None = _ROOT
        while len(key) >= _CHUNK:
            if node is None:
                return None
            way.append(node + key[:_CHUNK])
            node, key = self._transaction.get(way[-1]), key[_CHUNK:]
        return None if node is None else [*way, node + key]

    def _newest_node(self) -> int:
        self._cursor.last()  # there is one: the format, at least
        return int.from_bytes(self._cursor.key()[:_NUMBER], "big")

    def _has_records(self, node: bytes) -> bool:
        return self._cursor.set_range(node) and self._cursor.key().startswith(node)
