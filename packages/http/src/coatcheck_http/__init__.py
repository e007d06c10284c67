"""The base of every HTTP handler for coatcheck."""

from coatcheck_http.accounts import Accounts, ApiKey, as_secret, find_account, header_value
from coatcheck_http.adapter import HttpAdapter, Prepared, PreparedContext
from coatcheck_http.addresses import AddressGuard
from coatcheck_http.callbacks import (
    callback_header,
    callback_ids,
    callback_json,
    check_ed25519,
    check_hmac_sha256,
    check_own_callback,
    check_shared_header,
    check_standard_webhook,
    check_timestamp,
    own_callback_url,
    signature_bytes,
)
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
from coatcheck_http.extract import first, first_object, first_text, form_text, items, lookup, number
from coatcheck_http.facts import ProviderFacts
from coatcheck_http.fields import check_fields, text_tuple
from coatcheck_http.google import GoogleServiceAccount
from coatcheck_http.google_calls import GoogleCalls
from coatcheck_http.handler import HttpHandler
from coatcheck_http.jobs import JobHandler
from coatcheck_http.messages import FilePart, HttpRequest, HttpResponse
from coatcheck_http.redaction import redact, short
from coatcheck_http.retry_after import parse_retry_after
from coatcheck_http.saving import SavedFile
from coatcheck_http.settings import HttpSettings
from coatcheck_http.statuses import JobState, StatusMap
from coatcheck_http.templates import RequestTemplate, check_paths, split_paths
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
    "GoogleCalls",
    "GoogleServiceAccount",
    "HttpAdapter",
    "HttpHandler",
    "HttpRequest",
    "HttpResponse",
    "HttpSettings",
    "JobHandler",
    "JobState",
    "MintedToken",
    "NotSent",
    "OutcomeUnknown",
    "Prepared",
    "PreparedContext",
    "ProviderError",
    "ProviderFacts",
    "RequestTemplate",
    "SavedFile",
    "StatusMap",
    "TokenCache",
    "UnreadableAnswer",
    "UntrustedUrl",
    "as_secret",
    "callback_header",
    "callback_ids",
    "callback_json",
    "check_document_url",
    "check_ed25519",
    "check_fields",
    "check_hmac_sha256",
    "check_own_callback",
    "check_paths",
    "check_shared_header",
    "check_standard_webhook",
    "check_timestamp",
    "classify",
    "find_account",
    "first",
    "first_object",
    "first_text",
    "form_text",
    "header_value",
    "items",
    "lookup",
    "number",
    "origin_of",
    "own_callback_url",
    "parse_retry_after",
    "redact",
    "refuse_local",
    "segment",
    "short",
    "shown",
    "signature_bytes",
    "split_paths",
    "text_tuple",
]
