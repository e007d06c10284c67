import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

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
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_conformance.handler.script import Cancelling
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.mistral import MAX_PAGES, MistralOcr, MistralOcrSettings
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import Answer, FailingJob, HiddenJob, Operation, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.mistral import MistralProtocol

MIB = 1024 * 1024
JOB = QueryParams(external_task_id="m1")
PDF = "https://files.example/a.pdf"
PAGES: JSON = [
    {
        "index": 1,
        "markdown": "second",
        "images": [
            {
                "id": "img-0.jpeg",
                "top_left_x": 10,
                "top_left_y": 20,
                "bottom_right_x": 30,
                "bottom_right_y": 40,
                "image_base64": None,
            },
            {"id": "img-1.jpeg", "top_left_x": None, "image_annotation": '{"kind": "seal"}'},
            {},
        ],
        "dimensions": {"dpi": 200, "width": 1700, "height": 2200},
        "tables": [{"id": "tbl-0.html", "content": "<table></table>", "format": "html"}],
    },
    {"index": 0, "markdown": "# First", "images": [], "dimensions": None},
    {"markdown": "third", "dimensions": {"width": True}},
    {"index": 3, "markdown": None},
]


def job(word: str, **changes: JSON) -> dict[str, JSON]:
    """Return a batch job with this status word, as the provider answers."""
    return {
        "id": "m1",
        "object": "batch",
        "input_files": [],
        "endpoint": "/v1/ocr",
        "model": "mistral-ocr-latest",
        "metadata": {"coatcheck_task": "task-1"},
        "errors": [],
        "status": word,
        "created_at": 1767225600,
        "total_requests": 1,
        "completed_requests": 0,
        "succeeded_requests": 0,
        "failed_requests": 0,
        "output_file": None,
        "error_file": None,
        "outputs": None,
        **changes,
    }


def row(custom_id: str = "task-1", **changes: JSON) -> dict[str, JSON]:
    """Return a row of a result."""
    body: JSON = {"model": "mistral-ocr-latest", "pages": PAGES, "usage_info": {"pages_processed": 3}}
    return {
        "custom_id": custom_id,
        "response": {"status_code": 200, "body": body},
        "error": None,
        **changes,
    }


# Every promise of a handler.


def status(word: str) -> JSON:
    """Return a job with this status word, whose row is in a file."""
    return job(word, output_file="f1" if word == "SUCCESS" else None)


def settings(url: str) -> MistralOcrSettings:
    """Return settings with short times and small limits."""
    return MistralOcrSettings(
        base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
    )


def mistral_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its client describes it; the command `coatcheck-conformance` takes it, too."""
    envelope = {"object": "error", "message": "the document is no document", "type": "invalid_request"}
    return HandlerSpec(
        "coatcheck_handler_ocr.mistral:MistralOcr",
        key="ocr:mistral",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts={"default": ApiKey("mistral-key-of-one"), "other": ApiKey("mistral-key-of-another")},
        creating=lambda method, path: method == "POST" and path == "/v1/batch/jobs",
        script=Script(
            job="m1",
            accepted=KitReply.of(job("QUEUED")),
            status=status,
            words={word.upper(): Means(state) for word, state in MistralOcr.statuses.words.items()},
            rejected=KitReply.of(envelope, status=400),
            rate_limited=KitReply.of({"message": "Requests rate limit exceeded"}, status=429),
            not_found=KitReply.of({"message": "no such job", "type": "not_found"}, status=404),
            error=lambda message: {"object": "error", "message": message},
            done_without_result=KitReply.of(job("SUCCESS", outputs=[])),
            served={
                "GET /v1/files/f1/url": {"url": "{server}/signed/f1?sig=s"},
                "GET /signed/f1": json.dumps(row()).encode(),
            },
            cancel=Cancelling(
                confirmed=KitReply.of(job("CANCELLATION_REQUESTED")), refused=KitReply.of(job("SUCCESS"))
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestMistralOcr(HandlerConformance):
    """The handler of Mistral OCR keeps every promise."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "cancel",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its client describes it."""
        return mistral_spec()


# On samples of answers, as the client has them.


