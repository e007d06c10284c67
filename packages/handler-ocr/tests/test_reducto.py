import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import evolve

from coatcheck.errors import (
    CallbackRejected,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Callbacks, Cancelling, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrAsset, OcrBlock, OcrPage, OcrRequest, OcrResult
from coatcheck_handler_ocr.reducto import ReductoOcr
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, own_callback_url
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import (
    Answer,
    Block,
    FailingJob,
    NoResult,
    Operation,
    Recognition,
    RecognizedPage,
    SandboxServer,
    StatusWord,
    describe,
)
from coatcheck_sandbox.providers.reducto import ReductoProtocol

MIB = 1024 * 1024
OK = 200
URL = "https://files.example.com/invoice.pdf"
JOB = QueryParams(external_task_id="j1")
ACCOUNT = ApiKey("reducto-key-of-one", callback_secret="callback-secret-of-one")
CALLBACK = "https://app.example.com/callbacks/ocr:reducto"


def bbox(page: int, **extra: JSON) -> JSON:
    """Return a box in the provider's form."""
    return {"page": page, "left": 0.25, "top": 0.5, "width": 0.5, "height": 0.25, **extra}


CHUNKS: list[JSON] = [
    {
        "content": "# Invoice\n\nTotal: 12 €",
        "embed": "",
        "blocks": [
            {"type": "Title", "content": "# Invoice", "bbox": bbox(1, original_page=3)},
            {"type": "Text", "content": "Total: 12 €", "bbox": bbox(2)},
            {"type": "Figure", "content": "", "bbox": {"page": 2, "left": 0}, "image_url": "https://x/i.png"},
        ],
    },
    {"content": "Page two", "blocks": [{"content": "Page two", "bbox": bbox(2)}, {"content": "nowhere"}]},
]


def error(message: str, kind: str = "file_download_failure", code: int = 400) -> JSON:
    """Return the body of an error."""
    return {"error": {"message": message, "type": kind, "code": code}}


def done(result: JSON) -> dict[str, JSON]:
    """Return a job that is completed, with this inner result."""
    outer: JSON = {
        "job_id": "j1",
        "duration": 1.5,
        "usage": {"num_pages": 2, "credits": 2.0},
        "result": result,
    }
    return {"status": "Completed", "progress": 1.0, "reason": None, "result": outer}


def status(word: str) -> JSON:
    """Return the answer to a query of a job with this status word; its result is behind a link."""
    if word == "Completed":
        return done({"type": "url", "url": "{server}/files/chunks.json", "result_id": "r1"})
    return {
        "status": word,
        "progress": 0.5,
        "reason": "damaged" if word == "Failed" else None,
        "result": None,
    }


def called_back(task_id: str, secret: str = "callback-secret-of-one") -> CallbackRequest:
    """Return a callback to the address that was told for a task."""
    query = dict(parse_qsl(urlsplit(own_callback_url(CALLBACK, task_id, secret)).query))
    body = json.dumps({"status": "Completed", "job_id": "j1", "metadata": {}}).encode()
    return CallbackRequest(method="POST", path="/callbacks", headers={}, query=query, body=body)


def reducto_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_ocr.reducto:ReductoOcr",
        key="ocr:reducto",
        params=lambda url: OcrRequest(
            url=f"{url}/files/scan.pdf", pages="1-3", options={"enhance": {"a": 1}}
        ),
        settings=lambda url: HttpSettings(
            base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
        ),
        accounts={"default": ACCOUNT, "other": ApiKey("reducto-key-of-another")},
        script=Script(
            job="j1",
            accepted=KitReply.of({"job_id": "j1"}),
            status=status,
            words={
                "Pending": Means.WAITING,
                "Idle": Means.WAITING,
                "InProgress": Means.RUNNING,
                "Completed": Means.SUCCEEDED,
                "Failed": Means.FAILED,
            },
            rejected=KitReply.of(error("cannot be downloaded"), status=400),
            rate_limited=KitReply.of(error("slow down", "RATE_LIMIT", 429), status=429),
            not_found=KitReply.of(error("no such job", "NOT_FOUND", 404), status=404),
            error=lambda message: error(message, "unexpected", 500),
            done_without_result=KitReply.of({"status": "Completed", "result": None}),
            served={"/files/chunks.json": json.dumps(CHUNKS).encode()},
            cancel=Cancelling(
                confirmed=KitReply.of({}),
                refused=KitReply.of(error("it has ended", "JOB_STATE_ERROR"), status=400),
            ),
            callbacks=Callbacks(
                authentic=called_back("task-1"), forged=called_back("task-1", "another secret")
            ),
        ),
        creating=lambda method, path: (method, path) == ("POST", "/parse_async"),
        answer_limit_bytes=4 * MIB,
    )


