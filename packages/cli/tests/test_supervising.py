import sys
import time
from datetime import timedelta

import pytest

from coatcheck_cli.failing import Exit
from coatcheck_cli.supervising import Supervisor

pytestmark = pytest.mark.timeout(180)


def python(code: str) -> list[str]:
    """Return a command that runs code."""
    return [sys.executable, "-c", code]


async def test_workers_that_cannot_work_as_configured_are_not_started_for_ever() -> None:
    """One that ends with 2 stops them all, and the parent ends with 2."""
    waiting = python("import sys; sys.stdin.read()")
    wrong = python("import sys; sys.exit(2)")
    supervisor = Supervisor(
        command=lambda number: wrong if number == 2 else waiting, count=2, patience=timedelta(seconds=60)
    )
    assert await supervisor.run() is Exit.USAGE
    assert supervisor.running == {}


async def test_a_worker_that_does_not_end_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    """Stopping is bounded: after the patience nobody is asked any more."""
    deaf = python("import time; time.sleep(600)")
    wrong = python("import sys; sys.exit(2)")
    supervisor = Supervisor(
        command=lambda number: wrong if number == 2 else deaf, count=2, patience=timedelta(milliseconds=200)
    )
    began = time.monotonic()
    await supervisor.run()
    assert time.monotonic() - began < 120
    assert "worker 1 has not ended within 0.2s and is killed" in caplog.text


async def test_a_worker_that_ends_or_cannot_be_started_is_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ending unasked is unexpected, whatever the exit code; each time is told, and later each time."""
    tries = iter([python("pass"), ["/nowhere/at/all"], python("import sys; sys.exit(2)")])
    supervisor = Supervisor(command=lambda _number: next(tries), count=1, patience=timedelta(seconds=60))
    await supervisor.run()
    assert "ended with exit code 0; it is started again in 0.5s" in caplog.text
    assert "could not be started (No such file or directory); it is started again in 1s" in caplog.text
