import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import evolve

from coatcheck.errors import CallbackRejected, HandlerError, InvalidParams, SubmitDeferred, SubmitRejected
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.luma import LumaVideo
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext, own_callback_url
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.luma_video import LumaVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "123e4567-e89b-12d3-a456-426614174000"
JOB = QueryParams(external_task_id=ID)
VIDEO = "https://files.example.com/a.mp4"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
ACCOUNT = ApiKey("luma-key-of-one", callback_secret="callback-secret-of-one")
CALLBACK = "https://app.example.com/callbacks/video:luma"


def generation(state: str, **more: JSON) -> dict[str, JSON]:
    """Return a generation in this state."""
    return {"id": ID, "state": state, "failure_reason": None, "assets": None, "model": "ray-2", **more}


def status(word: str) -> JSON:
    """Return the answer to a query of a generation in this state."""
    if word == "completed":
        return generation(word, assets={"video": VIDEO, "image": IMAGE, "progress_video": None})
    return generation(word, failure_reason="the frame is broken" if word == "failed" else None)


def called_back(task_id: str, secret: str = "callback-secret-of-one") -> CallbackRequest:
    """Return a callback to the address that was told for a task."""
    query = dict(parse_qsl(urlsplit(own_callback_url(CALLBACK, task_id, secret)).query))
    body = json.dumps(status("completed")).encode()
    return CallbackRequest(method="POST", path="/callbacks", headers={}, query=query, body=body)


