import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, CaptureSettings, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.veo import GeminiVeo, GeminiVeoSettings
from coatcheck_http import (
    Download,
    HttpRequest,
    HttpResponse,
    OutcomeUnknown,
    Prepared,
    PreparedContext,
    UnreadableAnswer,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.veo_video import VeoVideoProtocol

MIB = 1024 * 1024
OK = 200
NAME = "models/veo-3.1-generate-preview/operations/abc123"
JOB = QueryParams(external_task_id=NAME)
URI = "https://generativelanguage.googleapis.com/v1beta/files/f1:download?alt=media"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.jpg"
PNG, JPEG = b"\x89PNG\r\n\x1a\n and more", b"\xff\xd8\xff and more"
PATH = "/models/veo-3.1-generate-preview:predictLongRunning"


def error(message: str, word: str = "INTERNAL", code: int = 500) -> JSON:
    """Return the body of an error."""
    return {"error": {"code": code, "message": message, "status": word}}


def done(**reply: JSON) -> JSON:
    """Return an operation that is done, with this reply."""
    return {"name": NAME, "done": True, "response": {"generateVideoResponse": reply}}


def sample(uri: str | None, **more: JSON) -> JSON:
    """Return one video of a reply."""
    return {"video": {"uri": uri, **more}}


def status(word: str) -> JSON:
    """Return the answer to a query of an operation for which the handler has this word."""
    match word:
        case "running":
            return {"name": NAME}
        case "done":
            return done(generatedSamples=[sample("{server}/files/f1:download?alt=media")])
        case "error":
            return {"name": NAME, "done": True, "error": {"code": 13, "message": "an internal error"}}
        case _:
            return {"name": NAME, "done": word}


def veo_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its SDK describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.veo:GeminiVeo",
        key="video:veo",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"labels": {"a": "b"}}
        ),
        settings=lambda url: GeminiVeoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB, allow_private=True
        ),
        accounts={"default": ApiKey("gemini-key-of-one"), "other": ApiKey("gemini-key-of-another")},
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
            served={"/files/a.png": PNG},
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestGeminiVeo(HandlerConformance):
    """The handler of Veo by the Gemini API keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its SDK describes it."""
        return veo_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return GeminiVeo().parse_query(response, JOB, Claim().query)


def build(request: VideoRequest, settings: VideoSettings | None = None) -> HttpRequest:
    """Return the creating request, with images that were downloaded."""
    handler = GeminiVeo(ApiKey("k"), settings=settings)
    handler.validate(request)
    files = {IMAGE: Download(url=IMAGE, content=PNG), LAST: Download(url=LAST, content=JPEG)}
    return handler.build_submit(request, PreparedContext.of(Claim().submit, Prepared(files=files)))


def encoded(content: bytes, kind: str) -> JSON:
    """Return an image as the API takes it."""
    return {"bytesBase64Encoded": base64.b64encode(content).decode(), "mimeType": kind}


@pytest.mark.parametrize(
    ("body", "verdict", "word"),
    [
        ({"name": NAME}, Verdict.RUNNING, "running"),
        ({"name": NAME, "done": False, "error": None}, Verdict.RUNNING, "running"),
        ({"name": NAME, "metadata": {}, "done": None}, Verdict.RUNNING, "running"),
        (status("error"), Verdict.FAILED, "error"),
        (status("done"), Verdict.SUCCEEDED, "done"),
        ({"name": NAME, "done": "maybe"}, Verdict.UNLISTED, "maybe"),
        ({"name": NAME, "done": 1}, Verdict.UNLISTED, "1"),
    ],
)
def test_an_operation_says_whether_it_is_done(body: JSON, verdict: Verdict, word: str) -> None:
    """There is no status word, and `done` is left out while it is false."""
    found = read(body)
    assert (found.verdict, found.provider_status) == (verdict, word)


@pytest.mark.parametrize("body", [{}, {"name": " "}, {"error": {"code": 13, "message": "oh"}}])
def test_an_answer_that_is_no_operation_is_no_answer(body: JSON) -> None:
    """One has a name, at the least, or says that it is done."""
    with pytest.raises(UnreadableAnswer, match="name"):
        read(body)


