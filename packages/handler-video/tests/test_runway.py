import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import ConfigurationError, InvalidParams, SubmitDeferred, SubmitRejected
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Cancelling, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, Video, VideoMode, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.runway import RunwayVideo, RunwayVideoSettings
from coatcheck_http import ErrorClass, HttpRequest, HttpResponse, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.runway_video import RunwayVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "17f20503-6c24-4c16-946b-35dbbce2af2f"
JOB = QueryParams(external_task_id=ID)
VIDEO = "https://files.example.com/a.mp4?token=t"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
EIGHT = timedelta(seconds=8)


def status(word: str) -> JSON:
    """Return the answer to a query of a job with this status word."""
    answer: dict[str, JSON] = {"id": ID, "createdAt": "2026-03-02T10:00:00Z", "status": word}
    if word == "RUNNING":
        answer["progress"] = 0.4
    if word == "SUCCEEDED":
        answer["output"] = [VIDEO]
    if word == "FAILED":
        answer["failure"], answer["failureCode"] = "an internal error", "INTERNAL.BAD_OUTPUT.CODE01"
    return answer


def runway_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its SDK describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.runway:RunwayVideo",
        key="video:runway",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"contentModeration": {"a": "low"}}
        ),
        settings=lambda url: RunwayVideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ApiKey("runway-key-of-one"), "other": ApiKey("runway-key-of-another")},
        script=Script(
            job=ID,
            accepted=KitReply.of({"id": ID}),
            status=status,
            words={
                "PENDING": Means.WAITING,
                "THROTTLED": Means.WAITING,
                "RUNNING": Means.RUNNING,
                "SUCCEEDED": Means.SUCCEEDED,
                "FAILED": Means.FAILED,
                "CANCELLED": Means.CANCELED,
            },
            rejected=KitReply.of({"error": "Validation of body failed"}, status=400),
            rate_limited=KitReply.of({"error": "You exceeded the rate limit"}, status=429),
            not_found=KitReply.of({"error": "Not found"}, status=404),
            error=lambda message: {"error": message},
            done_without_result=KitReply.of({"id": ID, "status": "SUCCEEDED", "output": []}),
            cancel=Cancelling(
                confirmed=KitReply.of(b"", status=204),
                refused=KitReply.of({"error": "Not found"}, status=404),
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestRunwayVideo(HandlerConformance):
    """The handler of Runway keeps every promise."""

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
        """The provider as its SDK describes it."""
        return runway_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return RunwayVideo().parse_query(response, JOB, Claim().query)


def build(request: VideoRequest, settings: VideoSettings | None = None) -> HttpRequest:
    """Return the creating request."""
    handler = RunwayVideo(ApiKey("k"), settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(Claim().submit))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status", "progress"),
    [
        ("PENDING", Verdict.RUNNING, Status.SUBMITTED, None),
        ("THROTTLED", Verdict.RUNNING, Status.SUBMITTED, None),
        ("RUNNING", Verdict.RUNNING, Status.RUNNING, 0.4),
        ("SUCCEEDED", Verdict.SUCCEEDED, Status.RUNNING, None),
        ("FAILED", Verdict.FAILED, Status.RUNNING, None),
        ("CANCELLED", Verdict.CANCELED, Status.RUNNING, None),
        ("PAUSED", Verdict.UNLISTED, Status.RUNNING, None),
    ],
)
def test_every_word_is_mapped(
    word: str, verdict: Verdict, task_status: Status, progress: float | None
) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)
    assert found.progress == progress


@pytest.mark.parametrize(
    ("told", "progress"), [(0, 0.0), (1, 1.0), (40, None), (None, None), (True, None), ("0.5", None)]
)
def test_progress_is_taken_if_it_is_a_share(told: JSON, progress: float | None) -> None:
    """Anything else would be refused by the task."""
    assert read({"status": "RUNNING", "progress": told}).progress == progress


def test_every_output_is_a_video_that_expires() -> None:
    """The URLs work for 24 hours at least."""
    found = read({"status": "SUCCEEDED", "output": [VIDEO, " ", None, "https://files.example.com/b.mp4"]})
    day = Claim().now + timedelta(hours=24)
    assert found.result == VideoResult(
        videos=(
            Video(url=VIDEO, expires_at=day),
            Video(url="https://files.example.com/b.mp4", expires_at=day),
        )
    )
    to_json(found.result)


