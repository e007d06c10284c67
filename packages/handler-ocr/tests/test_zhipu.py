import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from attrs import evolve

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.zhipu import ResultForm, ZhipuOcr, ZhipuOcrSettings
from coatcheck_http import (
    Download,
    HttpResponse,
    OutcomeUnknown,
    Prepared,
    PreparedContext,
    UnreadableAnswer,
)
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import FailingJob, NoResult, Operation, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.zhipu import ZhipuProtocol

MIB = 1024 * 1024
JOB = QueryParams(external_task_id="z1", provider_params={"form": "text"})
ACCEPTED: JSON = {"task_id": "z1", "message": "created", "success": True}
DOCUMENT = OcrRequest(url="https://files.test/scan.pdf")


def status(word: str, **more: JSON) -> JSON:
    """Return the answer about a job with this status word, which has its text once it is done."""
    content = "# The text" if word == "succeeded" else None
    told: dict[str, JSON] = {"task_id": "z1", "status": word, "message": "m", "content": content}
    return {**told, "parsing_result_url": None, **more}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context(file_name: str = "scan.pdf") -> PreparedContext:
    """Return the context of a submit call, with the document."""
    document = Download(
        url=DOCUMENT.url, content=b"%PDF", content_type="application/pdf", file_name=file_name
    )
    prepared = Prepared(files={"document": document})
    return PreparedContext.of(Claim().submit, prepared)


