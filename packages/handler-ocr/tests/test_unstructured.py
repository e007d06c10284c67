import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote_plus

import pytest

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.gates import Gate, Rate
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_conformance.handler.script import Cancelling
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_handler_ocr.unstructured import MAX_FILE_BYTES, UnstructuredOcr, UnstructuredOcrSettings
from coatcheck_handler_ocr.unstructured_elements import markdown_of, pages_of
from coatcheck_http import FilePart, HttpRequest, HttpResponse, OutcomeUnknown, UnreadableAnswer
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import (
    Answer,
    FailingJob,
    HiddenJob,
    Operation,
    SandboxServer,
    StatusWord,
    describe,
)
from coatcheck_sandbox.providers.unstructured import UnstructuredProtocol

MIB = 1024 * 1024
JOB = QueryParams(external_task_id="u1")


def job(word: str, **changes: JSON) -> dict[str, JSON]:
    """Return a job with this status word, as the provider answers."""
    return {
        "id": "u1",
        "workflow_id": "w1",
        "workflow_name": "on demand",
        "status": word,
        "created_at": "2026-01-01T00:00:00Z",
        "runtime": None,
        "input_file_ids": ["scan.pdf"],
        "output_node_files": None,
        "job_type": "ephemeral",
        **changes,
    }


def element(kind: str, text: JSON, page: JSON = None, **metadata: JSON) -> JSON:
    """Return one element of a document."""
    told: dict[str, JSON] = {**metadata} if page is None else {"page_number": page, **metadata}
    return {"type": kind, "element_id": "e", "text": text, "metadata": told}


ELEMENTS: JSON = [element("Title", "Claim ticket", 1), element("NarrativeText", "Coat number 42.", 1)]


# Every promise of a handler.


def settings(url: str) -> UnstructuredOcrSettings:
    """Return settings with short times and small limits."""
    return UnstructuredOcrSettings(
        base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
    )


