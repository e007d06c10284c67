import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
from coatcheck_handler_video import CaptureSettings, Video, VideoMode, VideoRequest, VideoResult
from coatcheck_handler_video.fal import FalAccount, FalVideo, FalVideoSettings
from coatcheck_handler_video.fal_results import read_videos
from coatcheck_handler_video.fal_webhooks import WebhookKeys, read_key, read_keys
from coatcheck_http import HttpRequest, HttpResponse, OutcomeUnknown, PreparedContext
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, SandboxServer, StatusWord, describe
from coatcheck_sandbox.filming import sketch
from coatcheck_sandbox.providers.fal_video import FalVideoProtocol

MIB = 1024 * 1024
OK = 200
ID = "024ca5b1-45d3-4afd-883e-ad3abe2a1c4d"
APP = "/fal-ai/hunyuan-video"
VIDEO = "https://files.example.com/a.mp4"
SECOND = "https://files.example.com/b"
IMAGE = "https://files.example.com/a.png"
LAST = "https://files.example.com/z.png"
CALLBACK = "https://app.example.com/callbacks/video:fal?tenant=a b"
SIGNER, FORGER = (
    Ed25519PrivateKey.from_private_bytes(b"s" * 32),
    Ed25519PrivateKey.from_private_bytes(b"f" * 32),
)
ACCOUNT = FalAccount("fal-key-of-one", user_id="github|12345")


def public(key: Ed25519PrivateKey) -> str:
    """Return a public key as a key set writes it."""
    return base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).decode().rstrip("=")


def key_set(*keys: Ed25519PrivateKey) -> dict[str, JSON]:
    """Return a key set, with a key of another kind in it."""
    own: list[JSON] = [{"kty": "OKP", "crv": "Ed25519", "x": public(each)} for each in keys]
    return {"keys": [{"kty": "RSA", "n": "AQAB"}, *own]}


def places(server: str, *, app: str = APP) -> dict[str, JSON]:
    """Return the URLs that the provider gives for a request."""
    place = f"{server}{app}/requests/{ID}"
    return {"response_url": place, "status_url": f"{place}/status", "cancel_url": f"{place}/cancel"}


def job_at(server: str) -> QueryParams:
    """Return what is stored of a request that a server has taken."""
    return QueryParams(external_task_id=ID, provider_params=places(server))


JOB = job_at("https://queue.fal.run")
MADE: dict[str, JSON] = {
    "video": {
        "url": VIDEO, "content_type": "video/mp4", "file_name": "a.mp4", "file_size": 7, "width": 1280,
        "height": 720, "duration": 5.0, "fps": 24,
    },
    "seed": 42,
    "timings": {"inference": 9.5},
}  # fmt: skip


def status(word: str) -> KitReply:
    """Return the answer to a query of a request in this state."""
    return KitReply.of({"status": word, "request_id": ID}, status=OK if word == "COMPLETED" else 202)


def called_back(
    key: Ed25519PrivateKey = SIGNER, *, age_seconds: int = 0, user_id: str = "github|12345", body: bytes = b""
) -> CallbackRequest:
    """Return a callback about the request, signed with a key."""
    body = body or json.dumps({"request_id": ID, "status": "OK", "payload": MADE, "error": None}).encode()
    timestamp = str(int(time.time()) - age_seconds)
    signed = "\n".join((ID, user_id, timestamp, hashlib.sha256(body).hexdigest()))
    headers = {
        "x-fal-webhook-request-id": ID,
        "x-fal-webhook-user-id": user_id,
        "x-fal-webhook-timestamp": timestamp,
        "x-fal-webhook-signature": key.sign(signed.encode()).hex(),
    }
    return CallbackRequest(method="POST", path="/callbacks", headers=headers, body=body)