class TestReductoOcr(HandlerConformance):
    """The handler of Reducto keeps every promise."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "cancel",
        "parse_callback",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return reducto_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to, before anything is fetched."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return ReductoOcr().parse_query(response, JOB, Claim().query)


async def result_of(inner: JSON) -> OcrResult:
    """Return the result of a job with this inner result, which is inline."""
    found = await ReductoOcr().fetch_result(read(done(inner)), Claim().query)
    assert isinstance(found.result, OcrResult)
    to_json(found.result)
    return found.result


def build(request: OcrRequest, callback_url: str | None = None) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = ReductoOcr(ACCOUNT)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("Pending", Verdict.RUNNING, Status.SUBMITTED),
        ("Idle", Verdict.RUNNING, Status.SUBMITTED),
        ("InProgress", Verdict.RUNNING, Status.RUNNING),
        ("Completed", Verdict.SUCCEEDED, Status.RUNNING),
        ("Failed", Verdict.FAILED, Status.RUNNING),
        ("Paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


@pytest.mark.parametrize(
    ("told", "progress"),
    [(0.5, 0.5), (0, 0.0), (1, 1.0), (50, None), (None, None), ("x", None), (True, None)],
)
def test_progress_is_taken_if_it_is_a_share(told: JSON, progress: float | None) -> None:
    """In what it is measured is not documented."""
    assert read({"status": "Pending", "progress": told}).progress == progress


def test_a_failed_job_gives_its_reason() -> None:
    """There is no code."""
    failed = read({"status": "Failed", "reason": "damaged", "result": None})
    assert (failed.error_code, failed.error_message) == (None, "damaged")
    assert read({"status": "Failed", "reason": None}).error_message == "the job failed"


async def test_chunks_are_joined_and_blocks_are_put_on_their_pages() -> None:
    """Boxes are shares of a page; pages are those of the original document, where it is told."""
    found = await result_of({"type": "full", "chunks": CHUNKS})
    assert found.markdown == "# Invoice\n\nTotal: 12 €\n\nPage two"
    box = (0.25, 0.5, 0.75, 0.75)
    assert found.pages == (
        OcrPage(
            index=1,
            markdown="Total: 12 €\n\nPage two",
            width=1.0,
            height=1.0,
            blocks=(
                OcrBlock(kind="Text", text="Total: 12 €", box=box),
                OcrBlock(kind="Figure"),
                OcrBlock(kind="Text", text="Page two", box=box),
            ),
        ),
        OcrPage(
            index=2,
            markdown="# Invoice",
            width=1.0,
            height=1.0,
            blocks=(OcrBlock(kind="Title", text="# Invoice", box=box),),
        ),
    )
    assert found.usage == {"num_pages": 2, "credits": 2.0}
    assert found.assets == (OcrAsset(type="image", url="https://x/i.png"),)


async def test_a_document_without_text_is_a_result() -> None:
    """No chunks, or chunks without content, are what a blank document has."""
    assert (await result_of({"type": "full", "chunks": []})).warnings == ("the provider found no text",)
    found = await result_of({"chunks": [{"content": None}, 7, {"content": "", "blocks": "x"}]})
    assert (found.markdown, found.pages) == ("", ())


@pytest.mark.parametrize(
    "body",
    [
        {"status": "Completed"},
        {"status": "Completed", "result": None},
        {"status": "Completed", "result": {"result": None}},
        done({"type": "full", "chunks": None}),
        done({"type": "full", "chunks": "x"}),
        done({"type": "url", "url": ""}),
    ],
)
def test_done_without_chunks_is_incomplete(body: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(body).verdict is Verdict.INCOMPLETE


def test_a_request_says_all_that_it_is_given() -> None:
    """Pages and suffix join the settings, the callback joins `async`; options go beneath what the handler sets."""
    request = OcrRequest(
        url=URL,
        pages="1-10,15",
        file_name="scan.PDF",
        options={
            "input": "https://elsewhere.example.com",
            "enhance": {"summarize_figures": True},
            "queue_priority": "batch",
            "settings": {"ocr_system": "standard", "page_range": [7], "force_file_extension": ".png"},
            "async": {
                "priority": True,
                "webhook": {"mode": "direct", "url": "https://elsewhere.example.com"},
            },
        },
    )
    sent = build(request, CALLBACK)
    assert (sent.method, sent.url) == ("POST", "/parse_async")
    assert sent.json == {
        "input": URL,
        "enhance": {"summarize_figures": True},
        "queue_priority": "batch",
        "settings": {
            "ocr_system": "standard",
            "page_range": [{"start": 1, "end": 10}, {"start": 15, "end": 15}],
            "force_file_extension": ".PDF",
        },
        "async": {
            "priority": True,
            "webhook": {
                "mode": "direct",
                "url": own_callback_url(CALLBACK, "task-1", "callback-secret-of-one"),
            },
        },
    }


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (OcrRequest(url=URL), {}),
        (OcrRequest(url=URL, file_name="scan"), {}),
        (OcrRequest(url=URL, outputs=("json",), options={"settings": None, "async": {}}), {}),
        (OcrRequest(url=URL, options={"settings": {"timeout": 60}}), {"settings": {"timeout": 60}}),
    ],
)
def test_what_is_not_asked_for_is_not_sent(request_: OcrRequest, expected: dict[str, JSON]) -> None:
    """Only the document's URL is always there."""
    assert build(request_).json == {"input": URL, **expected}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (OcrRequest(url=URL, options={"settings": [1]}), r"options\.settings"),
        (OcrRequest(url=URL, options={"async": "x"}), r"options\.async"),
        (OcrRequest(url=URL, model="m"), "model"),
        (OcrRequest(url=URL, outputs=("html",)), "html"),
    ],
)
def test_what_the_provider_does_not_have_is_refused(request_: OcrRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        ReductoOcr().validate(request_)


# Submissions, links and cancels, on raw replies.


@pytest.mark.parametrize(
    ("http_status", "body", "expected", "code"),
    [
        (400, error("no"), SubmitRejected, "file_download_failure"),
        (422, {"detail": [{"loc": ["input"], "msg": "Field required"}]}, SubmitRejected, "invalid_request"),
        (
            415,
            {"error": {"name": "DOCUMENT_CORRUPT", "message": "no", "code": 415}},
            SubmitRejected,
            "DOCUMENT_CORRUPT",
        ),
        (401, error("no key", "AUTH_ERROR", 401), SubmitDeferred, "AUTH_ERROR"),
        (403, b"<html>Forbidden</html>", SubmitDeferred, "auth"),
        (429, error("slow down", "RATE_LIMIT", 429), SubmitDeferred, "RATE_LIMIT"),
        (500, error("oh", "INTERNAL_ERROR", 500), OutcomeUnknown, "INTERNAL_ERROR"),
        (503, error("full", "QUEUE_FULL", 503), OutcomeUnknown, "QUEUE_FULL"),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown, "provider_unavailable"),
        (200, {"job": "?"}, HandlerError, "unreadable_answer"),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError], code: str
) -> None:
    """A 5xx proves nothing; what an operator can mend, or time does, defers; what only the caller can rejects."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = ReductoOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(expected) as caught:
            await handler.submit(OcrRequest(url=URL), Claim().submit)
        await handler.close()
    assert caught.value.code == code
    [sent] = server.requests
    assert (sent.target, sent.headers["authorization"]) == ("/parse_async", "Bearer the-key")
    assert json.loads(sent.body) == {"input": URL}


@pytest.mark.parametrize(
    ("file", "verdict"),
    [
        (Reply.of(CHUNKS), Verdict.SUCCEEDED),
        (Reply.of({"type": "full", "chunks": CHUNKS}), Verdict.SUCCEEDED),
        (Reply.of({"type": "full"}), Verdict.INCOMPLETE),
        (Reply.of(b"<Error>AccessDenied</Error>"), None),
        (Reply.of(b"expired", status=403), None),
    ],
)
async def test_a_large_result_is_fetched_without_the_key(file: Reply, verdict: Verdict | None) -> None:
    """The link is presigned; if it fails, the query failed and is asked again."""
    async with ScriptedServer([file]) as files:
        inner: JSON = {"type": "url", "url": f"{files.url}/chunks?signature=s", "result_id": "r1"}
        body = done(inner)
        assert isinstance(body["result"], dict)
        body["result"]["pdf_url"] = "https://x/a.pdf"
        async with ScriptedServer([Reply.of(body)]) as server:
            settings = HttpSettings(base_url=server.url, allow_private=True)
            handler = ReductoOcr(ApiKey("the-key"), settings=settings)
            await handler.open()
            found: QueryResult | None = None
            with nullcontext() if verdict else pytest.raises(QueryFailed):
                found = await handler.query(JOB, Claim().query)
            await handler.close()
    assert (None if found is None else found.verdict) is verdict
    assert "authorization" not in files.requests[0].headers
    if found is not None and verdict is Verdict.SUCCEEDED:
        assert isinstance(found.result, OcrResult)
        assert found.result.markdown.startswith("# Invoice")
        assert [each.type for each in found.result.assets] == ["pdf", "image"]
        assert found.result.usage == {"num_pages": 2, "credits": 2.0}


async def test_a_cancel_names_the_job() -> None:
    """One POST, without a body."""
    async with ScriptedServer([Reply.of({})]) as server:
        handler = ReductoOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        job = QueryParams(external_task_id="a/b")
        assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
        await handler.close()
    [sent] = server.requests
    assert (sent.method, sent.target, sent.body) == ("POST", "/cancel/a%2Fb", b"")
    assert Capability.CANCEL in handler.capabilities


# Callbacks.


async def test_a_callback_nudges_the_job_that_it_names() -> None:
    """If it came to the address that was told for the task; the body alone proves nothing."""
    handler = ReductoOcr(ACCOUNT)
    assert (await handler.parse_callback(called_back("task-1"), None)).external_task_ids == ("j1",)
    with pytest.raises(CallbackRejected):
        await handler.parse_callback(evolve(called_back("task-1"), query={}), None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Reducto's protocol, without an OCR engine."""
    with SandboxServer(protocols=[ReductoProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[ReductoOcr]:
    """A handler that is open."""
    settings = HttpSettings(base_url=f"{sandbox.url}/reducto", allow_private=True)
    made = ReductoOcr(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: ReductoOcr, sandbox: SandboxServer, **settings: JSON) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), options={"settings": settings})
    taken = await handler.submit(request, Claim().submit)
    assert taken.status is Status.SUBMITTED
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("settings", [{}, {"force_url_result": True}])
async def test_a_document_is_read(
    handler: ReductoOcr, sandbox: SandboxServer, settings: dict[str, JSON]
) -> None:
    """Submitted once, queried, and there is its text, inline or behind a link."""
    job = await submitted(handler, sandbox, **settings)
    found = await handler.query(job, Claim().query)
    assert found.verdict is Verdict.SUCCEEDED
    assert isinstance(found.result, OcrResult)
    assert "letter.jpg" in found.result.markdown
    [page] = found.result.pages
    assert page.markdown == found.result.markdown
    assert found.result.usage == {"num_pages": 1, "credits": 0.0}
    assert sandbox.creating_requests("letter.jpg") == 1


