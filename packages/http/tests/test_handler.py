import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import ClassVar, TypeAlias

import pytest
from attrs import frozen

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    LeaseLost,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
    UnknownAccount,
    Unsupported,
)
from coatcheck.handler import CallContext, CancelContext, Capability, QueryContext, SubmitContext
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.secret import Secret
from coatcheck.task import CancelOutcome, QueryParams, Status
from coatcheck_http import (
    AnswerLost,
    ApiKey,
    ErrorClass,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobState,
    MintedToken,
    OutcomeUnknown,
    Prepared,
    PreparedContext,
    ProviderError,
    StatusMap,
    TokenCache,
    UnreadableAnswer,
    first_text,
    segment,
    wire,
)
from coatcheck_http.testing import Claim, Ending, Reply, ScriptedServer

STATUSES = StatusMap(waiting="queued", running="running", succeeded="done", failed="failed")
SECRET = "sk-very/secret+key"
JOB = QueryParams(external_task_id="job 1/2")
SECOND = timedelta(seconds=1)


@frozen(kw_only=True)
class Job:
    """What the handler of these tests takes."""

    name: str = "a"


class JobHandler(HttpHandler[Job]):
    """A handler of the simplest kind."""

    key = "test:jobs"
    default_base_url: ClassVar[str | None] = "https://jobs.example.com"

    def build_submit(self, params: Job, context: PreparedContext) -> HttpRequest:
        """Create a job."""
        return HttpRequest.post("/jobs", json={"name": params.name, "key": context.idempotency_key})

    def parse_submit(self, response: HttpResponse, params: Job, context: PreparedContext) -> SubmitResult:
        """Return its id."""
        return SubmitResult.accepted(first_text(response.json_object(), "id") or "")

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Ask for it, at the stored URL if there is one."""
        url = params.provider_params.get("url", f"/jobs/{segment(params.external_task_id)}")
        return HttpRequest.get(str(url))

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return how it is."""
        body = response.json_object()
        word = first_text(body, "status") or ""
        if STATUSES.state_of(word) is JobState.SUCCEEDED:
            return QueryResult.succeeded(body.get("result"), provider_status=word)
        return STATUSES.ongoing(word)


Open: TypeAlias = Callable[..., Awaitable[JobHandler]]


@pytest.fixture
def claim() -> Claim:
    """A claim that is held."""
    return Claim()


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Open handlers, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(
            base_url: str, kind: type[JobHandler] = JobHandler, **settings: object
        ) -> JobHandler:
            made = HttpSettings(base_url=base_url, **settings)  # type: ignore[arg-type] # as tests like
            handler = kind(ApiKey(SECRET), settings=made)
            stack.push_async_callback(handler.close)
            await handler.open()
            return handler

        yield open_one


ACCEPTED = Reply.of({"id": "job-1"})


# Submissions.


async def test_an_accepted_job_is_submitted(opened: Open, claim: Claim) -> None:
    """One request with the account's key creates the job, and the id comes back."""
    async with ScriptedServer([ACCEPTED]) as server:
        handler = await opened(f"{server.url}/v1/")
        result = await handler.submit(Job(), claim.submit)
    assert result.status is Status.SUBMITTED
    assert result.query_params == QueryParams(external_task_id="job-1")
    (sent,) = server.requests
    assert (sent.method, sent.target, sent.body) == ("POST", "/v1/jobs", b'{"name": "a", "key": "key-1"}')
    assert sent.headers["authorization"] == f"Bearer {SECRET}"
    assert sent.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(),
        Reply(ending=Ending.RESET),
        Reply(ending=Ending.STALL),
        Reply(raw=b"\x00\xff no http at all\r\n\r\n"),
        Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"),
        Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", ending=Ending.STALL),
        Reply(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 3, ending=Ending.STALL),
        Reply(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
        Reply.of(b"<html>welcome</html>"),
        Reply.of(b""),
        Reply.of({"ok": True}),
        Reply.of({"id": " "}),
        Reply.of([1]),
        Reply.of(b"{" * 100_000),
        Reply.of(b'{"id": NaN}'),
        Reply.of(b" " * 3000),
        Reply.of(b"\x1f\x8b garbage", headers={"content-encoding": "gzip"}),
        Reply.of(b"x", headers={"content-encoding": "br"}),
        Reply.of({"error": "boom"}, status=500),
        Reply.of({"error": {"code": "rate_limit_exceeded"}}, status=500),
        Reply.of(b"<html>", status=502),
        Reply.of(b"", status=503, headers={"retry-after": "3"}),
        Reply.of(b"", status=504),
        Reply.of(b"", status=301, headers={"location": "https://elsewhere.example.com/"}),
        Reply.of(b"", status=302, headers={"location": "/jobs/1"}),
        Reply.of(b"", status=303, headers={"location": "/jobs/1"}),
        Reply.of(b"", status=304),
        Reply.of(b"", status=408),
    ],
)
async def test_an_unclear_answer_leaves_the_outcome_unknown(opened: Open, claim: Claim, reply: Reply) -> None:
    """Whatever does not prove that the job exists or not is neither a rejection nor a deferral, and sent once."""
    async with ScriptedServer([reply]) as server:
        timeout = SECOND / 5 if reply.ending is Ending.STALL else SECOND * 5
        handler = await opened(server.url, read_timeout=timeout, max_answer_bytes=2000)
        with pytest.raises((AnswerLost, OutcomeUnknown, UnreadableAnswer)) as caught:
            await handler.submit(Job(), claim.submit)
        assert not isinstance(caught.value, (SubmitRejected, SubmitDeferred, InvalidParams))
        assert len(server.requests) == 1
        assert claim.asked == 1


