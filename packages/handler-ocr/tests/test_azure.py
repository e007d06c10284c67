import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrBlock, OcrPage, OcrRequest, OcrResult
from coatcheck_handler_ocr.azure import AzureOcr, AzureOcrSettings
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import (
    Block,
    FailingJob,
    NoResult,
    Recognition,
    RecognizedPage,
    SandboxServer,
    StatusWord,
    describe,
)
from coatcheck_sandbox.providers.azure import AzureProtocol

MIB = 1024 * 1024
JOB = "3b31320d-8bab-4f88-b19c-2322a7f11034"
PATH = f"/documentintelligence/documentModels/prebuilt-layout/analyzeResults/{JOB}?api-version=2024-11-30"
REQUEST = OcrRequest(url="https://files.example.com/invoice.pdf")
CORRUPTED = "The file is corrupted, or in no supported format."
CONTENT = "# 🧾 Invoice\n\n<!-- PageBreak -->\n\nTotal: 12 €"
RESULT: JSON = {
    "apiVersion": "2024-11-30",
    "modelId": "prebuilt-layout",
    "stringIndexType": "unicodeCodePoint",
    "contentFormat": "markdown",
    "content": CONTENT,
    "pages": [{"pageNumber": 1, "width": 8.5, "height": 11, "unit": "inch", "spans": []}],
}
OK = 200


def error(message: str, code: str = "UnexpectedError", inner: str = "Unexpected") -> JSON:
    """Return the body of an error."""
    innererror: JSON = {"code": inner, "message": message}
    return {"error": {"code": code, "message": "The request failed.", "innererror": innererror}}


def status(word: str) -> JSON:
    """Return the answer to a query of an operation in this state."""
    answer: dict[str, JSON] = {"status": word, "createdDateTime": "2026-03-02T10:00:00Z"}
    if word in {"succeeded", "completed"}:
        answer["analyzeResult"] = RESULT
    if word in {"failed", "skipped"}:
        answer["error"] = {"code": "InvalidRequest", "message": CORRUPTED}
    return answer


