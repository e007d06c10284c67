import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import evolve

from coatcheck.errors import (
    CallbackRejected,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
    Unsupported,
)
from coatcheck.handler import AnyHandler, CallbackRequest, CancelContext, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Callbacks, Cancelling, HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_video import ApiKey, CaptureSettings, Video, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.minimax import MinimaxVideo
from coatcheck_http import (
    HttpRequest,
    HttpResponse,
    OutcomeUnknown,
    PreparedContext,
    UnreadableAnswer,
    own_callback_url,
)
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.minimax_video import MinimaxVideoProtocol

MIB = 1024 * 1024
OUR_URL = "https://app.test/callbacks/minimax?tenant=a"
V1 = QueryParams(external_task_id="m1", provider_params={"api": "v1"})
V2 = QueryParams(external_task_id="m1", provider_params={"api": "v2"})
VIDEO = "https://files.example.com/a.mp4?token=t"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
SOUND = "https://files.example.com/a.mp3"
GOOD: JSON = {"status_code": 0, "status_msg": "success"}
SIX = timedelta(seconds=6)
WAVES = VideoRequest(prompt="waves")
WAVES_V2 = VideoRequest(prompt="waves", model="MiniMax-H3", aspect_ratio="16:9")
REQUESTS = {"v1": WAVES, "v2": WAVES_V2}
V1_WORDS = ("Preparing", "Queueing", "Processing", "Success", "Fail")
V2_WORDS = ("queued", "running", "succeeded", "failed", "cancelled", "expired")


def v1_status(word: str, **more: JSON) -> JSON:
    """Return the answer to a query of a job of v1 with this status word."""
    done: dict[str, JSON] = {"file_id": 205258526306433, "video_width": 1366, "video_height": 768}
    found = done if word == "Success" else {"file_id": ""}
    return {"task_id": "m1", "status": word, **found, "base_resp": GOOD, **more}


def v2_status(word: str, **more: JSON) -> JSON:
    """Return the answer to a query of a job of v2 with this status word."""
    content: JSON = {"url": VIDEO} if word == "succeeded" else None
    error: JSON = {"code": "output_sensitive", "message": "refused"} if word == "failed" else None
    return {"task": {"id": "m1", "status": word, "content": content, "error": error, **more}}


def v1_error(code: int, message: str = "no") -> JSON:
    """Return an error of v1, which comes in HTTP 200."""
    return {"base_resp": {"status_code": code, "status_msg": message}}


def v2_error(kind: str, message: str = "no", http_code: str = "400") -> JSON:
    """Return an error of v2."""
    told: JSON = {"type": kind, "message": message, "http_code": http_code}
    return {"type": "error", "error": told, "request_id": "r"}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context(callback_url: str | None = None) -> PreparedContext:
    """Return the context of a submit call."""
    claim = evolve(Claim().submit, callback_url=callback_url)
    return PreparedContext.of(claim)


def called(secret: str, body: JSON) -> CallbackRequest:
    """Return a callback to the address that was made with `secret`."""
    parts = urlsplit(own_callback_url(OUR_URL, "task-1", secret))
    return CallbackRequest(
        method="POST",
        path=parts.path,
        headers={"content-type": "application/json"},
        query=dict(parse_qsl(parts.query)),
        body=json.dumps(body).encode(),
    )


# The kit.


