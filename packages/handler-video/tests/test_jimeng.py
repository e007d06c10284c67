import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
from coatcheck.handler import Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_conformance.handler.replies import Received
from coatcheck_handler_video import ApiKey, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.jimeng import JimengVideo, JimengVideoSettings
from coatcheck_handler_video.jimeng_signing import VolcengineAccount, sign
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import Answer, FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.jimeng_video import JimengVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "7392616336519610409"
MODEL = "jimeng_vgfm_t2v_l20"
JOB = QueryParams(external_task_id=ID, provider_params={"req_key": MODEL})
VIDEO = "https://files.example.com/a.mp4"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
ACCOUNT = VolcengineAccount(access_key_id="AKLTone", secret_access_key="secret-key-of-one")
OTHER = VolcengineAccount(access_key_id="AKLTother", secret_access_key="secret-key-of-another")


def envelope(data: JSON, code: int = 10000, message: str = "Success") -> dict[str, JSON]:
    """Return an answer, with what goes with every one."""
    return {"code": code, "data": data, "message": message, "request_id": "r1", "status": code}


def status(word: str) -> JSON:
    """Return the answer to a query of a job in this state."""
    url = VIDEO if word == "done" else ""
    return envelope({"status": word, "video_url": url, "image_urls": None, "resp_data": ""})


def creates(request: Received) -> bool:
    """Whether a request is one that creates a job: all go to one path."""
    return "Action=CVSync2AsyncSubmitTask" in request.target


def jimeng_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as it is known; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.jimeng:JimengVideo",
        key="video:jimeng",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", model="jimeng_ti2v_v30_pro",
            options={"logo_info": {"add_logo": False}},
        ),
        settings=lambda url: JimengVideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": OTHER},
        creating_request=creates,
        script=Script(
            job=ID,
            accepted=KitReply.of(envelope({"task_id": ID})),
            status=status,
            words={
                "in_queue": Means.WAITING,
                "generating": Means.RUNNING,
                "done": Means.SUCCEEDED,
                "expired": Means.FAILED,
            },
            rejected=KitReply.of(envelope(None, 50412, "Text Risk Not Pass"), status=400),
            rate_limited=KitReply.of(
                envelope(None, 50429, "Request Has Reached API Limit, Please Try Later"), status=429
            ),
            not_found=KitReply.of(envelope({"status": "not_found"})),
            error=lambda message: envelope(None, 50500, message),
            done_without_result=KitReply.of(envelope({"status": "done", "video_url": ""})),
        ),
        answer_limit_bytes=4 * MIB,
    )  # fmt: skip


class TestJimengVideo(HandlerConformance):
    """The handler of Jimeng keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as it is known."""
        return jimeng_spec()


# Signatures.

POST = HttpRequest.post(
    "https://visual.volcengineapi.com/",
    query={"Version": "2022-08-31", "Action": "CVSync2AsyncSubmitTask"},
    json={"req_key": "r", "prompt": "海浪"},
)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_signature_covers_the_whole_request() -> None:
    """Here is its text step by step, as the provider's SDK puts it together."""
    signed = sign(POST.encoded(), ACCOUNT, region="cn-north-1", service="cv", signed_at=AT)
    digest = hashlib.sha256('{"req_key": "r", "prompt": "海浪"}'.encode()).hexdigest()
    canonical = (
        "POST\n"
        "/\n"
        "Action=CVSync2AsyncSubmitTask&Version=2022-08-31\n"
        "content-type:application/json\n"
        "host:visual.volcengineapi.com\n"
        f"x-content-sha256:{digest}\n"
        "x-date:20260102T030405Z\n"
        "\n"
        "content-type;host;x-content-sha256;x-date\n"
        f"{digest}"
    )
    text = (
        "HMAC-SHA256\n20260102T030405Z\n20260102/cn-north-1/cv/request\n"
        f"{hashlib.sha256(canonical.encode()).hexdigest()}"
    )
    key = b"secret-key-of-one"
    for step in ("20260102", "cn-north-1", "cv", "request"):
        key = hmac.digest(key, step.encode(), "sha256")
    assert signed.headers["authorization"] == (
        "HMAC-SHA256 Credential=AKLTone/20260102/cn-north-1/cv/request, "
        "SignedHeaders=content-type;host;x-content-sha256;x-date, "
        f"Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
    )
    assert (signed.headers["x-date"], signed.headers["x-content-sha256"]) == ("20260102T030405Z", digest)


