"""The base of every HTTP handler for coatcheck."""

from coatcheck_http.accounts import Accounts, ApiKey
from coatcheck_http.adapter import HttpAdapter, Prepared, PreparedContext
from coatcheck_http.addresses import AddressGuard
from coatcheck_http.classify import ErrorClass, ProviderError, classify
from coatcheck_http.download import Download, Downloader
from coatcheck_http.errors import (
    AddressRefused,
    AnswerLost,
    DownloadFailed,
    NotSent,
    OutcomeUnknown,
    UnreadableAnswer,
    UntrustedUrl,
)
from coatcheck_http.extract import first, first_object, first_text, lookup
from coatcheck_http.handler import HttpHandler
from coatcheck_http.messages import FilePart, HttpRequest, HttpResponse
from coatcheck_http.redaction import redact, short
from coatcheck_http.retry_after import parse_retry_after
from coatcheck_http.settings import HttpSettings
from coatcheck_http.statuses import JobState, StatusMap
from coatcheck_http.tokens import MintedToken, TokenCache
from coatcheck_http.urls import check_document_url, origin_of, refuse_local, segment, shown

__all__ = [
    "Accounts",
    "AddressGuard",
    "AddressRefused",
    "AnswerLost",
    "ApiKey",
    "Download",
    "DownloadFailed",
    "Downloader",
    "ErrorClass",
    "FilePart",
    "HttpAdapter",
    "HttpHandler",
    "HttpRequest",
    "HttpResponse",
    "HttpSettings",
    "JobState",
    "MintedToken",
    "NotSent",
    "OutcomeUnknown",
    "Prepared",
    "PreparedContext",
    "ProviderError",
    "StatusMap",
    "TokenCache",
    "UnreadableAnswer",
    "UntrustedUrl",
    "check_document_url",
    "classify",
    "first",
    "first_object",
    "first_text",
    "lookup",
    "origin_of",
    "parse_retry_after",
    "redact",
    "refuse_local",
    "segment",
    "short",
    "shown",
]
