import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck import App
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
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_video import ApiKey, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.jwt_tokens import sign_jwt, unix_seconds
from coatcheck_handler_video.zhipu import ZhipuVideo, ZhipuVideoSettings
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import Drop, FailingJob, NoResult, SandboxServer, StatusWord, When, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.zhipu_video import ZhipuVideoProtocol

MIB = 1024 * 1024
JOB = QueryParams(external_task_id="z1")
VIDEO = "https://files.example.com/a.mp4?token=t"
COVER = "https://files.example.com/a.png"
IMAGE = "https://files.example.com/b.png"
LAST = "https://files.example.com/z.png"
WAVES = VideoRequest(prompt="waves")
FROZEN = 1_800_000_000.0
ACCEPTED: JSON = {"id": "z1", "model": "cogvideox-3", "task_status": "PROCESSING", "request_id": "r"}


def status(word: str) -> JSON:
    """Return the answer to a query of a job with this status word."""
    result: JSON = [{"url": VIDEO, "cover_image_url": COVER}] if word == "SUCCESS" else None
    return {
        "id": "z1",
        "model": "cogvideox-3",
        "task_status": word,
        "request_id": "r",
        "video_result": result,
    }


def refusal(code: str, message: str = "no") -> JSON:
    """Return an error."""
    return {"error": {"code": code, "message": message}}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context() -> PreparedContext:
    """Return the context of a submit call."""
    return PreparedContext.of(Claim().submit)


def token_of(key: str) -> str:
    """Return the token that is made of a key while the clock is frozen."""
    name, _, secret = key.partition(".")
    now = int(FROZEN * 1000)
    claims: dict[str, JSON] = {"api_key": name, "exp": now + 210_000, "timestamp": now}
    return sign_jwt(claims, Secret(secret), headers={"sign_type": "SIGN"}).reveal()


# The kit.


def zhipu_spec(_folder: Path | None = None, *, signed: bool = False) -> HandlerSpec:
    """Return the provider as its documentation describes it."""
    keys = {"default": "id-of-one.secret-of-one", "other": "id-of-two.secret-of-two"}
    secrets: Mapping[str, list[str]] = {
        name: [key, key.partition(".")[2], *([token_of(key)] if signed else [])] for name, key in keys.items()
    }
    return HandlerSpec(
        "coatcheck_handler_video.zhipu:ZhipuVideo",
        key="video:zhipu",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"quality": "speed"}
        ),
        settings=lambda url: ZhipuVideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB, signed_tokens=signed
        ),
        accounts={name: ApiKey(key) for name, key in keys.items()},
        secrets=secrets,
        script=Script(
            job="z1",
            accepted=Reply.of(ACCEPTED),
            status=status,
            words={"PROCESSING": Means.RUNNING, "SUCCESS": Means.SUCCEEDED, "FAIL": Means.FAILED},
            rejected=Reply.of(refusal("1214", "size is invalid"), status=400),
            rate_limited=Reply.of(refusal("1302", "too many at once"), status=429),
            not_found=Reply.of(refusal("404", "no such task"), status=404),
            error=lambda message: {"error": {"code": "1999", "message": message}},
            done_without_result=Reply.of({"id": "z1", "task_status": "SUCCESS", "video_result": []}),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestZhipuVideo(HandlerConformance):
    """The handler of Zhipu keeps every promise with keys."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider with keys."""
        return zhipu_spec()


class TestZhipuVideoWithTokens(HandlerConformance):
    """It keeps them with tokens that are made of the keys, too, which never show."""

    require = TestZhipuVideo.require

    @pytest.fixture
    def handler_spec(self, monkeypatch: pytest.MonkeyPatch) -> HandlerSpec:
        """The provider with tokens, while the clock stands, so that they are known."""
        monkeypatch.setattr("coatcheck_handler_video.zhipu.unix_seconds", lambda: FROZEN)
        return zhipu_spec(signed=True)


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return ZhipuVideo().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("PROCESSING", Verdict.RUNNING),
        ("SUCCESS", Verdict.SUCCEEDED),
        ("FAIL", Verdict.FAILED),
        ("WAITING", Verdict.UNLISTED),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict) -> None:
    """A word that is not documented is unlisted."""
    result = read(status(word))
    assert (result.verdict, result.status, result.provider_status) == (verdict, Status.RUNNING, word)


def test_the_videos_and_a_cover_are_the_result() -> None:
    """What has no URL is passed over."""
    done = read(
        {"task_status": "SUCCESS", "video_result": [None, {"url": VIDEO}, {"cover_image_url": COVER}]}
    )
    assert done.result == VideoResult(videos=(Video(url=VIDEO),), cover_url=COVER)
    to_json(done.result)


