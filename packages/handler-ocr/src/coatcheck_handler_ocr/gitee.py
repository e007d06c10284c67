"""Gitee AI: document parsing.

Read from the adapter of agents-flex (`agents-flex-ocr-gitee` at 08a4f43d: model, configuration, test) and its
page `docs/zh/ocr/gitee.md`. The provider takes no URL, so the worker downloads the document and uploads it.
It knows no idempotency key, cancel or callback. The HTTP statuses of its errors and its limits of size are not
documented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta

from attrs import frozen

from coatcheck.handler import QueryContext, SubmitContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.documents import upload
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_handler_ocr.result import OcrAsset
from coatcheck_handler_ocr.sources import OcrSources, given_text
from coatcheck_http import (
    Accounts,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    Prepared,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    first,
    first_object,
    first_text,
    form_text,
    items,
)

__all__ = ["GiteeOcr", "GiteeOcrSettings"]

LINKS_LIVE = timedelta(days=1)
"""How long result links work; told by the provider's video documentation."""

_LINKS = {
    "markdown": ("markdown_url", "md_url"),
    "json": ("json_url", "content_list_url"),
    "archive": ("full_zip_url", "zip_url"),
}
_MARKDOWN_TYPES = frozenset({"markdown", "md"})
_ARCHIVE_TYPES = frozenset({"archive", "zip"})


@frozen(kw_only=True)
class GiteeOcrSettings(HttpSettings):
    """Settings of `GiteeOcr`."""

    model: str = "Unlimited-OCR"
    """For requests that name none."""


class GiteeOcr(OcrHandler):
    """Document parsing by Gitee AI."""

    key = "ocr:gitee"
    default_base_url = "https://ai.gitee.com/v1"
    facts = ProviderFacts(
        name="Gitee AI",
        sources=("agents-flex/agents-flex at 08a4f43d, agents-flex-ocr-gitee", "docs/zh/ocr/gitee.md there"),
        links_live=LINKS_LIVE,
    )
    supports = frozenset({"model", "file_name"})
    id_paths = ("task_id", "id")
    query_path = "/task/{id}"
    failure_code_paths = ("error_code", "code", "error.code", "error.type")
    failure_message_paths = ("error_message", "message", "error.message")
    statuses = StatusMap(
        waiting="waiting pending queued",
        running="in_progress running processing",
        succeeded="success succeeded done",
        failed="failure failed",
        canceled="cancelled canceled",
    )

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the default model is used."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, GiteeOcrSettings) else GiteeOcrSettings()
        self._model = own.model

    async def prepare(self, params: OcrRequest, context: SubmitContext) -> Prepared:
        """Download the document; `prepare_download` tells what it raises."""
        return await self.prepare_download(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Upload the document; options first, so that they can't replace the model or the file."""
        options = {name: form_text(value) for name, value in params.options.items() if name != "file"}
        return HttpRequest.post(
            "/async/documents/parse",
            form={**options, "model": params.model or self._model},
            files=[upload(params, context, field="file")],
        )

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer that has one and no job; a job's own error is its result."""
        if response.ok:
            body = response.json()
            if first_text(body, "task_id", "id") is not None or not first_object(body, "error"):
                return None
        return self.error_of(response)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the text is; `output` is null until there is one."""
        return _sources(response.json(), context.now)


def _sources(body: JSON, now: datetime) -> OcrSources:
    """Return where the text is: inline, in segments, or behind links."""
    output = first(body, "output")
    if isinstance(output, str):
        return OcrSources(markdown=output)
    assets = tuple(_assets(output, now + LINKS_LIVE))
    price = first(body, "price")
    return OcrSources(
        markdown=_inline(output),
        markdown_url=_link(assets, _MARKDOWN_TYPES),
        archive_url=_link(assets, _ARCHIVE_TYPES),
        text=given_text(output, "text", "content"),
        assets=assets,
        usage={} if price is None else {"price": price},
    )


def _inline(output: JSON) -> str | None:
    text, segments = given_text(output, "markdown", "md"), items(output, "segments")
    if (text and text.strip()) or not segments:
        return text
    return "\n".join(part for part in (given_text(each, "content") for each in segments) if part is not None)


def _assets(output: JSON, expires_at: datetime) -> Iterator[OcrAsset]:
    """Yield what the provider keeps behind links."""
    for kind, names in _LINKS.items():
        url = first_text(output, *names)
        if url is not None:
            yield OcrAsset(type=kind, url=url, expires_at=expires_at)
    for each in items(output, "files"):
        url = first_text(each, "url", "file_url")
        if url is not None:
            kind = (first_text(each, "type", "format") or "file").lower()
            yield OcrAsset(type=kind, url=url, expires_at=expires_at)


def _link(assets: Sequence[OcrAsset], types: AbstractSet[str]) -> str | None:
    return next((each.url for each in assets if each.type in types), None)