@pytest.mark.parametrize(
    "other",
    [
        evolve(POST, method="PUT"),
        evolve(POST, url="https://visual.volcengineapi.com/other"),
        evolve(POST, url="https://visual.volcengineapi.com:8443/"),
        evolve(POST, query={"Action": "Other", "Version": "2022-08-31"}),
        evolve(POST, json={"req_key": "s"}),
        POST.with_headers(content_type="text/plain"),
    ],
)
def test_another_request_has_another_signature(other: HttpRequest) -> None:
    """But a port that goes without saying is not said."""

    def signature(request: HttpRequest) -> str:
        encoded = request.encoded()
        return sign(encoded, ACCOUNT, region="r", service="s", signed_at=AT).headers["authorization"]

    assert signature(POST) != signature(other)
    assert signature(POST) == signature(evolve(POST, url="https://Visual.volcengineapi.com:443/"))


def test_credentials_that_fit_into_no_header_are_refused() -> None:
    """Before they would be sent in part."""
    broken = VolcengineAccount(access_key_id="AKLT\n", secret_access_key="s")
    with pytest.raises(ConfigurationError):
        sign(POST.encoded(), broken, region="r", service="s")


def test_an_account_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the variables of the provider's SDK."""
    monkeypatch.delenv("VOLC_ACCESSKEY", raising=False)
    with pytest.raises(ConfigurationError, match="VOLC_ACCESSKEY"):
        VolcengineAccount.from_env()
    monkeypatch.setenv("VOLC_ACCESSKEY", "AKLT")
    monkeypatch.setenv("VOLC_SECRETKEY", "secret")
    found = VolcengineAccount.from_env()
    assert (found.access_key_id, found.secret_access_key.reveal()) == ("AKLT", "secret")


# On samples of answers, as documented.


def read(body: JSON, http_status: int = OK) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=http_status, body=json.dumps(body).encode())
    handler = JimengVideo()
    assert handler.read_error(response) is None
    return handler.parse_query(response, JOB, Claim().query)


