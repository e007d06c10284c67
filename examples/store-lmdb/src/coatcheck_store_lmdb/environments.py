"""The LMDB environments of this process: one for each file, however many stores are open on it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lmdb

from coatcheck import ConfigurationError, SchemaOutdated, StoreUnavailable
from coatcheck_store_lmdb.records import FORMAT_KEY, LONGEST_KEY

_FORMAT = b"coatcheck-store-lmdb 1"
_FAMILY = b"coatcheck-store-lmdb "

_NO_DATABASE = (lmdb.InvalidError, lmdb.VersionMismatchError)


class SharedEnvironment:
    """One file, open once in this process, as LMDB demands, for all stores that use it.

    After an error of LMDB it is closed, and the next transaction opens it anew. The same happens in a forked child,
    which must not use what its parent has opened.
    """

    def __init__(self, path: Path) -> None:
        self.users = 0
        self.identity: tuple[int, int] | None = None
        self._path = path
        self._page_size = 0
        self._mutex = threading.RLock()
        self._environment: lmdb.Environment | None = None
        self._inherited = False

    def open(self) -> None:
        """Open the file, and make it if it is missing."""
        with self._mutex:
            self._opened()

    def close(self) -> None:
        """Close the file, once a transaction that is on its way has ended."""
        with self._mutex:
            self._drop()

    def before_fork(self) -> None:
        """Wait for the transaction that is on its way: a child could neither end it nor close the file."""
        self._mutex.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Let transactions begin again."""
        self._inherited = in_child
        self._mutex.release()

    @contextmanager
    def transaction(self, map_size: int, max_size: int) -> Iterator["lmdb.Transaction[bytes]"]:
        """Hold the only write transaction of all processes; commit it, or abort it if anything is raised.

        Args:
            map_size: How large the map has to be, at least.
            max_size: How large it may become when more is in use.

        Raises:
            StoreUnavailable: LMDB failed; or the file is as large as it may become, and then nothing has changed.
        """
        with self._mutex:
            transaction = self._begin(map_size, max_size)
            try:
                yield transaction
                transaction.commit()
            except lmdb.MapFullError as error:
                transaction.abort()
                raise self._full(max_size) from error
            except lmdb.Error as error:
                transaction.abort()
                self._drop()
                raise StoreUnavailable(f"{self._path}: {error}") from error
            except BaseException:
                transaction.abort()
                raise

    def _begin(self, map_size: int, max_size: int) -> "lmdb.Transaction[bytes]":
        try:
            environment = self._opened()
            self._make_room(environment, map_size, max_size)
            try:
                return environment.begin(write=True)
            except lmdb.MapResizedError:  # another process has just made room
                environment.set_mapsize(0)
                return environment.begin(write=True)
        except lmdb.Error as error:
            self._drop()
            raise StoreUnavailable(f"{self._path} cannot be used: {error}") from error

    def _make_room(self, environment: lmdb.Environment, map_size: int, max_size: int) -> None:
        """Double the map when half of it is in use, so that it does not become full within a transaction."""
        info = environment.info()
        used = (info["last_pgno"] + 1) * self._page_size
        enough = max(map_size, info["map_size"])
        while enough < 2 * used:
            enough *= 2
        enough = min(enough, max_size)
        if info["map_size"] < enough:
            environment.set_mapsize(enough)

    def _full(self, max_size: int) -> StoreUnavailable:
        """Make room for the next attempt at what did not fit, and say what has happened."""
        environment = self._opened()
        size = environment.info()["map_size"]
        if size >= max_size:
            return StoreUnavailable(
                f"{self._path} is full: {size} bytes. Nothing of this step was kept, and nothing else is lost. "
                "Give the store a larger max_size; then purge what is no longer needed"
            )
        larger = min(2 * size, max_size)
        try:
            environment.set_mapsize(larger)
        except lmdb.Error as error:
            self._drop()
            return StoreUnavailable(
                f"{self._path} is full, and its map cannot grow from {size} to {larger} bytes: {error}. "
                "Nothing of this step was kept, and nothing else is lost"
            )
        return StoreUnavailable(
            f"{self._path} had no room for a step as large as this one. Nothing of it was kept; "
            f"there is room for {larger} bytes now, so try again"
        )

    def _opened(self) -> lmdb.Environment:
        """Return the environment of this process.

        Raises:
            ConfigurationError: The file is something else.
            SchemaOutdated: It was written by another version.
            StoreUnavailable: It cannot be opened.
        """
        if self._environment is not None and not self._inherited:
            return self._environment
        self._drop()
        try:
            # the map is as large as the last writer had it; each transaction makes the room that it wants
            self._environment = lmdb.open(
                str(self._path), subdir=False, map_size=0, sync=True, metasync=True, lock=True
            )
            self._environment.reader_check()  # frees the slots of the dead
            self._check(self._environment)
            self._page_size = self._environment.stat()["psize"]
            self.identity = identity_of(self._path)
            _keep_name(self._path)
        except _NO_DATABASE as error:
            self._drop()
            raise ConfigurationError(f"{self._path} is not an LMDB file that can be read: {error}") from error
        except (lmdb.Error, OSError) as error:
            self._drop()
            raise StoreUnavailable(f"{self._path} cannot be opened: {error}") from error
        except BaseException:
            self._drop()
            raise
        return self._environment

    def _check(self, environment: lmdb.Environment) -> None:
        if environment.max_key_size() < LONGEST_KEY:
            raise ConfigurationError(
                f"this LMDB was built for keys of {environment.max_key_size()} bytes; {LONGEST_KEY} are needed"
            )
        with environment.begin() as reading:
            found = reading.get(FORMAT_KEY)
        if found is None:
            with environment.begin(write=True) as writing:
                found = writing.get(FORMAT_KEY)
                if found is None and not writing.stat()["entries"]:
                    writing.put(FORMAT_KEY, _FORMAT)
                    found = _FORMAT
        if found is None or not found.startswith(_FAMILY):
            raise ConfigurationError(
                f"{self._path} holds data of something else; give the store its own file"
            )
        if found != _FORMAT:
            raise SchemaOutdated(
                f"{self._path} has the format {found.decode(errors='replace')!r}, and this version "
                f"reads {_FORMAT.decode()!r}; install the coatcheck-store-lmdb that wrote it"
            )

    def _drop(self) -> None:
        if self._environment is not None:
            self._environment.close()
        self._environment = None
        self._inherited = False


_registry = threading.RLock()
_shared: list[SharedEnvironment] = []


def acquire(path: Path) -> SharedEnvironment:
    """Return the environment of a file, open; `release` it when it is no longer needed."""
    path = path.absolute()
    with _registry:
        identity = identity_of(path)
        for shared in _shared:
            if identity is not None and shared.identity == identity:
                break
        else:
            shared = SharedEnvironment(path)
            shared.open()
            _shared.append(shared)
        shared.users += 1
        return shared


def release(shared: SharedEnvironment) -> None:
    """Close an environment when nobody uses it any more."""
    with _registry:
        shared.users -= 1
        if not shared.users:
            _shared.remove(shared)
            shared.close()


def identity_of(path: Path) -> tuple[int, int] | None:
    """Tell files apart, whatever they are called; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _keep_name(path: Path) -> None:
    """Make the file's name survive a crash of the host, as its contents do."""
    if os.name != "posix":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _before_fork() -> None:
    _registry.acquire()
    for shared in _shared:
        shared.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for shared in _shared:
        shared.after_fork(in_child=in_child)
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, in_child=False),
        after_in_child=partial(_after_fork, in_child=True),
    )