@pytest.mark.parametrize("output", [None, [], [None], "https://files.example.com/a.mp4", {}])
def test_done_without_a_url_is_incomplete(output: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read({"status": "SUCCEEDED", "output": output}).verdict is Verdict.INCOMPLETE


REFUSED = "the provider refuses the content (moderation): no"


@pytest.mark.parametrize(
    ("told", "code", "message"),
    [
        ({"failure": "no", "failureCode": "SAFETY.INPUT.TEXT"}, "SAFETY.INPUT.TEXT", REFUSED),
        (
            {"failure": "no", "failureCode": "INPUT_PREPROCESSING.SAFETY"},
            "INPUT_PREPROCESSING.SAFETY",
            REFUSED,
        ),
        ({"failure": "oh", "failureCode": "INTERNAL.BAD_OUTPUT"}, "INTERNAL.BAD_OUTPUT", "oh"),
        ({"failure": "oh", "failureCode": "UNSAFETY.X"}, "UNSAFETY.X", "oh"),
        ({"failure": None}, None, "the job failed"),
    ],
)
def test_a_failed_job_tells_its_dotted_code(told: dict[str, JSON], code: str | None, message: str) -> None:
    """A part of it is SAFETY if the content was refused."""
    failed = read({"status": "FAILED", **told})
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, code, message)