def build(request: VideoRequest, settings: VideoSettings | None = None) -> HttpRequest:
    """Return the creating request."""
    handler = JimengVideo(ACCOUNT, settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(Claim().submit))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("in_queue", Verdict.RUNNING, Status.SUBMITTED),
        ("generating", Verdict.RUNNING, Status.RUNNING),
        ("done", Verdict.SUCCEEDED, Status.RUNNING),
        ("expired", Verdict.FAILED, Status.RUNNING),
        ("paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


def test_a_job_that_is_not_found_may_come() -> None:
    """So it is "not yet" for a while, and lost after that; one that has expired has failed."""
    assert read(status("not_found")).verdict is Verdict.NOT_FOUND
    expired = read(status("expired"))
    assert (expired.error_code, "kept it" in (expired.error_message or "")) == ("expired", True)


def test_the_video_is_in_the_data() -> None:
    """When its URL ends is not documented."""
    found = read(status("done"))
    assert found.result == VideoResult(videos=(Video(url=VIDEO),))
    to_json(found.result)


@pytest.mark.parametrize(
    "data", [{"status": "done"}, {"status": "done", "video_url": None}, {"status": "done", "video_url": " "}]
)
def test_done_without_a_url_is_incomplete(data: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(envelope(data)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("http_status", [200, 400])
@pytest.mark.parametrize("code", [50411, 50412, 50413, 50511, 50512])
def test_a_job_whose_content_is_refused_has_failed(code: int, http_status: int) -> None:
    """Asking again would change nothing."""
    failed = read(envelope(None, code, "Post Img Risk Not Pass"), http_status)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, str(code))
    assert failed.error_message == "the provider refuses the content (moderation): Post Img Risk Not Pass"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (VideoRequest(prompt="waves"), {"req_key": MODEL, "prompt": "waves"}),
        (
            VideoRequest(prompt="waves", duration=timedelta(seconds=5), aspect_ratio="9:16", seed=7),
            {"req_key": MODEL, "prompt": "waves", "frames": 121, "aspect_ratio": "9:16", "seed": 7},
        ),
        (
            VideoRequest(
                first_frame=IMAGE, duration=timedelta(seconds=10), model="jimeng_i2v_first_v30_1080"
            ),
            {"req_key": "jimeng_i2v_first_v30_1080", "image_urls": [IMAGE], "frames": 241},
        ),
        (
            VideoRequest(first_frame=IMAGE, last_frame=LAST, model="jimeng_i2v_first_tail_v30"),
            {"req_key": "jimeng_i2v_first_tail_v30", "image_urls": [IMAGE, LAST]},
        ),
        (
            VideoRequest(prompt="p", options={"req_key": "another", "prompt": "q", "template_id": "t"}),
            {"req_key": MODEL, "prompt": "p", "template_id": "t"},
        ),
    ],
)
def test_a_request_says_what_it_was_given(request_: VideoRequest, expected: dict[str, JSON]) -> None:
    """A duration is told in frames; options go beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url) == ("POST", "/")
    assert sent.query == {"Action": "CVSync2AsyncSubmitTask", "Version": "2022-08-31"}
    assert sent.json == expected


def test_a_query_needs_the_model_of_its_submission() -> None:
    """So it is stored with the id."""
    response = HttpResponse(status=OK, body=json.dumps(envelope({"task_id": ID})).encode())
    handler = JimengVideo(ACCOUNT, settings=JimengVideoSettings(model="jimeng_t2v_v30"))
    made = handler.create_query_params(response, VideoRequest(prompt="p"))
    assert made == QueryParams(external_task_id=ID, provider_params={"req_key": "jimeng_t2v_v30"})
    asked = handler.build_query(made, Claim().query)
    assert asked.query == {"Action": "CVSync2AsyncGetResult", "Version": "2022-08-31"}
    assert asked.json == {"req_key": "jimeng_t2v_v30", "task_id": ID}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", duration=timedelta(seconds=7)), "5 or 10 seconds, not of 7"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(first_frame=IMAGE), "makes no video from first_frame"),
        (VideoRequest(prompt="x", model="jimeng_i2v_first_v30"), "makes no video from text"),
        (VideoRequest(first_frame=IMAGE, model="jimeng_i2v_first_tail_v30"), "no video from first_frame"),
        (VideoRequest(prompt="x", source_video=VIDEO), "video_to_video"),
        (VideoRequest(prompt="x", resolution="720p"), "resolution"),
    ],
)
def test_what_the_provider_or_model_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        JimengVideo().validate(request_)


def test_there_is_neither_cancel_nor_callback() -> None:
    """As far as is known."""
    assert not JimengVideo().capabilities & {Capability.CANCEL, Capability.CALLBACK}


# Submissions and queries, on raw replies.


async def submit(reply: Reply, account: object = ACCOUNT) -> SubmitResult | HandlerError:
    """Submit to a provider that answers so, and return the outcome or what was raised."""
    async with ScriptedServer([reply]) as server:
        handler = JimengVideo(account, settings=VideoSettings(base_url=server.url))
        await handler.open()
        try:
            return await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        except HandlerError as raised:
            return raised
        finally:
            await handler.close()


@pytest.mark.parametrize(
    ("http_status", "body", "expected"),
    [
        (400, envelope(None, 50411, "Pre Img Risk Not Pass"), SubmitRejected),
        (200, envelope(None, 50412, "Text Risk Not Pass"), SubmitRejected),
        (400, envelope(None, 50207, "no"), SubmitRejected),
        (200, envelope(None, 50429, "slow down"), SubmitDeferred),
        (429, envelope(None, 50430, "Request Has Reached API Concurrent Limit"), SubmitDeferred),
        (401, {"ResponseMetadata": {"Error": {"Code": "InvalidAccessKey", "Message": "no"}}}, SubmitDeferred),
        (500, envelope(None, 50500, "Internal Error"), OutcomeUnknown),
        (200, envelope(None, 50501, "Internal RPC Error"), OutcomeUnknown),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown),
        (200, b"what", UnreadableAnswer),
        (200, {}, UnreadableAnswer),
        (200, envelope({}), UnreadableAnswer),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError]
) -> None:
    """Internal errors prove nothing; what an operator can mend defers; what only the caller can rejects."""
    assert type(await submit(Reply.of(body, status=http_status))) is expected


async def test_a_refusal_has_its_code_and_words() -> None:
    """For whoever has to change the request."""
    raised = await submit(Reply.of(envelope(None, 50412, "Text Risk Not Pass"), status=400))
    assert isinstance(raised, SubmitRejected)
    assert (raised.code, "Text Risk Not Pass" in str(raised)) == ("50412", True)


async def test_another_kind_of_account_is_refused() -> None:
    """A key alone signs nothing."""
    with pytest.raises(ConfigurationError, match="VolcengineAccount"):
        await submit(Reply.of({}), ApiKey("key"))


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Jimeng's protocol, without an encoder."""
    protocols = [JimengVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


def handler_at(sandbox: SandboxServer, secret: str = "sandbox-key") -> JimengVideo:
    """Return a handler that talks to the sandbox."""
    settings = JimengVideoSettings(base_url=f"{sandbox.url}/jimeng-video", allow_private=True)
    return JimengVideo(VolcengineAccount(access_key_id="AKLT", secret_access_key=secret), settings=settings)


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[JimengVideo]:
    """A handler that is open."""
    made = handler_at(sandbox)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: JimengVideo, sandbox: SandboxServer) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(prompt="waves 海浪", duration=timedelta(seconds=10), seed=3)
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, None)
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


