"""MinerU: document extraction by the service of OpenDataLab at mineru.net.

Read in 2026 from the adapter of agents-flex (`agents-flex-ocr-mineru` at 08a4f43d: model, tests), from the pages
mineru.net/doc/docs (index, limit_en, index_en) and mineru.net/apiManage, and from Nebutra/MinerU-Skill
(`references/api_reference.md`). Nothing was tried against the live service.

Jobs are made of a URL, one document each, by one of two endpoints: that of single tasks, or that of batches with
`MinerUOcrSettings.batch`. They have queries of their own, so the kind of a job is stored with its id.

A callback is believed because it came to an address that only MinerU was told. MinerU sends a checksum as well, made
of the user's id, the seed and the content; the user's id is not known here, so it is not checked. By copies of these
pages that others keep, `content` is the text of what a query has in `data`, a push that is not answered by 200 is
repeated up to 5 times, and a `data_id` has up to 128 characters; the id is also looked for at the top and in `data`.

Not documented: cancel, an idempotency key (`data_id` only comes back), how long links of results work, and what a
batch is answered with before its files are known, which fails a query here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar, Literal

from attrs import evolve, frozen

from coatcheck.errors import CallbackRejected, InvalidParams
from coatcheck.gates import Rate
from coatcheck.handler import Callback, CallbackRequest, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.documents import part_read
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrAsset
from coatcheck_handler_ocr.sources import OcrSources
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
    callback_ids,
    callback_json,
    first_object,
    first_text,
    lookup,
    segment,
)

__all__ = ["MinerUOcr", "MinerUOcrSettings"]

_JOB = ("data", "data.extract_result", "data.extract_result.0")
"""Where an answer tells of a job: of a task, of a batch, of a batch with a list."""
_DATA_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OURS = frozenset({"url", "files", "data_id", "callback", "seed"})
_OF_A_FILE = frozenset({"url", "data_id", "page_ranges", "is_ocr"})
"""What is said of each file of a batch; the rest is said once."""
_EXTRA_FORMATS = (OutputFormat.DOCX, OutputFormat.HTML, OutputFormat.LATEX)


def _of_job(name: str) -> tuple[str, ...]:
    return tuple(f"{place}.{name}" for place in _JOB)


@frozen(kw_only=True)
class MinerUOcrSettings(HttpSettings):
    """Settings of `MinerUOcr`."""

    batch: bool = False
    """Whether documents are submitted as batches of one, rather than as single tasks."""


class MinerUOcr(OcrHandler):
    """Document extraction by mineru.net."""

    key = "ocr:mineru"
    default_base_url = "https://mineru.net"
    facts = ProviderFacts(
        name="MinerU",
        sources=(
            "agents-flex/agents-flex at 08a4f43d, agents-flex-ocr-mineru",
            "mineru.net/doc/docs",
            "mineru.net/apiManage",
            "Nebutra/MinerU-Skill, references/api_reference.md",
        ),
        submit_rate=Rate(300, per=timedelta(minutes=1)),
        query_rate=Rate(1000, per=timedelta(minutes=1)),
    )
    supports = frozenset({"model", "pages", "languages", "tables", "formulas"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, *_EXTRA_FORMATS})
    status_paths = _of_job("state")
    failure_code_paths = _of_job("err_code")
    failure_message_paths = _of_job("err_msg")
    error_code_paths = ("msgCode", "code")
    error_message_paths = ("msg",)
    # mineru.net/doc/docs and agents-flex-ocr-mineru
    statuses = StatusMap(
        waiting="waiting-file pending",
        running="uploading running converting",
        succeeded="done",
        failed="failed",
    )
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "A0202": ErrorClass.AUTH,
        "A0211": ErrorClass.AUTH,
        "-500": ErrorClass.INVALID_REQUEST,
        "-10001": ErrorClass.PROVIDER_UNAVAILABLE,
        "-10002": ErrorClass.INVALID_REQUEST,
        "-60002": ErrorClass.UNSUPPORTED_INPUT,
        "-60003": ErrorClass.TASK_FAILED,
        "-60004": ErrorClass.INVALID_REQUEST,
        "-60005": ErrorClass.TOO_LARGE,
        "-60006": ErrorClass.TOO_LARGE,
        "-60007": ErrorClass.PROVIDER_UNAVAILABLE,
        "-60008": ErrorClass.TASK_FAILED,
        "-60009": ErrorClass.RATE_LIMITED,
        "-60010": ErrorClass.TASK_FAILED,
        "-60012": ErrorClass.NOT_FOUND_OR_EXPIRED,
        "-60013": ErrorClass.AUTH,
        "-60015": ErrorClass.TASK_FAILED,
        "-60016": ErrorClass.TASK_FAILED,
        "-60018": ErrorClass.QUOTA_OR_BILLING,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own documents are single tasks."""
        super().__init__(accounts, key=key, settings=settings)
        batch = isinstance(settings, MinerUOcrSettings) and settings.batch
        self._kind: Literal["task", "batch"] = "batch" if batch else "task"

    def validate(self, params: OcrRequest) -> None:
        """Refuse, beside what every handler refuses, several languages."""
        super().validate(params)
        _choices(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return the task or the batch; options first, so that they can't replace what is set here.

        Raises:
            InvalidParams: the request names several languages.
        """
        options = {name: value for name, value in params.options.items() if name not in _OURS}
        body: dict[str, JSON] = {**options, **_choices(params), "url": params.url}
        if _DATA_ID.fullmatch(context.task_id):
            body["data_id"] = context.task_id
        callback = self.own_callback_url(context)
        if callback is not None:
            body["callback"] = callback
            # no secret: the checksum that is made of it is not what callbacks are believed for
            body["seed"] = hashlib.sha256(context.task_id.encode()).hexdigest()[:32]
        if self._kind == "task":
            return HttpRequest.post("/api/v4/extract/task", json=body)
        file = {name: value for name, value in body.items() if name in _OF_A_FILE}
        shared = {name: value for name, value in body.items() if name not in _OF_A_FILE}
        return HttpRequest.post("/api/v4/extract/task/batch", json={**shared, "files": [file]})

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return the id of the task or batch, and which of them it is.

        Raises:
            UnreadableAnswer: there is no id in the answer.
        """
        path = f"data.{self._kind}_id"
        external_id = first_text(response.json_object(), path)
        if external_id is None:
            message = f"the answer has no {path}"
            raise UnreadableAnswer(message, code="unreadable_answer")
        return QueryParams(external_task_id=external_id, provider_params={"kind": self._kind})

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the task or batch, whatever the settings are by now.

        Raises:
            InvalidParams: what is stored is neither.
        """
        kind, job = params.read("kind", str), segment(params.external_task_id)
        if kind == "task":
            return HttpRequest.get(f"/api/v4/extract/task/{job}")
        if kind == "batch":
            return HttpRequest.get(f"/api/v4/extract-results/batch/{job}")
        message = f"query param 'kind' of {params.external_task_id!r} is {kind!r}, not 'task' or 'batch'"
        raise InvalidParams(message)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer: of the service, by its code, or of the gateway before it."""
        if response.ok:
            body = response.json()
            if lookup(body, "success") is not False and first_text(body, "code") in {None, "0"}:
                return None
        return self.error_of(response)

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return the part of the pages that has been extracted."""
        progress = first_object(response.json(), *_of_job("extract_progress"))
        return part_read(progress, "extracted_pages", "total_pages")

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the archive is, which has the text and all other forms of it."""
        url = first_text(response.json(), *_of_job("full_zip_url"))
        return (
            None if url is None else OcrSources(archive_url=url, assets=(OcrAsset(type="archive", url=url),))
        )

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Say which job a callback is about that came to the address which only MinerU was told.

        Raises:
            CallbackRejected: it came elsewhere, or names no job.
        """
        self.check_own_callback(request, account_id)
        body = dict(callback_json(request))
        content = body.get("content")
        if isinstance(content, str):
            body["content"] = dict(callback_json(evolve(request, body=_encoded(content))))
        places = [f"{place}{name}" for name in ("task_id", "batch_id") for place in ("content.", "data.", "")]
        paths = [*places, "content.data.task_id", "content.data.batch_id"]
        return Callback(external_task_ids=callback_ids(body, *paths))


def _encoded(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise CallbackRejected("the callback's content holds a lone surrogate") from error


def _choices(params: OcrRequest) -> Mapping[str, JSON]:
    """Return what the request chooses, under MinerU's names.

    Raises:
        InvalidParams: it names several languages.
    """
    if len(params.languages) > 1:
        message = f"MinerU reads one language at a time, not {params.languages!r}; name one, or none"
        raise InvalidParams(message)
    found: dict[str, JSON] = {
        "model_version": params.model,
        "page_ranges": params.pages,
        "language": params.languages[0] if params.languages else None,
        "enable_table": params.tables,
        "enable_formula": params.formulas,
        "extra_formats": [str(each) for each in params.outputs if each in _EXTRA_FORMATS] or None,
    }
    return {name: value for name, value in found.items() if value is not None}
