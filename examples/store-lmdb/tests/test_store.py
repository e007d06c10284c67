"""What the kit cannot know: LMDB's limits, and its files."""

import asyncio
import os
import random
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest
from coatcheck_store_lmdb.environments import acquire
from coatcheck_store_lmdb.records import FORMAT_KEY, LmdbRecords
from coatcheck_store_lmdb.store import LmdbSettings, LmdbStore, create

from coatcheck import ConfigurationError, SchemaOutdated, StoreUnavailable

MIB = 1 << 20
SMALL = LmdbSettings(map_size=MIB, max_size=64 * MIB)
LENGTHS = (0, 1, 2, 100, 502, 503, 504, 511, 512, 1005, 1006, 1007, 5000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Name a file that is not there yet."""
    return tmp_path / "tasks.lmdb"


@contextmanager
def plain(file: Path) -> Iterator["lmdb.Transaction[bytes]"]:
    """Change a file behind the store's back."""
    with lmdb.open(str(file), subdir=False) as environment, environment.begin(write=True) as transaction:
        yield transaction


def run(store: LmdbStore, work: Callable[[], None]) -> None:
    """Do something while a store is open."""

    async def main() -> None:
        async with store:
            work()

    asyncio.run(main())


def put(store: LmdbStore, key: bytes, size: int) -> None:
    """Write a record of some size, in a section of its own."""
    with store._section() as records:
        records.put_bytes(key, bytes(size))


def size_of(store: LmdbStore, key: bytes) -> int | None:
    """Return the size of a record, None if there is none."""
    with store._section() as records:
        value = records.get_bytes(key)
        return None if value is None else len(value)


@pytest.mark.parametrize("seed", range(20))
def test_keys_of_any_length_keep_their_order(file: Path, seed: int) -> None:
    """Keys on both sides of LMDB's limit behave as in a dictionary that is sorted."""
    chances = random.Random(seed)
    letters = [b"\0", b"\1", b"a", b"\xff"]

    def key() -> bytes:
        start = chances.choice(letters) * chances.choice(LENGTHS)
        return start + b"".join(chances.choices(letters, k=chances.randrange(3)))

    with plain(file) as transaction:
        transaction.put(FORMAT_KEY, b"")
        records, model = LmdbRecords(transaction), dict[bytes, bytes]()
        for number in range(400):
            some = key() if not model or chances.random() < 0.6 else chances.choice(list(model))
            if chances.random() < 0.5:
                model[some] = str(number).encode()
                records.put_bytes(some, model[some])
            else:
                assert records.delete_bytes(some) == (model.pop(some, None) is not None)
            assert records.get_bytes(some) == model.get(some)
            first, last, limit = key(), key(), chances.choice([None, 0, 1, 3])
            inside = sorted(each for each in model if first <= each < last)
            assert records.scan_bytes(first, last, limit) == inside[:limit]
        for some in model:
            assert records.delete_bytes(some)
        assert transaction.stat()["entries"] == 1  # no link is left


def test_the_map_grows_before_it_is_full(file: Path) -> None:
    """A store takes ten times what its map had room for, and nobody notices."""
    store = LmdbStore(file, SMALL)

    def work() -> None:
        for number in range(100):
            put(store, b"%d" % number, 100_000)
        assert [size_of(store, b"%d" % number) for number in range(100)] == [100_000] * 100

    run(store, work)


def test_a_step_larger_than_the_room_changes_nothing_and_fits_later(file: Path) -> None:
    """What does not fit is refused as a whole, and there is room for it from then on."""
    store = LmdbStore(file, SMALL)

    def work() -> None:
        put(store, b"kept", 10)
        with pytest.raises(
            StoreUnavailable, match="Nothing of it was kept; there is room for .* so try again"
        ):
            put(store, b"large", 3 * MIB // 2)
        assert (size_of(store, b"kept"), size_of(store, b"large")) == (10, None)
        put(store, b"large", 3 * MIB // 2)
        assert size_of(store, b"large") == 3 * MIB // 2

    run(store, work)


def test_a_full_store_says_so_and_loses_nothing(file: Path) -> None:
    """At the limit that its owner has set, a store says so and keeps what it has."""
    store = LmdbStore(file, LmdbSettings(max_size=MIB))
    kept: list[bytes] = []

    def fill() -> None:
        with pytest.raises(StoreUnavailable, match=r"is full: 1048576 bytes\. .* larger max_size"):
            for number in range(100):
                put(store, b"%d" % number, 50_000)
                kept.append(b"%d" % number)

    run(store, fill)
    assert 5 < len(kept) < 100
    larger = LmdbStore(file, SMALL)

    def work() -> None:
        assert all(size_of(larger, key) == 50_000 for key in kept)
        assert size_of(larger, b"%d" % len(kept)) is None
        put(larger, b"more", 50_000)

    run(larger, work)


def test_what_another_process_has_grown_is_seen(file: Path) -> None:
    """A process whose map is too small for what another has written adopts the larger one."""
    store = LmdbStore(file, SMALL)

    def work() -> None:
        put(store, b"before", 10)
        in_a_child(lambda: grow(file))
        assert size_of(store, b"before") == 10

    run(store, work)


def grow(file: Path) -> None:
    """Make a file larger than the map of a small store."""
    store = LmdbStore(file, LmdbSettings())
    run(store, lambda: put(store, b"large", 20 * MIB))


def test_a_forked_child_may_use_the_file_and_even_the_store(file: Path) -> None:
    """A child opens the file itself, also behind a store that it has inherited."""
    store = LmdbStore(file)

    def work() -> None:
        def child() -> None:
            put(store, b"inherited", 1)
            own = LmdbStore(file)
            run(own, lambda: put(own, b"own", 2))

        put(store, b"parent", 3)
        in_a_child(child)
        assert [size_of(store, key) for key in (b"parent", b"inherited", b"own")] == [3, 1, 2]

    run(store, work)


def test_a_fork_waits_for_the_section_of_another_thread(file: Path) -> None:
    """What is on its way when a process forks is kept, and the child sees it."""
    store = LmdbStore(file)
    begun = threading.Event()

    def section() -> None:
        with store._section() as records:
            records.put_bytes(b"a", b"1")
            begun.set()
            time.sleep(0.2)

    def work() -> None:
        thread = threading.Thread(target=section)
        thread.start()
        assert begun.wait(10)

        def child() -> None:
            assert size_of(store, b"a") == 1

        in_a_child(child)
        thread.join()
        assert size_of(store, b"a") == 1

    run(store, work)


def in_a_child(work: Callable[[], None]) -> None:
    """Do something in a forked process, and see that it went well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, and the child does without
        child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    status = 1
    try:
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        work()
        status = 0
    finally:
        os._exit(status)


def test_two_stores_of_one_process_share_a_file(file: Path) -> None:
    """LMDB opens a file once in a process; stores may be more."""
    one, two = LmdbStore(file), LmdbStore(file)

    async def main() -> None:
        async with one:
            async with two:
                put(one, b"a", 1)
                assert size_of(two, b"a") == 1
            put(one, b"b", 1)

    asyncio.run(main())
    with lmdb.open(str(file), subdir=False):  # LMDB would refuse if it were open still
        pass


def test_a_failed_section_changes_nothing(file: Path) -> None:
    """An exception of any kind undoes what came before it."""
    store = LmdbStore(file)

    def work() -> None:
        with pytest.raises(KeyboardInterrupt), store._section() as records:
            records.put_bytes(b"a", b"")
            raise KeyboardInterrupt
        assert size_of(store, b"a") is None

    run(store, work)


def test_an_error_of_lmdb_is_told_and_the_next_step_goes_on(file: Path) -> None:
    """An error of LMDB is one of coatcheck, and ends with a fresh environment."""
    store = LmdbStore(file)

    def work() -> None:
        put(store, b"a", 1)
        with pytest.raises(StoreUnavailable, match="MDB_BAD_TXN"), store._section() as records:
            assert isinstance(records, LmdbRecords)
            records._transaction.abort()
            raise lmdb.BadTxnError("MDB_BAD_TXN")
        assert size_of(store, b"a") == 1

    run(store, work)


async def opened(file: Path) -> None:
    """Open a store and close it."""
    async with LmdbStore(file):
        pass


async def set_up(file: Path) -> None:
    """Set a store up without opening it."""
    await LmdbStore(file).setup()


@pytest.mark.parametrize("begin", [opened, set_up])
def test_files_that_are_something_else_are_refused(
    file: Path, begin: Callable[[Path], Awaitable[None]]
) -> None:
    """Whatever is at the path is told apart, and left alone."""

    async def refused(error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            await begin(file)

    asyncio.run(refused_missing(file, begin))
    file.write_bytes(b"no database" * 1000)
    asyncio.run(refused(ConfigurationError, "is not an LMDB file"))
    file.unlink()
    with plain(file) as transaction:
        transaction.put(b"of", b"another application")
    asyncio.run(refused(ConfigurationError, "something else; give the store its own file"))
    with plain(file) as transaction:
        transaction.put(FORMAT_KEY, b"coatcheck-store-lmdb 2")
    asyncio.run(refused(SchemaOutdated, "'coatcheck-store-lmdb 2', and this version reads"))


async def refused_missing(file: Path, begin: Callable[[Path], Awaitable[None]]) -> None:
    """Look for a file where there is no folder."""
    with pytest.raises(StoreUnavailable, match="cannot be opened: .*No such file"):
        await begin(file.parent / "missing" / "tasks.lmdb")


def test_a_file_made_anew_is_another(file: Path) -> None:
    """A deleted file, still open, is not taken for the one that came after it."""
    old = acquire(file)
    for each in file.parent.iterdir():
        each.unlink()
    new = acquire(file)
    assert new is not old
    old.close()
    new.close()


def test_a_closed_store_is_unavailable_and_makes_no_file(file: Path) -> None:
    """Making a store does nothing, and neither does using it closed."""
    store = create(f"lmdb://{file}")
    assert store.url == f"lmdb://{file}"
    with pytest.raises(StoreUnavailable, match="is not open"):
        put(store, b"a", 1)
    assert not file.exists()
