"""Baidu AI Cloud: document parsing with PaddleOCR-VL.

Read in 2026 from the adapter of agents-flex (`agents-flex-ocr-baidu` at 08a4f43d: configuration, model, test) and
from Baidu's pages ai.baidu.com/ai-doc/OCR/7mh8u7ruk, cloud.baidu.com/doc/OCR/s/3mi73at9o (the job, its limits) and
cloud.baidu.com/doc/NLP/s/Tk6z52d7c (the token). What is in a layout (`type`, `text`, `position` as left, top, width
and height) was read from public clients of the same file, not from these pages. Nothing was tried against the live
service.

Not documented: cancel, callbacks, an idempotency key, what a query of an unknown job is answered with, and the size
of a page. Credentials that go into the query are kept out of errors and logs, as is what was minted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import ClassVar, cast

from attrs import evolve, field, frozen

from coatcheck.errors import ConfigurationError, HandlerError, InvalidParams, SubmitDeferred
from coatcheck.gates import Rate
from coatcheck.handler import CallContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.boxes import numbers_at, sized_box
from coatcheck_handler_ocr.documents import name_of
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrAsset, OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, given_text, sound
from coatcheck_http import (
    Accounts,
    ApiKey,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    MintedToken,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    TokenCache,
    UnreadableAnswer,
    as_secret,
    first,
    first_text,
    form_text,
    header_value,
    items,
    shown,
)

__all__ = ["BaiduClient", "BaiduOcr"]

LINKS_LIVE = timedelta(days=30)
"""How long both result links work."""

_BEARER = "bce-v3/"
_OURS = frozenset({"file_url", "file_data", "file_name", "access_token", "task_id"})
_MAX_URL_BYTES = 1024


@frozen
class BaiduClient:
    """An account that is a client of Baidu's OAuth server, from whose id and secret access tokens are minted."""

    client_id: Secret = field(converter=as_secret)
    """The console's "API Key". Prints as ``***``."""
    client_secret: Secret = field(converter=as_secret)
    """The console's "Secret Key"."""

    @classmethod
    def from_env(cls, client_id: str, client_secret: str) -> BaiduClient:
        """Return the account whose id and secret are in these environment variables."""
        return cls(Secret.from_env(client_id), Secret.from_env(client_secret))