def luma_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its SDK describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.luma:LumaVideo",
        key="video:luma",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"concepts": [{"key": "dolly"}]}
        ),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": ApiKey("luma-key-of-another")},
        script=Script(
            job=ID,
            accepted=KitReply.of(generation("queued"), status=201),
            status=status,
            words={
                "queued": Means.WAITING,
                "dreaming": Means.RUNNING,
                "completed": Means.SUCCEEDED,
                "failed": Means.FAILED,
            },
            rejected=KitReply.of({"detail": "no such model"}, status=400),
            rate_limited=KitReply.of({"detail": "too many requests"}, status=429),
            not_found=KitReply.of({"detail": "generation not found"}, status=404),
            error=lambda message: {"detail": message},
            done_without_result=KitReply.of(generation("completed")),
            callbacks=Callbacks(
                authentic=called_back("task-1"), forged=called_back("task-1", "another secret")
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestLumaVideo(HandlerConformance):
    """The handler of Luma keeps every promise."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "parse_callback",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its SDK describes it."""
        return luma_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return LumaVideo().parse_query(response, JOB, Claim().query)


def build(
    request: VideoRequest, callback_url: str | None = None, settings: VideoSettings | None = None
) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = LumaVideo(ACCOUNT, settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("queued", Verdict.RUNNING, Status.SUBMITTED),
        ("dreaming", Verdict.RUNNING, Status.RUNNING),
        ("completed", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


def test_the_video_is_among_the_assets() -> None:
    """With the image that stands for it; when the URL ends is not documented."""
    found = read(status("completed"))
    assert found.result == VideoResult(videos=(Video(url=VIDEO),), cover_url=IMAGE)
    to_json(found.result)


@pytest.mark.parametrize("assets", [None, {}, {"video": None}, {"video": " "}, {"image": IMAGE}, []])
def test_done_without_a_url_is_incomplete(assets: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(generation("completed", assets=assets)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("reason", "message"), [("the frame is broken", "the frame is broken"), (None, "the job failed")]
)
def test_a_failed_generation_gives_its_reason(reason: str | None, message: str) -> None:
    """There is no code."""
    failed = read(generation("failed", failure_reason=reason))
    assert (failed.error_code, failed.error_message) == (None, message)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (VideoRequest(prompt="waves"), {"prompt": "waves"}),
        (
            VideoRequest(
                prompt="waves", duration=timedelta(seconds=9), resolution="720p", aspect_ratio="9:21"
            ),
            {"prompt": "waves", "duration": "9s", "resolution": "720p", "aspect_ratio": "9:21"},
        ),
        (VideoRequest(first_frame=IMAGE), {"keyframes": {"frame0": {"type": "image", "url": IMAGE}}}),
        (
            VideoRequest(first_frame=IMAGE, last_frame=LAST),
            {
                "keyframes": {
                    "frame0": {"type": "image", "url": IMAGE},
                    "frame1": {"type": "image", "url": LAST},
                }
            },
        ),
        (
            VideoRequest(
                first_frame=IMAGE,
                options={
                    "loop": True,
                    "model": "ray-9",
                    "keyframes": {"frame0": {"x": 1}, "frame1": {"type": "generation", "id": "g1"}},
                },
            ),
            {
                "loop": True,
                "keyframes": {
                    "frame0": {"type": "image", "url": IMAGE},
                    "frame1": {"type": "generation", "id": "g1"},
                },
            },
        ),
    ],
)
def test_a_request_says_what_it_was_given(request_: VideoRequest, expected: dict[str, JSON]) -> None:
    """Frames are keyframes; options go beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url) == ("POST", "/generations/video")
    assert sent.json == {"model": "ray-2", **expected}


def test_the_model_may_come_from_the_request_or_the_settings() -> None:
    """The request goes before."""
    settings = VideoSettings(model="ray-flash-2")
    assert build(VideoRequest(prompt="x"), settings=settings).json == {"model": "ray-flash-2", "prompt": "x"}
    named = VideoRequest(prompt="x", model="ray-1-6")
    assert build(named, settings=settings).json == {"model": "ray-1-6", "prompt": "x"}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", aspect_ratio="2:1"), "2:1"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(prompt="x", options={"keyframes": [1]}), r"options\.keyframes"),
        (VideoRequest(prompt="x", source_video=VIDEO), "video_to_video"),
        (VideoRequest(prompt="x", seed=1), "seed"),
        (VideoRequest(prompt="x", width=1, height=1), "size"),
    ],
)
def test_what_the_provider_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        LumaVideo().validate(request_)


def test_a_cancel_is_no_capability() -> None:
    """The provider can only delete what it has made."""
    assert Capability.CANCEL not in LumaVideo().capabilities
    assert Capability.CALLBACK in LumaVideo().capabilities


# Callbacks.


def test_the_provider_is_told_an_address_with_a_proof() -> None:
    """Options cannot replace it."""
    told = own_callback_url(CALLBACK, "task-1", "callback-secret-of-one")
    request = VideoRequest(prompt="x", options={"callback_url": "https://elsewhere.example.com"})
    assert build(request, CALLBACK).json == {"model": "ray-2", "prompt": "x", "callback_url": told}


async def test_a_callback_to_that_address_names_the_generation() -> None:
    """Whatever it says of it, for that is queried."""
    found = await LumaVideo(ACCOUNT).parse_callback(called_back("task-1"), None)
    assert found.external_task_ids == (ID,)
    with pytest.raises(CallbackRejected):
        await LumaVideo(ACCOUNT).parse_callback(called_back("task-1", "another secret"), None)


# Submissions, on raw replies.


async def submit(reply: Reply) -> SubmitResult | HandlerError:
    """Submit to a provider that answers so, and return the outcome or what was raised."""
    async with ScriptedServer([reply]) as server:
        handler = LumaVideo(ApiKey("the-key"), settings=VideoSettings(base_url=server.url))
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
        (400, {"detail": "no"}, SubmitRejected),
        (401, {"detail": "no key"}, SubmitDeferred),
        (429, {"detail": "slow down"}, SubmitDeferred),
        (500, {"detail": "oh"}, OutcomeUnknown),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError]
) -> None:
    """A 5xx proves nothing; what an operator can mend defers; what only the caller can rejects."""
    assert type(await submit(Reply.of(body, status=http_status))) is expected


async def test_the_first_state_is_taken_from_the_answer() -> None:
    """As documented, a creating request is answered with the generation."""
    taken = await submit(Reply.of(generation("dreaming"), status=201))
    assert isinstance(taken, SubmitResult)
    assert (taken.status, taken.provider_status, taken.query_params) == (Status.RUNNING, "dreaming", JOB)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Luma's protocol, without an encoder."""
    protocols = [LumaVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[LumaVideo]:
    """A handler that is open."""
    settings = VideoSettings(base_url=f"{sandbox.url}/luma-video", allow_private=True)
    made = LumaVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: LumaVideo, sandbox: SandboxServer) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(
        prompt="waves", first_frame=IMAGE, duration=timedelta(seconds=5), resolution="540p"
    )
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "queued")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


async def test_a_video_is_made(handler: LumaVideo, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    job = await submitted(handler, sandbox)
    done = await handler.query(job, Claim().query)
    assert isinstance(done.result, VideoResult)
    assert "waves" in (await handler.download(done.result.videos[0].url)).text
    found = sandbox.jobs.get(job.external_task_id)
    assert found is not None
    assert found.order is not None
    assert (found.order.seconds, found.order.width, found.order.height) == (5, 960, 540)
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: LumaVideo, sandbox: SandboxServer) -> None:
    """With the provider's words."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="any", message="the frame is broken"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == (None, "the frame is broken")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = LumaVideo(ApiKey("wrong"), settings=VideoSettings(base_url=f"{sandbox.url}/luma-video"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize("body", [{}, {"model": "ray-2", "duration": "5"}])
async def test_the_sandbox_refuses_what_it_cannot_read(handler: LumaVideo, body: JSON) -> None:
    """In the provider's form."""
    told = await handler.ask(HttpRequest.post("/generations/video", json=body), Claim().query)
    assert (told.status, set(told.json_object())) == (400, {"detail"})