def fal_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its client describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_video.fal:FalVideo",
        key="video:fal",
        params=lambda url: VideoRequest(
            prompt="waves", first_frame=f"{url}/files/a.png", options={"loras": [{"scale": 1}]}
        ),
        settings=lambda url: FalVideoSettings(
            base_url=url,
            read_timeout=timedelta(seconds=2),
            max_answer_bytes=2 * MIB,
            callbacks=True,
            webhook_keys=(public(SIGNER),),
        ),
        accounts={"default": ACCOUNT, "other": FalAccount("fal-key-of-another")},
        script=Script(
            job=ID,
            accepted=KitReply.of(
                {"request_id": ID, "status": "IN_QUEUE", "queue_position": 0, **places("{server}")}
            ),
            status=status,
            words={"IN_QUEUE": Means.WAITING, "IN_PROGRESS": Means.RUNNING, "COMPLETED": Means.SUCCEEDED},
            rejected=KitReply.of(
                {"detail": [{"loc": ["body", "prompt"], "msg": "Field required", "type": "missing"}]},
                status=422,
            ),
            rate_limited=KitReply.of({"detail": "Too many requests"}, status=429),
            not_found=KitReply.of({"detail": "Request not found"}, status=404),
            error=lambda message: {"detail": message},
            done_without_result=KitReply.of({"status": "COMPLETED", "response_url": "{server}/empty"}),
            served={f"GET {APP}/requests/{ID}": MADE, "GET /empty": {"video": None}},
            cancel=Cancelling(
                confirmed=KitReply.of({"status": "CANCELLATION_REQUESTED"}, status=202),
                refused=KitReply.of({"status": "ALREADY_COMPLETED"}, status=400),
            ),
            callbacks=Callbacks(authentic=called_back(), forged=called_back(FORGER)),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestFalVideo(HandlerConformance):
    """The handler of fal keeps every promise."""

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
        """The provider as its client describes it."""
        return fal_spec()


# On samples of answers, as documented.


def read(body: JSON, http_status: int = OK) -> QueryResult:
    """Return what a query answered with `body` comes to, before the result is asked for."""
    response = HttpResponse(status=http_status, body=json.dumps(body).encode())
    return FalVideo().parse_query(response, JOB, Claim().query)


def build(
    request: VideoRequest, callback_url: str | None = None, settings: FalVideoSettings | None = None
) -> HttpRequest:
    """Return the creating request."""
    context = evolve(Claim().submit, callback_url=callback_url)
    handler = FalVideo(ACCOUNT, settings=settings)
    handler.validate(request)
    return handler.build_submit(request, PreparedContext.of(context))


@pytest.mark.parametrize(
    ("word", "verdict", "task_status"),
    [
        ("IN_QUEUE", Verdict.RUNNING, Status.SUBMITTED),
        ("IN_PROGRESS", Verdict.RUNNING, Status.RUNNING),
        ("COMPLETED", Verdict.SUCCEEDED, Status.RUNNING),
        ("PAUSED", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, task_status: Status) -> None:
    """A word that is not documented is unlisted."""
    found = read({"status": word}, 202)
    assert (found.verdict, found.status, found.provider_status) == (verdict, task_status, word)


@pytest.mark.parametrize(
    ("error", "message"), [("the frame is broken", "the frame is broken"), ({"message": "no"}, "no")]
)
def test_completed_with_an_error_is_failed(error: JSON, message: str) -> None:
    """For completed is no success; the result need not be asked for."""
    failed = read({"status": "COMPLETED", "error": error, "error_type": "image_load_error"})
    assert (failed.verdict, failed.error_code, failed.error_message) == (
        Verdict.FAILED,
        "image_load_error",
        message,
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            MADE,
            VideoResult(
                videos=(
                    Video(
                        url=VIDEO,
                        content_type="video/mp4",
                        width=1280,
                        height=720,
                        duration_seconds=5.0,
                        fps=24,
                    ),
                ),
                seed=42,
                usage={"inference": 9.5},
            ),
        ),
        (
            {"videos": [{"url": VIDEO}, {"url": SECOND, "content_type": "video/webm"}, {"url": VIDEO}]},
            VideoResult(videos=(Video(url=VIDEO), Video(url=SECOND, content_type="video/webm"))),
        ),
        (
            {"video": {"url": VIDEO, "content_type": "application/octet-stream"}, "image": {"url": IMAGE}},
            VideoResult(videos=(Video(url=VIDEO, content_type="application/octet-stream"),)),
        ),
        (
            {"output": {"file": {"url": SECOND}}},
            VideoResult(
                videos=(Video(url=SECOND),),
                warnings=("no file of the result is told to be a video; all are given",),
            ),
        ),
        ({"video": None}, None),
        ({"video": {"url": "data:video/mp4;base64,AAAA"}, "prompt": "p", "seed": 1}, None),
        ({}, None),
    ],
)
def test_the_files_of_a_result_are_found(body: JSON, expected: VideoResult | None) -> None:
    """Wherever the model puts them; content in base64 never becomes a result."""
    assert read_videos(body) == expected
    to_json(expected)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (VideoRequest(prompt="waves"), {"prompt": "waves"}),
        (
            VideoRequest(
                prompt="waves", negative_prompt="foam", duration=timedelta(seconds=5), resolution="720p",
                aspect_ratio="16:9", seed=7, first_frame=IMAGE,
            ),
            {
                "prompt": "waves", "negative_prompt": "foam", "duration": "5s", "resolution": "720p",
                "aspect_ratio": "16:9", "seed": 7, "image_url": IMAGE,
            },
        ),
        (
            VideoRequest(prompt="p", options={"prompt": "another", "loop": True}),
            {"prompt": "p", "loop": True},
        ),
    ],
)  # fmt: skip
def test_a_request_says_what_it_was_given(request_: VideoRequest, expected: dict[str, JSON]) -> None:
    """Under the usual names; the body is the input, with options beneath what the handler sets."""
    sent = build(request_)
    assert (sent.method, sent.url, dict(sent.query)) == ("POST", APP, {})
    assert sent.json == expected