def archive() -> bytes:
    """Return an archive with a text in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("out/result.md", "# From the archive")
    return packed.getvalue()


# The kit.


def settings(url: str) -> ZhipuOcrSettings:
    """Return settings with short times and small limits."""
    return ZhipuOcrSettings(
        base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
    )


def zhipu_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it."""
    return HandlerSpec(
        "coatcheck_handler_ocr.zhipu:ZhipuOcr",
        key="ocr:zhipu",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts={"default": ApiKey("id-one.secret-one"), "other": ApiKey("id-two.secret-two")},
        script=Script(
            job="z1",
            accepted=Reply.of(ACCEPTED),
            status=status,
            words={word: Means(state) for word, state in ZhipuOcr.statuses.words.items()},
            done_without_result=Reply.of(status("succeeded", content=None)),
            rejected=Reply.of({"error": {"code": "1210", "message": "wrong parameter"}}, status=400),
            rate_limited=Reply.of({"error": {"code": "1302", "message": "too many at once"}}, status=429),
            not_found=Reply.of({"error": {"message": "no such task"}}, status=404),
            error=lambda message: {"error": {"code": "500", "message": message}},
            served={"/files/scan.pdf": b"%PDF"},
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestZhipuOcr(HandlerConformance):
    """The handler of Zhipu keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return zhipu_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return ZhipuOcr().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (status("processing"), Verdict.RUNNING),
        (status("processing", content="part"), Verdict.RUNNING),
        (status("succeeded"), Verdict.SUCCEEDED),
        (status("succeeded", content=""), Verdict.SUCCEEDED),
        (status("succeeded", content=None), Verdict.INCOMPLETE),
        (status("failed"), Verdict.FAILED),
        (status("failed", content="part"), Verdict.FAILED),
        (status("completed", content="# T"), Verdict.SUCCEEDED),
        (status("completed", parsing_result_url="https://x.test/r.zip"), Verdict.SUCCEEDED),
        (status("completed"), Verdict.UNLISTED),
        (status("completed", content=" "), Verdict.UNLISTED),
    ],
)
def test_words_and_results_are_weighed(body: JSON, verdict: Verdict) -> None:
    """What ends a job is not certain, so that a word nobody knows is a success with a result, and unlisted without."""
    assert isinstance(body, dict)
    result = read(body)
    assert (result.verdict, result.provider_status) == (verdict, body["status"])


@pytest.mark.parametrize("word", [None, True, ""])
def test_an_answer_without_a_word_is_unreadable(word: JSON) -> None:
    """It is neither running nor done."""
    with pytest.raises(UnreadableAnswer, match="status"):
        read({"task_id": "z1", "status": word})


def test_a_failed_job_says_why() -> None:
    """In `message`."""
    failed = read(status("failed", message="the file is damaged"))
    assert (failed.error_code, failed.error_message) == (None, "the file is damaged")
    assert read(status("failed", message="")).error_message == "the job failed"


@pytest.mark.parametrize(
    ("body", "http_status", "error"),
    [
        (ACCEPTED, 200, None),
        ({"task_id": "z1", "message": "m", "success": False}, 200, None),
        (status("failed"), 200, None),
        ({"success": False, "message": "m"}, 200, (None, "m")),
        ({"error": {"code": "1210", "message": "m"}}, 200, ("1210", "m")),
        ({"error": {"code": 1302, "message": "m"}}, 429, ("1302", "m")),
    ],
)
def test_errors_are_told_from_answers(
    body: JSON, http_status: int, error: tuple[str | None, str] | None
) -> None:
    """A job that is named was created, whatever else is said."""
    found = ZhipuOcr().read_error(answer(body, http_status))
    assert (found and (found.code, found.message)) == error


@pytest.mark.parametrize(
    ("code", "http_status", "error", "limited"),
    [
        ("1000", 401, SubmitDeferred, False),
        ("1003", 401, SubmitDeferred, False),
        ("1113", 429, SubmitDeferred, False),
        ("1121", 429, SubmitDeferred, False),
        ("1210", 400, SubmitRejected, None),
        ("1215", 400, SubmitRejected, None),
        ("1234", 500, OutcomeUnknown, None),
        ("1301", 400, SubmitRejected, None),
        ("1302", 429, SubmitDeferred, True),
        ("1303", 429, SubmitDeferred, True),
    ],
)
async def test_codes_are_judged(
    code: str, http_status: int, error: type[HandlerError], limited: object
) -> None:
    """By code before HTTP status: 429 is also that of an empty balance, which is no matter of speed."""
    refused = Raw.of({"error": {"code": code, "message": "m"}}, status=http_status)
    async with ScriptedServer([Raw.of(b"%PDF")]) as files, ScriptedServer([refused]) as server:
        handler = ZhipuOcr(ApiKey("k"), settings=settings(server.url))
        await handler.open()
        with pytest.raises(error) as caught:
            await handler.submit(OcrRequest(url=f"{files.url}/scan.pdf"), Claim().submit)
        await handler.close()
    assert caught.value.code == code
    if isinstance(caught.value, SubmitDeferred):
        assert caught.value.rate_limited is limited


# What is sent.


def test_the_document_is_uploaded() -> None:
    """Options first, so that they replace neither the tool nor the file; they may name another type."""
    request = evolve(
        DOCUMENT, model="prime", options={"lang": "en", "deep": True, "tool_type": "x", "file": "x"}
    )
    sent = ZhipuOcr().build_submit(request, context())
    assert (sent.method, sent.url) == ("POST", "/files/parser/create")
    assert dict(sent.form) == {"file_type": "PDF", "lang": "en", "deep": "true", "tool_type": "prime"}
    (file,) = sent.files
    assert (file.name, file.file_name, file.content) == ("file", "scan.pdf", b"%PDF")
    assert file.content_type == "application/pdf"
    other = evolve(DOCUMENT, options={"file_type": "WPS"})
    assert ZhipuOcr().build_submit(other, context()).form["file_type"] == "WPS"


def test_names_and_tools_can_be_chosen() -> None:
    """By the request, or else by the settings and the download; no type is sent of a name without a suffix."""
    named = ZhipuOcr().build_submit(evolve(DOCUMENT, file_name="other.docx"), context())
    assert dict(named.form) == {"file_type": "DOCX", "tool_type": "lite"}
    assert named.files[0].file_name == "other.docx"
    own = ZhipuOcr(settings=ZhipuOcrSettings(tool_type="expert"))
    assert dict(own.build_submit(DOCUMENT, context("document")).form) == {"tool_type": "expert"}
    assert dict(ZhipuOcr(settings=HttpSettings()).build_submit(DOCUMENT, context("document")).form) == {
        "tool_type": "lite"
    }


def test_the_form_of_the_result_is_stored() -> None:
    """So that jobs are asked for what they were submitted for, whatever the settings are by then."""
    links = ZhipuOcr(settings=ZhipuOcrSettings(result_form="download_link"))
    stored = links.create_query_params(answer(ACCEPTED), DOCUMENT)
    assert stored == JOB.evolve(form="download_link")
    assert ZhipuOcr().create_query_params(answer(ACCEPTED), DOCUMENT) == JOB
    assert ZhipuOcr().build_query(stored, Claim().query).url == "/files/parser/result/z1/download_link"
    assert links.build_query(JOB, Claim().query).url == "/files/parser/result/z1/text"
    with pytest.raises(ConfigurationError, match="download_link"):
        ZhipuOcrSettings(result_form="pdf")


def test_the_service_outside_china_is_a_setting() -> None:
    """With the same paths."""
    assert ZhipuOcr().base_url == "https://open.bigmodel.cn/api/paas/v4"
    made = ZhipuOcr(settings=ZhipuOcrSettings(base_url="https://api.z.ai/api/paas/v4"))
    assert made.base_url == "https://api.z.ai/api/paas/v4"


async def test_an_empty_document_is_refused() -> None:
    """Before it costs anything."""
    async with ScriptedServer([Raw.of(b"")]) as empty, ScriptedServer([Raw.of(ACCEPTED)]) as server:
        handler = ZhipuOcr(ApiKey("k"), settings=settings(server.url))
        await handler.open()
        with pytest.raises(InvalidParams, match="empty"):
            await handler.submit(OcrRequest(url=empty.url), Claim().submit)
        await handler.close()
        assert server.connections == 0


# The result.


@pytest.mark.parametrize(
    ("file", "markdown"), [(Raw.of(archive()), "# From the archive"), (Raw.of(b"", status=403), None)]
)
async def test_archives_are_fetched_without_credentials(file: Raw, markdown: str | None) -> None:
    """At once; if one cannot be had the query is asked again."""
    async with ScriptedServer([file]) as files:
        done = status("succeeded", content=None, parsing_result_url=f"{files.url}/r.zip")
        async with ScriptedServer([Raw.of(done)]) as server:
            handler = ZhipuOcr(ApiKey("k"), settings=settings(server.url))
            await handler.open()
            if markdown is None:
                with pytest.raises(QueryFailed, match="403"):
                    await handler.query(JOB, Claim().query)
            else:
                result = (await handler.query(JOB, Claim().query)).result
                assert isinstance(result, OcrResult)
                assert result.markdown == markdown
                assert [each.type for each in result.assets] == ["archive"]
            await handler.close()
        assert not any("authorization" in each.headers for each in files.requests)


async def test_a_document_without_text_is_a_result() -> None:
    """With a warning: it was parsed."""
    result = await ZhipuOcr().fetch_result(read(status("succeeded", content="")), Claim().query)
    assert isinstance(result.result, OcrResult)
    assert result.result.warnings == ("the provider found no text",)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Zhipu's protocol, without an OCR engine."""
    with SandboxServer(protocols=[ZhipuProtocol()], recognizer=describe) as server:
        yield server


def make(sandbox: SandboxServer, *, form: ResultForm = "text", key: str = "sandbox-key") -> ZhipuOcr:
    """Return a handler of the sandbox, closed."""
    made = ZhipuOcrSettings(base_url=f"{sandbox.url}/zhipu", allow_private=True, result_form=form)
    return ZhipuOcr(ApiKey(key), settings=made)


@pytest.fixture(params=["text", "download_link"])
async def handler(sandbox: SandboxServer, request: pytest.FixtureRequest) -> AsyncIterator[ZhipuOcr]:
    """A handler that is open."""
    made = make(sandbox, form=request.param)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: ZhipuOcr, sandbox: SandboxServer) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert accepted.status is Status.SUBMITTED
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 10)
    return accepted.query_params


