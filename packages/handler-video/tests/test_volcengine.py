import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import evolve

from coatcheck.errors import CallbackRejected, HandlerError, InvalidParams, SubmitDeferred, SubmitRejected
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Callbacks, Cancelling, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, Video, VideoMode, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.volcengine import VolcengineVideo
from coatcheck_http import (
    HttpRequest,
    HttpResponse,
    HttpSettings,
    OutcomeUnknown,
    PreparedContext,
    own_callback_url,
)
from coatcheck_http.testing import Claim, Ending, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe, sketch
from coatcheck_sandbox.providers.volcengine_video import VolcengineVideoProtocol

MIB = 1024 * 1024
OK = 200
JOB = QueryParams(external_task_id="cgt-1")
ACCOUNT = ApiKey("ark-key-of-one", callback_secret="callback-secret-of-one")
CALLBACK = "https://app.example.com/callbacks/video:volcengine"
TASKS = "/contents/generations/tasks"
IMAGE = "https://files.example.com/a.png"
OTHER = "https://files.example.com/b.png"
CLIP = "https://files.example.com/a.mp4"
SOUND = "https://files.example.com/a.mp3"
VIDEO = "https://tos.example.com/v.mp4?signature=s"
FIVE = timedelta(seconds=5)


def error(message: str, code: str = "InternalServiceError") -> JSON:
    """Return the body of an error."""
    return {"error": {"code": code, "message": message, "param": "", "type": "Kit"}}


def status(word: str, **more: JSON) -> dict[str, JSON]:
    """Return the answer to a query of a job with this status word; `error` is null unless it failed."""
    body: dict[str, JSON] = {"id": "cgt-1", "model": "m", "status": word, "error": None, "created_at": 1}
    if word == "succeeded":
        body["content"] = {"video_url": VIDEO, "last_frame_url": "https://tos.example.com/l.png"}
    if word == "failed":
        body["error"] = {"code": "OutputVideoSensitiveContentDetected", "message": "it was withheld"}
    return {**body, **more}


def called_back(task_id: str, secret: str = "callback-secret-of-one") -> CallbackRequest:
    """Return a callback to the address that was told for a task."""
    query = dict(parse_qsl(urlsplit(own_callback_url(CALLBACK, task_id, secret)).query))
    body = json.dumps(status("succeeded")).encode()
    return CallbackRequest(method="POST", path="/callbacks", headers={}, query=query, body=body)


def volcengine_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.volcengine:VolcengineVideo",
        key="video:volcengine",
        params=lambda url: VideoRequest(
            prompt="a coat", first_frame=f"{url}/files/a.png", options={"tools": {"a": 1}}
        ),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": ApiKey("ark-key-of-another")},
        script=Script(
            job="cgt-1",
            accepted=KitReply.of({"id": "cgt-1"}),
            status=status,
            words={
                "queued": Means.WAITING,
                "running": Means.RUNNING,
                "succeeded": Means.SUCCEEDED,
                "failed": Means.FAILED,
                "expired": Means.FAILED,
                "cancelled": Means.CANCELED,
            },
            rejected=KitReply.of(error("no such ratio", "InvalidParameter"), status=400),
            rate_limited=KitReply.of(error("slow down", "RateLimitExceeded.Kit"), status=429),
            not_found=KitReply.of(error("no such task", "NotFound"), status=404),
            error=error,
            done_without_result=KitReply.of(status("succeeded", content=None)),
            # what a cancel is answered with is not documented; these answer the question that goes before it
            cancel=Cancelling(
                confirmed=KitReply.of(status("cancelled")), refused=KitReply.of(status("running"))
            ),
            callbacks=Callbacks(
                authentic=called_back("task-1"), forged=called_back("task-1", "another secret")
            ),
        ),
        creating=lambda method, path: (method, path) == ("POST", TASKS),
        answer_limit_bytes=4 * MIB,
    )


class TestVolcengineVideo(HandlerConformance):
    """The handler of Ark keeps every promise."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "cancel",
        "parse_callback",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return volcengine_spec()


# What is sent.


def build(request: VideoRequest, callback_url: str | None = None) -> JSON:
    """Return the body of the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = VolcengineVideo(ACCOUNT)
    handler.validate(request)
    sent = handler.build_submit(request, PreparedContext.of(context))
    assert (sent.method, sent.url) == ("POST", TASKS)
    return sent.json


def part(kind: str, url: str, role: str) -> JSON:
    """Return a material as it stands in `content`."""
    return {"type": kind, kind: {"url": url}, "role": role}


