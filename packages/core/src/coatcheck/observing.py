"""Telling observers what was committed: in batches, off the loop, behind a bounded queue."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from coatcheck.errors import ConfigurationError
from coatcheck.gates import TaskChange

__all__ = ["Observer", "Observers"]

logger = logging.getLogger("coatcheck.observers")

QUEUE_LIMIT = 10_000
"""Changes that may wait for slow observers; beyond that the newest are dropped, and counted in the log."""
BATCH_LIMIT = 500
CLOSE_TIMEOUT_SECONDS = 5.0

Observer: TypeAlias = Callable[[Sequence[TaskChange]], object]
"""Gets committed changes, oldest first. It can neither break nor slow the worker."""


class Observers:
    """Calls observers from one thread of its own, which lives from the first change to `close`."""

    def __init__(self, observers: Iterable[object] = ()) -> None:
        self._observers = tuple(_callable(observer) for observer in observers)
        self._queue: queue.Queue[TaskChange | None] = queue.Queue(QUEUE_LIMIT)
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def emit(self, changes: Iterable[TaskChange]) -> None:
        """Hand changes over and return at once."""
        if not self._observers:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="coatcheck-observers", daemon=True)
            self._thread.start()
        for change in changes:
            try:
                self._queue.put_nowait(change)
            except queue.Full:
                self._dropped += 1
                if self._dropped == 1 or self._dropped % QUEUE_LIMIT == 0:
                    logger.warning(
                        "observers are too slow: %d changes dropped so far; tasks are not affected",
                        self._dropped,
                    )

    def close(self) -> None:
        """Let the observers see what is queued, for a bounded time, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._queue.put(None, timeout=CLOSE_TIMEOUT_SECONDS)
        except queue.Full:
            logger.warning("observers are stuck; %d changes are dropped", self._queue.qsize())
            return
        thread.join(CLOSE_TIMEOUT_SECONDS)

    def _main(self) -> None:
        while True:
            batch, last = self._next_batch()
            for observer in self._observers if batch else ():
                try:
                    observer(batch)
                except Exception:
                    logger.exception("observer %r failed; it is called again with the next changes", observer)
            if last:
                return

    def _next_batch(self) -> tuple[list[TaskChange], bool]:
        batch: list[TaskChange] = []
        first = self._queue.get()
        if first is None:
            return batch, True
        batch.append(first)
        while len(batch) < BATCH_LIMIT:
            try:
                change = self._queue.get_nowait()
            except queue.Empty:
                break
            if change is None:
                return batch, True
            batch.append(change)
        return batch, False


def _callable(observer: object) -> Observer:
    """Take a function, or an object with the hook `coatcheck_tasks_changed`."""
    hook = getattr(observer, "coatcheck_tasks_changed", None)
    if hook is not None:
        return lambda changes: hook(changes=changes)
    if callable(observer):
        return observer
    message = (
        f"an observer is a function of the changes, or has `coatcheck_tasks_changed`; {observer!r} is neither"
    )
    raise ConfigurationError(message)