async def test_an_answer_that_never_ends_is_given_up(opened: Open, claim: Claim) -> None:
    """A server that sends something ever so often is cut off by the timeout of the whole exchange."""
    drip = Reply(raw=b"HTTP/1.1 102 Processing\r\n\r\n", ending=Ending.STALL)
    async with ScriptedServer([drip]) as server:
        handler = await opened(server.url, exchange_timeout=SECOND / 5)
        with pytest.raises(AnswerLost, match="no complete answer within"):
            await handler.submit(Job(), claim.submit)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"code": "bad_url", "message": "no such page"}}, "bad_url"),
        (404, {"detail": "no such model"}, "not_found_or_expired"),
        (409, {"code": 17, "msg": "twice"}, "17"),
        (413, None, "too_large"),
        (415, None, "unsupported_input"),
        (422, {"message": "pages"}, "invalid_request"),
        (451, None, "invalid_request"),
    ],
)
async def test_a_refused_request_is_rejected(
    opened: Open, claim: Claim, status: int, body: dict[str, object] | None, code: str
) -> None:
    """An answer of 4xx that only the caller can mend ends the task, with the provider's code and words."""
    reply = Reply.of(b"" if body is None else body, status=status)  # type: ignore[arg-type] # plain JSON
    async with ScriptedServer([reply]) as server:
        handler = await opened(server.url)
        with pytest.raises(SubmitRejected) as caught:
            await handler.submit(Job(), claim.submit)
    assert caught.value.code == code
    assert f"HTTP {status}" in str(caught.value)
    assert len(server.requests) == 1


async def test_a_rejection_whose_body_breaks_off_is_one(opened: Open, claim: Claim) -> None:
    """The status line of a 4xx proves enough: a body that is cut, endless or too large takes nothing away."""
    head = b"HTTP/1.1 422 No\r\ncontent-length: 5000\r\n\r\n"
    async with ScriptedServer([Reply(raw=head + b'{"mess'), Reply(raw=head + b" " * 5000)]) as server:
        handler = await opened(server.url, max_answer_bytes=1000)
        for _ in range(2):
            with pytest.raises(SubmitRejected):
                await handler.submit(Job(), claim.submit)


