import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from coatcheck_sandbox import NotRunning, Operation, SandboxServer, Stall, describe

Send = Callable[[str], httpx.Response]


def test_each_document_is_counted(sandbox: SandboxServer, submit: Send) -> None:
    """Concurrent submissions are all counted, for each document, by name and by digest."""
    names = [f"{number}.png" for number in range(5)] * 8
    with ThreadPoolExecutor(8) as pool:
        assert {answer.status_code for answer in pool.map(submit, names)} == {200}
    assert [sandbox.creating_requests(f"{number}.png") for number in range(5)] == [8] * 5
    digest = sandbox.requests[0].digest
    assert digest is not None
    assert sandbox.creating_requests(digest) == 8
    assert [entry.number for entry in sandbox.requests] == list(range(1, 41))


def test_requests_are_logged(sandbox: SandboxServer, client: httpx.Client, finished_job: str) -> None:
    """Each request's operation, job, document and status are seen."""
    client.get(f"/task/{finished_job}")
    created, asked = sandbox.requests
    assert (created.operation, created.job_id, created.document) == (
        Operation.SUBMIT,
        finished_job,
        "done.png",
    )
    assert (asked.operation, asked.job_id, asked.document) == (Operation.QUERY, finished_job, "done.png")
    assert created.received_monotonic_seconds < asked.received_monotonic_seconds
    assert asked.has_authorization
    assert (asked.status, asked.finished, asked.fault) == (200, True, None)


def test_waiting_for_requests(sandbox: SandboxServer, submit: Send) -> None:
    """A test can wait until a request has arrived; it isn't kept for ever."""
    submit("a.png")
    assert len(sandbox.wait_for_requests(1, Operation.SUBMIT)) == 1
    with pytest.raises(TimeoutError, match="1 of 2 requests"):
        sandbox.wait_for_requests(2, timeout_seconds=0.01)


def test_stopping_drops_stalled_requests_and_idle_connections_fast() -> None:
    """Neither a stalled request, nor a half-sent one, nor a silent connection delays the end."""
    sandbox = SandboxServer(recognizer=describe)
    sandbox.start()
    sandbox.faults.add(Stall(operation="query"))
    port = httpx.URL(sandbox.url).port
    assert port is not None
    failures: list[Exception] = []
    url = f"{sandbox.url}/gitee/v1/task/1"

    def query() -> None:
        try:
            httpx.get(url, headers={"Authorization": "Bearer sandbox-key"}, timeout=20)
        except httpx.HTTPError as error:
            failures.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as half:
        half.sendall(
            b"POST /gitee/v1/async/documents/parse HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n1"
        )
        sandbox.log.wait_for(2, None, 1)
        started = time.monotonic()
        sandbox.stop()
        assert time.monotonic() - started < 5
    thread.join()
    assert len(failures) == 1
    sandbox.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_server_that_isnt_running_says_so() -> None:
    """Its URL is asked for too early or too late, or it is started twice: the error says what to do."""
    sandbox = SandboxServer(recognizer=describe)
    with pytest.raises(NotRunning, match="`with` block"):
        _ = sandbox.url
    with sandbox, pytest.raises(NotRunning, match="started once"):
        sandbox.start()
    with pytest.raises(NotRunning):
        _ = sandbox.url


def test_a_taken_port_is_told_at_start(sandbox: SandboxServer) -> None:
    """Two sandboxes can't have one port."""
    port = httpx.URL(sandbox.url).port
    assert port is not None
    with pytest.raises(OSError, match="in use"):
        SandboxServer(recognizer=describe, port=port).start()
