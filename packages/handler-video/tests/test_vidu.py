import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from coatcheck.errors import CallbackRejected, HandlerError, InvalidParams, SubmitDeferred, SubmitRejected
from coatcheck.handler import CallbackRequest, Capability
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Callbacks, Cancelling, HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_video import ApiKey, Video, VideoMode, VideoRequest, VideoResult, VideoSettings
from coatcheck_handler_video.vidu import ViduVideo
from coatcheck_http import HttpRequest, HttpResponse, HttpSettings, OutcomeUnknown, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe, sketch
from coatcheck_sandbox.providers.vidu_video import ViduVideoProtocol

MIB = 1024 * 1024
OK = 200
JOB = QueryParams(external_task_id="t1")
KEY = "vidu-key-of-one"
CALLBACK = "https://app.example.com/callbacks/vidu"
IMAGE = "https://files.example.com/a.png"
OTHER = "https://files.example.com/b.png"
CLIP = "https://files.example.com/a.mp4"
VIDEO = "https://x.example.com/v.mp4?signature=s"
FIVE = timedelta(seconds=5)


def error(message: str, reason: str = "Internal", code: int = 500) -> JSON:
    """Return the body of an error."""
    return {"code": code, "reason": reason, "message": message, "metadata": {"trace_id": "x"}}


def status(word: str, **more: JSON) -> dict[str, JSON]:
    """Return the answer to a query of a job in this state."""
    body: dict[str, JSON] = {"id": "t1", "state": word, "err_code": "", "credits": 4, "creations": []}
    if word == "success":
        body["creations"] = [{"id": "c1", "url": VIDEO, "cover_url": IMAGE}]
    if word == "failed":
        body["err_code"] = "CreationPolicyViolation"
    return {**body, **more}


def called_back(
    *,
    key: str = KEY,
    method: str = "POST",
    query: Mapping[str, str] | None = None,
    date: str | None = None,
    body: JSON = None,
    **changes: str | None,
) -> CallbackRequest:
    """Return a callback, signed as the provider says; `changes` are made to its headers afterwards."""
    when = format_datetime(datetime.now(UTC), usegmt=True) if date is None else date
    encoded = "&".join(f"{name}={value}" for name, value in (query or {}).items())
    text = f"{method}\n/callbacks/vidu\n{encoded}\nvidu\n{when}\nDate:{when}\nx-request-nonce:n1\n"
    signature = base64.b64encode(hmac.digest(key.encode(), text.encode(), "sha256")).decode()
    headers: dict[str, str | None] = {
        "date": when,
        "x-request-nonce": "n1",
        "x-hmac-signature": signature,
        "x-hmac-algorithm": "hmac-sha256",
        "x-hmac-access-key": "vidu",
        "x-hmac-signed-headers": "Date;x-request-nonce",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return CallbackRequest(
        method=method,
        path="/callbacks/vidu",
        headers={name: value for name, value in headers.items() if value is not None},
        query=query or {},
        body=json.dumps(status("success") if body is None else body).encode(),
    )


def vidu_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.vidu:ViduVideo",
        key="video:vidu",
        params=lambda url: VideoRequest(
            prompt="a coat", first_frame=f"{url}/files/a.png", options={"meta": {"a": 1}}
        ),
        settings=lambda url: VideoSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ApiKey(KEY), "other": ApiKey("vidu-key-of-another")},
        script=Script(
            job="t1",
            accepted=KitReply.of({"task_id": "t1", "state": "created", "credits": 4}),
            status=status,
            words={
                "created": Means.WAITING,
                "queueing": Means.WAITING,
                "processing": Means.RUNNING,
                "success": Means.SUCCEEDED,
                "failed": Means.FAILED,
            },
            rejected=KitReply.of(error("no such ratio", "BadRequest", 400), status=400),
            rate_limited=KitReply.of(error("slow down", "TooManyRequests", 429), status=429),
            not_found=KitReply.of(error("no such task", "NotFound", 404), status=404),
            error=error,
            done_without_result=KitReply.of(status("success", creations=[])),
            cancel=Cancelling(
                confirmed=KitReply.of({}),
                refused=KitReply.of(
                    error("task state is scheduled, can not cancel", "BadRequest", 400), status=400
                ),
            ),
            callbacks=Callbacks(authentic=called_back(), forged=called_back(key="another key")),
        ),
        creating=lambda method, path: (method, path) == ("POST", "/ent/v2/img2video"),
        answer_limit_bytes=4 * MIB,
    )