def unstructured_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_ocr.unstructured:UnstructuredOcr",
        key="ocr:unstructured",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts={
            "default": ApiKey("unstructured-key-of-one"),
            "other": ApiKey("unstructured-key-of-another"),
        },
        creating=lambda method, path: method == "POST" and path == "/api/v1/jobs/",
        script=Script(
            job="u1",
            accepted=KitReply.of(job("SCHEDULED")),
            status=job,
            words={word.upper(): Means(state) for word, state in UnstructuredOcr.statuses.words.items()},
            rejected=KitReply.of(
                {"detail": [{"loc": ["body", "request_data"], "msg": "no template", "type": "value_error"}]},
                status=422,
            ),
            rate_limited=KitReply.of({"detail": "slow down"}, status=429),
            not_found=KitReply.of({"detail": "no such job"}, status=404),
            error=lambda message: {"detail": message},
            done_without_result=KitReply.of(job("COMPLETED", input_file_ids=None)),
            served={
                "/files/scan.pdf": b"%PDF",
                "GET /api/v1/jobs/u1/download": ELEMENTS,
                "GET /api/v1/jobs/u1/failed-files": {"failed_files": []},
            },
            cancel=Cancelling(
                confirmed=KitReply.of(job("STOPPED")),
                refused=KitReply.of({"detail": "the job has ended"}, status=409),
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestUnstructuredOcr(HandlerConformance):
    """The handler of Unstructured keeps every promise."""

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
        """The provider as its documentation describes it."""
        return unstructured_spec()


# On samples of answers, as documented.


def answer(body: JSON, status_code: int = 200) -> HttpResponse:
    """Return an answer of the provider."""
    return HttpResponse(status=status_code, body=json.dumps(body).encode())


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return UnstructuredOcr().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("SCHEDULED", Verdict.RUNNING, Status.SUBMITTED),
        ("IN_PROGRESS", Verdict.RUNNING, Status.RUNNING),
        ("COMPLETED", Verdict.SUCCEEDED, Status.RUNNING),
        ("SUCCESS", Verdict.SUCCEEDED, Status.RUNNING),
        ("COMPLETED_WITH_ERRORS", Verdict.SUCCEEDED, Status.RUNNING),
        ("STOPPED", Verdict.CANCELED, Status.RUNNING),
        ("FAILED", Verdict.FAILED, Status.RUNNING),
        ("PAUSED", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(job(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, state, word)


@pytest.mark.parametrize(
    ("status_code", "body", "message"),
    [
        (422, {"detail": [{"loc": ["body"], "msg": "Field required", "type": "missing"}]}, "Field required"),
        (401, {"detail": "the API key is wrong"}, "the API key is wrong"),
        (500, {"error": "down"}, "down"),
    ],
)
def test_errors_are_read_in_each_form(status_code: int, body: JSON, message: str) -> None:
    """Words, or a list of what does not fit."""
    found = UnstructuredOcr().read_error(answer(body, status_code))
    assert found is not None
    assert found.message == message


# Elements.


@pytest.mark.parametrize(
    ("elements", "markdown"),
    [
        (ELEMENTS, "# Claim ticket\n\nCoat number 42."),
        (
            [
                element("Title", "Deep\n title", category_depth=2),
                element("Title", "Deeper", category_depth=9),
                element("Title", "Odd", category_depth="x"),
            ],
            "### Deep title\n\n###### Deeper\n\n# Odd",
        ),
        (
            [
                element("ListItem", "one"),
                element("ListItem", "two"),
                element("Text", "after"),
                element("ListItem", "three"),
            ],
            "- one\n- two\n\nafter\n\n- three",
        ),
        (
            [
                element("Table", "a b", text_as_html="<table><tr><td>a</td></tr></table>"),
                element("Table", "c d"),
                element("Table", None),
            ],
            "<table><tr><td>a</td></tr></table>\n\nc d",
        ),
        (
            [element("PageBreak", ""), element("ListItem", " "), element("Title", None), {"text": "bare"}, 7],
            "bare",
        ),
        ([element("Text", "a\ud800b")], "a\ufffdb"),
        ([], ""),
    ],
)
def test_elements_become_markdown(elements: list[JSON], markdown: str) -> None:
    """Titles are headings, items lists, tables HTML; what has no text is left out."""
    assert markdown_of(elements) == markdown


def test_elements_are_told_apart_by_pages() -> None:
    """Those without a number stand with the one before them; only pixels have their origin at the upper left."""
    pixels: JSON = {
        "points": [[10, 20], [10, 40], [30, 40], [30, 20]],
        "system": "PixelSpace",
        "layout_width": 1700,
        "layout_height": 2200,
    }
    elements = [
        element("Header", "before"),
        element("Title", "Second", 2, coordinates={"points": [[1, 2], [3, 4]], "system": "PointSpace"}),
        element("Text", "first", 1, coordinates=pixels),
        element("Text", "also first", None, coordinates={"system": "PixelSpace", "points": "none"}),
        element("Text", "odd", 0, coordinates={"system": "PixelSpace", "points": [[1, 2], ["x", 4]]}),
    ]
    first, second = pages_of(elements)
    assert (first.index, first.width, first.height) == (0, 1700, 2200)
    assert first.markdown == "first\n\nalso first\n\nodd"
    assert [(each.kind, each.text, each.box) for each in first.blocks] == [
        ("Text", "first", (10, 20, 30, 40)),
        ("Text", "also first", None),
        ("Text", "odd", None),
    ]
    assert (second.index, second.width, second.height) == (1, None, None)
    assert [each.kind for each in second.blocks] == ["Header", "Title"]
    assert {each.box for each in second.blocks} == {None}


def test_elements_without_page_numbers_are_no_pages() -> None:
    """As those of HTML."""
    assert list(pages_of([element("Text", "one"), 7])) == []


# Results.


async def fetched(done: JSON, *replies: Reply) -> tuple[QueryResult, ScriptedServer]:
    """Return what a query comes to whose job is answered with `done`, and what follows with `replies`."""
    async with ScriptedServer([Reply.of(done), *replies]) as server:
        handler = UnstructuredOcr(ApiKey("unstructured-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        try:
            return await handler.query(JOB, Claim().query), server
        finally:
            await handler.close()


NO_RESULT = "the provider says done and gives no result"
GONE = Reply.of({"detail": "no such file"}, status=404)
BROKEN = Reply.of({"failed_files": [{"document": "scan.pdf", "error": "torn"}, {"error": "dark"}, {}]})


async def test_the_elements_of_the_file_are_fetched() -> None:
    """With the key, by the id of the file."""
    found, server = await fetched(job("COMPLETED", input_file_ids=["a b.pdf"]), Reply.of(ELEMENTS))
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == "# Claim ticket\n\nCoat number 42."
    assert [page.index for page in found.result.pages] == [0]
    assert found.result.warnings == ()
    to_json(found.result)
    assert [unquote_plus(each.target) for each in server.requests] == [
        "/api/v1/jobs/u1",
        "/api/v1/jobs/u1/download?file_id=a b.pdf",
    ]
    assert {each.headers["unstructured-api-key"] for each in server.requests} == {"unstructured-key"}


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"input_file_ids": ["f1", "f2", "f1"]}, ["f1", "f2"]),
        ({"input_file_ids": None, "output_node_files": [{"file_id": "o1", "node_id": "n"}, {}]}, ["o1"]),
        ({"input_file_ids": [7, ""], "output_node_files": "none"}, []),
    ],
)
async def test_every_file_is_fetched_once(changes: dict[str, JSON], asked: list[str]) -> None:
    """Those that were uploaded; else those that came out. Without any the result is incomplete."""
    found, server = await fetched(job("COMPLETED", **changes), Reply.of(ELEMENTS))
    targets = [f"/api/v1/jobs/u1/download?file_id={each}" for each in asked]
    assert [each.target for each in server.requests][1:] == targets
    assert found.verdict is (Verdict.SUCCEEDED if asked else Verdict.INCOMPLETE)


@pytest.mark.parametrize(
    ("word", "replies", "verdict", "told"),
    [
        ("COMPLETED", (GONE, BROKEN), Verdict.FAILED, "scan.pdf: torn; dark"),
        ("COMPLETED_WITH_ERRORS", (GONE, BROKEN), Verdict.FAILED, "scan.pdf: torn; dark"),
        ("COMPLETED", (GONE, Reply.of({"failed_files": []})), Verdict.INCOMPLETE, NO_RESULT),
        ("COMPLETED", (GONE, GONE), Verdict.INCOMPLETE, NO_RESULT),
    ],
)
async def test_a_file_without_elements(
    word: str, replies: tuple[Reply, ...], verdict: Verdict, told: str
) -> None:
    """Has failed if the provider says so; else it is asked for again."""
    found, server = await fetched(job(word), *replies)
    assert server.requests[2].target == "/api/v1/jobs/u1/failed-files"
    assert (found.verdict, found.error_message, found.provider_status) == (verdict, told, word)
    assert found.error_code == ("file_failed" if verdict is Verdict.FAILED else None)


async def test_a_job_that_completed_with_errors_has_warnings() -> None:
    """What went wrong, beside what was read."""
    found, _ = await fetched(job("COMPLETED_WITH_ERRORS"), Reply.of(ELEMENTS), BROKEN)
    assert isinstance(found.result, OcrResult)
    assert found.result.warnings == ("scan.pdf: torn", "dark")


async def test_one_file_of_two_may_be_missing() -> None:
    """As of a job that somebody adopted: what there is counts."""
    files: list[JSON] = ["f1", "f2"]
    found, _ = await fetched(job("COMPLETED", input_file_ids=files), GONE, Reply.of(ELEMENTS), BROKEN)
    assert isinstance(found.result, OcrResult)
    assert found.result.warnings == ("scan.pdf: torn", "dark")


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply.of({"detail": "wrong key"}, status=401), "auth"),
        (Reply.of({"detail": "slow"}, status=429, headers={"retry-after": "7"}), "rate_limited"),
        (Reply.of(b"<html>", status=502), "provider_unavailable"),
        (Reply.of({"elements": []}), "unreadable_answer"),
        (Reply.of(b"<html>"), "unreadable_answer"),
    ],
)
async def test_an_error_instead_of_elements_fails_the_query(reply: Reply, code: str) -> None:
    """Which is asked again later; the job is not lost."""
    with pytest.raises(QueryFailed) as caught:
        await fetched(job("COMPLETED"), reply)
    assert (caught.value.code, caught.value.rate_limited) == (code, code == "rate_limited")
    assert caught.value.retry_after == (timedelta(seconds=7) if code == "rate_limited" else None)


