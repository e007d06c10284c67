"""Aliyun's DashScope (Model Studio): Wan and HappyHorse, and whatever else speaks its protocol.

Read in 2026 from dashscope/dashscope-sdk-python at c0d7a0b7 (`aigc/video_synthesis.py`, `client/base_api.py`), the
adapter of agents-flex (agents-flex-video-aliyun at 08a4f43d), vercel/ai at ed857f50 (`packages/alibaba`) and the pages
on asynchronous tasks of help.aliyun.com/model-studio. Nothing was tried against the live service. There is no
idempotency key and no callback in a request (events go through EventBridge, set in the console). A list of tasks
exists; what it could be searched by is not known, so nothing is looked up. Not documented: most codes of errors, the
HTTP status of a throttled request, and whether the word ``UNKNOWN`` can come right after a submission.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import ClassVar

from attrs import evolve, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.gates import Rate
from coatcheck.handler import CallContext, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, CancelOutcome, QueryParams
from coatcheck_handler_video.aliyun_bodies import (
    MODELS,
    check_happyhorse,
    check_wan,
    happyhorse_parts,
    is_happyhorse,
    modes_of,
    wan_parts,
)
from coatcheck_handler_video.handler import VideoHandler, VideoSettings
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
    first_object,
    first_text,
    items,
    segment,
)

__all__ = ["AliyunVideo", "AliyunVideoSettings"]

LIVE = timedelta(hours=24)
"""How long the provider knows a task, and serves its video."""
FLOOR = timedelta(seconds=15)
"""The distance between two queries of a task that the provider suggests."""
_PLACES = {
    "us": "https://dashscope-us.aliyuncs.com",
    "intl": "https://dashscope-intl.aliyuncs.com",
}
_WORKSPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_WORKSPACE_PLACES = ("cn-beijing", "ap-southeast-1", "eu-central-1")
_LATER = frozenset({ErrorClass.PROVIDER_UNAVAILABLE, ErrorClass.AUTH, ErrorClass.RATE_LIMITED})


@frozen(kw_only=True)
class AliyunVideoSettings(VideoSettings):
    """Settings of `AliyunVideo`. Key, model and region have to go together."""

    region: str | None = None
    """``us``, ``intl``, or with a `workspace` ``cn-beijing``, ``ap-southeast-1`` or ``eu-central-1``; None is the
    provider's Chinese address. `base_url` goes before it."""
    workspace: str | None = None
    """The id of a workspace: sent as ``X-DashScope-WorkSpace``, and part of the addresses of some regions."""

    def __attrs_post_init__(self) -> None:
        """Refuse what is no region and no workspace.

        Raises:
            ConfigurationError: there is no such region, or it needs a workspace, or that is no id.
        """
        super().__attrs_post_init__()
        known = (*_PLACES, *_WORKSPACE_PLACES)
        if self.region is not None and self.region not in known:
            message = f"region {self.region!r} is none of {', '.join(known)}; or give base_url instead"
            raise ConfigurationError(message)
        if self.workspace is not None and not _WORKSPACE.fullmatch(self.workspace):
            message = f"workspace {self.workspace!r} is no id of a workspace, which is part of an address"
            raise ConfigurationError(message)
        if self.region in _WORKSPACE_PLACES and self.workspace is None and self.base_url is None:
            message = f"region {self.region!r} needs the id of a workspace, which is part of its address"
            raise ConfigurationError(message)

    @property
    def place(self) -> str | None:
        """The base URL that these settings name, or None."""
        if self.base_url is not None or self.region is None:
            return self.base_url
        found = _PLACES.get(self.region)
        return found or f"https://{self.workspace}.{self.region}.maas.aliyuncs.com"