class WithoutCancel(MinimaxVideo):
    """What the handler is for jobs of v1, which cannot be cancelled."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All but cancel."""
        return super().capabilities - {Capability.CANCEL}

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Show that the handler says so itself, and refuse."""
        assert await super().cancel(params, context) is CancelOutcome.UNSUPPORTED
        raise Unsupported("v1 has no cancel")


class V1Spec(HandlerSpec):
    """A spec that makes handlers of jobs that cannot be cancelled."""

    def create(
        self, url: str, *, accounts: Mapping[str, object] | None = None, key: str | None = None
    ) -> AnyHandler:
        """Return a new handler that talks to the server at `url`."""
        settings = self.settings(url)
        assert isinstance(settings, VideoSettings)
        return WithoutCancel(accounts, key=key or self.key, settings=settings)


def minimax_spec(_folder: Path | None = None, *, api: str = "v2") -> HandlerSpec:
    """Return the provider as its documentation describes it; v2, or v1."""
    v1 = api == "v1"
    told: JSON = {"task_id": "m1", "status": "processing", "base_resp": GOOD}
    words = V1_WORDS if v1 else V2_WORDS
    none: JSON = v1_status("Success", file_id="") if v1 else v2_status("succeeded", content=None)
    return (V1Spec if v1 else HandlerSpec)(
        "coatcheck_handler_video.minimax:MinimaxVideo",
        key="video:minimax",
        params=lambda url: VideoRequest(
            prompt="waves",
            first_frame=f"{url}/files/a.png",
            model=None if v1 else "MiniMax-H3",
            options={"prompt_optimizer": True},
        ),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={
            "default": ApiKey("minimax-key-of-one", callback_secret="callback-secret-of-one"),
            "other": ApiKey("minimax-key-of-another", callback_secret="callback-secret-of-another"),
        },
        secrets={"default": ["minimax-key-of-one"], "other": ["minimax-key-of-another"]},
        script=Script(
            job="m1",
            accepted=Reply.of({"task_id": "m1", "base_resp": GOOD} if v1 else {"task_id": "m1"}),
            status=v1_status if v1 else v2_status,
            words={word: Means(MinimaxVideo.statuses.words[word.casefold()]) for word in words},
            rejected=Reply.of(v1_error(2013))
            if v1
            else Reply.of(v2_error("invalid_request_error"), status=400),
            rate_limited=Reply.of(v1_error(1002))
            if v1
            else Reply.of(v2_error("rate_limit_error"), status=429),
            not_found=Reply.of(v1_error(2013, "invalid task_id"))
            if v1
            else Reply.of(v2_error("invalid_request_error", "invalid task_id"), status=400),
            error=lambda message: v1_error(1999, message) if v1 else v2_error("kit", message),
            done_without_result=Reply.of(none),
            served={"/v1/files/retrieve": {"file": {"download_url": VIDEO}, "base_resp": GOOD}},
            cancel=Cancelling(
                confirmed=Reply.of({"task_id": "m1"}),
                refused=Reply.of(v2_error("invalid_request_error", "it runs"), status=400),
            ),
            callbacks=Callbacks(
                authentic=called("callback-secret-of-one", told),
                forged=called("callback-secret-of-another", told),
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestMinimaxVideo(HandlerConformance):
    """The handler of MiniMax keeps every promise with v2."""

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
        """The provider's v2."""
        return minimax_spec()


class TestMinimaxVideoV1(HandlerConformance):
    """It keeps them with v1, too."""

    require = tuple(each for each in TestMinimaxVideo.require if each != "cancel")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider's v1."""
        return minimax_spec(api="v1")


# On samples of answers, as documented.


