import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from coatcheck import gates
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
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Cancelling, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, Video, VideoMode, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.aliyun import AliyunVideo, AliyunVideoSettings
from coatcheck_http import HttpRequest, HttpResponse, HttpSettings, OutcomeUnknown, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import Answer, FailingJob, NoResult, SandboxServer, StatusWord, describe, sketch
from coatcheck_sandbox.providers.aliyun_video import AliyunVideoProtocol

MIB = 1024 * 1024
OK = 200
JOB = QueryParams(external_task_id="t1")
IMAGE = "https://files.example.com/a.png"
OTHER = "https://files.example.com/b.png"
CLIP = "https://files.example.com/a.mp4"
SOUND = "https://files.example.com/a.mp3"
VIDEO = "https://oss.example.com/v.mp4?signature=s"
SYNTHESIS = "/api/v1/services/aigc/video-generation/video-synthesis"
FIVE = timedelta(seconds=5)


def error(message: str, code: str = "InternalError.Kit") -> JSON:
    """Return the body of an error."""
    return {"request_id": "q4", "code": code, "message": message}


def status(word: str, **output: JSON) -> JSON:
    """Return the answer to a query of a task with this status word."""
    told: dict[str, JSON] = {"task_id": "t1", "task_status": word, **output}
    if word == "SUCCEEDED" and not output:
        told["video_url"] = VIDEO
    if word == "FAILED":
        told.update(code="DataInspectionFailed", message="the output was withheld")
    return {"request_id": "q2", "output": told, "usage": {"video_count": 1}}


def aliyun_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.aliyun:AliyunVideo",
        key="video:aliyun",
        params=lambda url: VideoRequest(
            prompt="a coat", first_frame=f"{url}/files/a.png", options={"parameters": {"template": "a"}}
        ),
        settings=lambda url: AliyunVideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB, workspace="ws-1"
        ),
        accounts={"default": ApiKey("aliyun-key-of-one"), "other": ApiKey("aliyun-key-of-another")},
        script=Script(
            job="t1",
            accepted=KitReply.of(status("PENDING")),
            status=status,
            words={
                "PENDING": Means.WAITING,
                "RUNNING": Means.RUNNING,
                "SUSPENDED": Means.RUNNING,
                "SUCCEEDED": Means.SUCCEEDED,
                "FAILED": Means.FAILED,
                "CANCELED": Means.CANCELED,
            },
            rejected=KitReply.of(error("no such size", "InvalidParameter"), status=400),
            rate_limited=KitReply.of(error("slow down", "Throttling.RateQuota"), status=400),
            not_found=KitReply.of(error("no such task", "NotFound"), status=404),
            error=error,
            done_without_result=KitReply.of(status("SUCCEEDED", video_url=None)),
            cancel=Cancelling(
                confirmed=KitReply.of({"request_id": "q5"}),
                refused=KitReply.of(error("not pending", "UnsupportedOperation"), status=400),
            ),
        ),
        creating=lambda method, path: (method, path) == ("POST", SYNTHESIS),
        answer_limit_bytes=4 * MIB,
    )


class TestAliyunVideo(HandlerConformance):
    """The handler of DashScope keeps every promise."""

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
        return aliyun_spec()


# What is sent.


def build(request: VideoRequest, settings: HttpSettings | None = None) -> HttpRequest:
    """Return the creating request."""
    handler = AliyunVideo(ApiKey("k"), settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(Claim().submit))