def test_every_video_takes_the_key() -> None:
    """Those without a URI are left out; the bytes of one that is inline never get into a result."""
    bare: JSON = {"video": {"encodedVideo": "AAAA"}}
    found = read(done(generatedSamples=[sample(URI, encoding="video/mp4"), bare, sample(URI)]))
    video = Video(url=URI, content_type="video/mp4", needs_credentials=True)
    assert found.result == VideoResult(videos=(video, Video(url=URI, needs_credentials=True)))
    to_json(found.result)


@pytest.mark.parametrize(
    "body",
    [
        {"done": True},
        {"done": True, "response": None},
        done(),
        done(generatedSamples=[]),
        done(generatedSamples=None, raiMediaFilteredCount=0),
        done(generatedSamples=[sample(None), sample(" "), {"video": {"encodedVideo": "AAAA"}}, None]),
    ],
)
def test_done_without_a_uri_is_incomplete(body: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(body).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"raiMediaFilteredCount": 1}, "it gives no reason"),
        ({"raiMediaFilteredReasons": ["faces", "a child"]}, "faces; a child"),
        ({"raiMediaFilteredCount": 2, "raiMediaFilteredReasons": ["faces"], "generatedSamples": []}, "faces"),
    ],
)
def test_done_with_nothing_but_filtered_videos_has_failed(told: dict[str, JSON], why: str) -> None:
    """As moderation, with the provider's reasons."""
    failed = read(done(**told))
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "moderation")
    assert failed.error_message == f"the provider refuses the content (moderation): {why}"


def test_some_filtered_videos_are_a_warning() -> None:
    """The others are a result."""
    found = read(done(generatedSamples=[sample(URI)], raiMediaFilteredCount=1))
    assert isinstance(found.result, VideoResult)
    assert found.result.warnings == ("videos that the provider filtered out: 1 (it gives no reason)",)


@pytest.mark.parametrize(
    ("told", "code", "message"),
    [
        ({"code": 13, "message": "oh"}, "INTERNAL", "oh"),
        ({"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}, "INVALID_ARGUMENT", "no"),
        ({"details": [1]}, None, "the job failed"),
    ],
)
def test_a_failed_operation_gives_googles_word(told: JSON, code: str | None, message: str) -> None:
    """By its number, where the word is not there."""
    failed = read({"done": True, "error": told})
    assert (failed.error_code, failed.error_message) == (code, message)


def test_an_operation_that_somebody_cancelled_is_canceled() -> None:
    """As Google's operations tell it, with an error of that word."""
    assert read({"done": True, "error": {"code": 1, "message": "cancelled"}}).verdict is Verdict.CANCELED


@pytest.mark.parametrize(
    ("request_", "instance", "parameters"),
    [
        (VideoRequest(prompt="waves"), {"prompt": "waves"}, None),
        (
            VideoRequest(
                prompt="waves",
                negative_prompt="ships",
                duration=timedelta(seconds=8),
                resolution="1080p",
                aspect_ratio="9:16",
                options={"personGeneration": "allow_adult", "durationSeconds": 4, "sampleCount": 2},
            ),
            {"prompt": "waves"},
            {
                "negativePrompt": "ships",
                "durationSeconds": 8,
                "resolution": "1080p",
                "aspectRatio": "9:16",
                "personGeneration": "allow_adult",
                "sampleCount": 2,
            },
        ),
        (VideoRequest(first_frame=IMAGE), {"image": encoded(PNG, "image/png")}, None),
        (
            VideoRequest(prompt="waves", first_frame=IMAGE, last_frame=LAST),
            {
                "prompt": "waves",
                "image": encoded(PNG, "image/png"),
                "lastFrame": encoded(JPEG, "image/jpeg"),
            },
            None,
        ),
        (
            VideoRequest(prompt="waves", reference_images=(LAST, IMAGE)),
            {
                "prompt": "waves",
                "referenceImages": [
                    {"image": encoded(JPEG, "image/jpeg"), "referenceType": "asset"},
                    {"image": encoded(PNG, "image/png"), "referenceType": "asset"},
                ],
            },
            None,
        ),
        (VideoRequest(prompt="more", source_video=URI), {"prompt": "more", "video": {"uri": URI}}, None),
    ],
)
def test_a_request_is_one_instance_with_parameters(
    request_: VideoRequest, instance: JSON, parameters: JSON
) -> None:
    """Images are bytes, and options are parameters, beneath those that the handler sets."""
    sent = build(request_)
    body: dict[str, JSON] = {"instances": [instance]}
    if parameters is not None:
        body["parameters"] = parameters
    assert (sent.method, sent.url, sent.json) == ("POST", PATH, body)


def test_the_model_is_a_part_of_the_path() -> None:
    """Of the request, or else of the settings; it cannot lead elsewhere."""
    settings = VideoSettings(model="veo-2.0/x")
    assert build(VideoRequest(prompt="x"), settings).url == "/models/veo-2.0%2Fx:predictLongRunning"
    with pytest.raises(InvalidParams, match="path"):
        build(VideoRequest(prompt="x", model=".."))


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", aspect_ratio="1:1"), "1:1"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(reference_images=(IMAGE,)), "prompt"),
        (VideoRequest(prompt="x", source_video="https://elsewhere.example.com/a.mp4"), "made itself"),
        (VideoRequest(source_video=URI, first_frame=IMAGE), "no image"),
        (VideoRequest(source_video=URI, reference_images=(IMAGE,), prompt="x"), "no image"),
        (VideoRequest(prompt="x", seed=1), "seed"),
        (VideoRequest(prompt="x", reference_videos=(URI,)), "omni_reference"),
        (VideoRequest(first_frame="gs://bucket/a.png"), "http"),
    ],
)
def test_what_the_api_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        GeminiVeo().validate(request_)


