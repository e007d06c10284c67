import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, quote_plus
from uuid import UUID

import pytest
from attrs import evolve

from coatcheck import App
from coatcheck.errors import (
    CallbackRejected,
    ConfigurationError,
    HandlerError,
    InvalidParams,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_video import ApiKey, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.pixverse import PixverseKey, PixverseVideo, trace_id_of
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import Drop, FailingJob, NoResult, SandboxServer, StatusWord, When, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.pixverse_video import PixverseVideoProtocol

MIB = 1024 * 1024
NUMBER = 315_000_111_222_333
JOB = QueryParams(external_task_id=str(NUMBER))
VIDEO = "https://media.example.com/a b.mp4?token=t"
IMAGE = "https://files.example.com/a.png"
WAVES = VideoRequest(prompt="waves", aspect_ratio="16:9")
ACCEPTED: JSON = {"ErrCode": 0, "ErrMsg": "success", "Resp": {"video_id": NUMBER, "credits": 10}}
TEXT_PATH = "/openapi/v2/video/text/generate"


def status(word: str, **more: JSON) -> JSON:
    """Return the answer to a query of a job with this status, which is a number."""
    number: JSON = int(word) if word.isdecimal() else word
    url = VIDEO if word == "1" else ""
    return {
        "ErrCode": 0,
        "ErrMsg": "Success",
        "Resp": {"id": NUMBER, "status": number, "url": url, **more},
    }


def refusal(code: int, message: str = "no") -> JSON:
    """Return an error."""
    return {"ErrCode": code, "ErrMsg": message, "Resp": None}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context(key: str = "key-1") -> PreparedContext:
    """Return the context of a submit call."""
    claim = evolve(Claim().submit, idempotency_key=key)
    return PreparedContext.of(claim)


def called(secret: str, payload: str, body: bytes, *, age_seconds: int = 0) -> CallbackRequest:
    """Return a webhook with this body, whose signed payload is `payload`."""
    timestamp, nonce = str(int(time.time()) - age_seconds), "n" * 32
    signed = f"{timestamp}\n{nonce}\n{payload}".encode()
    signature = base64.b64encode(hmac.digest(secret.encode(), signed, "sha256")).decode()
    headers = {
        "webhook-timestamp": timestamp,
        "webhook-nonce": nonce,
        "webhook-signature": signature,
        "ai-trace-id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "content-type": "application/json",
    }
    return CallbackRequest(method="POST", path="/callbacks/pixverse", headers=headers, body=body)


def simple(secret: str) -> CallbackRequest:
    """Return a webhook about the job."""
    body = json.dumps({"id": str(NUMBER), "status": 1}).encode()
    return called(secret, f"id={NUMBER}&status=1", body)


# The kit.


def pixverse_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it."""
    return HandlerSpec(
        "coatcheck_handler_video.pixverse:PixverseVideo",
        key="video:pixverse",
        params=lambda _url: evolve(WAVES, options={"motion_mode": "normal"}),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={
            "default": PixverseKey("pixverse-key-of-one", webhook_secret="webhook-secret-of-one"),
            "other": ApiKey("pixverse-key-of-another"),
        },
        idempotency_token=trace_id_of,
        secrets={"default": ["pixverse-key-of-one"], "other": ["pixverse-key-of-another"]},
        script=Script(
            job=str(NUMBER),
            accepted=Reply.of(ACCEPTED),
            status=status,
            words={word: Means(state) for word, state in PixverseVideo.statuses.words.items()},
            rejected=Reply.of(refusal(400017, "invalid param")),
            rate_limited=Reply.of(refusal(500044, "all generations are busy")),
            not_found=Reply.of(refusal(500008, "no such data")),
            error=lambda message: {"ErrCode": 123456, "ErrMsg": message},
            done_without_result=Reply.of(status("1", url="")),
            callbacks=Callbacks(
                authentic=simple("webhook-secret-of-one"), forged=simple("webhook-secret-of-another")
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestPixverseVideo(HandlerConformance):
    """The handler of PixVerse keeps every promise."""

    require = ("account", "two accounts", "answer without a result", "idempotency_window", "parse_callback")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return pixverse_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return PixverseVideo().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("5", Verdict.RUNNING),
        ("1", Verdict.SUCCEEDED),
        ("6", Verdict.FAILED),
        ("7", Verdict.FAILED),
        ("8", Verdict.FAILED),
        ("9", Verdict.UNLISTED),
        ("done", Verdict.UNLISTED),
    ],
)
def test_every_number_is_mapped(word: str, verdict: Verdict) -> None:
    """Status and id are whole numbers; one that is not documented is unlisted."""
    result = read(status(word))
    assert (result.verdict, result.status, result.provider_status) == (verdict, Status.RUNNING, word)


@pytest.mark.parametrize(("word", "part"), [("6", "deleted"), ("7", "moderation"), ("8", "could not")])
def test_a_failed_job_says_what_its_number_tells(word: str, part: str) -> None:
    """There are no words of PixVerse's own."""
    failed = read(status(word))
    assert failed.error_code == word
    assert part in str(failed.error_message)


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ({}, VideoResult(videos=(Video(url=VIDEO),))),
        (
            {"outputWidth": 1280, "outputHeight": 720, "seed": 7},
            VideoResult(videos=(Video(url=VIDEO, width=1280, height=720),), seed=7),
        ),
        (
            {"outputWidth": 0, "outputHeight": "x", "seed": True},
            VideoResult(videos=(Video(url=VIDEO),)),
        ),
    ],
)
def test_the_video_is_the_result(more: dict[str, JSON], result: VideoResult) -> None:
    """With its size and seed, if they are told."""
    done = read(status("1", **more))
    assert done.result == result
    to_json(done.result)
    assert read(status("1", url=" ")).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("code", "http_status", "error"),
    [
        (10004, 200, SubmitDeferred),
        (400012, 400, SubmitDeferred),
        (500020, 500, SubmitDeferred),
        (500044, 200, SubmitDeferred),
        (500060, 200, SubmitDeferred),
        (500090, 200, SubmitDeferred),
        (400011, 200, SubmitRejected),
        (400018, 400, SubmitRejected),
        (500054, 200, SubmitRejected),
        (500063, 500, SubmitRejected),
        (500008, 200, SubmitRejected),
        (500069, 200, OutcomeUnknown),
        (500100, 500, OutcomeUnknown),
        (99999, 200, OutcomeUnknown),
    ],
)
async def test_codes_are_judged(code: int, http_status: int, error: type[HandlerError]) -> None:
    """By the code first: most come in HTTP 200; a service that is in error proves nothing."""
    async with ScriptedServer([Raw.of(refusal(code), status=http_status)]) as server:
        handler = PixverseVideo(ApiKey("k"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(error) as caught:
            await handler.submit(WAVES, Claim().submit)
        await handler.close()
    assert caught.value.code == str(code)


# What is sent.


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            evolve(
                WAVES,
                negative_prompt="ships",
                duration=timedelta(seconds=8),
                resolution="720P",
                seed=0,
                watermark=True,
                model="v5",
            ),
            {
                "model": "v5",
                "prompt": "waves",
                "negative_prompt": "ships",
                "duration": 8,
                "quality": "720p",
                "aspect_ratio": "16:9",
                "seed": 0,
                "water_mark": True,
            },
        ),
        (
            evolve(WAVES, options={"motion_mode": "fast", "prompt": "x", "aspect_ratio": "1:1"}),
            {"motion_mode": "fast", "model": "v6", "prompt": "waves", "aspect_ratio": "16:9"},
        ),
        (
            VideoRequest(prompt="waves", options={"aspect_ratio": "1:1", "quality": "4k"}),
            {"aspect_ratio": "1:1", "quality": "4k", "model": "v6", "prompt": "waves"},
        ),
    ],
)
def test_a_request_has_what_was_asked_for(request_: VideoRequest, expected: JSON) -> None:
    """Options go beneath what the handler sets."""
    handler = PixverseVideo(ApiKey("k"))
    handler.validate(request_)
    sent = handler.build_submit(request_, context())
    assert (sent.method, sent.url, sent.json) == ("POST", TEXT_PATH, expected)