@pytest.mark.parametrize(
    ("request_", "model", "input_", "parameters"),
    [
        (
            VideoRequest(
                prompt="a coat",
                negative_prompt="a hat",
                audio_url=SOUND,
                duration=FIVE,
                width=1280,
                height=720,
                aspect_ratio="16:9",
                fps=24,
                seed=7,
                watermark=False,
                audio=True,
            ),
            "wan2.6-t2v",
            {"prompt": "a coat", "negative_prompt": "a hat", "audio_url": SOUND},
            {
                "size": "1280*720",
                "ratio": "16:9",
                "duration": 5,
                "fps": 24,
                "seed": 7,
                "watermark": False,
                "generate_audio": True,
            },
        ),
        (
            VideoRequest(first_frame=IMAGE, resolution="720p"),
            "wan2.6-i2v",
            {"img_url": IMAGE},
            {"resolution": "720P"},
        ),
        (
            VideoRequest(first_frame=IMAGE, last_frame=OTHER),
            "wanx2.1-kf2v-plus",
            {"first_frame_url": IMAGE, "last_frame_url": OTHER},
            {},
        ),
        (
            VideoRequest(prompt="both", reference_images=[IMAGE]),
            "wan2.6-r2v",
            {"prompt": "both", "reference_urls": [IMAGE]},
            {},
        ),
        (
            VideoRequest(prompt="both", reference_images=[IMAGE], reference_videos=[CLIP]),
            "wan2.6-r2v",
            {"prompt": "both", "reference_urls": [IMAGE], "reference_video_urls": [CLIP]},
            {},
        ),
        (
            VideoRequest(
                prompt="both",
                reference_images=[IMAGE],
                reference_videos=[CLIP],
                model="wan2.7-r2v",
                resolution="1080P",
            ),
            "wan2.7-r2v",
            {
                "prompt": "both",
                "media": [
                    {"type": "reference_image", "url": IMAGE},
                    {"type": "reference_video", "url": CLIP},
                ],
            },
            {"resolution": "1080P"},
        ),
        (
            VideoRequest(prompt="repaint", source_video=CLIP, model="wan-of-tomorrow", resolution="best"),
            "wan-of-tomorrow",
            {"prompt": "repaint", "video_url": CLIP},
            {"resolution": "best"},
        ),
        (
            VideoRequest(
                prompt="a coat",
                model="happyhorse-1.1-t2v",
                duration=FIVE,
                resolution="1080p",
                aspect_ratio="9:21",
                seed=2147483647,
                watermark=True,
            ),
            "happyhorse-1.1-t2v",
            {"prompt": "a coat"},
            {"resolution": "1080P", "ratio": "9:21", "duration": 5, "watermark": True, "seed": 2147483647},
        ),
        (
            VideoRequest(first_frame=IMAGE, model="happyhorse-1.1-i2v"),
            "happyhorse-1.1-i2v",
            {"media": [{"type": "first_frame", "url": IMAGE}]},
            {},
        ),
        (
            VideoRequest(prompt="both", reference_images=[IMAGE, OTHER], model="happyhorse-1.0-r2v"),
            "happyhorse-1.0-r2v",
            {
                "prompt": "both",
                "media": [
                    {"type": "reference_image", "url": IMAGE},
                    {"type": "reference_image", "url": OTHER},
                ],
            },
            {},
        ),
        (
            VideoRequest(prompt="repaint", source_video=CLIP, reference_images=[IMAGE]),
            "happyhorse-1.0-video-edit",
            {
                "prompt": "repaint",
                "media": [{"type": "video", "url": CLIP}, {"type": "reference_image", "url": IMAGE}],
            },
            {},
        ),
        (VideoRequest(prompt="a coat", model="HappyHorse"), "HappyHorse", {"prompt": "a coat"}, {}),
    ],
)
def test_each_mode_and_family_has_its_body(
    request_: VideoRequest, model: str, input_: JSON, parameters: JSON
) -> None:
    """Every choice goes under the provider's name; who names no model gets one that makes what is asked for."""
    sent = build(request_)
    assert sent.json == {"model": model, "input": input_, "parameters": parameters}
    service = "image2video" if "kf2v" in model else "video-generation"
    assert (sent.method, sent.url) == ("POST", f"/api/v1/services/aigc/{service}/video-synthesis")
    assert sent.headers == {"x-dashscope-async": "enable"}