class AliyunVideo(VideoHandler):
    """Videos by Wan and HappyHorse, of Aliyun's DashScope."""

    key = "video:aliyun"
    default_base_url = "https://dashscope.aliyuncs.com"
    facts = ProviderFacts(
        name="Aliyun DashScope",
        sources=(
            "dashscope/dashscope-sdk-python at c0d7a0b7",
            "agents-flex/agents-flex at 08a4f43d, agents-flex-video-aliyun",
            "vercel/ai at ed857f50, packages/alibaba",
            "help.aliyun.com/model-studio: manage-asynchronous-tasks, async-task-api",
        ),
        query_rate=Rate(20),
        poll_floor=FLOOR,
        links_live=LIVE,
        jobs_live=LIVE,
    )
    modes = frozenset(MODELS)
    # words of the page on asynchronous tasks; UNKNOWN is a task that is not there, or not any more
    statuses = StatusMap(
        waiting="PENDING",
        running="RUNNING SUSPENDED",
        succeeded="SUCCEEDED",
        failed="FAILED UNKNOWN",
        canceled="CANCELED",
    )
    status_paths = ("output.task_status",)
    id_paths = ("output.task_id",)
    query_path = "/api/v1/tasks/{id}"
    error_code_paths = ("code",)
    error_message_paths = ("message",)
    failure_code_paths = ("output.code",)
    failure_message_paths = ("output.message",)
    # codes that begin with "Throttling" are classified by that word
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {"InvalidApiKey": ErrorClass.AUTH}

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; other settings than its own name no region and no workspace.

        Raises:
            ConfigurationError: the base URL must not see credentials.
        """
        own = settings if isinstance(settings, AliyunVideoSettings) else AliyunVideoSettings()
        if settings is own:
            settings = evolve(own, base_url=own.place)
        super().__init__(accounts, key=key, settings=settings)
        self._workspace = own.workspace

    def model_of(self, params: VideoRequest) -> str:
        """Return the model that makes this video; where nobody names one, it goes by the mode."""
        return super().model_of(params) or MODELS.get(params.resolved_mode) or MODELS[VideoMode.TEXT]

    def modes_of(self, model: str | None) -> frozenset[VideoMode]:
        """Return what a model makes videos from, as its name says."""
        return frozenset(modes_of(model or ""))

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider or the model does not have, and options that are no objects.

        Raises:
            InvalidParams: the request asks for such a thing; the message names it.
        """
        super().validate(params)
        model = self.model_of(params)
        if is_happyhorse(model):
            check_happyhorse(params, model)
        else:
            check_wan(params, model)
        self._body_of(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the request, with `input` and `parameters` as the family of the model has them."""
        body = self._body_of(params)
        headers = {"x-dashscope-async": "enable"}
        if any(text.startswith("oss://") for text in _texts(body["input"])):
            headers["x-dashscope-ossresourceresolve"] = "enable"
        is_keyframes = "kf2v" in self.model_of(params).casefold()
        service = "image2video" if is_keyframes else "video-generation"
        return HttpRequest.post(
            f"/api/v1/services/aigc/{service}/video-synthesis", json=body, headers=headers
        )

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer with a code at its top, whatever its HTTP status."""
        if response.ok and first_text(response.json(), "code") is None:
            return None
        return self.error_of(response)

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a task failed. One that is not there is none yet shortly after its submission, and lost later."""
        if word.casefold() == "unknown":
            message = f"the provider does not know the task; it forgets each after {LIVE.total_seconds() / 3600:g} h"
            return QueryResult.not_found(message, code="expired")
        return super().read_failure(response, word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos; parts that failed are warnings as long as there is a video at all."""
        body = response.json()
        videos = tuple(_videos(body, context.now + LIVE))
        failed = [each for each in items(body, "output.results") if first_text(each, "code", "message")]
        if videos:
            warnings = tuple(_told(each) for each in failed)
            return VideoResult(videos=videos, usage=first_object(body, "usage"), warnings=warnings)
        if failed:
            return QueryResult.failed(
                first_text(failed[0], "code"),
                first_text(failed[0], "message") or "every part of the task failed",
                provider_status=self.status_word(response),
            )
        return None

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return a POST; the provider takes it only while the task is pending."""
        return HttpRequest.post(f"/api/v1/tasks/{segment(params.external_task_id)}/cancel")

    def parse_cancel(
        self, response: HttpResponse, params: QueryParams, context: CancelContext
    ) -> CancelOutcome:
        """Return what the answer says: refused if it has an error that no later try would mend."""
        error = self.read_error(response)
        if error is None:
            # a task that is not there was not cancelled either
            is_lost = (self.status_word(response) or "").casefold() == "unknown"
            return CancelOutcome.REFUSED if is_lost else CancelOutcome.CONFIRMED
        is_answer = response.ok or 400 <= response.status < 500  # noqa: PLR2004 - the range is HTTP's own
        found = self.classify(error.code, error.status, error.message)
        return CancelOutcome.REFUSED if is_answer and found not in _LATER else CancelOutcome.UNKNOWN

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key, and the workspace if the settings name one."""
        signed = await super().authenticate(request, context)
        return (
            signed if self._workspace is None else signed.with_headers(x_dashscope_workspace=self._workspace)
        )

    def _body_of(self, params: VideoRequest) -> dict[str, JSON]:
        """Return the body: options first, so that they can't replace what the request says."""
        model = self.model_of(params)
        parts = happyhorse_parts(params) if is_happyhorse(model) else wan_parts(params, model)
        body = dict(params.options)
        for name, own in zip(("input", "parameters"), parts, strict=True):
            beneath = params.options.get(name) or {}
            if not isinstance(beneath, Mapping):
                message = f"options.{name} must be an object, as the provider has it, not {beneath!r}"
                raise InvalidParams(message)
            body[name] = {**beneath, **own}
        return {**body, "model": model}


def _videos(body: JSON, expires_at: datetime) -> Iterator[Video]:
    """Yield each video once: a single one, or those of the parts of a task."""
    parts = (first_text(each, "url", "video_url") for each in items(body, "output.results"))
    urls = [first_text(body, "output.video_url"), *parts]
    for url in dict.fromkeys(urls):
        if url is not None:
            yield Video(url=url, expires_at=expires_at)


def _told(part: JSON) -> str:
    words = [first_text(part, name) for name in ("code", "message")]
    return "a part of the task failed: " + ": ".join(word for word in words if word is not None)


def _texts(value: JSON) -> Iterator[str]:
    """Yield every text at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
