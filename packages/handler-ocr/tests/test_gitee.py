import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from coatcheck.errors import HandlerError, InvalidParams, QueryFailed, SubmitDeferred, SubmitRejected
from coatcheck.handler import QueryContext
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_handler_ocr import ApiKey, GiteeOcr, GiteeOcrSettings, HttpSettings, OcrRequest, OcrResult
from coatcheck_http import AnswerLost, HttpRequest, HttpResponse, OutcomeUnknown, UnreadableAnswer, segment
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import (
    Answer,
    Drop,
    FailingJob,
    Fault,
    HiddenJob,
    MalformedHttp,
    MalformedJson,
    NoResult,
    Operation,
    Redirect,
    SandboxServer,
    Stall,
    StatusWord,
    TruncatedBody,
    When,
    describe,
)

JOB = QueryParams(external_task_id="g1")
ACCEPTED: JSON = {"task_id": "g1", "status": "waiting", "created_at": "2026-01-01", "urls": {}}


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return GiteeOcr().parse_query(
        HttpResponse(status=200, body=Reply.of(body).raw.partition(b"\r\n\r\n")[2]), JOB, Claim().query
    )


@pytest.mark.parametrize(
    ("word", "verdict", "status"),
    [
        *[(word, Verdict.RUNNING, Status.SUBMITTED) for word in ("waiting", "pending", "queued", "WAITING")],
        *[(word, Verdict.RUNNING, Status.RUNNING) for word in ("in_progress", "running", "processing")],
        *[(word, Verdict.SUCCEEDED, Status.RUNNING) for word in ("success", "succeeded", "done")],
        *[(word, Verdict.FAILED, Status.RUNNING) for word in ("failure", "failed")],
        *[(word, Verdict.CANCELED, Status.RUNNING) for word in ("cancelled", "canceled")],
        *[(word, Verdict.UNLISTED, Status.RUNNING) for word in ("aborted", "expired")],
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, status: Status) -> None:
    """In any case; `error` and `output` may be null; a word that is not documented is unlisted."""
    result = read({"task_id": "g1", "status": word, "error": None, "output": None})
    assert (result.verdict, result.status, result.provider_status) == (verdict, status, word)


@pytest.mark.parametrize(
    ("output", "markdown"),
    [
        ({"segments": [{"index": 0, "content": "# T"}, {"index": 1, "content": "text"}]}, "# T\ntext"),
        ({"markdown": "# T", "markdown_url": "https://x/y"}, "# T"),
        ({"md": "# T", "segments": [{"content": "no"}]}, "# T"),
        ({"markdown": " ", "segments": [{"content": "# T"}, {}, 7]}, "# T"),
        ({"text": "T"}, "T"),
        ({"content": "T"}, "T"),
        ("# T", "# T"),
        ({"segments": [{"content": ""}]}, ""),
    ],
)
async def test_text_is_found_in_every_form(output: JSON, markdown: str) -> None:
    """Inline, in segments, as text."""
    result = await GiteeOcr().fetch_result(read({"status": "success", "output": output}), Claim().query)
    assert isinstance(result.result, OcrResult)
    assert result.result.markdown == markdown


@pytest.mark.parametrize("output", [None, {}, [], {"segments": []}, {"images": 1}, 7, "missing"])
async def test_done_without_a_result_is_incomplete(output: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    body: JSON = {"status": "success"} if output == "missing" else {"status": "success", "output": output}
    result = await GiteeOcr().fetch_result(read(body), Claim().query)
    assert result.verdict is Verdict.INCOMPLETE


async def test_results_behind_links_are_fetched_at_once() -> None:
    """Links live for a day, so the text is captured by the query that sees them; the links are told, too."""
    async with ScriptedServer([Reply.of(b"# from link")]) as files:
        output: JSON = {
            "markdown_url": f"{files.url}/full.md",
            "json_url": "https://x/c.json",
            "files": [
                {"type": "Image", "file_url": "https://x/1.png"},
                {"format": "zip", "url": "https://x/z"},
                {},
            ],
        }
        done = Reply.of({"task_id": "g1", "status": "success", "output": output, "price": 0.25})
        async with ScriptedServer([done]) as server:
            handler = GiteeOcr(ApiKey("k"), settings=HttpSettings(base_url=server.url, allow_private=True))
            await handler.open()
            claim = Claim()
            result = (await handler.query(JOB, claim.query)).result
            await handler.close()
    assert isinstance(result, OcrResult)
    assert (result.markdown, result.usage) == ("# from link", {"price": 0.25})
    assert [each.type for each in result.assets] == ["markdown", "json", "image", "zip"]
    assert {each.expires_at for each in result.assets} == {claim.now + timedelta(days=1)}
    assert "authorization" not in files.requests[0].headers


def test_a_failed_job_says_why() -> None:
    """Code and message are at the top, or in `error`."""
    top = read({"status": "failure", "error_code": "E1", "error_message": "dark", "error": {"code": "E2"}})
    assert (top.error_code, top.error_message) == ("E1", "dark")
    inner = read({"status": "failed", "error": {"type": "T", "message": "dark"}})
    assert (inner.error_code, inner.error_message) == ("T", "dark")
    assert read({"status": "failed"}).error_message == "the job failed"


@pytest.mark.parametrize("body", [{}, {"task_id": "g1"}, {"task_id": "g1", "status": None}])
def test_an_answer_without_a_status_is_unreadable(body: JSON) -> None:
    """It is neither running nor done."""
    with pytest.raises(UnreadableAnswer):
        read(body)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (ACCEPTED, None),
        ({"id": "g1"}, None),
        ({"task_id": "g1", "status": "failure", "error": {"code": "c"}}, None),
        ({"status": "waiting"}, None),
        ({"error": None}, None),
        ({"error": {"code": "c", "type": "t", "message": "m"}}, ("c", "m")),
        ({"error": {"type": "t", "message": "m"}}, ("t", "m")),
    ],
)
def test_errors_in_good_answers_are_told_from_failed_jobs(body: JSON, error: tuple[str, str] | None) -> None:
    """An `error` beside a job is the job's; alone it is the provider's."""
    found = GiteeOcr().read_error(HttpResponse(status=200, body=Reply.of(body).raw.partition(b"\r\n\r\n")[2]))
    assert (found and (found.code, found.message)) == error