TEXT: JSON = {"type": "text", "text": "a coat"}


@pytest.mark.parametrize(
    ("fields_", "content", "choices"),
    [
        (
            {
                "duration": FIVE,
                "resolution": "720P",
                "aspect_ratio": "21:9",
                "fps": 24,
                "seed": 0,
                "watermark": False,
                "audio": True,
            },
            [TEXT],
            {
                "duration": 5,
                "resolution": "720p",
                "ratio": "21:9",
                "fps": 24,
                "seed": 0,
                "watermark": False,
                "generate_audio": True,
            },
        ),
        (
            {"prompt": "", "first_frame": IMAGE, "resolution": "4K"},
            [part("image_url", IMAGE, "first_frame")],
            {"resolution": "4k"},
        ),
        (
            {"first_frame": IMAGE, "last_frame": OTHER, "resolution": "Best"},
            [TEXT, part("image_url", IMAGE, "first_frame"), part("image_url", OTHER, "last_frame")],
            {"resolution": "Best"},
        ),
        (
            {"reference_images": [IMAGE, OTHER]},
            [TEXT, part("image_url", IMAGE, "reference_image"), part("image_url", OTHER, "reference_image")],
            {},
        ),
        (
            {"reference_images": [IMAGE], "reference_videos": [CLIP], "audio_url": SOUND},
            [
                TEXT,
                part("image_url", IMAGE, "reference_image"),
                part("video_url", CLIP, "reference_video"),
                part("audio_url", SOUND, "reference_audio"),
            ],
            {},
        ),
    ],
)
def test_each_mode_has_its_content(
    fields_: dict[str, Any], content: list[JSON], choices: dict[str, JSON]
) -> None:
    """A part for the prompt, one for each material with its role, and every choice under the provider's name."""
    sent = build(VideoRequest(**{"prompt": "a coat", **fields_}))
    assert sent == {"model": "doubao-seedance-2-0-260128", "content": content, **choices}


def test_options_go_beneath_what_the_request_says() -> None:
    """Neither the model, the content, a choice nor the address of the callback can be replaced."""
    options: dict[str, JSON] = {
        "model": "another",
        "content": [],
        "seed": 1,
        "callback_url": "https://elsewhere.example.com",
        "return_last_frame": True,
    }
    sent = build(VideoRequest(prompt="a coat", seed=2, model="ep-1", options=options), CALLBACK)
    assert sent == {
        "model": "ep-1",
        "content": [TEXT],
        "seed": 2,
        "callback_url": own_callback_url(CALLBACK, "task-1", "callback-secret-of-one"),
        "return_last_frame": True,
    }


@pytest.mark.parametrize(
    ("fields_", "told"),
    [
        ({"duration": timedelta(seconds=4.5)}, "whole seconds"),
        ({"duration": timedelta(seconds=3)}, "4 to 15 seconds, not 3"),
        ({"duration": timedelta(seconds=16)}, "4 to 15 seconds, not 16"),
        ({"first_frame": IMAGE, "model": "doubao-seedance-1-0-lite-t2v-250428"}, "from first_frame"),
        ({"source_video": CLIP}, "from video_to_video"),
        ({"source_video": CLIP, "mode": VideoMode.OMNI_REFERENCE}, "among reference_videos"),
        ({"audio_url": SOUND, "mode": VideoMode.AUDIO_DRIVEN}, "from audio_driven"),
        ({"negative_prompt": "a hat"}, "negative_prompt"),
        ({"width": 1280, "height": 720}, "size"),
    ],
)
def test_what_a_model_does_not_have_is_refused(fields_: dict[str, Any], told: str) -> None:
    """Before anything is written, and with the name of what is wrong."""
    request = VideoRequest(**{"prompt": "a coat", **fields_})
    with pytest.raises(InvalidParams, match=told):
        VolcengineVideo().validate(request)


