import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import ConfigurationError, HandlerError, InvalidParams, SubmitDeferred, SubmitRejected
from coatcheck.handler import Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, CaptureSettings, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.vertex import VertexVeo, VertexVeoSettings
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.vertex_video import VertexVideoProtocol

MIB = 1024 * 1024
OK = 200
MODEL = "/projects/p1/locations/us-central1/publishers/google/models/veo-3.1-generate-001"
NAME = f"{MODEL[1:]}/operations/0b1c2d3e"
JOB = QueryParams(external_task_id=NAME)
PLACE = "gs://my-bucket/videos/task-1/123/sample_0.mp4"
IMAGE = "gs://my-bucket/a.png"
LAST = "gs://my-bucket/folder/z.JPG"
SOURCE = "gs://my-bucket/a.mp4"


def error(message: str, word: str = "INTERNAL", code: int = 500) -> JSON:
    """Return the body of an error."""
    return {"error": {"code": code, "message": message, "status": word}}


def done(**response: JSON) -> JSON:
    """Return an operation that is done, with this response."""
    return {"name": NAME, "done": True, "response": {"@type": "x", **response}}


def status(word: str) -> JSON:
    """Return the answer to a query of an operation for which the handler has this word."""
    match word:
        case "running":
            return {"name": NAME}
        case "done":
            return done(videos=[{"gcsUri": PLACE, "mimeType": "video/mp4"}])
        case "error":
            return {"name": NAME, "done": True, "error": {"code": 13, "message": "an internal error"}}
        case _:
            return {"name": NAME, "done": word}


def settings_of(**more: object) -> VertexVeoSettings:
    """Return settings with what has to be given."""
    needed = {"project": "p1", "storage_uri": "gs://my-bucket/videos"}
    return VertexVeoSettings(**{**needed, **more})  # type: ignore[arg-type] # as tests like


def vertex_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its SDK describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.vertex:VertexVeo",
        key="video:vertex",
        params=lambda _url: VideoRequest(prompt="waves", first_frame=IMAGE, options={"labels": {"a": "b"}}),
        settings=lambda url: settings_of(
            base_url=url,
            storage_url=url,
            read_timeout=timedelta(seconds=2),
            max_answer_bytes=2 * MIB,
        ),
        accounts={"default": ApiKey("google-token-of-one"), "other": ApiKey("google-token-of-another")},
        script=Script(
            job=NAME,
            accepted=KitReply.of({"name": NAME}),
            status=status,
            words={"running": Means.RUNNING, "done": Means.SUCCEEDED, "error": Means.FAILED},
            rejected=KitReply.of(error("bad duration", "INVALID_ARGUMENT", 400), status=400),
            rate_limited=KitReply.of(error("quota", "RESOURCE_EXHAUSTED", 429), status=429),
            not_found=KitReply.of(error("no such operation", "NOT_FOUND", 404), status=404),
            error=error,
            done_without_result=KitReply.of({"name": NAME, "done": True}),
        ),
        creating=lambda method, path: method == "POST" and path.endswith(":predictLongRunning"),
        answer_limit_bytes=4 * MIB,
    )


class TestVertexVeo(HandlerConformance):
    """The handler of Veo by Vertex AI keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its SDK describes it."""
        return vertex_spec()


# On samples of answers, as documented.


def make(**more: object) -> VertexVeo:
    """Return a handler of a project that is asked nothing."""
    return VertexVeo(ApiKey("token"), settings=settings_of(**more))


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return make().parse_query(HttpResponse(status=OK, body=json.dumps(body).encode()), JOB, Claim().query)


def build(request: VideoRequest, **more: object) -> HttpRequest:
    """Return the creating request."""
    handler = make(**more)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(Claim().submit))


def test_videos_are_objects_in_the_bucket() -> None:
    """Those without a place are left out; the bytes of one that is inline never get into a result."""
    inline: JSON = {"bytesBase64Encoded": "AAAA", "mimeType": "video/mp4"}
    found = read(done(videos=[{"gcsUri": PLACE, "mimeType": "video/mp4"}, inline]))
    video = Video(url=PLACE, content_type="video/mp4", needs_credentials=True)
    assert found.result == VideoResult(videos=(video,))
    to_json(found.result)
    assert read(done(videos=[inline])).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("body", [{"done": True}, done(), done(videos=None), done(videos=[None])])
