import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck.errors import (
    CallbackRejected,
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import CallbackRequest
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Callbacks, Cancelling, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import Video, VideoMode, VideoRequest, VideoResult
from coatcheck_handler_video.replicate import ReplicateAccount, ReplicateVideo, ReplicateVideoSettings
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.replicate_video import ReplicateVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "gm3qorzdhgbfurvjtvhg6dckhu"
JOB = QueryParams(external_task_id=ID)
VIDEO = "https://files.example.com/a.mp4"
SECOND = "https://files.example.com/b.webm?sig=1"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
SOUND = "https://files.example.com/a.mp3"
SECRET = "whsec_" + base64.b64encode(b"the signing key of the account").decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"the signing key of somebody").decode()
ACCOUNT = ReplicateAccount("r8-token-of-one", webhook_secret=SECRET)
CALLBACK = "https://app.example.com/callbacks/video:replicate"
NOW = Claim().now


def prediction(status: str, **more: JSON) -> dict[str, JSON]:
    """Return a prediction in this state, as an old version told it: without URLs."""
    made: dict[str, JSON] = {"id": ID, "status": status, "output": None, "error": None, "logs": ""}
    return {**made, "metrics": {}, "completed_at": None, **more}


def created(server: str) -> dict[str, JSON]:
    """Return the answer to a submission."""
    place = f"{server}/v1/predictions/{ID}"
    return prediction("starting", urls={"get": place, "cancel": f"{place}/cancel", "stream": "https://s/"})


def status(word: str) -> JSON:
    """Return the answer to a query of a prediction in this state."""
    if word == "succeeded":
        return prediction(word, output=VIDEO, metrics={"predict_time": 4.5})
    return prediction(word, error="the frame is broken" if word == "failed" else None)


def called_back(secret: str = SECRET, *, age_seconds: int = 0) -> CallbackRequest:
    """Return a callback about the prediction, signed as Standard Webhooks are."""
    body = json.dumps(status("succeeded")).encode()
    timestamp = str(int(time.time()) - age_seconds)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"msg_1.{timestamp}.".encode() + body, "sha256")
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,AAAA v1,{base64.b64encode(digest).decode()}",
    }
    return CallbackRequest(method="POST", path="/callbacks", headers=headers, body=body)


def replicate_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its SDK describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.replicate:ReplicateVideo",
        key="video:replicate",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"loras": [{"scale": 1}]}
        ),
        settings=lambda url: ReplicateVideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ACCOUNT, "other": ReplicateAccount("r8-token-of-another")},
        script=Script(
            job=ID,
            accepted=KitReply.of(created("{server}"), status=201),
            status=status,
            words={
                "starting": Means.WAITING,
                "processing": Means.RUNNING,
                "succeeded": Means.SUCCEEDED,
                "failed": Means.FAILED,
                "aborted": Means.FAILED,
                "canceled": Means.CANCELED,
            },
            rejected=KitReply.of(
                {"title": "Input validation failed", "detail": "- input: prompt is required", "status": 422},
                status=422,
            ),
            rate_limited=KitReply.of(
                {"detail": "Request was throttled. Your rate limit resets in ~30s."}, status=429
            ),
            not_found=KitReply.of({"detail": "Not found."}, status=404),
            error=lambda message: {"title": "Error", "detail": message},
            done_without_result=KitReply.of(prediction("succeeded")),
            cancel=Cancelling(
                confirmed=KitReply.of(prediction("canceled")), refused=KitReply.of(prediction("succeeded"))
            ),
            callbacks=Callbacks(authentic=called_back(), forged=called_back(OTHER_SECRET)),
        ),
        creating=lambda method, path: method == "POST" and not path.endswith("/cancel"),
        answer_limit_bytes=4 * MIB,
    )


class TestReplicateVideo(HandlerConformance):
    """The handler of Replicate keeps every promise."""

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
        """The provider as its SDK describes it."""
        return replicate_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return ReplicateVideo().parse_query(response, JOB, Claim().query)