def test_a_job_is_asked_about_by_its_number() -> None:
    """Which is kept as text."""
    handler = PixverseVideo()
    assert handler.create_query_params(answer(ACCEPTED), WAVES) == JOB
    assert handler.build_query(JOB, Claim().query).url == f"/openapi/v2/video/result/{NUMBER}"
    with pytest.raises(UnreadableAnswer, match=r"Resp\.video_id"):
        handler.create_query_params(answer({"ErrCode": 0, "Resp": {}}), WAVES)


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x"), "aspect_ratio"),
        (evolve(WAVES, prompt="x" * 2049), "2048"),
        (evolve(WAVES, resolution="4k"), "360p"),
        (evolve(WAVES, duration=timedelta(seconds=5.5)), "whole"),
        (evolve(WAVES, first_frame=IMAGE), "from first_frame"),
        (evolve(WAVES, fps=24), "fps"),
        (evolve(WAVES, audio=True), "audio"),
    ],
)
def test_what_pixverse_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        PixverseVideo().validate(request_)


def trace_id(key: str) -> str:
    """Return the trace id of a submission with this idempotency key."""
    return PixverseVideo().build_submit(WAVES, context(key)).headers["ai-trace-id"]


def test_the_trace_id_of_a_submission_is_made_of_the_key() -> None:
    """So that it is the same at every attempt, everywhere and in later versions, and another for another task."""
    assert trace_id("key-1") == "983e4d62-4e9b-5f9f-a670-62ab3b803273"
    assert trace_id("key-1") != trace_id("key-2")
    assert UUID(trace_id("order 7/é")).version == 5


