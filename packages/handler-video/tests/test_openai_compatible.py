import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
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
from coatcheck_handler_video.openai_compatible import OpenAiCompatibleVideo, OpenAiVideoSettings
from coatcheck_http import Download, HttpRequest, HttpResponse, OutcomeUnknown, Prepared, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.openai_video import OpenAiVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "video_68d7512d07848190b3e45da0ecbebcde"
JOB = QueryParams(external_task_id=ID)
SERVER = "https://videos.example.com/v1"
IMAGE = "https://files.example.com/a.png"
PNG = b"\x89PNG\r\n\x1a\n and more"
BY_URL = OpenAiVideoSettings(base_url=SERVER, upload_first_frame=False)


def error(message: str, code: str = "server_error", kind: str = "server_error") -> JSON:
    """Return the body of an error."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def status(word: str) -> JSON:
    """Return the answer to a query of a video with this status word."""
    answer: dict[str, JSON] = {
        "id": ID,
        "object": "video",
        "status": word,
        "progress": {"in_progress": 40, "completed": 100}.get(word, 0),
        "created_at": 1767225600,
        "model": "sora-2",
        "seconds": "8",
        "size": "720x1280",
        "error": None,
    }
    if word == "completed":
        answer["expires_at"] = 1767229200
    if word == "failed":
        answer["error"] = {"code": "moderation_blocked", "message": "the prompt is refused"}
    return answer


def openai_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return a server as the SDK describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.openai_compatible:OpenAiCompatibleVideo",
        key="video:openai",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"extra": {"a": [1]}}
        ),
        settings=lambda url: OpenAiVideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB, allow_private=True
        ),
        accounts={"default": ApiKey("openai-key-of-one"), "other": ApiKey("openai-key-of-another")},
        script=Script(
            job=ID,
            accepted=KitReply.of(status("queued")),
            status=status,
            words={
                "queued": Means.WAITING,
                "in_progress": Means.RUNNING,
                "completed": Means.SUCCEEDED,
                "failed": Means.FAILED,
            },
            rejected=KitReply.of(error("bad size", "invalid_value", "invalid_request_error"), status=400),
            rate_limited=KitReply.of(error("slow down", "rate_limit_exceeded", "requests"), status=429),
            not_found=KitReply.of(error("no such video", "not_found", "invalid_request_error"), status=404),
            error=error,
            served={"/files/a.png": PNG},
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestOpenAiCompatibleVideo(HandlerConformance):
    """The handler of OpenAI's protocol keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """A server as the SDK describes it."""
        return openai_spec()


# On samples of answers, as documented.


def make(settings: VideoSettings | None = None) -> OpenAiCompatibleVideo:
    """Return a handler of a server that is asked nothing."""
    return OpenAiCompatibleVideo(ApiKey("k"), settings=settings or VideoSettings(base_url=SERVER))


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return make().parse_query(HttpResponse(status=OK, body=json.dumps(body).encode()), JOB, Claim().query)


def build(
    request: VideoRequest, settings: VideoSettings | None = None, frame: Download | None = None
) -> HttpRequest:
    """Return the creating request."""
    handler = make(settings)
    handler.validate(request)
    prepared = Prepared(files={} if frame is None else {"input_reference": frame})
    return handler.build_submit(request, PreparedContext.of(Claim().submit, prepared))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status", "progress"),
    [
        ("queued", Verdict.RUNNING, Status.SUBMITTED, 0.0),
        ("in_progress", Verdict.RUNNING, Status.RUNNING, 0.4),
        ("completed", Verdict.SUCCEEDED, Status.RUNNING, None),
        ("failed", Verdict.FAILED, Status.RUNNING, None),
        ("paused", Verdict.UNLISTED, Status.RUNNING, None),
    ],
)
def test_every_word_is_mapped(
    word: str, verdict: Verdict, task_status: Status, progress: float | None
) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)
    assert found.progress == progress


@pytest.mark.parametrize(("told", "progress"), [(100, 1.0), (101, None), (-1, None), ("50", None)])
def test_progress_is_told_in_percent(told: JSON, progress: float | None) -> None:
    """What is none is passed over."""
    assert read({"status": "queued", "progress": told}).progress == progress