def build(
    request: VideoRequest, callback_url: str | None = None, settings: ReplicateVideoSettings | None = None
) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = ReplicateVideo(ACCOUNT, settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("starting", Verdict.RUNNING, Status.SUBMITTED),
        ("processing", Verdict.RUNNING, Status.RUNNING),
        ("succeeded", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("aborted", Verdict.FAILED, Status.RUNNING),
        ("canceled", Verdict.CANCELED, Status.RUNNING),
        ("paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


@pytest.mark.parametrize(
    ("output", "urls"),
    [
        (VIDEO, [VIDEO]),
        ([VIDEO, SECOND, VIDEO], [VIDEO, SECOND]),
        ({"video": VIDEO, "thumbnail": IMAGE, "count": 2}, [VIDEO]),
        ([{"frames": [IMAGE], "video": {"url": f" {SECOND} "}}], [SECOND]),
    ],
)
def test_the_output_is_a_string_or_a_list_or_an_object(output: JSON, urls: list[str]) -> None:
    """Whatever the model likes; what is told by its name to be something else is left out."""
    found = read(prediction("succeeded", output=output, metrics={"predict_time": 4.5}))
    expires_at = NOW + timedelta(hours=1)
    videos = tuple(Video(url=each, expires_at=expires_at) for each in urls)
    assert found.result == VideoResult(videos=videos, usage={"predict_time": 4.5})
    to_json(found.result)


def test_urls_that_tell_nothing_are_all_given() -> None:
    """With a warning: what was paid for is not lost to a guess."""
    found = read(prediction("succeeded", output=[IMAGE, "https://files.example.com/download"]))
    assert isinstance(found.result, VideoResult)
    assert len(found.result.videos) == 2
    assert "no URL of the output" in found.result.warnings[0]


@pytest.mark.parametrize(
    ("completed_at", "expires_at"),
    [
        ("2025-12-31T23:50:00.123456Z", datetime(2026, 1, 1, 0, 50, 0, 123456, tzinfo=UTC)),
        ("2026-02-01T00:00:00Z", NOW + timedelta(hours=1)),
        ("2025-12-31T23:50:00", NOW + timedelta(hours=1)),
        ("yesterday", NOW + timedelta(hours=1)),
        (None, NOW + timedelta(hours=1)),
    ],
)
def test_the_output_is_deleted_an_hour_after_the_end(completed_at: JSON, expires_at: datetime) -> None:
    """Which is told; a clock that is ahead, or no time at all, gives an hour from now."""
    found = read(prediction("succeeded", output=VIDEO, completed_at=completed_at))
    assert isinstance(found.result, VideoResult)
    assert found.result.videos[0].expires_at == expires_at


@pytest.mark.parametrize("output", [None, "", [], {}, "data:video/mp4;base64,AAAA", ["no url"], 7, True])
def test_done_without_a_url_is_incomplete(output: JSON) -> None:
    """Files in base64 never become a result."""
    assert read(prediction("succeeded", output=output)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        ("failed", "the frame is broken", "the frame is broken"),
        ("failed", None, "the job failed"),
        ("aborted", "too late", "too late"),
        ("aborted", None, "the prediction was aborted: its deadline passed before it started"),
    ],
)
def test_a_failed_prediction_says_why(word: str, error: JSON, message: str) -> None:
    """There is no code."""
    failed = read(prediction(word, error=error))
    assert (failed.error_code, failed.error_message) == (None, message)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (VideoRequest(prompt="waves"), {"prompt": "waves"}),
        (
            VideoRequest(
                prompt="waves", negative_prompt="foam", duration=timedelta(seconds=8), resolution="720p",
                aspect_ratio="16:9", seed=7, audio=False,
            ),
            {
                "prompt": "waves", "negative_prompt": "foam", "duration": 8, "resolution": "720p",
                "aspect_ratio": "16:9", "seed": 7, "generate_audio": False,
            },
        ),
        (VideoRequest(first_frame=IMAGE, last_frame=LAST), {"image": IMAGE, "last_frame": LAST}),
        (
            VideoRequest(prompt="p", reference_images=(IMAGE, LAST)),
            {"prompt": "p", "reference_images": [IMAGE, LAST]},
        ),
        (
            VideoRequest(prompt="p", options={"prompt": "another", "fast": True, "image": IMAGE}),
            {"prompt": "p", "fast": True, "image": IMAGE},
        ),
    ],
)  # fmt: skip
def test_a_request_says_what_it_was_given(request_: VideoRequest, expected: dict[str, JSON]) -> None:
    """Under the usual names; options are inputs, beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url) == ("POST", "/v1/models/google/veo-3.1/predictions")
    assert sent.json == {"input": expected}


def test_settings_name_the_inputs_of_a_model() -> None:
    """They go before the usual names, and can name what has none."""
    names = {
        "first_frame": "start_image", "source_video": "video", "reference_videos": "clips", "audio_url": "audio",
        "width": "w", "height": "h", "fps": "fps", "watermark": "mark",
    }  # fmt: skip
    request = VideoRequest(
        first_frame=IMAGE, source_video=VIDEO, reference_videos=(SECOND,), audio_url=SOUND,
        mode=VideoMode.OMNI_REFERENCE, width=640, height=360, fps=24, watermark=False,
    )  # fmt: skip
    sent = build(request, settings=ReplicateVideoSettings(input_names=names))
    assert sent.json == {
        "input": {
            "start_image": IMAGE, "video": VIDEO, "clips": [SECOND], "audio": SOUND, "w": 640, "h": 360,
            "fps": 24, "mark": False,
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "path", "version"),
    [
        ("owner/name", "/v1/models/owner/name/predictions", None),
        ("owner/name:5c7d", "/v1/predictions", "5c7d"),
        ("5c7d5dc6dd8bf75c1acaa8565735e798", "/v1/predictions", "5c7d5dc6dd8bf75c1acaa8565735e798"),
        ("deployments/owner/name", "/v1/deployments/owner/name/predictions", None),
        ("owner/na me", "/v1/models/owner/na%20me/predictions", None),
    ],
)
def test_a_model_says_where_to(model: str, path: str, version: str | None) -> None:
    """A model, a version or a deployment, each of which has an endpoint."""
    sent = build(VideoRequest(prompt="p", model=model))
    assert sent.url == path
    assert sent.json == {"input": {"prompt": "p"}, **({"version": version} if version else {})}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", model="a/b/c"), "owner/name"),
        (VideoRequest(prompt="x", model="a/"), "owner/name"),
        (VideoRequest(prompt="x", model="a:b"), "owner/name"),
        (VideoRequest(prompt="x", model="a/b:"), "owner/name"),
        (VideoRequest(prompt="x", model="deployments/a/b:c"), "owner/name"),
        (VideoRequest(prompt="x", model="a/.."), r"'\.\.'"),
        (VideoRequest(prompt="x", source_video=VIDEO), "no input for `source_video`"),
        (VideoRequest(prompt="x", fps=24), "no input for `fps`"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(prompt="x", first_frame="gs://bucket/a.png"), "http or https"),
    ],
)
def test_what_the_model_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        ReplicateVideo().validate(request_)


def test_settings_can_say_that_an_input_is_missing() -> None:
    """So that a request with it is refused rather than made into another video."""
    handler = ReplicateVideo(settings=ReplicateVideoSettings(input_names={"seed": ""}))
    with pytest.raises(InvalidParams, match="no input for `seed`"):
        handler.validate(VideoRequest(prompt="x", seed=1))
    with pytest.raises(ConfigurationError, match="'first_image'"):
        ReplicateVideoSettings(input_names={"first_image": "image"})


def test_an_account_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is read when it is used."""
    monkeypatch.setenv("REPLICATE_API_TOKEN", "r8-token")
    assert ReplicateAccount.from_env("REPLICATE_API_TOKEN").api_key.reveal() == "r8-token"