async def test_other_sources_are_completed_as_usual() -> None:
    """A subclass may find the text elsewhere."""
    done = QueryResult.succeeded(OcrSources(markdown="# T"))
    found = await UnstructuredOcr().fetch_result(done, Claim().query)
    assert isinstance(found.result, OcrResult)


# Submissions, on raw replies.


async def submit(document: Reply, path: str = "/report.pdf", **changes: object) -> list[bytes]:
    """Submit a document to a provider made of raw replies; return the bodies of what was sent."""
    async with ScriptedServer([document]) as files, ScriptedServer([Reply.of(job("SCHEDULED"))]) as server:
        made = UnstructuredOcrSettings(base_url=server.url, allow_private=True, template_id="hi_res")
        handler = UnstructuredOcr(ApiKey("unstructured-key"), settings=made)
        await handler.open()
        request = OcrRequest(url=f"{files.url}{path}", **changes)  # type: ignore[arg-type] # as tests like
        try:
            accepted = await handler.submit(request, Claim().submit)
        finally:
            await handler.close()
            assert not any("unstructured-api-key" in each.headers for each in files.requests)
    assert accepted.query_params == JOB
    assert [(each.method, each.target) for each in server.requests] == [("POST", "/api/v1/jobs/")]
    return [each.body for each in server.requests]