@pytest.mark.parametrize(("form", "expected"), [("suffixed", "5s"), ("text", "5"), ("number", 5)])
def test_models_take_durations_in_several_forms(form: str, expected: JSON) -> None:
    """Which a setting tells, as others tell the names of inputs."""
    settings = FalVideoSettings(
        duration_form=form,  # type: ignore[arg-type] # one of its literals
        input_names={"last_frame": "end_image_url"},
        model="fal-ai/kling-video/v2/pro/image-to-video",
    )
    request = VideoRequest(first_frame=IMAGE, last_frame=LAST, duration=timedelta(seconds=5))
    sent = build(request, settings=settings)
    assert sent.url == "/fal-ai/kling-video/v2/pro/image-to-video"
    assert sent.json == {"image_url": IMAGE, "end_image_url": LAST, "duration": expected}


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (VideoRequest(prompt="x", model="hunyuan-video"), "owner/app"),
        (VideoRequest(prompt="x", model="fal-ai//x"), "owner/app"),
        (VideoRequest(prompt="x", model="fal-ai/x/.."), r"'\.\.'"),
        (VideoRequest(first_frame=IMAGE, last_frame=LAST), "no input for `last_frame`"),
        (VideoRequest(prompt="x", duration=timedelta(seconds=5.5)), "whole"),
        (VideoRequest(prompt="x", mode=VideoMode.TEXT, audio=True), "no input for `audio`"),
    ],
)
def test_what_the_model_does_not_have_is_refused(request_: VideoRequest, match: str) -> None:
    """Before it is saved."""
    with pytest.raises(InvalidParams, match=match):
        FalVideo().validate(request_)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"input_names": {"image": "image_url"}}, "'image'"),
        ({"duration_form": "minutes"}, "duration_form"),
        ({"webhook_keys": "AAAA"}, "sequence"),
        ({"webhook_keys": ("AAAA",)}, "key 1 of 1 .* 3 bytes"),
        ({"webhook_keys": ("!",)}, "key 1 of 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], match: str) -> None:
    """When they are read, rather than with the first callback."""
    with pytest.raises(ConfigurationError, match=match):
        FalVideoSettings(**settings)  # type: ignore[arg-type] # wrong on purpose


def test_an_account_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is read when it is used."""
    monkeypatch.setenv("FAL_KEY", "id:secret")
    assert FalAccount.from_env("FAL_KEY").api_key.reveal() == "id:secret"


@pytest.mark.parametrize("document", [{}, {"keys": []}, {"keys": [{"kty": "RSA"}]}, {"keys": "x"}])
def test_a_set_without_a_key_is_none(document: JSON) -> None:
    """So that it does not take the place of a good one."""
    with pytest.raises(ValueError, match="no Ed25519 key"):
        read_keys(json.dumps(document))


def test_keys_are_read_with_or_without_padding() -> None:
    """Both are seen in key sets."""
    assert (
        read_key(public(SIGNER)) == read_key(f"{public(SIGNER)}=") == SIGNER.public_key().public_bytes_raw()
    )


# Callbacks.


def taking(url: str | None = None, *, account: FalAccount = ACCOUNT) -> FalVideo:
    """Return a handler that takes callbacks, with the signer's key or with the key set at a URL."""
    keys = (public(SIGNER),) if url is None else ()
    jwks_url = url or "https://keys.example.com"
    settings = FalVideoSettings(callbacks=True, webhook_keys=keys, jwks_url=jwks_url, allow_private=True)
    return FalVideo(account, settings=settings)


def test_the_provider_is_asked_to_call_back() -> None:
    """In the query of the request, if the settings say so."""
    settings = FalVideoSettings(callbacks=True)
    request = VideoRequest(prompt="x")
    assert build(request, CALLBACK, settings).query == {"fal_webhook": CALLBACK}
    assert build(request, None, settings).query == {}
    assert build(request, CALLBACK).query == {}


async def test_a_signed_callback_names_the_request() -> None:
    """An old one is a replay; one for another user of the provider is not for us."""
    found = await taking().parse_callback(called_back(), None)
    assert found.external_task_ids == (ID,)
    wrong = {
        "right under any": called_back(FORGER),
        "replay": called_back(age_seconds=400),
        "another user": called_back(user_id="github|6"),
        "no hex": evolve(
            called_back(), headers={**called_back().headers, "x-fal-webhook-signature": "no signature"}
        ),
        "right under": evolve(
            called_back(), headers={**called_back().headers, "x-fal-webhook-signature": "00"}
        ),
        "names no job": called_back(body=b"{}"),
        "no x-fal-webhook-user-id": called_back(user_id=" "),
    }
    for match, request in wrong.items():
        with pytest.raises(CallbackRejected, match=match):
            await taking().parse_callback(request, None)


async def test_without_a_user_id_any_user_may_have_it_sent() -> None:
    """It is no more than a nudge about a request that must be ours."""
    handler = taking(account=FalAccount("fal-key"))
    found = await handler.parse_callback(called_back(user_id="github|6"), None)
    assert found.external_task_ids == (ID,)
    with pytest.raises(CallbackRejected, match="setting callbacks"):
        await FalVideo(ACCOUNT).parse_callback(called_back(), None)


async def test_the_key_set_is_kept_for_a_day() -> None:
    """And fetched again, later, for a callback that no key fits; but not for every forgery."""
    sets = [key_set(FORGER), key_set(FORGER, SIGNER)]
    fetched: list[str] = []
    now = [0.0]

    async def fetch(url: str) -> str:
        fetched.append(url)
        return json.dumps(sets[min(len(fetched), len(sets)) - 1])

    keys = WebhookKeys((), "https://keys.example.com", fetch, clock=lambda: now[0])
    await keys.check(called_back(FORGER), None)
    for _ in range(2):
        with pytest.raises(CallbackRejected, match="right under any"):
            await keys.check(called_back(), None)
    assert fetched == ["https://keys.example.com"]
    now[0] = 301.0
    await keys.check(called_back(), None)
    await keys.check(called_back(), None)
    assert len(fetched) == 2
    now[0] += 24 * 3600 - 1
    await keys.check(called_back(), None)
    assert len(fetched) == 2
    now[0] += 1
    await keys.check(called_back(), None)
    assert len(fetched) == 3


async def test_the_key_set_is_fetched_without_credentials() -> None:
    """For it is no part of the API."""
    async with ScriptedServer([Reply.of(key_set(SIGNER))]) as server:
        handler = taking(f"{server.url}/jwks.json")
        await handler.open()
        for _ in range(2):
            await handler.parse_callback(called_back(), None)
        await handler.close()
        assert len(server.requests) == 1
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("reply", [Reply.of(b"no", status=503), Reply.of(b"{"), Reply.of({"keys": []})])
async def test_without_a_key_set_no_callback_is_taken(reply: Reply) -> None:
    """The provider repeats it; what is no key set is not kept."""
    async with ScriptedServer([reply, Reply.of(key_set(SIGNER))]) as server:
        handler = taking(f"{server.url}/jwks.json")
        await handler.open()
        with pytest.raises(CallbackRejected, match="cannot be had now"):
            await handler.parse_callback(called_back(), None)
        await handler.parse_callback(called_back(), None)
        await handler.close()


# Submissions and queries, on raw replies.


def handler_at(url: str, **settings: object) -> FalVideo:
    """Return a handler that talks to this server."""
    made = FalVideoSettings(base_url=url, allow_private=True, **settings)  # type: ignore[arg-type] # as tests like
    return FalVideo(FalAccount("the-key"), settings=made)


async def submit(reply: Reply) -> SubmitResult | HandlerError:
    """Submit to a provider that answers so, and return the outcome or what was raised."""
    async with ScriptedServer([reply]) as server:
        handler = handler_at(server.url, model="fal-ai/hunyuan-video/image-to-video")
        await handler.open()
        try:
            return await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
        except HandlerError as raised:
            return raised
        finally:
            await handler.close()


@pytest.mark.parametrize(
    ("http_status", "body", "expected", "code"),
    [
        (422, {"detail": [{"msg": "no", "type": "missing"}]}, SubmitRejected, "missing"),
        (401, {"detail": "no key"}, SubmitDeferred, "auth"),
        (429, {"detail": "slow down"}, SubmitDeferred, "rate_limited"),
        (500, {"detail": "oh"}, OutcomeUnknown, "provider_unavailable"),
        (502, b"<html>Bad Gateway</html>", OutcomeUnknown, "provider_unavailable"),
    ],
)
async def test_errors_say_no_more_than_is_certain(
    http_status: int, body: JSON | bytes, expected: type[HandlerError], code: str
) -> None:
    """A 5xx proves nothing; what an operator can mend defers; what only the caller can rejects."""
    raised = await submit(Reply.of(body, status=http_status))
    assert isinstance(raised, HandlerError)
    assert (type(raised), raised.code) == (expected, code)


@pytest.mark.parametrize("given", [places("https://queue.fal.run"), {}])
async def test_the_urls_of_the_answer_are_kept(given: dict[str, JSON]) -> None:
    """Without any they are built, from the app alone: the rest of a model's path is not in them."""
    taken = await submit(Reply.of({"request_id": ID, "status": "IN_PROGRESS", **given}))
    assert isinstance(taken, SubmitResult)
    assert taken.query_params is not None
    assert (taken.status, taken.provider_status) == (Status.RUNNING, "IN_PROGRESS")
    expected = given or places("")
    assert taken.query_params == QueryParams(external_task_id=ID, provider_params=expected)
    asked = FalVideo().build_query(taken.query_params, Claim().query)
    assert (asked.url, asked.query) == (expected["status_url"], {"logs": "0"})


async def ask(*replies: Reply, **settings: object) -> QueryResult | HandlerError:
    """Query a provider that answers so, one after the other, and return the outcome or what was raised."""
    async with ScriptedServer(list(replies)) as server:
        handler = handler_at(server.url, **settings)
        await handler.open()
        try:
            return await handler.query(job_at(server.url), Claim().query)
        except HandlerError as raised:
            return raised
        finally:
            await handler.close()


DONE = Reply.of({"status": "COMPLETED"})


@pytest.mark.parametrize(
    ("http_status", "body", "headers", "verdict", "code", "says"),
    [
        (200, {"video": None}, {}, Verdict.INCOMPLETE, None, "no result"),
        (400, {"detail": "Request is still in progress"}, {}, Verdict.INCOMPLETE, None, "no result"),
        (422, {"detail": "broken", "error_type": "image_load_error"}, {}, Verdict.FAILED, "image_load_error", "broken"),
        (422, {"detail": [{"msg": "too long", "type": "x"}]}, {}, Verdict.FAILED, "x", "too long"),
        (400, {"detail": "no such voice"}, {}, Verdict.FAILED, None, "no such voice"),
        (400, {}, {}, Verdict.FAILED, None, "{}"),
        (500, {"detail": "oh"}, {"x-fal-error-type": "runner_error"}, Verdict.FAILED, "runner_error", "oh"),
        (422, {"detail": "no"}, {"x-fal-error-type": "content_policy_violation"}, Verdict.FAILED,
         "content_policy_violation", "moderation"),
        (404, {"detail": "gone"}, {}, Verdict.NOT_FOUND, None, "gone"),
    ],
)  # fmt: skip
async def test_the_result_decides(
    http_status: int, body: JSON, headers: dict[str, str], verdict: Verdict, code: str | None, says: str
) -> None:
    """An error that answers the request for it is the job's own."""
    found = await ask(DONE, Reply.of(body, status=http_status, headers=headers))
    assert isinstance(found, QueryResult)
    assert (found.verdict, found.error_code) == (verdict, code)
    assert says in (found.error_message or "")


@pytest.mark.parametrize("http_status", [401, 403, 408, 409, 429, 500, 502, 503, 302])
async def test_an_error_that_is_not_the_jobs_is_asked_again(http_status: int) -> None:
    """No job fails of a key, a limit or a gateway."""
    raised = await ask(DONE, Reply.of({"detail": "no"}, status=http_status))
    assert isinstance(raised, QueryFailed)
    assert "the result cannot be had" in str(raised)


async def test_the_result_is_asked_for_with_the_key() -> None:
    """Where the provider says that it is: by the status, or else by the answer to the submission."""
    async with ScriptedServer([DONE, Reply.of(MADE)]) as server:
        handler = handler_at(server.url)
        await handler.open()
        done = await handler.query(job_at(server.url), Claim().query)
        await handler.close()
    assert isinstance(done.result, VideoResult)
    assert done.result == read_videos(MADE)
    assert [each.target for each in server.requests] == [
        f"{APP}/requests/{ID}/status?logs=0",
        f"{APP}/requests/{ID}",
    ]
    assert {each.headers["authorization"] for each in server.requests} == {"Key the-key"}


async def test_videos_are_copied_once_the_result_is_there(tmp_path: Path) -> None:
    """A job that turns out to have failed copies nothing."""
    async with ScriptedServer([Reply.of(b"a video")]) as files:
        made: JSON = {"video": {"url": f"{files.url}/a.mp4", "content_type": "video/mp4"}}
        capture = CaptureSettings(destination=str(tmp_path))
        done = await ask(DONE, Reply.of(made), capture=capture)
        failed = await ask(DONE, Reply.of({"detail": "no"}, status=422), capture=capture)
    assert isinstance(done, QueryResult)
    assert isinstance(done.result, VideoResult)
    assert done.result.videos[0].copy is not None
    assert isinstance(failed, QueryResult)
    assert failed.verdict is Verdict.FAILED
    assert Path(done.result.videos[0].copy.location).name == "task-1.mp4"
    assert done.result.videos[0].copy.size_bytes == len(b"a video")
    assert len(files.requests) == 1


async def test_a_result_that_is_there_is_not_asked_for() -> None:
    """As a handler that derives from this one may have it in the answer to its query."""
    there = QueryResult.succeeded(VideoResult(videos=(Video(url=VIDEO),)))
    assert await FalVideo().fetch_result(there, Claim().query) == there


async def test_urls_of_another_origin_never_see_the_key() -> None:
    """The query fails, with the setting that would allow it; the cancel stays unanswered; nothing is sent."""
    async with ScriptedServer([Reply.of({})]) as foreign:
        told: dict[str, JSON] = {"status": "COMPLETED", "response_url": f"{foreign.url}/r"}
        async with ScriptedServer([Reply.of(told)]) as home:
            handler = handler_at(home.url)
            await handler.open()
            for job in (job_at(foreign.url), job_at(home.url)):
                with pytest.raises(QueryFailed, match="trusted_origins"):
                    await handler.query(job, Claim().query)
            assert await handler.cancel(job_at(foreign.url), Claim().cancel) is CancelOutcome.UNKNOWN
            await handler.close()
            assert len(home.requests) == 1
        assert not foreign.requests


@pytest.mark.parametrize(
    ("http_status", "word", "expected"),
    [
        (202, "CANCELLATION_REQUESTED", CancelOutcome.CONFIRMED),
        (400, "ALREADY_COMPLETED", CancelOutcome.REFUSED),
        (404, "NOT_FOUND", CancelOutcome.REFUSED),
        (503, "", CancelOutcome.UNKNOWN),
    ],
)
def test_a_cancel_may_come_too_late(http_status: int, word: str, expected: CancelOutcome) -> None:
    """As the status of the answer says."""
    answer = HttpResponse(status=http_status, body=json.dumps({"status": word}).encode())
    handler = FalVideo()
    assert handler.parse_cancel(answer, JOB, Claim().cancel) is expected
    assert handler.build_cancel(JOB, Claim().cancel).method == "PUT"


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks fal's protocol, without an encoder."""
    with SandboxServer(protocols=[FalVideoProtocol()], recognizer=describe, filmer=sketch) as server:
        yield server


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[FalVideo]:
    """A handler that is open."""
    settings = FalVideoSettings(base_url=f"{sandbox.url}/fal-video", allow_private=True)
    made = FalVideo(FalAccount("sandbox-key"), settings=settings)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: FalVideo, sandbox: SandboxServer, model: str = "fal-ai/veo3/fast"
) -> QueryParams:
    """Submit a request, and return what its queries need once the video is made."""
    request = VideoRequest(prompt="waves", duration=timedelta(seconds=5), seed=3, model=model)
    taken = await handler.submit(request, Claim().submit)
    assert (taken.status, taken.provider_status) == (Status.SUBMITTED, "IN_QUEUE")
    assert taken.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return taken.query_params