def azure_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    refused = error(CORRUPTED, "InvalidRequest", "InvalidContent")
    too_fast: JSON = {"error": {"code": "429", "message": "Requests have exceeded the call rate."}}
    return HandlerSpec(
        "coatcheck_handler_ocr.azure:AzureOcr",
        key="ocr:azure",
        params=lambda url: OcrRequest(
            url=f"{url}/files/scan.pdf", pages="1-3", options={"features": "barcodes"}
        ),
        settings=lambda url: AzureOcrSettings(
            base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ApiKey("azure-key-of-one"), "other": ApiKey("azure-key-of-another")},
        script=Script(
            job=JOB,
            accepted=KitReply.of(b"", status=202, headers={"operation-location": f"{{server}}{PATH}"}),
            status=status,
            words={
                "notStarted": Means.WAITING,
                "running": Means.RUNNING,
                "succeeded": Means.SUCCEEDED,
                "completed": Means.SUCCEEDED,
                "failed": Means.FAILED,
                "skipped": Means.FAILED,
                "canceled": Means.CANCELED,
            },
            rejected=KitReply.of(refused, status=400),
            rate_limited=KitReply.of(too_fast, status=429),
            not_found=KitReply.of(
                error("There is no such operation.", "NotFound", "OperationNotFound"), status=404
            ),
            error=error,
            done_without_result=KitReply.of({"status": "succeeded"}),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestAzureOcr(HandlerConformance):
    """The handler of Azure AI Document Intelligence keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return azure_spec()


# On samples of answers, as documented.


def make(**settings: str) -> AzureOcr:
    """Return a handler of an endpoint that is asked nothing."""
    return AzureOcr(ApiKey("k"), settings=AzureOcrSettings(base_url="https://me.example.com", **settings))  # type: ignore[arg-type] # as tests like


def answer(body: JSON, http_status: int = OK, **headers: str) -> HttpResponse:
    """Return an answer with this body."""
    return HttpResponse(status=http_status, headers=headers, body=json.dumps(body).encode())


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to, before anything is fetched."""
    job = QueryParams(external_task_id=JOB)
    return make().parse_query(answer(body), job, Claim().query)


async def result_of(analyzed: JSON) -> OcrResult:
    """Return the result of an operation with this `analyzeResult`."""
    done = await make().fetch_result(read({"status": "succeeded", "analyzeResult": analyzed}), Claim().query)
    assert isinstance(done.result, OcrResult)
    to_json(done.result)
    return done.result


def build(request: OcrRequest, **settings: str) -> HttpRequest:
    """Return the creating request."""
    context = Claim().submit
    handler = make(**settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


def test_an_endpoint_has_to_be_named() -> None:
    """It is that of a resource, so there is none that fits all."""
    with pytest.raises(ConfigurationError, match="base_url"):
        AzureOcr(ApiKey("k"))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("notStarted", Verdict.RUNNING, Status.SUBMITTED),
        ("running", Verdict.RUNNING, Status.RUNNING),
        ("succeeded", Verdict.SUCCEEDED, Status.RUNNING),
        ("completed", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("skipped", Verdict.FAILED, Status.RUNNING),
        ("canceled", Verdict.CANCELED, Status.RUNNING),
        ("paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    result = read(status(word))
    assert (result.verdict, result.status, result.provider_status) == (verdict, task_status, word)


def test_a_request_says_all_that_it_is_given() -> None:
    """Choices are query parameters, the document is named in the body, and options go beneath the handler's own."""
    request = OcrRequest(
        url="https://files.example.com/a.pdf",
        model="my model",
        pages="1-3,5",
        languages=("de",),
        formulas=True,
        options={
            "features": ["barcodes", "queryFields"],
            "queryFields": ["Total", "Due"],
            "output": "pdf",
            "splits": 2,
            "deep": True,
            "wide": False,
            "none": None,
            "pages": "9",
            "locale": "fr",
            "api-version": "2020-01-01",
            "stringIndexType": "utf16CodeUnit",
            "outputContentFormat": "text",
        },
    )
    sent = build(request)
    assert (sent.method, sent.url) == ("POST", "/documentintelligence/documentModels/my%20model:analyze")
    assert sent.query == {
        "api-version": "2024-11-30",
        "outputContentFormat": "markdown",
        "stringIndexType": "unicodeCodePoint",
        "pages": "1-3,5",
        "locale": "de",
        "features": "barcodes,queryFields,formulas",
        "queryFields": "Total,Due",
        "output": "pdf",
        "splits": "2",
        "deep": "true",
        "wide": "false",
    }
    assert sent.json == {"urlSource": "https://files.example.com/a.pdf"}
    assert sent.headers == {"x-ms-client-request-id": "task-1"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (REQUEST, {"outputContentFormat": "markdown"}),
        (OcrRequest(url=REQUEST.url, outputs=("text",)), {"outputContentFormat": "text"}),
        (OcrRequest(url=REQUEST.url, outputs=("text", "markdown")), {"outputContentFormat": "markdown"}),
        (OcrRequest(url=REQUEST.url, outputs=("json",)), {"outputContentFormat": "markdown"}),
        (
            OcrRequest(url=REQUEST.url, formulas=True, options={"features": "formulas"}),
            {"outputContentFormat": "markdown", "features": "formulas"},
        ),
        (OcrRequest(url=REQUEST.url, formulas=False), {"outputContentFormat": "markdown"}),
    ],
)
def test_what_is_not_asked_for_is_not_sent(request_: OcrRequest, expected: dict[str, str]) -> None:
    """Only version, string index type and form of the content are always there."""
    always = {"api-version": "2024-11-30", "stringIndexType": "unicodeCodePoint"}
    assert build(request_).query == {**always, **expected}


def test_model_and_version_can_be_set() -> None:
    """By the settings, the model also by the request; settings of all handlers leave both as they are."""
    sent = build(REQUEST, model="prebuilt-read", api_version="2025-09-01")
    assert sent.url == "/documentintelligence/documentModels/prebuilt-read:analyze"
    assert sent.query["api-version"] == "2025-09-01"
    plain = AzureOcr(ApiKey("k"), settings=HttpSettings(base_url="https://me.example.com"))
    plain.validate(REQUEST)
    assert plain.suggested_gates()


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (OcrRequest(url=REQUEST.url, model=".."), "path"),
        (OcrRequest(url=REQUEST.url, languages=("de", "fr")), "one language"),
        (OcrRequest(url=REQUEST.url, tables=True), "tables"),
        (OcrRequest(url=REQUEST.url, outputs=("html",)), "html"),
        (OcrRequest(url="s3://bucket/a.pdf"), "http"),
        (OcrRequest(url=REQUEST.url, options={"features": {"a": 1}}), r"options\.features"),
        (OcrRequest(url=REQUEST.url, options={"features": ["a,b"]}), r"options\.features"),
        (OcrRequest(url=REQUEST.url, options={"queryFields": [" "]}), r"options\.queryFields"),
        (OcrRequest(url=REQUEST.url, options={"queryFields": [1]}), r"options\.queryFields"),
        (OcrRequest(url=REQUEST.url, options={"queryFields": []}), r"options\.queryFields"),
    ],
)
def test_what_no_request_can_be_made_of_is_refused(request_: OcrRequest, match: str) -> None:
    """What would be another request than it seems is not even saved."""
    with pytest.raises(InvalidParams, match=match):
        make().validate(request_)


async def test_pages_are_cut_out_of_the_content_by_code_points() -> None:
    """Spans are asked for in code points, so they are indexes of Python's strings; numbers are the document's."""
    first, second = "# 🧾 Invoice\n", "\nTotal: 12 €"
    found = await result_of(
        {
            "contentFormat": "markdown",
            "content": CONTENT,
            "pages": [
                {"pageNumber": 2, "width": 8.5, "height": 11, "unit": "inch", "spans": [span(first)]},
                {
                    "pageNumber": 4,
                    "width": True,
                    "spans": [span(second[:6]), span(second[6:]), {"offset": -1}],
                },
                {"pageNumber": "x", "spans": None},
                {"pageNumber": 0},
            ],
            "paragraphs": [
                {
                    "role": "title",
                    "content": "🧾 Invoice",
                    "boundingRegions": [{"pageNumber": 2, "polygon": [1, 1, 3.5, 1.25, 3.5, 2, 1, 1.75]}],
                },
                {"content": "Total: 12 €", "boundingRegions": [{"pageNumber": 4, "polygon": [1, 2, 3]}]},
                {"content": "nowhere"},
            ],
            "warnings": [{"code": "W1", "message": "dark", "target": "2"}, {"message": "slow"}, {}],
        }
    )
    assert (found.markdown, found.text) == (CONTENT, CONTENT)
    assert found.pages == (
        OcrPage(
            index=1,
            markdown=first,
            width=8.5,
            height=11.0,
            blocks=(OcrBlock(kind="title", text="🧾 Invoice", box=(1.0, 1.0, 3.5, 2.0)),),
        ),
        OcrPage(index=3, markdown=second, blocks=(OcrBlock(text="Total: 12 €"),)),
        OcrPage(index=2),
        OcrPage(index=3, blocks=(OcrBlock(text="Total: 12 €"),)),
    )
    assert found.warnings == ("W1: dark", "slow", "a warning without words")


def span(part: str) -> JSON:
    """Return where `part` is in the content, as the provider would."""
    return {"offset": CONTENT.index(part), "length": len(part)}


async def test_plain_text_is_told_as_such() -> None:
    """Content in the form of text is the text, and takes the place of Markdown."""
    found = await result_of({"contentFormat": "text", "content": "Total", "pages": None})
    assert (found.markdown, found.text, found.pages) == ("Total", "Total", ())


async def test_an_empty_document_is_a_result() -> None:
    """An empty content is what a blank page has."""
    found = await result_of({"content": "", "pages": [{"pageNumber": 1}]})
    assert (found.markdown, found.warnings) == ("", ("the provider found no text",))


@pytest.mark.parametrize("analyzed", [None, {}, {"content": None}, {"pages": []}, [], "missing"])
def test_done_without_content_is_incomplete(analyzed: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    body: JSON = {"status": "succeeded"}
    if analyzed != "missing":
        body = {"status": "succeeded", "analyzeResult": analyzed}
    assert read(body).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("told", "code", "message"),
    [
        (error(CORRUPTED, "InvalidRequest", "InvalidContent"), "InvalidContent", CORRUPTED),
        ({"error": {"code": "InternalServerError", "message": "oh"}}, "InternalServerError", "oh"),
        ({"error": None}, None, "the job failed"),
    ],
)
def test_a_failed_operation_tells_the_inner_error(
    told: dict[str, JSON], code: str | None, message: str
) -> None:
    """The inner error says what was wrong; the outer one says that something was."""
    failed = read({"status": "failed", **told})
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, code, message)


# Submissions and queries, on raw replies.


async def submit(reply: Reply, location: str | None = None) -> tuple[object, ScriptedServer]:
    """Submit to a provider that answers so; ``{}`` in `location` is where it is. Return the outcome or error."""
    async with ScriptedServer([]) as server:
        server.replies.append(reply if location is None else accepted(location.format(server.url)))
        handler = AzureOcr(ApiKey("the-key"), settings=AzureOcrSettings(base_url=server.url))
        await handler.open()
        try:
            return await handler.submit(REQUEST, Claim().submit), server
        except HandlerError as raised:
            return raised, server
        finally:
            await handler.close()


def accepted(location: str) -> Reply:
    """Return the answer to a submission, with the operation at `location`."""
    return Reply.of(status=202, headers={"operation-location": location, "retry-after": "5"})


async def test_an_operation_is_accepted_with_an_empty_body() -> None:
    """Id and location are in a header; Retry-After counts; the key is in the provider's own header."""
    outcome, server = await submit(Reply(), "{}" + PATH)
    assert isinstance(outcome, SubmitResult)
    assert outcome.query_params == QueryParams(
        external_task_id=JOB, provider_params={"location": server.url + PATH}
    )
    assert (outcome.status, outcome.retry_after) == (Status.SUBMITTED, timedelta(seconds=5))
    [sent] = server.requests
    target = urlsplit(sent.target)
    assert target.path == "/documentintelligence/documentModels/prebuilt-layout:analyze"
    assert parse_qs(target.query)["stringIndexType"] == ["unicodeCodePoint"]
    assert json.loads(sent.body) == {"urlSource": REQUEST.url}
    assert sent.headers["ocp-apim-subscription-key"] == "the-key"
    assert "authorization" not in sent.headers


@pytest.mark.parametrize("headers", [{}, {"operation-location": "https://files.example.com/"}])
async def test_an_acceptance_without_an_operation_is_doubt(headers: dict[str, str]) -> None:
    """202 without a location, or with one that has no id: nobody can tell which operation it is."""
    outcome, server = await submit(Reply.of(status=202, headers=headers))
    assert isinstance(outcome, UnreadableAnswer)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("http_status", "body", "expected"),
    [
        (400, error(CORRUPTED, "InvalidRequest", "InvalidContent"), SubmitRejected),
        (400, {"error": {"code": "InvalidArgument", "message": "no"}}, SubmitRejected),
        (404, {"error": {"code": "NotFound", "message": "no such model"}}, SubmitRejected),
        (401, {"error": {"code": "401", "message": "Access denied."}}, SubmitDeferred),
        (403, {"error": {"code": "Forbidden", "message": "by policy"}}, SubmitDeferred),
        (429, {"error": {"code": "429", "message": "too fast"}}, SubmitDeferred),
        (500, {"error": {"code": "InternalServerError", "message": "oh"}}, OutcomeUnknown),
        (503, {"error": {"code": "ServiceUnavailable", "message": "oh"}}, OutcomeUnknown),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError]
) -> None:
    """A 5xx proves nothing; what an operator can mend defers; what only the caller can rejects."""
    outcome, _ = await submit(Reply.of(body, status=http_status))
    assert type(outcome) is expected