def test_done_without_a_place_is_incomplete(body: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(body).verdict is Verdict.INCOMPLETE


def test_done_with_nothing_but_filtered_videos_has_failed() -> None:
    """As moderation, with the provider's reasons; if only some were filtered out, that is a warning."""
    filtered: dict[str, JSON] = {"raiMediaFilteredCount": 1, "raiMediaFilteredReasons": ["faces"]}
    failed = read(done(**filtered))
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "moderation")
    assert failed.error_message == "the provider refuses the content (moderation): faces"
    found = read(done(videos=[{"gcsUri": PLACE}], **filtered))
    assert isinstance(found.result, VideoResult)
    assert found.result.warnings == ("videos that the provider filtered out: 1 (faces)",)


def test_an_operation_is_asked_for_with_a_post() -> None:
    """To the model that makes the video, with the operation's name."""
    asked = make().build_query(JOB, Claim().query)
    assert (asked.method, asked.url, asked.json) == (
        "POST",
        f"{MODEL}:fetchPredictOperation",
        {"operationName": NAME},
    )
    for odd in ("x", "../operations/x"):
        with pytest.raises(InvalidParams):
            make().build_query(QueryParams(external_task_id=odd), Claim().query)
    assert Capability.CANCEL not in make().capabilities


@pytest.mark.parametrize(
    ("request_", "instance", "parameters"),
    [
        (VideoRequest(prompt="waves"), {"prompt": "waves"}, {}),
        (
            VideoRequest(
                prompt="waves",
                negative_prompt="ships",
                duration=timedelta(seconds=8),
                resolution="1080p",
                aspect_ratio="16:9",
                fps=24,
                seed=0,
                audio=False,
                options={
                    "sampleCount": 2,
                    "storageUri": "gs://elsewhere/",
                    "cameraControl": "pan_left",
                    "seed": 9,
                },
            ),
            {"prompt": "waves", "cameraControl": "pan_left"},
            {
                "negativePrompt": "ships",
                "durationSeconds": 8,
                "resolution": "1080p",
                "aspectRatio": "16:9",
                "fps": 24,
                "seed": 0,
                "generateAudio": False,
                "sampleCount": 2,
            },
        ),
        (
            VideoRequest(first_frame=IMAGE, last_frame=LAST),
            {
                "image": {"gcsUri": IMAGE, "mimeType": "image/png"},
                "lastFrame": {"gcsUri": LAST, "mimeType": "image/jpeg"},
            },
            {},
        ),
        (
            VideoRequest(prompt="waves", reference_images=(IMAGE,)),
            {
                "prompt": "waves",
                "referenceImages": [
                    {"image": {"gcsUri": IMAGE, "mimeType": "image/png"}, "referenceType": "asset"}
                ],
            },
            {},
        ),
        (VideoRequest(source_video=SOURCE), {"video": {"gcsUri": SOURCE, "mimeType": "video/mp4"}}, {}),
    ],
)
def test_a_request_is_one_instance_with_parameters(
    request_: VideoRequest, instance: JSON, parameters: dict[str, JSON]
) -> None:
    """Materials are objects, and results go to a folder of the task's, whatever the options say."""
    sent = build(request_)
    assert (sent.method, sent.url) == ("POST", f"{MODEL}:predictLongRunning")
    expected = {**parameters, "storageUri": "gs://my-bucket/videos/task-1/"}
    assert sent.json == {"instances": [instance], "parameters": expected}


def test_place_and_model_may_be_set() -> None:
    """A base URL of one's own leaves the location where it is in the path."""
    sent = build(VideoRequest(prompt="x"), location="eu-west4", model="veo-9", storage_uri="gs://b")
    assert sent.url == "/projects/p1/locations/eu-west4/publishers/google/models/veo-9:predictLongRunning"
    assert sent.json == {"instances": [{"prompt": "x"}], "parameters": {"storageUri": "gs://b/task-1/"}}
    assert make(location="eu-west4").base_url == "https://eu-west4-aiplatform.googleapis.com/v1beta1"
    assert make(base_url="https://gateway.example.com/v1").base_url == "https://gateway.example.com/v1"


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", aspect_ratio="1:1"), "1:1"),
        (VideoRequest(first_frame="https://files.example.com/a.png"), "gs"),
        (VideoRequest(first_frame="gs://bucket/a.gif"), "cannot be told"),
        (VideoRequest(prompt="x", reference_images=("gs://bucket/a",)), "cannot be told"),
        (VideoRequest(source_video="gs://bucket/a.avi"), ".mp4"),
        (VideoRequest(source_video=SOURCE, first_frame=IMAGE), "no image"),
        (VideoRequest(prompt="x", watermark=True), "watermark"),
        (VideoRequest(prompt="x", model=".."), "path"),
    ],
)
def test_what_the_api_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        make().validate(request_)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"project": ""}, "project"),
        ({"location": "a/b"}, "location"),
        ({"storage_uri": ""}, "storage_uri"),
        ({"storage_uri": "https://storage.googleapis.com/b"}, "storage_uri"),
        ({"model": None, "read_timeout": timedelta()}, "timeouts"),
    ],
)
def test_settings_that_mean_nothing_are_refused(more: dict[str, object], match: str) -> None:
    """Without a bucket a video would come as base64."""
    with pytest.raises(ConfigurationError, match=match):
        settings_of(**more)


