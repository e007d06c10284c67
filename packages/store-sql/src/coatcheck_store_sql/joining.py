"""Adding tasks in a caller's transaction on a server.

That transaction may last, so it must hold no lock that others wait for. Lanes and the ranking mode are therefore
made beforehand, by a step of the store's own; the tasks fall asleep, and the next claim puts them into their lanes.
What others have committed, and the transaction's snapshot does not show, is looked up by a step of the store's own,
too, since a key that is taken is refused nevertheless.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import IntegrityError, MissingGreenlet
from sqlalchemy.util import await_only

from coatcheck.errors import StoreUnavailable
from coatcheck.store import Added
from coatcheck.task import TaskDraft
from coatcheck_store_sql.adding import Present, add, is_prepared, prepare, present
from coatcheck_store_sql.inserts import Ready
from coatcheck_store_sql.step import Memory, Step
from coatcheck_store_sql.transactions import JoinedConnection

if TYPE_CHECKING:
    from coatcheck_store_sql.server import ServerRoom

__all__ = ["add_joined", "make_ready"]

T = TypeVar("T")
_TRIES = 4
_GRACE_SECONDS = 5


def add_joined(room: ServerRoom, connection: JoinedConnection, drafts: Sequence[TaskDraft]) -> list[Added]:
    """Add the drafts behind a savepoint, so that what fails leaves the caller's transaction whole.

    Raises:
        StoreUnavailable: others take the same keys again and again.
    """
    if not is_prepared(room.memory, drafts):
        _beside(room, lambda: room.write(lambda step: prepare(step, drafts)))
    elsewhere: Present | None = None
    taken: IntegrityError | None = None
    for _ in range(_TRIES):
        mine = Step(connection, room.sql, Memory(capacity=1, base=room.memory), room.time, joined=True)
        try:
            with connection.savepoint(), room.dialect.bounded(mine):
                added = add(mine, drafts, elsewhere)
                room.dialect.announce_in(mine)
                return added
        except IntegrityError as error:
            taken = error
        elsewhere = _beside(room, lambda: room.write(lambda step: present(step, drafts)))
    message = "ids or dedup keys of the tasks to add were taken again and again meanwhile; repeat it"
    raise StoreUnavailable(message) from taken


def make_ready(room: ServerRoom, drafts: Sequence[TaskDraft]) -> Ready:
    """Make the lanes of drafts that somebody else will insert, and look at the clock.

    Raises:
        ConfigurationError: the store ranks by another mode.
    """

    def work(step: Step) -> Ready:
        return Ready(step.now, prepare(step, drafts))

    return _beside(room, lambda: room.write(work))


def _beside(room: ServerRoom, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do a step on the store's own connections, and wait for it, from wherever this is called.

    Inside SQLAlchemy's greenlets the running loop does it; in a thread without a loop, one that the store is used
    in; where there is none, or it would wait for itself, a loop for the occasion.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = room.running_loop()
        if loop is not None:
            return _in_loop(room, make, loop)
        return asyncio.run(_alone(room, make))
    try:
        return await_only(make())
    except MissingGreenlet:
        return _in_thread(room, make)


def _in_loop(
    room: ServerRoom, make: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop
) -> T:
    future = asyncio.run_coroutine_threadsafe(make(), loop)
    try:
        return future.result(room.timeout_seconds + _GRACE_SECONDS)
    except FutureTimeoutError as error:
        if future.done():  # it is the step's own error
            raise
        future.cancel()
        message = (
            "the event loop that the store was opened in is blocked; don't block it while a task is added"
        )
        raise StoreUnavailable(message) from error


async def _alone(room: ServerRoom, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return await make()
    finally:
        await room.leave_loop()


def _in_thread(room: ServerRoom, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(asyncio.run(_alone(room, make)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failed.append(error)

    thread = threading.Thread(target=run, name="coatcheck-joining")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