async def test_a_document_is_read(handler: ZhipuOcr, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and there is its text, in the answer or behind a link."""
    done = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)
    assert not any(each.has_authorization for each in sandbox.log.requests(Operation.RESULT))


async def test_jobs_may_fail_or_be_odd(handler: ZhipuOcr, sandbox: SandboxServer) -> None:
    """A failed job says why; one without a result or that is not there is no success."""
    sandbox.faults.add(FailingJob(code="x", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the page is too dark")
    query = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="completed"))
    odd = await handler.query(query, Claim().query)
    assert (odd.verdict, odd.provider_status) == (Verdict.SUCCEEDED, "completed")
    nobody = evolve(query, external_task_id="nobody")
    assert (await handler.query(nobody, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_tool_that_is_not_there_is_rejected(handler: ZhipuOcr, sandbox: SandboxServer) -> None:
    """With the provider's words."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), model="magic")
    with pytest.raises(SubmitRejected, match="tool_type"):
        await handler.submit(request, Claim().submit)


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, key="wrong")
    await made.open()
    with pytest.raises(SubmitDeferred, match="1002"):
        await made.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await made.close()


def test_the_sandbox_refuses_what_zhipu_refuses(sandbox: SandboxServer) -> None:
    """A form without a file or that is none, a format that is not there, a result that is not there yet."""
    sandbox.jobs.delay = timedelta(hours=1)
    base, headers = f"{sandbox.url}/zhipu", {"authorization": "Bearer sandbox-key"}
    create, form = f"{base}/files/parser/create", {"tool_type": "lite"}
    assert httpx.post(create, data=form, headers=headers).json()["error"]["code"] == "1213"
    odd = {**headers, "content-type": "multipart/form-data"}
    assert httpx.post(create, content=b"x", headers=odd).json()["error"]["code"] == "1210"
    files = {"file": ("a.pdf", b"%PDF")}
    made = httpx.post(create, data=form, files=files, headers=headers).json()["task_id"]
    result = f"{base}/files/parser/result/{made}/pdf"
    assert httpx.get(result, headers=headers).json()["error"]["code"] == "1210"
    assert httpx.get(f"{base}/results/{made}/result.zip").status_code == 404
