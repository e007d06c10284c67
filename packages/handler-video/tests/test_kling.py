import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import evolve

from coatcheck import App
from coatcheck.errors import (
    CallbackRejected,
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import CallbackRequest, SubmitContext
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, Finding, HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_video import ApiKey, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.jwt_tokens import sign_jwt, unix_seconds
from coatcheck_handler_video.kling import KlingKeys, KlingVideo
from coatcheck_http import (
    HttpRequest,
    HttpResponse,
    OutcomeUnknown,
    PreparedContext,
    UnreadableAnswer,
    own_callback_url,
)
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import Drop, FailingJob, NoResult, SandboxServer, StatusWord, When, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.kling_video import KlingVideoProtocol

MIB = 1024 * 1024
OUR_URL = "https://app.test/callbacks/kling?tenant=a"
TEXT_PATH = "/v1/videos/text2video"
JOB = QueryParams(external_task_id="k1", provider_params={"path": TEXT_PATH})
VIDEO = "https://files.example.com/a.mp4?token=t"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
FROZEN = 1_800_000_000.0
PAIR = ("sandbox-access-key", "sandbox-secret-key")


def envelope(word: str | None, **data: JSON) -> JSON:
    """Return the answer about a job with this status word."""
    told: JSON = {"task_id": "k1", "task_status": word, "task_status_msg": "", "task_info": None, **data}
    return {"code": 0, "message": "SUCCEED", "request_id": "r", "data": told}


def status(word: str) -> JSON:
    """Return the answer to a query of a job, with whatever goes with its word."""
    if word == "succeed":
        return envelope(word, task_result={"videos": [{"id": "v", "url": VIDEO, "duration": "5.1"}]})
    return envelope(word, task_status_msg="the prompt is refused" if word == "failed" else "")


def refusal(code: int, message: str = "no") -> JSON:
    """Return an error."""
    return {"code": code, "message": message, "request_id": "r"}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def claim(callback_url: str | None = None) -> SubmitContext:
    """Return the context of a submit call."""
    return evolve(Claim().submit, callback_url=callback_url)


def context(callback_url: str | None = None) -> PreparedContext:
    """Return the context of a submit call, prepared."""
    return PreparedContext.of(claim(callback_url))


def called(secret: str, body: JSON) -> CallbackRequest:
    """Return a callback to the address that was made with `secret`."""
    parts = urlsplit(own_callback_url(OUR_URL, "task-1", secret))
    return CallbackRequest(
        method="POST",
        path=parts.path,
        headers={"content-type": "application/json"},
        query=dict(parse_qsl(parts.query)),
        body=json.dumps(body).encode(),
    )


def token_of(access_key: str, secret_key: str) -> str:
    """Return the token that is made of these keys while the clock is frozen."""
    claims: dict[str, JSON] = {"iss": access_key, "exp": int(FROZEN) + 1800, "nbf": int(FROZEN) - 5}
    return sign_jwt(claims, Secret(secret_key)).reveal()


# The kit.


def kling_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it, with single keys."""
    accounts = {
        "default": ApiKey("kling-key-of-one", callback_secret="callback-secret-of-one"),
        "other": ApiKey("kling-key-of-another", callback_secret="callback-secret-of-another"),
    }
    return _spec(accounts, {"default": ["kling-key-of-one"], "other": ["kling-key-of-another"]})


def keys_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider with pairs of keys, of which tokens are made."""
    pairs = {"default": ("access-of-one", "secret-of-one"), "other": ("access-of-two", "secret-of-two")}
    accounts = {name: KlingKeys(*pair, callback_secret=f"callback-{pair[1]}") for name, pair in pairs.items()}
    return _spec(accounts, {name: [*pair, token_of(*pair)] for name, pair in pairs.items()})


def _spec(accounts: Mapping[str, object], secrets: Mapping[str, list[str]]) -> HandlerSpec:
    account = accounts["default"]
    assert isinstance(account, (ApiKey, KlingKeys))
    assert account.callback_secret is not None
    told: JSON = {"task_id": "k1", "task_status": "succeed", "task_info": {"external_task_id": "x"}}
    return HandlerSpec(
        "coatcheck_handler_video.kling:KlingVideo",
        key="video:kling",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"camera_control": {"type": "simple"}}
        ),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts=accounts,
        secrets=secrets,
        script=Script(
            job="k1",
            accepted=Reply.of(envelope("submitted")),
            status=status,
            words={word: Means(state) for word, state in KlingVideo.statuses.words.items()},
            rejected=Reply.of(refusal(1201, "duration is invalid"), status=400),
            rate_limited=Reply.of(refusal(1303, "parallel task over resource pack limit"), status=429),
            not_found=Reply.of(refusal(1203, "no such task"), status=404),
            error=lambda message: {"code": 9999, "message": message},
            done_without_result=Reply.of(envelope("succeed", task_result={"videos": []})),
            find=Finding(
                found=Reply.of(envelope("processing")),
                nothing=Reply.of(refusal(1203, "no such task"), status=404),
            ),
            callbacks=Callbacks(
                authentic=called(account.callback_secret.reveal(), told), forged=called("no", told)
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestKlingVideo(HandlerConformance):
    """The handler of Kling keeps every promise with single keys."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "find_submission",
        "parse_callback",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider with single keys."""
        return kling_spec()


class TestKlingVideoWithKeys(HandlerConformance):
    """It keeps them with tokens that are made of a pair of keys, too, which never show."""

    require = TestKlingVideo.require

    @pytest.fixture
    def handler_spec(self, monkeypatch: pytest.MonkeyPatch) -> HandlerSpec:
        """The provider with pairs, while the clock stands, so that the token is known."""
        monkeypatch.setattr("coatcheck_handler_video.kling.unix_seconds", lambda: FROZEN)
        return keys_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return KlingVideo().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("submitted", Verdict.RUNNING, Status.SUBMITTED),
        ("processing", Verdict.RUNNING, Status.RUNNING),
        ("succeed", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("succeeded", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    result = read(status(word))
    assert (result.verdict, result.status, result.provider_status) == (verdict, state, word)


def test_a_failed_job_says_why() -> None:
    """In its own message; the envelope's code 0 is no code of it."""
    failed = read(status("failed"))
    assert (failed.error_code, failed.error_message) == (None, "the prompt is refused")
    assert read(envelope("failed")).error_message == "the job failed"


@pytest.mark.parametrize(
    ("told", "seconds"), [("5.1", 5.1), (10, 10.0), ("NaN", None), ("five", None), (None, None)]
)
def test_videos_live_for_thirty_days(told: JSON, seconds: float | None) -> None:
    """Each with its length, if that is a number; what has no URL is passed over."""
    done = read(
        envelope("succeed", task_result={"videos": [{"url": VIDEO, "duration": told}, {"id": "x"}, None]})
    )
    expires_at = Claim().now + timedelta(days=30)
    assert done.result == VideoResult(
        videos=(Video(url=VIDEO, expires_at=expires_at, duration_seconds=seconds),)
    )
    to_json(done.result)


@pytest.mark.parametrize("result", [None, {}, {"videos": None}, {"videos": [{"url": ""}]}])
def test_done_without_a_url_is_incomplete(result: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(envelope("succeed", task_result=result)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("code", "http_status", "error", "limited"),
    [
        (1000, 401, SubmitDeferred, False),
        (1103, 403, SubmitDeferred, False),
        (1100, 429, SubmitDeferred, False),
        (1101, 429, SubmitDeferred, False),
        (1102, 429, SubmitDeferred, False),
        (1302, 429, SubmitDeferred, True),
        (1303, 429, SubmitDeferred, True),
        (1304, 403, SubmitDeferred, False),
        (1200, 400, SubmitRejected, False),
        (1201, 200, SubmitRejected, False),
        (1203, 404, SubmitRejected, False),
        (1301, 400, SubmitRejected, False),
        (5000, 500, OutcomeUnknown, False),
        (5001, 200, OutcomeUnknown, False),
        (5002, 504, OutcomeUnknown, False),
    ],
)
async def test_codes_are_judged(
    code: int, http_status: int, error: type[HandlerError], *, limited: bool
) -> None:
    """A 429 about money is no limit: it waits for people, and slows nobody else down."""
    async with ScriptedServer([Raw.of(refusal(code), status=http_status)]) as server:
        handler = KlingVideo(ApiKey("k"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(error) as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    assert caught.value.code == str(code)
    assert getattr(caught.value, "rate_limited", False) is limited
    if 1100 <= code <= 1102:
        assert caught.value.retry_after == timedelta(minutes=5)


# What is sent.


def build(
    request: VideoRequest, *, settings: VideoSettings | None = None, url: str | None = None
) -> HttpRequest:
    """Return the creating request."""
    handler = KlingVideo(ApiKey("k", callback_secret="the-secret"), settings=settings)
    handler.validate(request)
    return handler.build_submit(request, context(url))


@pytest.mark.parametrize(
    ("request_", "path", "expected"),
    [
        (
            VideoRequest(
                prompt="waves",
                negative_prompt="ships",
                model="kling-v2-6",
                duration=timedelta(seconds=10),
                aspect_ratio="9:16",
                audio=True,
                watermark=False,
            ),
            TEXT_PATH,
            {
                "model_name": "kling-v2-6",
                "prompt": "waves",
                "negative_prompt": "ships",
                "duration": "10",
                "aspect_ratio": "9:16",
                "sound": "on",
                "watermark_info": {"enabled": False},
            },
        ),
        (
            VideoRequest(first_frame=IMAGE, audio=False),
            "/v1/videos/image2video",
            {"image": IMAGE, "sound": "off"},
        ),
        (
            VideoRequest(prompt="waves", first_frame=IMAGE, last_frame=LAST),
            "/v1/videos/image2video",
            {"prompt": "waves", "image": IMAGE, "image_tail": LAST},
        ),
        (
            VideoRequest(prompt="waves", reference_images=(IMAGE, LAST)),
            "/v1/videos/multi-image2video",
            {"prompt": "waves", "image_list": [{"image": IMAGE}, {"image": LAST}]},
        ),
        (
            VideoRequest(
                prompt="waves",
                first_frame=IMAGE,
                options={
                    "mode": "pro",
                    "cfg_scale": 0.5,
                    "duration": "15",
                    "prompt": "x",
                    "image": "x",
                    "external_task_id": "x",
                },
            ),
            "/v1/videos/image2video",
            {"mode": "pro", "cfg_scale": 0.5, "duration": "15", "prompt": "waves", "image": IMAGE},
        ),
    ],
)
def test_a_request_goes_to_the_endpoint_of_its_mode(
    request_: VideoRequest, path: str, expected: dict[str, JSON]
) -> None:
    """With the idempotency key and what was asked for; options go beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url) == ("POST", path)
    assert sent.json == {**expected, "external_task_id": "key-1"}


def test_the_settings_may_name_the_model() -> None:
    """Kling has a default of its own, so none is sent otherwise."""
    sent = build(VideoRequest(prompt="waves"), settings=VideoSettings(model="kling-v1-6"))
    assert sent.json == {"model_name": "kling-v1-6", "prompt": "waves", "external_task_id": "key-1"}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x" * 2501), "2500"),
        (VideoRequest(prompt="x", aspect_ratio="4:3"), "16:9, 9:16, 1:1"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=6)), "options"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(prompt="x", resolution="720p"), "resolution"),
        (VideoRequest(prompt="x", seed=1), "seed"),
        (VideoRequest(prompt="x", source_video=VIDEO), "video_to_video"),
    ],
)
def test_what_kling_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        KlingVideo().validate(request_)


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (VideoRequest(prompt="waves"), TEXT_PATH),
        (VideoRequest(first_frame=IMAGE), "/v1/videos/image2video"),
        (VideoRequest(reference_images=(IMAGE,)), "/v1/videos/multi-image2video"),
    ],
)
def test_a_job_is_asked_about_where_it_was_submitted(request_: VideoRequest, path: str) -> None:
    """The path is stored with its id."""
    handler = KlingVideo()
    made = handler.create_query_params(answer(envelope("submitted")), request_)
    assert made == QueryParams(external_task_id="k1", provider_params={"path": path})
    assert handler.build_query(made, Claim().query).url == f"{path}/k1"
    with pytest.raises(InvalidParams, match="path"):
        handler.build_query(QueryParams(external_task_id="k1"), Claim().query)
    with pytest.raises(UnreadableAnswer, match=r"data\.task_id"):
        handler.create_query_params(answer({"code": 0, "data": None}), request_)


async def test_a_stored_path_leads_nowhere_else() -> None:
    """Whatever is in the store: no other origin sees the key."""
    handler = KlingVideo(ApiKey("k"))
    await handler.open()
    with pytest.raises(QueryFailed, match="trusted_origins"):
        await handler.query(JOB.evolve(path="https://evil.test/v1/videos"), Claim().query)
    await handler.close()


# Credentials.


async def test_a_token_is_made_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins 5 seconds ago, ends in 30 minutes, and is used until then; the secret key is not sent."""
    monkeypatch.setattr("coatcheck_handler_video.kling.unix_seconds", lambda: FROZEN + 0.9)
    async with ScriptedServer([Raw.of(envelope("submitted")), Raw.of(status("processing"))]) as server:
        handler = KlingVideo(
            KlingKeys("the-access", "the-secret"), settings=VideoSettings(base_url=server.url)
        )
        await handler.open()
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.query(JOB, Claim().query)
        await handler.close()
    sent = {each.headers["authorization"] for each in server.requests}
    assert sent == {f"Bearer {token_of('the-access', 'the-secret')}"}


async def test_a_token_that_has_ended_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and nobody needs to be woken; one that was just made is kept, for then it is the clock."""
    now = [0.0]
    wall = iter((FROZEN, FROZEN + 100, FROZEN + 200))
    monkeypatch.setattr("coatcheck_handler_video.kling.unix_seconds", lambda: next(wall))
    expired, early = Raw.of(refusal(1004), status=401), Raw.of(refusal(1003), status=401)
    async with ScriptedServer([early, expired, Raw.of(envelope("submitted"))]) as server:
        handler = KlingVideo(KlingKeys("a", "b"), settings=VideoSettings(base_url=server.url))
        handler._tokens.clock = lambda: now[0]
        await handler.open()
        with pytest.raises(SubmitDeferred, match="1003") as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        assert caught.value.retry_after == timedelta(minutes=1)
        now[0] = 100.0
        with pytest.raises(SubmitDeferred, match="1004") as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        assert caught.value.retry_after is None
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    first, second, third = [each.headers["authorization"] for each in server.requests]
    assert first == second != third


async def test_an_account_of_another_kind_is_refused() -> None:
    """Before anything is sent."""
    handler = KlingVideo(object(), settings=VideoSettings(base_url="http://127.0.0.1:9"))
    await handler.open()
    with pytest.raises(ConfigurationError, match="ApiKey"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read when they are used, and never shown."""
    keys = KlingKeys.from_env("KLING_ACCESS", "KLING_SECRET")
    monkeypatch.setenv("KLING_ACCESS", "the-access")
    monkeypatch.setenv("KLING_SECRET", "the-secret")
    assert (keys.access_key.reveal(), keys.secret_key.reveal()) == ("the-access", "the-secret")
    assert "the-" not in repr(keys)


# Looking a submission up, and callbacks.


@pytest.mark.parametrize(
    ("body", "http_status", "found"),
    [
        (envelope("processing", task_info={"external_task_id": "key-1"}), 200, Status.RUNNING),
        (envelope("submitted", task_info=None), 200, Status.SUBMITTED),
        (status("succeed"), 200, Status.SUBMITTED),
        (envelope(None), 200, Status.SUBMITTED),
        (envelope("processing", task_info={"external_task_id": "another"}), 200, None),
        ({"code": 0, "data": {}}, 200, None),
        ({"code": 0, "data": None}, 200, None),
        (refusal(1203), 404, None),
        (refusal(1302), 429, None),
        (refusal(5000), 500, None),
    ],
)
async def test_only_a_positive_answer_counts(body: JSON, http_status: int, found: Status | None) -> None:
    """A job is adopted if the answer is about ours; whatever else comes proves nothing."""
    async with ScriptedServer([Raw.of(body, status=http_status)]) as server:
        handler = KlingVideo(ApiKey("k"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        taken = await handler.find_submission(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    assert [each.target for each in server.requests] == [f"{TEXT_PATH}/key-1"]
    if found is None:
        assert taken is None
    else:
        assert taken is not None
        assert (taken.status, taken.query_params) == (found, JOB)


def test_a_callback_is_asked_for_where_it_can_be_checked() -> None:
    """With an address of our own; without one, none is asked for."""
    sent = build(
        VideoRequest(prompt="waves", options={"callback_url": "https://evil.test"}), url=OUR_URL
    ).json
    assert isinstance(sent, dict)
    assert sent["callback_url"] == own_callback_url(OUR_URL, "task-1", "the-secret")
    assert "callback_url" not in json.dumps(build(VideoRequest(prompt="waves")).json)


async def test_a_callback_names_its_job() -> None:
    """If it came to our own address."""
    handler = KlingVideo(KlingKeys("a", "b", callback_secret="the-secret"))
    told = await handler.parse_callback(called("the-secret", {"task_id": "k1"}), None)
    assert tuple(told.external_task_ids) == ("k1",)
    for request in (called("another", {"task_id": "k1"}), called("the-secret", {"task_status": "succeed"})):
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(request, None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Kling's protocol, without an encoder."""
    protocols = [KlingVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


def make(sandbox: SandboxServer, account: object) -> KlingVideo:
    """Return a handler of the sandbox, closed."""
    settings = VideoSettings(base_url=f"{sandbox.url}/kling-video", allow_private=True)
    return KlingVideo(account, settings=settings)


@pytest.fixture(params=[ApiKey("sandbox-key"), KlingKeys(*PAIR)], ids=["key", "keys"])
async def handler(sandbox: SandboxServer, request: pytest.FixtureRequest) -> AsyncIterator[KlingVideo]:
    """A handler that is open."""
    made = make(sandbox, request.param)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: KlingVideo, sandbox: SandboxServer, request: VideoRequest, key: str = "key-1"
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    taken = await handler.submit(request, evolve(Claim().submit, idempotency_key=key))
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "submitted")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    "request_",
    [
        VideoRequest(prompt="waves", duration=timedelta(seconds=5), aspect_ratio="9:16"),
        VideoRequest(prompt="waves", first_frame=IMAGE),
        VideoRequest(prompt="waves", reference_images=(IMAGE,)),
    ],
    ids=["text", "image", "images"],
)
async def test_a_video_is_made(handler: KlingVideo, sandbox: SandboxServer, request_: VideoRequest) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    done = await handler.query(await submitted(handler, sandbox, request_), Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert "waves" in (await handler.download(video.url)).text
    assert video.duration_seconds is not None
    assert sandbox.creating_requests("waves") == 1


async def test_a_lost_submission_is_found(handler: KlingVideo, sandbox: SandboxServer) -> None:
    """By our own reference, at the path of its mode only; what there is not is not found."""
    sandbox.faults.add(Drop(operation="submit", when=When.AFTER))
    request = VideoRequest(prompt="waves", first_frame=IMAGE)
    with pytest.raises(HandlerError):
        await handler.submit(request, Claim().submit)
    found = await handler.find_submission(request, Claim().submit)
    assert found is not None
    assert found.query_params is not None
    assert sandbox.jobs.get(found.query_params.external_task_id) is not None
    done = await handler.query(found.query_params, Claim().query)
    assert done.verdict in {Verdict.RUNNING, Verdict.SUCCEEDED}
    assert await handler.find_submission(VideoRequest(prompt="waves"), Claim().submit) is None
    unknown = evolve(Claim().submit, idempotency_key="another")
    assert await handler.find_submission(request, unknown) is None
    assert sandbox.creating_requests("waves") == 1


async def test_a_task_whose_answer_was_lost_is_adopted(sandbox: SandboxServer) -> None:
    """The worker looks the job up and goes on with it; nothing is sent again, and nobody is asked."""
    sandbox.faults.add(Drop(operation="submit", when=When.AFTER))
    async with App("memory://", [make(sandbox, KlingKeys(*PAIR))]) as app, app.worker():
        task = await app.manager.submit(VideoRequest(prompt="waves"), tracking_timeout=timedelta(hours=1))
        made = await app.manager.result(task.id, VideoResult, timeout=timedelta(seconds=50))
    assert len(made.videos) == 1
    assert (sandbox.creating_requests("waves"), sandbox.created_jobs("waves")) == (1, 1)


async def test_a_job_may_fail_or_hide_its_result(handler: KlingVideo, sandbox: SandboxServer) -> None:
    """With the provider's words; without a result, with an unknown word, or not there it is no success."""
    request = VideoRequest(prompt="waves")
    job = await submitted(handler, sandbox, request)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="moderation", message="the prompt is refused"))
    failed = await handler.query(await submitted(handler, sandbox, request, "key-2"), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the prompt is refused")
    with pytest.raises(SubmitRejected, match="unique"):
        await handler.submit(request, Claim().submit)
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize(
    ("account", "code"),
    [
        (ApiKey("wrong"), "1002"),
        (KlingKeys("another", "sandbox-secret-key"), "1002"),
        (KlingKeys("sandbox-access-key", "another"), "1002"),
    ],
)
async def test_wrong_credentials_defer(sandbox: SandboxServer, account: object, code: str) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, account)
    await made.open()
    with pytest.raises(SubmitDeferred, match=code):
        await made.submit(VideoRequest(prompt="waves"), Claim().submit)
    await made.close()


@pytest.mark.parametrize(("hours", "code"), [(1, "1003"), (-1, "1004")])
async def test_the_sandbox_reads_the_times_of_a_token(
    sandbox: SandboxServer, monkeypatch: pytest.MonkeyPatch, hours: int, code: str
) -> None:
    """As the provider does: not before, and not after."""
    there = unix_seconds() + hours * 3600
    monkeypatch.setattr("coatcheck_handler_video.kling.unix_seconds", lambda: there)
    made = make(sandbox, KlingKeys(*PAIR))
    await made.open()
    with pytest.raises(SubmitDeferred, match=code):
        await made.submit(VideoRequest(prompt="waves"), Claim().submit)
    await made.close()


@pytest.mark.parametrize(
    "body", [b"{", {}, {"prompt": "x", "duration": 5}, {"prompt": "x", "external_task_id": 7}]
)
async def test_the_sandbox_refuses_what_makes_no_sense(handler: KlingVideo, body: JSON | bytes) -> None:
    """In the provider's form."""
    request = HttpRequest(method="POST", url=TEXT_PATH, content=b"{") if body == b"{" else None
    told = await handler.ask(request or HttpRequest.post(TEXT_PATH, json=body), Claim().query)
    refused = handler.read_error(told)
    assert refused is not None
    assert (refused.status, refused.code) == (400, "1201")


async def test_the_sandbox_wants_credentials(sandbox: SandboxServer) -> None:
    """Without any the code says so."""

    class Bare(KlingVideo):
        async def authenticate(self, request: HttpRequest, context: object) -> HttpRequest:
            return request

    made = Bare(settings=VideoSettings(base_url=f"{sandbox.url}/kling-video"))
    await made.open()
    told = await made.ask(HttpRequest.get(f"{TEXT_PATH}/x"), Claim().query)
    await made.close()
    refused = made.read_error(told)
    assert refused is not None
    assert refused.code == "1001"
