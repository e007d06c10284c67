from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from coatcheck_sandbox import FailingJob, SandboxServer


def test_a_job_waits_runs_and_succeeds(
    sandbox: SandboxServer,
    client: httpx.Client,
    submit: Callable[[str], httpx.Response],
    advance: Callable[[float], None],
) -> None:
    """The status goes through Gitee's words, and `output` and `error` are null until they are known."""
    sandbox.jobs.delay = timedelta(seconds=20)
    created = submit("a.png").json()
    assert created["status"] == "waiting"
    assert set(created) == {"task_id", "status", "created_at", "urls"}
    assert sandbox.jobs.wait_recognized(5)
    path = f"/task/{created['task_id']}"
    assert client.get(path).json()["status"] == "waiting"
    advance(6)
    running = client.get(path).json()
    assert (running["status"], running["output"], running["error"]) == ("in_progress", None, None)
    advance(15)
    done = client.get(path).json()
    assert (done["status"], done["error"]) == ("success", None)
    assert done["output"]["segments"][0] == {"index": 0, "content": "a.png: 17 bytes"}


@pytest.mark.parametrize(
    ("model", "form"),
    [("Unlimited-OCR", "segments"), ("MinerU2.5-Pro", "markdown"), ("PaddleOCR-VL", "text")],
)
def test_each_form_of_output_is_met(
    sandbox: SandboxServer, client: httpx.Client, model: str, form: str
) -> None:
    """Which form the text comes in depends on the model, so that clients meet all."""
    file = {"file": ("a.png", b"123")}
    created = client.post("/async/documents/parse", data={"model": model, "option": "1"}, files=file).json()
    assert sandbox.jobs.wait_recognized(5)
    assert list(client.get(f"/task/{created['task_id']}").json()["output"]) == [form]


def test_a_failed_job_says_why(
    sandbox: SandboxServer, client: httpx.Client, submit: Callable[[str], httpx.Response]
) -> None:
    """A failure has Gitee's word, and code and message both at the top and in `error`."""
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    answer = client.get(f"/task/{submit('a.png').json()['task_id']}").json()
    assert answer["status"] == "failure"
    assert answer["error"] == {"code": "too_dark", "message": "the page is too dark"}
    assert (answer["error_code"], answer["error_message"]) == ("too_dark", "the page is too dark")
    assert answer["output"] is None


@pytest.mark.parametrize("key", [None, "Bearer wrong", "sandbox-key", "Bearer kéy"])
def test_a_wrong_key_is_refused(sandbox: SandboxServer, key: str | None) -> None:
    """Without the right bearer token both routes answer 401 with the envelope, and no job is created."""
    headers = {} if key is None else {b"Authorization": key.encode()}
    base = f"{sandbox.url}/gitee/v1"
    file = {"file": ("a.png", b"123")}
    answers = [
        httpx.post(f"{base}/async/documents/parse", headers=headers, data={"model": "m"}, files=file),
        httpx.get(f"{base}/task/1", headers=headers),
    ]
    for answer in answers:
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert sandbox.created_jobs("a.png") == 0


@pytest.mark.parametrize("missing", ["model", "file", "form"])
def test_an_incomplete_form_is_refused(sandbox: SandboxServer, client: httpx.Client, missing: str) -> None:
    """A missing part is a 400 that names it."""
    path = "/async/documents/parse"
    if missing == "form":
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = client.post(path, content=b"--y nonsense", headers=headers)
    elif missing == "file":
        answer = client.post(path, data={"model": "m"})
    else:
        answer = client.post(path, files={"file": ("a.png", b"123")})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert sandbox.creating_requests("a.png") == 0


def test_an_unknown_job_is_404(client: httpx.Client) -> None:
    """Asking for a job that never was is a 404 with the envelope."""
    answer = client.get("/task/absent")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "task_not_found"
