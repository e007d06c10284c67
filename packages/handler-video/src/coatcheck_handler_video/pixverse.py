"""PixVerse: video generation from text.

Read in 2026 from docs.platform.pixverse.ai (text-to-video, video status, webhooks) and, for most codes of errors, from
public clients and from a page on PixVerse's codes at cloud.tencent.com (1823/138038). Nothing was tried against the
live service.

Each request has an `Ai-trace-id`, a UUID. A creating request with one that was used before gives the earlier video
instead of another, so the one of a submission is made of the task's idempotency key, and is the same at every attempt;
each query has a new one. For how long PixVerse remembers them is not documented, nor whether it remembers one whose
request was refused: a task that was put off would then be refused again until its deadline.

Webhooks are set up in PixVerse's console, for all jobs of an account, and are signed. What is signed holds the body as
a URL's query, and in which order and with which escape of blanks is not documented: each that makes sense is tried.
`receive_callback` gives the answer that PixVerse waits for, ``ok``.

Videos from images take an upload first, and are not made here. Not documented: cancel, how long videos are kept, and
the words of errors that a failed job has: only a number tells why it failed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar
from urllib.parse import quote, quote_plus, urlencode

from attrs import field, frozen
from attrs.converters import optional

from coatcheck.errors import CallbackRejected, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CallContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    ApiKey,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    as_secret,
    callback_header,
    callback_ids,
    callback_json,
    check_hmac_sha256,
    check_timestamp,
    first_text,
    header_value,
    lookup,
    number,
)
from coatcheck_http.accounts import find_account

__all__ = ["PixverseKey", "PixverseVideo", "trace_id_of"]

_MAX_PROMPT_CHARACTERS = 2048
_QUALITIES = ("360p", "540p", "720p", "1080p")
_FAILURES = {
    "6": "the video was deleted",
    "7": "the provider refuses the content (moderation)",
    "8": "the provider could not make the video",
}
_ESCAPES: tuple[Callable[..., str], ...] = (quote_plus, quote)


@frozen
class PixverseKey(ApiKey):
    """An account that takes webhooks, too; without them an `ApiKey` does. `callback_secret` is of no use here."""

    webhook_secret: Secret | None = field(default=None, kw_only=True, converter=optional(as_secret))
    """What PixVerse's console gives to check webhooks with."""