def test_other_models_have_no_documented_limits() -> None:
    """So the provider decides."""
    VolcengineVideo().validate(
        VideoRequest(prompt="a coat", duration=timedelta(seconds=2), model="doubao-seedance-1-0-pro-250528")
    )


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return VolcengineVideo().parse_query(response, JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("queued", Verdict.RUNNING, Status.SUBMITTED),
        ("running", Verdict.RUNNING, Status.RUNNING),
        ("succeeded", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("expired", Verdict.FAILED, Status.RUNNING),
        ("cancelled", Verdict.CANCELED, Status.RUNNING),
        ("paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (status("failed"), "OutputVideoSensitiveContentDetected", "it was withheld"),
        (status("failed", error=None), None, "the job failed"),
        (status("expired"), "expired", "the job was not done within its execution_expires_after"),
        (status("expired", error={"code": "x", "message": "too late"}), "expired", "too late"),
    ],
)
def test_a_failed_job_says_why(body: JSON, code: str | None, message: str) -> None:
    """With the provider's code and words, as far as there are any."""
    failed = read(body)
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, code, message)


def test_a_video_and_its_last_frame_are_read() -> None:
    """Their URLs work for a day."""
    more: dict[str, JSON] = {
        "usage": {"completion_tokens": 1},
        "seed": 7,
        "duration": 5,
        "framespersecond": 24,
    }
    found = read(status("succeeded", **more)).result
    until = Claim().now + timedelta(hours=24)
    assert found == VideoResult(
        videos=(Video(url=VIDEO, expires_at=until, duration_seconds=5.0, fps=24.0),),
        last_frame_url="https://tos.example.com/l.png",
        seed=7,
        usage={"completion_tokens": 1},
    )
    to_json(found)


def test_a_bare_video_is_one_too() -> None:
    """What is beside the URL may be missing."""
    found = read(status("succeeded", content={"video_url": VIDEO})).result
    assert isinstance(found, VideoResult)
    assert (found.last_frame_url, found.seed, found.usage) == (None, None, {})


@pytest.mark.parametrize("content", [None, {}, {"video_url": ""}, "x"])
def test_done_without_a_url_is_incomplete(content: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(status("succeeded", content=content)).verdict is Verdict.INCOMPLETE


# Errors and cancels, on raw replies.


@pytest.mark.parametrize(
    ("http_status", "body", "expected", "code"),
    [
        (400, error("bad ratio", "InvalidParameter"), SubmitRejected, "InvalidParameter"),
        (401, error("no key", "AuthenticationError"), SubmitDeferred, "AuthenticationError"),
        (429, error("slow down", "RateLimitExceeded"), SubmitDeferred, "RateLimitExceeded"),
        (500, error("oh"), OutcomeUnknown, "InternalServiceError"),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown, "provider_unavailable"),
        (200, {"model": "m"}, HandlerError, "unreadable_answer"),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError], code: str
) -> None:
    """A 5xx proves nothing; what an operator can mend, or time does, defers; what only the caller can rejects."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = VolcengineVideo(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(expected) as caught:
            await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
        await handler.close()
    assert caught.value.code == code
    [sent] = server.requests
    assert (sent.target, sent.headers["authorization"]) == (TASKS, "Bearer the-key")


@pytest.mark.parametrize(
    ("replies", "outcome", "methods"),
    [
        ([Reply.of(status("queued")), Reply.of({})], CancelOutcome.CONFIRMED, ["GET", "DELETE"]),
        (
            [Reply.of(status("queued")), Reply.of(error("it runs", "Kit"), status=409)],
            CancelOutcome.REFUSED,
            None,
        ),
        ([Reply.of(status("queued")), Reply.of(error("oh"), status=500)], CancelOutcome.UNKNOWN, None),
        ([Reply.of(status("queued")), Reply(ending=Ending.CLOSE)], CancelOutcome.UNKNOWN, None),
        ([Reply.of(status("running"))], CancelOutcome.REFUSED, ["GET"]),
        ([Reply.of(status("succeeded"))], CancelOutcome.REFUSED, ["GET"]),
        ([Reply.of(status("expired"))], CancelOutcome.REFUSED, ["GET"]),
        ([Reply.of(status("cancelled"))], CancelOutcome.CONFIRMED, ["GET"]),
        ([Reply.of(status("paused"))], CancelOutcome.UNKNOWN, ["GET"]),
        ([Reply.of(b"<html>")], CancelOutcome.UNKNOWN, ["GET"]),
        ([Reply.of(error("no such task", "NotFound"), status=404)], CancelOutcome.REFUSED, ["GET"]),
        ([Reply.of(error("slow down", "RateLimitExceeded"), status=429)], CancelOutcome.UNKNOWN, ["GET"]),
        ([Reply(ending=Ending.CLOSE)], CancelOutcome.UNKNOWN, ["GET"]),
    ],
)
async def test_only_a_queued_job_is_deleted(
    replies: list[Reply], outcome: CancelOutcome, methods: list[str] | None
) -> None:
    """A DELETE would throw away the record of one that has ended; so confirmed means cancelled, and nothing else."""
    async with ScriptedServer(replies) as server:
        handler = VolcengineVideo(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        found = await handler.cancel(QueryParams(external_task_id="a/b"), Claim().cancel)
        await handler.close()
    assert found is outcome
    assert [sent.method for sent in server.requests] == (methods or ["GET", "DELETE"])
    assert {sent.target for sent in server.requests} == {f"{TASKS}/a%2Fb"}
    assert Capability.CANCEL in handler.capabilities


# Callbacks.


async def test_a_callback_nudges_the_job_that_it_names() -> None:
    """If it came to the address that was told for the task; the body alone proves nothing."""
    handler = VolcengineVideo(ACCOUNT)
    assert (await handler.parse_callback(called_back("task-1"), None)).external_task_ids == ("cgt-1",)
    with pytest.raises(CallbackRejected):
        await handler.parse_callback(evolve(called_back("task-1"), query={}), None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Ark's protocol, without an encoder."""
    protocols = [VolcengineVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[VolcengineVideo]:
    """A handler that is open."""
    settings = HttpSettings(base_url=f"{sandbox.url}/volcengine-video", allow_private=True)
    made = VolcengineVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: VolcengineVideo, sandbox: SandboxServer, **changes: Any) -> QueryParams:
    """Submit a request, and return what its queries need."""
    taken = await handler.submit(VideoRequest(**{"prompt": "a coat", **changes}), Claim().submit)
    assert taken.status is Status.SUBMITTED
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, (320, 180)),
        ({"resolution": "480p"}, (853, 480)),
        ({"resolution": "480p", "aspect_ratio": "3:4", "first_frame": IMAGE}, (480, 640)),
    ],
)
async def test_a_video_is_made(
    handler: VolcengineVideo, sandbox: SandboxServer, changes: dict[str, Any], size: tuple[int, int]
) -> None:
    """Submitted once, queried, and there is its URL, which needs no key."""
    job = await submitted(handler, sandbox, duration=FIVE, fps=24, seed=7, **changes)
    found = await handler.query(job, Claim().query)
    assert isinstance(found.result, VideoResult)
    [video] = found.result.videos
    assert (video.duration_seconds, video.fps, found.result.seed) == (5.0, 24.0, 7)
    assert b"a coat" in (await handler.download(video.url)).content
    assert sandbox.creating_requests("a coat") == 1
    made = sandbox.jobs.get(job.external_task_id)
    assert made is not None
    assert made.order is not None
    assert (made.order.width, made.order.height) == size


