import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import HandlerError, InvalidParams, SubmitDeferred, SubmitRejected
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, Video, VideoMode, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.gitee import GiteeVideo
from coatcheck_http import (
    Download,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    OutcomeUnknown,
    Prepared,
    PreparedContext,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe, sketch
from coatcheck_sandbox.providers.gitee_video import GiteeVideoProtocol

MIB = 1024 * 1024
OK = 200
JOB = QueryParams(external_task_id="v1")
IMAGE = "https://files.example.com/a.png"
OTHER = "https://files.example.com/b.png"
CLIP = "https://files.example.com/a.mp4"
SOUND = "https://files.example.com/a.mp3"
ONE, TWO = "https://x.example.com/1.mp4", "https://x.example.com/2.mp4"


def status(word: str) -> JSON:
    """Return a job with this status word; `error` is null also if it failed."""
    return {"task_id": "v1", "status": word, "error": None, "output": {"video_url": ONE, "width": 1280}}


def gitee_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return _spec(
        lambda url: VideoRequest(prompt="a coat", first_frame=f"{url}/files/a.png", options={"kit": {"a": 1}})
    )


def _spec(params: Any) -> HandlerSpec:
    return HandlerSpec(
        "coatcheck_handler_video.gitee:GiteeVideo",
        key="video:gitee",
        params=params,
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
        ),
        accounts={"default": ApiKey("gitee-key-of-one"), "other": ApiKey("gitee-key-of-another")},
        script=Script(
            job="v1",
            accepted=KitReply.of({"task_id": "v1", "status": "waiting", "urls": {}}),
            status=status,
            words={word: Means(state) for word, state in GiteeVideo.statuses.words.items()},
            done_without_result=KitReply.of({"task_id": "v1", "status": "success", "output": None}),
            served={"/files/a.png": b"\x89PNG", "/files/a.mp4": b"a video"},
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestGiteeVideo(HandlerConformance):
    """The handler of Gitee AI keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return gitee_spec()


class TestGiteeVideoWithFiles(HandlerConformance):
    """It keeps them where it has to download an image and a video, and to upload them."""

    require = TestGiteeVideo.require

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The endpoint that takes files."""
        return _spec(
            lambda url: VideoRequest(
                source_video=f"{url}/files/a.mp4", first_frame=f"{url}/files/a.png", model="some-model"
            )
        )


# What is sent.


def build(request: VideoRequest, settings: HttpSettings | None = None, **files: Download) -> HttpRequest:
    """Return the creating request."""
    handler = GiteeVideo(ApiKey("k"), settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(Claim().submit, Prepared(files=files)))


@pytest.mark.parametrize(
    ("fields_", "path", "body"),
    [
        (
            {"prompt": "a coat", "options": {"model": "x", "prompt": "y", "duration": 5}},
            "generations",
            {"model": "Wan2.1-T2V-14B", "prompt": "a coat", "duration": 5},
        ),
        (
            {"prompt": "a coat", "first_frame": IMAGE, "options": {"image_url": "x", "seed": 1}},
            "image-to-video",
            {"model": "Wan2_2-I2V-A14B", "prompt": "a coat", "image_url": IMAGE, "seed": 1},
        ),
        (
            {"source_video": CLIP, "audio_url": SOUND, "mode": "audio_driven", "options": {"ref_audio": "x"}},
            "audio-video-to-video",
            {"model": "Duix.Heygem", "ref_audio": SOUND, "ref_video": CLIP},
        ),
        ({"prompt": "a coat", "model": "Wan2.7"}, "generations", {"model": "Wan2.7", "prompt": "a coat"}),
    ],
)
def test_each_mode_has_its_endpoint(fields_: dict[str, Any], path: str, body: JSON) -> None:
    """With the materials under the provider's names, above the options."""
    sent = build(VideoRequest(**fields_))
    assert (sent.method, sent.url, sent.json) == ("POST", f"/async/videos/{path}", body)


@pytest.mark.parametrize("image", [{"first_frame": IMAGE}, {"reference_images": [IMAGE]}])
def test_an_image_and_a_video_are_uploaded(image: dict[str, Any]) -> None:
    """As parts of a form; options are texts in it, and cannot be taken for the files."""
    request = VideoRequest(
        source_video=CLIP,
        model="some-model",
        options={"guidance": 1.5, "steps": 25, "mode": "a", "ref_image": "x", "model": "y"},
        **image,
    )
    sent = build(
        request,
        ref_image=Download(url=IMAGE, content=b"image", content_type="image/png", file_name="a.png"),
        drive_video=Download(url=CLIP, content=b"video", content_type="video/mp4", file_name="a.mp4"),
    )
    assert sent.url == "/async/videos/image-video-to-video"
    assert sent.form == {"guidance": "1.5", "steps": "25", "mode": "a", "model": "some-model"}
    parts = [(each.name, each.file_name, each.content, each.content_type) for each in sent.files]
    assert parts == [
        ("ref_image", "a.png", b"image", "image/png"),
        ("drive_video", "a.mp4", b"video", "video/mp4"),
    ]


def test_the_model_of_the_settings_counts_where_a_request_names_none() -> None:
    """The handler's own choice comes last."""
    sent = build(VideoRequest(prompt="a coat"), VideoSettings(model="LTX-2"))
    assert sent.json == {"model": "LTX-2", "prompt": "a coat"}


@pytest.mark.parametrize(
    ("fields_", "told"),
    [
        ({"duration": timedelta(seconds=5)}, "duration"),
        ({"prompt": "", "first_frame": IMAGE}, "needs a prompt"),
        ({"prompt": " ", "audio_url": SOUND}, "no place for audio_url"),
        ({"first_frame": IMAGE, "last_frame": OTHER}, "makes no video from first_last_frame"),
        ({"reference_images": [IMAGE]}, "makes no video from reference_images"),
        ({"first_frame": IMAGE, "model": "Wan2.1-T2V-14B"}, "makes no video from first_frame"),
        ({"model": "Wan2_2-I2V-A14B"}, "makes no video from text"),
        ({"source_video": CLIP, "first_frame": IMAGE}, "no default model"),
        ({"source_video": CLIP, "first_frame": IMAGE, "model": "m"}, "no place for a prompt"),
        ({"prompt": "", "source_video": CLIP, "model": "m"}, "one image.*not 0"),
        (
            {"prompt": "", "source_video": CLIP, "model": "m", "reference_images": [IMAGE, OTHER]},
            "one image.*not 2",
        ),
        ({"prompt": "", "source_video": CLIP, "audio_url": SOUND, "model": "m"}, "mode audio_driven"),
        ({"prompt": "", "audio_url": SOUND, "mode": VideoMode.AUDIO_DRIVEN}, "needs source_video"),
        (
            {"audio_url": SOUND, "source_video": CLIP, "mode": VideoMode.AUDIO_DRIVEN},
            "no place for a prompt",
        ),
        (
            {"prompt": "", "audio_url": SOUND, "first_frame": IMAGE, "mode": VideoMode.AUDIO_DRIVEN},
            "no place for first_frame",
        ),
    ],
)
def test_what_the_provider_does_not_have_is_refused(fields_: dict[str, Any], told: str) -> None:
    """Before anything is written, and with the name of what is wrong."""
    request = VideoRequest(**{"prompt": "a coat", **fields_})
    with pytest.raises(InvalidParams, match=told):
        GiteeVideo().validate(request)


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return GiteeVideo().parse_query(response, JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        *[(word, Verdict.RUNNING, Status.SUBMITTED) for word in ("waiting", "pending", "queued", "WAITING")],
        *[(word, Verdict.RUNNING, Status.RUNNING) for word in ("in_progress", "running", "processing")],
        *[(word, Verdict.SUCCEEDED, Status.RUNNING) for word in ("success", "succeeded", "done")],
        *[(word, Verdict.FAILED, Status.RUNNING) for word in ("failure", "failed")],
        *[(word, Verdict.CANCELED, Status.RUNNING) for word in ("cancelled", "canceled")],
        ("aborted", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """In any case; a word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


@pytest.mark.parametrize(
    ("output", "urls"),
    [
        (ONE, [ONE]),
        (f" {ONE} ", [ONE]),
        ({"file_url": ONE, "video_url": TWO, "url": TWO}, [ONE]),
        ({"video_url": ONE, "url": TWO}, [ONE]),
        ({"url": ONE}, [ONE]),
        ([ONE, TWO, ONE], [ONE, TWO]),
        ([{"url": ONE}, {"video_url": TWO}], [ONE, TWO]),
        ({"videos": [{"url": ONE}, {"url": TWO}]}, [ONE, TWO]),
        ({"data": [{"file_url": ONE}], "videos": [TWO]}, [TWO, ONE]),
        ({"output": {"output": [{"videos": {"url": ONE}}]}}, [ONE]),
        ({"url": ONE, "output": {"video_url": ONE}, "data": [TWO]}, [ONE, TWO]),
        ([[[ONE]], None, 7, {"videos": None}, TWO], [ONE, TWO]),
        (["AAAA", ONE, "data:video/mp4;base64,AAAA"], [ONE]),
    ],
)
def test_videos_are_found_in_every_form(output: JSON, urls: list[str]) -> None:
    """At any depth, in order, each once; bodies in place of URLs are passed over."""
    found = read({"task_id": "v1", "status": "success", "output": output}).result
    assert isinstance(found, VideoResult)
    assert [each.url for each in found.videos] == urls
    assert {each.expires_at for each in found.videos} == {Claim().now + timedelta(days=1)}


def test_a_video_is_read_with_all_that_is_told() -> None:
    """Size and length, an image that stands for it, and the price; two mentions of it are one."""
    output: JSON = {
        "url": ONE,
        "width": 1280,
        "videos": [{"url": ONE, "poster_url": OTHER, "height": 720, "width": 1, "duration": 5.5}],
        "cover_url": IMAGE,
    }
    found = read({"task_id": "v1", "status": "success", "price": 0.25, "output": output}).result
    until = Claim().now + timedelta(days=1)
    video = Video(url=ONE, expires_at=until, width=1280, height=720, duration_seconds=5.5)
    assert found == VideoResult(videos=(video,), cover_url=IMAGE, usage={"price": 0.25})
    to_json(found)


@pytest.mark.parametrize(
    "output", [None, {}, [], "", "missing", 7, {"videos": []}, {"url": "x"}, {"url": {"a": 1}}]
)
def test_done_without_a_url_is_incomplete(output: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read({"task_id": "v1", "status": "success", "output": output}).verdict is Verdict.INCOMPLETE


def test_a_result_of_any_depth_can_be_read() -> None:
    """As deep as JSON can be."""
    output: JSON = ONE
    for _ in range(300):
        output = {"output": [output]}
    assert read({"task_id": "v1", "status": "success", "output": output}).verdict is Verdict.SUCCEEDED


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"error_code": "E1", "error_message": "dark", "error": {"code": "E2"}}, "E1", "dark"),
        ({"error": {"type": "T", "message": "dark"}}, "T", "dark"),
        ({"error": None}, None, "the job failed"),
    ],
)
def test_a_failed_job_says_why(body: dict[str, JSON], code: str | None, message: str) -> None:
    """Code and message are at the top, or in `error`."""
    failed = read({"task_id": "v1", "status": "failure", **body})
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, code, message)


# Errors, on raw replies.


@pytest.mark.parametrize(
    ("http_status", "body", "expected", "code"),
    [
        (400, {"error": {"code": "bad", "message": "no"}}, SubmitRejected, "bad"),
        (200, {"error": {"code": "bad", "message": "no"}}, SubmitRejected, "bad"),
        (401, {"error": {"type": "invalid_api_key", "message": "no"}}, SubmitDeferred, "invalid_api_key"),
        (429, {"error": {"code": "rate_limit", "message": "no"}}, SubmitDeferred, "rate_limit"),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown, "provider_unavailable"),
        (200, {"status": "waiting", "error": None}, HandlerError, "unreadable_answer"),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError], code: str
) -> None:
    """A 5xx proves nothing; what an operator can mend, or time does, defers; what only the caller can rejects."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = GiteeVideo(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(expected) as caught:
            await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
        await handler.close()
    assert caught.value.code == code
    [sent] = server.requests
    assert (sent.target, sent.headers["authorization"]) == ("/async/videos/generations", "Bearer the-key")


async def test_an_empty_material_ends_the_task() -> None:
    """Nothing is sent to the provider."""
    async with ScriptedServer([Reply.of(b"")]) as files, ScriptedServer([Reply.of({})]) as server:
        settings = HttpSettings(base_url=server.url, allow_private=True)
        handler = GiteeVideo(ApiKey("the-key"), settings=settings)
        await handler.open()
        request = VideoRequest(source_video=f"{files.url}/a.mp4", first_frame=f"{files.url}/a.png", model="m")
        with pytest.raises(InvalidParams, match="is empty"):
            await handler.submit(request, Claim().submit)
        await handler.close()
    assert not server.requests
    assert all("authorization" not in each.headers for each in files.requests)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Gitee AI's protocol, without an encoder."""
    protocols = [GiteeVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[GiteeVideo]:
    """A handler that is open."""
    settings = HttpSettings(base_url=f"{sandbox.url}/gitee-video", allow_private=True)
    made = GiteeVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: GiteeVideo, sandbox: SandboxServer, **changes: Any) -> QueryParams:
    """Submit a request, and return what its queries need."""
    taken = await handler.submit(VideoRequest(**{"prompt": "a coat", **changes}), Claim().submit)
    assert taken.status is Status.SUBMITTED
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("model", [None, "HunyuanVideo-1.5", "LTX-2", "ViduQ3-Turbo", "Wan2.7"])
async def test_a_video_is_made(handler: GiteeVideo, sandbox: SandboxServer, model: str | None) -> None:
    """Submitted once, queried, and there is its URL, in whatever form; it needs no key."""
    found = await handler.query(await submitted(handler, sandbox, model=model), Claim().query)
    assert isinstance(found.result, VideoResult)
    [video] = found.result.videos
    assert b"a coat" in (await handler.download(video.url)).content
    assert sandbox.creating_requests("a coat") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"first_frame": IMAGE, "prompt": "a coat"},
        {"source_video": CLIP, "audio_url": SOUND, "mode": "audio_driven"},
        {"source_video": "{page}", "first_frame": "{page}", "model": "some-model"},
    ],
)
async def test_every_endpoint_is_there(
    handler: GiteeVideo, sandbox: SandboxServer, changes: dict[str, Any]
) -> None:
    """Also the one that takes files, which are downloaded from where they are."""
    page = sandbox.page_url("letter.jpg")
    placed = {name: page if value == "{page}" else value for name, value in changes.items()}
    job = await submitted(handler, sandbox, **{"prompt": "", **placed})
    assert (await handler.query(job, Claim().query)).verdict is Verdict.SUCCEEDED


async def test_a_job_may_fail_or_hide_its_video(handler: GiteeVideo, sandbox: SandboxServer) -> None:
    """With the provider's code and words."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="withheld", message="it was withheld"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == ("withheld", "it was withheld")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = GiteeVideo(ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/gitee-video"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("path", "request_", "code"),
    [
        ("generations", {"json": {"prompt": "x"}}, "missing_parameter"),
        ("image-to-video", {"json": {"model": "m", "prompt": "x"}}, "missing_parameter"),
        ("audio-video-to-video", {"json": {"model": "m", "ref_audio": 7}}, "missing_parameter"),
        ("image-video-to-video", {"form": {"steps": "1"}}, "missing_parameter"),
        ("image-video-to-video", {"form": {"model": "m", "ref_image": "x"}}, "missing_parameter"),
        (
            "image-video-to-video",
            {"json": {}, "headers": {"content-type": "multipart/form-data"}},
            "invalid_form",
        ),
    ],
)
async def test_the_sandbox_refuses_what_is_incomplete(
    handler: GiteeVideo, path: str, request_: dict[str, Any], code: str
) -> None:
    """In the provider's envelope."""
    told = await handler.ask(HttpRequest.post(f"/async/videos/{path}", **request_), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert refusal.code == code