def answer(body: JSON, status_code: int = 200) -> HttpResponse:
    """Return an answer of the provider."""
    return HttpResponse(status=status_code, body=json.dumps(body).encode())


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return MistralOcr().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("QUEUED", Verdict.RUNNING, Status.SUBMITTED),
        ("RUNNING", Verdict.RUNNING, Status.RUNNING),
        ("CANCELLATION_REQUESTED", Verdict.RUNNING, Status.RUNNING),
        ("SUCCESS", Verdict.INCOMPLETE, Status.RUNNING),
        ("FAILED", Verdict.FAILED, Status.RUNNING),
        ("TIMEOUT_EXCEEDED", Verdict.FAILED, Status.RUNNING),
        ("CANCELLED", Verdict.CANCELED, Status.RUNNING),
        ("PAUSED", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A success without rows and files has no result yet; a word that is not documented is unlisted."""
    found = read(job(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, state, word)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            job("FAILED", errors=[{"message": "no such model", "count": 1}, {"count": 1}, {"message": "x"}]),
            "FAILED",
            "no such model; x",
        ),
        (job("TIMEOUT_EXCEEDED"), "TIMEOUT_EXCEEDED", "the job ended as TIMEOUT_EXCEEDED"),
        (job("SUCCESS", errors=[{"message": "lost", "count": 1}]), "batch_error", "lost"),
        (
            job("SUCCESS", outputs=[row(error={"code": "too_dark", "message": "the page is dark"})]),
            "too_dark",
            "the page is dark",
        ),
        (job("SUCCESS", outputs=[row(error="no document")]), "row_failed", "no document"),
        (job("SUCCESS", outputs=[row(error={"x": 1})]), "row_failed", "the row of the batch failed"),
        (
            job(
                "SUCCESS",
                outputs=[row(response={"status_code": 422, "body": {"message": "bad", "type": "t"}})],
            ),
            "t",
            "bad",
        ),
        (
            job(
                "SUCCESS",
                outputs=[row(response={"status_code": 422, "body": {"detail": [{"msg": "bad url"}]}})],
            ),
            "row_failed",
            "bad url",
        ),
    ],
)
def test_failures_say_why(body: JSON, code: str, message: str) -> None:
    """Those of a job, and those of the row in a job that is a success."""
    found = read(body)
    assert (found.verdict, found.error_code, found.error_message) == (Verdict.FAILED, code, message)


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ([row()], True),
        ([row("another"), row()], True),
        ([row("of-an-adopted-job")], True),
        ([row("another"), row("and-another")], False),
        ([row(response={"status_code": 200, "body": {"pages": []}})], False),
        ([row(response=None)], False),
        ("none", False),
    ],
)
def test_the_row_of_the_task_counts(outputs: JSON, found: bool) -> None:  # noqa: FBT001 - a table
    """Found by our own name for it; in a job that was adopted, the only one."""
    verdict = Verdict.SUCCEEDED if found else Verdict.INCOMPLETE
    assert read(job("SUCCESS", outputs=outputs)).verdict is verdict


async def test_pages_have_sizes_images_and_tables() -> None:
    """In their order; what is no page is left out."""
    done = await MistralOcr().fetch_result(read(job("SUCCESS", outputs=[row()])), Claim().query)
    found = done.result
    assert isinstance(found, OcrResult)
    assert found.markdown == "# First\n\nsecond\n\nthird"
    assert found.usage == {"pages_processed": 3}
    assert [(page.index, page.width, page.height) for page in found.pages] == [
        (0, None, None),
        (1, 1700, 2200),
        (2, None, None),
    ]
    assert [(each.kind, each.text, each.box) for each in found.pages[1].blocks] == [
        ("image", "img-0.jpeg", (10, 20, 30, 40)),
        ("image", '{"kind": "seal"}', None),
        ("image", "", None),
        ("table", "<table></table>", None),
    ]
    to_json(found)


# Files.


async def fetched(done: JSON, *replies: Reply) -> tuple[QueryResult, ScriptedServer]:
    """Return what a query comes to whose job is answered with `done`, and what follows with `replies`."""
    async with ScriptedServer([Reply.of(done), *replies]) as server:
        handler = MistralOcr(
            ApiKey("mistral-key"), settings=HttpSettings(base_url=server.url, allow_private=True)
        )
        await handler.open()
        try:
            return await handler.query(JOB, Claim().query), server
        finally:
            await handler.close()


def link(server: ScriptedServer) -> Reply:
    """Return the answer with a signed link to a file of `server`."""
    return Reply.of({"url": f"{server.url}/signed/f1?sig=s"})


def jsonl(*rows: JSON) -> Reply:
    """Return a file of rows."""
    lines = [json.dumps(each, ensure_ascii=False) for each in rows]
    return Reply.of("\n".join([*lines, "", ""]).encode())


async def test_rows_in_files_are_fetched_by_signed_links() -> None:
    """The link is asked for with the key, the file without; other ends of lines than U+000A are text."""
    text = "one\u2028two"
    own = row(response={"status_code": 200, "body": {"pages": [{"index": 0, "markdown": text}]}})
    async with ScriptedServer([jsonl(row("another"), own)]) as files:
        found, server = await fetched(job("SUCCESS", output_file="f1"), link(files))
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == text
    assert [each.target for each in server.requests] == [
        "/v1/batch/jobs/m1?inline=true",
        "/v1/files/f1/url",
    ]
    assert {each.headers["authorization"] for each in server.requests} == {"Bearer mistral-key"}
    assert [each.target for each in files.requests] == ["/signed/f1?sig=s"]
    assert "authorization" not in files.requests[0].headers


async def test_a_row_that_failed_is_in_the_file_of_errors() -> None:
    """Which is read after the other, where there are both."""
    failed = row(error={"code": "too_dark", "message": "the page is dark"})
    async with ScriptedServer([jsonl(row("another"), row("third")), jsonl(failed)]) as files:
        done = job("SUCCESS", output_file="f1", error_file="f2")
        found, server = await fetched(done, link(files), link(files))
    assert [each.target for each in server.requests][1:] == ["/v1/files/f1/url", "/v1/files/f2/url"]
    assert (found.verdict, found.error_code, found.provider_status) == (
        Verdict.FAILED,
        "too_dark",
        "SUCCESS",
    )


@pytest.mark.parametrize(
    ("errors", "verdict"), [([], Verdict.INCOMPLETE), ([{"message": "lost", "count": 1}], Verdict.FAILED)]
)
async def test_files_without_the_row(errors: JSON, verdict: Verdict) -> None:
    """Are asked for again, unless the job says why there is none."""
    async with ScriptedServer([jsonl()]) as files:
        found, _ = await fetched(job("SUCCESS", output_file="f1", errors=errors), link(files))
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply.of({"message": "Unauthorized"}, status=401), "auth"),
        (Reply.of({"message": "slow"}, status=429, headers={"retry-after": "7"}), "rate_limited"),
        (Reply.of({"message": "no such file"}, status=404), "not_found_or_expired"),
        (Reply.of({"message": "down"}, status=503), "provider_unavailable"),
        (Reply.of({"other": 1}), "unreadable_answer"),
        (Reply.of(b"<html>"), "unreadable_answer"),
    ],
)
async def test_an_error_instead_of_a_file_fails_the_query(reply: Reply, code: str) -> None:
    """Which is asked again later; the job is not lost."""
    with pytest.raises(QueryFailed) as caught:
        await fetched(job("SUCCESS", output_file="f1"), reply)
    assert (caught.value.code, caught.value.rate_limited) == (code, code == "rate_limited")
    assert caught.value.retry_after == (timedelta(seconds=7) if code == "rate_limited" else None)


async def test_a_link_that_has_expired_fails_the_query() -> None:
    """The next one brings a new link."""
    async with ScriptedServer([Reply.of(b"expired", status=403)]) as files:
        with pytest.raises(QueryFailed) as caught:
            await fetched(job("SUCCESS", output_file="f1"), link(files))
    assert caught.value.code == "download_failed"


async def test_a_file_that_is_no_jsonl_fails_the_query() -> None:
    """And the message says in which line."""
    async with ScriptedServer([Reply.of(b'{"custom_id": "other"}\n{"custom')]) as files:
        with pytest.raises(QueryFailed, match="line 2"):
            await fetched(job("SUCCESS", output_file="f1"), link(files))


async def test_other_sources_are_completed_as_usual() -> None:
    """A subclass may find the text elsewhere."""
    found = await MistralOcr().fetch_result(QueryResult.succeeded(OcrSources(markdown="# T")), Claim().query)
    assert isinstance(found.result, OcrResult)


# Submissions.


def body_of(request: OcrRequest, handler: MistralOcr | None = None) -> JSON:
    """Return the body of the creating request."""
    sent = (handler or MistralOcr()).build_submit(request, PreparedContext.of(Claim().submit))
    assert (sent.method, sent.url) == ("POST", "/v1/batch/jobs")
    return sent.json


def test_a_job_of_one_row_is_created() -> None:
    """The row has the task's id; options lie beneath what names the document, the pages and the model."""
    request = OcrRequest(
        url=PDF,
        file_name="report.pdf",
        pages="1-3,2,7",
        model="mistral-ocr-2505",
        options={"table_format": "html", "document": {"type": "file"}, "pages": [9], "model": "x"},
    )
    assert body_of(request, MistralOcr(settings=MistralOcrSettings(timeout_hours=2))) == {
        "endpoint": "/v1/ocr",
        "model": "mistral-ocr-2505",
        "requests": [
            {
                "custom_id": "task-1",
                "body": {
                    "table_format": "html",
                    "document": {
                        "type": "document_url",
                        "document_url": PDF,
                        "document_name": "report.pdf",
                    },
                    "pages": [0, 1, 2, 6],
                },
            }
        ],
        "metadata": {"coatcheck_task": "task-1"},
        "timeout_hours": 2,
    }
    plain = body_of(OcrRequest(url=PDF), MistralOcr(settings=MistralOcrSettings(model="mistral-ocr-2503")))
    assert isinstance(plain, dict)
    assert (plain["model"], plain["timeout_hours"]) == ("mistral-ocr-2503", 24)
    assert plain["requests"] == [
        {"custom_id": "task-1", "body": {"document": {"type": "document_url", "document_url": PDF}}}
    ]


@pytest.mark.parametrize(
    ("url", "file_name", "kind"),
    [
        ("https://files.example/a.PNG?sig=1", None, "image_url"),
        ("https://files.example/scan", "scan.jpeg", "image_url"),
        ("https://files.example/a.png", "report.pdf", "document_url"),
        ("https://files.example/scan", None, "document_url"),
    ],
)
def test_images_are_named_as_such(url: str, file_name: str | None, kind: str) -> None:
    """The provider takes them apart from other documents; the suffix tells."""
    body = body_of(OcrRequest(url=url, file_name=file_name))
    assert f'"{kind}": "{url}"' in json.dumps(body)


@pytest.mark.parametrize(
    "changes",
    [
        {"pages": "9-3"},
        {"pages": f"1-{MAX_PAGES + 1}"},
        {"pages": f"1-{MAX_PAGES},20000"},
        {"languages": ("de",)},
        {"tables": True},
        {"formulas": True},
        {"outputs": ("json",)},
    ],
)
def test_what_the_provider_does_not_have_is_refused(changes: dict[str, object]) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidParams):
        MistralOcr().validate(OcrRequest(url=PDF, **changes))  # type: ignore[arg-type] # a table
    MistralOcr().validate(OcrRequest(url=PDF, pages=f"1-{MAX_PAGES}"))