@pytest.mark.parametrize("result", [None, [], [{"url": " "}], {"url": VIDEO}])
def test_done_without_a_url_is_incomplete(result: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read({"task_status": "SUCCESS", "video_result": result}).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({}, None, "the job failed"),
        ({"error": None}, None, "the job failed"),
        ({"error": {"code": 1301, "message": "refused"}}, "1301", "refused"),
        ({"message": "out of luck"}, None, "out of luck"),
    ],
)
def test_a_failed_job_says_why_if_it_does(more: dict[str, JSON], code: str | None, message: str) -> None:
    """Where is not documented, so the places of errors are looked at."""
    failed = read({"task_status": "FAIL", **more})
    assert (failed.error_code, failed.error_message) == (code, message)


async def refused(body: JSON, http_status: int) -> HandlerError:
    """Return what a submission that is answered so raises."""
    async with ScriptedServer([Raw.of(body, status=http_status)]) as server:
        handler = ZhipuVideo(ApiKey("k"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(HandlerError) as caught:
            await handler.submit(WAVES, Claim().submit)
        await handler.close()
    return caught.value


@pytest.mark.parametrize(
    ("code", "http_status", "error", "limited"),
    [
        ("1000", 401, SubmitDeferred, False),
        ("1003", 401, SubmitDeferred, False),
        ("1113", 429, SubmitDeferred, False),
        ("1121", 403, SubmitDeferred, False),
        ("1211", 400, SubmitRejected, False),
        ("1301", 400, SubmitRejected, False),
        ("1302", 429, SubmitDeferred, True),
        ("1303", 429, SubmitDeferred, True),
        ("1234", 500, OutcomeUnknown, False),
    ],
)
async def test_codes_are_judged(
    code: str, http_status: int, error: type[HandlerError], *, limited: bool
) -> None:
    """A 429 about money is no limit: it waits for people, and slows nobody else down."""
    raised = await refused(refusal(code), http_status)
    assert type(raised) is error
    assert raised.code == code
    assert getattr(raised, "rate_limited", False) is limited
    if code == "1113":
        assert raised.retry_after == timedelta(minutes=5)


async def test_a_429_about_the_balance_is_no_limit_whatever_its_code() -> None:
    """The account is out of order in some way that has a code of its own."""
    raised = await refused(refusal("1119", "账户余额不足"), 429)
    assert isinstance(raised, SubmitDeferred)
    assert not raised.rate_limited


@pytest.mark.parametrize(("code", "http_status"), [("1231", 400), ("1231", 409), (1231, 429)])
async def test_a_duplicate_is_no_rejection(code: JSON, http_status: int) -> None:
    """It proves that an earlier request with our key was taken, so the job most likely exists; nobody knows its id."""
    raised = await refused(
        {"error": {"code": code, "message": "You already have a request: key-1"}}, http_status
    )
    assert isinstance(raised, OutcomeUnknown)
    assert raised.code == "1231"
    assert "'key-1'" in str(raised)
    assert "most likely exists" in str(raised)


def test_an_answer_about_a_duplicate_is_no_answer_to_a_query() -> None:
    """It is asked again."""
    handler = ZhipuVideo()
    told = answer(refusal("1231"), 400)
    assert handler.read_error(told) is None
    with pytest.raises(UnreadableAnswer, match="task_status"):
        handler.parse_query(told, JOB, Claim().query)


# What is sent.


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            VideoRequest(
                prompt="waves",
                duration=timedelta(seconds=10),
                width=1920,
                height=1080,
                fps=60,
                watermark=False,
                audio=True,
            ),
            {
                "model": "cogvideox-3",
                "prompt": "waves",
                "duration": 10,
                "size": "1920x1080",
                "fps": 60,
                "watermark_enabled": False,
                "with_audio": True,
            },
        ),
        (VideoRequest(first_frame=IMAGE), {"model": "cogvideox-3", "image_url": IMAGE}),
        (
            VideoRequest(
                prompt="waves",
                first_frame=IMAGE,
                last_frame=LAST,
                model="viduq1-start-end",
                aspect_ratio="16:9",
                duration=timedelta(seconds=4),
            ),
            {
                "model": "viduq1-start-end",
                "prompt": "waves",
                "image_url": [IMAGE, LAST],
                "aspect_ratio": "16:9",
                "duration": 4,
            },
        ),
        (
            VideoRequest(
                prompt="waves",
                options={
                    "quality": "quality",
                    "user_id": "somebody",
                    "model": "x",
                    "prompt": "x",
                    "request_id": "x",
                },
            ),
            {"quality": "quality", "user_id": "somebody", "model": "cogvideox-3", "prompt": "waves"},
        ),
    ],
)
def test_a_request_is_sent_with_our_key(request_: VideoRequest, expected: dict[str, JSON]) -> None:
    """And what was asked for; options go beneath what the handler sets."""
    handler = ZhipuVideo(ApiKey("k"))
    handler.validate(request_)
    sent = handler.build_submit(request_, context())
    assert (sent.method, sent.url) == ("POST", "/videos/generations")
    assert sent.json == {**expected, "request_id": "key-1"}