def test_options_go_beneath_what_the_request_says() -> None:
    """Model, prompt and choices cannot be replaced; materials in the provider's bucket get the header they need."""
    options: dict[str, JSON] = {
        "model": "another",
        "input": {"prompt": "another", "template": "flying"},
        "parameters": {"duration": 9, "prompt_extend": False},
        "extra": 1,
    }
    sent = build(VideoRequest(prompt="a coat", duration=FIVE, options=options))
    assert sent.json == {
        "model": "wan2.6-t2v",
        "input": {"prompt": "a coat", "template": "flying"},
        "parameters": {"duration": 5, "prompt_extend": False},
        "extra": 1,
    }
    media: JSON = [{"weight": 1, "type": "first_frame", "url": "oss://bucket/a.png"}]
    sent = build(VideoRequest(prompt="a coat", options={"input": {"media": media}, "parameters": None}))
    assert sent.headers["x-dashscope-ossresourceresolve"] == "enable"


def test_the_model_of_the_settings_counts_where_a_request_names_none() -> None:
    """The handler's own choice comes last."""
    settings = AliyunVideoSettings(model="wan2.2-t2v-plus")
    sent = build(VideoRequest(prompt="a coat"), settings)
    assert isinstance(sent.json, dict)
    assert sent.json["model"] == "wan2.2-t2v-plus"


@pytest.mark.parametrize(
    ("fields_", "told"),
    [
        ({"options": {"input": [1]}}, r"options\.input"),
        ({"options": {"parameters": "x"}}, r"options\.parameters"),
        ({"duration": timedelta(seconds=2.5)}, "whole seconds"),
        ({"resolution": "720P"}, "give width and height"),
        ({"first_frame": IMAGE, "width": 1280, "height": 720}, "give resolution"),
        ({"first_frame": IMAGE, "model": "wan2.6-t2v"}, "makes no video from first_frame"),
        ({"audio_url": SOUND, "mode": VideoMode.AUDIO_DRIVEN}, "makes no video from audio_driven"),
        ({"mode": VideoMode.OMNI_REFERENCE}, "needs reference_images or reference_videos"),
        ({"reference_videos": [CLIP], "first_frame": IMAGE}, "no place for first_frame"),
        ({"source_video": CLIP, "first_frame": IMAGE}, "no place for first_frame"),
        ({"first_frame": "gs://bucket/a.png"}, "http or https"),
        ({"model": "happyhorse-1.1-t2v", "negative_prompt": "x"}, "negative_prompt"),
        ({"model": "happyhorse-1.1-t2v", "width": 1280, "height": 720}, "size"),
        ({"model": "happyhorse-1.1-t2v", "fps": 24}, "fps"),
        ({"model": "happyhorse-1.1-t2v", "audio": True}, "audio"),
        ({"model": "happyhorse-1.1-t2v", "audio_url": SOUND}, "no place for audio_url"),
        ({"model": "happyhorse-1.1-t2v", "resolution": "480p"}, "720P or 1080P"),
        ({"model": "happyhorse-1.1-t2v", "aspect_ratio": "2:1"}, "aspect_ratio"),
        ({"model": "happyhorse-1.1-t2v", "duration": timedelta(seconds=2)}, "3 to 15 seconds"),
        ({"model": "happyhorse-1.1-t2v", "duration": timedelta(seconds=16)}, "3 to 15 seconds"),
        ({"model": "happyhorse-1.1-t2v", "seed": 2147483648}, "seed"),
        ({"model": "happyhorse-1.1-i2v", "first_frame": IMAGE, "aspect_ratio": "1:1"}, "aspect_ratio"),
        ({"model": "happyhorse-1.1-r2v", "reference_images": [IMAGE] * 10}, "at most 9"),
        ({"model": "happyhorse-1.1-r2v", "reference_images": [IMAGE], "prompt": " "}, "needs a prompt"),
        ({"source_video": CLIP, "reference_images": [IMAGE] * 6}, "at most 5"),
        ({"source_video": CLIP, "duration": FIVE}, "leave duration out"),
        ({"source_video": CLIP, "aspect_ratio": "1:1"}, "leave aspect_ratio out"),
    ],
)
def test_what_a_model_does_not_have_is_refused(fields_: dict[str, Any], told: str) -> None:
    """Before anything is written, and with the name of what is wrong."""
    request = VideoRequest(**{"prompt": "a coat", **fields_})
    with pytest.raises(InvalidParams, match=told):
        AliyunVideo().validate(request)


