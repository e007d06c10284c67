"""The project against the sandbox: what its clients, its provider and its operators rely on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.core.management import call_command
from django.db import connection
from django.test import Client, override_settings
from documents_django import jobs
from documents_django.models import Document

from coatcheck import App, StoreUnavailable, Task, sync
from coatcheck_http import own_callback_url
from coatcheck_sandbox import SandboxServer, describe

ACME, GLOBEX = {"X-Tenant": "acme"}, {"X-Tenant": "globex"}
CALLBACK = "/callbacks/ocr:datalab"
SECRET = "the-callback-secret"
DEADLINE_SECONDS = 50


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """Run the provider on this machine."""
    with SandboxServer(recognizer=describe) as server:
        yield server


@pytest.fixture
def web(sandbox: SandboxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Yield a client of the project, which has a database of its own, and the sandbox for its provider."""
    file = str(tmp_path / "documents.db")
    monkeypatch.setenv("DATALAB_API_KEY", "sandbox-key")
    monkeypatch.setenv("CALLBACK_SECRET", SECRET)
    monkeypatch.setitem(project.DATABASES["default"], "NAME", file)
    connection.close()
    call_command("migrate", verbosity=0)
    with override_settings(DATALAB_URL=f"{sandbox.url}/datalab", PUBLIC_URL="http://localhost"):
        monkeypatch.setattr(jobs, "app", jobs.compose(sync.App))
        yield Client(enforce_csrf_checks=True, SERVER_NAME="localhost")
    jobs.app.close()
    connection.close()


def submit(web: Client, sandbox: SandboxServer, **changes: object) -> Any:
    """Send a document, and return the response."""
    sent = {"title": "A letter", "url": sandbox.page_url("letter.jpg"), **changes}
    return web.post("/documents", sent, content_type="application/json", headers=ACME)


def worked_on(task_id: str) -> Task:
    """Return a task once a worker, in another process as it were, has found nothing more that is due."""

    async def work() -> Task | None:
        async with jobs.compose(App) as app:
            await app.worker().drain()
            return await app.manager.get(task_id)

    task = asyncio.run(work())
    assert task is not None
    return task


def test_a_document_is_read_by_a_worker(sandbox: SandboxServer, web: Client) -> None:
    """A client gets a ticket at once, and finds the text there once `manage.py work` has run; no other tenant does."""
    response = submit(web, sandbox)
    view, place = response.json(), response.headers["location"]
    assert (response.status_code, view["status"]) == (202, "PENDING_SUBMIT")
    environment = {
        **os.environ,
        "DATABASE_FILE": project.DATABASES["default"]["NAME"],
        "DATALAB_URL": project.DATALAB_URL,
    }
    with subprocess.Popen([sys.executable, "-m", "django", "work"], env=environment) as worker:
        ends = time.monotonic() + DEADLINE_SECONDS
        while view["finished_at"] is None and time.monotonic() < ends:
            time.sleep(0.05)
            view = web.get(place, headers=ACME).json()
        worker.send_signal(signal.SIGTERM)
    assert worker.returncode == 0
    assert view["status"] == "SUCCEEDED"
    assert "letter.jpg" in view["result"]["markdown"]
    response = web.delete(place, headers=ACME)
    assert (response.status_code, response.json()) == (409, view)
    assert web.get(place, headers=GLOBEX).status_code == 404


def test_a_document_is_saved_with_its_task(sandbox: SandboxServer, web: Client) -> None:
    """Both are there, before any worker is; another tenant sees neither, and cannot cancel."""
    view = submit(web, sandbox).json()
    place = f"/documents/{view['id']}"
    assert web.get("/documents", headers=ACME).json() == [{"id": view["id"], "title": "A letter"}]
    assert web.get("/documents", headers=GLOBEX).json() == []
    for refused in (web.get(place, headers=GLOBEX), web.delete(place, headers=GLOBEX)):
        assert (refused.status_code, refused.json()) == (404, {"error": "there is no such document"})
    assert web.get(place, headers=ACME).json() == view
    assert sandbox.requests == []