async def test_a_rejection_whose_body_stalls_is_one(
    opened: Open, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits long for the words to a refusal."""
    monkeypatch.setattr(wire, "ERROR_BODY_SECONDS", 0.1)
    head = b"HTTP/1.1 422 No\r\ncontent-length: 5000\r\n\r\n{"
    async with ScriptedServer([Reply(raw=head, ending=Ending.STALL)]) as server:
        with pytest.raises(SubmitRejected):
            await (await opened(server.url)).submit(Job(), claim.submit)


class Adopting(JobHandler):
    """A handler of a provider that takes our reference and answers 409 if it has it."""

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Take "already exists" for a good answer."""
        return None if response.status == 409 else super().read_error(response)


async def test_our_own_job_is_adopted(opened: Open, claim: Claim) -> None:
    """A 409 that names the job of our own reference is the job."""
    async with ScriptedServer([Reply.of({"id": "job-7"}, status=409)]) as server:
        result = await (await opened(server.url, Adopting)).submit(Job(), claim.submit)
    assert result.query_params == QueryParams(external_task_id="job-7")


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        (None, None),
        ("7", timedelta(seconds=7)),
        ("1.5", timedelta(seconds=1.5)),
        ("0", None),
        ("-5", None),
        ("864000", timedelta(hours=1)),
        ("9" * 400, timedelta(hours=1)),
        ("Thu, 01 Jan 2026 00:00:30 GMT", timedelta(seconds=30)),
        ("Wed, 31 Dec 2025 00:00:00 GMT", None),
        ("soon", None),
        ("", None),
    ],
)
async def test_a_rate_limit_defers_and_says_for_how_long(
    opened: Open, claim: Claim, value: str | None, wait: timedelta | None
) -> None:
    """A 429 with Retry-After in any form, or none, defers, asks to slow down, and never crashes."""
    headers = {} if value is None else {"retry-after": value}
    async with ScriptedServer([Reply.of(b"", status=429, headers=headers)]) as server:
        handler = await opened(server.url)
        with pytest.raises(SubmitDeferred) as caught:
            await handler.submit(Job(), claim.submit)
    assert caught.value.rate_limited
    assert (caught.value.retry_after or timedelta()) == (wait or timedelta())
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "insufficient_quota", "message": "you exceeded your quota"}},
        {"code": 1113, "message": "余额不足"},
        {"error": {"message": "Please check your plan and billing details"}},
    ],
)
async def test_a_429_about_money_is_no_rate_limit(
    opened: Open, claim: Claim, body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """It is deferred for minutes and alarmed, since somebody has to pay, and pauses nobody's gate."""
    reply = Reply.of(body, status=429)  # type: ignore[arg-type] # plain JSON
    async with ScriptedServer([reply]) as server:
        handler = await opened(server.url)
        with pytest.raises(SubmitDeferred) as caught:
            await handler.submit(Job(), claim.submit)
    assert not caught.value.rate_limited
    assert caught.value.retry_after == timedelta(minutes=5)
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_what_an_operator_can_mend_defers_and_alarms(
    opened: Open, claim: Claim, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that has expired, or an empty balance, fails none of the tasks that wait."""
    async with ScriptedServer([Reply.of({"message": f"bad key {SECRET}"}, status=status)]) as server:
        handler = await opened(server.url)
        with pytest.raises(SubmitDeferred) as caught:
            await handler.submit(Job(), claim.submit)
        with pytest.raises(SubmitDeferred):
            await handler.submit(Job(), claim.submit)
    assert not caught.value.rate_limited
    assert (caught.value.retry_after or timedelta()) >= timedelta(minutes=1)
    assert [each.levelno for each in caplog.records] == [logging.ERROR], "once a minute is enough"
    assert SECRET not in caplog.text + str(caught.value)


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_that_says_not_here_defers(opened: Open, claim: Claim, status: int) -> None:
    """307 and 308 say that nothing was done; they are not followed, so the credentials stay here."""
    async with ScriptedServer([ACCEPTED]) as other:
        moved = Reply.of(b"", status=status, headers={"location": f"{other.url}/jobs?token=hidden"})
        async with ScriptedServer([moved]) as server:
            handler = await opened(server.url)
            with pytest.raises(SubmitDeferred, match="base_url") as caught:
                await handler.submit(Job(), claim.submit)
        assert other.requests == []
    assert "hidden" not in str(caught.value)


class Declaring(JobHandler):
    """A handler of a provider that documents what its errors mean."""

    not_created_statuses = frozenset({503})
    not_created_codes = frozenset({"busy"})
    error_codes = {"E7": ErrorClass.INVALID_REQUEST, "E8": ErrorClass.PROVIDER_UNAVAILABLE}  # noqa: RUF012 - as ClassVar

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Look for errors in good answers, too."""
        good = response.ok and first_text(response.json(), "id") is not None
        return None if good else self.error_of(response)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply.of(b"", status=503), SubmitDeferred),
        (Reply.of(b"", status=500), OutcomeUnknown),
        (Reply.of({"code": "busy"}, status=500), SubmitDeferred),
        (Reply.of({"code": "E7"}, status=500), SubmitRejected),
        (Reply.of({"code": "E8"}, status=500), OutcomeUnknown),
        (Reply.of({"code": "E8"}), OutcomeUnknown),
        (Reply.of({"code": "internal_error"}), OutcomeUnknown),
        (Reply.of({"code": "E7", "message": "no"}), SubmitRejected),
        (Reply.of({"code": 4711, "message": "no"}), SubmitRejected),
        (Reply.of({"code": "Throttling.User"}), SubmitDeferred),
        (Reply.of({"code": "server_error"}, status=400), SubmitDeferred),
    ],
)
async def test_declarations_of_the_handler_make_answers_certain(
    opened: Open, claim: Claim, reply: Reply, error: type[HandlerError]
) -> None:
    """A 5xx, or an error in a good answer, proves as much as the handler says, and the code goes first."""
    async with ScriptedServer([reply]) as server:
        handler = await opened(server.url, Declaring)
        with pytest.raises(error):
            await handler.submit(Job(), claim.submit)