async def test_a_location_elsewhere_gets_the_key_only_if_its_origin_is_trusted() -> None:
    """Not even a connection is made to another origin, until the settings trust it."""
    async with ScriptedServer([Reply.of(status("running"))]) as resource, ScriptedServer([]) as gateway:
        job = QueryParams(external_task_id=JOB, provider_params={"location": resource.url + PATH})
        for trusted in ((), (resource.url,)):
            settings = AzureOcrSettings(base_url=gateway.url, trusted_origins=trusted)
            handler = AzureOcr(ApiKey("the-key"), settings=settings)
            await handler.open()
            if trusted:
                result = await handler.query(job, Claim().query)
                assert result.verdict is Verdict.RUNNING
            else:
                with pytest.raises(QueryFailed, match="trusted_origins"):
                    await handler.query(job, Claim().query)
                assert resource.connections == 0
            await handler.close()
    [asked] = resource.requests
    assert asked.target == PATH  # as it was given, query and all
    assert asked.headers["ocp-apim-subscription-key"] == "the-key"


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Azure's protocol, without an OCR engine."""
    with SandboxServer(protocols=[AzureProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[AzureOcr]:
    """A handler that is open."""
    made = AzureOcr(ApiKey("sandbox-key"), settings=AzureOcrSettings(base_url=f"{sandbox.url}/azure"))
    await made.open()
    yield made
    await made.close()


async def submitted(handler: AzureOcr, sandbox: SandboxServer, *outputs: str) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), outputs=outputs or ("markdown",))
    taken = await handler.submit(request, Claim().submit)
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("output", ["markdown", "text"])
async def test_a_document_is_read(handler: AzureOcr, sandbox: SandboxServer, output: str) -> None:
    """Submitted once, queried at its location, and there is its text, with a page and its blocks."""
    done = await handler.query(await submitted(handler, sandbox, output), Claim().query)
    assert done.verdict is Verdict.SUCCEEDED
    assert isinstance(done.result, OcrResult)
    [page] = done.result.pages
    assert page.markdown == done.result.markdown == "\n\n".join(block.text for block in page.blocks)
    assert "letter.jpg" in page.blocks[0].text
    assert sandbox.creating_requests("letter.jpg") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: AzureOcr, sandbox: SandboxServer) -> None:
    """With the provider's code and words; a done operation without a result is incomplete."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="InvalidContent", message=CORRUPTED))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("InvalidContent", CORRUPTED)
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


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
    """Pages are cut out of the content right, and boxes are in the page's unit."""
    with SandboxServer(protocols=[AzureProtocol()], recognizer=two_pages) as server:
        handler = AzureOcr(ApiKey("sandbox-key"), settings=AzureOcrSettings(base_url=f"{server.url}/azure"))
        await handler.open()
        job = await submitted(handler, server)
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
    handler = AzureOcr(ApiKey("wrong"), settings=AzureOcrSettings(base_url=f"{sandbox.url}/azure"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ({"api-version": "2023-07-31"}, {"urlSource": "https://x"}),
        ({"stringIndexType": "textElements"}, {"urlSource": "https://x"}),
        ({"outputContentFormat": "html"}, {"urlSource": "https://x"}),
        ({}, {"base64Source": ""}),
    ],
)
async def test_the_sandbox_refuses_what_it_does_not_do(
    handler: AzureOcr, query: dict[str, str], body: JSON
) -> None:
    """In the provider's envelope."""
    always = {"api-version": "2024-11-30", "stringIndexType": "unicodeCodePoint"}
    path = "/documentintelligence/documentModels/prebuilt-layout:analyze"
    told = await handler.ask(HttpRequest.post(path, json=body, query={**always, **query}), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert refusal.code in {"NotSupportedApiVersion", "InvalidParameter"}