def test_a_document_that_cannot_be_saved_takes_its_task_with_it(
    sandbox: SandboxServer, web: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody pays for what nobody knows of, and the client is told to come again."""

    def fail(**_: object) -> None:
        raise StoreUnavailable("the database is gone")

    monkeypatch.setattr(Document.objects, "create", fail)
    response = submit(web, sandbox)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert jobs.app.manager.find() == []


def test_a_document_is_cancelled_once_and_for_all(sandbox: SandboxServer, web: Client) -> None:
    """What nobody has sent is cancelled at once, and never sent; to say so again changes nothing."""
    view = submit(web, sandbox).json()
    for _ in range(2):
        response = web.delete(f"/documents/{view['id']}", headers=ACME)
        assert (response.status_code, response.json()["status"]) == (200, "CANCELED")
    worked_on(view["id"])
    assert sandbox.requests == []


def test_an_authentic_callback_has_the_job_asked_about_at_once(sandbox: SandboxServer, web: Client) -> None:
    """A forged one is refused and changes nothing; nobody asks before the minute is over that callbacks allow."""
    task = worked_on(submit(web, sandbox).json()["id"])
    assert task.status == "SUBMITTED"
    assert task.query_params is not None
    body = json.dumps({"request_id": task.query_params.external_task_id})
    for forged in (CALLBACK, own_callback_url(f"http://localhost{CALLBACK}", task.id, "a guess")):
        response = web.post(forged, body, content_type="application/json")
        assert (response.status_code, response.json()) == (403, {"error": "this callback is not authentic"})
    assert worked_on(task.id).status == "SUBMITTED"
    told = own_callback_url(f"http://localhost{CALLBACK}", task.id, SECRET)
    assert web.post(told, body, content_type="application/json").status_code == 200
    assert worked_on(task.id).status == "SUCCEEDED"


def test_callbacks_have_a_taker_and_a_size(web: Client) -> None:
    """Nothing is there for handlers that are not, and no more is read than a callback may have."""
    for place, body, status in [("/callbacks/ocr:none", b"{}", 404), (CALLBACK, bytes((1 << 20) + 1), 400)]:
        assert web.post(place, body, content_type="application/json").status_code == status
    assert web.get(CALLBACK).status_code == 405


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"url": "letter.jpg"}, "url must be an absolute http or https"),
        ({"url": "file:///etc/passwd"}, "no other machine can use"),
        ({"url": None}, "url must be a text"),
        ({"pages": "last"}, "pages must look like '1-10,15', not 'last'"),
        ({"title": "a" * 201}, "title must be a line of 1 to 200 characters"),
        ({"title": "\ud800"}, "title must be a line"),
        ({"colour": "red"}, "send a JSON object with title, url"),
    ],
)
def test_a_wrong_document_is_refused_with_a_reason(
    sandbox: SandboxServer, web: Client, changes: dict[str, Any], told: str
) -> None:
    """A client learns what is wrong, and nothing is saved."""
    response = submit(web, sandbox, **changes)
    assert response.status_code == 400
    assert told in response.json()["error"]
    assert web.get("/documents", headers=ACME).json() == []


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_what_is_no_json_object_is_refused(web: Client, sent: bytes) -> None:
    """Whatever is sent, the answer is JSON that says what was wrong."""
    response = web.post("/documents", sent, content_type="application/json", headers=ACME)
    assert response.status_code == 400
    assert response.json()["error"]


@pytest.mark.parametrize("headers", [{}, {"X-Tenant": " "}])
def test_nobody_is_served_without_a_name(web: Client, headers: dict[str, str]) -> None:
    """Without a tenant there would be no check whose task it is."""
    response = web.get("/documents/some-id", headers=headers)
    assert (response.status_code, response.json()) == (
        401,
        {"error": "say who you are in the header X-Tenant"},
    )


@pytest.mark.usefixtures("web")
def test_the_migrations_are_those_of_the_models() -> None:
    """Nobody has changed a model and forgotten the migration."""
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
