from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from coatcheck.errors import CallbackRejected, ConfigurationError, InvalidParams, Unsupported
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.results import Verdict
from coatcheck.settings import structure_settings
from coatcheck.task import JSON, CancelOutcome, QueryParams
from coatcheck_conformance import (
    Callbacks,
    Cancelling,
    HandlerConformance,
    HandlerSpec,
    Means,
    Reply,
    Script,
)
from coatcheck_handler_ocr.declaration import DeclaredOcrSettings, ResultPaths, Words
from coatcheck_handler_ocr.declared import DeclaredOcr
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_handler_ocr.result import OcrResult
from coatcheck_http import ApiKey, HttpResponse, RequestTemplate, UnreadableAnswer, own_callback_url
from coatcheck_http import testing as http
from coatcheck_http.testing import Claim, ScriptedServer

URL = "https://files.example.com/scan.pdf"
WRITTEN: dict[str, object] = {
    "base_url": "https://ocr.example.com",
    "submit": {
        "path": "/v2/jobs",
        "json": {
            "source": "{url}",
            "lang": "{languages}",
            "pages": "{pages}",
            "notify": "{callback_url}",
            "settings": "{options}",
        },
        "headers": {"x-request": "{task_id}"},
    },
    "id": "data.job | job",
    "keep": {"shard": "data.shard"},
    "query": {"method": "GET", "path": "/v2/{keep.shard}/jobs/{id}"},
    "status": "data.state",
    "words": {
        "waiting": "queued",
        "running": "reading",
        "succeeded": "read",
        "failed": "unreadable",
        "canceled": "withdrawn",
    },
    "progress": "data.progress",
    "result": {"markdown": "data.md", "pages": "data.pages", "usage": "data.usage"},
    "cancel": {"method": "DELETE", "path": "/v2/{keep.shard}/jobs/{id}"},
    "callback_id": "job",
    "errors": {"code": "error.id", "message": "error.text", "success": "ok"},
    "authentication": "header X-Key",
    "poll_floor": "5s",
}
"""As in TOML."""
JOB = QueryParams(external_task_id="j1", provider_params={"keep": {"shard": "eu"}})


def settings(**changes: object) -> DeclaredOcrSettings:
    """Return the settings, structured as those of a file are; None takes one out."""
    written = {name: value for name, value in {**WRITTEN, **changes}.items() if value is not None}
    return structure_settings(written, DeclaredOcrSettings, owner="ocr:house")


def handler(**changes: object) -> DeclaredOcr:
    """Return a handler with these settings."""
    return DeclaredOcr(
        ApiKey("house-key", callback_secret="hush"), key="ocr:house", settings=settings(**changes)
    )


def answer(body: JSON, status: int = 200) -> HttpResponse:
    """Return an answer with this body."""
    return HttpResponse(status=status, body=http.Reply.of(body).raw.partition(b"\r\n\r\n")[2])


def called(body: bytes, *, secret: str = "callback-secret") -> CallbackRequest:
    """Return a callback to an address that was made under `secret`."""
    url = own_callback_url("https://app.example.com/cb", "t1", secret)
    query = dict(part.split("=", 1) for part in url.partition("?")[2].split("&"))
    return CallbackRequest(method="POST", path="/cb", headers={}, query=query, body=body)


def status(word: str) -> JSON:
    """Return the answer about a job with this word."""
    return {"ok": True, "data": {"job": "j1", "shard": "eu", "state": word, "md": "# T"}}