class TestViduVideo(HandlerConformance):
    """The handler of Vidu keeps every promise."""

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
        """The provider as its documentation describes it."""
        return vidu_spec()


# What is sent.


def build(request: VideoRequest, callback_url: str | None = None) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = ViduVideo(ApiKey(KEY))
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("fields_", "path", "body"),
    [
        (
            {
                "prompt": "a coat",
                "duration": FIVE,
                "resolution": "720P",
                "aspect_ratio": "9:16",
                "seed": 0,
                "model": "viduq3-pro",
            },
            "text2video",
            {
                "model": "viduq3-pro",
                "prompt": "a coat",
                "duration": 5,
                "resolution": "720p",
                "aspect_ratio": "9:16",
                "seed": 0,
            },
        ),
        (
            {"first_frame": IMAGE, "resolution": "Best"},
            "img2video",
            {"model": "viduq2", "images": [IMAGE], "resolution": "Best"},
        ),
        (
            {"first_frame": IMAGE, "last_frame": OTHER},
            "start-end2video",
            {"model": "viduq2", "images": [IMAGE, OTHER]},
        ),
        (
            {"prompt": "both", "reference_images": [IMAGE, OTHER]},
            "reference2video",
            {"model": "viduq2", "prompt": "both", "images": [IMAGE, OTHER]},
        ),
    ],
)
def test_each_mode_has_its_endpoint(fields_: dict[str, Any], path: str, body: dict[str, JSON]) -> None:
    """Every choice goes under the provider's name, and the task's id as what is echoed."""
    sent = build(VideoRequest(**fields_))
    assert (sent.method, sent.url) == ("POST", f"/ent/v2/{path}")
    assert sent.json == {"payload": "task-1", **body}


def test_options_go_beneath_what_the_request_says() -> None:
    """Only `payload` is theirs if they have one."""
    options: dict[str, JSON] = {
        "model": "another",
        "images": [OTHER],
        "seed": 1,
        "callback_url": "https://elsewhere.example.com",
        "payload": "mine",
        "off_peak": True,
    }
    sent = build(VideoRequest(first_frame=IMAGE, seed=2, options=options), CALLBACK)
    assert sent.json == {
        "model": "viduq2",
        "images": [IMAGE],
        "seed": 2,
        "callback_url": CALLBACK,
        "payload": "mine",
        "off_peak": True,
    }


