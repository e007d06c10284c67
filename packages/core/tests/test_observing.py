"""Observers get what was committed, and can neither break nor slow anybody."""

import logging
import threading
from collections.abc import Sequence

import pytest

from coatcheck.gates import TaskChange
from coatcheck.observing import Observers
from coatcheck.testing import make_task


def changes(count: int) -> list[TaskChange]:
    """Return changes to tell of."""
    return [TaskChange(before=None, after=make_task(), event="created") for _ in range(count)]


def test_what_is_queued_at_the_end_is_still_seen() -> None:
    """In order, in batches, on a thread of their own."""
    seen: list[TaskChange] = []
    threads: set[str] = set()

    def observe(batch: Sequence[TaskChange]) -> None:
        threads.add(threading.current_thread().name)
        seen.extend(batch)

    observers = Observers([observe])
    told = changes(1200)
    observers.emit(told)
    observers.close()
    observers.close()
    assert seen == told
    assert threads == {"coatcheck-observers"}


def test_without_observers_there_is_no_thread() -> None:
    """Nothing is queued for nobody."""
    observers = Observers()
    observers.emit(changes(3))
    observers.close()
    assert "coatcheck-observers" not in {thread.name for thread in threading.enumerate()}


def test_slow_observers_lose_changes_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond the queue's limit the newest are dropped, and the log says how many."""
    monkeypatch.setattr("coatcheck.observing.QUEUE_LIMIT", 5)
    monkeypatch.setattr("coatcheck.observing.CLOSE_TIMEOUT_SECONDS", 0.05)
    caplog.set_level(logging.WARNING, logger="coatcheck")
    go_on, entered = threading.Event(), threading.Event()

    def slow(_batch: Sequence[TaskChange]) -> None:
        entered.set()
        go_on.wait(20)

    observers = Observers([slow])
    observers.emit(changes(1))
    assert entered.wait(10)
    observers.emit(changes(20))
    assert "1 changes dropped so far" in caplog.text
    observers.close()
    assert "observers are stuck" in caplog.text
    go_on.set()
