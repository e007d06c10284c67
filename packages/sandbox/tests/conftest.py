import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from coatcheck_sandbox import SandboxServer, describe

KEY = {"Authorization": "Bearer sandbox-key"}


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self._seconds = 1000.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """The time in seconds."""
        with self._lock:
            return self._seconds

    def advance(self, seconds: float) -> None:
        """Move on."""
        with self._lock:
            self._seconds += seconds


@pytest.fixture
def clock() -> Clock:
    """The sandbox's clock."""
    return Clock()


@pytest.fixture
def advance(clock: Clock) -> Callable[[float], None]:
    """Move the sandbox's clock on by some seconds."""
    return clock.advance


@pytest.fixture
def sandbox(clock: Clock) -> Iterator[SandboxServer]:
    """A running sandbox without OCR, whose jobs are moved by `advance`."""
    with SandboxServer(recognizer=describe, clock=clock) as server:
        yield server


@pytest.fixture
def client(sandbox: SandboxServer) -> Iterator[httpx.Client]:
    """A client of the Gitee protocol, which never retries."""
    with httpx.Client(base_url=f"{sandbox.url}/gitee/v1", headers=KEY, timeout=10) as client_:
        yield client_


@pytest.fixture
def control(sandbox: SandboxServer) -> Iterator[httpx.Client]:
    """A client of the sandbox's own routes."""
    with httpx.Client(base_url=f"{sandbox.url}/_sandbox", timeout=10) as client_:
        yield client_


@pytest.fixture
def submit(client: httpx.Client) -> Callable[[str], httpx.Response]:
    """Send a small document under a file name."""

    def send(name: str) -> httpx.Response:
        return client.post(
            "/async/documents/parse",
            data={"model": "Unlimited-OCR"},
            files={"file": (name, b"contents of " + name.encode())},
        )

    return send


@pytest.fixture
def finished_job(sandbox: SandboxServer, submit: Callable[[str], httpx.Response]) -> str:
    """The id of a job that has succeeded, for the document `done.png`."""
    job_id = str(submit("done.png").json()["task_id"])
    assert sandbox.jobs.wait_recognized(5)
    return job_id
