"""The memory store: everything in this process, gone with it. For tests, development, and one-process apps."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from attrs import field, frozen

from coatcheck.clock import Clock
from coatcheck.errors import ConfigurationError
from coatcheck.locked import LockedStore
from coatcheck.locked.ordered import Key, Part, Record, Records
from coatcheck.store import Capability

__all__ = ["MemorySettings", "MemoryStore", "create"]

_CHUNK = 512
_MOST_LEFT = 4096
"""How many keys are put, or deleted, at most before they are sorted in, or out, so that no scan takes long."""


class _Sorted:
    """Keys in ascending order, in chunks, so that nothing costs much more with more of them."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[list[Key]] = []
        self._lasts: list[Key] = []

    def add(self, keys: list[Key]) -> None:
        """Add ascending keys that are new. Each goes into the first chunk that ends above it, or into the last."""
        chunks, lasts, done = self._chunks, self._lasts, 0
        while done < len(keys):
            at, end = bisect_left(lasts, keys[done]), len(keys)
            if at < len(lasts):
                end = bisect_left(keys, lasts[at], done)
            elif lasts:
                at -= 1
            else:
                chunks.append([])
                lasts.append(keys[-1])
            chunk = chunks[at]
            chunk += keys[done:end]
            chunk.sort()
            pieces = [chunk]
            if len(chunk) > 2 * _CHUNK:
                pieces = [chunk[start : start + _CHUNK] for start in range(0, len(chunk), _CHUNK)]
            chunks[at : at + 1] = pieces
            lasts[at : at + 1] = [piece[-1] for piece in pieces]
            done = end

    def remove(self, keys: list[Key]) -> None:
        """Remove ascending keys that are there; most often they stand side by side."""
        chunks, lasts, done = self._chunks, self._lasts, 0
        while done < len(keys):
            at = bisect_left(lasts, keys[done])
            end = bisect_right(keys, lasts[at], done)
            chunk, gone, done = chunks[at], keys[done:end], end
            place = bisect_left(chunk, gone[0])
            if chunk[place : place + len(gone)] == gone:
                del chunk[place : place + len(gone)]
            else:
                for key in gone:
                    del chunk[bisect_left(chunk, key)]
            if chunk:
                lasts[at] = chunk[-1]
            else:
                del chunks[at], lasts[at]

    def between(self, first: Key, last: Key, limit: int | None) -> list[Key]:
        """Return keys from `first` up to, not including, `last`: the lowest `limit`."""
        at = bisect_left(self._lasts, first)
        if at == len(self._lasts):
            return []
        found: list[Key] = []
        start = bisect_left(self._chunks[at], first)
        while at < len(self._chunks) and (limit is None or len(found) < limit):
            chunk = self._chunks[at]
            piece = chunk[start:] if limit is None else chunk[start : start + limit - len(found)]
            if piece and piece[-1] >= last:
                found += piece[: bisect_left(piece, last)]
                break
            found += piece
            at, start = at + 1, 0
        return found


class _Index:
    """Records under the keys of one index. Most keys come and go unseen by any scan: it sorts what is left then."""

    __slots__ = ("_gone", "_new", "_sorted", "records")

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self._sorted = _Sorted()
        self._new: set[Key] = set()
        """Keys that are there and not among the sorted."""
        self._gone: set[Key] = set()
        """Keys that are among the sorted and not there any more."""

    def enter(self, key: Key) -> None:
        """Let scans find `key`, which is new."""
        if key in self._gone:
            self._gone.remove(key)
            return
        self._new.add(key)
        if len(self._new) > _MOST_LEFT:
            self._sort()

    def leave(self, key: Key) -> None:
        """Let no scan find `key` any more."""
        if key in self._new:
            self._new.remove(key)
            return
        self._gone.add(key)
        if len(self._gone) > _MOST_LEFT:
            self._sort()

    def scan(self, first: Key, last: Key, limit: int | None) -> list[Key]:
        """Return keys from `first` up to, not including, `last`: the lowest `limit`."""
        if self._new or self._gone:
            self._sort()
        return self._sorted.between(first, last, limit)

    def _sort(self) -> None:
        self._sorted.remove(sorted(self._gone))
        self._sorted.add(sorted(self._new))
        self._gone.clear()
        self._new.clear()


class _MemoryRecords(Records):
    """Records that live in this process. Objects are held as they are, so nobody may change one in place."""

    def __init__(self) -> None:
        self._indexes: dict[Part, _Index] = defaultdict(_Index)
        self._undo: list[tuple[Key, Record]] = []

    def get(self, key: Key) -> Record:
        """Look it up."""
        return self._indexes[key[0]].records.get(key)

    def put(self, key: Key, record: Record) -> None:
        """Write it, and remember what was there."""
        index = self._indexes[key[0]]
        before = index.records.get(key)
        self._undo.append((key, before))
        index.records[key] = record
        if before is None:
            index.enter(key)

    def mark(self, key: Key) -> None:
        """Write it, and remember whether it was there."""
        index = self._indexes[key[0]]
        if key not in index.records:
            self._undo.append((key, None))
            index.records[key] = True
            index.enter(key)

    def delete(self, key: Key) -> bool:
        """Delete it, and remember what was there."""
        index = self._indexes[key[0]]
        before = index.records.pop(key, None)
        if before is None:
            return False
        self._undo.append((key, before))
        index.leave(key)
        return True

    def scan(self, first: Key, last: Key, limit: int | None = None) -> Sequence[Key]:
        """Return what stands between."""
        return self._indexes[first[0]].scan(first, last, limit)

    def commit(self) -> None:
        """Forget what was there before."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Put everything back to what was there before."""
        undo, self._undo = self._undo, []
        for key, record in reversed(undo):
            if record is None:
                self.delete(key)
            else:
                self.put(key, record)
        self._undo.clear()


class MemoryStore(LockedStore):
    """The whole contract in this process, exact also between event loops and threads; nothing outlives it.

    It notifies within the process, which is all there is. What it holds stays when it is closed and opened
    again, as long as the object lives. With a clock that has `on_advance`, such as `ManualClock`, waiting
    calls look again whenever the clock moves.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._records = _MemoryRecords()
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """It notifies; nothing here is durable or shared."""
        return frozenset({Capability.NOTIFIES})

    @property
    def url(self) -> str:
        """Where it is: nowhere else."""
        return "memory://"

    async def open(self) -> None:
        """Begin; there is nothing to connect to."""
        await super().open()
        on_advance = getattr(self._clock, "on_advance", None)
        if on_advance is not None:
            self._unsubscribe = on_advance(self._look_again)

    async def close(self) -> None:
        """Stop; waiting calls end."""
        await super().close()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    async def setup(self) -> None:
        """Do nothing: there is no schema."""

    def _now(self) -> datetime:
        return datetime.now(UTC) if self._clock is None else self._clock.now()

    @contextmanager
    def _section(self) -> Iterator[Records]:
        with self._lock:
            try:
                yield self._records
            except BaseException:
                self._records.roll_back()
                raise
            self._records.commit()


@frozen(kw_only=True)
class MemorySettings:
    """How a memory store works."""

    clock: Clock | None = field(default=None, repr=False)
    """What tells the time; None is the host's clock."""


def create(url: str = "memory://", *, settings: MemorySettings | None = None) -> MemoryStore:
    """Return a closed, empty memory store; raise `ConfigurationError` for any other URL than ``memory://``."""
    if url.rstrip("/") != "memory:":
        message = f"the memory store is memory://, and nothing can be added to that: {url!r}"
        raise ConfigurationError(message)
    return MemoryStore(clock=settings.clock if settings else None)