def test_settings_that_mean_nothing_are_refused() -> None:
    """Such as a job that may take no time."""
    with pytest.raises(ConfigurationError, match="timeout_hours"):
        MistralOcrSettings(timeout_hours=0)
    assert MistralOcr().suggested_gates() == ()


@pytest.mark.parametrize(
    ("status_code", "body", "code", "message"),
    [
        (401, {"message": "Unauthorized", "request_id": "r"}, None, "Unauthorized"),
        (400, {"object": "error", "message": "bad", "type": "t", "code": "3051"}, "3051", "bad"),
        (422, {"detail": [{"loc": ["body"], "msg": "Field required", "type": "missing"}]}, None, "Field req"),
    ],
)
def test_errors_are_read_in_each_form(status_code: int, body: JSON, code: str | None, message: str) -> None:
    """Of the gateway, of the API, and of its check of requests."""
    found = MistralOcr().read_error(answer(body, status_code))
    assert found is not None
    assert found.code == code
    assert message in found.message


# Cancel.


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (answer(job("CANCELLATION_REQUESTED")), CancelOutcome.CONFIRMED),
        (answer(job("CANCELLED")), CancelOutcome.CONFIRMED),
        (answer(job("SUCCESS")), CancelOutcome.REFUSED),
        (answer(job("FAILED")), CancelOutcome.REFUSED),
        (HttpResponse(status=200, body=b"<html>"), CancelOutcome.UNKNOWN),
        (answer({"message": "no such job"}, 404), CancelOutcome.REFUSED),
        (answer({"message": "down"}, 503), CancelOutcome.UNKNOWN),
        (answer({"message": "Unauthorized"}, 401), CancelOutcome.UNKNOWN),
    ],
)
def test_a_cancel_comes_to_what_the_job_says(reply: HttpResponse, outcome: CancelOutcome) -> None:
    """A job that had ended before is not cancelled."""
    assert MistralOcr().parse_cancel(reply, JOB, Claim().cancel) is outcome


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Mistral's protocol, without an OCR engine."""
    with SandboxServer(protocols=[MistralProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[MistralOcr]:
    """A handler that is open."""
    made = MistralOcr(
        ApiKey("sandbox-key"),
        settings=MistralOcrSettings(base_url=f"{sandbox.url}/mistral", allow_private=True),
    )
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: MistralOcr, sandbox: SandboxServer, page: str = "letter.jpg", model: str | None = None
) -> QueryParams:
    """Submit a page, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url=sandbox.page_url(page), model=model), Claim().submit)
    assert (accepted.status, accepted.provider_status) == (Status.SUBMITTED, "QUEUED")
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return accepted.query_params


@pytest.mark.parametrize("model", [None, "mistral-ocr-2505"])
async def test_a_document_is_read(handler: MistralOcr, sandbox: SandboxServer, model: str | None) -> None:
    """Submitted once, queried, and there is its text, whether the row is in the answer or in a file."""
    query = await submitted(handler, sandbox, model=model)
    done = await handler.query(query, Claim().query)
    assert done.verdict is Verdict.SUCCEEDED
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert len(done.result.pages) == 1
    to_json(done.result)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


@pytest.mark.parametrize("model", [None, "mistral-ocr-2505"])
async def test_a_row_may_fail(handler: MistralOcr, sandbox: SandboxServer, model: str | None) -> None:
    """As that of a document that is not there; the job is a success."""
    query = await submitted(handler, sandbox, "nothing.jpg", model)
    failed = await handler.query(query, Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "document_unreachable")
    assert "404" in (failed.error_message or "")


async def test_a_job_may_fail_hide_and_surprise(handler: MistralOcr, sandbox: SandboxServer) -> None:
    """With the provider's words."""
    sandbox.faults.add(FailingJob(code="no_capacity", message="there is no room"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("FAILED", "there is no room")
    sandbox.faults.add(HiddenJob(seconds=3600))
    hidden = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert hidden.verdict is Verdict.NOT_FOUND
    query = await submitted(handler, sandbox)
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED


async def test_a_job_is_cancelled_unless_it_has_ended(handler: MistralOcr, sandbox: SandboxServer) -> None:
    """And is canceled at the next query."""
    done = await submitted(handler, sandbox)
    assert await handler.cancel(done, Claim().cancel) is CancelOutcome.REFUSED
    sandbox.jobs.delay = timedelta(hours=1)
    slow = await submitted(handler, sandbox)
    assert (await handler.query(slow, Claim().query)).verdict is Verdict.RUNNING
    assert await handler.cancel(slow, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(slow, Claim().query)).verdict is Verdict.CANCELED


@pytest.mark.parametrize(
    ("fault", "error_type"),
    [
        (Answer(operation=Operation.SUBMIT, status=503), OutcomeUnknown),
        (Answer(operation=Operation.SUBMIT, status=429, retry_after="3"), SubmitDeferred),
        (Answer(operation=Operation.SUBMIT, status=422), SubmitRejected),
        (Answer(operation=Operation.SUBMIT, status=200, body="{}"), UnreadableAnswer),
    ],
)
async def test_answers_without_a_job_are_judged(
    handler: MistralOcr, sandbox: SandboxServer, fault: Answer, error_type: type[HandlerError]
) -> None:
    """Refused where the provider says so, unknown where it says nothing."""
    sandbox.faults.add(fault)
    with pytest.raises(error_type):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert sandbox.creating_requests("letter.jpg") == 1


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = MistralOcr(ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/mistral"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoint": "/v1/chat/completions"},
        {"model": None},
        {"requests": []},
        {"requests": [{"custom_id": "c", "body": {"document": {"type": "file"}}}]},
        {"requests": [{"custom_id": "c", "body": None}]},
    ],
)
async def test_the_sandbox_refuses_what_the_provider_refuses(
    handler: MistralOcr, sandbox: SandboxServer, changes: dict[str, JSON]
) -> None:
    """In the form of its check of requests."""
    document: JSON = {"type": "document_url", "document_url": sandbox.page_url("letter.jpg")}
    good: dict[str, JSON] = {
        "endpoint": "/v1/ocr",
        "model": "mistral-ocr-latest",
        "requests": [{"custom_id": "c", "body": {"document": document}}],
    }
    accepted = await handler.ask(HttpRequest.post("/v1/batch/jobs", json=good), Claim().submit)
    assert accepted.status == 200
    refused = await handler.ask(HttpRequest.post("/v1/batch/jobs", json={**good, **changes}), Claim().submit)
    assert refused.status == 422


async def test_the_file_of_a_job_that_goes_on_is_empty(handler: MistralOcr, sandbox: SandboxServer) -> None:
    """Its row has neither a response nor an error yet."""
    sandbox.jobs.delay = timedelta(hours=1)
    slow = await submitted(handler, sandbox)
    signed = await handler.ask(HttpRequest.get(f"/signed/{slow.external_task_id}"), Claim().query)
    assert json.loads(signed.body) == {"custom_id": "task-1", "response": None, "error": None}
