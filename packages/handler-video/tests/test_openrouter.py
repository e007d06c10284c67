import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck.errors import (
    CallbackRejected,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import CaptureSettings, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.openrouter import OpenRouterAccount, OpenRouterVideo
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.openrouter_video import OpenRouterVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "job-abc123"
JOB = QueryParams(external_task_id=ID)
CONTENT = f"https://openrouter.ai/api/v1/videos/{ID}/content?index=0"
STORED = "https://files.example.com/a.mp4"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
ACCOUNT = OpenRouterAccount("sk-or-of-one", webhook_secret="signing-secret-of-one")
CALLBACK = "https://app.example.com/callbacks/video:openrouter"


def job(status: str, **more: JSON) -> dict[str, JSON]:
    """Return a job in this state."""
    return {"id": ID, "polling_url": f"/videos/{ID}", "status": status, **more}


def status(word: str) -> JSON:
    """Return the answer to a query of a job in this state."""
    if word == "completed":
        return job(word, unsigned_urls=[CONTENT], usage={"cost": 0.25, "is_byok": False})
    return job(word, error="the frame is broken") if word in {"failed", "expired"} else job(word)


def called_back(secret: str = "signing-secret-of-one", *, age_seconds: int = 0) -> CallbackRequest:
    """Return a callback about the job, signed with a secret."""
    event = {"type": "video.generation.completed", "data": status("completed")}
    body = json.dumps(event).encode()
    timestamp = str(int(time.time()) - age_seconds)
    digest = hmac.digest(secret.encode(), f"{timestamp},".encode() + body, "sha256").hex()
    headers = {"x-openrouter-signature": f"t={timestamp},v1={digest}"}
    return CallbackRequest(method="POST", path="/callbacks", headers=headers, body=body)


def openrouter_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its guide describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.openrouter:OpenRouterVideo",
        key="video:openrouter",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"provider": {"options": {}}}
        ),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": OpenRouterAccount("sk-or-of-another")},
        script=Script(
            job=ID,
            accepted=KitReply.of(job("pending"), status=202),
            status=status,
            words={
                "pending": Means.WAITING,
                "in_progress": Means.RUNNING,
                "completed": Means.SUCCEEDED,
                "failed": Means.FAILED,
                "expired": Means.FAILED,
                "cancelled": Means.CANCELED,
            },
            rejected=KitReply.of({"error": {"code": 400, "message": "no such model"}}, status=400),
            rate_limited=KitReply.of({"error": {"code": 429, "message": "slow down"}}, status=429),
            not_found=KitReply.of({"error": {"code": 404, "message": "no such job"}}, status=404),
            error=lambda message: {"error": {"code": 500, "message": message}},
            done_without_result=KitReply.of(job("completed", unsigned_urls=[])),
            callbacks=Callbacks(authentic=called_back(), forged=called_back("another secret")),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestOpenRouterVideo(HandlerConformance):
    """The handler of OpenRouter keeps every promise."""

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
        """The provider as its guide describes it."""
        return openrouter_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return OpenRouterVideo().parse_query(response, JOB, Claim().query)


def build(
    request: VideoRequest, callback_url: str | None = None, account: OpenRouterAccount = ACCOUNT
) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = OpenRouterVideo(account)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("pending", Verdict.RUNNING, Status.SUBMITTED),
        ("in_progress", Verdict.RUNNING, Status.RUNNING),
        ("completed", Verdict.SUCCEEDED, Status.RUNNING),
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
    ("urls", "videos"),
    [
        ([CONTENT], [Video(url=CONTENT, needs_credentials=True)]),
        ([f"/api/v1/videos/{ID}/content?index=0"], [Video(url=CONTENT, needs_credentials=True)]),
        ([CONTENT, STORED], [Video(url=CONTENT, needs_credentials=True), Video(url=STORED)]),
    ],
)
def test_the_providers_own_content_needs_the_key(urls: JSON, videos: list[Video]) -> None:
    """What is elsewhere never sees it; how long either works is not documented."""
    found = read(job("completed", unsigned_urls=urls, usage={"cost": 0.25}))
    assert found.result == VideoResult(videos=tuple(videos), usage={"cost": 0.25})
    to_json(found.result)