async def test_a_link_that_does_not_work_is_asked_for_again(
    handler: ReductoOcr, sandbox: SandboxServer
) -> None:
    """The next query brings the result."""
    job = await submitted(handler, sandbox, force_url_result=True)
    sandbox.faults.add(Answer(operation=Operation.RESULT, status=403))
    with pytest.raises(QueryFailed):
        await handler.query(job, Claim().query)
    assert (await handler.query(job, Claim().query)).verdict is Verdict.SUCCEEDED
    sandbox.jobs.delay = timedelta(hours=1)
    running = await submitted(handler, sandbox)
    told = await handler.ask(HttpRequest.get(f"/results/{running.external_task_id}"), Claim().query)
    assert told.status == 404  # there is none yet


async def test_a_job_may_fail_or_hide_its_result(handler: ReductoOcr, sandbox: SandboxServer) -> None:
    """A failed job has the provider's reason; a completed one without a result is incomplete."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="Paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the page is too dark")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_job_is_cancelled_until_it_has_ended(handler: ReductoOcr, sandbox: SandboxServer) -> None:
    """Confirmed, and refused where there is nothing to cancel any more."""
    sandbox.jobs.delay = timedelta(hours=1)
    job = await submitted(handler, sandbox)
    assert (await handler.query(job, Claim().query)).verdict is Verdict.RUNNING
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
    ended = await handler.query(job, Claim().query)
    assert (ended.verdict, ended.error_message) == (Verdict.FAILED, "the job was cancelled")
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.REFUSED


def two_pages(content: bytes, name: str) -> Recognition:
    """Return a document of two pages, as an engine would."""
    del content, name
    blocks = (
        Block(text="🧾 Invoice", left=10.0, top=20.0, right=110.0, bottom=60.0),
        Block(text="Total: 12 €", left=10.0, top=100.0, right=60.0, bottom=150.0),
    )
    pages = [RecognizedPage(blocks=each, width=200.0, height=400.0) for each in (blocks, blocks[1:])]
    return Recognition(pages=tuple(pages))


async def test_pages_and_boxes_survive_the_way() -> None:
    """Blocks are on their pages, and boxes are shares of them."""
    with SandboxServer(protocols=[ReductoProtocol()], recognizer=two_pages) as server:
        handler = ReductoOcr(ApiKey("sandbox-key"), settings=HttpSettings(base_url=f"{server.url}/reducto"))
        await handler.open()
        job = await submitted(handler, server)
        found = await handler.query(job, Claim().query)
        await handler.close()
    assert isinstance(found.result, OcrResult)
    first, second = found.result.pages
    assert (first.index, first.markdown) == (0, "🧾 Invoice\n\nTotal: 12 €")
    assert (second.index, second.markdown) == (1, "Total: 12 €")
    assert (first.width, first.height) == (1.0, 1.0)
    assert [block.box for block in first.blocks] == [
        (0.05, 0.05, 0.55, pytest.approx(0.15)),
        (0.05, 0.25, 0.3, 0.375),
    ]
    assert [block.text for block in second.blocks] == ["Total: 12 €"]


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = ReductoOcr(ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/reducto"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


@pytest.mark.parametrize("body", [{"input": ["https://x"]}, {}, {"input": "https://x", "settings": 1}])
async def test_the_sandbox_refuses_what_it_does_not_do(handler: ReductoOcr, body: JSON) -> None:
    """In the provider's envelope."""
    told = await handler.ask(HttpRequest.post("/parse_async", json=body), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (422, "INVALID_CONFIG")