def test_the_content_takes_the_credentials() -> None:
    """Its URL is made of the base URL and the id, never of what the answer says."""
    found = read(status("completed"))
    url = f"{SERVER}/videos/{ID}/content"
    video = Video(
        url=url,
        expires_at=datetime(2026, 1, 1, 1, tzinfo=UTC),
        duration_seconds=8.0,
        width=720,
        height=1280,
        needs_credentials=True,
    )
    assert found.result == VideoResult(videos=(video,))
    assert make().build_download(video) == HttpRequest.get(url)
    to_json(found.result)


@pytest.mark.parametrize(
    "told",
    [{}, {"expires_at": None}, {"expires_at": 1e300}, {"expires_at": "soon", "size": "big", "seconds": "x"}],
)
def test_what_a_server_leaves_out_is_not_told(told: dict[str, JSON]) -> None:
    """Nor what makes no sense."""
    found = read({"id": ID, "status": "completed", **told})
    assert isinstance(found.result, VideoResult)
    [video] = found.result.videos
    assert (video.expires_at, video.width, video.height, video.duration_seconds) == (None,) * 4


def test_a_failed_video_gives_code_and_message() -> None:
    """Of its error object."""
    failed = read(status("failed"))
    assert (failed.error_code, failed.error_message) == ("moderation_blocked", "the prompt is refused")


@pytest.mark.parametrize(
    ("request_", "settings", "expected"),
    [
        (VideoRequest(prompt="waves"), None, {"prompt": "waves"}),
        (
            VideoRequest(
                prompt="waves", duration=timedelta(seconds=8), width=720, height=1280, model="sora-2-pro"
            ),
            None,
            {"prompt": "waves", "seconds": "8", "size": "720x1280", "model": "sora-2-pro"},
        ),
        (
            VideoRequest(
                prompt="waves", options={"prompt": "other", "seed": 7, "input_reference": {"file_id": "f"}}
            ),
            OpenAiVideoSettings(base_url=SERVER, model="wan"),
            {"prompt": "waves", "model": "wan", "seed": 7, "input_reference": {"file_id": "f"}},
        ),
        (
            VideoRequest(prompt="waves", first_frame=IMAGE, options={"input_reference": {"file_id": "f"}}),
            BY_URL,
            {"prompt": "waves", "input_reference": {"image_url": IMAGE}},
        ),
    ],
)
def test_a_request_is_sent_as_json(
    request_: VideoRequest, settings: VideoSettings | None, expected: JSON
) -> None:
    """Seconds are text; options go beneath what the handler sets."""
    sent = build(request_, settings)
    assert (sent.method, sent.url, sent.json, sent.files) == ("POST", "/videos", expected, ())


def test_a_first_frame_is_uploaded_in_a_form() -> None:
    """With everything else as text in it."""
    frame = Download(url=IMAGE, content=PNG, content_type="application/octet-stream", file_name="a.png")
    request = VideoRequest(
        prompt="waves",
        first_frame=IMAGE,
        duration=timedelta(seconds=4),
        options={"extra": {"a": 1}, "input_reference": "x", "seconds": "9"},
    )
    sent = build(request, frame=frame)
    assert (sent.method, sent.url, sent.json) == ("POST", "/videos", None)
    assert sent.form == {"prompt": "waves", "seconds": "4", "extra": '{"a": 1}'}
    [part] = sent.files
    assert (part.name, part.file_name, part.content, part.content_type) == (
        "input_reference",
        "a.png",
        PNG,
        "image/png",
    )


def test_a_first_frame_that_is_no_image_is_refused() -> None:
    """Before anything is sent."""
    page = Download(url=IMAGE, content=b"<html>", content_type="text/html")
    with pytest.raises(InvalidParams, match="no image"):
        build(VideoRequest(prompt="waves", first_frame=IMAGE), frame=page)


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(first_frame=IMAGE), "prompt"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=4.5)), "whole"),
        (VideoRequest(prompt="x", first_frame=IMAGE, last_frame=IMAGE), "first_last_frame"),
        (VideoRequest(prompt="x", resolution="720p"), "resolution"),
        (VideoRequest(prompt="x", aspect_ratio="1:1"), "aspect_ratio"),
    ],
)
def test_what_the_protocol_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        make().validate(request_)