def test_a_job_is_asked_about_by_its_id() -> None:
    """Which the answer to the submission has, beside its status."""
    handler = ZhipuVideo()
    taken = handler.parse_submit(answer(ACCEPTED), WAVES, context())
    assert (taken.query_params, taken.status, taken.provider_status) == (JOB, Status.RUNNING, "PROCESSING")
    assert handler.build_query(JOB, Claim().query).url == "/async-result/z1"


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x" * 513), "512"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=6)), "5 or 10"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(prompt="x", fps=24), "30 or 60"),
        (VideoRequest(first_frame=IMAGE, last_frame=LAST, model="cogvideox-2"), "first_last_frame"),
        (VideoRequest(prompt="x", seed=1), "seed"),
        (VideoRequest(prompt="x", negative_prompt="y"), "negative_prompt"),
        (VideoRequest(reference_images=(IMAGE,)), "reference_images"),
    ],
)
def test_what_zhipu_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        ZhipuVideo().validate(request_)


def test_other_models_are_not_held_to_the_limits_of_cogvideox() -> None:
    """What they take is for Zhipu to say."""
    ZhipuVideo().validate(VideoRequest(prompt="x" * 600, fps=24, model="vidu2-image", first_frame=IMAGE))


# Credentials.


async def test_a_token_is_made_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds, with the type that Zhipu wants, and used again; the secret half is not sent."""
    monkeypatch.setattr("coatcheck_handler_video.zhipu.unix_seconds", lambda: FROZEN)
    async with ScriptedServer([Raw.of(ACCEPTED), Raw.of(status("PROCESSING"))]) as server:
        for signed in (True, False):
            settings = ZhipuVideoSettings(base_url=server.url, signed_tokens=signed)
            handler = ZhipuVideo(ApiKey("the-id.the-secret"), settings=settings)
            await handler.open()
            await handler.submit(WAVES, Claim().submit) if signed else None
            await handler.query(JOB, Claim().query)
            await handler.close()
    token = f"Bearer {token_of('the-id.the-secret')}"
    assert [each.headers["authorization"] for each in server.requests] == [
        token,
        token,
        "Bearer the-id.the-secret",
    ]


async def test_a_token_that_has_ended_is_made_anew() -> None:
    """At once, and nobody needs to be woken; the key itself cannot be made anew."""
    now = [0.0]
    expired = Raw.of(refusal("1003"), status=401)
    async with ScriptedServer([expired]) as server:
        settings = ZhipuVideoSettings(base_url=server.url, signed_tokens=True)
        handler = ZhipuVideo(ApiKey("the-id.the-secret"), settings=settings)
        handler._tokens.clock = lambda: now[0]
        await handler.open()
        waits = []
        for at in (0.0, 100.0):
            now[0] = at
            with pytest.raises(SubmitDeferred, match="1003") as caught:
                await handler.submit(WAVES, Claim().submit)
            waits.append(caught.value.retry_after)
        await handler.close()
    assert waits == [timedelta(minutes=1), None]


@pytest.mark.parametrize("key", ["no-dot", ".tail", "head."])
async def test_a_key_without_halves_makes_no_token(key: str) -> None:
    """Before anything is sent, so the task waits for an operator."""
    settings = ZhipuVideoSettings(base_url="http://127.0.0.1:9", signed_tokens=True)
    handler = ZhipuVideo(ApiKey(key), settings=settings)
    await handler.open()
    with pytest.raises(ConfigurationError, match=r"id\.secret"):
        await handler.submit(WAVES, Claim().submit)
    await handler.close()


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Zhipu's protocol, without an encoder."""
    protocols = [ZhipuVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


def make(sandbox: SandboxServer, key: str, *, signed: bool = False) -> ZhipuVideo:
    """Return a handler of the sandbox, closed."""
    settings = ZhipuVideoSettings(
        base_url=f"{sandbox.url}/zhipu-video", allow_private=True, signed_tokens=signed
    )
    return ZhipuVideo(ApiKey(key), settings=settings)


@pytest.fixture(params=[False, True], ids=["key", "token"])
async def handler(sandbox: SandboxServer, request: pytest.FixtureRequest) -> AsyncIterator[ZhipuVideo]:
    """A handler that is open."""
    key = "sandbox-id.sandbox-secret" if request.param else "sandbox-key"
    made = make(sandbox, key, signed=request.param)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: ZhipuVideo, sandbox: SandboxServer, request: VideoRequest, key: str = "key-1"
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    taken = await handler.submit(request, evolve(Claim().submit, idempotency_key=key))
    assert taken.status is Status.RUNNING
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    "request_",
    [WAVES, VideoRequest(prompt="waves", first_frame=IMAGE, last_frame=LAST, width=320, height=240)],
    ids=["text", "frames"],
)
async def test_a_video_is_made(handler: ZhipuVideo, sandbox: SandboxServer, request_: VideoRequest) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    done = await handler.query(await submitted(handler, sandbox, request_), Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert "waves" in (await handler.download(video.url)).text
    assert done.result.cover_url is not None
    assert sandbox.creating_requests("waves") == 1


async def test_a_lost_submission_leaves_the_outcome_unknown(
    handler: ZhipuVideo, sandbox: SandboxServer
) -> None:
    """And so does sending it again, which makes no second job."""
    sandbox.faults.add(Drop(operation="submit", when=When.AFTER))
    codes = []
    for _ in range(2):
        with pytest.raises(HandlerError) as caught:
            await handler.submit(WAVES, Claim().submit)
        assert not isinstance(caught.value, (SubmitDeferred, SubmitRejected))
        codes.append(caught.value.code)
    assert codes[1] == "1231"
    assert sandbox.created_jobs("waves") == 1


async def test_a_task_whose_answer_was_lost_waits_for_a_person(sandbox: SandboxServer) -> None:
    """As does one that a person had resubmitted: the duplicate is refused, which is no failure of the task."""
    sandbox.faults.add(Drop(operation="submit", when=When.AFTER))
    async with App("memory://", [make(sandbox, "sandbox-key")]) as app, app.worker():
        manager = app.manager
        task = await manager.submit(WAVES, tracking_timeout=timedelta(hours=1))
        doubt = await manager.wait(task.id, timeout=timedelta(seconds=50))
        assert doubt.status is Status.SUBMIT_UNKNOWN
        await manager.resubmit(task.id, tracking_timeout=timedelta(hours=1), note="to try")
        doubt = await manager.wait(task.id, timeout=timedelta(seconds=50))
    assert doubt.status is Status.SUBMIT_UNKNOWN
    assert "most likely exists" in str(doubt.error and doubt.error.message)
    assert (doubt.progress.submit_attempts, sandbox.created_jobs("waves")) == (2, 1)


async def test_a_job_may_fail_or_hide_its_result(handler: ZhipuVideo, sandbox: SandboxServer) -> None:
    """With the provider's words; without a result, with an unknown word, or not there it is no success."""
    job = await submitted(handler, sandbox, WAVES)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="1301", message="refused"))
    failed = await handler.query(await submitted(handler, sandbox, WAVES, "key-2"), Claim().query)
    assert (failed.error_code, failed.error_message) == ("1301", "refused")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize(
    ("key", "signed"), [("wrong", False), ("sandbox-id.wrong", True), ("another.sandbox-secret", True)]
)
async def test_a_wrong_key_defers(sandbox: SandboxServer, key: str, *, signed: bool) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, key, signed=signed)
    await made.open()
    with pytest.raises(SubmitDeferred, match="1002"):
        await made.submit(WAVES, Claim().submit)
    await made.close()


async def test_the_sandbox_reads_the_times_of_a_token(
    sandbox: SandboxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has ended is refused, as by the provider."""
    then = unix_seconds() - 3600
    monkeypatch.setattr("coatcheck_handler_video.zhipu.unix_seconds", lambda: then)
    made = make(sandbox, "sandbox-id.sandbox-secret", signed=True)
    await made.open()
    with pytest.raises(QueryFailed, match="1003"):
        await made.query(JOB, Claim().query)
    await made.close()


@pytest.mark.parametrize(("body", "code"), [({}, "1213"), ({"model": "m"}, "1213"), ([], "1210")])
async def test_the_sandbox_refuses_what_is_incomplete(handler: ZhipuVideo, body: JSON, code: str) -> None:
    """In the provider's form; a request without an id of the client's is taken."""
    told = await handler.ask(HttpRequest.post("/videos/generations", json=body), Claim().query)
    found = handler.read_error(told)
    assert found is not None
    assert (found.status, found.code) == (400, code)
    taken = await handler.ask(
        HttpRequest.post("/videos/generations", json={"model": "m", "prompt": "x"}), Claim().query
    )
    assert taken.ok