class BaiduOcr(OcrHandler):
    """Document parsing by Baidu AI Cloud.

    An account is an `ApiKey`, whose key begins with ``bce-v3/`` or else is an access token, or a `BaiduClient`.
    """

    key = "ocr:baidu"
    default_base_url = "https://aip.baidubce.com"
    facts = ProviderFacts(
        name="Baidu AI Cloud PaddleOCR-VL",
        sources=(
            "agents-flex/agents-flex at 08a4f43d, agents-flex-ocr-baidu",
            "ai.baidu.com/ai-doc/OCR/7mh8u7ruk",
            "cloud.baidu.com/doc/OCR/s/3mi73at9o",
            "cloud.baidu.com/doc/NLP/s/Tk6z52d7c",
        ),
        submit_rate=Rate(2),
        query_rate=Rate(10),
        poll_floor=timedelta(seconds=5),
        links_live=LINKS_LIVE,
    )
    supports = frozenset({"file_name"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    id_paths = ("result.task_id",)
    status_paths = ("result.status",)
    submit_path: ClassVar[str] = "/rest/2.0/brain/online/v2/paddle-vl-parser/task"
    """Where a POST creates a job."""
    query_path = "/rest/2.0/brain/online/v2/paddle-vl-parser/task/query"
    token_fresh: ClassVar[timedelta] = timedelta(minutes=1)
    """A token that was minted so lately is not to blame if it is refused."""
    failure_code_paths = ()
    failure_message_paths = ("result.task_error",)
    error_code_paths = ("error_code", "error")
    error_message_paths = ("error_msg", "error_description")
    # ai.baidu.com/ai-doc/OCR/7mh8u7ruk
    statuses = StatusMap(waiting="pending", running="processing", succeeded="success", failed="failed")
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "6": ErrorClass.AUTH,
        "17": ErrorClass.QUOTA_OR_BILLING,
        "18": ErrorClass.RATE_LIMITED,
        "19": ErrorClass.QUOTA_OR_BILLING,
        "100": ErrorClass.INVALID_REQUEST,
        "110": ErrorClass.AUTH,
        "111": ErrorClass.AUTH,
        "282003": ErrorClass.INVALID_REQUEST,
        "invalid_client": ErrorClass.AUTH,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings."""
        super().__init__(accounts, key=key, settings=settings)
        self._tokens: TokenCache[BaiduClient] = TokenCache(self._mint, fresh=self.token_fresh)

    def validate(self, params: OcrRequest) -> None:
        """Refuse, beside what every handler refuses, a document without a name with a suffix."""
        super().validate(params)
        _document(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return the form; options first, so that they can't replace the document, nor send it in base64.

        Raises:
            InvalidParams: the document's name has no suffix, or its URL is too long for the provider.
        """
        options = {name: form_text(each) for name, each in params.options.items() if name not in _OURS}
        return HttpRequest.post(self.submit_path, form={**options, **_document(params)})

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return the query, which is a POST here."""
        return HttpRequest.post(self.query_path, form={"task_id": params.external_task_id})

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key as a bearer token, or with an access token in its query."""
        account = self.account(context, object)
        if isinstance(account, BaiduClient):
            return request.with_query(access_token=(await self._tokens.get(account)).reveal())
        if not isinstance(account, ApiKey):
            message = (
                f"an account of handler {self.key!r} is an ApiKey or a BaiduClient, "
                f"not a {type(account).__qualname__}"
            )
            raise ConfigurationError(message)
        key = header_value(account.api_key)
        if key.startswith(_BEARER):
            return request.with_headers(authorization=f"Bearer {key}")
        return request.with_query(access_token=key)

    def credentials_refused(self, context: CallContext) -> bool:
        """Drop a minted token that the provider refused, unless it is new: then something else is wrong."""
        return self._tokens.refused(cast("BaiduClient", self.account(context, object)))

    async def _mint(self, account: BaiduClient) -> MintedToken:
        """Get an access token.

        Raises:
            SubmitDeferred: the provider gives none; queries make an error of their own of it.
        """
        response = await self.request_token(
            HttpRequest.post(
                "/oauth/2.0/token",
                query={
                    "grant_type": "client_credentials",
                    "client_id": account.client_id.reveal(),
                    "client_secret": account.client_secret.reveal(),
                },
            )
        )
        token = first_text(response.json_object(), "access_token") if response.ok else None
        if token is None:
            error = self.error_of(response)
            found = self.classify(error.code, error.status, error.message)
            raise SubmitDeferred(
                f"Baidu gives no access token: HTTP {error.status} {error.code or ''} {error.message}",
                code=error.code or str(found),
                retry_after=timedelta(minutes=1),
                blames_provider=found is not ErrorClass.AUTH,
            )
        lives = first(response.json(), "expires_in")
        lifetime = timedelta(seconds=lives) if isinstance(lives, int) and lives >= 0 else None
        return MintedToken(token=Secret(token), lifetime=lifetime)

    def known_secrets(self, context: CallContext) -> tuple[str, ...]:
        """Return what must not show: beside the account's secrets the token that was minted of them."""
        secrets = super().known_secrets(context)
        if not secrets:
            return secrets
        minted = self._tokens.peek(cast("BaiduClient", self.account(context, object)))
        return secrets if minted is None else (*secrets, minted.reveal())

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer, which has a code that is not 0, mostly in HTTP 200."""
        if response.ok and first_text(response.json(), "error_code") in {None, "0"}:
            return None
        return self.error_of(response)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the text is: behind a link; the pages are behind another."""
        body = response.json()
        assets = tuple(_assets(body, context.now + LINKS_LIVE))
        return OcrSources(markdown_url=first_text(body, "result.markdown_url"), assets=assets)

    async def fetch_sources(self, sources: OcrSources, context: QueryContext) -> OcrSources:
        """Return the sources with their pages, if these can be had."""
        url = next((each.url for each in sources.assets if each.type == "json"), None)
        return sources if url is None else await self._with_pages(sources, url)

    async def _with_pages(self, sources: OcrSources, url: str) -> OcrSources:
        """Return the sources with the pages that are at `url`, or with a warning."""
        try:
            content = (await self.download(url)).content
            pages = tuple(_pages(HttpResponse(status=200, body=content).json()))
        except UnreadableAnswer as error:
            return evolve(sources, warnings=(f"the pages at {shown(url)} cannot be read: {error}",))
        except HandlerError as error:
            return evolve(sources, warnings=(f"the pages cannot be had: {error}",))
        return evolve(sources, pages=pages)


def _document(params: OcrRequest) -> Mapping[str, str]:
    """Return the fields of the document; the provider goes by the suffix of its name.

    Raises:
        InvalidParams: there is no suffix, or the URL is too long.
    """
    name = name_of(params)
    if not PurePosixPath(name).suffix:
        message = (
            f"Baidu goes by the suffix of the document's name, and {name!r} has none; "
            "give file_name, such as 'scan.pdf'"
        )
        raise InvalidParams(message)
    size = len(params.url.encode())
    if size > _MAX_URL_BYTES:
        message = f"the document's URL has {size} bytes, and Baidu takes {_MAX_URL_BYTES} at most; shorten it"
        raise InvalidParams(message)
    return {"file_url": params.url, "file_name": name}


def _assets(body: JSON, expires_at: datetime) -> Iterator[OcrAsset]:
    for kind, name in (("markdown", "markdown_url"), ("json", "parse_result_url")):
        url = first_text(body, f"result.{name}")
        if url is not None:
            yield OcrAsset(type=kind, url=url, expires_at=expires_at)


def _pages(document: JSON) -> Iterator[OcrPage]:
    """Yield the pages in the order of the file, whose numbers are said to begin at 0 here and at 1 there."""
    for index, page in enumerate(items(document, "pages")):
        blocks = (_block(each) for each in items(page, "layouts"))
        yield OcrPage(index=index, markdown=_text(page), blocks=tuple(blocks))


def _block(layout: JSON) -> OcrBlock:
    kind = sound(first_text(layout, "type") or "text")
    return OcrBlock(kind=kind, text=_text(layout), box=sized_box(numbers_at(layout, "position")))


def _text(holder: JSON) -> str:
    return sound(given_text(holder, "text") or "")