def test_pixverse_deduplicates() -> None:
    """For a time that is guessed on the safe side."""
    handler = PixverseVideo()
    assert Capability.IDEMPOTENT_SUBMIT in handler.capabilities
    assert handler.idempotency_window == timedelta(minutes=10)


async def test_every_query_has_a_trace_id_of_its_own() -> None:
    """Or it would be answered with what an earlier one was."""
    async with ScriptedServer([Raw.of(ACCEPTED), Raw.of(status("5"))]) as server:
        handler = PixverseVideo(ApiKey("the-key"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        await handler.submit(WAVES, Claim().submit)
        for _ in range(2):
            await handler.query(JOB, Claim().query)
        await handler.close()
    assert {each.headers["api-key"] for each in server.requests} == {"the-key"}
    assert not any("authorization" in each.headers for each in server.requests)
    submit, *queries = [UUID(each.headers["ai-trace-id"]) for each in server.requests]
    assert str(submit) == trace_id("key-1")
    assert len({submit, *queries}) == 3


async def test_an_account_of_another_kind_is_refused() -> None:
    """Before anything is sent."""
    handler = PixverseVideo(object(), settings=VideoSettings(base_url="http://127.0.0.1:9"))
    await handler.open()
    with pytest.raises(ConfigurationError, match="ApiKey"):
        await handler.submit(WAVES, Claim().submit)
    await handler.close()


# Webhooks.

BODY = b"""{"status": 1, "id": "123", "url": "https://x.test/a b", "size": 10.50, "has_audio": true,
"extra": {"a": [1]}, "none": null}"""


def fields(escape: object) -> dict[str, str]:
    """Return the fields of the body as they are in a URL's query."""
    assert callable(escape)
    values = {
        "status": "1",
        "id": "123",
        "url": "https://x.test/a b",
        "size": "10.50",
        "has_audio": "true",
        "extra": '{"a":[1]}',
        "none": "",
    }
    return {name: str(escape(value, safe="")) for name, value in values.items()}


@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "as they come"])
@pytest.mark.parametrize("escape", [quote, quote_plus])
async def test_a_webhook_that_is_signed_is_taken(escape: object, *, by_name: bool) -> None:
    """In whichever order its fields were signed, and however blanks were escaped; the reply is what is waited for."""
    pairs = list(fields(escape).items())
    ordered = sorted(pairs) if by_name else pairs
    payload = "&".join(f"{name}={value}" for name, value in ordered)
    handler = PixverseVideo({"default": PixverseKey("k", webhook_secret="the-secret")})
    told = await handler.parse_callback(called("the-secret", payload, BODY), None)
    assert tuple(told.external_task_ids) == ("123",)
    assert (told.reply_status, told.reply_body) == (200, b"ok")
    assert told.reply_headers == {"content-type": "text/plain"}


