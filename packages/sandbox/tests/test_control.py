from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from coatcheck_sandbox import SandboxServer, pages

Send = Callable[[str], httpx.Response]


def test_faults_are_controlled_over_http(sandbox: SandboxServer, control: httpx.Client, submit: Send) -> None:
    """Another process can add faults, see them, and lift them."""
    added = control.post("/faults", json={"kind": "answer", "status": 429, "retry_after": "2"})
    assert added.status_code == 201
    assert control.get("/faults").json()[0]["kind"] == "answer"
    assert submit("a.png").status_code == 429
    assert control.get("/faults").json() == []
    control.post("/faults", json=[{"kind": "drop"}, {"kind": "stall"}])
    assert [fault.kind for fault in sandbox.faults.pending()] == ["drop", "stall"]
    assert control.delete("/faults").status_code == 204
    assert submit("a.png").status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"kind": "meteor"}', b'[{"kind": "drop"}, 1]'])
def test_a_wrong_fault_changes_nothing(sandbox: SandboxServer, control: httpx.Client, body: bytes) -> None:
    """A list with a mistake in it is refused as a whole, with the reason."""
    answer = control.post("/faults", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert sandbox.faults.pending() == []


def test_requests_and_counts_are_listed(control: httpx.Client, submit: Send) -> None:
    """The log shows providers' requests and not the sandbox's own; statistics count requests and jobs."""
    control.post("/faults", json={"kind": "drop", "when": "before"})
    with pytest.raises(httpx.RemoteProtocolError):
        submit("a.png")
    submit("a.png")
    entries = control.get("/log").json()
    assert [(entry["status"], entry["fault"]) for entry in entries] == [(None, "drop"), (200, None)]
    assert entries[0]["received_at"] < entries[1]["received_at"]
    (counts,) = control.get("/stats").json()
    assert (counts["document"], counts["creating_requests"], counts["jobs"]) == ("a.png", 2, 1)


def test_reset_forgets_everything(
    sandbox: SandboxServer, control: httpx.Client, client: httpx.Client, finished_job: str
) -> None:
    """After a reset the sandbox is as new."""
    control.post("/faults", json={"kind": "status_word"})
    assert control.post("/reset").status_code == 204
    assert sandbox.requests == []
    assert client.get(f"/task/{finished_job}").status_code == 404
    assert sandbox.creating_requests("done.png") == 0


def test_the_delay_is_set_over_http(sandbox: SandboxServer, control: httpx.Client) -> None:
    """New jobs take as long as was ordered; nonsense is refused."""
    assert control.put("/delay", json={"seconds": 2.5}).status_code == 204
    assert sandbox.jobs.delay == timedelta(seconds=2.5)
    nonsense: tuple[object, ...] = ({}, {"seconds": "2"}, {"seconds": -1}, {"seconds": 1e300}, [])
    for body in nonsense:
        assert control.put("/delay", json=body).status_code == 400
    assert sandbox.jobs.delay == timedelta(seconds=2.5)


def test_nothing_is_stalled_to_release(control: httpx.Client) -> None:
    """Releasing tells how many requests went on."""
    assert control.post("/release").json() == {"released": 0}


def test_pages_are_served(sandbox: SandboxServer) -> None:
    """The list names each page's URL and text, and the URL gives the image."""
    listed = httpx.get(f"{sandbox.url}/pages/").json()
    assert [entry["name"] for entry in listed] == pages.names()
    for entry in listed:
        answer = httpx.get(entry["url"])
        assert answer.content == pages.read(entry["name"])
        assert answer.headers["content-type"] == entry["media_type"]
        assert entry["truth"] == pages.truth(entry["name"])
    assert httpx.get(sandbox.page_url("absent.png")).status_code == 404
