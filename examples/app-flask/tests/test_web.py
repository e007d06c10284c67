"""The application against the sandbox: what its clients, its provider and its operators rely on."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from documents_flask.jobs import Settings, compose, worker_app
from documents_flask.web import create_app
from flask.testing import FlaskClient

from coatcheck import App, StoreUnavailable, Task
from coatcheck_http import own_callback_url
from coatcheck_sandbox import SandboxServer, describe

ACME, GLOBEX = {"X-Tenant": "acme"}, {"X-Tenant": "globex"}
CALLBACKS = "http://web/callbacks/ocr:datalab"
SECRET = "the-callback-secret"
TIMEOUT = timedelta(seconds=40)


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """Run the provider on this machine."""
    with SandboxServer(recognizer=describe) as server:
        yield server


@pytest.fixture
def settings(sandbox: SandboxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of an application whose provider is the sandbox; its keys are in the environment."""
    monkeypatch.setenv("DATALAB_API_KEY", "sandbox-key")
    monkeypatch.setenv("CALLBACK_SECRET", SECRET)
    return Settings(
        database_url=f"sqlite:///{tmp_path}/documents.db",
        provider_url=f"{sandbox.url}/datalab",
        public_url="http://web",
    )


@pytest.fixture
def web(settings: Settings) -> Iterator[FlaskClient]:
    """Run the application, and yield a client of it."""
    app = create_app(settings)
    yield app.test_client()
    app.extensions["coatcheck"].close()
    app.extensions["engine"].dispose()


def letter(sandbox: SandboxServer, **more: object) -> dict[str, object]:
    """Return what a client sends."""
    return {"title": "A letter", "url": sandbox.page_url("letter.jpg"), **more}


def ended(settings: Settings, task_id: str) -> Task:
    """Return a task once a worker, in another process as it were, has brought it to its end."""

    async def work() -> Task:
        async with compose(App, evolve(settings, public_url=None)) as app, app.worker():
            return await app.manager.wait(task_id, TIMEOUT)

    return asyncio.run(work())


def worked_on(settings: Settings, task_id: str) -> Task:
    """Return a task once such a worker has found nothing more that is due."""

    async def work() -> Task | None:
        async with compose(App, settings) as app:
            await app.worker().drain()
            return await app.manager.get(task_id)

    task = asyncio.run(work())
    assert task is not None
    return task


def test_a_document_is_read_by_a_worker(settings: Settings, sandbox: SandboxServer, web: FlaskClient) -> None:
    """A client gets a ticket at once, and finds the text at the place that it was told; another tenant doesn't."""
    response = web.post("/documents", json=letter(sandbox), headers=ACME)
    place = response.headers["location"]
    assert (response.status_code, response.get_json()["status"]) == (202, "PENDING_SUBMIT")
    ended(settings, response.get_json()["id"])
    view = web.get(place, headers=ACME).get_json()
    assert view["status"] == "SUCCEEDED"
    assert "letter.jpg" in view["result"]["markdown"]
    response = web.delete(place, headers=ACME)
    assert (response.status_code, response.get_json()) == (409, view)
    assert web.get(place, headers=GLOBEX).status_code == 404


def test_a_document_is_saved_with_its_task(sandbox: SandboxServer, web: FlaskClient) -> None:
    """Both are there, before any worker is; another tenant sees neither, and cannot cancel."""
    view = web.post("/documents", json=letter(sandbox), headers=ACME).get_json()
    place = f"/documents/{view['id']}"
    assert web.get("/documents", headers=ACME).get_json() == [{"id": view["id"], "title": "A letter"}]
    assert web.get("/documents", headers=GLOBEX).get_json() == []
    assert web.get(place, headers=GLOBEX).status_code == 404
    assert web.delete(place, headers=GLOBEX).status_code == 404
    assert web.get(place, headers=ACME).get_json() == view
    assert sandbox.requests == []