def test_there_is_no_default_address() -> None:
    """OpenAI's own service has an end, and a key must not go to where nobody meant it to."""
    with pytest.raises(ConfigurationError, match="base_url"):
        OpenAiCompatibleVideo(ApiKey("k"))
    assert Capability.CANCEL not in make().capabilities


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"openai-poll-after-ms": "2500"}, timedelta(seconds=2.5)),
        ({"retry-after-ms": "1500.5", "retry-after": "2"}, timedelta(milliseconds=1500.5)),
        ({"openai-poll-after-ms": "999999999999"}, timedelta(hours=1)),
        ({"openai-poll-after-ms": "soon", "retry-after": "7"}, timedelta(seconds=7)),
    ],
)
def test_hints_are_in_milliseconds(headers: dict[str, str], expected: timedelta | None) -> None:
    """Or in the usual form, and never beyond the bound of the settings."""
    assert make().retry_after(HttpResponse(status=OK, headers=headers), Claim().query) == expected


@pytest.mark.parametrize(
    ("http_status", "body", "expected"),
    [
        (400, error("no", "invalid_value", "invalid_request_error"), SubmitRejected),
        (401, error("no key", "invalid_api_key", "invalid_request_error"), SubmitDeferred),
        (429, error("no money", "insufficient_quota", "insufficient_quota"), SubmitDeferred),
        (500, error("oh"), OutcomeUnknown),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError]
) -> None:
    """A 5xx proves nothing; what an operator can mend defers; what only the caller can rejects."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = make(VideoSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(HandlerError) as caught:
            await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        await handler.close()
    assert type(caught.value) is expected


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A server that speaks the protocol, without an encoder."""
    protocols = [OpenAiVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer, tmp_path: Path) -> AsyncIterator[OpenAiCompatibleVideo]:
    """A handler that is open, and copies what was made."""
    settings = OpenAiVideoSettings(
        base_url=f"{sandbox.url}/openai-video",
        allow_private=True,
        capture=CaptureSettings(destination=str(tmp_path)),
    )
    made = OpenAiCompatibleVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: OpenAiCompatibleVideo, sandbox: SandboxServer, first_frame: str | None = None
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(prompt="waves", first_frame=first_frame, duration=timedelta(seconds=4))
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "queued")
    assert taken.retry_after == timedelta(seconds=1)
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("page", [None, "foxes.png"], ids=["text", "first frame"])
async def test_a_video_is_made_and_copied(
    handler: OpenAiCompatibleVideo, sandbox: SandboxServer, page: str | None
) -> None:
    """Submitted once, queried, and its content is fetched with the credentials."""
    frame = None if page is None else sandbox.page_url(page)
    done = await handler.query(await submitted(handler, sandbox, frame), Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert (video.duration_seconds, video.width, video.height) == (4.0, 320, 180)
    assert video.copy is not None
    assert "waves" in await asyncio.to_thread(Path(video.copy.location).read_text)
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail(handler: OpenAiCompatibleVideo, sandbox: SandboxServer) -> None:
    """With the server's code and words, and has no content then."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="moderation_blocked", message="no"))
    broken = await submitted(handler, sandbox)
    failed = await handler.query(broken, Claim().query)
    assert (failed.error_code, failed.error_message) == ("moderation_blocked", "no")
    content = HttpRequest.get(f"/videos/{broken.external_task_id}/content")
    assert (await handler.ask(content, Claim().query)).status == 404
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    settings = VideoSettings(base_url=f"{sandbox.url}/openai-video")
    handler = OpenAiCompatibleVideo(ApiKey("wrong"), settings=settings)
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    "request_",
    [
        HttpRequest.post("/videos", json={"model": "sora-2"}),
        HttpRequest(
            method="POST",
            url="/videos",
            content=b"--x\r\nbroken",
            headers={"content-type": "multipart/form-data; boundary=x"},
        ),
        HttpRequest(
            method="POST",
            url="/videos",
            content=b"no boundary",
            headers={"content-type": "multipart/form-data"},
        ),
    ],
)
async def test_the_sandbox_refuses_what_it_cannot_read(
    handler: OpenAiCompatibleVideo, request_: HttpRequest
) -> None:
    """In the provider's envelope."""
    told = await handler.ask(request_, Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert (refusal.status, refusal.code is None) == (400, False)