@pytest.mark.parametrize("model", ["fal-ai/hunyuan-video", "fal-ai/veo3/fast", "fal-ai/a/b/c"])
async def test_a_video_is_made(handler: FalVideo, sandbox: SandboxServer, model: str) -> None:
    """Submitted once, queried, fetched, and there is its URL, which gives the content without credentials."""
    job = await submitted(handler, sandbox, model)
    done = await handler.query(job, Claim().query)
    assert isinstance(done.result, VideoResult)
    assert "waves" in (await handler.download(done.result.videos[0].url)).text
    assert (done.result.seed, done.result.videos[0].content_type) == (3, "video/mp4")
    found = sandbox.jobs.get(job.external_task_id)
    assert found is not None
    assert found.order is not None
    assert found.order.seconds == 5
    assert sandbox.creating_requests("waves") == 1


async def test_a_job_may_fail(handler: FalVideo, sandbox: SandboxServer) -> None:
    """With the provider's words, in the status and in the answer to a request for the result."""
    job = await submitted(handler, sandbox)
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(FailingJob(code="image_load_error", message="the frame is broken"))
    broken = await submitted(handler, sandbox)
    failed = await handler.query(broken, Claim().query)
    assert (failed.error_code, failed.error_message) == ("image_load_error", "the frame is broken")
    told = await handler.ask(HttpRequest.get(broken.read("response_url", str)), Claim().query)
    assert (told.status, told.header("x-fal-error-type")) == (422, "image_load_error")
    sandbox.jobs.clear()
    assert (await handler.query(job, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_a_result_that_is_not_ready_is_incomplete(handler: FalVideo, sandbox: SandboxServer) -> None:
    """The status may run ahead of it."""
    sandbox.jobs.delay = timedelta(hours=1)
    job = await submitted(handler, sandbox)
    assert (await handler.query(job, Claim().query)).status is Status.SUBMITTED
    sandbox.faults.add(StatusWord(word="COMPLETED"))
    assert (await handler.query(job, Claim().query)).verdict is Verdict.INCOMPLETE


async def test_a_request_can_be_cancelled_until_it_is_completed(
    handler: FalVideo, sandbox: SandboxServer
) -> None:
    """After that the cancel is refused."""
    ended = await submitted(handler, sandbox)
    sandbox.jobs.delay = timedelta(hours=1)
    job = await submitted(handler, sandbox)
    assert await handler.cancel(job, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(job, Claim().query)).error_code == "client_cancelled"
    assert await handler.cancel(ended, Claim().cancel) is CancelOutcome.REFUSED


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = FalVideo(FalAccount("wrong"), settings=FalVideoSettings(base_url=f"{sandbox.url}/fal-video"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(VideoRequest(prompt="waves"), Claim().submit)
    await handler.close()


async def test_the_sandbox_refuses_what_it_cannot_read(handler: FalVideo) -> None:
    """In the provider's form."""
    told = await handler.ask(HttpRequest.post(APP, json={"seed": 1}), Claim().query)
    assert (told.status, told.json()) == (
        422,
        {"detail": [{"loc": ["body", "prompt"], "msg": "Field required: prompt", "type": "missing"}]},
    )
