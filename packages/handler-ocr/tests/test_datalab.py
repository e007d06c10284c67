import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from attrs import evolve

from coatcheck.errors import CallbackRejected, HandlerError, QueryFailed, SubmitDeferred, SubmitRejected
from coatcheck.handler import CallbackRequest
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.datalab import DatalabOcr, DatalabOcrSettings
from coatcheck_http import (
    FilePart,
    HttpRequest,
    HttpResponse,
    OutcomeUnknown,
    PreparedContext,
    UnreadableAnswer,
    own_callback_url,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.datalab import DatalabProtocol

MIB = 1024 * 1024
OK = 200
URL = "https://files.example.com/invoice.pdf"
PATH = "/api/v1/convert/r1"
JOB = QueryParams(external_task_id="r1")
ACCOUNT = ApiKey("datalab-key-of-one", callback_secret="callback-secret-of-one")
CALLBACK = "https://app.example.com/callbacks/ocr:datalab"


def accepted(origin: str) -> dict[str, JSON]:
    """Return the answer to a submission, with the job's URL at `origin`."""
    return {"success": True, "error": None, "request_id": "r1", "request_check_url": f"{origin}{PATH}"}


def status(word: str) -> JSON:
    """Return the answer to a query of a job with this status word."""
    if word == "complete":
        return {
            "status": word,
            "success": True,
            "error": None,
            "markdown": "# T",
            "images": {},
            "page_count": 1,
        }
    if word == "failed":
        return {"status": word, "success": False, "error": "the file is damaged"}
    return {"status": word}


def called_back(task_id: str, secret: str = "callback-secret-of-one") -> CallbackRequest:
    """Return a callback to the address that was told for a task."""
    query = dict(parse_qsl(urlsplit(own_callback_url(CALLBACK, task_id, secret)).query))
    body = json.dumps({"request_id": "r1", "request_check_url": f"https://www.datalab.to{PATH}"})
    return CallbackRequest(method="POST", path="/callbacks", headers={}, query=query, body=body.encode())


def datalab_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_ocr.datalab:DatalabOcr",
        key="ocr:datalab",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf", pages="1-3", options={"paginate": True}),
        settings=lambda url: DatalabOcrSettings(
            base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": ApiKey("datalab-key-of-another")},
        script=Script(
            job="r1",
            accepted=KitReply.of(accepted("{server}")),
            status=status,
            words={"processing": Means.RUNNING, "complete": Means.SUCCEEDED, "failed": Means.FAILED},
            rejected=KitReply.of({"success": False, "error": "no such format"}),
            rate_limited=KitReply.of({"detail": "Rate limit exceeded"}, status=429),
            not_found=KitReply.of({"detail": "no such request"}, status=404),
            error=lambda message: {"detail": message},
            done_without_result=KitReply.of({"status": "complete", "success": True, "markdown": None}),
            callbacks=Callbacks(
                authentic=called_back("task-1"), forged=called_back("task-1", "another secret")
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestDatalabOcr(HandlerConformance):
    """The handler of Datalab keeps every promise."""

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
        return datalab_spec()


# On samples of answers, as documented.


def answer(body: JSON | bytes, http_status: int = OK) -> HttpResponse:
    """Return an answer with this body."""
    return HttpResponse(
        status=http_status, body=body if isinstance(body, bytes) else json.dumps(body).encode()
    )


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to, before anything is fetched."""
    return DatalabOcr().parse_query(answer(body), JOB, Claim().query)


async def result_of(body: JSON) -> OcrResult:
    """Return the result in an answer."""
    done = await DatalabOcr().fetch_result(read(body), Claim().query)
    assert isinstance(done.result, OcrResult)
    to_json(done.result)
    return done.result


def build(request: OcrRequest, callback_url: str | None = None, mode: str | None = None) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = DatalabOcr(ACCOUNT, settings=DatalabOcrSettings(mode=mode))
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"status": "processing"}, Verdict.RUNNING),
        ({"status": "processing", "success": None, "error": None}, Verdict.RUNNING),
        ({"status": "processing", "success": False}, Verdict.RUNNING),
        ({"status": "complete", "success": True, "markdown": "# T"}, Verdict.SUCCEEDED),
        ({"status": "complete", "success": True, "error": None, "markdown": ""}, Verdict.SUCCEEDED),
        ({"status": "complete", "success": True, "markdown": None}, Verdict.INCOMPLETE),
        ({"status": "complete", "success": True}, Verdict.INCOMPLETE),
        ({"status": "complete", "success": False, "error": "dark", "markdown": ""}, Verdict.FAILED),
        ({"status": "failed", "error": "dark"}, Verdict.FAILED),
        ({"status": "expired", "success": False, "error": "dark"}, Verdict.FAILED),
        ({"status": "paused", "success": True}, Verdict.UNLISTED),
        ({"status": "paused"}, Verdict.UNLISTED),
    ],
)
def test_a_word_counts_together_with_success(body: JSON, verdict: Verdict) -> None:
    """Complete without success is failed; a word that is not documented is unlisted, unless it says so, too."""
    assert read(body).verdict is verdict


def test_a_failed_job_says_why() -> None:
    """In `error`; in which part it was, in `error_in`."""
    failed = read({"status": "complete", "success": False, "error": "dark", "error_in": "INFERENCE"})
    assert (failed.error_code, failed.error_message) == ("INFERENCE", "dark")
    assert read({"status": "complete", "success": False, "error": None}).error_message == "the job failed"


@pytest.mark.parametrize("body", [{}, {"status": None}, {"success": True}, []])
def test_an_answer_without_a_status_is_unreadable(body: JSON) -> None:
    """It is neither running nor done."""
    with pytest.raises(UnreadableAnswer):
        read(body)


async def test_images_are_told_and_not_kept() -> None:
    """They come as base64, and would fill the store."""
    body: dict[str, JSON] = {"status": "complete", "success": True, "markdown": "# T\ud800 ![](0.png)"}
    one = await result_of(
        {**body, "images": {"0.png": "aGVsbG8="}, "page_count": 9, "cost_breakdown": {"a": 1}}
    )
    assert (one.markdown, one.text) == ("# T� ![](0.png)", "# T� ![](0.png)")
    assert one.usage == {"page_count": 9, "cost_breakdown": {"a": 1}}
    assert one.warnings == ("the provider sent 1 image(s), which are not kept: 0.png",)
    many = await result_of({**body, "images": {f"{number}.png": "aGVsbG8=" for number in range(7)}})
    assert many.warnings == (
        "the provider sent 7 image(s), which are not kept: 0.png, 1.png, 2.png, 3.png, 4.png, ...",
    )
    assert "aGVsbG8=" not in json.dumps(to_json(many))


def test_a_request_says_all_that_it_is_given() -> None:
    """The first page is 0 there; options go beneath what the handler sets."""
    request = OcrRequest(
        url=URL,
        pages="1-10,15",
        model="accurate",
        options={
            "max_pages": 3,
            "skip_cache": True,
            "additional_config": {"a": [1]},
            "extras": "chart_understanding",
            "page_schema": None,
            "disable_image_extraction": False,
            "file": "x",
            "file_url": "https://elsewhere.example.com",
            "output_format": "html",
            "page_range": "7",
            "mode": "fast",
            "webhook_url": "https://elsewhere.example.com",
        },
    )
    sent = build(request, CALLBACK)
    assert (sent.method, sent.url, sent.files) == ("POST", "/api/v1/convert", ())
    assert dict(sent.form) == {
        "file_url": URL,
        "output_format": "markdown",
        "page_range": "0-9,14",
        "mode": "accurate",
        "max_pages": "3",
        "skip_cache": "true",
        "additional_config": '{"a": [1]}',
        "extras": "chart_understanding",
        "disable_image_extraction": "false",
        "webhook_url": own_callback_url(CALLBACK, "task-1", "callback-secret-of-one"),
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    """Only the document, the form of the output, and that images are not wanted."""
    always = {"file_url": URL, "output_format": "markdown", "disable_image_extraction": "true"}
    assert dict(build(OcrRequest(url=URL)).form) == always
    assert dict(build(OcrRequest(url=URL), mode="fast").form) == {**always, "mode": "fast"}
    assert build(OcrRequest(url=URL)).encoded().headers == {
        "content-type": "application/x-www-form-urlencoded"
    }


@pytest.mark.parametrize(
    ("extra", "target"),
    [
        ({}, PATH),
        ({"request_check_url": None}, PATH),
        ({"request_check_url": "/api/v1/marker/r1"}, "/api/v1/marker/r1"),
        ({"request_check_url": "api/v1/marker/r1"}, "/api/v1/marker/r1"),
        ({"request_check_url": "HTTPS://www.datalab.to/x"}, "HTTPS://www.datalab.to/x"),
    ],
)
def test_a_job_is_asked_about_where_the_provider_says(extra: dict[str, JSON], target: str) -> None:
    """Or at its path, where it names no place."""
    body: JSON = {"success": True, "request_id": "r1", **extra}
    handler = DatalabOcr()
    params = handler.create_query_params(answer(body), OcrRequest(url=URL))
    assert params.external_task_id == "r1"
    assert handler.build_query(params, Claim().query).url == target


def test_an_acceptance_without_an_id_is_unreadable() -> None:
    """Nobody can tell which job it is."""
    with pytest.raises(UnreadableAnswer, match="request_id"):
        DatalabOcr().create_query_params(answer({"success": True}), OcrRequest(url=URL))


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (answer({"success": False, "error": "bad file"}), "bad file"),
        (answer({"detail": "no key"}, 401), "no key"),
        (answer({"error": "no key"}, 401), "no key"),
        (answer({"detail": [{"loc": ["body"], "msg": "Field required"}]}, 422), "Field required"),
        (answer(b"<html>", 502), "<html>"),
        (answer(accepted("")), None),
        (answer({"status": "complete", "success": False}), None),
        (answer({"success": None}), None),
        (answer([]), None),
        (answer(b"<html>"), None),
    ],
)
def test_errors_are_told_from_jobs(response: HttpResponse, message: str | None) -> None:
    """Without success and without a status it is the provider's; it has no codes."""
    found = DatalabOcr().read_error(response)
    assert (found and (found.code, found.message)) == (message and (None, message))


# Submissions and queries, on raw replies.


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply.of({"success": False, "error": "bad file"}), SubmitRejected),
        (Reply.of({"detail": [{"msg": "Field required"}]}, status=422), SubmitRejected),
        (Reply.of({"detail": "Invalid API key provided."}, status=401), SubmitDeferred),
        (Reply.of({"detail": "Your payment has failed."}, status=403), SubmitDeferred),
        (Reply.of({"detail": "Not allowed"}, status=403), SubmitDeferred),
        (Reply.of({"detail": "Rate limit exceeded"}, status=429), SubmitDeferred),
        (Reply.of({"detail": "oh"}, status=500), OutcomeUnknown),
        (Reply.of(b"<html>Bad Gateway</html>", status=502), OutcomeUnknown),
        (Reply.of(b"<html>"), UnreadableAnswer),
        (Reply.of({"success": True}), UnreadableAnswer),
    ],
)
async def test_errors_say_no_more_than_is_certain(reply: Reply, expected: type[HandlerError]) -> None:
    """A 5xx proves nothing; what an operator can mend, or time does, defers; what only the caller can rejects."""
    async with ScriptedServer([reply]) as server:
        handler = DatalabOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(HandlerError) as caught:
            await handler.submit(OcrRequest(url=URL), Claim().submit)
        await handler.close()
    assert type(caught.value) is expected
    if b"payment" in reply.raw:
        assert caught.value.code == "quota_or_billing"
    [sent] = server.requests
    assert (sent.target, sent.headers["x-api-key"]) == ("/api/v1/convert", "the-key")
    assert parse_qs(sent.body.decode())["file_url"] == [URL]
    assert "authorization" not in sent.headers


@pytest.mark.parametrize("retry_after", [None, "7"])
async def test_a_rate_limit_is_told_with_its_wait(retry_after: str | None) -> None:
    """A 429 defers, and pauses for Retry-After if there is one."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    async with ScriptedServer([Reply.of({"detail": "slow"}, status=429, headers=headers)]) as server:
        handler = DatalabOcr(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(SubmitDeferred) as caught:
            await handler.submit(OcrRequest(url=URL), Claim().submit)
        await handler.close()
    assert caught.value.rate_limited
    assert caught.value.retry_after == (None if retry_after is None else timedelta(seconds=7))


async def test_a_url_elsewhere_gets_the_key_only_if_its_origin_is_trusted() -> None:
    """Not even a connection is made to another origin, until the settings trust it."""
    async with (
        ScriptedServer([Reply.of({"status": "processing"})]) as elsewhere,
        ScriptedServer([Reply.of(accepted(elsewhere.url))]) as server,
    ):
        for trusted in ((), (elsewhere.url,)):
            settings = DatalabOcrSettings(base_url=server.url, trusted_origins=trusted)
            handler = DatalabOcr(ApiKey("the-key"), settings=settings)
            await handler.open()
            taken = await handler.submit(OcrRequest(url=URL), Claim().submit)
            assert isinstance(taken, SubmitResult)
            assert taken.query_params is not None
            if trusted:
                assert (await handler.query(taken.query_params, Claim().query)).verdict is Verdict.RUNNING
            else:
                with pytest.raises(QueryFailed, match="trusted_origins"):
                    await handler.query(taken.query_params, Claim().query)
                assert elsewhere.connections == 0
            await handler.close()
    [asked] = elsewhere.requests
    assert (asked.target, asked.headers["x-api-key"]) == (PATH, "the-key")


# Callbacks.


async def test_a_callback_nudges_the_job_that_it_names() -> None:
    """If it came to the address that was told for the task; the body alone proves nothing."""
    handler = DatalabOcr(ACCOUNT)
    assert (await handler.parse_callback(called_back("task-1"), None)).external_task_ids == ("r1",)
    with pytest.raises(CallbackRejected):
        await handler.parse_callback(evolve(called_back("task-1"), query={}), None)
    with pytest.raises(CallbackRejected, match="callback_secret"):
        await DatalabOcr(ApiKey("k")).parse_callback(called_back("task-1"), None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Datalab's protocol, without an OCR engine."""
    with SandboxServer(protocols=[DatalabProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[DatalabOcr]:
    """A handler that is open."""
    settings = DatalabOcrSettings(base_url=f"{sandbox.url}/datalab", mode="fast")
    made = DatalabOcr(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: DatalabOcr, sandbox: SandboxServer) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    taken = await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert taken.status is Status.SUBMITTED
    assert taken.query_params is not None
    return taken.query_params


async def test_a_document_is_read(handler: DatalabOcr, sandbox: SandboxServer) -> None:
    """Submitted once, queried at its URL, and there is its text."""
    sandbox.jobs.delay = timedelta(hours=1)
    slow = await submitted(handler, sandbox)
    assert (await handler.query(slow, Claim().query)).verdict is Verdict.RUNNING
    sandbox.jobs.delay = timedelta(0)
    job = await submitted(handler, sandbox)
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    done = await handler.query(job, Claim().query)
    assert done.verdict is Verdict.SUCCEEDED
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert done.result.usage == {"page_count": 1}
    assert sandbox.creating_requests("letter.jpg") == 2


async def test_a_job_may_fail_or_hide_its_result(handler: DatalabOcr, sandbox: SandboxServer) -> None:
    """Complete without success has the provider's words; complete without a result is incomplete."""
    job = await submitted(handler, sandbox)
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the page is too dark")
    assert failed.provider_status == "complete"
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = DatalabOcr(ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/datalab"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


FILE = FilePart(name="file", file_name="a.pdf", content=b"%PDF")


@pytest.mark.parametrize(
    ("request_", "http_status"),
    [
        (HttpRequest.post("/api/v1/convert", form={"mode": "slow"}, files=[FILE]), 422),
        (HttpRequest.post("/api/v1/convert", form={"output_format": "html"}, files=[FILE]), 422),
        (HttpRequest.post("/api/v1/convert", form={"mode": "fast"}), 422),
        (HttpRequest.post("/api/v1/convert", files=[FILE]), 200),
        (
            HttpRequest(
                method="POST",
                url="/api/v1/convert",
                headers={"content-type": "multipart/form-data"},
                content=b"x",
            ),
            400,
        ),
    ],
)
async def test_the_sandbox_takes_what_the_provider_takes(
    handler: DatalabOcr, request_: HttpRequest, http_status: int
) -> None:
    """A file or the URL of one, and no word that the provider does not have."""
    told = await handler.ask(request_, Claim().query)
    assert told.status == http_status
    assert (handler.read_error(told) is None) == (http_status == OK)