def declared_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return a service with every part that can be described."""
    return HandlerSpec(
        "coatcheck_handler_ocr.declared:DeclaredOcr",
        key="ocr:house",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=lambda url: evolve(
            settings(base_url=url, poll_floor=None),
            read_timeout=timedelta(seconds=1),
            max_answer_bytes=2 * 1024 * 1024,
        ),
        accounts={
            "default": ApiKey("house-key-one", callback_secret="callback-secret"),
            "other": ApiKey("house-key-two"),
        },
        script=Script(
            job="j1",
            accepted=Reply.of(status("queued")),
            status=status,
            words={word: Means(state) for word, state in settings().words.as_map().words.items()},
            rejected=Reply.of({"ok": False, "error": {"id": "E1", "text": "no such format"}}, status=400),
            error=lambda message: {"ok": False, "error": {"id": "E2", "text": message}},
            done_without_result=Reply.of({"ok": True, "data": {"state": "read", "md": None}}),
            cancel=Cancelling(confirmed=Reply.of({"ok": True}), refused=Reply.of({"ok": False}, status=409)),
            callbacks=Callbacks(
                authentic=called(b'{"job": "j1"}'), forged=called(b'{"job": "j1"}', secret="guessed")
            ),
        ),
        answer_limit_bytes=4 * 1024 * 1024,
    )


class TestDeclaredOcr(HandlerConformance):
    """A service that settings describe keeps every promise."""

    require = ("account", "two accounts", "document fields", "cancel", "parse_callback")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """A service with every part that can be described."""
        return declared_spec()


# What is checked when it is loaded.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"submit": {"path": "/a", "json": {"x": {"y": "{ulr}"}}}}, r"submit\.json\.x\.y has .*\{ulr\}"),
        ({"query": {"path": "/a/{task_id}"}}, r"query\.path has .*\{task_id\}; possible are id, keep"),
        ({"cancel": {"path": "a"}}, r"cancel\.path must"),
        ({"fetch": {"path": "/a", "file_field": "f"}}, r"fetch\.file_field: only submit"),
        ({"id": "data..job"}, r"id: 'data\.\.job' is no path"),
        ({"status": "data state"}, r"status: 'data state' is no path"),
        ({"keep": {"shard": ""}}, r"keep\.shard: '' is no path"),
        ({"result": {"markdown": "a."}}, r"result\.markdown: 'a\.' is no path"),
        ({"errors": {"code": "a | "}}, r"errors\.code: '' is no path"),
        ({"result": {"usage": "a"}}, "result has no path to the text"),
        ({"words": {"succeeded": " "}}, r"words\.succeeded names no word"),
        ({"words": {"succeeded": "a", "failed": "A"}}, "'a' cannot mean both"),
        ({"authentication": "basic"}, "authentication is 'basic'"),
        ({"authentication": "header "}, "authentication is 'header '"),
        ({"words": {"done": "a"}}, "words"),
        ({"submit": {"url": "/a"}}, "submit"),
        ({"submit": None}, "submit"),
        ({"sumbit": {}}, "no settings 'sumbit'.*submit"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object], message: str) -> None:
    """By the place that is wrong, before anything runs."""
    with pytest.raises(ConfigurationError, match=message):
        settings(**changes)


def test_it_is_nothing_without_settings() -> None:
    """The error says which are wanted."""
    with pytest.raises(ConfigurationError, match="DeclaredOcrSettings"):
        DeclaredOcr()
    with pytest.raises(ConfigurationError, match="base_url"):
        handler(base_url=None)


def test_what_is_not_described_it_cannot_do() -> None:
    """Cancel and callbacks are capabilities only where the settings have them."""
    assert handler().capabilities == {Capability.CANCEL, Capability.CALLBACK}
    bare = handler(cancel=None, callback_id=None)
    assert bare.capabilities == set()
    with pytest.raises(Unsupported):
        bare.build_cancel(JOB, Claim().cancel)


async def test_a_callback_that_is_not_described_is_unsupported() -> None:
    """Whatever it says."""
    with pytest.raises(Unsupported):
        await handler(callback_id=None).parse_callback(called(b"{}"), None)


def test_a_choice_that_the_template_does_not_use_is_refused() -> None:
    """It would be ignored in silence."""
    handler().validate(OcrRequest(url=URL, pages="1-3", languages=("en",)))
    with pytest.raises(InvalidParams, match="no choice of `model`"):
        handler().validate(OcrRequest(url=URL, model="m"))
    uploading = handler(submit={"path": "/a", "file_field": "f"})
    uploading.validate(OcrRequest(url=URL, file_name="a.pdf"))


# What goes over the wire.


@pytest.fixture
async def documents() -> AsyncIterator[ScriptedServer]:
    """A server of documents."""
    async with ScriptedServer(
        [http.Reply.of(b"%PDF", headers={"content-type": "application/pdf"})]
    ) as server:
        yield server


async def exchanged(replies: list[http.Reply], work: Any, **changes: object) -> tuple[Any, ScriptedServer]:
    """Return what `work` makes of an open handler before a server with these replies, and the server."""
    async with ScriptedServer(replies) as server:
        made = handler(base_url=server.url, allow_private=True, **changes)
        await made.open()
        try:
            return await work(made), server
        finally:
            await made.close()


async def test_a_job_is_submitted_queried_and_cancelled_as_described() -> None:
    """What is kept of the first answer is in the later requests; the key is in the service's own header."""

    async def work(made: DeclaredOcr) -> list[object]:
        accepted = await made.submit(
            OcrRequest(url=URL, languages=("en",), options={"dpi": 300}), Claim().submit
        )
        assert accepted.query_params is not None
        query = accepted.query_params
        return [query, await made.query(query, Claim().query), await made.cancel(query, Claim().cancel)]

    reading: JSON = {"ok": True, "data": {"state": "reading", "progress": 0.25}}
    replies = [http.Reply.of(status("queued")), http.Reply.of(reading), http.Reply.of({"ok": True})]
    (query, going_on, cancelled), server = await exchanged(replies, work)
    assert query == JOB
    assert (going_on.verdict, going_on.progress) == (Verdict.RUNNING, 0.25)
    assert cancelled is CancelOutcome.CONFIRMED
    assert [f"{each.method} {each.target}" for each in server.requests] == [
        "POST /v2/jobs",
        "GET /v2/eu/jobs/j1",
        "DELETE /v2/eu/jobs/j1",
    ]
    assert {each.headers["x-key"] for each in server.requests} == {"house-key"}
    assert not any("authorization" in each.headers for each in server.requests)
    sent = server.requests[0]
    assert (sent.headers["x-request"], b'"notify"' in sent.body, b'"pages"' in sent.body) == (
        "task-1",
        False,
        False,
    )
    assert b'"lang": ["en"], "settings": {"dpi": 300}' in sent.body