PDF = Reply.of(b"%PDF-1.7 words", headers={"content-type": "application/pdf"})


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({}, {"template_id": "hi_res"}),
        ({"template_id": "fast", "x": 1}, {"template_id": "fast", "x": 1}),
        ({"job_nodes": [{"name": "Partitioner"}]}, {"job_nodes": [{"name": "Partitioner"}]}),
    ],
)
async def test_the_document_is_downloaded_and_uploaded(
    options: dict[str, JSON], data: dict[str, JSON]
) -> None:
    """Options say what is done with it, else the template of the settings; they cannot replace the file."""
    (body,) = await submit(PDF, options=options)
    part = b'name="input_files"; filename="report.pdf"\r\nContent-Type: application/pdf\r\n\r\n%PDF-1.7 words\r\n'
    assert part in body
    assert body.count(b'name="input_files"') == 1
    sent = body.partition(b'name="request_data"\r\n\r\n')[2].partition(b"\r\n")[0]
    assert json.loads(sent) == data


async def test_the_name_can_be_chosen() -> None:
    """By the request."""
    (body,) = await submit(PDF, file_name="a.pdf")
    assert b'filename="a.pdf"' in body


@pytest.mark.parametrize(
    ("document", "error", "words"),
    [
        (Reply.of(b""), InvalidParams, "empty"),
        (Reply.of(b"x" * (MAX_FILE_BYTES + 1)), InvalidParams, "ocr:unstructured takes documents of at most"),
        (Reply.of(b"", status=404), InvalidParams, "404"),
        (Reply.of(b"", status=503), SubmitDeferred, "503"),
    ],
)
async def test_documents_that_cannot_be_sent_are_not(
    document: Reply, error: type[HandlerError], words: str
) -> None:
    """Refused, or tried later, before anything reaches the provider."""
    with pytest.raises(error, match=words):
        await submit(document)


def test_settings_that_mean_nothing_are_refused() -> None:
    """And what the provider documents of its limits is suggested as gates."""
    with pytest.raises(ConfigurationError, match="template_id"):
        UnstructuredOcrSettings(template_id=" ")
    (gate,) = UnstructuredOcr().suggested_gates()
    assert gate == Gate(name=gate.name, rate=Rate(1), concurrency=5)


