"""The smallest durable and shared store: a `LockedStore` over a SQLite file that holds bytes under bytes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from coatcheck.clock import Clock
from coatcheck.locked import ByteRecords, LockedStore, Records
from coatcheck.store import Capability


class Bytes(ByteRecords):
    """Bytes under bytes, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get_bytes(self, key: bytes) -> bytes | None:
        """Look it up."""
        row = self._connection.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def put_bytes(self, key: bytes, value: bytes) -> None:
        """Write it."""
        self._connection.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, value))

    def delete_bytes(self, key: bytes) -> bool:
        """Delete it."""
        return self._connection.execute("DELETE FROM kv WHERE key = ?", (key,)).rowcount > 0

    def scan_bytes(self, first: bytes, last: bytes, limit: int | None) -> Iterable[bytes]:
        """Return what stands between."""
        rows = self._connection.execute(
            "SELECT key FROM kv WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
            (first, last, -1 if limit is None else limit),
        )
        return [bytes(row[0]) for row in rows]


class FileStore(LockedStore):
    """All of the contract, in one file."""

    blocking = True

    def __init__(self, path: str, *, clock: Clock | None = None) -> None:
        super().__init__()
        self._path = path
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """A file outlives its processes, and several can open it."""
        return frozenset({Capability.DURABLE, Capability.SHARED})

    @property
    def url(self) -> str:
        """Where the file is."""
        return Path(self._path).as_uri()

    async def setup(self) -> None:
        """Create the table."""
        connection = self._connect()
        connection.execute("CREATE TABLE IF NOT EXISTS kv (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        connection.close()

    async def open(self) -> None:
        """Connect."""
        await super().open()
        self._connection = self._connect()

    async def close(self) -> None:
        """Disconnect, once no section is at work."""
        await super().close()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def _now(self) -> datetime:
        return datetime.now(UTC) if self._clock is None else self._clock.now()

    @contextmanager
    def _section(self) -> Iterator[Records]:
        with self._lock:
            assert self._connection is not None
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield Bytes(self._connection)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


class NotifyingFileStore(FileStore):
    """The same, and it notices at once what another process has written."""

    watch_seconds = 0.005

    def __init__(self, path: str, *, clock: Clock | None = None) -> None:
        super().__init__(path, clock=clock)
        self._watcher: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Nobody has to poll it: the watcher does."""
        return super().capabilities | {Capability.NOTIFIES}

    async def open(self) -> None:
        """Connect, and watch the file."""
        await super().open()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop watching, and disconnect."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])
        await super().close()

    async def _watch(self) -> None:
        """Have the waiting calls look again whenever anybody has written."""
        connection = self._connect()
        try:
            seen = None
            while True:
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    seen = version
                    self._look_again()
                await asyncio.sleep(self.watch_seconds)
        finally:
            connection.close()
