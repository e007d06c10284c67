"""Vidu.

Read in 2026 from platform.vidu.com (get-generation, cancel-generation, callback-signature), shengshu-ai/vidu-mcp and
QuantumNous/new-api (`relay/channel/task/vidu`), on which the bodies of submissions mainly rest; nothing was tried
against the live service. There is no idempotency key, and no job can be looked up by our reference, though `payload` is
echoed. Callbacks are signed with the account's key, but their bodies are not: see `parse_callback`. Not documented:
the state of a cancelled job, codes of errors and of failed jobs, which model belongs to which endpoint, and under which
name the body of a callback has the id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode

from coatcheck.errors import CallbackRejected, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CallContext, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    ApiKey,
    HttpRequest,
    HttpResponse,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    callback_header,
    callback_ids,
    callback_json,
    check_hmac_sha256,
    check_timestamp,
    first,
    first_text,
    header_value,
    items,
    segment,
)
from coatcheck_http.accounts import find_account

__all__ = ["ViduVideo"]

LINKS_LIVE = timedelta(hours=24)
"""How long the URLs of videos and covers work."""
_ENDPOINTS = {
    VideoMode.TEXT: "text2video",
    VideoMode.FIRST_FRAME: "img2video",
    VideoMode.FIRST_LAST_FRAME: "start-end2video",
    VideoMode.REFERENCE_IMAGES: "reference2video",
}
_MAX_PROMPT = 5000
_ALGORITHM = "hmac-sha256"
_SIGNER = "vidu"


class ViduVideo(VideoHandler):
    """Videos by Vidu."""

    key = "video:vidu"
    default_base_url = "https://api.vidu.com"
    default_model = "viduq2"
    facts = ProviderFacts(
        name="Vidu",
        sources=(
            "platform.vidu.com: get-generation, cancel-generation, callback-signature",
            "shengshu-ai/vidu-mcp",
            "QuantumNous/new-api, relay/channel/task/vidu",
        ),
        links_live=LINKS_LIVE,
    )
    modes = frozenset(_ENDPOINTS)
    supports = frozenset({"duration", "resolution", "aspect_ratio", "seed", "model"})
    # words of the page get-generation; there is none for a cancelled job
    statuses = StatusMap(
        waiting="created queueing", running="processing", succeeded="success", failed="failed"
    )
    status_paths = ("state",)
    id_paths = ("task_id",)
    query_path = "/ent/v2/tasks/{id}/creations"
    error_code_paths = ("reason", "code")
    error_message_paths = ("message",)
    failure_code_paths = ("err_code",)
    failure_message_paths = ()

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider does not have.

        Raises:
            InvalidParams: the request asks for such a thing; the message names it.
        """
        super().validate(params)
        if len(params.prompt) > _MAX_PROMPT:
            message = f"{self.key} takes a prompt of {_MAX_PROMPT} characters, not {len(params.prompt)}"
            raise InvalidParams(message)
        if params.duration is not None:
            whole_seconds(params.duration)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the request to the endpoint of the mode.

        Options go first, so that they can't replace what the request says; only `payload`, which is ours if they have
        none, is theirs.
        """
        frames = [url for url in (params.first_frame, params.last_frame) if url is not None]
        own: dict[str, JSON] = {
            "model": self.model_of(params),
            "prompt": params.prompt or None,
            "images": [*frames, *params.reference_images] or None,
            "duration": None if params.duration is None else whole_seconds(params.duration),
            "seed": params.seed,
            "aspect_ratio": params.aspect_ratio,
            "resolution": _resolution(params),
            "callback_url": context.callback_url,
        }
        given = {name: value for name, value in own.items() if value is not None}
        body = {"payload": context.task_id, **params.options, **given}
        return HttpRequest.post(f"/ent/v2/{_ENDPOINTS[params.resolved_mode]}", json=body)

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return the code of a job that failed; there are no words beside it."""
        code = first_text(response.json(), *self.failure_code_paths)
        message = "the job failed" if code is None else f"the job failed with {code}"
        return QueryResult.failed(code, message, provider_status=word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the creations."""
        body = response.json()
        videos = tuple(_videos(items(body, "creations"), context.now + LINKS_LIVE))
        credits_ = first(body, "credits")
        if not videos:
            return None
        covers = (first_text(each, "cover_url") for each in items(body, "creations"))
        return VideoResult(
            videos=videos,
            cover_url=next((url for url in covers if url is not None), None),
            usage={} if credits_ is None else {"credits": credits_},
        )

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return a POST with the id in path and body; the provider refuses it once the job is scheduled."""
        job_id = params.external_task_id
        return HttpRequest.post(f"/ent/v2/tasks/{segment(job_id)}/cancel", json={"id": job_id})

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key as a ``Token``."""
        return request.with_headers(authorization=f"Token {header_value(self.account(context).api_key)}")

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about, if its headers are signed with the account's key.

        The signature covers method, path, query, date and some headers, and not the body. So whoever has seen an
        authentic callback can send another body with its headers, until the date is too old. Nothing but an id is taken
        from the body, therefore, and all that a wrong one does is that a job is asked about earlier than it would be.

        Raises:
            CallbackRejected: it is not, or it is old, or makes no sense.
        """
        account = find_account(self.key, self._accounts, account_id)
        if not isinstance(account, ApiKey):
            message = (
                f"{self.key}: account {account_id or 'default'!r} has no key, so no callback can be authentic"
            )
            raise CallbackRejected(message)
        algorithm = request.headers.get("x-hmac-algorithm", _ALGORITHM)
        if algorithm.strip().lower() != _ALGORITHM:
            message = f"the callback is signed with {algorithm[:40]!r}, not {_ALGORITHM}"
            raise CallbackRejected(message)
        signature = callback_header(request, "x-hmac-signature")
        check_hmac_sha256(_signed(request), signature, account.api_key.reveal(), encoding="base64")
        check_timestamp(_seconds_of(callback_header(request, "date")))
        return Callback(external_task_ids=callback_ids(callback_json(request), "task_id", "id"))


def _signed(request: CallbackRequest) -> bytes:
    """Return what the signature of a callback is of.

    Raises:
        CallbackRejected: a header that is part of it is missing.
    """
    names = [each.strip() for each in callback_header(request, "x-hmac-signed-headers").split(";")]
    lines = [
        request.method.upper(),
        request.path,
        urlencode(request.query),
        _SIGNER,
        callback_header(request, "date"),
        *(f"{name}:{callback_header(request, name)}" for name in names if name),
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def _seconds_of(date: str) -> str:
    """Return a date of HTTP in Unix seconds.

    Raises:
        CallbackRejected: it is none.
    """
    try:
        told: datetime = parsedate_to_datetime(date)
        return f"{(told if told.tzinfo is not None else told.replace(tzinfo=UTC)).timestamp():.0f}"
    except (ValueError, OverflowError) as error:
        message = f"the callback's date {date[:40]!r} is no date of HTTP"
        raise CallbackRejected(message) from error


def _videos(creations: Sequence[JSON], expires_at: datetime) -> Iterator[Video]:
    for each in creations:
        url = first_text(each, "url")
        if url is not None:
            yield Video(url=url, expires_at=expires_at)


def _resolution(params: VideoRequest) -> str | None:
    """Return the resolution as the provider writes it: ``720P`` is its ``720p``."""
    told = params.resolution
    return told.lower() if told is not None and re.fullmatch(r"\d+[pP]", told) else told