# Callbacks.


def test_the_provider_is_asked_to_call_back_at_the_end() -> None:
    """If the account can tell a true callback from a forged one; options cannot replace it."""
    sent = build(VideoRequest(prompt="x", options={"webhook": "https://elsewhere.example.com"}), CALLBACK)
    assert sent.json == {
        "input": {"prompt": "x", "webhook": "https://elsewhere.example.com"},
        "webhook": CALLBACK,
        "webhook_events_filter": ["completed"],
    }
    context = PreparedContext.of(evolve(Claim().submit, callback_url=CALLBACK))
    silent = ReplicateVideo(ReplicateAccount("token")).build_submit(VideoRequest(prompt="x"), context)
    assert silent.json == {"input": {"prompt": "x"}}


async def test_a_signed_callback_names_the_prediction() -> None:
    """Any of the signatures may be the right one; an old one is a replay."""
    handler = ReplicateVideo(ACCOUNT)
    found = await handler.parse_callback(called_back(), None)
    assert found.external_task_ids == (ID,)
    for bad in (called_back(OTHER_SECRET), called_back(age_seconds=400), evolve(called_back(), body=b"{}")):
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(bad, None)
    with pytest.raises(CallbackRejected, match="no webhook_secret"):
        await ReplicateVideo(ReplicateAccount("token")).parse_callback(called_back(), None)