def test_an_operation_is_asked_for_by_its_name() -> None:
    """Which is a path, and cannot lead out of the API."""
    asked = GeminiVeo().build_query(JOB, Claim().query)
    assert (asked.method, asked.url) == ("GET", f"/{NAME}")
    odd = QueryParams(external_task_id="models/a b/operations/c?d")
    assert GeminiVeo().build_query(odd, Claim().query).url == "/models/a%20b/operations/c%3Fd"
    with pytest.raises(InvalidParams):
        GeminiVeo().build_query(QueryParams(external_task_id="../x"), Claim().query)
    assert Capability.CANCEL not in GeminiVeo().capabilities


def test_an_image_has_a_bound() -> None:
    """Of one byte at least."""
    with pytest.raises(ConfigurationError, match="max_image_bytes"):
        GeminiVeoSettings(max_image_bytes=0)


BAD_KEY: JSON = {
    "error": {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT",
        "details": [{"@type": "x"}, {"reason": "API_KEY_INVALID", "domain": "googleapis.com"}],
    }
}


@pytest.mark.parametrize(
    ("http_status", "body", "expected"),
    [
        (400, error("no", "INVALID_ARGUMENT", 400), SubmitRejected),
        (400, BAD_KEY, SubmitDeferred),
        (403, error("no", "PERMISSION_DENIED", 403), SubmitDeferred),
        (404, error("no such model", "NOT_FOUND", 404), SubmitRejected),
        (429, error("slow down", "RESOURCE_EXHAUSTED", 429), SubmitDeferred),
        (503, error("overloaded", "UNAVAILABLE", 503), OutcomeUnknown),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError]
) -> None:
    """A 5xx proves nothing; a bad key, which is told as an invalid argument, is what an operator can mend."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = GeminiVeo(ApiKey("the-key"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(HandlerError) as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    assert type(caught.value) is expected
    [sent] = server.requests
    assert sent.headers["x-goog-api-key"] == "the-key"
    assert "authorization" not in sent.headers


@pytest.mark.parametrize(
    ("content", "match"), [(b"x" * 101, "cannot be used"), (b"", "empty"), (b"plain", "no image")]
)
async def test_an_image_that_cannot_be_handed_on_is_refused(content: bytes, match: str) -> None:
    """Before anything is sent to the provider."""
    async with ScriptedServer([Reply.of(content)]) as files, ScriptedServer([]) as provider:
        settings = GeminiVeoSettings(base_url=provider.url, allow_private=True, max_image_bytes=100)
        handler = GeminiVeo(ApiKey("k"), settings=settings)
        await handler.open()
        request = VideoRequest(prompt="x", reference_images=(f"{files.url}/a", f"{files.url}/a"))
        with pytest.raises(InvalidParams, match=match):
            await handler.submit(request, Claim().submit)
        await handler.close()
    assert provider.connections == 0
    assert len(files.requests) == 1


async def test_a_video_of_another_origin_does_not_get_the_key(tmp_path: Path) -> None:
    """Not even a connection is made there, until the settings trust it."""
    async with ScriptedServer([Reply.of(b"video")]) as elsewhere, ScriptedServer([]) as provider:
        told = done(generatedSamples=[sample(f"{elsewhere.url}/files/f1:download")])
        provider.replies.append(Reply.of(told))
        for trusted in ((), (elsewhere.url,)):
            settings = GeminiVeoSettings(
                base_url=provider.url,
                capture=CaptureSettings(destination=str(tmp_path)),
                trusted_origins=trusted,
            )
            handler = GeminiVeo(ApiKey("the-key"), settings=settings)
            await handler.open()
            found = await handler.query(JOB, Claim().query)
            assert isinstance(found.result, VideoResult)
            if trusted:
                assert found.result.videos[0].copy is not None
            else:  # the result is not lost: it says where the video is, and what to do
                assert found.result.videos[0].copy is None
                assert "trusted_origins" in found.result.warnings[0]
                assert elsewhere.connections == 0
            await handler.close()
    [asked] = elsewhere.requests
    assert asked.headers["x-goog-api-key"] == "the-key"


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks the Gemini API's protocol, without an encoder."""
    protocols = [VeoVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer, tmp_path: Path) -> AsyncIterator[GeminiVeo]:
    """A handler that is open, and copies what was made."""
    settings = GeminiVeoSettings(
        base_url=f"{sandbox.url}/veo-video",
        allow_private=True,
        capture=CaptureSettings(destination=str(tmp_path)),
    )
    made = GeminiVeo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: GeminiVeo, sandbox: SandboxServer, *pages: str) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    frames = dict(zip(("first_frame", "last_frame"), map(sandbox.page_url, pages), strict=False))
    request = VideoRequest(
        prompt="waves",
        first_frame=frames.get("first_frame"),
        last_frame=frames.get("last_frame"),
        resolution="720p",
    )
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.RUNNING, "running")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("pages", [(), ("foxes.png", "letter.jpg")], ids=["text", "two frames"])
async def test_a_video_is_made_and_copied(
    handler: GeminiVeo, sandbox: SandboxServer, pages: tuple[str, ...]
) -> None:
    """Its URI gets the key, and where that leads does not."""
    done = await handler.query(await submitted(handler, sandbox, *pages), Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert video.copy is not None
    assert "waves" in await asyncio.to_thread(Path(video.copy.location).read_text)
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: GeminiVeo, sandbox: SandboxServer) -> None:
    """With the provider's words, and as moderation where all videos were filtered out."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="E1", message="broken"))
    broken = await submitted(handler, sandbox)
    failed = await handler.query(broken, Claim().query)
    assert (failed.error_code, failed.error_message) == ("INTERNAL", "E1: broken")
    sandbox.faults.add(FailingJob(code="raiMediaFiltered", message="faces"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, (failed.error_message or "")[-5:]) == ("moderation", "faces")
    content = HttpRequest.get(f"/files/{broken.external_task_id.rpartition('/')[2]}:download")
    assert (await handler.ask(content, Claim().query)).status == 404
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_job_goes_on_until_it_is_done() -> None:
    """As long as the sandbox lets it take."""
    protocols, slow = [VeoVideoProtocol()], timedelta(hours=1)
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch, delay=slow) as sandbox:
        handler = GeminiVeo(
            ApiKey("sandbox-key"), settings=VideoSettings(base_url=f"{sandbox.url}/veo-video")
        )
        await handler.open()
        job = await submitted(handler, sandbox)
        assert (await handler.query(job, Claim().query)).verdict is Verdict.RUNNING
        await handler.close()


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = GeminiVeo(ApiKey("wrong"), settings=VideoSettings(base_url=f"{sandbox.url}/veo-video"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"instances": []},
        {"instances": [{"image": {"bytesBase64Encoded": "%%", "mimeType": "image/png"}}]},
        {"instances": [{"lastFrame": {"gcsUri": "gs://b/a.png"}}]},
        {"instances": [{"image": {"bytesBase64Encoded": "", "mimeType": "image/png"}}]},
        {"instances": [{"prompt": "x"}], "parameters": [1]},
    ],
)
async def test_the_sandbox_refuses_what_it_cannot_use(handler: GeminiVeo, body: JSON) -> None:
    """In Google's envelope."""
    told = await handler.ask(HttpRequest.post(PATH, json=body), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "INVALID_ARGUMENT")