# Submissions, on raw replies.


@pytest.fixture
async def documents() -> AsyncIterator[ScriptedServer]:
    """A server of documents."""
    async with ScriptedServer(
        [Reply.of(b"%PDF-1.7 words", headers={"content-type": "application/pdf"})]
    ) as server:
        yield server


async def submit(server: ScriptedServer, request: OcrRequest, claim: Claim, **settings: object) -> object:
    """Submit a request to a provider made of raw replies."""
    made = GiteeOcrSettings(base_url=f"{server.url}/v1", allow_private=True, **settings)  # type: ignore[arg-type] # as tests like
    handler = GiteeOcr(ApiKey("gitee-key"), settings=made)
    await handler.open()
    try:
        return await handler.submit(request, claim.submit)
    finally:
        await handler.close()


async def test_the_document_is_downloaded_and_uploaded(documents: ScriptedServer) -> None:
    """Options go first, so that they cannot replace the model or the file; other values are sent as JSON."""
    request = OcrRequest(
        url=f"{documents.url}/report.pdf?signature=s",
        options={"is_ocr": True, "prompt": "read", "levels": [1, 2], "model": "x", "file": "y"},
    )
    async with ScriptedServer([Reply.of(ACCEPTED)]) as server:
        await submit(server, request, Claim())
    (sent,) = server.requests
    assert (sent.method, sent.target) == ("POST", "/v1/async/documents/parse")
    assert sent.headers["authorization"] == "Bearer gitee-key"
    assert sent.body.count(b'name="file"') == 1
    assert (
        b'name="file"; filename="report.pdf"\r\nContent-Type: application/pdf\r\n\r\n%PDF-1.7 words\r\n'
        in sent.body
    )
    for name, value in (
        ("model", "Unlimited-OCR"),
        ("is_ocr", "true"),
        ("prompt", "read"),
        ("levels", "[1, 2]"),
    ):
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in sent.body
    assert "authorization" not in documents.requests[0].headers


async def test_model_and_name_can_be_chosen(documents: ScriptedServer) -> None:
    """By the request, or else by the settings."""
    async with ScriptedServer([Reply.of(ACCEPTED)]) as server:
        named = OcrRequest(url=documents.url, file_name="a.pdf", model="DeepSeek-OCR")
        await submit(server, named, Claim(), model="MinerU2.5")
        await submit(server, OcrRequest(url=documents.url), Claim(), model="MinerU2.5")
    assert b"\r\n\r\nDeepSeek-OCR\r\n" in server.requests[0].body
    assert b'filename="a.pdf"' in server.requests[0].body
    assert b"\r\n\r\nMinerU2.5\r\n" in server.requests[1].body