# Before the wire.


async def test_a_refused_connection_defers(opened: Open, claim: Claim) -> None:
    """Where nobody listens nothing was created, and the wire was never begun."""
    async with ScriptedServer([ACCEPTED]) as server:
        gone = server.url
    handler = await opened(gone)
    with pytest.raises(SubmitDeferred, match="nothing was sent"):
        await handler.submit(Job(), claim.submit)
    assert claim.asked == 0


async def test_an_unknown_host_defers(opened: Open, claim: Claim) -> None:
    """A name that cannot be looked up is certain, too."""
    handler = await opened("https://nowhere.invalid")
    with pytest.raises(SubmitDeferred, match="nothing was sent"):
        await handler.submit(Job(), claim.submit)
    assert claim.asked == 0


async def test_a_failed_handshake_defers(opened: Open, claim: Claim) -> None:
    """Before TLS stands no request is written."""
    async with ScriptedServer([Reply(raw=b"this is no TLS")]) as server:
        handler = await opened(server.url.replace("http:", "https:"), connect_timeout=SECOND / 5)
        with pytest.raises(SubmitDeferred, match="nothing was sent"):
            await handler.submit(Job(), claim.submit)
    assert claim.asked == 0
    assert server.requests == []


async def test_a_handshake_that_stalls_defers(opened: Open, claim: Claim) -> None:
    """The time allowed for the connection ends it."""
    async with ScriptedServer([Reply(ending=Ending.STALL)]) as server:
        handler = await opened(server.url.replace("http:", "https:"), connect_timeout=SECOND / 5)
        with pytest.raises(SubmitDeferred, match="nothing was sent"):
            await handler.submit(Job(), claim.submit)
    assert claim.asked == 0


async def test_a_lost_claim_writes_nothing(opened: Open) -> None:
    """`ensure_held` is asked when the connection stands; if it raises, not a byte of the request is sent."""
    claim = Claim(lost=LeaseLost("gone"))
    async with ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url)
        with pytest.raises(LeaseLost):
            await handler.submit(Job(), claim.submit)
        assert (server.connections, server.requests) == (1, [])


async def test_the_claim_is_asked_once_and_last(opened: Open) -> None:
    """When the claim is asked for, the connection stands, and nothing has been sent."""
    async with ScriptedServer([ACCEPTED]) as server:
        seen: list[int] = []
        claim = Claim(when_asked=lambda: seen.append(len(server.requests)))
        handler = await opened(server.url)
        await handler.submit(Job(), claim.submit)
        await handler.query(JOB.evolve(url="/x"), claim.query)
    assert seen == [0, 1]


async def test_each_submission_has_a_connection_of_its_own(opened: Open, claim: Claim) -> None:
    """A kept connection may be dead already, and would then leave the outcome unknown; queries keep theirs."""
    async with ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url)
        await handler.query(JOB, claim.query)
        for _ in range(2):
            await handler.submit(Job(), claim.submit)
        await handler.query(JOB, claim.query)
        assert server.connections == 3


async def test_an_unknown_account_sends_nothing(opened: Open) -> None:
    """A task that names an account that the handler was not given is no reason to connect."""
    claim = Claim(account_id="cn")
    async with ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url)
        with pytest.raises(UnknownAccount, match="'cn'"):
            await handler.submit(Job(), claim.submit)
        assert server.connections == 0


async def test_a_handler_without_accounts_says_so(claim: Claim) -> None:
    """A process that only submits tasks needs no account; a worker does."""
    handler = JobHandler()
    await handler.open()
    with pytest.raises(UnknownAccount, match="none"):
        await handler.submit(Job(), claim.submit)
    await handler.close()