# Where the provider is.


@pytest.mark.parametrize(
    ("settings", "base_url"),
    [
        (None, "https://dashscope.aliyuncs.com"),
        (HttpSettings(), "https://dashscope.aliyuncs.com"),
        (VideoSettings(base_url="https://gateway.example.com/d"), "https://gateway.example.com/d"),
        (AliyunVideoSettings(workspace="ws-1"), "https://dashscope.aliyuncs.com"),
        (AliyunVideoSettings(region="us"), "https://dashscope-us.aliyuncs.com"),
        (AliyunVideoSettings(region="intl"), "https://dashscope-intl.aliyuncs.com"),
        (
            AliyunVideoSettings(region="eu-central-1", workspace="ws-1"),
            "https://ws-1.eu-central-1.maas.aliyuncs.com",
        ),
        (AliyunVideoSettings(region="cn-beijing", base_url="https://x.example.com"), "https://x.example.com"),
    ],
)
def test_the_settings_say_where_the_provider_is(settings: HttpSettings | None, base_url: str) -> None:
    """By a region, or by an address, which goes first."""
    assert AliyunVideo(settings=settings).base_url == base_url


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"region": "mars"}, "none of us, intl"),
        ({"region": "ap-southeast-1"}, "needs the id of a workspace"),
        ({"region": "cn-beijing", "workspace": "elsewhere.example.com/"}, "no id of a workspace"),
        ({"workspace": ""}, "no id of a workspace"),
    ],
)
def test_a_region_that_leads_nowhere_is_refused(settings: dict[str, str], told: str) -> None:
    """When the settings are made."""
    with pytest.raises(ConfigurationError, match=told):
        AliyunVideoSettings(**settings)  # type: ignore[arg-type]  # all of them are texts


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return AliyunVideo().parse_query(response, JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("PENDING", Verdict.RUNNING, Status.SUBMITTED),
        ("RUNNING", Verdict.RUNNING, Status.RUNNING),
        ("SUSPENDED", Verdict.RUNNING, Status.RUNNING),
        ("SUCCEEDED", Verdict.SUCCEEDED, Status.RUNNING),
        ("FAILED", Verdict.FAILED, Status.RUNNING),
        ("CANCELED", Verdict.CANCELED, Status.RUNNING),
        ("PAUSED", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


def test_a_failed_task_says_why() -> None:
    """With the provider's code."""
    failed = read(status("FAILED"))
    assert (failed.error_code, failed.error_message) == ("DataInspectionFailed", "the output was withheld")


def test_a_task_that_is_not_there_is_not_found() -> None:
    """So it is "not yet" shortly after its submission, and ends by name later: it is not polled to the deadline."""
    expired = read(status("UNKNOWN"))
    assert (expired.verdict, expired.error_code) == (Verdict.NOT_FOUND, "expired")
    assert "24 h" in (expired.error_message or "")


def test_a_video_is_read() -> None:
    """Its URL works for a day."""
    found = read(status("SUCCEEDED")).result
    assert found == VideoResult(
        videos=(Video(url=VIDEO, expires_at=Claim().now + timedelta(hours=24)),), usage={"video_count": 1}
    )
    to_json(found)


def test_parts_that_failed_are_warnings() -> None:
    """As long as there is a video; each is told once."""
    results: JSON = [
        {"url": "https://oss.example.com/1.mp4"},
        {"video_url": "https://oss.example.com/2.mp4"},
        {"url": "https://oss.example.com/1.mp4"},
        {"code": "InternalError.Timeout", "message": "too slow"},
        {"message": "too dark"},
    ]
    found = read(status("SUCCEEDED", results=results)).result
    assert isinstance(found, VideoResult)
    assert [each.url for each in found.videos] == [f"https://oss.example.com/{name}.mp4" for name in (1, 2)]
    assert found.warnings == (
        "a part of the task failed: InternalError.Timeout: too slow",
        "a part of the task failed: too dark",
    )


@pytest.mark.parametrize(
    ("part", "code", "message"),
    [
        ({"code": "InternalError", "message": "no"}, "InternalError", "no"),
        ({"code": "InternalError"}, "InternalError", "every part of the task failed"),
    ],
)
def test_a_task_of_failed_parts_has_failed(part: JSON, code: str, message: str) -> None:
    """Whatever its status word says."""
    found = read(status("SUCCEEDED", results=[part]))
    assert (found.verdict, found.error_code, found.error_message) == (Verdict.FAILED, code, message)


@pytest.mark.parametrize(
    "output", [{"video_url": None}, {"video_url": ""}, {"results": []}, {"results": None}, {"results": [{}]}]
)
def test_done_without_a_url_is_incomplete(output: dict[str, JSON]) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(status("SUCCEEDED", **output)).verdict is Verdict.INCOMPLETE


# Errors, on raw replies.


@pytest.mark.parametrize(
    ("http_status", "body", "expected", "code"),
    [
        (400, error("bad size", "InvalidParameter"), SubmitRejected, "InvalidParameter"),
        (200, error("bad size", "InvalidParameter"), SubmitRejected, "InvalidParameter"),
        (401, error("no key", "InvalidApiKey"), SubmitDeferred, "InvalidApiKey"),
        (400, error("no key", "InvalidApiKey"), SubmitDeferred, "InvalidApiKey"),
        (429, error("slow down", "Throttling.RateQuota"), SubmitDeferred, "Throttling.RateQuota"),
        (400, error("slow down", "Throttling"), SubmitDeferred, "Throttling"),
        (200, error("slow down", "Throttling.User"), SubmitDeferred, "Throttling.User"),
        (500, error("oh", "InternalError"), OutcomeUnknown, "InternalError"),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown, "provider_unavailable"),
        (200, {"request_id": "q", "output": {}}, HandlerError, "unreadable_answer"),
        (200, b"<html>", HandlerError, "unreadable_answer"),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError], code: str
) -> None:
    """The code counts before the HTTP status; a 5xx proves nothing."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        settings = AliyunVideoSettings(base_url=server.url, workspace="ws-1")
        handler = AliyunVideo(ApiKey("the-key"), settings=settings)
        await handler.open()
        with pytest.raises(expected) as caught:
            await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
        await handler.close()
    assert caught.value.code == code
    [sent] = server.requests
    assert sent.target == SYNTHESIS
    assert sent.headers["authorization"] == "Bearer the-key"
    assert (sent.headers["x-dashscope-async"], sent.headers["x-dashscope-workspace"]) == ("enable", "ws-1")


async def test_a_query_asks_for_the_task_alone() -> None:
    """Without the header of a submission; a throttled query says so."""
    slow = Reply.of(error("slow down", "Throttling.RateQuota"), headers={"retry-after": "40"})
    async with ScriptedServer([Reply.of(status("RUNNING")), slow]) as server:
        handler = AliyunVideo(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        job = QueryParams(external_task_id="a/b")
        assert (await handler.query(job, Claim().query)).verdict is Verdict.RUNNING
        with pytest.raises(QueryFailed) as caught:
            await handler.query(job, Claim().query)
        await handler.close()
    assert (caught.value.rate_limited, caught.value.retry_after) == (True, timedelta(seconds=40))
    assert server.requests[0].target == "/api/v1/tasks/a%2Fb"
    assert "x-dashscope-async" not in server.requests[0].headers


def test_no_task_is_asked_about_more_often_than_suggested() -> None:
    """The floor is that of the page on asynchronous tasks, and the rate has a gate."""
    floor = timedelta(seconds=15)
    assert AliyunVideo.facts is not None
    assert (AliyunVideo.poll_floor, AliyunVideo.facts.poll_floor) == (floor, floor)
    assert [gate.name for gate in AliyunVideo().suggested_gates()] == [gates.query("video:aliyun")]


@pytest.mark.parametrize(
    ("http_status", "body", "outcome"),
    [
        (200, {"request_id": "q"}, CancelOutcome.CONFIRMED),
        (200, error("not pending", "UnsupportedOperation"), CancelOutcome.REFUSED),
        (400, error("not pending", "UnsupportedOperation"), CancelOutcome.REFUSED),
        (200, status("UNKNOWN"), CancelOutcome.REFUSED),
        (400, error("slow down", "Throttling"), CancelOutcome.UNKNOWN),
        (401, error("no key", "InvalidApiKey"), CancelOutcome.UNKNOWN),
        (500, error("oh", "InternalError"), CancelOutcome.UNKNOWN),
        (302, b"", CancelOutcome.UNKNOWN),
    ],
)
def test_a_cancel_says_what_the_answer_says(http_status: int, body: JSON, outcome: CancelOutcome) -> None:
    """The provider refuses tasks that are not pending; what it could not look at is unknown."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = HttpResponse(status=http_status, body=content)
    assert AliyunVideo().parse_cancel(response, JOB, Claim().cancel) is outcome


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks DashScope's protocol, without an encoder."""
    protocols = [AliyunVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[AliyunVideo]:
    """A handler that is open."""
    settings = HttpSettings(base_url=f"{sandbox.url}/aliyun-video", allow_private=True)
    made = AliyunVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: AliyunVideo, sandbox: SandboxServer, **changes: Any) -> QueryParams:
    """Submit a request, and return what its queries need."""
    taken = await handler.submit(VideoRequest(**{"prompt": "a coat", **changes}), Claim().submit)
    assert taken.status is Status.SUBMITTED
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 320, "height": 180, "duration": FIVE},
        {"first_frame": IMAGE, "last_frame": OTHER},
        {"first_frame": IMAGE, "model": "happyhorse-1.1-i2v"},
    ],
)
async def test_a_video_is_made(handler: AliyunVideo, sandbox: SandboxServer, changes: dict[str, Any]) -> None:
    """Submitted once, queried, and there is its URL, which needs no key."""
    found = await handler.query(await submitted(handler, sandbox, **changes), Claim().query)
    assert isinstance(found.result, VideoResult)
    [video] = found.result.videos
    assert b"a coat" in (await handler.download(video.url)).content
    assert sandbox.creating_requests("a coat") == 1


