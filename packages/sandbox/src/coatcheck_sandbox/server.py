"""The sandbox as an object: a server in a thread, and what it has seen."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Self

import uvicorn

from coatcheck_sandbox.app import build_app
from coatcheck_sandbox.backend import Backend
from coatcheck_sandbox.documents import Documents
from coatcheck_sandbox.errors import NotRunning
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import Camera, Filmer
from coatcheck_sandbox.jobs import Jobs
from coatcheck_sandbox.log import LoggedRequest, RequestLog
from coatcheck_sandbox.plan import FaultPlan
from coatcheck_sandbox.protocol import WireProtocol
from coatcheck_sandbox.providers import all_protocols
from coatcheck_sandbox.recognize import Ocr, Recognizer
from coatcheck_sandbox.stalls import Stalls
from coatcheck_sandbox.wire import SocketProtocol

_HOST = "127.0.0.1"
_GRACE_SECONDS = 1


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it runs: stopped before that, some versions leave sockets open."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.running = threading.Event()

    async def main_loop(self) -> None:
        self.running.set()
        await super().main_loop()


class SandboxServer:
    """A provider on this machine, running while the `with` block does.

    The server has a thread and an event loop of its own, so that it works beside synchronous and asynchronous
    code alike. It listens on 127.0.0.1 only.

        with SandboxServer(delay=timedelta(seconds=2)) as sandbox:
            client = Client(base_url=sandbox.url + "/gitee/v1", key="sandbox-key")
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own, and has a default
        self,
        *,
        protocols: Iterable[WireProtocol] | None = None,
        recognizer: Recognizer | None = None,
        filmer: Filmer | None = None,
        delay: timedelta = timedelta(0),
        port: int = 0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a server.

        Args:
            protocols: The providers to be; None is all that are known, with the key `sandbox-key`.
            recognizer: What reads the documents; None is the OCR engine.
            filmer: What makes the videos; None is the encoder.
            delay: How long jobs take at least.
            port: Where to listen; 0 lets the system choose.
            seed: For the chances of faults.
            clock: The time in seconds by which jobs move; tests bring one that they set.

        Raises:
            EngineMissing: the OCR engine is wanted, but not installed.
        """
        self.jobs = Jobs(recognizer or Ocr(), filmer or Camera(), delay=delay, clock=clock)
        self.faults = FaultPlan(seed)
        self.log = RequestLog()
        self.documents = Documents()
        self._stalls = Stalls()
        self._protocols = all_protocols() if protocols is None else list(protocols)
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._url: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the server listens, without a slash at the end.

        Raises:
            NotRunning: it hasn't been started.
        """
        if self._url is None:
            raise NotRunning("the sandbox isn't running: use it in a `with` block, or call `start()`")
        return self._url

    @property
    def requests(self) -> list[LoggedRequest]:
        """All requests so far, oldest first; copies, so that they stay as they are."""
        return self.log.requests()

    def start(self) -> None:
        """Listen; connections are accepted when this returns. A server can be started once.

        Raises:
            NotRunning: it was started before.
            OSError: the port is taken.
        """
        if self._server is not None:
            raise NotRunning("a sandbox can be started once; make a new one")
        backend = Backend(
            jobs=self.jobs, documents=self.documents, faults=self.faults, log=self.log, stalls=self._stalls
        )
        config = uvicorn.Config(
            build_app(backend, self._protocols),
            http=SocketProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = server = _Server(config)
        listener = _listen(self._port)
        self._url = f"http://{_HOST}:{listener.getsockname()[1]}"

        def run() -> None:
            try:
                asyncio.run(server.serve(sockets=[listener]))
            finally:
                listener.close()
                server.running.set()

        self._thread = threading.Thread(target=run, name="sandbox-server", daemon=True)
        self._thread.start()
        server.running.wait()

    def stop(self) -> None:
        """Close all connections, stalled ones too, and end the thread. Stopping again does nothing."""
        if self._server is None or self._thread is None:
            return
        self._stalls.close()
        self._server.should_exit = True
        self._thread.join()
        self._thread = None
        self._url = None
        self.jobs.close()

    def page_url(self, name: str) -> str:
        """Where a page, or a document given to `serve`, is served, for clients that take documents from URLs."""
        return f"{self.url}/pages/{name}"

    def serve(self, name: str, content: bytes, media_type: str) -> str:
        """Serve a document beside the pages; the URL where it is."""
        self.documents.add(name, content, media_type)
        return self.page_url(name)

    def creating_requests(self, document: str) -> int:
        """How many requests asked for a job for a document, given by its file name or its SHA-256.

        Each request that arrived complete is counted, whatever the answer was and whether it got one.
        """
        return self.log.creating_requests(document)

    def created_jobs(self, document: str) -> int:
        """How many jobs were created for a document, given by its file name or its SHA-256."""
        return self.jobs.count(document)

    def release_stalled(self) -> int:
        """Let all stalled requests go on; how many there were."""
        return self._stalls.release()

    def wait_for_requests(
        self, count: int, operation: Operation | None = None, *, timeout_seconds: float = 10.0
    ) -> list[LoggedRequest]:
        """Wait until so many requests of an operation have come, with their bodies; all of them.

        Raises:
            TimeoutError: fewer came in the time given.
        """
        if not self.log.wait_for(count, operation, timeout_seconds):
            seen = len(self.log.requests(operation))
            raise TimeoutError(f"{seen} of {count} requests came within {timeout_seconds} s")
        return self.log.requests(operation)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
    except OSError:
        listener.close()
        raise
    return listener