def test_the_poll_floor_is_that_of_the_settings() -> None:
    """Core keeps it."""
    assert handler().poll_floor == timedelta(seconds=5)
    assert handler(poll_floor=None).poll_floor is None


async def test_a_document_is_uploaded_where_the_service_takes_no_url(documents: ScriptedServer) -> None:
    """In the field of a form that the settings name, with the other fields beside it."""

    async def work(made: DeclaredOcr) -> object:
        return await made.submit(OcrRequest(url=f"{documents.url}/a.pdf", pages="2"), Claim().submit)

    submit = {"path": "/up", "file_field": "doc", "form": {"p": "{pages}"}}
    _, server = await exchanged([http.Reply.of(status("queued"))], work, submit=submit)
    body = server.requests[0].body
    assert b'name="doc"; filename="a.pdf"\r\nContent-Type: application/pdf\r\n\r\n%PDF\r\n' in body
    assert b'name="p"\r\n\r\n2\r\n' in body


async def test_an_empty_document_is_not_uploaded() -> None:
    """It would be paid for nothing."""
    async with ScriptedServer([http.Reply.of(b"")]) as empty:

        async def work(made: DeclaredOcr) -> None:
            with pytest.raises(InvalidParams, match="empty"):
                await made.submit(OcrRequest(url=f"{empty.url}/a.pdf"), Claim().submit)

        _, server = await exchanged([http.Reply.of({})], work, submit={"path": "/up", "file_field": "doc"})
    assert server.requests == []


@pytest.mark.parametrize(
    ("authentication", "where"),
    [("bearer", "authorization"), ("query key", "target"), ("none", "nowhere")],
)
async def test_the_key_goes_where_the_service_wants_it(authentication: str, where: str) -> None:
    """Or nowhere, for services inside a network of one's own."""

    async def work(made: DeclaredOcr) -> object:
        return await made.query(JOB, Claim().query)

    _, server = await exchanged([http.Reply.of(status("queued"))], work, authentication=authentication)
    (sent,) = server.requests
    places = {"authorization": sent.headers.get("authorization", ""), "target": sent.target}
    assert [name for name, text in places.items() if "house-key" in text] == (
        [] if where == "nowhere" else [where]
    )


# What answers say.


@pytest.mark.parametrize(
    ("paths", "body", "markdown"),
    [
        (ResultPaths(markdown="a | b"), {"a": " ", "b": "# T"}, "# T"),
        (ResultPaths(markdown="a"), {"a": ""}, ""),
        (ResultPaths(text="out.t"), {"out": {"t": "T"}}, "T"),
        (ResultPaths(pages="p"), {"p": [{"markdown": "1"}, {}, {"text": "2"}, "3"]}, "1\n\n2"),
        (ResultPaths(pages="p", page_text="x.y"), {"p": [{"x": {"y": "1"}}]}, "1"),
    ],
)
async def test_text_is_found_in_every_form(paths: ResultPaths, body: JSON, markdown: str) -> None:
    """At the paths of the settings."""
    made = DeclaredOcr(settings=evolve(settings(), result=paths, status="s", words=Words(succeeded="ok")))
    query = made.parse_query(answer({"s": "ok", **body}), JOB, Claim().query)  # type: ignore[dict-item] # an object
    result = (await made.fetch_result(query, Claim().query)).result
    assert isinstance(result, OcrResult)
    assert result.markdown == markdown