async def test_a_task_may_fail_or_hide_its_video(handler: AliyunVideo, sandbox: SandboxServer) -> None:
    """With the provider's code and words; one that is forgotten has expired."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(Answer(status=429, code="Throttling.RateQuota"))
    with pytest.raises(QueryFailed, match="rate_limited"):
        await handler.query(job, Claim().query)
    sandbox.faults.add(FailingJob(code="DataInspectionFailed", message="withheld"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("DataInspectionFailed", "withheld")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).error_code == "expired"
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.REFUSED


async def test_a_task_is_cancelled_until_it_has_ended(handler: AliyunVideo, sandbox: SandboxServer) -> None:
    """Confirmed, and refused where there is nothing to cancel any more."""
    sandbox.jobs.delay = timedelta(hours=1)
    job = await submitted(handler, sandbox)
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(job, Claim().query)).verdict is Verdict.CANCELED
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.REFUSED


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    settings = HttpSettings(base_url=f"{sandbox.url}/aliyun-video")
    handler = AliyunVideo(ApiKey("wrong"), settings=settings)
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({}, {"model": "wan2.6-t2v", "input": {"prompt": "x"}}, "AccessDenied"),
        ({"x-dashscope-async": "enable"}, {"input": {"prompt": "x"}}, "InvalidParameter"),
        ({"x-dashscope-async": "enable"}, {"model": "wan2.6-t2v", "input": {}}, "InvalidParameter"),
    ],
)
async def test_the_sandbox_refuses_what_the_provider_refuses(
    handler: AliyunVideo, headers: dict[str, str], body: JSON, code: str
) -> None:
    """In the provider's envelope."""
    told = await handler.ask(HttpRequest.post(SYNTHESIS, json=body, headers=headers), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert refusal.code == code
