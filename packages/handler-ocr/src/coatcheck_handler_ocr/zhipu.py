"""Zhipu, also Z.ai: the parser of files.

Read in 2026 from zai-org/z-ai-sdk-python at d8d898bb and, for the codes of errors, from docs.z.ai (api-code). Nothing
was tried against the live service. The provider takes no URL, so the worker downloads the document and uploads it.

What a job ends with is not certain. The SDK polls while the status is ``processing`` and names no other word;
``succeeded`` and ``failed`` are in a public copy of the OpenAPI page of docs.bigmodel.cn. So another word counts as
success if the text or its link is there, and is otherwise unlisted: an error with its name, asked again until the
deadline.

The form of the result is part of the query's path, so it is stored with the job's id. Text comes in the answer; a link
leads to an archive, by that page. Not documented: cancel, callbacks, an idempotency key, the answer about a job that
is not there, rates, how long links work, and which words `file_type` may be: the suffix of the name is sent, in
capitals, as public clients do. Code 1303 as a rate limit is not certain either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import ClassVar, Literal, cast

from attrs import field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.handler import QueryContext, SubmitContext
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import QueryParams
from coatcheck_handler_ocr.documents import upload
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_handler_ocr.result import OcrAsset
from coatcheck_handler_ocr.sources import OcrSources, given_text
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    Prepared,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    first_object,
    first_text,
    form_text,
    lookup,
    segment,
)

__all__ = ["ZhipuOcr", "ZhipuOcrSettings"]

ResultForm = Literal["text", "download_link"]
"""How the provider is asked for a result."""

_FORMS = ("text", "download_link")
_OURS = frozenset({"file", "tool_type"})


def _form(value: str) -> ResultForm:
    if value not in _FORMS:
        message = f"result_form is {value!r}; possible are {' and '.join(_FORMS)}"
        raise ConfigurationError(message)
    return cast("ResultForm", value)


@frozen(kw_only=True)
class ZhipuOcrSettings(HttpSettings):
    """Settings of `ZhipuOcr`; ``base_url="https://api.z.ai/api/paas/v4"`` is the service outside China."""

    tool_type: str = "lite"
    """``lite``, ``expert`` or ``prime``, for requests that name no model."""
    result_form: ResultForm = field(default="text", converter=_form)
    """``download_link`` asks for an archive instead of the text."""


class ZhipuOcr(OcrHandler):
    """Parsing of files by Zhipu (bigmodel.cn) or Z.ai. The `model` of a request is the provider's tool."""

    key = "ocr:zhipu"
    default_base_url = "https://open.bigmodel.cn/api/paas/v4"
    facts = ProviderFacts(
        name="Zhipu file parser",
        sources=(
            "zai-org/z-ai-sdk-python at d8d898bb",
            "docs.z.ai, api-code",
            "docs.bigmodel.cn, file parser, by a public copy",
        ),
    )
    supports = frozenset({"model", "file_name"})
    id_paths = ("task_id",)
    failure_code_paths = ()
    failure_message_paths = ("message",)
    error_code_paths = ("error.code",)
    error_message_paths = ("error.message", "message")
    # zai-org/z-ai-sdk-python (processing); docs.bigmodel.cn (the others)
    statuses = StatusMap(running="processing", succeeded="succeeded", failed="failed")
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        **dict.fromkeys(("1000", "1001", "1002", "1003", "1004"), ErrorClass.AUTH),
        "1113": ErrorClass.QUOTA_OR_BILLING,
        "1121": ErrorClass.AUTH,
        **dict.fromkeys(("1210", "1211", "1212", "1213", "1214", "1215"), ErrorClass.INVALID_REQUEST),
        "1234": ErrorClass.PROVIDER_UNAVAILABLE,
        "1301": ErrorClass.MODERATION,
        "1302": ErrorClass.CONCURRENCY_LIMITED,
        "1303": ErrorClass.RATE_LIMITED,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the defaults of its own are used."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, ZhipuOcrSettings) else ZhipuOcrSettings()
        self._tool_type, self._result_form = own.tool_type, own.result_form

    async def prepare(self, params: OcrRequest, context: SubmitContext) -> Prepared:
        """Download the document; `prepare_download` tells what it raises."""
        return await self.prepare_download(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Upload the document; options first, so that they can't replace the tool or the file."""
        file = upload(params, context, field="file")
        form = (
            {} if not (suffix := PurePosixPath(file.file_name).suffix) else {"file_type": suffix[1:].upper()}
        )
        form |= {name: form_text(value) for name, value in params.options.items() if name not in _OURS}
        return HttpRequest.post(
            "/files/parser/create",
            form={**form, "tool_type": params.model or self._tool_type},
            files=[file],
        )

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return the job's id, and the form in which its result is to be asked for."""
        return super().create_query_params(response, params).evolve(form=self._result_form)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the status and, once there is one, the result."""
        job, form = segment(params.external_task_id), segment(params.read("form", str))
        return HttpRequest.get(f"/files/parser/result/{job}/{form}")

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return how the job is; with a result it is done, whatever the word."""
        found = super().parse_query(response, params, context)
        told = first_text(response.json(), "content", "parsing_result_url")
        if found.verdict is not Verdict.UNLISTED or told is None:
            return found
        sources = self.read_result(response, params, context)
        return QueryResult.succeeded(sources, provider_status=found.provider_status)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer: by its HTTP status, or one that says so and names no job."""
        if response.ok:
            body = response.json()
            refused = lookup(body, "success") is False or bool(first_object(body, "error"))
            if not refused or first_text(body, "task_id") is not None:
                return None
        return self.error_of(response)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | None:
        """Return the text, or where it is; both are null until there is one."""
        body = response.json()
        content, url = given_text(body, "content"), first_text(body, "parsing_result_url")
        if content is None and url is None:
            return None
        return OcrSources(
            markdown=content,
            archive_url=url,
            assets=() if url is None else (OcrAsset(type="archive", url=url),),
        )