async def test_an_empty_document_is_refused() -> None:
    """Before it costs anything."""
    async with ScriptedServer([Reply.of(b"")]) as empty, ScriptedServer([Reply.of(ACCEPTED)]) as server:
        with pytest.raises(InvalidParams, match="empty"):
            await submit(server, OcrRequest(url=empty.url), Claim())
        assert server.connections == 0


async def test_a_document_of_a_private_network_is_refused(documents: ScriptedServer) -> None:
    """A caller cannot have the worker fetch what only the worker can reach."""
    async with ScriptedServer([Reply.of(ACCEPTED)]) as server:
        handler = GiteeOcr(ApiKey("k"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(InvalidParams, match="not a public address"):
            await handler.submit(OcrRequest(url=documents.url), Claim().submit)
        await handler.close()
        assert (documents.connections, server.connections) == (0, 0)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply.of({"error": {"code": "bad", "message": "no"}}), SubmitRejected),
        (Reply.of({"error": {"code": "bad", "message": "no"}}, status=400), SubmitRejected),
        (Reply.of({"error": {"code": "internal_error"}}), OutcomeUnknown),
        (Reply.of({"error": {"code": "x"}}, status=500), OutcomeUnknown),
        (Reply.of({"status": "waiting"}), UnreadableAnswer),
        (Reply.of({}), UnreadableAnswer),
    ],
)
async def test_answers_without_a_job_are_judged(
    documents: ScriptedServer, reply: Reply, error: type[HandlerError]
) -> None:
    """Refused where the provider says so, unknown where it says nothing."""
    async with ScriptedServer([reply]) as server:
        with pytest.raises(error):
            await submit(server, OcrRequest(url=documents.url), Claim())
        assert len(server.requests) == 1


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Gitee's protocol, without an OCR engine."""
    with SandboxServer(recognizer=describe) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[GiteeOcr]:
    """A handler that is open."""
    settings = GiteeOcrSettings(
        base_url=f"{sandbox.url}/gitee/v1", allow_private=True, read_timeout=timedelta(seconds=0.5)
    )
    made = GiteeOcr(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: GiteeOcr, sandbox: SandboxServer, model: str | None = None) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), model=model)
    accepted = await handler.submit(request, Claim().submit)
    assert accepted.status is Status.SUBMITTED
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 10)
    return accepted.query_params