async def test_a_handler_that_is_not_open_defers(claim: Claim) -> None:
    """Nothing can have been sent."""
    with pytest.raises(SubmitDeferred, match="not open"):
        await JobHandler(ApiKey("k")).submit(Job(), claim.submit)


async def test_a_key_that_fits_no_header_sends_nothing(claim: Claim) -> None:
    """A line break in a key is a matter of configuration, and the key is not in the message."""
    async with ScriptedServer([ACCEPTED]) as server:
        handler = JobHandler(ApiKey("sk-broken\n"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(ConfigurationError, match="line break") as caught:
            await handler.submit(Job(), claim.submit)
        await handler.close()
        assert "sk-broken" not in str(caught.value)
        assert server.connections == 0


class Preparing(JobHandler):
    """A handler that asks something and fetches the document beforehand."""

    url = ""

    async def prepare(self, params: Job, context: SubmitContext) -> Prepared:
        """Sign up, and download."""
        await self.ask(HttpRequest.get("/sign-up"), context)
        return Prepared(files={"it": await self.download(self.url)}, values={"by": "me"})

    def build_submit(self, params: Job, context: PreparedContext) -> HttpRequest:
        """Send the text of the document."""
        got = context.prepared
        return HttpRequest.post("/jobs", json={"text": got.files["it"].text, "by": got.values["by"]})


async def test_what_is_prepared_is_there_to_build_with(opened: Open, claim: Claim) -> None:
    """`prepare` may do I/O; the wire of the submission begins only after it."""
    async with ScriptedServer([Reply.of(b"words")]) as files, ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url, Preparing, allow_private=True)
        Preparing.url = f"{files.url}/doc.txt"
        await handler.submit(Job(), claim.submit)
    assert [each.method for each in server.requests] == ["GET", "POST"]
    assert server.requests[1].body == b'{"text": "words", "by": "me"}'
    assert "authorization" not in files.requests[0].headers
    assert claim.asked == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, InvalidParams), (403, InvalidParams), (500, SubmitDeferred), (429, SubmitDeferred)],
)
async def test_a_document_that_cannot_be_had_is_certain(
    opened: Open, claim: Claim, status: int, error: type[Exception]
) -> None:
    """What is missing for good fails the task, what may come back defers it; the provider hears nothing."""
    async with ScriptedServer([Reply.of(b"", status=status)]) as files, ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url, Preparing, allow_private=True)
        Preparing.url = f"{files.url}/doc.txt?signature=hidden"
        with pytest.raises(error, match=f"HTTP {status}") as caught:
            await handler.submit(Job(), claim.submit)
    assert "hidden" not in str(caught.value)
    assert server.sent("POST") == []
    assert claim.asked == 0


# Queries.


async def test_an_ongoing_job_is_queried_once(opened: Open, claim: Claim) -> None:
    """One GET, with the id as one segment of the path; the provider's hint comes along."""
    reply = Reply.of({"status": "Queued"}, headers={"retry-after": "4"})
    async with ScriptedServer([reply]) as server:
        handler = await opened(server.url)
        result = await handler.query(JOB, claim.query)
    assert (result.verdict, result.status) == (Verdict.RUNNING, Status.SUBMITTED)
    assert (result.provider_status, result.retry_after) == ("Queued", timedelta(seconds=4))
    assert [each.target for each in server.requests] == ["/jobs/job%201%2F2"]


async def test_an_unlisted_word_is_named(opened: Open, claim: Claim) -> None:
    """A status that the handler does not know is never taken for running."""
    async with ScriptedServer([Reply.of({"status": "aborted"})]) as server:
        result = await (await opened(server.url)).query(JOB, claim.query)
    assert (result.verdict, result.provider_status) == (Verdict.UNLISTED, "aborted")


