import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl

import httpx
import pytest

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
from coatcheck_handler_ocr.baidu import BaiduClient, BaiduOcr
from coatcheck_handler_ocr.result import OcrBlock
from coatcheck_http import HttpResponse, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.baidu import BaiduProtocol
from coatcheck_sandbox.reading import Block
from coatcheck_sandbox.recognize import Recognition, RecognizedPage

MIB = 1024 * 1024
JOB = QueryParams(external_task_id="b1")
SUBMITTED: JSON = {"log_id": 1, "error_code": 0, "error_msg": "", "result": {"task_id": "b1"}}
PAGES: JSON = {
    "file_name": "scan.pdf",
    "file_id": "f1",
    "pages": [
        {
            "page_id": "p0",
            "page_num": 0,
            "page_angle": 0,
            "text": "# Title",
            "layouts": [
                {"layout_id": "l0", "type": "title", "text": "Title", "position": [10, 20, 100, 30]},
                {"layout_id": "l1", "text": None, "position": [1, 2, 3]},
                7,
            ],
        },
        {"page_id": "p1", "layouts": None},
    ],
}
TOKEN = "24.minted-token"


def status(word: str, **result: JSON) -> JSON:
    """Return the answer about a job with this status word; its text and pages are behind links."""
    links: dict[str, JSON] = {
        "markdown_url": "{server}/files/full.md",
        "parse_result_url": "{server}/files/result.json",
    }
    return {
        "error_code": 0,
        "result": {"task_id": "b1", "status": word, "task_error": None, **links, **result},
    }


def refusal(code: int, message: str) -> JSON:
    """Return an error, which the provider sends in HTTP 200."""
    return {"log_id": 1, "error_code": code, "error_msg": message, "result": None}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context() -> PreparedContext:
    """Return the context of a submit call."""
    return PreparedContext.of(Claim().submit)