def test_settings_have_to_be_its_own() -> None:
    """Others have neither project nor bucket."""
    with pytest.raises(ConfigurationError, match="VertexVeoSettings"):
        VertexVeo(ApiKey("token"), settings=VideoSettings())


def test_an_object_is_read_by_the_json_api() -> None:
    """With its whole name as one part of the path; what is no object is fetched as it is."""
    asked = make().build_download(Video(url="gs://b/a b/c.mp4", needs_credentials=True))
    url = "https://storage.googleapis.com/storage/v1/b/b/o/a%20b%2Fc.mp4"
    assert asked == HttpRequest.get(url, query={"alt": "media"})
    assert make().build_download(Video(url="https://x/a.mp4")) == "https://x/a.mp4"


@pytest.mark.parametrize(
    ("http_status", "body", "expected"),
    [
        (400, error("no", "INVALID_ARGUMENT", 400), SubmitRejected),
        (401, error("expired", "UNAUTHENTICATED", 401), SubmitDeferred),
        (403, error("no", "PERMISSION_DENIED", 403), SubmitDeferred),
        (429, error("slow down", "RESOURCE_EXHAUSTED", 429), SubmitDeferred),
        (503, error("overloaded", "UNAVAILABLE", 503), OutcomeUnknown),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON, expected: type[HandlerError]
) -> None:
    """A 5xx proves nothing; what an operator can mend defers; what only the caller can rejects."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = VertexVeo(lambda _id: ApiKey("ready-token"), settings=settings_of(base_url=server.url))
        await handler.open()
        with pytest.raises(HandlerError) as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    assert type(caught.value) is expected
    [sent] = server.requests
    assert sent.headers["authorization"] == "Bearer ready-token"


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Vertex AI's protocol, without an encoder."""
    protocols = [VertexVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


def at(sandbox: SandboxServer, **more: object) -> VertexVeoSettings:
    """Return settings for the sandbox."""
    url = f"{sandbox.url}/vertex-video"
    return settings_of(base_url=url, storage_url=url, **more)


@pytest.fixture
async def handler(sandbox: SandboxServer, tmp_path: Path) -> AsyncIterator[VertexVeo]:
    """A handler that is open, and copies what was made."""
    made = VertexVeo(
        ApiKey("sandbox-key"), settings=at(sandbox, capture=CaptureSettings(destination=str(tmp_path)))
    )
    await made.open()
    yield made
    await made.close()


async def submitted(handler: VertexVeo, sandbox: SandboxServer) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(prompt="waves", first_frame=IMAGE, last_frame=LAST, fps=24)
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.RUNNING, "running")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


async def test_a_video_is_made_and_copied(handler: VertexVeo, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and the object is read with the same token."""
    done = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert video.url.startswith("gs://my-bucket/videos/task-1/")
    assert video.copy is not None
    assert "waves" in await asyncio.to_thread(Path(video.copy.location).read_text)
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: VertexVeo, sandbox: SandboxServer) -> None:
    """With the provider's words, and as moderation where all videos were filtered out."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="E1", message="broken"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("INTERNAL", "E1: broken")
    sandbox.faults.add(FailingJob(code="raiMediaFiltered", message="faces"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, (failed.error_message or "")[-5:]) == ("moderation", "faces")
    job_id = job.external_task_id.rpartition("/")[2]
    for path in (f"/storage/v1/b/my-bucket/o/{job_id}%2Fx", "/storage/v1/b/my-bucket/o/x"):
        assert (await handler.ask(HttpRequest.get(path), Claim().query)).status == 404
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_token_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = VertexVeo(ApiKey("wrong"), settings=at(sandbox))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"prompt": "x"}]},
        {"instances": [{"prompt": "x"}], "parameters": {"storageUri": "x"}},
        {"instances": [{"image": {"bytesBase64Encoded": "AAAA", "mimeType": "image/png"}}]},
    ],
)
async def test_the_sandbox_refuses_what_it_cannot_use(handler: VertexVeo, body: JSON) -> None:
    """In Google's envelope."""
    told = await handler.ask(HttpRequest.post(f"{MODEL}:predictLongRunning", json=body), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "INVALID_ARGUMENT")
