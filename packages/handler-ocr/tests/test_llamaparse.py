import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlsplit

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
from coatcheck.handler import CallbackRequest
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrBlock, OcrPage, OcrRequest, OcrResult
from coatcheck_handler_ocr.llamaparse import LlamaParseOcr, LlamaParseOcrSettings
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, own_callback_url
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import (
    Answer,
    Block,
    FailingJob,
    MalformedJson,
    Operation,
    Recognition,
    RecognizedPage,
    SandboxServer,
    StatusWord,
    describe,
)
from coatcheck_sandbox.providers.llamaparse import LlamaParseProtocol

MIB = 1024 * 1024
OK = 200
URL = "https://files.example.com/invoice.pdf"
JOB = QueryParams(external_task_id="p1", provider_params={"expand": "markdown"})
ACCOUNT = ApiKey("llama-key-of-one", callback_secret="callback-secret-of-one")
CALLBACK = "https://app.example.com/callbacks/ocr:llamaparse"
PAGE: JSON = {"page_number": 1, "markdown": "# T", "success": True}


def job(word: str, error_message: str | None = None) -> dict[str, JSON]:
    """Return a job as it is told in answers."""
    return {"id": "p1", "project_id": "pr", "status": word, "error_message": error_message, "tier": "agentic"}


def status(word: str) -> JSON:
    """Return the answer to a query of a job with this status word."""
    if word == "COMPLETED":
        return {"job": job(word), "markdown": {"pages": [PAGE]}}
    return {"job": job(word, "damaged" if word == "FAILED" else None)}


def called_back(task_id: str, secret: str = "callback-secret-of-one") -> CallbackRequest:
    """Return a callback to the address that was told for a task."""
    query = dict(parse_qsl(urlsplit(own_callback_url(CALLBACK, task_id, secret)).query))
    body = {"event_id": "e1", "event_type": "parse.success", "data": {"id": "p1", "job_id": "p1"}}
    return CallbackRequest(
        method="POST", path="/callbacks", headers={}, query=query, body=json.dumps(body).encode()
    )


