"""Tasks in an LMDB file, which the processes of one host share."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import field, frozen
from attrs.validators import ge

from coatcheck import StoreUnavailable
from coatcheck.clock import Clock
from coatcheck.locked import ByteRecords, LockedStore
from coatcheck.store import Capability
from coatcheck_store_lmdb.environments import SharedEnvironment, acquire, release
from coatcheck_store_lmdb.records import LmdbRecords

_SCHEME = "lmdb://"
_SMALLEST = 1 << 20


@frozen(kw_only=True)
class LmdbSettings:
    """What `lmdb://` takes as keywords, or in its query string."""

    map_size: int = field(default=1 << 30, validator=ge(_SMALLEST))
    """How many bytes of address space the file gets at first. It is doubled whenever half of it is in use."""

    max_size: int = field(default=1 << 40, validator=ge(_SMALLEST))
    """How large the file may become, in bytes."""

    clock: Clock | None = None
    """What tells the time, in tests; None is the host's clock."""


class LmdbStore(LockedStore):
    """Tasks in an LMDB file.

    A section is LMDB's write transaction: there is one at a time in all processes, it is kept whole or not at all, and
    it ends only when the disk has it.
    """

    blocking = True  # a section waits for the others, and for the disk

    def __init__(self, path: Path, settings: LmdbSettings | None = None) -> None:
        super().__init__()
        self._path = path
        self._settings = settings or LmdbSettings()
        self._environment: SharedEnvironment | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What holds beyond the contract."""
        return frozenset({Capability.DURABLE, Capability.SHARED, Capability.SURVIVES_FAILOVER})

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{_SCHEME}{self._path}"

    async def setup(self) -> None:
        """Make the file, or check that it is one that this version can use."""
        release(acquire(self._path))

    async def open(self) -> None:
        """Open the file, which is made if it is missing."""
        before, self._environment = self._environment, acquire(self._path)
        try:
            await super().open()
        except BaseException:  # perhaps because it is open, and then it stays so
            self._release()
            self._environment = before
            raise

    async def close(self) -> None:
        """Close the file, if no other store of this process uses it."""
        try:
            await super().close()
        finally:
            self._release()

    def _release(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            release(environment)

    def _now(self) -> datetime:
        clock = self._settings.clock
        return datetime.now(UTC) if clock is None else clock.now()

    @contextmanager
    def _section(self) -> Iterator[ByteRecords]:
        environment = self._environment
        if environment is None:
            raise StoreUnavailable(f"{self.url} is not open")
        with environment.transaction(self._settings.map_size, self._settings.max_size) as transaction:
            yield LmdbRecords(transaction)


def create(url: str, settings: LmdbSettings | None = None) -> LmdbStore:
    """Return the store of a URL such as `lmdb:///var/lib/jobs.lmdb`, closed.

    The slashes after `lmdb:` are two, and the path follows: a third one makes it absolute.
    """
    return LmdbStore(Path(url.removeprefix(_SCHEME)), settings)