@pytest.mark.parametrize(
    ("fields_", "told"),
    [
        ({"prompt": "x" * 5001}, "5000 characters, not 5001"),
        ({"duration": timedelta(seconds=2.5)}, "whole seconds"),
        ({"source_video": CLIP}, "makes no video from video_to_video"),
        ({"reference_videos": [CLIP]}, "makes no video from omni_reference"),
        ({"audio_url": CLIP, "mode": VideoMode.AUDIO_DRIVEN}, "makes no video from audio_driven"),
        ({"audio_url": CLIP}, "audio_url"),
        ({"negative_prompt": "a hat"}, "negative_prompt"),
        ({"watermark": False}, "watermark"),
        ({"width": 1280, "height": 720}, "size"),
    ],
)
def test_what_the_provider_does_not_have_is_refused(fields_: dict[str, Any], told: str) -> None:
    """Before anything is written, and with the name of what is wrong."""
    request = VideoRequest(**{"prompt": "a coat", **fields_})
    with pytest.raises(InvalidParams, match=told):
        ViduVideo().validate(request)


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    response = HttpResponse(status=OK, body=json.dumps(body).encode())
    return ViduVideo().parse_query(response, JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("created", Verdict.RUNNING, Status.SUBMITTED),
        ("queueing", Verdict.RUNNING, Status.SUBMITTED),
        ("processing", Verdict.RUNNING, Status.RUNNING),
        ("success", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("canceled", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read(status(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


@pytest.mark.parametrize(
    ("told", "code", "message"),
    [
        ("CreationPolicyViolation", "CreationPolicyViolation", "the job failed with CreationPolicyViolation"),
        ("", None, "the job failed"),
        (None, None, "the job failed"),
    ],
)
def test_a_failed_job_has_a_code(told: JSON, code: str | None, message: str) -> None:
    """If it has one; there are no words beside it."""
    failed = read(status("failed", err_code=told))
    assert (failed.verdict, failed.error_code, failed.error_message) == (Verdict.FAILED, code, message)


def test_videos_are_read() -> None:
    """Their URLs work for a day."""
    creations: JSON = [
        {"id": "c1", "url": VIDEO, "cover_url": ""},
        {"id": "c2", "url": OTHER, "cover_url": IMAGE, "watermarked_url": CLIP},
        {"id": "c3", "url": None},
    ]
    found = read(status("success", creations=creations)).result
    until = Claim().now + timedelta(hours=24)
    assert found == VideoResult(
        videos=(Video(url=VIDEO, expires_at=until), Video(url=OTHER, expires_at=until)),
        cover_url=IMAGE,
        usage={"credits": 4},
    )
    to_json(found)


def test_a_bare_creation_is_one_too() -> None:
    """What is beside the URL may be missing."""
    found = read({"state": "success", "creations": [{"url": VIDEO}]}).result
    assert isinstance(found, VideoResult)
    assert (found.cover_url, found.usage) == (None, {})


@pytest.mark.parametrize("creations", [None, [], [{}], [{"url": ""}], "x", ["x"]])
def test_done_without_a_url_is_incomplete(creations: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    assert read(status("success", creations=creations)).verdict is Verdict.INCOMPLETE


# Errors and cancels, on raw replies.


@pytest.mark.parametrize(
    ("http_status", "body", "expected", "code"),
    [
        (400, error("bad ratio", "BadRequest", 400), SubmitRejected, "BadRequest"),
        (400, {"code": 3, "message": "bad ratio"}, SubmitRejected, "3"),
        (401, error("no key", "Unauthorized", 401), SubmitDeferred, "Unauthorized"),
        (429, error("slow down", "TooManyRequests", 429), SubmitDeferred, "TooManyRequests"),
        (500, error("oh"), OutcomeUnknown, "Internal"),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown, "provider_unavailable"),
        (200, {"state": "created"}, HandlerError, "unreadable_answer"),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError], code: str
) -> None:
    """A 5xx proves nothing; what an operator can mend, or time does, defers; what only the caller can rejects."""
    async with ScriptedServer([Reply.of(body, status=http_status)]) as server:
        handler = ViduVideo(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(expected) as caught:
            await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
        await handler.close()
    assert caught.value.code == code
    [sent] = server.requests
    assert (sent.target, sent.headers["authorization"]) == ("/ent/v2/text2video", "Token the-key")


async def test_a_cancel_names_the_job_twice() -> None:
    """In its path, and in its body."""
    async with ScriptedServer([Reply.of({})]) as server:
        handler = ViduVideo(ApiKey("the-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        job = QueryParams(external_task_id="a/b")
        assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
        await handler.close()
    [sent] = server.requests
    assert (sent.method, sent.target) == ("POST", "/ent/v2/tasks/a%2Fb/cancel")
    assert json.loads(sent.body) == {"id": "a/b"}
    assert Capability.CANCEL in handler.capabilities


# Callbacks.


@pytest.mark.parametrize(
    "signed",
    [
        {},
        {"method": "PUT"},
        {"query": {"app": "one"}},
        {"x_hmac_algorithm": None},
        {"x_hmac_algorithm": "HMAC-SHA256"},
        {"body": {"task_id": "t1", "id": "c1"}},
    ],
)
async def test_a_signed_callback_nudges_the_job_that_it_names(signed: dict[str, Any]) -> None:
    """Signed with the account's key, over the request line, the date and the headers that are named."""
    called = await ViduVideo(ApiKey(KEY)).parse_callback(called_back(**signed), None)
    assert called.external_task_ids == ("t1",)


LONG_AGO = format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)


@pytest.mark.parametrize(
    ("signed", "changed", "told"),
    [
        ({"key": "another"}, {}, "not right"),
        ({}, {"path": "/callbacks/other"}, "not right"),
        ({}, {"method": "GET"}, "not right"),
        ({}, {"query": {"app": "two"}}, "not right"),
        ({"x_request_nonce": "n2"}, {}, "not right"),
        ({"x_hmac_signed_headers": "Date"}, {}, "not right"),
        ({"x_hmac_signature": "?"}, {}, "no base64"),
        ({"x_hmac_signature": None}, {}, "no x-hmac-signature"),
        ({"x_hmac_signed_headers": None}, {}, "no x-hmac-signed-headers"),
        ({"x_request_nonce": None}, {}, "no x-request-nonce"),
        ({"x_hmac_algorithm": "hmac-sha1"}, {}, "hmac-sha1"),
        ({"date": LONG_AGO}, {}, "replay"),
        ({"date": "Wed, 01 Jan 2020 00:00:00"}, {}, "replay"),
        ({"date": "2020-01-01"}, {}, "no date of HTTP"),
        ({"date": "Sat, 01 Jan 1938 00:00:00 GMT"}, {}, "no number of Unix seconds"),
        ({"body": {"state": "success"}}, {}, "names no job"),
    ],
)
async def test_any_other_callback_is_rejected(
    signed: dict[str, Any], changed: dict[str, Any], told: str
) -> None:
    """What is changed, is not signed, is old or names no job."""
    request = evolve(called_back(**signed), **changed)
    with pytest.raises(CallbackRejected, match=told):
        await ViduVideo(ApiKey(KEY)).parse_callback(request, None)


async def test_another_body_under_a_good_signature_is_a_nudge_and_no_more() -> None:
    """The signature does not cover the body, so nothing but an id is taken from it."""
    replayed = evolve(called_back(), body=json.dumps({"task_id": "t2", "state": "failed"}).encode())
    called = await ViduVideo(ApiKey(KEY)).parse_callback(replayed, None)
    assert called.external_task_ids == ("t2",)


async def test_the_callback_of_one_account_is_not_that_of_another() -> None:
    """Each signs with its own key; what holds no key signs nothing."""
    handler = ViduVideo({"default": object(), "one": ApiKey(KEY), "two": ApiKey("another")})
    assert (await handler.parse_callback(called_back(), "one")).external_task_ids == ("t1",)
    with pytest.raises(CallbackRejected):
        await handler.parse_callback(called_back(), "two")
    with pytest.raises(CallbackRejected, match="no key"):
        await handler.parse_callback(called_back(), None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks Vidu's protocol, without an encoder."""
    protocols = [ViduVideoProtocol()]
    with SandboxServer(protocols=protocols, recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[ViduVideo]:
    """A handler that is open."""
    settings = HttpSettings(base_url=f"{sandbox.url}/vidu-video", allow_private=True)
    made = ViduVideo(ApiKey("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: ViduVideo, sandbox: SandboxServer, **changes: Any) -> QueryParams:
    """Submit a request, and return what its queries need."""
    taken = await handler.submit(VideoRequest(**{"prompt": "a coat", **changes}), Claim().submit)
    assert taken.status is Status.SUBMITTED
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize(
    "changes",
    [
        {"resolution": "360p", "duration": FIVE},
        {"first_frame": IMAGE},
        {"first_frame": IMAGE, "last_frame": OTHER},
        {"reference_images": [IMAGE, OTHER], "options": {"payload": None}},
    ],
)
async def test_a_video_is_made(handler: ViduVideo, sandbox: SandboxServer, changes: dict[str, Any]) -> None:
    """Submitted once, queried, and there is its URL, which needs no key."""
    found = await handler.query(await submitted(handler, sandbox, **changes), Claim().query)
    assert isinstance(found.result, VideoResult)
    [video] = found.result.videos
    assert found.result.cover_url == f"{video.url}?cover"
    assert b"a coat" in (await handler.download(video.url)).content
    assert sandbox.creating_requests("a coat") == 1


async def test_a_job_may_fail_or_hide_its_video(handler: ViduVideo, sandbox: SandboxServer) -> None:
    """With the provider's code."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="paused"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="CreationPolicyViolation", message="withheld"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert failed.error_code == "CreationPolicyViolation"
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_job_is_cancelled_until_it_has_ended(handler: ViduVideo, sandbox: SandboxServer) -> None:
    """Confirmed, and refused where there is nothing to cancel any more."""
    sandbox.jobs.delay = timedelta(hours=1)
    job = await submitted(handler, sandbox)
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(job, Claim().query)).error_code == "Canceled"
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.REFUSED


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = ViduVideo(ApiKey("wrong"), settings=HttpSettings(base_url=f"{sandbox.url}/vidu-video"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="a coat"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("text2video", {"prompt": "x"}),
        ("text2video", {"model": "m", "prompt": "x", "images": [IMAGE]}),
        ("img2video", {"model": "m", "prompt": "x"}),
        ("start-end2video", {"model": "m", "images": [IMAGE]}),
        ("reference2video", {"model": "m", "images": "x"}),
        ("tasks/t1/cancel", {"id": "t2"}),
    ],
)
async def test_the_sandbox_refuses_what_is_incomplete(handler: ViduVideo, path: str, body: JSON) -> None:
    """In the provider's envelope."""
    told = await handler.ask(HttpRequest.post(f"/ent/v2/{path}", json=body), Claim().query)
    refusal = handler.read_error(told)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "BadRequest")
