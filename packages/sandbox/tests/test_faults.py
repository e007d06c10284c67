import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from coatcheck_sandbox import (
    Answer,
    Drop,
    FaultInvalid,
    HiddenJob,
    HugeBody,
    MalformedHttp,
    MalformedJson,
    NoResult,
    Redirect,
    SandboxServer,
    SlowBody,
    Stall,
    StatusWord,
    TruncatedBody,
    describe,
)
from coatcheck_sandbox.faults import KINDS, fault_from_json, fault_to_json

Send = Callable[[str], httpx.Response]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("reset", [False, True])
def test_a_dropped_submission(sandbox: SandboxServer, submit: Send, when: str, *, reset: bool) -> None:
    """The request is read to its end, there is no answer; only `after` leaves a job behind."""
    sandbox.faults.add(Drop(operation="submit", when=when, reset=reset))
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        submit("a.png")
    (entry,) = sandbox.requests
    assert (entry.status, entry.fault, entry.document) == (None, "drop", "a.png")
    assert sandbox.creating_requests("a.png") == 1
    assert sandbox.created_jobs("a.png") == (when == "after")
    assert (entry.job_id is not None) == (when == "after")
    assert submit("a.png").status_code == 200


def test_a_dropped_query(sandbox: SandboxServer, client: httpx.Client, finished_job: str) -> None:
    """A query's answer is lost; the next one comes."""
    sandbox.faults.add(Drop(operation="query"))
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(f"/task/{finished_job}")
    assert client.get(f"/task/{finished_job}").json()["status"] == "success"


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize(
    "retry_after", [None, "0", "-1", "3", "864000", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"]
)
def test_an_error_answer(sandbox: SandboxServer, submit: Send, status: int, retry_after: str | None) -> None:
    """The status and Retry-After are as ordered, in the provider's envelope, and no job is created."""
    sandbox.faults.add(Answer(status=status, code="rate_limited", retry_after=retry_after))
    answer = submit("a.png")
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json()["error"]["code"] == "rate_limited"
    assert sandbox.created_jobs("a.png") == 0


def test_an_error_after_the_job_was_created(sandbox: SandboxServer, submit: Send) -> None:
    """A 500 may come though the job exists."""
    sandbox.faults.add(Answer(status=500, when="after"))
    assert submit("a.png").status_code == 500
    assert sandbox.created_jobs("a.png") == 1


def test_a_body_of_ones_own(sandbox: SandboxServer, submit: Send) -> None:
    """A gateway's page, or an odd JSON value, is sent as it stands."""
    sandbox.faults.add(Answer(status=502, body="<h1>Bad Gateway</h1>"))
    sandbox.faults.add(
        Answer(status=200, body='{"price": NaN, "x": "\ud800"}', content_type="application/json")
    )
    page, odd = submit("a.png"), submit("a.png")
    assert (page.text, page.headers["content-type"]) == ("<h1>Bad Gateway</h1>", "text/html; charset=utf-8")
    assert odd.content == b'{"price": NaN, "x": "\xed\xa0\x80"}'


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stalled_request_waits_until_released(sandbox: SandboxServer, submit: Send, when: str) -> None:
    """Nothing is answered until the test lets the request go on, which then succeeds."""
    sandbox.faults.add(Stall(when=when))
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(submit("a.png")))
    thread.start()
    (entry,) = sandbox.wait_for_requests(1)
    while not sandbox.release_stalled():
        assert (entry.status, answers) == (None, [])
    thread.join()
    assert [answer.status_code for answer in answers] == [200]
    assert sandbox.created_jobs("a.png") == 1


def test_a_stall_outlasts_the_client(sandbox: SandboxServer, client: httpx.Client) -> None:
    """A client that gives up after its time-out has created the job all the same."""
    sandbox.faults.add(Stall(when="after"))
    with pytest.raises(httpx.ReadTimeout):
        client.post(
            "/async/documents/parse", data={"model": "m"}, files={"file": ("a.png", b"1")}, timeout=0.2
        )
    assert sandbox.created_jobs("a.png") == 1


def test_a_stall_ends_by_itself(sandbox: SandboxServer, submit: Send) -> None:
    """A stall with a length goes on after it."""
    sandbox.faults.add(Stall(seconds=0.05))
    started = time.monotonic()
    assert submit("a.png").status_code == 200
    assert time.monotonic() - started >= 0.05


def test_a_slow_body_comes_in_pieces(sandbox: SandboxServer, client: httpx.Client, finished_job: str) -> None:
    """The body is complete, but takes its time."""
    sandbox.faults.add(SlowBody(operation="query", seconds=0.2))
    started = time.monotonic()
    with client.stream("GET", f"/task/{finished_job}") as answer:
        pieces = list(answer.iter_raw())
    assert time.monotonic() - started >= 0.2
    assert len(pieces) > 1
    assert json.loads(b"".join(pieces))["status"] == "success"


def test_malformed_json(sandbox: SandboxServer, submit: Send) -> None:
    """The answer says it is JSON, and isn't; the job was created."""
    sandbox.faults.add(MalformedJson())
    answer = submit("a.png")
    assert answer.headers["content-type"] == "application/json"
    with pytest.raises(json.JSONDecodeError):
        answer.json()
    assert sandbox.created_jobs("a.png") == 1