def form_of(body: bytes) -> dict[str, str]:
    """Return the fields of a form, each of which must be there once."""
    pairs = parse_qsl(body.decode(), keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


# The kit.


def settings(url: str) -> HttpSettings:
    """Return settings with short times and small limits."""
    return HttpSettings(
        base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
    )


def baidu_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it, with keys."""
    return _spec(
        accounts={"default": ApiKey("bce-v3/key-of-one"), "other": ApiKey("24.token-of-another")},
        secrets=None,
    )


def client_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider with clients, for which the same token is minted."""
    return _spec(
        accounts={
            "default": BaiduClient("id-of-one", "secret-of-one"),
            "other": BaiduClient("id-of-another", "secret-of-another"),
        },
        secrets={
            "default": ["id-of-one", "secret-of-one", TOKEN],
            "other": ["id-of-another", "secret-of-another", TOKEN],
        },
    )


def _spec(accounts: Mapping[str, object], secrets: Mapping[str, list[str]] | None) -> HandlerSpec:
    return HandlerSpec(
        "coatcheck_handler_ocr.baidu:BaiduOcr",
        key="ocr:baidu",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts=accounts,
        secrets=secrets,
        creating=lambda method, path: method == "POST" and path.endswith("/paddle-vl-parser/task"),
        script=Script(
            job="b1",
            accepted=Reply.of(SUBMITTED),
            status=status,
            words={word: Means(state) for word, state in BaiduOcr.statuses.words.items()},
            done_without_result=Reply.of(status("success", markdown_url=None, parse_result_url=None)),
            rejected=Reply.of(refusal(282003, "missing parameters")),
            rate_limited=Reply.of(refusal(18, "Open api qps request limit reached")),
            not_found=Reply.of({"error_msg": "no such task"}, status=404),
            error=lambda message: {"error_code": 336000, "error_msg": message},
            served={
                # it ends at once, so that each call has to mint one first
                "/oauth/2.0/token": {"access_token": TOKEN, "expires_in": 0},
                "/files/full.md": b"# From the link",
                "/files/result.json": PAGES,
            },
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestBaiduOcr(HandlerConformance):
    """The handler of Baidu keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider with keys."""
        return baidu_spec()


class TestBaiduOcrWithClients(HandlerConformance):
    """It keeps them with tokens that are minted, too, which never show."""

    require = ("account", "two accounts")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider with clients."""
        return client_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return BaiduOcr().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("pending", Verdict.RUNNING, Status.SUBMITTED),
        ("processing", Verdict.RUNNING, Status.RUNNING),
        ("success", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("archived", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    result = read(status(word))
    assert (result.verdict, result.status, result.provider_status) == (verdict, state, word)


def test_an_accepted_job_has_its_id() -> None:
    """It is submitted: the answer has no status word."""
    accepted = BaiduOcr().parse_submit(answer(SUBMITTED), OcrRequest(url="https://x.test/a.pdf"), context())
    assert (accepted.query_params, accepted.status) == (JOB, Status.SUBMITTED)
    with pytest.raises(UnreadableAnswer, match=r"result\.task_id"):
        BaiduOcr().parse_submit(
            answer({"error_code": 0, "result": None}), OcrRequest(url="https://x.test/a.pdf"), context()
        )


def test_a_failed_job_says_why() -> None:
    """In `task_error`; the envelope's code 0 is no code of it."""
    failed = read(status("failed", task_error="the file is damaged"))
    assert (failed.error_code, failed.error_message) == (None, "the file is damaged")
    assert read(status("failed")).error_message == "the job failed"


@pytest.mark.parametrize(
    ("body", "http_status", "error"),
    [
        (SUBMITTED, 200, None),
        ({"result": {"task_id": "b1"}}, 200, None),
        (refusal(282003, "missing parameters"), 200, ("282003", "missing parameters")),
        ({"error_code": "110", "error_msg": "m"}, 200, ("110", "m")),
        (
            {"error": "invalid_client", "error_description": "unknown client id"},
            401,
            ("invalid_client", None),
        ),
        ({}, 500, (None, None)),
    ],
)
def test_errors_are_told_from_answers(
    body: JSON, http_status: int, error: tuple[str | None, str | None] | None
) -> None:
    """A code that is there and not 0 is one, whatever the HTTP status."""
    found = BaiduOcr().read_error(answer(body, http_status))
    if error is None:
        assert found is None
    else:
        assert found is not None
        assert found.code == error[0]
        assert error[1] is None or found.message == error[1]


# What is sent.


def test_a_submission_is_a_form() -> None:
    """Options first, booleans as text; the document cannot be replaced, and no token can be smuggled in."""
    request = OcrRequest(
        url="https://files.test/a%20b.pdf?signature=s",
        options={
            "merge_tables": True,
            "analysis_chart": False,
            "angle_adjust": "arbitrary",
            "file_url": "x",
            "file_data": "x",
            "file_name": "x",
            "access_token": "x",
            "task_id": "x",
        },
    )
    sent = BaiduOcr().build_submit(request, context())
    assert (sent.method, sent.url) == ("POST", "/rest/2.0/brain/online/v2/paddle-vl-parser/task")
    assert dict(sent.form) == {
        "merge_tables": "true",
        "analysis_chart": "false",
        "angle_adjust": "arbitrary",
        "file_url": "https://files.test/a%20b.pdf?signature=s",
        "file_name": "a b.pdf",
    }
    query = BaiduOcr().build_query(JOB, Claim().query)
    assert (query.method, query.url) == ("POST", "/rest/2.0/brain/online/v2/paddle-vl-parser/task/query")
    assert dict(query.form) == {"task_id": "b1"}


@pytest.mark.parametrize(
    ("url", "file_name", "sent"),
    [
        ("https://x.test/scan.pdf", None, "scan.pdf"),
        ("https://x.test/scan.pdf", "other.png", "other.png"),
        ("https://x.test/download?id=7", "scan.pdf", "scan.pdf"),
        ("https://x.test/folder%2Fscan.tif", None, "scan.tif"),
        ("https://x.test/download?id=7", None, None),
        ("https://x.test/", None, None),
        ("https://x.test/scan.pdf", "scan", None),
        ("https://x.test/" + "a" * 1024 + ".pdf", None, None),
    ],
)
def test_the_name_has_a_suffix(url: str, file_name: str | None, sent: str | None) -> None:
    """By the request or by the URL, which is not too long; a request without one is refused at once."""
    request = OcrRequest(url=url, file_name=file_name)
    if sent is None:
        for refuse in (BaiduOcr().validate, lambda params: BaiduOcr().build_submit(params, context())):
            with pytest.raises(InvalidParams, match=r"suffix|1024"):
                refuse(request)
    else:
        BaiduOcr().validate(request)
        assert BaiduOcr().build_submit(request, context()).form["file_name"] == sent


async def test_each_credential_goes_where_it_belongs() -> None:
    """A key of the new form is a bearer token, an access token goes into the query of both endpoints."""
    async with ScriptedServer([Raw.of(SUBMITTED), Raw.of(status("pending"))]) as server:
        for account in (ApiKey("bce-v3/ALTAK/one"), ApiKey("24.a+b")):
            handler = BaiduOcr(account, settings=settings(server.url))
            await handler.open()
            await handler.submit(OcrRequest(url="https://x.test/a.pdf"), Claim().submit)
            await handler.query(JOB, Claim().query)
            await handler.close()
    bearer, query = server.requests[:2], server.requests[2:]
    assert [each.headers["authorization"] for each in bearer] == ["Bearer bce-v3/ALTAK/one"] * 2
    assert not any("?" in each.target for each in bearer)
    assert [each.target.partition("?")[2] for each in query] == ["access_token=24.a%2Bb"] * 2
    assert not any("authorization" in each.headers for each in query)
    assert form_of(query[0].body) == {"file_url": "https://x.test/a.pdf", "file_name": "a.pdf"}


async def test_an_account_of_another_kind_is_refused() -> None:
    """Before anything is sent; the message says what is taken."""
    handler = BaiduOcr(object(), settings=HttpSettings(base_url="http://127.0.0.1:9"))
    await handler.open()
    with pytest.raises(ConfigurationError, match="BaiduClient"):
        await handler.submit(OcrRequest(url="https://x.test/a.pdf"), Claim().submit)
    await handler.close()


def test_a_client_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read when it is used, and never shown."""
    client = BaiduClient.from_env("BAIDU_ID", "BAIDU_SECRET")
    monkeypatch.setenv("BAIDU_ID", "the-id")
    monkeypatch.setenv("BAIDU_SECRET", "the-secret")
    assert (client.client_id.reveal(), client.client_secret.reveal()) == ("the-id", "the-secret")
    assert "the-" not in repr(client)


# Results behind links.


async def fetched(markdown: Raw, pages: Raw) -> QueryResult:
    """Return what a job that is done comes to, whose links are answered so."""
    async with ScriptedServer([pages]) as first, ScriptedServer([markdown]) as second:
        done = status(
            "success", markdown_url=f"{second.url}/full.md", parse_result_url=f"{first.url}/result.json"
        )
        async with ScriptedServer([Raw.of(done)]) as server:
            handler = BaiduOcr(ApiKey("24.token"), settings=settings(server.url))
            await handler.open()
            try:
                return await handler.query(JOB, Claim().query)
            finally:
                await handler.close()
                for each in (*first.requests, *second.requests):
                    assert "authorization" not in each.headers
                    assert "access_token" not in each.target


async def test_text_and_pages_are_fetched_at_once() -> None:
    """Without credentials; blocks have their places, and what makes no sense in them is passed over."""
    result = (await fetched(Raw.of(b"# Title"), Raw.of(PAGES))).result
    assert isinstance(result, OcrResult)
    assert result.markdown == "# Title"
    assert [(page.index, page.markdown) for page in result.pages] == [(0, "# Title"), (1, "")]
    assert result.pages[0].blocks == (
        OcrBlock(kind="title", text="Title", box=(10.0, 20.0, 110.0, 50.0)),
        OcrBlock(),
        OcrBlock(),
    )
    assert [each.type for each in result.assets] == ["markdown", "json"]
    assert {each.expires_at for each in result.assets} == {Claim().now + timedelta(days=30)}
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("pages", "warning"),
    [(Raw.of(b"<html>"), "cannot be read"), (Raw.of(b"", status=403), "cannot be had")],
)
async def test_the_text_is_enough(pages: Raw, warning: str) -> None:
    """If the pages cannot be had there is a warning, and the text all the same."""
    result = (await fetched(Raw.of(b"# Title"), pages)).result
    assert isinstance(result, OcrResult)
    assert (result.markdown, result.pages) == ("# Title", ())
    assert warning in result.warnings[0]


async def test_the_pages_are_enough() -> None:
    """If the text cannot be had its pages are joined."""
    result = (await fetched(Raw.of(b"", status=403), Raw.of(PAGES))).result
    assert isinstance(result, OcrResult)
    assert result.markdown.strip() == "# Title"
    assert "403" in result.warnings[0]


async def test_a_job_without_links_is_incomplete() -> None:
    """Done, and nothing to be had: the worker asks again a few times."""
    body = status("success", markdown_url=None, parse_result_url=None)
    assert (await BaiduOcr().fetch_result(read(body), Claim().query)).verdict is Verdict.INCOMPLETE
    assert (await BaiduOcr().fetch_result(QueryResult.failed(None, "x"), Claim().query)).result is None


# Tokens that are minted.


MINTED = Raw.of({"access_token": TOKEN, "expires_in": 2592000})


async def with_client(replies: list[Raw], *, calls: int) -> tuple[ScriptedServer, list[Exception]]:
    """Submit a few times with a client; return the provider, and what was raised."""
    raised: list[Exception] = []
    async with ScriptedServer(replies) as server:
        handler = BaiduOcr(BaiduClient("the-id", "the-secret"), settings=settings(server.url))
        await handler.open()
        for _ in range(calls):
            try:
                await handler.submit(OcrRequest(url="https://x.test/a.pdf"), Claim().submit)
            except HandlerError as error:
                raised.append(error)
        await handler.close()
    return server, raised


async def test_a_token_is_minted_once(caplog: pytest.LogCaptureFixture) -> None:
    """And used for all calls; neither it nor the client's secret is in a log."""
    caplog.set_level(logging.DEBUG)
    server, raised = await with_client([MINTED, Raw.of(SUBMITTED)], calls=2)
    assert not raised
    assert [each.target for each in server.requests] == [
        "/oauth/2.0/token?grant_type=client_credentials&client_id=the-id&client_secret=the-secret",
        f"/rest/2.0/brain/online/v2/paddle-vl-parser/task?access_token={TOKEN}",
        f"/rest/2.0/brain/online/v2/paddle-vl-parser/task?access_token={TOKEN}",
    ]
    assert TOKEN not in caplog.text
    assert "the-secret" not in caplog.text


@pytest.mark.parametrize("code", [110, 111])
async def test_a_refused_token_is_dropped(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is tried again soon, with another token, and nobody is alarmed."""
    monkeypatch.setattr(BaiduOcr, "token_fresh", timedelta())
    refused = Raw.of(refusal(code, f"Access token {TOKEN} expired"))
    server, raised = await with_client([MINTED, refused, MINTED, Raw.of(SUBMITTED)], calls=2)
    (error,) = raised
    assert isinstance(error, SubmitDeferred)
    assert error.retry_after is None
    assert TOKEN not in str(error)
    assert [each.target.partition("?")[0] for each in server.requests].count("/oauth/2.0/token") == 2
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_new_token_that_is_refused_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Another would be refused as well: an operator is told, and it waits for him."""
    refused = Raw.of(refusal(6, f"No permission to access data with {TOKEN}"))
    server, raised = await with_client([MINTED, refused, Raw.of(SUBMITTED)], calls=2)
    (error,) = raised
    assert isinstance(error, SubmitDeferred)
    assert error.retry_after == timedelta(minutes=1)
    assert len(server.requests) == 3
    assert "refuses account 'default'" in caplog.text
    assert TOKEN not in caplog.text + str(error)


async def test_a_ready_token_that_is_refused_waits() -> None:
    """There is no other: an operator has to bring one."""
    async with ScriptedServer([Raw.of(refusal(111, "expired"))]) as server:
        handler = BaiduOcr(ApiKey("24.token"), settings=settings(server.url))
        await handler.open()
        with pytest.raises(SubmitDeferred) as caught:
            await handler.submit(OcrRequest(url="https://x.test/a.pdf"), Claim().submit)
        await handler.close()
    assert caught.value.retry_after == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("reply", "code", "blames"),
    [
        (
            Raw.of({"error": "invalid_client", "error_description": "no the-secret"}, status=401),
            "invalid_client",
            False,
        ),
        (Raw.of({"error": "invalid_client", "error_description": "no"}), "invalid_client", False),
        (Raw.of(b"<html>", status=502), "provider_unavailable", True),
        (Raw.of({}), "unknown", True),
    ],
)
async def test_without_a_token_nothing_is_created(reply: Raw, code: str, *, blames: bool) -> None:
    """The submission is deferred, and the creating request not sent; the secret does not show."""
    server, raised = await with_client([reply], calls=1)
    (error,) = raised
    assert isinstance(error, SubmitDeferred)
    assert (error.code, error.blames_provider) == (code, blames)
    assert "the-secret" not in str(error)
    assert len(server.requests) == 1


async def test_a_token_without_an_end_is_kept() -> None:
    """Until it is refused."""
    server, raised = await with_client([Raw.of({"access_token": TOKEN}), Raw.of(SUBMITTED)], calls=2)
    assert not raised
    assert len(server.requests) == 3


# From end to end, against the sandbox.


def boxed(content: bytes, name: str) -> Recognition:
    """Return a text with its place."""
    words = describe(content, name)
    block = Block(text=words.blocks[0], left=1.0, top=2.0, right=11.0, bottom=22.0)
    return Recognition(pages=(RecognizedPage(blocks=(block,), width=100.0, height=200.0),))


@pytest.fixture
def protocol() -> BaiduProtocol:
    """The provider's words."""
    return BaiduProtocol()


@pytest.fixture
def sandbox(protocol: BaiduProtocol) -> Iterator[SandboxServer]:
    """A provider that speaks Baidu's protocol, without an OCR engine."""
    with SandboxServer(protocols=[protocol], recognizer=boxed) as server:
        yield server


def make(sandbox: SandboxServer, account: object) -> BaiduOcr:
    """Return a handler of the sandbox, closed."""
    return BaiduOcr(account, settings=HttpSettings(base_url=f"{sandbox.url}/baidu", allow_private=True))


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[BaiduOcr]:
    """A handler that is open."""
    made = make(sandbox, BaiduClient("any", "sandbox-key"))
    await made.open()
    yield made
    await made.close()


async def submitted(handler: BaiduOcr, sandbox: SandboxServer) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 10)
    return accepted.query_params


@pytest.mark.parametrize(
    "account",
    [ApiKey("bce-v3/sandbox-key"), ApiKey("sandbox-key"), BaiduClient("any", "sandbox-key")],
    ids=["bearer", "token", "client"],
)
async def test_a_document_is_read(sandbox: SandboxServer, account: object) -> None:
    """With any credential: submitted once, queried, and there are its text and its pages."""
    made = make(sandbox, account)
    await made.open()
    done = await made.query(await submitted(made, sandbox), Claim().query)
    await made.close()
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert done.result.pages[0].blocks[0].box == (1.0, 2.0, 11.0, 22.0)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


async def test_an_expired_token_is_replaced(
    sandbox: SandboxServer, protocol: BaiduProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query that meets it fails, and the next one has the result."""
    monkeypatch.setattr(BaiduOcr, "token_fresh", timedelta())
    made = make(sandbox, BaiduClient("any", "sandbox-key"))
    await made.open()
    query = await submitted(made, sandbox)
    protocol.expire_tokens()
    with pytest.raises(QueryFailed, match="111"):
        await made.query(query, Claim().query)
    assert (await made.query(query, Claim().query)).verdict is Verdict.SUCCEEDED
    await made.close()


async def test_jobs_may_fail_or_be_odd(handler: BaiduOcr, sandbox: SandboxServer) -> None:
    """A failed job says why; one without a result, with an unknown word, or that is not there is no success."""
    sandbox.faults.add(FailingJob(code="x", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the page is too dark")
    query = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="archived"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED
    nobody = QueryParams(external_task_id="nobody")
    assert (await handler.query(nobody, Claim().query)).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize(
    "account",
    [ApiKey("bce-v3/wrong"), ApiKey("wrong"), BaiduClient("any", "wrong")],
    ids=["bearer", "token", "client"],
)
async def test_a_wrong_credential_defers(sandbox: SandboxServer, account: object) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, account)
    await made.open()
    with pytest.raises(SubmitDeferred) as caught:
        await made.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await made.close()
    assert not caught.value.blames_provider
    assert sandbox.created_jobs("letter.jpg") == 0


async def test_missing_parameters_are_refused() -> None:
    """The provider's own code rejects the task."""
    async with ScriptedServer([Raw.of(refusal(282003, "missing parameters"))]) as server:
        handler = BaiduOcr(ApiKey("24.token"), settings=settings(server.url))
        await handler.open()
        with pytest.raises(SubmitRejected, match="missing parameters"):
            await handler.submit(OcrRequest(url="https://x.test/a.pdf"), Claim().submit)
        await handler.close()


@pytest.mark.parametrize(
    ("path", "form", "code"),
    [
        ("/task", {"file_url": "https://x.test/a.pdf"}, 282003),
        ("/task", {"file_name": "a.pdf"}, 282003),
        ("/task/query", {"task": "b1"}, 282003),
    ],
)
def test_the_sandbox_refuses_what_baidu_refuses(
    sandbox: SandboxServer, path: str, form: dict[str, str], code: int
) -> None:
    """In HTTP 200, with a code."""
    url = f"{sandbox.url}/baidu/rest/2.0/brain/online/v2/paddle-vl-parser{path}?access_token=sandbox-key"
    refused = httpx.post(url, data=form)
    assert (refused.status_code, refused.json()["error_code"]) == (200, code)


def test_the_sandbox_mints_for_clients_only(sandbox: SandboxServer) -> None:
    """And has no result of a job that is not done."""
    url = f"{sandbox.url}/baidu/oauth/2.0/token?client_id=any&client_secret=sandbox-key"
    assert httpx.post(f"{url}&grant_type=password").status_code == 400
    sandbox.jobs.delay = timedelta(hours=1)
    made = httpx.post(
        f"{sandbox.url}/baidu/rest/2.0/brain/online/v2/paddle-vl-parser/task?access_token=sandbox-key",
        data={"file_url": sandbox.page_url("letter.jpg"), "file_name": "letter.jpg"},
    ).json()["result"]["task_id"]
    assert httpx.get(f"{sandbox.url}/baidu/results/{made}/full.md").status_code == 404
