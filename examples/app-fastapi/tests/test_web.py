"""The application against the sandbox: what its clients, its provider and its operators rely on."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import evolve
from documents_fastapi.jobs import Settings, make_app
from documents_fastapi.web import create_web

from coatcheck import StoreUnavailable, Task
from coatcheck_http import own_callback_url
from coatcheck_sandbox import SandboxServer, describe

ACME, GLOBEX = {"X-Tenant": "acme"}, {"X-Tenant": "globex"}
CALLBACKS = "http://web/callbacks/ocr:datalab"
SECRET = "the-callback-secret"


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
    return Settings(database_url=f"sqlite:///{tmp_path}/documents.db", provider_url=f"{sandbox.url}/datalab")


@asynccontextmanager
async def client(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Run the application, and yield a client of it."""
    web = create_web(settings)
    transport = httpx.ASGITransport(web)
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=transport, base_url="http://web") as found,
    ):
        yield found


def letter(sandbox: SandboxServer, **more: object) -> dict[str, object]:
    """Return what a client sends."""
    return {"title": "A letter", "url": sandbox.page_url("letter.jpg"), **more}


async def worked_on(settings: Settings, task_id: str) -> Task:
    """Return a task once a worker of another process, as it were, has found nothing more that is due."""
    async with make_app(settings) as app:
        await app.worker().drain()
        task = await app.manager.get(task_id)
    assert task is not None
    return task


async def test_a_document_is_read_by_the_embedded_worker(settings: Settings, sandbox: SandboxServer) -> None:
    """A client gets a ticket at once, and polls at the place that it was told until the text is there."""
    async with client(evolve(settings, embed_worker=True)) as web:
        response = await web.post("/documents", json=letter(sandbox), headers=ACME)
        view = response.json()
        assert (response.status_code, view["status"]) == (202, "PENDING_SUBMIT")
        assert response.headers["location"] == f"/documents/{view['id']}"
        while view["finished_at"] is None:
            await asyncio.sleep(0.05)
            view = (await web.get(response.headers["location"], headers=ACME)).json()
    assert view["status"] == "SUCCEEDED"
    assert "letter.jpg" in view["result"]["markdown"]


async def test_a_document_is_saved_with_its_task(settings: Settings, sandbox: SandboxServer) -> None:
    """Both are there, before any worker is; another tenant sees neither."""
    async with client(settings) as web:
        view = (await web.post("/documents", json=letter(sandbox), headers=ACME)).json()
        assert (await web.get("/documents", headers=ACME)).json() == [{"id": view["id"], "title": "A letter"}]
        assert (await web.get("/documents", headers=GLOBEX)).json() == []
        assert (await web.get(f"/documents/{view['id']}", headers=ACME)).json() == view
        for method in ("GET", "DELETE"):
            response = await web.request(method, f"/documents/{view['id']}", headers=GLOBEX)
            assert response.status_code == 404
        assert (await web.get(f"/documents/{view['id']}", headers=ACME)).json() == view
    assert sandbox.requests == []