@pytest.mark.parametrize("urls", [None, [], [None], [" "], "https://x.example.com"])
def test_done_without_a_url_is_incomplete(urls: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(job("completed", unsigned_urls=urls)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("error", "message"), [("Content policy violation", "Content policy violation"), (None, "the job failed")]
)
def test_a_failed_job_says_why(error: JSON, message: str) -> None:
    """There is no code."""
    failed = read(job("failed", error=error))
    assert (failed.error_code, failed.error_message) == (None, message)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (VideoRequest(prompt="waves"), {"prompt": "waves"}),
        (
            VideoRequest(
                prompt="waves", duration=timedelta(seconds=8), resolution="720p", aspect_ratio="16:9", seed=7,
                audio=False, model="bytedance/seedance-2.0",
            ),
            {
                "prompt": "waves", "duration": 8, "resolution": "720p", "aspect_ratio": "16:9", "seed": 7,
                "generate_audio": False, "model": "bytedance/seedance-2.0",
            },
        ),
        (VideoRequest(prompt="waves", width=1280, height=720), {"prompt": "waves", "size": "1280x720"}),
        (
            VideoRequest(first_frame=IMAGE, last_frame=LAST),
            {
                "frame_images": [
                    {"type": "image_url", "image_url": {"url": IMAGE}, "frame_type": "first_frame"},
                    {"type": "image_url", "image_url": {"url": LAST}, "frame_type": "last_frame"},
                ]
            },
        ),
        (
            VideoRequest(prompt="p", reference_images=(IMAGE,)),
            {"prompt": "p", "input_references": [{"type": "image_url", "image_url": {"url": IMAGE}}]},
        ),
        (
            VideoRequest(prompt="p", options={"model": "x/y", "previous_job_id": "job-1"}),
            {"prompt": "p", "previous_job_id": "job-1"},
        ),
    ],
)  # fmt: skip
def test_a_request_says_what_it_was_given(request_: VideoRequest, expected: dict[str, JSON]) -> None:
    """Options go beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url) == ("POST", "/videos")
    assert sent.json == {"model": "google/veo-3.1", **expected}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", width=1, height=1, aspect_ratio="16:9"), "leave aspect_ratio out"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(first_frame=IMAGE, reference_images=(LAST,)), "omni_reference"),
        (VideoRequest(prompt="x", source_video=STORED), "video_to_video"),
        (VideoRequest(prompt="x", negative_prompt="y"), "negative_prompt"),
    ],
)
def test_what_the_provider_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        OpenRouterVideo().validate(request_)


def test_there_is_no_cancel() -> None:
    """As far as is documented."""
    assert Capability.CANCEL not in OpenRouterVideo().capabilities
    assert Capability.CALLBACK in OpenRouterVideo().capabilities


def test_an_account_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is read when it is used."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or")
    assert OpenRouterAccount.from_env("OPENROUTER_API_KEY").api_key.reveal() == "sk-or"


# Callbacks.


@pytest.mark.parametrize(
    ("callback_url", "account", "expected"),
    [
        (CALLBACK, ACCOUNT, CALLBACK),
        (CALLBACK, OpenRouterAccount("sk-or"), "https://elsewhere.example.com"),
        (CALLBACK.replace("https:", "http:"), ACCOUNT, "https://elsewhere.example.com"),
        (None, ACCOUNT, "https://elsewhere.example.com"),
    ],
)
def test_the_provider_is_asked_to_call_back_by_https(
    callback_url: str | None, account: OpenRouterAccount, expected: str
) -> None:
    """It refuses anything else; and only if the account can tell a true callback from a forged one."""
    request = VideoRequest(prompt="x", options={"callback_url": "https://elsewhere.example.com"})
    sent = build(request, callback_url, account).json
    assert sent == {"model": "google/veo-3.1", "prompt": "x", "callback_url": expected}


async def test_a_signed_callback_names_the_job() -> None:
    """An old one is a replay."""
    handler = OpenRouterVideo(ACCOUNT)
    found = await handler.parse_callback(called_back(), None)
    assert found.external_task_ids == (ID,)
    unsigned = evolve(called_back(), headers={"x-openrouter-signature": f"t={int(time.time())}"})
    garbled = evolve(called_back(), headers={"x-openrouter-signature": "what"})
    other_body = evolve(called_back(), body=b"{}")
    for bad in (called_back("another secret"), called_back(age_seconds=400), unsigned, garbled, other_body):
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(bad, None)
    with pytest.raises(CallbackRejected, match="no webhook_secret"):
        await OpenRouterVideo(OpenRouterAccount("sk-or")).parse_callback(called_back(), None)


# Submissions and queries, on raw replies.


def handler_at(url: str) -> OpenRouterVideo:
    """Return a handler that talks to this server."""
    return OpenRouterVideo(OpenRouterAccount("the-key"), settings=VideoSettings(base_url=f"{url}/api/v1"))


async def submit(reply: Reply) -> SubmitResult | HandlerError:
    """Submit to a provider that answers so, and return the outcome or what was raised."""
    async with ScriptedServer([reply]) as server:
        handler = handler_at(server.url)
        await handler.open()
        try:
            return await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        except HandlerError as raised:
            return raised
        finally:
            await handler.close()


@pytest.mark.parametrize(
    ("http_status", "expected"),
    [
        (400, SubmitRejected),
        (401, SubmitDeferred),
        (402, SubmitDeferred),
        (403, SubmitRejected),
        (409, SubmitRejected),
        (413, SubmitRejected),
        (429, SubmitDeferred),
        (408, OutcomeUnknown),
        (500, OutcomeUnknown),
        (502, OutcomeUnknown),
        (503, OutcomeUnknown),
    ],
)
async def test_errors_say_no_more_than_is_certain(http_status: int, expected: type[HandlerError]) -> None:
    """A 5xx proves nothing; what an operator can mend defers; what only the caller can rejects, as 403 is here."""
    body: JSON = {"error": {"code": http_status, "message": "no", "metadata": {}}}
    assert type(await submit(Reply.of(body, status=http_status))) is expected
    assert type(await submit(Reply.of(b"<html>no</html>", status=502))) is OutcomeUnknown


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (f"https://openrouter.ai/api/v1/videos/{ID}", f"https://openrouter.ai/api/v1/videos/{ID}"),
        (f"/api/v1/videos/{ID}", f"https://openrouter.ai/api/v1/videos/{ID}"),
        (None, None),
    ],
)
def test_the_polling_url_is_kept_whole(told: str | None, kept: str | None) -> None:
    """It may be told without its origin; without any the job is asked about by its id."""
    handler = OpenRouterVideo()
    answer = HttpResponse(status=202, body=json.dumps({**job("pending"), "polling_url": told}).encode())
    made = handler.create_query_params(answer, VideoRequest(prompt="p"))
    assert made.provider_params == ({} if kept is None else {"polling_url": kept})
    assert handler.build_query(made, Claim().query).url == (kept or f"/videos/{ID}")


async def test_urls_of_another_origin_never_see_the_key() -> None:
    """The query fails, with the setting that would allow it; nothing is sent."""
    async with ScriptedServer([Reply.of({})]) as home, ScriptedServer([Reply.of({})]) as foreign:
        handler = handler_at(home.url)
        asked = QueryParams(external_task_id=ID, provider_params={"polling_url": f"{foreign.url}/p"})
        await handler.open()
        with pytest.raises(QueryFailed, match="trusted_origins"):
            await handler.query(asked, Claim().query)
        await handler.close()
        assert not home.requests
        assert not foreign.requests


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks OpenRouter's protocol, without an encoder."""
    protocols = [OpenRouterVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer, tmp_path: Path) -> AsyncIterator[OpenRouterVideo]:
    """A handler that is open, and copies what is made."""
    settings = VideoSettings(
        base_url=f"{sandbox.url}/openrouter-video",
        allow_private=True,
        capture=CaptureSettings(destination=str(tmp_path)),
    )
    made = OpenRouterVideo(OpenRouterAccount("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: OpenRouterVideo, sandbox: SandboxServer, resolution: str | None = "480p"
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(
        prompt="waves",
        duration=timedelta(seconds=4),
        resolution=resolution,
        width=640 if resolution is None else None,
        height=360 if resolution is None else None,
    )
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "pending")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(("resolution", "size"), [("480p", (853, 480)), (None, (640, 360))])
async def test_a_video_is_made_and_copied(
    handler: OpenRouterVideo, sandbox: SandboxServer, resolution: str | None, size: tuple[int, int]
) -> None:
    """Submitted once, queried, and fetched with the key, without which it is not given."""
    made = await submitted(handler, sandbox, resolution)
    done = await handler.query(made, Claim().query)
    assert isinstance(done.result, VideoResult)
    (video,) = done.result.videos
    assert video.copy is not None
    assert "waves" in await asyncio.to_thread(Path(video.copy.location).read_text)
    assert (done.result.usage, done.result.warnings) == ({"cost": 0.25, "is_byok": False}, ())
    found = sandbox.jobs.get(made.external_task_id)
    assert found is not None
    assert found.order is not None
    assert (found.order.width, found.order.height, found.order.seconds) == (*size, 4)
    assert sandbox.creating_requests("waves") == 1
    missing = await handler.ask(HttpRequest.get(f"{video.url}1"), Claim().query)
    assert missing.status == 404


async def test_a_job_may_fail_or_hide_its_result(handler: OpenRouterVideo, sandbox: SandboxServer) -> None:
    """With the provider's words."""
    made = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(made, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(made, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="any", message="the frame is broken"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.error_code, failed.error_message) == (None, "the frame is broken")
    sandbox.jobs.clear()
    assert (await handler.query(made, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    settings = VideoSettings(base_url=f"{sandbox.url}/openrouter-video")
    handler = OpenRouterVideo(OpenRouterAccount("wrong"), settings=settings)
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


async def test_the_sandbox_refuses_what_it_cannot_read(handler: OpenRouterVideo) -> None:
    """In the provider's form."""
    told = await handler.ask(HttpRequest.post("/videos", json={"prompt": "p"}), Claim().query)
    assert (told.status, told.json()) == (400, {"error": {"code": 400, "message": "model is required"}})