@pytest.mark.parametrize("status", [404, 410])
async def test_a_missing_job_is_not_found(opened: Open, claim: Claim, status: int) -> None:
    """Whether that means "not yet" or "lost" is for the worker to judge."""
    async with ScriptedServer([Reply.of({"message": "no such job"}, status=status)]) as server:
        result = await (await opened(server.url)).query(JOB, claim.query)
    assert result.verdict is Verdict.NOT_FOUND
    assert "no such job" in (result.error_message or "")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(),
        Reply(ending=Ending.RESET),
        Reply(ending=Ending.STALL),
        Reply(raw=b"garbage\r\n\r\n"),
        Reply.of(b"<html>"),
        Reply.of(b" " * 3000),
        Reply.of(b"", status=302, headers={"location": "/elsewhere"}),
        Reply.of(b"", status=400),
        Reply.of(b"", status=500),
        Reply.of(b"", status=503, headers={"retry-after": "Thu, 99 Foo"}),
    ],
)
async def test_an_unanswered_query_fails_and_is_no_verdict(opened: Open, claim: Claim, reply: Reply) -> None:
    """Whatever goes wrong with a query says nothing about the job, and is not asked twice."""
    async with ScriptedServer([reply]) as server:
        timeout = SECOND / 5 if reply.ending is Ending.STALL else SECOND * 5
        handler = await opened(server.url, read_timeout=timeout, max_answer_bytes=2000)
        with pytest.raises(QueryFailed) as caught:
            await handler.query(JOB, claim.query)
        assert caught.value.code
        assert len(server.requests) == 1


async def test_a_rate_limited_query_asks_to_slow_down(opened: Open, claim: Claim) -> None:
    """A 429 to a query pauses queries for as long as the provider says."""
    async with ScriptedServer([Reply.of(b"", status=429, headers={"retry-after": "9"})]) as server:
        with pytest.raises(QueryFailed) as caught:
            await (await opened(server.url)).query(JOB, claim.query)
    assert (caught.value.rate_limited, caught.value.retry_after) == (True, timedelta(seconds=9))


class Failing(JobHandler):
    """A handler of a provider that tells of failed jobs by an error."""

    error_codes = {"-60010": ErrorClass.TASK_FAILED, "gone": ErrorClass.NOT_FOUND_OR_EXPIRED}  # noqa: RUF012 - as ClassVar


async def test_codes_tell_failed_and_lost_jobs(opened: Open, claim: Claim) -> None:
    """A job that failed is FAILED with the provider's words, though they came as an error."""
    failed = Reply.of({"code": -60010, "msg": f"cannot parse {SECRET}"}, status=400)
    async with ScriptedServer([failed, Reply.of({"code": "gone"}, status=400)]) as server:
        handler = await opened(server.url, Failing)
        result = await handler.query(JOB, claim.query)
        lost = await handler.query(JOB, claim.query)
    assert (result.verdict, result.error_code) == (Verdict.FAILED, "-60010")
    assert result.error_message == "cannot parse ***"
    assert lost.verdict is Verdict.NOT_FOUND


async def test_a_lost_claim_asks_nothing(opened: Open) -> None:
    """A query for a claim that was given up is not sent."""
    async with ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url)
        with pytest.raises(LeaseLost):
            await handler.query(JOB, Claim(lost=LeaseLost("gone")).query)
        assert server.requests == []


async def test_an_inline_result_is_taken_as_it_is(opened: Open, claim: Claim) -> None:
    """A result in the answer itself takes no second request."""
    async with ScriptedServer([Reply.of({"status": "done", "result": {"pages": 2}})]) as server:
        result = await (await opened(server.url)).query(JOB, claim.query)
        assert len(server.requests) == 1
    assert (result.verdict, result.result) == (Verdict.SUCCEEDED, {"pages": 2})