@pytest.mark.parametrize(
    "changes", [{"pages": "1"}, {"tables": True}, {"model": "x"}, {"outputs": ("html",)}]
)
def test_what_the_provider_does_not_have_is_refused(changes: dict[str, object]) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidParams, match="ocr:unstructured"):
        UnstructuredOcr().validate(OcrRequest(url="https://files.example/a.pdf", **changes))  # type: ignore[arg-type] # a table


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Unstructured's protocol, without an OCR engine."""
    with SandboxServer(protocols=[UnstructuredProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[UnstructuredOcr]:
    """A handler that is open."""
    made = UnstructuredOcr(
        ApiKey("sandbox-key"),
        settings=UnstructuredOcrSettings(base_url=f"{sandbox.url}/unstructured", allow_private=True),
    )
    await made.open()
    yield made
    await made.close()


async def submitted(handler: UnstructuredOcr, sandbox: SandboxServer) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert (accepted.status, accepted.provider_status) == (Status.SUBMITTED, "SCHEDULED")
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return accepted.query_params


async def test_a_document_is_read(handler: UnstructuredOcr, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and there is its text, with pages."""
    done = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert done.verdict is Verdict.SUCCEEDED
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    (page,) = done.result.pages
    assert len(page.blocks) == 2
    to_json(done.result)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


async def test_a_job_may_fail_hide_and_surprise(handler: UnstructuredOcr, sandbox: SandboxServer) -> None:
    """Its file may fail in a job that is completed, with the provider's words."""
    sandbox.faults.add(FailingJob(code="internal_error"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the job failed")
    sandbox.faults.add(FailingJob(message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "file_failed")
    assert failed.error_message == "letter.jpg: the page is too dark"
    sandbox.faults.add(HiddenJob(seconds=3600))
    hidden = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert hidden.verdict is Verdict.NOT_FOUND
    query = await submitted(handler, sandbox)
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED


async def test_a_result_that_is_late_is_incomplete(handler: UnstructuredOcr, sandbox: SandboxServer) -> None:
    """The job says completed before its file is there."""
    sandbox.jobs.delay = timedelta(hours=1)
    query = await submitted(handler, sandbox)
    assert (await handler.query(query, Claim().query)).verdict is Verdict.RUNNING
    sandbox.faults.add(StatusWord(word="COMPLETED"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE


async def test_a_job_is_cancelled_unless_it_has_ended(
    handler: UnstructuredOcr, sandbox: SandboxServer
) -> None:
    """And is canceled at the next query."""
    done = await submitted(handler, sandbox)
    assert await handler.cancel(done, Claim().cancel) is CancelOutcome.REFUSED
    sandbox.jobs.delay = timedelta(hours=1)
    slow = await submitted(handler, sandbox)
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
    handler: UnstructuredOcr, sandbox: SandboxServer, fault: Answer, error_type: type[HandlerError]
) -> None:
    """Refused where the provider says so, unknown where it says nothing."""
    sandbox.faults.add(fault)
    with pytest.raises(error_type):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert sandbox.creating_requests("letter.jpg") == 1


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = UnstructuredOcr(
        ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/unstructured", allow_private=True)
    )
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ({"request_data": "{"}, [b"%PDF"]),
        ({"request_data": "{}"}, [b"%PDF"]),
        ({"other": "x"}, [b"%PDF"]),
        ({"request_data": '{"template_id": "t"}'}, [b"%PDF", b"%PDF"]),
        ({"request_data": '{"template_id": "t"}'}, [b"x" * (MAX_FILE_BYTES + 1)]),
    ],
)
async def test_the_sandbox_refuses_what_the_provider_refuses(
    handler: UnstructuredOcr, form: dict[str, str], files: list[bytes]
) -> None:
    """In the form of its check of requests."""
    parts = [FilePart(name="input_files", file_name="a.pdf", content=each) for each in files]
    request = HttpRequest.post("/api/v1/jobs/", form=form, files=parts)
    refused = await handler.ask(request, Claim().submit)
    found = handler.read_error(refused)
    assert found is not None
    assert (found.status, "html" in found.message) == (422, False)