GOOD = f"id={NUMBER}&status=1"
GOOD_BODY = json.dumps({"id": NUMBER, "status": 1}).encode()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: called("another", GOOD, GOOD_BODY), "not right"),
        (lambda: called("the-secret", GOOD, GOOD_BODY.replace(b"1}", b"8}")), "not right"),
        (lambda: called("the-secret", GOOD, GOOD_BODY, age_seconds=3600), "replay"),
        (lambda: called("the-secret", "status=1", b'{"status": 1}'), "no job"),
        (lambda: called("the-secret", GOOD, b"{"), "JSON"),
        (lambda: called("the-secret", GOOD, b"[]"), "no object"),
        (lambda: called("the-secret", GOOD, b'{"id": "\\ud800"}'), "surrogate"),
        (lambda: evolve(called("the-secret", GOOD, GOOD_BODY), headers={}), "webhook-timestamp"),
    ],
)
async def test_a_webhook_that_is_not_authentic_is_rejected(
    make: Callable[[], CallbackRequest], match: str
) -> None:
    """Forged, changed, old or without sense; made now, since each says when it was signed."""
    handler = PixverseVideo(PixverseKey("k", webhook_secret="the-secret"))
    with pytest.raises(CallbackRejected, match=match):
        await handler.parse_callback(make(), None)


@pytest.mark.parametrize(
    "account", [ApiKey("k"), PixverseKey("k"), ApiKey("k", callback_secret="the-secret")]
)
async def test_without_a_secret_no_webhook_is_authentic(account: ApiKey) -> None:
    """The message says what to give."""
    with pytest.raises(CallbackRejected, match="PixverseKey"):
        await PixverseVideo(account).parse_callback(called("the-secret", GOOD, GOOD_BODY), None)


def test_the_secret_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come from the environment, as the key."""
    monkeypatch.setenv("PIXVERSE_SECRET", "the-secret")
    key = PixverseKey("the-key", webhook_secret=Secret.from_env("PIXVERSE_SECRET"))
    assert key.webhook_secret is not None
    assert key.webhook_secret.reveal() == "the-secret"
    assert "the-" not in repr(key)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks PixVerse's protocol, without an encoder."""
    protocols = [PixverseVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


def make(sandbox: SandboxServer, key: str = "sandbox-key") -> PixverseVideo:
    """Return a handler of the sandbox, closed."""
    settings = VideoSettings(base_url=f"{sandbox.url}/pixverse-video", allow_private=True)
    return PixverseVideo(ApiKey(key), settings=settings)


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[PixverseVideo]:
    """A handler that is open."""
    made = make(sandbox)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: PixverseVideo, sandbox: SandboxServer, request: VideoRequest = WAVES, key: str = "key-1"
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    taken = await handler.submit(request, evolve(Claim().submit, idempotency_key=key))
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, None)
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