# Submissions and queries, on raw replies.


def handler_at(url: str) -> ReplicateVideo:
    """Return a handler that talks to this server."""
    return ReplicateVideo(ReplicateAccount("the-key"), settings=ReplicateVideoSettings(base_url=url))


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
    ("http_status", "body", "expected"),
    [
        (422, {"title": "Input validation failed", "detail": "no"}, SubmitRejected),
        (401, {"title": "Unauthenticated", "detail": "no token"}, SubmitDeferred),
        (402, {"title": "Insufficient credit", "detail": "pay"}, SubmitDeferred),
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


@pytest.mark.parametrize(
    ("detail", "headers", "expected"),
    [
        ("Request was throttled. Your rate limit resets in ~30s.", {}, timedelta(seconds=30)),
        (
            "Request was throttled. Your rate limit resets in ~30s.",
            {"retry-after": "7"},
            timedelta(seconds=7),
        ),
        ("Your rate limit resets in ~999999s.", {}, timedelta(hours=1)),
        ("slow down", {}, None),
    ],
)
async def test_a_limit_tells_in_words_how_long_to_wait(
    detail: str, headers: dict[str, str], expected: timedelta | None
) -> None:
    """The header goes first, and no hint counts for more than the settings allow."""
    raised = await submit(Reply.of({"detail": detail}, status=429, headers=headers))
    assert isinstance(raised, SubmitDeferred)
    assert raised.retry_after == expected


async def test_the_urls_of_the_answer_are_kept() -> None:
    """The query and the cancel go there."""
    taken = await submit(Reply.of(created("https://api.replicate.com"), status=201))
    assert isinstance(taken, SubmitResult)
    assert taken.query_params is not None
    place = f"https://api.replicate.com/v1/predictions/{ID}"
    assert taken.query_params.provider_params == {"get": place, "cancel": f"{place}/cancel"}
    handler = ReplicateVideo(ACCOUNT)
    assert handler.build_query(taken.query_params, Claim().query).url == place
    assert handler.build_cancel(taken.query_params, Claim().cancel).url == f"{place}/cancel"
    assert handler.build_query(JOB, Claim().query).url == f"/v1/predictions/{ID}"
    assert handler.build_cancel(JOB, Claim().cancel).url == f"/v1/predictions/{ID}/cancel"


async def test_urls_of_another_origin_never_see_the_token() -> None:
    """The query fails, with the setting that would allow it; the cancel stays unanswered; nothing is sent."""
    async with ScriptedServer([Reply.of({})]) as home, ScriptedServer([Reply.of({})]) as foreign:
        handler = handler_at(home.url)
        urls: dict[str, JSON] = {"get": f"{foreign.url}/p", "cancel": f"{foreign.url}/p/cancel"}
        job = QueryParams(external_task_id=ID, provider_params=urls)
        await handler.open()
        with pytest.raises(QueryFailed, match="trusted_origins"):
            await handler.query(job, Claim().query)
        assert await handler.cancel(job, Claim().cancel) is CancelOutcome.UNKNOWN
        await handler.close()
        assert not home.requests
        assert not foreign.requests


@pytest.mark.parametrize(
    ("http_status", "word", "expected"),
    [
        (200, "canceled", CancelOutcome.CONFIRMED),
        (200, "processing", CancelOutcome.CONFIRMED),
        (200, "aborted", CancelOutcome.CONFIRMED),
        (200, "succeeded", CancelOutcome.REFUSED),
        (200, "failed", CancelOutcome.REFUSED),
        (404, "succeeded", CancelOutcome.REFUSED),
        (500, "succeeded", CancelOutcome.UNKNOWN),
    ],
)
def test_a_cancel_comes_too_late_for_what_has_ended(
    http_status: int, word: str, expected: CancelOutcome
) -> None:
    """The answer has the prediction, and so its state."""
    answer = HttpResponse(status=http_status, body=json.dumps(prediction(word)).encode())
    assert ReplicateVideo().parse_cancel(answer, JOB, Claim().cancel) is expected


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Replicate's protocol, without an encoder."""
    protocols = [ReplicateVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[ReplicateVideo]:
    """A handler that is open."""
    settings = ReplicateVideoSettings(base_url=f"{sandbox.url}/replicate-video", allow_private=True)
    made = ReplicateVideo(ReplicateAccount("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: ReplicateVideo, sandbox: SandboxServer, model: str = "owner/name"
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(prompt="waves", first_frame=IMAGE, duration=timedelta(seconds=5), model=model)
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "starting")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("model", ["owner/name", "owner/name:5c7d", "deployments/owner/name"])
async def test_a_video_is_made(handler: ReplicateVideo, sandbox: SandboxServer, model: str) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    job = await submitted(handler, sandbox, model)
    done = await handler.query(job, Claim().query)
    assert isinstance(done.result, VideoResult)
    assert "waves" in (await handler.download(done.result.videos[0].url)).text
    assert done.result.usage == {"predict_time": 5.0}
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail_or_hide_its_result(handler: ReplicateVideo, sandbox: SandboxServer) -> None:
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


async def test_a_prediction_can_be_cancelled_until_it_has_ended(
    handler: ReplicateVideo, sandbox: SandboxServer
) -> None:
    """After that the cancel is refused."""
    ended = await submitted(handler, sandbox)
    sandbox.jobs.delay = timedelta(hours=1)
    job = await submitted(handler, sandbox)
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(job, Claim().query)).verdict is Verdict.CANCELED
    assert await handler.cancel(ended, Claim().cancel) is CancelOutcome.REFUSED


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    settings = ReplicateVideoSettings(base_url=f"{sandbox.url}/replicate-video")
    handler = ReplicateVideo(ReplicateAccount("wrong"), settings=settings)
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize("body", [{"input": {}}, {"version": "5c7d"}, {"version": "5c7d", "input": []}])
async def test_the_sandbox_refuses_what_it_cannot_read(handler: ReplicateVideo, body: JSON) -> None:
    """In the provider's form."""
    told = await handler.ask(HttpRequest.post("/v1/predictions", json=body), Claim().query)
    assert (told.status, set(told.json_object())) == (422, {"title", "detail", "status"})
