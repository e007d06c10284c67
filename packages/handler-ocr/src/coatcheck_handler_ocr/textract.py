"""Amazon Textract: text detection and document analysis of documents in S3.

Read in 2026 from botocore 1.44.8, `data/textract/2018-06-27/service-2.json` (operations, fields, errors, words)
and `parsers.py` (where a code is); nothing was tried against the live service. Every operation is a POST of JSON
to the same path, which a header tells apart. The provider reads from S3 alone, with the rights of the account.
It deduplicates on a token of ours, and does not document for how long. It documents no rates there, no cancel, and
no callback but to a topic of its own notification service.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

from attrs import evolve, field, frozen

from coatcheck.errors import ConfigurationError, InvalidParams, SubmitRejected
from coatcheck.handler import CallContext, QueryContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.aws import AwsAccount, s3_object, sign
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_handler_ocr.textract_blocks import Block, needed, read_pages, read_warnings
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    OutcomeUnknown,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    first_object,
    first_text,
    short,
)

__all__ = ["TextractOcr", "TextractOcrSettings"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+")
_DETECTION, _ANALYSIS = "DocumentTextDetection", "DocumentAnalysis"
_MISMATCH = "IdempotentParameterMismatchException"
_OWN = frozenset({"DocumentLocation", "ClientRequestToken", "FeatureTypes"})


def _features(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        message = f"features are a sequence of strings, not the string {values!r}; write ({values!r},)"
        raise ConfigurationError(message)
    return tuple(values)


@frozen(kw_only=True)
class TextractOcrSettings(HttpSettings):
    """Settings of `TextractOcr`."""

    region: str = "us-east-1"
    """Where the provider works; the documents' buckets must be in the same."""
    features: tuple[str, ...] = field(default=(), converter=_features)
    """Such as ``TABLES``, ``FORMS`` or ``LAYOUT``, each of them charged: documents are analysed for these. Without
    any, their text is detected, unless a request asks for more."""
    max_answers: int = 1000
    """How many answers, of at most 1000 blocks each, are read for one result. The rest is left, with a warning."""
    max_blocks: int = 500_000
    """How many blocks are kept in memory for one result. The rest is left, with a warning."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        super().__attrs_post_init__()
        if not _REGION.fullmatch(self.region):
            message = f"region must look like 'eu-central-1', not {self.region!r}"
            raise ConfigurationError(message)
        if min(self.max_answers, self.max_blocks) < 1:
            message = f"max_answers and max_blocks must be positive: {self!r}"
            raise ConfigurationError(message)


@frozen(kw_only=True)
class _Blocks(OcrSources):
    """The first answer of a result, which may go on."""

    job: QueryParams
    blocks: list[Block] = field(repr=False)
    next_token: str | None = None


class TextractOcr(OcrHandler):
    """Text detection and document analysis by Amazon Textract."""

    key = "ocr:textract"
    facts = ProviderFacts(
        name="Amazon Textract",
        sources=("botocore 1.44.8, data/textract/2018-06-27/service-2.json",),
        jobs_live=timedelta(days=7),
    )
    idempotency_window = timedelta(minutes=10)
    """A guess on the safe side: the provider tells that it deduplicates, and not for how long."""
    supports = frozenset({"tables"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    url_schemes = ("s3", "https")
    id_paths = ("JobId",)
    status_paths = ("JobStatus",)
    error_code_paths = ("__type", "code")
    error_message_paths = ("message", "Message")
    # the enum JobStatus of service-2.json; it has no word for a job that waits
    statuses = StatusMap(running="IN_PROGRESS", succeeded="SUCCEEDED PARTIAL_SUCCESS", failed="FAILED")
    # the errors that service-2.json names for these operations
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "AccessDeniedException": ErrorClass.AUTH,
        "BadDocumentException": ErrorClass.UNSUPPORTED_INPUT,
        "DocumentTooLargeException": ErrorClass.TOO_LARGE,
        _MISMATCH: ErrorClass.INVALID_REQUEST,
        "InternalServerError": ErrorClass.PROVIDER_UNAVAILABLE,
        "InvalidJobIdException": ErrorClass.NOT_FOUND_OR_EXPIRED,
        "InvalidKMSKeyException": ErrorClass.INVALID_REQUEST,
        "InvalidParameterException": ErrorClass.INVALID_REQUEST,
        "InvalidS3ObjectException": ErrorClass.INVALID_REQUEST,
        "LimitExceededException": ErrorClass.CONCURRENCY_LIMITED,
        "ProvisionedThroughputExceededException": ErrorClass.RATE_LIMITED,
        "ThrottlingException": ErrorClass.RATE_LIMITED,
        "UnsupportedDocumentException": ErrorClass.UNSUPPORTED_INPUT,
        # of every AWS service, and not in service-2.json: what a key or its signature is refused with
        "ExpiredTokenException": ErrorClass.AUTH,
        "IncompleteSignatureException": ErrorClass.AUTH,
        "InvalidSignatureException": ErrorClass.AUTH,
        "MissingAuthenticationTokenException": ErrorClass.AUTH,
        "UnrecognizedClientException": ErrorClass.AUTH,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts of `AwsAccount`, and settings; with other settings than its own the region is us-east-1."""
        own = settings if isinstance(settings, TextractOcrSettings) else TextractOcrSettings()
        self._own = own
        suffix = ".cn" if own.region.startswith("cn-") else ""
        known = HttpSettings() if settings is None else settings
        if known.base_url is None:
            known = evolve(known, base_url=f"https://textract.{own.region}.amazonaws.com{suffix}")
        super().__init__(accounts, key=key, settings=known)

    def validate(self, params: OcrRequest) -> None:
        """Refuse a document that is not in S3, or in another region.

        Raises:
            InvalidParams: so it is, or the provider lacks what is asked for.
        """
        super().validate(params)
        found = s3_object(params.url)
        if found.region not in {None, self._own.region}:
            message = (
                f"url is in region {found.region!r}, and this handler works in {self._own.region!r}; the provider "
                "reads from its own region alone: copy the document, or use a handler of that region"
            )
            raise InvalidParams(message)
        self._features_of(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Start an analysis if there are features to look for, or else a text detection."""
        document = s3_object(params.url)
        features = self._features_of(params)
        body: dict[str, JSON] = {name: each for name, each in params.options.items() if name not in _OWN}
        body["DocumentLocation"] = {"S3Object": {"Bucket": document.bucket, "Name": document.key}}
        body["ClientRequestToken"] = _token(context.idempotency_key)
        if features:
            body["FeatureTypes"] = list(features)
        return _call(f"Start{_ANALYSIS if features else _DETECTION}", body)

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Add what was started: each kind of job has a query of its own."""
        kind = _ANALYSIS if self._features_of(params) else _DETECTION
        return super().create_query_params(response, params).evolve(operation=kind)

    def parse_submit(
        self, response: HttpResponse, params: OcrRequest, context: PreparedContext
    ) -> SubmitResult:
        """Return the accepted job.

        Raises:
            SubmitRejected: our token was used before, with another request, and not by this task.
            OutcomeUnknown: it may have been by an attempt of this task, whose job nobody knows.
        """
        if response.ok:
            return super().parse_submit(response, params, context)
        message = f"{_MISMATCH}: the provider has seen the token {_token(context.idempotency_key)!r} before"
        if context.submit_attempts:
            why = (
                f"{message}, perhaps from an attempt whose answer was lost; look into the provider's console"
            )
            raise OutcomeUnknown(why, code=_MISMATCH)
        raise SubmitRejected(f"{message}, with another request; give another idempotency_key", code=_MISMATCH)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Ask for the job, and the first part of its result."""
        return _ask(params)

    def error_of(self, response: HttpResponse) -> ProviderError:
        """Return the error, its code without the namespace or address around it."""
        error = super().error_of(response)
        code = error.code or response.header("x-amzn-errortype")
        return evolve(error, code=code and short(code.rpartition("#")[2].partition(":")[0], 100))

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error; None also where our token is known."""
        error = super().read_error(response)
        return None if error is None or error.code == _MISMATCH else error

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return the provider's words; it has no code for this."""
        message = first_text(response.json(), "StatusMessage") or "the job failed"
        return QueryResult.failed(None, message, provider_status=word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | None:
        """Return the first part of the blocks; None if there are none and no more to come."""
        body = response.json_object()
        token = first_text(body, "NextToken")
        if not isinstance(body.get("Blocks"), Sequence) and token is None:
            return None
        return _Blocks(
            job=params,
            blocks=needed(body, analysis=params.read("operation", str) == _ANALYSIS),
            next_token=token,
            usage=first_object(body, "DocumentMetadata"),
            warnings=tuple(read_warnings(body)),
        )

    async def fetch_sources(self, sources: OcrSources, context: QueryContext) -> OcrSources:
        """Read the rest of the blocks, and make pages of all.

        Raises:
            QueryFailed: a part cannot be had now; the next query begins anew.
        """
        if not isinstance(sources, _Blocks):
            return sources
        blocks, warnings = await self._rest(sources, context)
        pages = read_pages(blocks)
        text = "" if not pages else None
        return OcrSources(pages=pages, text=text, usage=sources.usage, warnings=warnings)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Sign the request as it is: nothing of what is signed is changed after this."""
        account = self.account(context, AwsAccount)
        return await sign(request, account, region=self._own.region, service="textract")

    async def _rest(self, first: _Blocks, context: QueryContext) -> tuple[list[Block], tuple[str, ...]]:
        """Return all blocks, asked for part by part, and the warnings."""
        analysis = first.job.read("operation", str) == _ANALYSIS
        blocks, warnings, token = list(first.blocks), dict.fromkeys(first.warnings), first.next_token
        for _ in range(self._own.max_answers - 1):
            if token is None or len(blocks) >= self._own.max_blocks:
                break
            response = await self.ask(_ask(first.job, token), context)
            if not response.ok:
                raise self.unanswered(
                    response, context, "the result goes on, and its next part cannot be had"
                )
            body = response.json_object()
            blocks += needed(body, analysis=analysis)
            warnings.update(dict.fromkeys(read_warnings(body)))
            token = first_text(body, "NextToken")
        if token is not None:
            own = self._own
            warnings[
                f"the result goes on; what was read are {own.max_answers} answers or {own.max_blocks} blocks: raise "
                "the settings max_answers and max_blocks for all of it"
            ] = None
        return blocks, tuple(warnings)

    def _features_of(self, params: OcrRequest) -> Sequence[str]:
        """Return what to look for: as the request's options say, or the settings, and tables as it says."""
        given = params.options.get("FeatureTypes", self._own.features)
        if isinstance(given, str) or not isinstance(given, Sequence):
            message = f"options.FeatureTypes must be a list such as ['TABLES'], not {given!r}"
            raise InvalidParams(message)
        features = [each for each in given if isinstance(each, str)]
        if len(features) != len(given):
            message = f"options.FeatureTypes must be a list of strings, not {given!r}"
            raise InvalidParams(message)
        if params.tables is not None:
            features = [each for each in features if each != "TABLES"]
            features += ["TABLES"] if params.tables else []
        return features


def _call(operation: str, body: Mapping[str, JSON]) -> HttpRequest:
    request = HttpRequest.post("/", json=dict(body), headers={"x-amz-target": f"Textract.{operation}"})
    return request.with_headers(content_type="application/x-amz-json-1.1")


def _ask(job: QueryParams, token: str | None = None) -> HttpRequest:
    body: dict[str, JSON] = {"JobId": job.external_task_id}
    if token is not None:
        body["NextToken"] = token
    return _call(f"Get{job.read('operation', str)}", body)


def _token(key: str) -> str:
    """Return the key, or a digest of one that the provider would not take."""
    return key if _TOKEN.fullmatch(key) else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