async def test_a_video_is_made(handler: PixverseVideo, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    request = evolve(WAVES, resolution="540p", duration=timedelta(seconds=5), seed=7)
    job = await submitted(handler, sandbox, request)
    assert job.external_task_id.isdecimal()
    done = await handler.query(job, Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert (video.width, video.height, done.result.seed) == (240, 135, 7)
    assert "waves" in (await handler.download(video.url)).text
    assert sandbox.creating_requests("waves") == 1


async def test_a_lost_submission_is_sent_again_and_made_once(
    handler: PixverseVideo, sandbox: SandboxServer
) -> None:
    """The trace id is the same, so the answer is that of the job which is there."""
    sandbox.faults.add(Drop(operation="submit", when=When.AFTER))
    with pytest.raises(HandlerError):
        await handler.submit(WAVES, Claim().submit)
    job = await submitted(handler, sandbox)
    assert (await handler.query(job, Claim().query)).verdict is Verdict.SUCCEEDED
    assert await submitted(handler, sandbox) == job
    assert (sandbox.creating_requests("waves"), sandbox.created_jobs("waves")) == (3, 1)
    with pytest.raises(SubmitRejected, match="400017"):
        await handler.submit(evolve(WAVES, prompt="snow"), Claim().submit)


async def test_a_task_whose_answer_was_lost_is_sent_again(sandbox: SandboxServer) -> None:
    """By the worker, within the time for which PixVerse is trusted to deduplicate; it makes no second video."""
    sandbox.faults.add(Drop(operation="submit", when=When.AFTER))
    async with App("memory://", [make(sandbox)]) as app, app.worker():
        task = await app.manager.submit(WAVES, tracking_timeout=timedelta(hours=1))
        made = await app.manager.result(task.id, VideoResult, timeout=timedelta(seconds=50))
    assert len(made.videos) == 1
    assert (sandbox.creating_requests("waves"), sandbox.created_jobs("waves")) == (2, 1)


async def test_a_job_may_fail_or_hide_its_result(handler: PixverseVideo, sandbox: SandboxServer) -> None:
    """By its number; without a result, with an unknown number, or not there it is no success."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="9"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    for key, code, number in (("key-2", "moderation", "7"), ("key-3", "oops", "8")):
        sandbox.faults.add(FailingJob(code=code, message="no"))
        failed = await handler.query(await submitted(handler, sandbox, key=key), Claim().query)
        assert (failed.verdict, failed.error_code) == (Verdict.FAILED, number)
    sandbox.jobs.clear()
    for gone in (job, JOB):
        assert (await handler.query(gone, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, "wrong")
    await made.open()
    with pytest.raises(SubmitDeferred, match="400012"):
        await made.submit(WAVES, Claim().submit)
    await made.close()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (HttpRequest.post(TEXT_PATH, json={"prompt": "x", "model": "v6"}), "400011"),
        (HttpRequest.post(TEXT_PATH, json=[]), "400017"),
        (HttpRequest.get("/openapi/v2/video/result/1", headers={"ai-trace-id": "no-uuid"}), "400011"),
    ],
)
async def test_the_sandbox_refuses_what_is_incomplete(
    handler: PixverseVideo, request_: HttpRequest, code: str
) -> None:
    """In the provider's form."""
    found = handler.read_error(await handler.ask(request_, Claim().query))
    assert found is not None
    assert found.code == code


async def test_the_sandbox_wants_a_new_trace_id_for_each_query(
    handler: PixverseVideo, sandbox: SandboxServer
) -> None:
    """And a key."""
    trace = {"ai-trace-id": trace_id("x")}
    request = HttpRequest.get(f"/openapi/v2/video/result/{NUMBER}", headers=trace)
    answers = [await handler.ask(request, Claim().query) for _ in range(2)]
    codes = [error.code for error in map(handler.read_error, answers) if error is not None]
    assert codes == ["500008", "400017"]

    class Keyless(PixverseVideo):
        async def authenticate(self, request: HttpRequest, context: object) -> HttpRequest:
            return request

    made = Keyless(settings=VideoSettings(base_url=f"{sandbox.url}/pixverse-video"))
    await made.open()
    refused = made.read_error(await made.ask(request, Claim().query))
    await made.close()
    assert refused is not None
    assert refused.code == "10004"