@pytest.mark.parametrize(
    ("request_", "path", "expected"),
    [
        (
            VideoRequest(prompt="waves", width=1280, height=720, duration=EIGHT, audio=False),
            "/v1/text_to_video",
            {"model": "veo3.1", "promptText": "waves", "ratio": "1280:720", "duration": 8, "audio": False},
        ),
        (
            VideoRequest(first_frame=IMAGE, seed=0, model="gen4_turbo", duration=timedelta(seconds=10)),
            "/v1/image_to_video",
            {"model": "gen4_turbo", "promptImage": IMAGE, "seed": 0, "duration": 10},
        ),
        (
            VideoRequest(prompt="waves", first_frame=IMAGE, last_frame=LAST, duration=timedelta(seconds=5)),
            "/v1/image_to_video",
            {
                "model": "veo3.1",
                "duration": 5,
                "promptText": "waves",
                "promptImage": [{"uri": IMAGE, "position": "first"}, {"uri": LAST, "position": "last"}],
            },
        ),
        (
            VideoRequest(prompt="snow", source_video=VIDEO, model="gen4_aleph", aspect_ratio="16:9"),
            "/v1/video_to_video",
            {"model": "gen4_aleph", "promptText": "snow", "videoUri": VIDEO, "ratio": "16:9"},
        ),
        (
            VideoRequest(prompt="snow", source_video=VIDEO, model="seedance2", reference_images=(IMAGE,)),
            "/v1/video_to_video",
            {
                "model": "seedance2",
                "promptText": "snow",
                "promptVideo": VIDEO,
                "references": [{"uri": IMAGE}],
            },
        ),
        (
            VideoRequest(source_video=VIDEO, model="seedance2"),
            "/v1/video_to_video",
            {"model": "seedance2", "promptVideo": VIDEO},
        ),
        (
            VideoRequest(
                prompt="waves",
                first_frame=IMAGE,
                options={"model": "x", "promptImage": "y", "promptText": "z", "ratio": "720:1280"},
            ),
            "/v1/image_to_video",
            {"model": "veo3.1", "promptText": "waves", "promptImage": IMAGE, "ratio": "720:1280"},
        ),
    ],
)
def test_a_request_goes_to_the_endpoint_of_its_mode(
    request_: VideoRequest, path: str, expected: JSON
) -> None:
    """With nothing in it that was not asked for; options go beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url, sent.json) == ("POST", path, expected)


def test_the_settings_may_name_the_model() -> None:
    """A request that names one goes before."""
    sent = build(VideoRequest(prompt="waves"), VideoSettings(model="gen4.5"))
    assert sent.json == {"model": "gen4.5", "promptText": "waves"}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", source_video=VIDEO), "video_to_video"),
        (VideoRequest(prompt="x", model="gen4_turbo"), "from text"),
        (VideoRequest(first_frame=IMAGE, model="aleph2"), "from first_frame"),
        (VideoRequest(prompt="x", reference_images=(IMAGE,)), "reference_images"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5)), "4, 6, 8"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=7.5), model="gen4.5"), "whole"),
        (VideoRequest(prompt="x", width=1, height=1, aspect_ratio="1:1"), "one of them"),
        (VideoRequest(prompt="x", source_video=VIDEO, first_frame=IMAGE, model="seedance2"), "first_frame"),
        (VideoRequest(source_video=VIDEO, reference_images=(IMAGE,), model="aleph2"), "keyframes"),
        (VideoRequest(prompt=" ", audio_url="https://x/a.mp3"), "audio_url"),
        (VideoRequest(prompt="x", negative_prompt="y"), "negative_prompt"),
        (VideoRequest(first_frame="gs://bucket/a.png"), "http"),
    ],
)
def test_what_the_provider_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        RunwayVideo().validate(request_)


def test_a_version_is_needed() -> None:
    """The provider refuses requests without one."""
    with pytest.raises(ConfigurationError, match="version"):
        RunwayVideoSettings(version=" ")


def test_jobs_are_asked_about_every_five_seconds_at_most() -> None:
    """Also where the provider gives no hint."""
    assert RunwayVideo().poll_floor == timedelta(seconds=5)


def test_codes_with_safety_are_moderation() -> None:
    """Whatever the status is."""
    handler = RunwayVideo()
    assert handler.classify("SAFETY.INPUT.TEXT", 400, "") is ErrorClass.MODERATION
    assert handler.classify(None, 400, "") is ErrorClass.INVALID_REQUEST


async def test_the_version_is_sent_beside_the_key() -> None:
    """With every request, and nothing but the text of an error is its message."""
    async with ScriptedServer([Reply.of({"error": "bad ratio"}, status=400)]) as server:
        settings = RunwayVideoSettings(base_url=server.url, version="2025-01-01")
        handler = RunwayVideo(ApiKey("the-key"), settings=settings)
        await handler.open()
        with pytest.raises(SubmitRejected, match="bad ratio") as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    assert caught.value.code == "invalid_request"
    [sent] = server.requests
    assert sent.headers["x-runway-version"] == "2025-01-01"
    assert sent.headers["authorization"] == "Bearer the-key"


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Runway's protocol, without an encoder."""
    protocols = [RunwayVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[RunwayVideo]:
    """A handler that is open."""
    settings = RunwayVideoSettings(base_url=f"{sandbox.url}/runway-video", allow_private=True)
    made = RunwayVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: RunwayVideo, sandbox: SandboxServer, **choices: str) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    taken = await handler.submit(VideoRequest(prompt="waves", **choices), Claim().submit)  # type: ignore[arg-type] # as tests like
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, None)
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    "choices",
    [{}, {"first_frame": IMAGE}, {"source_video": VIDEO, "model": "seedance2"}],
    ids=["text", "image", "video"],
)
async def test_a_video_is_made(handler: RunwayVideo, sandbox: SandboxServer, choices: dict[str, str]) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    done = await handler.query(await submitted(handler, sandbox, **choices), Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert "waves" in (await handler.download(video.url)).text
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: RunwayVideo, sandbox: SandboxServer) -> None:
    """With the provider's code and words."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="SAFETY.OUTPUT", message="no"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("SAFETY.OUTPUT", REFUSED)
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_job_is_canceled_or_deleted() -> None:
    """The same request does both, and either is confirmed; a job that is gone refuses."""
    protocols, slow = [RunwayVideoProtocol()], timedelta(hours=1)
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch, delay=slow) as sandbox:
        settings = RunwayVideoSettings(base_url=f"{sandbox.url}/runway-video")
        handler = RunwayVideo(ApiKey("sandbox-key"), settings=settings)
        await handler.open()
        job = await submitted(handler, sandbox)
        assert (await handler.query(job, Claim().query)).verdict is Verdict.RUNNING
        assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
        assert (await handler.query(job, Claim().query)).verdict is Verdict.CANCELED
        assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
        assert await handler.cancel(JOB, Claim().cancel) is CancelOutcome.REFUSED
        await handler.close()


async def test_a_job_that_runs_tells_how_far_it_is() -> None:
    """By the sandbox's clock, which is set here."""
    now = [0.0]
    with SandboxServer(
        protocols=[RunwayVideoProtocol()],
        recognizer=describe,
        filmer=sketch,
        delay=timedelta(seconds=100),
        clock=lambda: now[0],
    ) as sandbox:
        settings = RunwayVideoSettings(base_url=f"{sandbox.url}/runway-video")
        handler = RunwayVideo(ApiKey("sandbox-key"), settings=settings)
        await handler.open()
        job = await submitted(handler, sandbox)
        now[0] = 60.0
        found = await handler.query(job, Claim().query)
        await handler.close()
    assert (found.status, found.progress) == (Status.RUNNING, 0.5)


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = RunwayVideo(
        ApiKey("wrong"), settings=RunwayVideoSettings(base_url=f"{sandbox.url}/runway-video")
    )
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize("body", [{}, {"model": "veo3"}])
async def test_the_sandbox_refuses_what_is_incomplete(handler: RunwayVideo, body: JSON) -> None:
    """In the provider's form."""
    told = await handler.ask(HttpRequest.post("/v1/text_to_video", json=body), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, None)


async def test_the_sandbox_wants_a_version(sandbox: SandboxServer) -> None:
    """As the provider does."""

    class Versionless(RunwayVideo):
        async def authenticate(self, request: HttpRequest, context: object) -> HttpRequest:
            return request.with_headers(authorization="Bearer sandbox-key")

    handler = Versionless(settings=VideoSettings(base_url=f"{sandbox.url}/runway-video"))
    await handler.open()
    told = await handler.ask(HttpRequest.get("/v1/tasks/x"), Claim().query)
    await handler.close()
    assert (told.status, "X-Runway-Version" in told.text) == (400, True)


def test_the_mode_can_be_named() -> None:
    """It goes before what the materials say."""
    sent = build(VideoRequest(prompt="x", mode=VideoMode.FIRST_FRAME, first_frame=IMAGE))
    assert sent.url == "/v1/image_to_video"