@pytest.mark.parametrize("body", [{}, {"out": None}, {"out": {"t": 7}}])
async def test_done_without_text_is_incomplete(body: JSON) -> None:
    """Which the worker asks again a few times."""
    made = DeclaredOcr(
        settings=evolve(settings(), result=ResultPaths(text="out.t"), status="s", words=Words(succeeded="ok"))
    )
    query = made.parse_query(answer({"s": "ok", **body}), JOB, Claim().query)  # type: ignore[dict-item] # an object
    assert (await made.fetch_result(query, Claim().query)).verdict is Verdict.INCOMPLETE


async def test_a_result_behind_another_request_is_fetched() -> None:
    """With credentials, by the query that saw the job done; what is not there yet is asked for again."""

    async def work(made: DeclaredOcr) -> list[Any]:
        return [await made.query(JOB, Claim().query) for _ in range(2)]

    done = http.Reply.of({"ok": True, "data": {"state": "read"}})
    missing = http.Reply.of({"ok": False, "error": {"id": "gone", "text": "no result"}}, status=404)
    found = http.Reply.of({"ok": True, "data": {"md": "# T", "usage": {"pages": 2}}})
    fetch = {"method": "GET", "path": "/v2/{keep.shard}/results/{id}"}
    (first, second), server = await exchanged([done, missing, done, found], work, fetch=fetch)
    assert first.verdict is Verdict.INCOMPLETE
    assert "HTTP 404 no result" in first.error_message
    assert (second.result.markdown, second.result.usage) == ("# T", {"pages": 2})
    assert [each.target for each in server.requests] == ["/v2/eu/jobs/j1", "/v2/eu/results/j1"] * 2
    assert server.requests[1].headers["x-key"] == "house-key"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"ok": True}, None),
        ({"ok": "ok"}, None),
        ({"ok": 0}, None),
        ({"ok": False, "error": {"id": "E1", "text": "no"}}, ("E1", "no")),
        ({"ok": 17}, (None, '{"ok": 17}')),
        ({}, None),
        ([], None),
    ],
)
def test_errors_in_good_answers_are_found(body: JSON, error: tuple[str | None, str] | None) -> None:
    """By what the settings say of success."""
    found = handler().read_error(answer(body))
    assert (found and (found.code, found.message)) == error
    plain = handler(errors={}).read_error(answer(body))
    assert plain is None


def test_a_failed_job_says_why_where_errors_are() -> None:
    """At the same paths."""
    failed = handler().parse_query(
        answer({"data": {"state": "unreadable"}, "error": {"id": "E7", "text": "dark"}}), JOB, Claim().query
    )
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, "E7", "dark")


@pytest.mark.parametrize("progress", [None, "half", True, 7, -0.5])
def test_a_progress_that_is_none_is_left_out(progress: JSON) -> None:
    """It is only a hint."""
    body: JSON = {"data": {"state": "reading", "progress": progress}}
    assert handler().parse_query(answer(body), JOB, Claim().query).progress is None


def test_what_is_to_be_kept_must_be_there() -> None:
    """Else no later request could be made, so the outcome is unknown."""
    with pytest.raises(UnreadableAnswer, match="'shard'"):
        handler().create_query_params(answer({"job": "j1"}), OcrRequest(url=URL))
    plain = handler(keep=None, query={"path": "/q/{id}"}, cancel=None)
    assert plain.create_query_params(answer({"job": 7}), OcrRequest(url=URL)) == QueryParams(
        external_task_id="7"
    )


async def test_a_callback_names_its_job() -> None:
    """If it came to the address that we told."""
    request = called(b'{"job": "j9"}', secret="hush")
    assert (await handler().parse_callback(request, None)).external_task_ids == ("j9",)
    with pytest.raises(CallbackRejected):
        await handler().parse_callback(evolve(request, query={}), None)


def test_lines_of_jsonl_are_read_by_the_same_path() -> None:
    """A line without text is no page."""
    assert [page.markdown for page in handler().read_page({"content": "c"}, 3)] == ["c"]
    assert handler().read_page({"other": "c"}, 3) == ()


def test_templates_can_be_given_as_objects() -> None:
    """As code has them."""
    made = settings(submit=RequestTemplate(path="/a"), words=Words(succeeded="ok"))
    assert made.submit.path == "/a"