def read(body: JSON, job: QueryParams) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return MinimaxVideo().parse_query(answer(body), job, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("Preparing", Verdict.RUNNING, Status.SUBMITTED),
        ("Queueing", Verdict.RUNNING, Status.SUBMITTED),
        ("Processing", Verdict.RUNNING, Status.RUNNING),
        ("Success", Verdict.SUCCEEDED, Status.RUNNING),
        ("Fail", Verdict.FAILED, Status.RUNNING),
        ("Paused", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_of_v1_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    result = read(v1_status(word), V1)
    assert (result.verdict, result.status, result.provider_status) == (verdict, state, word)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
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
def test_every_word_of_v2_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    result = read(v2_status(word), V2)
    assert (result.verdict, result.status, result.provider_status) == (verdict, state, word)


@pytest.mark.parametrize(
    ("body", "job", "code", "message"),
    [
        (v1_status("Fail"), V1, None, "the job failed"),
        (
            v1_status("Fail", base_resp={"status_code": 1027, "status_msg": "output sensitive"}),
            V1,
            "1027",
            "output sensitive",
        ),
        (v2_status("failed"), V2, "output_sensitive", "refused"),
        (v2_status("failed", error=None), V2, None, "the job failed"),
        (v2_status("expired"), V2, None, "the provider gave the job up"),
    ],
)
def test_a_failed_job_says_why(body: JSON, job: QueryParams, code: str | None, message: str) -> None:
    """In v1 where errors do, and yet it is the answer about the job; "success" of the question is no reason."""
    assert MinimaxVideo().read_error(answer(body)) is None
    failed = read(body, job)
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, code, message)


def test_the_video_of_v2_is_in_the_answer() -> None:
    """With what was counted."""
    done = read(v2_status("succeeded", usage={"total_tokens": 7}), V2)
    assert done.result == VideoResult(videos=(Video(url=VIDEO),), usage={"total_tokens": 7})
    to_json(done.result)
    contents: tuple[JSON, ...] = (None, {}, {"url": ""}, [])
    for content in contents:
        assert read(v2_status("succeeded", content=content), V2).verdict is Verdict.INCOMPLETE
    assert read(v1_status("Success", file_id=""), V1).verdict is Verdict.INCOMPLETE


async def queried(*replies: Raw, capture: CaptureSettings | None = None) -> tuple[QueryResult, list[str]]:
    """Return what a query of v1 with these answers comes to, and what was asked."""
    async with ScriptedServer(list(replies)) as server:
        settings = VideoSettings(base_url=server.url, capture=capture, allow_private=True)
        handler = MinimaxVideo(ApiKey("the-key"), settings=settings)
        await handler.open()
        try:
            return await handler.query(V1, Claim().query), [each.target for each in server.requests]
        finally:
            await handler.close()
            assert {each.headers["authorization"] for each in server.requests} == {"Bearer the-key"}


async def test_the_url_of_a_file_is_asked_for_with_the_credentials() -> None:
    """In v1, by the query that sees the file; it has no documented end."""
    file: JSON = {"file": {"file_id": 205258526306433, "download_url": VIDEO}, "base_resp": GOOD}
    done, asked = await queried(Raw.of(v1_status("Success")), Raw.of(file))
    assert done.result == VideoResult(videos=(Video(url=VIDEO, width=1366, height=768),))
    assert asked == ["/v1/query/video_generation?task_id=m1", "/v1/files/retrieve?file_id=205258526306433"]
    sizes: dict[str, JSON] = {"video_width": 0, "video_height": None}
    done, _ = await queried(Raw.of(v1_status("Success", **sizes)), Raw.of(file))
    assert done.result == VideoResult(videos=(Video(url=VIDEO),))


@pytest.mark.parametrize(
    ("file", "http_status", "verdict"),
    [
        ({"file": {}, "base_resp": GOOD}, 200, Verdict.INCOMPLETE),
        ({"file": None}, 200, Verdict.INCOMPLETE),
        ({"base_resp": {"status_code": 0}}, 404, Verdict.NOT_FOUND),
        (v1_error(1002), 200, None),
        (v1_error(1999), 200, None),
        ({}, 500, None),
    ],
)
async def test_a_file_may_not_be_there(file: JSON, http_status: int, verdict: Verdict | None) -> None:
    """It is asked for again, or the end has a name."""
    replies = (Raw.of(v1_status("Success")), Raw.of(file, status=http_status))
    if verdict is None:
        with pytest.raises(QueryFailed) as caught:
            await queried(*replies)
        assert caught.value.rate_limited is (file == v1_error(1002))
    else:
        assert (await queried(*replies))[0].verdict is verdict


@pytest.mark.parametrize(
    ("body", "http_status", "error", "code"),
    [
        (v1_error(1002), 200, SubmitDeferred, "1002"),
        (v1_error(1004), 200, SubmitDeferred, "1004"),
        (v1_error(1008), 200, SubmitDeferred, "1008"),
        (v1_error(2038), 200, SubmitDeferred, "2038"),
        (v1_error(2049), 200, SubmitDeferred, "2049"),
        (v1_error(1026), 200, SubmitRejected, "1026"),
        (v1_error(1027), 200, SubmitRejected, "1027"),
        (v1_error(2013), 200, SubmitRejected, "2013"),
        (v2_error("rate_limit_error"), 429, SubmitDeferred, "rate_limit_error"),
        (v2_error("authentication_error"), 401, SubmitDeferred, "authentication_error"),
        (v2_error("invalid_request_error"), 400, SubmitRejected, "invalid_request_error"),
        (v2_error("invalid_request_error"), 200, SubmitRejected, "invalid_request_error"),
        (v2_error("server_error"), 500, OutcomeUnknown, "server_error"),
    ],
)
async def test_errors_are_judged(body: JSON, http_status: int, error: type[HandlerError], code: str) -> None:
    """Of both versions; a service that is in error proves nothing."""
    async with ScriptedServer([Raw.of(body, status=http_status)]) as server:
        handler = MinimaxVideo(ApiKey("k"), settings=VideoSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(error) as caught:
            await handler.submit(WAVES, Claim().submit)
        await handler.close()
    assert caught.value.code == code


# What is sent.


@pytest.mark.parametrize(
    ("request_", "path", "expected"),
    [
        (
            VideoRequest(prompt="waves", duration=SIX, resolution="768p", watermark=False),
            "/v1/video_generation",
            {
                "model": "MiniMax-Hailuo-02",
                "prompt": "waves",
                "duration": 6,
                "resolution": "768P",
                "aigc_watermark": False,
            },
        ),
        (
            VideoRequest(first_frame=IMAGE, last_frame=LAST),
            "/v1/video_generation",
            {"model": "MiniMax-Hailuo-02", "first_frame_image": IMAGE, "last_frame_image": LAST},
        ),
        (
            VideoRequest(prompt="waves", reference_images=(IMAGE,), model="S2V-01"),
            "/v1/video_generation",
            {
                "model": "S2V-01",
                "prompt": "waves",
                "subject_reference": [{"type": "character", "image": [IMAGE]}],
            },
        ),
        (
            VideoRequest(prompt="waves", options={"prompt_optimizer": False, "model": "x", "prompt": "x"}),
            "/v1/video_generation",
            {"prompt_optimizer": False, "model": "MiniMax-Hailuo-02", "prompt": "waves"},
        ),
        (
            evolve(WAVES_V2, duration=timedelta(seconds=15), resolution="2k", options={"content": []}),
            "/v2/video_generation",
            {
                "model": "MiniMax-H3",
                "content": [{"type": "text", "text": "waves"}],
                "duration": 15,
                "resolution": "2K",
                "ratio": "16:9",
            },
        ),
        (
            VideoRequest(prompt="waves", first_frame=IMAGE, last_frame=LAST, model="MiniMax-H3"),
            "/v2/video_generation",
            {
                "model": "MiniMax-H3",
                "content": [
                    {"type": "text", "text": "waves"},
                    {"type": "image_url", "image_url": {"url": IMAGE}, "role": "first_frame"},
                    {"type": "image_url", "image_url": {"url": LAST}, "role": "last_frame"},
                ],
            },
        ),
        (
            VideoRequest(
                prompt="waves",
                reference_images=(IMAGE,),
                reference_videos=(VIDEO,),
                audio_url=SOUND,
                model="MiniMax-H3",
            ),
            "/v2/video_generation",
            {
                "model": "MiniMax-H3",
                "content": [
                    {"type": "text", "text": "waves"},
                    {"type": "image_url", "image_url": {"url": IMAGE}, "role": "reference_image"},
                    {"type": "video_url", "video_url": {"url": VIDEO}, "role": "reference_video"},
                    {"type": "audio_url", "audio_url": {"url": SOUND}, "role": "reference_audio"},
                ],
            },
        ),
        (
            VideoRequest(prompt="snow", source_video=VIDEO, model="minimax-h3-max"),
            "/v2/video_generation",
            {
                "model": "minimax-h3-max",
                "content": [
                    {"type": "text", "text": "snow"},
                    {"type": "video_url", "video_url": {"url": VIDEO}, "role": "base_video"},
                ],
            },
        ),
    ],
)
def test_the_model_says_which_version_is_spoken(request_: VideoRequest, path: str, expected: JSON) -> None:
    """With what was asked for; options go beneath what the handler sets."""
    handler = MinimaxVideo(ApiKey("k"))
    handler.validate(request_)
    sent = handler.build_submit(request_, context())
    assert (sent.method, sent.url, sent.json) == ("POST", path, expected)


def test_the_settings_may_name_the_model() -> None:
    """And so the version."""
    handler = MinimaxVideo(ApiKey("k"), settings=VideoSettings(model="MiniMax-H3"))
    assert handler.build_submit(evolve(WAVES_V2, model=None), context()).url == "/v2/video_generation"


def test_the_version_of_a_job_is_stored() -> None:
    """So that it is asked about, and cancelled, where it is."""
    handler = MinimaxVideo()
    accepted = answer({"task_id": "m1", "base_resp": GOOD})
    assert handler.create_query_params(accepted, WAVES) == V1
    assert handler.create_query_params(accepted, WAVES_V2) == V2
    first = handler.build_query(V1, Claim().query)
    assert (first.url, first.query) == ("/v1/query/video_generation", {"task_id": "m1"})
    assert handler.build_query(V2, Claim().query).url == "/v2/query/video_generation/m1"
    cancel = handler.build_cancel(V2, Claim().cancel)
    assert (cancel.method, cancel.url) == ("DELETE", "/v2/video_generation/m1")
    with pytest.raises(InvalidParams, match="'v3'"):
        handler.build_query(V1.evolve(api="v3"), Claim().query)
    with pytest.raises(UnreadableAnswer, match="task_id"):
        handler.create_query_params(answer({"base_resp": GOOD}), WAVES)


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (evolve(WAVES, duration=timedelta(seconds=5)), "6 or 10"),
        (evolve(WAVES, duration=timedelta(seconds=6.5)), "whole"),
        (evolve(WAVES, aspect_ratio="16:9"), "aspect_ratio"),
        (evolve(WAVES, audio_url=SOUND), "audio_url"),
        (evolve(WAVES, prompt="x" * 2001), "2000"),
        (evolve(WAVES, seed=1), "seed"),
        (evolve(WAVES, source_video=VIDEO), "video_to_video"),
        (evolve(WAVES, model="I2V-01"), "from text"),
        (evolve(WAVES, model="T2V-01-Director", first_frame=IMAGE), "from first_frame"),
        (evolve(WAVES, model="S2V-01", first_frame=IMAGE), "reference_images"),
        (evolve(WAVES, reference_images=(IMAGE,)), "from reference_images"),
        (evolve(WAVES_V2, duration=timedelta(seconds=3)), "4 to 15"),
        (evolve(WAVES_V2, aspect_ratio=None), "aspect_ratio"),
        (evolve(WAVES_V2, first_frame=IMAGE, reference_images=(LAST,)), "not both"),
        (evolve(WAVES_V2, first_frame=IMAGE, audio_url=SOUND), "not both"),
        (VideoRequest(first_frame=IMAGE, model="MiniMax-H3"), "prompt"),
        (VideoRequest(audio_url=SOUND, mode="audio_driven", prompt="x", model="MiniMax-H3"), "audio_driven"),
    ],
)
def test_what_minimax_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved; the versions differ."""
    with pytest.raises(InvalidParams, match=match):
        MinimaxVideo().validate(request_)


def test_what_is_not_known_of_a_model_is_left_to_minimax() -> None:
    """An unknown one has what its version has; `ratio` may be given under its own name."""
    MinimaxVideo().validate(VideoRequest(reference_images=(IMAGE,), model="video-02"))
    MinimaxVideo().validate(evolve(WAVES_V2, aspect_ratio=None, options={"ratio": "16:9"}))


# Cancel and callbacks.


async def test_v1_has_no_cancel() -> None:
    """Nothing is sent."""
    handler = MinimaxVideo(ApiKey("k"), settings=VideoSettings(base_url="http://127.0.0.1:9"))
    assert await handler.cancel(V1, Claim().cancel) is CancelOutcome.UNSUPPORTED


def test_a_callback_is_asked_for_where_it_can_be_checked() -> None:
    """With an address of our own; without one, none is asked for."""
    handler = MinimaxVideo(ApiKey("k", callback_secret="the-secret"))
    for request in REQUESTS.values():
        sent = handler.build_submit(evolve(request, options={"callback_url": "x"}), context(OUR_URL)).json
        assert isinstance(sent, dict)
        assert sent["callback_url"] == own_callback_url(OUR_URL, "task-1", "the-secret")
        assert "callback_url" not in json.dumps(handler.build_submit(request, context()).json)


async def test_a_challenge_is_echoed() -> None:
    """If it came to our own address: it is about no job, and makes MiniMax accept the address."""
    handler = MinimaxVideo(ApiKey("k", callback_secret="the-secret"))
    told = await handler.parse_callback(called("the-secret", {"challenge": 'c"é'}), None)
    assert (tuple(told.external_task_ids), told.reply_status) == ((), 200)
    assert json.loads(told.reply_body) == {"challenge": 'c"é'}
    assert told.reply_headers == {"content-type": "application/json"}
    for forged in (called("another", {"challenge": "c"}), called("the-secret", {"challenge": "c" * 1025})):
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(forged, None)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"task_id": "m1", "status": "processing"}, "m1"),
        ({"task_id": 115334141465231360, "status": "success"}, "115334141465231360"),
        ({"task": {"id": "m1", "status": "succeeded"}}, "m1"),
        ({"id": "m1"}, "m1"),
        ({"challenge": "", "task_id": "m1"}, "m1"),
        ({"challenge": 7}, None),
        ({}, None),
    ],
)
async def test_a_callback_names_its_job(body: JSON, found: str | None) -> None:
    """Wherever its id is; without one it is rejected."""
    handler = MinimaxVideo(ApiKey("k", callback_secret="the-secret"))
    if found is None:
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(called("the-secret", body), None)
    else:
        told = await handler.parse_callback(called("the-secret", body), None)
        assert tuple(told.external_task_ids) == (found,)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks MiniMax's protocol, without an encoder."""
    protocols = [MinimaxVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


def make(sandbox: SandboxServer, key: str = "sandbox-key") -> MinimaxVideo:
    """Return a handler of the sandbox, closed."""
    settings = VideoSettings(base_url=f"{sandbox.url}/minimax-video", allow_private=True)
    return MinimaxVideo(ApiKey(key), settings=settings)


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[MinimaxVideo]:
    """A handler that is open."""
    made = make(sandbox)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: MinimaxVideo, sandbox: SandboxServer, api: str) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    taken = await handler.submit(REQUESTS[api], Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, None)
    assert taken.query_params is not None
    assert taken.query_params.provider_params == {"api": api}
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("api", ["v1", "v2"])
async def test_a_video_is_made(handler: MinimaxVideo, sandbox: SandboxServer, api: str) -> None:
    """Submitted once, queried, and there is its URL, which gives the content without credentials."""
    job = await submitted(handler, sandbox, api)
    done = await handler.query(job, Claim().query)
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert "waves" in (await handler.download(video.url)).text
    assert sandbox.creating_requests("waves") == 1
    other = job.evolve(api="v1" if api == "v2" else "v2")
    assert (await handler.query(other, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_video_of_v1_is_copied(sandbox: SandboxServer, tmp_path: Path) -> None:
    """Also where its URL takes a fetch of its own."""
    made = make(sandbox)
    settings = made.settings
    assert isinstance(settings, VideoSettings)
    capture = CaptureSettings(destination=str(tmp_path))
    made = MinimaxVideo(ApiKey("sandbox-key"), settings=evolve(settings, capture=capture))
    await made.open()
    done = await made.query(await submitted(made, sandbox, "v1"), Claim().query)
    await made.close()
    assert isinstance(done.result, VideoResult)
    [video] = done.result.videos
    assert video.copy is not None
    assert "waves" in await asyncio.to_thread(Path(video.copy.location).read_text)


@pytest.mark.parametrize("api", ["v1", "v2"])
async def test_a_job_may_fail_or_hide_its_result(
    handler: MinimaxVideo, sandbox: SandboxServer, api: str
) -> None:
    """With the provider's words; without a result, with an unknown word, or not there it is no success."""
    job = await submitted(handler, sandbox, api)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    for code in ("1027", "oops"):
        sandbox.faults.add(FailingJob(code=code, message="refused"))
        failed = await handler.query(await submitted(handler, sandbox, api), Claim().query)
        assert (failed.error_code, failed.error_message) == (code, "refused")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_job_of_v2_is_canceled_or_deleted() -> None:
    """The same request does both, and either is confirmed; a job that is gone refuses."""
    protocols, slow = [MinimaxVideoProtocol()], timedelta(hours=1)
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch, delay=slow) as server:
        made = make(server)
        await made.open()
        job = await submitted(made, server, "v2")
        assert (await made.query(job, Claim().query)).verdict is Verdict.RUNNING
        assert await made.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
        assert (await made.query(job, Claim().query)).verdict is Verdict.CANCELED
        assert await made.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
        assert await made.cancel(V2, Claim().cancel) is CancelOutcome.REFUSED
        waiting = await made.query(await submitted(made, server, "v1"), Claim().query)
        assert waiting.provider_status == "Queueing"
        file = HttpRequest.get("/v1/files/retrieve", query={"file_id": "file-x"})
        refused = made.read_error(await made.ask(file, Claim().query))
        assert refused is not None
        assert refused.code == "2013"
        await made.close()


async def test_a_file_that_is_not_made_yet_is_refused() -> None:
    """By the sandbox, as by the provider."""
    slow = timedelta(hours=1)
    with SandboxServer(
        protocols=[MinimaxVideoProtocol()], recognizer=describe, filmer=sketch, delay=slow
    ) as server:
        made = make(server)
        await made.open()
        job = await submitted(made, server, "v1")
        file = HttpRequest.get("/v1/files/retrieve", query={"file_id": f"file-{job.external_task_id}"})
        refused = made.read_error(await made.ask(file, Claim().query))
        await made.close()
    assert refused is not None
    assert "no such file" in refused.message


@pytest.mark.parametrize(("api", "code"), [("v1", "1004"), ("v2", "authentication_error")])
async def test_a_wrong_key_defers(sandbox: SandboxServer, api: str, code: str) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, "wrong")
    await made.open()
    with pytest.raises(SubmitDeferred, match=code):
        await made.submit(REQUESTS[api], Claim().submit)
    await made.close()


@pytest.mark.parametrize(
    ("api", "body", "code"),
    [
        ("v1", {}, "2013"),
        ("v1", [], "2013"),
        ("v2", {"model": "MiniMax-H3"}, "bad_request_error"),
        ("v2", {"model": "MiniMax-H3", "content": [7, {"type": "image_url"}]}, "bad_request_error"),
    ],
)
async def test_the_sandbox_refuses_what_is_incomplete(
    handler: MinimaxVideo, api: str, body: JSON, code: str
) -> None:
    """In the form of each version."""
    told = await handler.ask(HttpRequest.post(f"/{api}/video_generation", json=body), Claim().query)
    found = handler.read_error(told)
    assert found is not None
    assert found.code == code