class Fetching(JobHandler):
    """A handler whose results are elsewhere."""

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Download the result."""
        return QueryResult.succeeded((await self.download(str(result.result))).text)


async def test_a_result_elsewhere_is_fetched_at_once(opened: Open, claim: Claim) -> None:
    """The query that says done captures the result, without credentials, before its URL ends."""
    async with ScriptedServer([Reply.of(b"# T"), Reply.of(b"", status=403)]) as files:
        done = Reply.of({"status": "done", "result": f"{files.url}/r.md?sig=hidden"})
        async with ScriptedServer([done]) as server:
            handler = await opened(server.url, Fetching, allow_private=True)
            result = await handler.query(JOB, claim.query)
            with pytest.raises(QueryFailed, match="HTTP 403") as caught:
                await handler.query(JOB, claim.query)
    assert (result.verdict, result.result) == (Verdict.SUCCEEDED, "# T")
    assert "authorization" not in files.requests[0].headers
    assert "hidden" not in str(caught.value)


async def test_credentials_go_to_trusted_origins_only(opened: Open, claim: Claim) -> None:
    """A URL from the provider's answer is asked only if it is of the base URL's origin, or named as trusted."""
    going = Reply.of({"status": "running"})
    async with ScriptedServer([going]) as other, ScriptedServer([going]) as server:
        handler = await opened(server.url)
        own = await handler.query(JOB.evolve(url=f"{server.url}/poll/1"), claim.query)
        for foreign in (
            other.url,
            "http://user@evil.example",
            server.url.replace("http:", "https:"),
            "ftp://x",
        ):
            with pytest.raises(QueryFailed, match="credentials") as caught:
                await handler.query(JOB.evolve(url=f"{foreign}/poll/1"), claim.query)
            assert caught.value.code == "untrusted_url"
        assert (other.connections, len(server.requests)) == (0, 1)
        with pytest.raises(ConfigurationError):
            await opened(server.url, trusted_origins=["other.example.com"])
        trusting = await opened(server.url, trusted_origins=[other.url])
        await trusting.query(JOB.evolve(url=f"{other.url}/poll/1"), claim.query)
    assert own.verdict is Verdict.RUNNING
    assert other.requests[0].headers["authorization"] == f"Bearer {SECRET}"


# Cancelling.


class Cancelling(JobHandler):
    """A handler that can cancel."""

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Cancel."""
        return HttpRequest.post(f"/jobs/{segment(params.external_task_id)}/cancel")


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply.of({}), CancelOutcome.CONFIRMED),
        (Reply.of({}, status=204), CancelOutcome.CONFIRMED),
        (Reply.of({}, status=409), CancelOutcome.REFUSED),
        (Reply.of({}, status=404), CancelOutcome.REFUSED),
        (Reply.of({}, status=401), CancelOutcome.UNKNOWN),
        (Reply.of({}, status=429), CancelOutcome.UNKNOWN),
        (Reply.of({}, status=503), CancelOutcome.UNKNOWN),
        (Reply(), CancelOutcome.UNKNOWN),
    ],
)
async def test_a_cancel_tells_what_came_of_it(
    opened: Open, claim: Claim, reply: Reply, outcome: CancelOutcome
) -> None:
    """One request, and the status of its answer says whether the job is cancelled."""
    async with ScriptedServer([reply]) as server:
        handler = await opened(server.url, Cancelling)
        assert await handler.cancel(JOB, claim.cancel) is outcome
        assert len(server.requests) == 1


async def test_cancel_is_a_capability_of_those_who_build_it(claim: Claim) -> None:
    """The base class delegates, which alone gives no capability."""
    assert Capability.CANCEL not in JobHandler().capabilities
    assert Capability.CANCEL in Cancelling().capabilities
    with pytest.raises(Unsupported):
        await JobHandler(ApiKey("k")).cancel(JOB, claim.cancel)


# Accounts, tokens and secrets.


class Minting(JobHandler):
    """A handler with credentials that are minted, and sent in the query string."""

    minted = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type] # handed on
        self.tokens: TokenCache[str | None] = TokenCache(self._mint)

    async def _mint(self, account_id: str | None) -> MintedToken:
        self.minted += 1
        return MintedToken(token=Secret(f"token-{self.minted}"))

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Add the token to the query."""
        return request.with_query(access_token=(await self.tokens.get(context.account_id)).reveal())

    def credentials_refused(self, context: CallContext) -> bool:
        """Mint another."""
        return self.tokens.drop(context.account_id)


async def test_refused_tokens_are_minted_anew_at_the_next_try(
    opened: Open, claim: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    """A minted token that has ended early costs one attempt, no waiting, and nobody's attention."""
    async with ScriptedServer([ACCEPTED, Reply.of({}, status=401), ACCEPTED]) as server:
        handler = await opened(server.url, Minting)
        await handler.submit(Job(), claim.submit)
        with pytest.raises(SubmitDeferred) as caught:
            await handler.submit(Job(), claim.submit)
        await handler.submit(Job(), claim.submit)
    assert caught.value.retry_after is None
    tokens = [each.target.partition("?")[2] for each in server.requests]
    assert tokens == ["access_token=token-1", "access_token=token-1", "access_token=token-2"]
    assert caplog.records == []