async def test_a_job_may_fail_or_hide_its_video(handler: VolcengineVideo, sandbox: SandboxServer) -> None:
    """With the provider's code and words."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="OutputVideoSensitiveContentDetected", message="withheld"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("OutputVideoSensitiveContentDetected", "withheld")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_queued_job_is_cancelled_and_a_done_one_is_kept(
    handler: VolcengineVideo, sandbox: SandboxServer
) -> None:
    """Confirmed for the one, also twice; refused for the other, whose video can still be had."""
    done = await submitted(handler, sandbox)
    assert await handler.cancel(done, Claim().cancel) is CancelOutcome.REFUSED
    assert (await handler.query(done, Claim().query)).verdict is Verdict.SUCCEEDED
    deleted = await handler.ask(handler.build_cancel(done, Claim().cancel), Claim().cancel)
    assert deleted.json() == {}  # which is why it is not asked
    sandbox.jobs.delay = timedelta(hours=1)
    queued = await submitted(handler, sandbox)
    for _ in range(2):
        assert await handler.cancel(queued, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(queued, Claim().query)).verdict is Verdict.CANCELED


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    settings = HttpSettings(base_url=f"{sandbox.url}/volcengine-video")
    handler = VolcengineVideo(ApiKey("wrong"), settings=settings)
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"content": [TEXT]}, "MissingParameter"),
        ({"model": "m", "content": []}, "MissingParameter"),
        ({"model": "m", "content": ["x"]}, "InvalidParameter"),
        ({"model": "m", "content": [{"type": "image_url"}]}, "InvalidParameter"),
    ],
)
async def test_the_sandbox_refuses_what_is_incomplete(
    handler: VolcengineVideo, body: JSON, code: str
) -> None:
    """In the provider's envelope."""
    told = await handler.ask(HttpRequest.post(TASKS, json=body), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert refusal.code == code