@pytest.mark.parametrize("fault", [MalformedHttp(), TruncatedBody()])
def test_broken_http(sandbox: SandboxServer, submit: Send, fault: MalformedHttp | TruncatedBody) -> None:
    """The client can't read the answer; the job was created."""
    sandbox.faults.add(fault)
    with pytest.raises(httpx.RemoteProtocolError):
        submit("a.png")
    assert sandbox.created_jobs("a.png") == 1
    assert submit("a.png").status_code == 200


def test_a_huge_body_is_valid(sandbox: SandboxServer, client: httpx.Client, finished_job: str) -> None:
    """The answer has the size that was ordered, and is still JSON."""
    sandbox.faults.add(HugeBody(size_bytes=5_000_000))
    answer = client.get(f"/task/{finished_job}")
    assert len(answer.content) == 5_000_000
    assert answer.json()["status"] == "success"


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_to_another_host(sandbox: SandboxServer, submit: Send, status: int) -> None:
    """The other host sees whether the client brought its credentials."""
    with SandboxServer(recognizer=describe) as other:
        sandbox.faults.add(Redirect(location=f"{other.url}/trap", status=status))
        answer = submit("a.png")
        assert answer.status_code == status
        httpx.get(answer.headers["location"], headers={"Authorization": "Bearer secret"})
        (entry,) = other.requests
    assert (entry.path, entry.has_authorization, entry.status) == ("/trap", True, 404)
    assert sandbox.created_jobs("a.png") == 0


def test_an_unknown_status_word(sandbox: SandboxServer, client: httpx.Client, finished_job: str) -> None:
    """The next two queries report a status that nobody knows."""
    sandbox.faults.add(StatusWord(word="expired", times=2))
    words = [client.get(f"/task/{finished_job}").json()["status"] for _ in range(3)]
    assert words == ["expired", "expired", "success"]


def test_done_without_a_result(
    sandbox: SandboxServer, client: httpx.Client, submit: Send, advance: Callable[[float], None]
) -> None:
    """A running job isn't struck; the finished one is a success without output once, then complete."""
    sandbox.jobs.delay = timedelta(seconds=10)
    sandbox.faults.add(NoResult())
    path = f"/task/{submit('a.png').json()['task_id']}"
    assert sandbox.jobs.wait_recognized(5)
    assert client.get(path).json()["status"] == "waiting"
    advance(10)
    empty, full = client.get(path).json(), client.get(path).json()
    assert (empty["status"], empty["output"]) == ("success", None)
    assert (full["status"], "segments" in full["output"]) == ("success", True)


def test_a_job_is_hidden_at_first(
    sandbox: SandboxServer, client: httpx.Client, submit: Send, advance: Callable[[float], None]
) -> None:
    """Queries are 404 for the first five seconds, as with a provider of eventual consistency."""
    sandbox.faults.add(HiddenJob(seconds=5))
    path = f"/task/{submit('a.png').json()['task_id']}"
    assert client.get(path).status_code == 404
    advance(4.9)
    assert client.get(path).status_code == 404
    advance(0.1)
    assert client.get(path).status_code == 200


def test_a_download_can_be_struck(sandbox: SandboxServer) -> None:
    """Pages are subject to faults too."""
    sandbox.faults.add(Answer(status=403, operation="download", document="letter.jpg"))
    statuses = [httpx.get(sandbox.page_url(name)).status_code for name in ("foxes.png", "letter.jpg")]
    assert statuses == [200, 403]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_survives_json(kind: str) -> None:
    """What is listed over HTTP can be sent again."""
    data = {"kind": kind, "location": "http://x/"} if kind == "redirect" else {"kind": kind}
    fault = fault_from_json(data)
    assert fault_from_json(json.loads(json.dumps(fault_to_json(fault)))) == fault


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a fault is an object"),
        ({"kind": "meteor"}, "unknown kind 'meteor'; choose one of answer,"),
        ({"kind": ["drop"]}, "unknown kind"),
        ({"kind": "drop", "speed": 3}, "'drop' has no field 'speed'"),
        ({"kind": "drop", "when": "later"}, "'later' is not a valid When"),
        ({"kind": "drop", "operation": "cook"}, "'cook' is not a valid Operation"),
        ({"kind": "drop", "times": 0}, "'times' is 0; give a whole number at least 1"),
        ({"kind": "drop", "times": True}, "'times' is True"),
        ({"kind": "drop", "probability": 1.5}, "'probability' is 1.5; give a number from 0 to 1"),
        ({"kind": "drop", "reset": "yes"}, "'reset' must be"),
        ({"kind": "answer", "status": 42}, "'status' is 42; give a whole number from 200 to 599"),
        ({"kind": "redirect"}, "location"),
        ({"kind": "hidden_job", "operation": "query"}, "strikes 'submit' requests only"),
    ],
)
def test_a_wrong_fault_is_refused(data: object, message: str) -> None:
    """The error says what is wrong with the description."""
    with pytest.raises(FaultInvalid, match=message):
        fault_from_json(data)