async def test_a_document_that_cannot_be_saved_takes_its_task_with_it(
    settings: Settings, sandbox: SandboxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody pays for what nobody knows of, and the client is told to come again."""

    def fail(**_: object) -> None:
        raise StoreUnavailable("the database is gone")

    async with client(settings) as web:
        monkeypatch.setattr("documents_fastapi.documents.Document", fail)
        response = await web.post("/documents", json=letter(sandbox), headers=ACME)
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    async with make_app(settings) as app:
        assert await app.manager.find() == []


async def test_a_document_is_cancelled_once_and_for_all(settings: Settings, sandbox: SandboxServer) -> None:
    """What nobody has sent is cancelled at once, and never sent; to say so again changes nothing."""
    async with client(settings) as web:
        view = (await web.post("/documents", json=letter(sandbox), headers=ACME)).json()
        for _ in range(2):
            response = await web.delete(f"/documents/{view['id']}", headers=ACME)
            assert (response.status_code, response.json()["status"]) == (200, "CANCELED")
        await worked_on(settings, view["id"])
    assert sandbox.requests == []


async def test_what_has_ended_cannot_be_cancelled(settings: Settings, sandbox: SandboxServer) -> None:
    """The client is told so, and how it ended."""
    async with client(evolve(settings, embed_worker=True)) as web:
        view = (await web.post("/documents", json=letter(sandbox), headers=ACME)).json()
        while view["finished_at"] is None:
            await asyncio.sleep(0.05)
            view = (await web.get(f"/documents/{view['id']}", headers=ACME)).json()
        response = await web.delete(f"/documents/{view['id']}", headers=ACME)
    assert (response.status_code, response.json()) == (409, view)


async def test_an_authentic_callback_has_the_job_asked_about_at_once(
    settings: Settings, sandbox: SandboxServer
) -> None:
    """A forged one is refused and changes nothing; nobody asks before the minute is over that callbacks allow."""
    settings = evolve(settings, public_url="http://web")
    async with client(settings) as web:
        view = (await web.post("/documents", json=letter(sandbox), headers=ACME)).json()
        task = await worked_on(settings, view["id"])
        assert task.status == "SUBMITTED"
        assert task.query_params is not None
        body = {"request_id": task.query_params.external_task_id}
        told = own_callback_url(CALLBACKS, task.id, SECRET)
        for forged in (CALLBACKS, own_callback_url(CALLBACKS, task.id, "a guess")):
            response = await web.post(forged, json=body)
            assert (response.status_code, response.json()["detail"]) == (
                403,
                "this callback is not authentic",
            )
        assert (await worked_on(settings, task.id)).status == "SUBMITTED"
        assert (await web.post(told, json=body)).status_code == 200
        assert (await worked_on(settings, task.id)).status == "SUCCEEDED"


async def test_callbacks_have_a_taker_and_a_size(settings: Settings) -> None:
    """Nothing is there for handlers that are not, and no more is read than a callback may have."""
    async with client(settings) as web:
        assert (await web.post("/callbacks/ocr:none", json={})).status_code == 404
        assert (await web.post(CALLBACKS, json={})).status_code == 403  # nobody was told this address
        assert (await web.post(CALLBACKS, content=bytes((1 << 20) + 1))).status_code == 413


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"url": "letter.jpg"}, "url must be an absolute http or https"),
        ({"url": "file:///etc/passwd"}, "no other machine can use"),
        ({"pages": "last"}, "pages must look like '1-10,15', not 'last'"),
        ({"title": ""}, "at least 1 character"),
        ({"title": "\0"}, "should match pattern"),
        ({"title": "\ud800"}, "valid string"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
    ],
)
async def test_a_wrong_document_is_refused_with_a_reason(
    settings: Settings, sandbox: SandboxServer, changes: dict[str, Any], told: str
) -> None:
    """A client learns what is wrong, and nothing is saved."""
    async with client(settings) as web:
        sent = json.dumps(letter(sandbox, **changes))
        response = await web.post(
            "/documents", content=sent, headers={**ACME, "content-type": "application/json"}
        )
        assert response.status_code == 422
        assert told in response.text
        assert (await web.get("/documents", headers=ACME)).json() == []


@pytest.mark.parametrize("headers", [{}, {"X-Tenant": " "}])
async def test_nobody_is_served_without_a_name(settings: Settings, headers: dict[str, str]) -> None:
    """Without a tenant there would be no check whose task it is."""
    async with client(settings) as web:
        response = await web.get("/documents/some-id", headers=headers)
    assert (response.status_code, response.json()["detail"]) == (
        401,
        "say who you are in the header X-Tenant",
    )


def test_workers_run_with_the_settings_of_the_environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line finds the same app as the web process."""
    monkeypatch.setenv("DATABASE_URL", settings.database_url)
    monkeypatch.setenv("DATALAB_URL", str(settings.provider_url))
    monkeypatch.setenv("PUBLIC_URL", "http://web")
    assert Settings.from_env() == evolve(settings, public_url="http://web")
    assert list(make_app().registry) == ["ocr:datalab"]