def llamaparse_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_ocr.llamaparse:LlamaParseOcr",
        key="ocr:llamaparse",
        params=lambda url: OcrRequest(
            url=f"{url}/files/scan.pdf", pages="1-3", options={"output_options": {"a": 1}}
        ),
        settings=lambda url: LlamaParseOcrSettings(
            base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": ApiKey("llama-key-of-another")},
        script=Script(
            job="p1",
            accepted=KitReply.of(job("PENDING")),
            status=status,
            words={
                "PENDING": Means.WAITING,
                "RUNNING": Means.RUNNING,
                "COMPLETED": Means.SUCCEEDED,
                "FAILED": Means.FAILED,
                "CANCELLED": Means.CANCELED,
            },
            rejected=KitReply.of({"detail": [{"loc": ["tier"], "msg": "no such tier"}]}, status=422),
            rate_limited=KitReply.of({"detail": "slow down"}, status=429),
            not_found=KitReply.of({"detail": "no such job"}, status=404),
            error=lambda message: {"detail": message},
            done_without_result=KitReply.of({"job": job("COMPLETED")}),
            callbacks=Callbacks(
                authentic=called_back("task-1"), forged=called_back("task-1", "another secret")
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestLlamaParseOcr(HandlerConformance):
    """The handler of LlamaParse keeps every promise."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "parse_callback",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return llamaparse_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to, before anything is fetched."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return LlamaParseOcr().parse_query(response, JOB, Claim().query)


async def result_of(**content: JSON) -> OcrResult:
    """Return the result of a job with this content, which the answer has already."""
    found = await LlamaParseOcr().fetch_result(read({"job": job("COMPLETED"), **content}), Claim().query)
    assert isinstance(found.result, OcrResult)
    to_json(found.result)
    return found.result


def build(request: OcrRequest, callback_url: str | None = None, **settings: str) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = LlamaParseOcr(ACCOUNT, settings=LlamaParseOcrSettings(**settings))  # type: ignore[arg-type] # as tests like
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("PENDING", Verdict.RUNNING, Status.SUBMITTED),
        ("RUNNING", Verdict.RUNNING, Status.RUNNING),
        ("COMPLETED", Verdict.SUCCEEDED, Status.RUNNING),
        ("FAILED", Verdict.FAILED, Status.RUNNING),
        ("CANCELLED", Verdict.CANCELED, Status.RUNNING),
        ("PARTIAL", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


def test_a_failed_job_says_why() -> None:
    """In words; there is no code."""
    failed = read({"job": job("FAILED", "damaged")})
    assert (failed.error_code, failed.error_message) == (None, "damaged")
    assert read({"job": job("FAILED")}).error_message == "the job failed"


async def test_pages_that_failed_are_warnings() -> None:
    """The others are the result, in order, with their numbers."""
    found = await result_of(
        markdown={
            "pages": [
                {"page_number": 3, "markdown": "third", "success": True},
                {"page_number": 2, "error": "dark", "success": False},
                {"page_number": 1, "markdown": "first"},
                {"page_number": 4, "success": False},
                {"page_number": "x", "markdown": 7},
            ]
        },
        items={"pages": [{"page_number": 3, "error": "no layout", "success": False}]},
    )
    assert found.markdown == found.text == "first\n\nthird"
    assert found.pages == (OcrPage(index=0, markdown="first"), OcrPage(index=2, markdown="third"))
    assert found.warnings == (
        "page 2 failed: dark",
        "page 4 failed: the provider gives no reason",
        "the items of page 3 failed: no layout",
    )


def test_a_job_all_of_whose_pages_failed_has_failed() -> None:
    """It is completed, and there is nothing to use."""
    page: JSON = {"page_number": 2, "error": "dark", "success": False}
    failed = read({"job": job("COMPLETED"), "markdown": {"pages": [page]}})
    assert (failed.verdict, failed.error_message) == (
        Verdict.FAILED,
        "every page failed; page 2 failed: dark",
    )


async def test_items_are_blocks_with_boxes_in_points() -> None:
    """Their text is that of Markdown, if there is one; an item of several boxes has the box around them."""
    box: JSON = {"x": 10, "y": 20.5, "w": 100, "h": 10, "label": "text"}
    found = await result_of(
        markdown={"pages": [PAGE]},
        text={"pages": [{"page_number": 1, "text": "T"}, {"page_number": 2, "text": None}]},
        items={
            "pages": [
                {
                    "page_number": 1,
                    "page_width": 612,
                    "page_height": 792.5,
                    "success": True,
                    "items": [
                        {"type": "heading", "value": "T", "md": "# T", "level": 1, "bbox": box},
                        {"type": "table", "md": "|a|", "bbox": [box, {"x": 0, "y": 40, "w": 5, "h": 5}]},
                        {"type": "image", "caption": "a dog", "bbox": [{"x": 1}]},
                        {"value": "T", "bbox": None},
                        {},
                    ],
                }
            ]
        },
    )
    assert (found.markdown, found.text) == ("# T", "T")
    assert found.pages == (
        OcrPage(
            index=0,
            markdown="# T",
            width=612.0,
            height=792.5,
            blocks=(
                OcrBlock(kind="heading", text="# T", box=(10.0, 20.5, 110.0, 30.5)),
                OcrBlock(kind="table", text="|a|", box=(0.0, 20.5, 110.0, 45.0)),
                OcrBlock(kind="image", text="a dog"),
                OcrBlock(text="T"),
                OcrBlock(),
            ),
        ),
    )


async def test_text_takes_the_place_of_markdown() -> None:
    """As in the tier that gives no Markdown; a document without pages is an empty result."""
    found = await result_of(text={"pages": [{"page_number": 1, "text": "T"}]}, markdown=None)
    assert (found.markdown, found.text) == ("T", "T")
    assert found.pages == (OcrPage(index=0, markdown="T"),)
    assert (await result_of(markdown={"pages": []})).warnings == ("the provider found no text",)


@pytest.mark.parametrize("content", [{"markdown": {}}, {"markdown": {"pages": None}}, {"text": "T"}])
def test_done_without_pages_is_incomplete(content: dict[str, JSON]) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read({"job": job("COMPLETED"), **content}).verdict is Verdict.INCOMPLETE


def test_a_request_says_all_that_it_is_given() -> None:
    """Pages and languages join the options' objects, the callback their list; options go beneath the rest."""
    others: list[JSON] = [
        {"webhook_url": "https://elsewhere.example.com", "webhook_events": ["parse.success"]}
    ]
    request = OcrRequest(
        url=URL,
        model="agentic_plus",
        pages="1-10,15",
        languages=("de", "fr"),
        options={
            "source_url": "https://elsewhere.example.com",
            "file_id": "f1",
            "tier": "fast",
            "version": "2026-03-12",
            "page_ranges": {"max_pages": 5, "target_pages": "7"},
            "processing_options": {"ignore": {"a": True}, "ocr_parameters": {"languages": ["en"], "b": 1}},
            "output_options": {"markdown": {"annotate_links": True}},
            "webhook_configurations": others,
        },
    )
    sent = build(request, CALLBACK)
    assert (sent.method, sent.url) == ("POST", "/api/v2/parse")
    assert sent.json == {
        "source_url": URL,
        "tier": "agentic_plus",
        "version": "2026-03-12",
        "page_ranges": {"max_pages": 5, "target_pages": "1-10,15"},
        "processing_options": {"ignore": {"a": True}, "ocr_parameters": {"languages": ["de", "fr"], "b": 1}},
        "output_options": {"markdown": {"annotate_links": True}},
        "webhook_configurations": [
            *others,
            {"webhook_url": own_callback_url(CALLBACK, "task-1", "callback-secret-of-one")},
        ],
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    """The document, the tier and its version are always there."""
    assert build(OcrRequest(url=URL)).json == {"source_url": URL, "tier": "agentic", "version": "latest"}
    empty = OcrRequest(url=URL, options={"page_ranges": None, "webhook_configurations": None})
    assert build(empty, tier="fast", version="2026-01-08").json == {
        "source_url": URL,
        "tier": "fast",
        "version": "2026-01-08",
        "page_ranges": None,
        "webhook_configurations": None,
    }
    sent = build(OcrRequest(url=URL, pages="1", languages=("de",)), CALLBACK)
    assert isinstance(sent.json, dict)
    assert sent.json["page_ranges"] == {"target_pages": "1"}
    assert sent.json["processing_options"] == {"ocr_parameters": {"languages": ["de"]}}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (OcrRequest(url=URL, pages="1", options={"page_ranges": [1]}), "page_ranges"),
        (OcrRequest(url=URL, languages=("de",), options={"processing_options": 1}), "processing_options"),
        (
            OcrRequest(url=URL, languages=("de",), options={"processing_options": {"ocr_parameters": "x"}}),
            "ocr_parameters",
        ),
        (OcrRequest(url=URL, options={"webhook_configurations": 1}), "webhook_configurations"),
        (OcrRequest(url=URL, options={"webhook_configurations": "x"}), "webhook_configurations"),
        (OcrRequest(url=URL, tables=True), "tables"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(request_: OcrRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        LlamaParseOcr().validate(request_)


@pytest.mark.parametrize(
    ("request_", "expand"),
    [
        (OcrRequest(url=URL), "markdown"),
        (OcrRequest(url=URL, outputs=("text",)), "markdown,text"),
        (OcrRequest(url=URL, outputs=("json",)), "markdown,items"),
        (OcrRequest(url=URL, outputs=("markdown", "text", "json")), "markdown,text,items"),
        (OcrRequest(url=URL, model="fast"), "text"),
    ],
)
def test_what_to_fetch_is_stored_with_the_id(request_: OcrRequest, expand: str) -> None:
    """By the outputs that are wanted, and the tier."""
    for body in (job("PENDING"), {"job": job("PENDING")}):
        response = HttpResponse(status=OK, body=json.dumps(body).encode())
        made = LlamaParseOcr().create_query_params(response, request_)
        assert made == QueryParams(external_task_id="p1", provider_params={"expand": expand})


# Submissions and results, on raw replies.


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply.of({"detail": [{"msg": "no such tier"}]}, status=422), SubmitRejected),
        (Reply.of({"detail": "Invalid API key"}, status=401), SubmitDeferred),
        (Reply.of({"detail": "no credits"}, status=402), SubmitDeferred),
        (Reply.of({"detail": "slow down"}, status=429), SubmitDeferred),
        (Reply.of({"detail": "oh"}, status=500), OutcomeUnknown),
        (Reply.of(b"<html>Bad Gateway</html>", status=502), OutcomeUnknown),
        (Reply.of({"status": "PENDING"}), HandlerError),
    ],
)
async def test_errors_say_no_more_than_is_certain(reply: Reply, expected: type[HandlerError]) -> None:
    """A 5xx proves nothing; what an operator can mend, or time does, defers; what only the caller can rejects."""
    async with ScriptedServer([reply]) as server:
        handler = LlamaParseOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(expected):
            await handler.submit(OcrRequest(url=URL), Claim().submit)
        await handler.close()
    [sent] = server.requests
    assert (sent.target, sent.headers["authorization"]) == ("/api/v2/parse", "Bearer the-key")


DONE = Reply.of({"job": job("COMPLETED")})
CONTENT = Reply.of({"job": job("COMPLETED"), "markdown": {"pages": [PAGE]}})
ALL_FAILED = Reply.of({"job": job("COMPLETED"), "markdown": {"pages": [{"success": False, "error": "dark"}]}})


@pytest.mark.parametrize(
    ("params", "expand"),
    [
        (JOB, ["markdown"]),
        (evolve(JOB, provider_params={}), ["markdown"]),
        (JOB.evolve(expand="text"), ["text"]),
    ],
)
async def test_the_content_is_fetched_once_the_job_is_done(params: QueryParams, expand: list[str]) -> None:
    """A job that goes on is asked about without; the second request has the key, too."""
    async with ScriptedServer([Reply.of(status("RUNNING")), DONE, CONTENT]) as server:
        handler = LlamaParseOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        assert (await handler.query(params, Claim().query)).verdict is Verdict.RUNNING
        found = await handler.query(params, Claim().query)
        await handler.close()
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == "# T"
    first, second, third = server.requests
    assert first.target == second.target == "/api/v2/parse/p1"
    assert parse_qs(urlsplit(third.target).query) == {"expand": expand}
    assert third.headers["authorization"] == "Bearer the-key"


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [(DONE, Verdict.INCOMPLETE), (ALL_FAILED, Verdict.FAILED), (CONTENT, Verdict.SUCCEEDED)],
)
async def test_the_content_decides(reply: Reply, verdict: Verdict) -> None:
    """There may be none, or nothing but failed pages."""
    async with ScriptedServer([DONE, reply]) as server:
        handler = LlamaParseOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        found = await handler.query(JOB, Claim().query)
        await handler.close()
    assert (found.verdict, found.provider_status) == (verdict, "COMPLETED")


@pytest.mark.parametrize(
    ("reply", "code", "rate_limited"),
    [
        (Reply.of({"detail": "oh"}, status=500), "provider_unavailable", False),
        (Reply.of({"detail": "slow"}, status=429, headers={"retry-after": "7"}), "rate_limited", True),
        (Reply.of(b"<html>"), "unreadable_answer", False),
        (Reply.of([]), "unreadable_answer", False),
    ],
)
async def test_content_that_cannot_be_had_fails_the_query(
    reply: Reply, code: str, *, rate_limited: bool
) -> None:
    """And never the job: the next query tries again."""
    async with ScriptedServer([DONE, reply]) as server:
        handler = LlamaParseOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(QueryFailed) as caught:
            await handler.query(JOB, Claim().query)
        await handler.close()
    assert (caught.value.code, caught.value.rate_limited) == (code, rate_limited)
    assert caught.value.retry_after == (timedelta(seconds=7) if rate_limited else None)


# Callbacks.


async def test_a_callback_nudges_the_job_that_it_names() -> None:
    """If it came to the address that was told for the task; its body is an object, or one within a string."""
    handler = LlamaParseOcr(ACCOUNT)
    plain = called_back("task-1")
    packed = evolve(plain, body=json.dumps(plain.body.decode()).encode())
    for each in (plain, packed):
        assert (await handler.parse_callback(each, None)).external_task_ids == ("p1",)
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(evolve(each, query={}), None)


@pytest.mark.parametrize("body", [b'"\\ud800"', b'"{}"', b'"[1"', b"x", b"7"])
async def test_a_callback_that_makes_no_sense_is_rejected(body: bytes) -> None:
    """Within a string, too."""
    with pytest.raises(CallbackRejected):
        await LlamaParseOcr(ACCOUNT).parse_callback(evolve(called_back("task-1"), body=body), None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks LlamaParse's protocol, without an OCR engine."""
    with SandboxServer(protocols=[LlamaParseProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[LlamaParseOcr]:
    """A handler that is open."""
    settings = LlamaParseOcrSettings(base_url=f"{sandbox.url}/llamaparse")
    made = LlamaParseOcr(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: LlamaParseOcr, sandbox: SandboxServer, *outputs: str, model: str | None = None
) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), outputs=outputs or ("markdown",), model=model)
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "PENDING")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    ("outputs", "model", "blocks"),
    [(("markdown",), None, 0), (("markdown", "text", "json"), "cost_effective", 2), (("json",), "fast", 0)],
)
async def test_a_document_is_read(
    handler: LlamaParseOcr, sandbox: SandboxServer, outputs: tuple[str, ...], model: str | None, blocks: int
) -> None:
    """Submitted once, queried, fetched, and there is its text, with blocks where they are wanted and given."""
    found = await handler.query(await submitted(handler, sandbox, *outputs, model=model), Claim().query)
    assert found.verdict is Verdict.SUCCEEDED
    assert isinstance(found.result, OcrResult)
    assert "letter.jpg" in found.result.markdown
    [page] = found.result.pages
    assert (page.markdown, len(page.blocks)) == (found.result.markdown, blocks)
    assert sandbox.creating_requests("letter.jpg") == 1


async def test_a_job_may_fail_or_its_result_may_be_late(
    handler: LlamaParseOcr, sandbox: SandboxServer
) -> None:
    """A failed job has the provider's words; a result that cannot be had is asked for again."""
    taken = await submitted(handler, sandbox)
    sandbox.faults.add(Answer(operation=Operation.RESULT, status=503))
    sandbox.faults.add(MalformedJson(operation=Operation.RESULT))
    for _ in range(2):
        with pytest.raises(QueryFailed):
            await handler.query(taken, Claim().query)
    assert (await handler.query(taken, Claim().query)).verdict is Verdict.SUCCEEDED
    sandbox.faults.add(StatusWord(word="PARTIAL"))
    assert (await handler.query(taken, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the page is too dark")
    sandbox.jobs.clear()
    assert (await handler.query(taken, Claim().query)).verdict is Verdict.NOT_FOUND


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
    """Pages are told apart, and boxes are in the page's unit."""
    with SandboxServer(protocols=[LlamaParseProtocol()], recognizer=two_pages) as server:
        handler = LlamaParseOcr(
            ApiKey("sandbox-key"), settings=HttpSettings(base_url=f"{server.url}/llamaparse")
        )
        await handler.open()
        job = await submitted(handler, server, "json")
        found = await handler.query(job, Claim().query)
        await handler.close()
    assert isinstance(found.result, OcrResult)
    first, second = found.result.pages
    assert (first.index, first.markdown) == (0, "🧾 Invoice\n\nTotal: 12 €")
    assert (second.index, second.markdown) == (1, "Total: 12 €")
    assert (first.width, first.height) == (200.0, 400.0)
    assert [block.box for block in first.blocks] == [(10.0, 20.0, 110.0, 60.0), (10.0, 100.0, 60.0, 150.0)]
    assert [block.text for block in second.blocks] == ["Total: 12 €"]


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = LlamaParseOcr(ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/llamaparse"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


async def test_the_sandbox_refuses_what_it_does_not_do(
    handler: LlamaParseOcr, sandbox: SandboxServer
) -> None:
    """With a reason."""
    taken = await submitted(handler, sandbox)
    for request in (
        HttpRequest.post("/api/v2/parse", json={"tier": "agentic", "source_url": "https://x"}),
        HttpRequest.post("/api/v2/parse", json={"tier": "slow", "version": "latest"}),
        HttpRequest.post("/api/v2/parse", json={"tier": "fast", "version": "latest", "file_id": "f1"}),
        HttpRequest.get(f"/api/v2/parse/{taken.external_task_id}", query={"expand": "forms"}),
    ):
        assert (await handler.ask(request, Claim().query)).status == 422