async def test_a_video_is_made(handler: JimengVideo, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    job = await submitted(handler, sandbox)
    done = await handler.query(job, Claim().query)
    assert isinstance(done.result, VideoResult)
    assert "waves" in (await handler.download(done.result.videos[0].url)).text
    found = sandbox.jobs.get(job.external_task_id)
    assert found is not None
    assert found.order is not None
    assert (found.order.seconds, found.order.seed) == (10, 3)
    assert sandbox.creating_requests("waves 海浪") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: JimengVideo, sandbox: SandboxServer) -> None:
    """With the provider's code and words."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(Answer(operation="query", status=500))
    with pytest.raises(QueryFailed, match="50500"):
        await handler.query(job, Claim().query)
    sandbox.faults.add(FailingJob(code="any", message="Post Img Risk Not Pass"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert failed.error_code == "50511"
    stranger = evolve(job, provider_params={"req_key": "another"})
    assert (await handler.query(stranger, Claim().query)).verdict is Verdict.NOT_FOUND
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_the_sandbox_wants_a_signature(handler: JimengVideo) -> None:
    """Of whoever asks."""
    told = await handler.request_token(HttpRequest.post("/", json={}))
    assert (told.status, handler.error_of(told).code) == (401, "MissingSignature")


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = handler_at(sandbox, "wrong")
    await handler.open()
    with pytest.raises(SubmitDeferred, match="SignatureDoesNotMatch"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ({"Action": "CVSync2AsyncSubmitTask", "Version": "2022-08-31"}, {"prompt": "p"}, "MissingParameter"),
        ({"Action": "CVSync2AsyncSubmitTask", "Version": "1"}, {"req_key": "r"}, "InvalidActionOrVersion"),
        ({"Action": "Other", "Version": "2022-08-31"}, {}, "SignatureDoesNotMatch"),
    ],
)
async def test_the_sandbox_refuses_what_it_cannot_read(
    handler: JimengVideo, query: dict[str, str], body: JSON, code: str
) -> None:
    """In the form of the provider's gateway."""
    told = await handler.ask(HttpRequest.post("/", query=query, json=body), Claim().query)
    assert handler.error_of(told).code == code
