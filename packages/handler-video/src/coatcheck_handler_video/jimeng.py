"""Jimeng: videos by Volcengine's Visual Intelligence.

Read in 2026 from ``relay/channel/task/jimeng/adaptor.go`` of QuantumNous/new-api at 0d4812e5 (requests, answers, names
of models), from copies of the provider's pages 85621 in public repositories (status words, table of error codes), and
from volcengine/volc-sdk-python (signatures); nothing was tried against the live service. Both requests are a signed
POST of JSON to one path, which the query tells apart, and a query needs the ``req_key`` of its submission. Success is
the code 10000, whatever the HTTP status says. There is no idempotency key, no look-up, no cancel and no callback. Not
documented where we read are limits of rate, how long jobs and URLs live, and what errors of the gateway look like; in
other services of the provider they are ``ResponseMetadata.Error``.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import ClassVar

from attrs import frozen

from coatcheck.errors import InvalidParams, SubmitRejected
from coatcheck.handler import CallContext, QueryContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
from coatcheck_handler_video.jimeng_signing import VolcengineAccount, sign
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    first_text,
)

__all__ = ["JimengVideo", "JimengVideoSettings", "VolcengineAccount"]

REQ_KEY = "req_key"
"""The name, in requests and among the query params, of the model."""
_SERVICE = "cv"
_SUBMIT = {"Action": "CVSync2AsyncSubmitTask", "Version": "2022-08-31"}
_QUERY = {"Action": "CVSync2AsyncGetResult", "Version": "2022-08-31"}
_SUCCESS = "10000"
_NOT_FOUND = "not_found"
_FRAMES = {5: 121, 10: 241}
"""By seconds: 24 in a second, and one more."""
_MODES: Mapping[str, AbstractSet[VideoMode]] = {
    "_t2v_": frozenset({VideoMode.TEXT}),
    "_i2v_first_tail_": frozenset({VideoMode.FIRST_LAST_FRAME}),
    "_i2v_first_": frozenset({VideoMode.FIRST_FRAME}),
}
"""By parts of the names of models; the first that is there counts."""
_REFUSED_CONTENT = ("50411", "50412", "50413", "50511", "50512")


@frozen(kw_only=True)
class JimengVideoSettings(VideoSettings):
    """Settings of `JimengVideo`."""

    region: str = "cn-north-1"
    """Part of the signature."""


class JimengVideo(VideoHandler):
    """Videos by the Jimeng models."""

    key = "video:jimeng"
    default_base_url = "https://visual.volcengineapi.com"
    default_model = "jimeng_vgfm_t2v_l20"
    facts = ProviderFacts(
        name="Jimeng, Volcengine Visual Intelligence",
        sources=(
            "QuantumNous/new-api at 0d4812e5, relay/channel/task/jimeng/adaptor.go",
            "volcengine/volc-sdk-python at 0045f01d, volcengine/auth/SignerV4.py",
            "www.volcengine.com/docs/85621, copies in public repositories",
        ),
    )
    modes = frozenset({VideoMode.TEXT, VideoMode.FIRST_FRAME, VideoMode.FIRST_LAST_FRAME})
    supports = frozenset({"duration", "aspect_ratio", "seed", "model"})
    id_paths = ("data.task_id",)
    status_paths = ("data.status",)
    # the words of the provider's pages; "not_found" is read apart, since it may mean "not yet"
    statuses = StatusMap(waiting="in_queue", running="generating", succeeded="done", failed="expired")
    error_code_paths = ("ResponseMetadata.Error.Code", "code")
    error_message_paths = ("ResponseMetadata.Error.Message", "message")
    # the table of error codes on the provider's pages
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        **dict.fromkeys(_REFUSED_CONTENT, ErrorClass.MODERATION),
        "50429": ErrorClass.RATE_LIMITED,
        "50430": ErrorClass.CONCURRENCY_LIMITED,
        "50500": ErrorClass.PROVIDER_UNAVAILABLE,
        "50501": ErrorClass.PROVIDER_UNAVAILABLE,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the default region is signed."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, JimengVideoSettings) else JimengVideoSettings()
        self._region = own.region

    def modes_of(self, model: str | None) -> AbstractSet[VideoMode]:
        """Return what this model makes videos from, where its name tells; else what the provider does."""
        return next((modes for part, modes in _MODES.items() if part in (model or "")), self.modes)

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider or the model does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        _frames(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request; options go beneath what is set here."""
        images = [each for each in (params.first_frame, params.last_frame) if each is not None]
        own: dict[str, JSON] = {
            REQ_KEY: self.model_of(params),
            "prompt": params.prompt if params.prompt.strip() else None,
            "image_urls": list(images) or None,
            "frames": _frames(params),
            "seed": params.seed,
            "aspect_ratio": params.aspect_ratio,
        }
        given = {name: each for name, each in own.items() if each is not None}
        return HttpRequest.post("/", query=_SUBMIT, json={**params.options, **given})

    def create_query_params(self, response: HttpResponse, params: VideoRequest) -> QueryParams:
        """Return the job's id, and the model, without which it is not found."""
        made = super().create_query_params(response, params)
        return QueryParams(
            external_task_id=made.external_task_id, provider_params={REQ_KEY: self.model_of(params)}
        )

    def parse_submit(
        self, response: HttpResponse, params: VideoRequest, context: PreparedContext
    ) -> SubmitResult:
        """Return the accepted job.

        Raises:
            SubmitRejected: the provider refuses the content.
        """
        code = _code(response)
        if code in _REFUSED_CONTENT:
            raise SubmitRejected(self._refusal(response), code=code)
        return super().parse_submit(response, params, context)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a POST with the job's id and its model."""
        body: dict[str, JSON] = {REQ_KEY: params.read(REQ_KEY, str), "task_id": params.external_task_id}
        return HttpRequest.post("/", query=_QUERY, json=body)

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return how the job is, by its status word; it has failed if its content is refused."""
        code = _code(response)
        if code in _REFUSED_CONTENT:
            return QueryResult.failed(code, self._refusal(response))
        word = self.status_word(response)
        if word == _NOT_FOUND:
            return QueryResult.not_found(f"the provider says {_NOT_FOUND!r} of the job", code=word)
        return super().parse_query(response, params, context)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error that an answer is: any code but that of success.

        Content that is refused is none: it ends a submission and a job alike, so each reads it by itself.
        """
        code = _code(response)
        if code in _REFUSED_CONTENT or (response.ok and code in {_SUCCESS, None}):
            return None
        return self.error_of(response)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the video; how long its URL works is not documented where we read."""
        url = first_text(response.json(), "data.video_url")
        return None if url is None else VideoResult(videos=(Video(url=url),))

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed: the provider has forgotten it."""
        message = f"the provider says {word!r} of the job: it has kept it for its time, and no longer"
        return QueryResult.failed(word, message, provider_status=word)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with a signature of the whole of it, of now."""
        account = self.account(context, VolcengineAccount)
        return sign(request, account, region=self._region, service=_SERVICE)

    def _refusal(self, response: HttpResponse) -> str:
        return (
            f"the provider refuses the content ({ErrorClass.MODERATION}): {self.error_of(response).message}"
        )


def _code(response: HttpResponse) -> str | None:
    with suppress(UnreadableAnswer):
        return first_text(response.json(), "ResponseMetadata.Error.Code", "code")
    return None


def _frames(params: VideoRequest) -> int | None:
    """Return a duration in frames, as the provider counts it."""
    if params.duration is None:
        return None
    seconds = whole_seconds(params.duration)
    if seconds not in _FRAMES:
        message = f"the provider makes videos of {' or '.join(map(str, _FRAMES))} seconds, not of {seconds}"
        raise InvalidParams(message)
    return _FRAMES[seconds]