async def test_tokens_in_the_query_are_never_logged(
    opened: Open, claim: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    """No logger of ours or of the HTTP library gets to see them, at any level."""
    caplog.set_level(logging.DEBUG)
    async with ScriptedServer([ACCEPTED]) as server:
        await (await opened(server.url, Minting)).submit(Job(), claim.submit)
        await (await opened(server.url)).submit(Job(), claim.submit)
    assert "token-1" not in caplog.text
    assert SECRET not in caplog.text


class Leaking(JobHandler):
    """A handler that puts its key into whatever it raises."""

    def parse_submit(self, response: HttpResponse, params: Job, context: PreparedContext) -> SubmitResult:
        """Raise, with a cause."""
        key = self.account(context).api_key.reveal()
        raise KeyError(f"outer {key}") from ValueError(f"inner {key}")


async def test_secrets_are_taken_out_of_errors_and_their_causes(opened: Open, claim: Claim) -> None:
    """Neither the error nor what led to it shows the account's key."""
    async with ScriptedServer([ACCEPTED]) as server:
        with pytest.raises(OutcomeUnknown) as caught:
            await (await opened(server.url, Leaking)).submit(Job(), claim.submit)
    error: BaseException | None = caught.value
    shown = []
    while error is not None:
        shown.append(str(error))
        error = error.__cause__
    assert len(shown) == 3
    assert not any(SECRET in each for each in shown)


async def test_one_handler_serves_many_accounts(claim: Claim) -> None:
    """Each call goes with the key of its own account, and no cookie of another."""
    cookie = Reply.of({"id": "j"}, headers={"set-cookie": "session=1"})
    async with ScriptedServer([cookie]) as server:
        accounts = {"default": ApiKey("key-one"), "cn": ApiKey("key-two")}
        handler = JobHandler(accounts, settings=HttpSettings(base_url=server.url))
        await handler.open()
        await handler.submit(Job(), claim.submit)
        await handler.submit(Job(), Claim(account_id="cn").submit)
        await handler.close()
    assert [each.headers["authorization"] for each in server.requests] == ["Bearer key-one", "Bearer key-two"]
    assert not any("cookie" in each.headers for each in server.requests)


class Pair:
    """Another kind of account."""


def test_a_handler_takes_its_kind_of_account(claim: Claim) -> None:
    """An account of another kind is a matter of configuration, said with both names."""
    pair = Pair()
    assert JobHandler(pair).account(claim.submit, Pair) is pair
    with pytest.raises(ConfigurationError, match="ApiKey, not Pair"):
        JobHandler(pair).account(claim.submit)


async def test_proxies_of_the_environment_are_not_used(
    opened: Open, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable in somebody's shell sends no paid call elsewhere."""
    async with ScriptedServer([ACCEPTED]) as proxy, ScriptedServer([ACCEPTED]) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        await (await opened(server.url)).submit(Job(), claim.submit)
        assert (proxy.connections, len(server.requests)) == (0, 1)


async def test_a_proxy_of_the_settings_is_used(opened: Open, claim: Claim) -> None:
    """A proxy that refuses the tunnel is certain to have created nothing."""
    async with ScriptedServer([Reply.of(b"", status=407)]) as proxy:
        handler = await opened("https://jobs.example.com", proxy=Secret(proxy.url))
        with pytest.raises(SubmitDeferred, match="nothing was sent"):
            await handler.submit(Job(), claim.submit)
    assert [each.method for each in proxy.requests] == ["CONNECT"]
    assert SECRET not in str(proxy.requests[0].headers)
    assert claim.asked == 0


def test_a_handler_can_bear_another_key() -> None:
    """Two instances with two base URLs are two handlers, each with its own limits."""
    handler = JobHandler(key="test:eu", settings=HttpSettings(base_url="https://eu.example.com"))
    assert (handler.key, handler.provider_key) == ("test:eu", "test:eu")
    assert (JobHandler().key, JobHandler().provider_key) == ("test:jobs", "test:jobs")


class Homeless(JobHandler):
    """A handler of a self-hosted server."""

    default_base_url = None


def test_a_self_hosted_provider_needs_a_base_url() -> None:
    """It is asked for at once, not at the first call."""
    with pytest.raises(ConfigurationError, match="base_url"):
        Homeless()


async def test_calls_of_many_tasks_run_together(opened: Open, claim: Claim) -> None:
    """No limit of connections of its own stands in the worker's way."""
    async with ScriptedServer([ACCEPTED]) as server:
        handler = await opened(server.url)
        await asyncio.gather(*(handler.submit(Job(), claim.submit) for _ in range(150)))
        assert len(server.sent("POST")) == 150