@pytest.mark.parametrize("model", [None, "MinerU2.5-Pro", "PaddleOCR-VL"])
async def test_a_document_is_read(handler: GiteeOcr, sandbox: SandboxServer, model: str | None) -> None:
    """Submitted once, queried, and there is its text, whichever form the model gives it in."""
    query = await submitted(handler, sandbox, model)
    done = await handler.query(query, Claim().query)
    assert done.verdict is Verdict.SUCCEEDED
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert done.result.usage == {"price": 0.0}
    to_json(done.result)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "error", "jobs"),
    [
        (Drop(operation=Operation.SUBMIT), AnswerLost, 0),
        (Drop(operation=Operation.SUBMIT, when=When.AFTER), AnswerLost, 1),
        (Drop(operation=Operation.SUBMIT, when=When.AFTER, reset=True), AnswerLost, 1),
        (Stall(operation=Operation.SUBMIT), AnswerLost, 0),
        (Stall(operation=Operation.SUBMIT, when=When.AFTER), AnswerLost, 1),
        (TruncatedBody(operation=Operation.SUBMIT), AnswerLost, 1),
        (MalformedHttp(operation=Operation.SUBMIT), AnswerLost, None),
        (MalformedJson(operation=Operation.SUBMIT), UnreadableAnswer, 1),
        (Answer(operation=Operation.SUBMIT, status=500), OutcomeUnknown, 0),
        (Answer(operation=Operation.SUBMIT, status=502, when=When.AFTER, body="<html>"), OutcomeUnknown, 1),
        (Answer(operation=Operation.SUBMIT, status=429, retry_after="3"), SubmitDeferred, 0),
        (Answer(operation=Operation.SUBMIT, status=429, code="insufficient_quota"), SubmitDeferred, 0),
        (Answer(operation=Operation.SUBMIT, status=400), SubmitRejected, 0),
        (Redirect(operation=Operation.SUBMIT, location="http://127.0.0.1:9/x"), SubmitDeferred, 0),
        (Redirect(operation=Operation.SUBMIT, location="/x", status=303), OutcomeUnknown, None),
    ],
)
async def test_whatever_the_provider_does_it_is_asked_once(
    handler: GiteeOcr, sandbox: SandboxServer, fault: Fault, error: type[HandlerError], jobs: int | None
) -> None:
    """One creating request, and the error says no more than what is certain."""
    sandbox.faults.add(fault)
    request = OcrRequest(url=sandbox.page_url("letter.jpg"))
    with pytest.raises(error) as caught:
        await handler.submit(request, Claim().submit)
    assert isinstance(caught.value, (SubmitRejected, SubmitDeferred)) is issubclass(
        error, (SubmitRejected, SubmitDeferred)
    )
    await asyncio.to_thread(sandbox.wait_for_requests, 1, Operation.SUBMIT)
    assert sandbox.creating_requests("letter.jpg") == 1
    if jobs is not None:
        assert sandbox.created_jobs("letter.jpg") == jobs


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (StatusWord(word="aborted"), Verdict.UNLISTED),
        (NoResult(), Verdict.INCOMPLETE),
        (Answer(operation=Operation.QUERY, status=404), Verdict.NOT_FOUND),
        (Drop(operation=Operation.QUERY), None),
        (Stall(operation=Operation.QUERY), None),
        (MalformedJson(operation=Operation.QUERY), None),
        (TruncatedBody(operation=Operation.QUERY), None),
        (Answer(operation=Operation.QUERY, status=500), None),
        (Answer(operation=Operation.QUERY, status=429, retry_after="Thu, 01 Jan 2099 00:00:00 GMT"), None),
    ],
)
async def test_a_query_that_goes_wrong_loses_nothing(
    handler: GiteeOcr, sandbox: SandboxServer, fault: Fault, verdict: Verdict | None
) -> None:
    """It has its verdict, or failed; the next one has the result."""
    query = await submitted(handler, sandbox)
    sandbox.faults.add(fault)
    if verdict is None:
        with pytest.raises(QueryFailed):
            await handler.query(query, Claim().query)
    else:
        assert (await handler.query(query, Claim().query)).verdict is verdict
    assert (await handler.query(query, Claim().query)).verdict is Verdict.SUCCEEDED


async def test_a_job_may_hide_at_first(handler: GiteeOcr, sandbox: SandboxServer) -> None:
    """The provider's 404 right after creation is "not found", which the worker takes for "not yet"."""
    sandbox.faults.add(HiddenJob(seconds=3600))
    query = await submitted(handler, sandbox)
    assert (await handler.query(query, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_job_may_fail(handler: GiteeOcr, sandbox: SandboxServer) -> None:
    """With the provider's code and words."""
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "too_dark")
    assert failed.error_message == "the page is too dark"


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = GiteeOcr(
        ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/gitee/v1", allow_private=True)
    )
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await handler.close()


# What a subclass can change.


class RegionalGiteeOcr(GiteeOcr):
    """A provider with a region, which queries have to name."""

    key = "ocr:gitee-regional"

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Add the region."""
        return super().create_query_params(response, params).evolve(region=params.options["region"])

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Ask in the region."""
        region = params.read("region", str)
        return HttpRequest.get(f"/{segment(region)}/task/{segment(params.external_task_id)}")


async def test_a_regional_handler_changes_two_methods(documents: ScriptedServer) -> None:
    """What its queries need is stored with the id, and used for the query's URL."""
    running = Reply.of({"task_id": "g1", "status": "running"})
    async with ScriptedServer([Reply.of(ACCEPTED), running]) as server:
        handler = RegionalGiteeOcr(
            ApiKey("k"), settings=HttpSettings(base_url=server.url, allow_private=True)
        )
        await handler.open()
        request = OcrRequest(url=documents.url, options={"region": "cn-north"})
        accepted = await handler.submit(request, Claim().submit)
        assert accepted.query_params == QueryParams(
            external_task_id="g1", provider_params={"region": "cn-north"}
        )
        await handler.query(accepted.query_params, Claim().query)
        with pytest.raises(InvalidParams, match="region"):
            await handler.query(JOB, Claim().query)
        await handler.close()
    assert server.requests[1].target == "/cn-north/task/g1"