def test_a_document_that_cannot_be_saved_takes_its_task_with_it(
    settings: Settings, sandbox: SandboxServer, web: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody pays for what nobody knows of, and the client is told to come again."""

    def fail(**_: object) -> None:
        raise StoreUnavailable("the database is gone")

    monkeypatch.setattr("documents_flask.documents.Document", fail)
    response = web.post("/documents", json=letter(sandbox), headers=ACME)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    with closing(sqlite3.connect(settings.database_url.removeprefix("sqlite:///"))) as database:
        assert database.execute("SELECT count(*) FROM coatcheck_task").fetchone() == (0,)


def test_a_document_is_cancelled_once_and_for_all(
    settings: Settings, sandbox: SandboxServer, web: FlaskClient
) -> None:
    """What nobody has sent is cancelled at once, and never sent; to say so again changes nothing."""
    view = web.post("/documents", json=letter(sandbox), headers=ACME).get_json()
    for _ in range(2):
        response = web.delete(f"/documents/{view['id']}", headers=ACME)
        assert (response.status_code, response.get_json()["status"]) == (200, "CANCELED")
    worked_on(settings, view["id"])
    assert sandbox.requests == []


def test_an_authentic_callback_has_the_job_asked_about_at_once(
    settings: Settings, sandbox: SandboxServer, web: FlaskClient
) -> None:
    """A forged one is refused and changes nothing; nobody asks before the minute is over that callbacks allow."""
    view = web.post("/documents", json=letter(sandbox), headers=ACME).get_json()
    task = worked_on(settings, view["id"])
    assert task.status == "SUBMITTED"
    assert task.query_params is not None
    body = {"request_id": task.query_params.external_task_id}
    for forged in (CALLBACKS, own_callback_url(CALLBACKS, task.id, "a guess")):
        response = web.post(forged, json=body)
        assert (response.status_code, response.get_json()) == (
            403,
            {"error": "this callback is not authentic"},
        )
    assert worked_on(settings, task.id).status == "SUBMITTED"
    assert web.post(own_callback_url(CALLBACKS, task.id, SECRET), json=body).status_code == 200
    assert worked_on(settings, task.id).status == "SUCCEEDED"


def test_callbacks_have_a_taker_and_a_size(web: FlaskClient) -> None:
    """Nothing is there for handlers that are not, and no more is read than a callback may have."""
    assert web.post("/callbacks/ocr:none", json={}).status_code == 404
    assert web.post(CALLBACKS, data=bytes((1 << 20) + 1)).status_code == 413


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"url": "letter.jpg"}, "url must be an absolute http or https"),
        ({"url": "file:///etc/passwd"}, "no other machine can use"),
        ({"url": None}, "url must be a text"),
        ({"pages": "last"}, "pages must look like '1-10,15', not 'last'"),
        ({"pages": 7}, "not 'http"),
        ({"title": " "}, "title must be a line of 1 to 200 characters, not ' '"),
        ({"title": "\ud800"}, "title must be a line"),
        ({"colour": "red"}, "send a JSON object with title, url"),
    ],
)
def test_a_wrong_document_is_refused_with_a_reason(
    sandbox: SandboxServer, web: FlaskClient, changes: dict[str, Any], told: str
) -> None:
    """A client learns what is wrong, and nothing is saved."""
    response = web.post("/documents", json=letter(sandbox, **changes), headers=ACME)
    assert response.status_code == 400
    assert told in response.get_json()["error"]
    assert web.get("/documents", headers=ACME).get_json() == []


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'"x"'])
def test_what_is_no_json_object_is_refused(web: FlaskClient, sent: bytes) -> None:
    """Whatever is sent, the answer is JSON that says what was wrong."""
    response = web.post("/documents", data=sent, headers=ACME, content_type="application/json")
    assert response.status_code == 400
    assert response.get_json()["error"]


@pytest.mark.parametrize("headers", [{}, {"X-Tenant": " "}])
def test_nobody_is_served_without_a_name(web: FlaskClient, headers: dict[str, str]) -> None:
    """Without a tenant there would be no check whose task it is."""
    response = web.get("/documents/some-id", headers=headers)
    assert (response.status_code, response.get_json()) == (
        401,
        {"error": "say who you are in the header X-Tenant"},
    )


def test_workers_run_with_the_settings_of_the_environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line finds the same app as the web processes."""
    monkeypatch.setenv("DATABASE_URL", settings.database_url)
    monkeypatch.setenv("DATALAB_URL", str(settings.provider_url))
    monkeypatch.setenv("PUBLIC_URL", str(settings.public_url))
    assert Settings.from_env() == settings
    assert list(worker_app().registry) == ["ocr:datalab"]