def trace_id_of(idempotency_key: str) -> str:
    """Return the trace id of a task's submissions: a UUID, the same at every attempt and in every version."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"coatcheck:{idempotency_key}"))


class PixverseVideo(VideoHandler):
    """Videos by PixVerse. An account is an `ApiKey`, or a `PixverseKey`."""

    key = "video:pixverse"
    default_base_url = "https://app-api.pixverse.ai"
    default_model = "v6"
    facts = ProviderFacts(
        name="PixVerse",
        sources=(
            "docs.platform.pixverse.ai, text-to-video, video status, webhooks",
            "cloud.tencent.com, document 1823/138038, codes of PixVerse",
        ),
        poll_floor=timedelta(seconds=3),
    )
    idempotency_window = timedelta(minutes=10)
    """A guess on the safe side: the provider tells that it deduplicates, and not for how long."""
    modes = frozenset({VideoMode.TEXT})
    supports = frozenset(
        {"negative_prompt", "duration", "resolution", "aspect_ratio", "seed", "watermark", "model"}
    )
    id_paths = ("Resp.video_id",)
    status_paths = ("Resp.status",)
    query_path = "/openapi/v2/video/result/{id}"
    error_code_paths = ("ErrCode",)
    error_message_paths = ("ErrMsg",)
    # docs.platform.pixverse.ai; numbers there. That 6 is deleted is from public clients
    statuses = StatusMap(running="5", succeeded="1", failed="6 7 8")
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "10004": ErrorClass.AUTH,
        "400012": ErrorClass.AUTH,
        "500020": ErrorClass.AUTH,
        **dict.fromkeys(
            ("400011", "400013", "400017", "400018", "400019", "400032", "500070"), ErrorClass.INVALID_REQUEST
        ),
        "500008": ErrorClass.NOT_FOUND_OR_EXPIRED,
        "500044": ErrorClass.CONCURRENCY_LIMITED,
        "500054": ErrorClass.MODERATION,
        "500063": ErrorClass.MODERATION,
        "500060": ErrorClass.QUOTA_OR_BILLING,
        "500090": ErrorClass.QUOTA_OR_BILLING,
        "500069": ErrorClass.PROVIDER_UNAVAILABLE,
        "500100": ErrorClass.PROVIDER_UNAVAILABLE,
        "99999": ErrorClass.PROVIDER_UNAVAILABLE,
    }

    def validate(self, params: VideoRequest) -> None:
        """Refuse what PixVerse does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._body_of(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request, the same at every attempt; options go beneath what is set here."""
        body = {**params.options, **self._body_of(params)}
        request = HttpRequest.post("/openapi/v2/video/text/generate", json=body)
        return request.with_headers(ai_trace_id=trace_id_of(context.idempotency_key))

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key, and a trace id of its own if it has none."""
        signed = request.with_headers(api_key=header_value(self.account(context).api_key))
        if any(name.lower() == "ai-trace-id" for name in signed.headers):
            return signed
        return signed.with_headers(ai_trace_id=str(uuid.uuid4()))

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer, whose `ErrCode` is not 0."""
        if response.ok and first_text(response.json(), "ErrCode") in {None, "0"}:
            return None
        return self.error_of(response)

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed, as far as its number tells."""
        return QueryResult.failed(word, _FAILURES[word], provider_status=word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the video."""
        body = response.json()
        url = first_text(body, "Resp.url")
        if url is None:
            return None
        width, height = (number(body, f"Resp.output{name}") for name in ("Width", "Height"))
        video = Video(url=url, width=int(width) if width else None, height=int(height) if height else None)
        seed = lookup(body, "Resp.seed")
        known = isinstance(seed, int) and not isinstance(seed, bool)
        return VideoResult(videos=(video,), seed=int(str(seed)) if known else None)

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Say which job a webhook is about that PixVerse has signed, with the reply that it waits for.

        Raises:
            CallbackRejected: its signature is not right, it is old, or it names no job; or the account has no
                `webhook_secret`.
        """
        account = find_account(self.key, self._accounts, account_id)
        secret = account.webhook_secret if isinstance(account, PixverseKey) else None
        if secret is None:
            name = account_id or "default"
            message = (
                f"{self.key}: account {name!r} has no webhook_secret, so no webhook can be authentic; "
                "give a PixverseKey with the secret of PixVerse's console"
            )
            raise CallbackRejected(message)
        _check_signature(request, secret.reveal())
        return Callback(
            external_task_ids=callback_ids(callback_json(request), "id"),
            reply_body=b"ok",
            reply_headers={"content-type": "text/plain"},
        )

    def _body_of(self, params: VideoRequest) -> dict[str, JSON]:
        quality = None if params.resolution is None else params.resolution.lower()
        wrong = {
            f"PixVerse takes prompts of {_MAX_PROMPT_CHARACTERS} characters at most, not {len(params.prompt)}": (
                len(params.prompt) > _MAX_PROMPT_CHARACTERS
            ),
            "PixVerse needs aspect_ratio, such as '16:9'": (
                params.aspect_ratio is None and "aspect_ratio" not in params.options
            ),
            f"resolution is one of {', '.join(_QUALITIES)} with PixVerse, not {params.resolution!r}": (
                quality not in {None, *_QUALITIES}
            ),
        }
        for rule, broken in wrong.items():
            if broken:
                raise InvalidParams(rule)
        body: dict[str, JSON] = {
            "model": self.model_of(params),
            "prompt": params.prompt,
            "negative_prompt": params.negative_prompt,
            "duration": None if params.duration is None else whole_seconds(params.duration),
            "quality": quality,
            "aspect_ratio": params.aspect_ratio,
            "seed": params.seed,
            "water_mark": params.watermark,
        }
        return {name: each for name, each in body.items() if each is not None}


def _check_signature(request: CallbackRequest, secret: str) -> None:
    """Accept a webhook that is new and signed.

    Raises:
        CallbackRejected: it is not.
    """
    timestamp, nonce, signature = (
        callback_header(request, f"webhook-{name}") for name in ("timestamp", "nonce", "signature")
    )
    check_timestamp(timestamp)
    document = callback_json(request)
    try:
        texts = [f"{timestamp}\n{nonce}\n{each}".encode() for each in _payloads(document, request.body)]
    except UnicodeEncodeError as error:
        raise CallbackRejected("the webhook holds a lone surrogate") from error
    for text in texts:
        with suppress(CallbackRejected):
            check_hmac_sha256(text, signature, secret, encoding="base64")
            return
    raise CallbackRejected("the webhook's signature is not right under the account's webhook_secret")


def _payloads(document: Mapping[str, JSON], body: bytes) -> Iterator[str]:
    """Yield what may be signed of a body: its fields as a URL's query, by name or as they come."""
    written: Mapping[str, JSON] = json.loads(body.decode("utf-8-sig"), parse_int=str, parse_float=str)
    fields = [(name, _text(value, written[name])) for name, value in document.items()]
    for ordered in (sorted(fields), fields):
        for escape in _ESCAPES:
            yield urlencode(ordered, quote_via=escape)


def _text(value: JSON, written: JSON) -> str:
    """Return a value as text; a number as it was written, which may be in several ways."""
    if isinstance(written, str):
        return written
    return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
