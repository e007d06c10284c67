"""What a provider's error means: its class, and what the class says about a submission.

What an operator can mend (a key, a balance, a quota) or time does (a rate) defers a submission; what only the
caller can mend (the request) rejects it. So a key that has expired fails none of the tasks that wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus

from attrs import frozen

__all__ = ["ErrorClass", "ProviderError", "classify"]


class ErrorClass(StrEnum):
    """Kinds of errors, the same for all providers."""

    AUTH = "auth"
    "The credential is missing, wrong, expired, or not allowed to do this."
    INVALID_REQUEST = "invalid_request"
    "The provider cannot take these params."
    UNSUPPORTED_INPUT = "unsupported_input"
    "A format that the provider does not read."
    TOO_LARGE = "too_large"
    "Too many bytes or pages."
    NOT_FOUND_OR_EXPIRED = "not_found_or_expired"
    "No such job: not yet, or not any more."
    RATE_LIMITED = "rate_limited"
    "Too many requests."
    CONCURRENCY_LIMITED = "concurrency_limited"
    "Too many jobs at once."
    QUOTA_OR_BILLING = "quota_or_billing"
    "A quota is used up, or the balance."
    MODERATION = "moderation"
    "The provider refuses the content."
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    "Overloaded, down, or in error."
    TASK_FAILED = "task_failed"
    "The job itself failed; of interest for queries."
    UNKNOWN = "unknown"
    "None of these."


@frozen(kw_only=True)
class ProviderError:
    """An error that a provider answered with, as data."""

    status: int
    """The HTTP status; 200 for those that put errors into good answers."""
    code: str | None = None
    """The provider's code, from the body."""
    message: str = ""
    """The provider's words."""


REJECTED = frozenset(
    {
        ErrorClass.INVALID_REQUEST,
        ErrorClass.UNSUPPORTED_INPUT,
        ErrorClass.TOO_LARGE,
        ErrorClass.NOT_FOUND_OR_EXPIRED,
        ErrorClass.MODERATION,
        ErrorClass.TASK_FAILED,
        ErrorClass.UNKNOWN,
    }
)
"""A submission that is answered so is rejected; the others are deferred."""

RATE = frozenset({ErrorClass.RATE_LIMITED, ErrorClass.CONCURRENCY_LIMITED})
"""The provider asks this caller to slow down."""

MENDABLE: Mapping[ErrorClass, timedelta] = {
    ErrorClass.AUTH: timedelta(minutes=1),
    ErrorClass.QUOTA_OR_BILLING: timedelta(minutes=5),
}
"""What an operator has to mend, and how long to leave him at least; alarmed each time."""

_BY_STATUS = {
    HTTPStatus.UNAUTHORIZED: ErrorClass.AUTH,
    HTTPStatus.PAYMENT_REQUIRED: ErrorClass.QUOTA_OR_BILLING,
    HTTPStatus.FORBIDDEN: ErrorClass.AUTH,
    HTTPStatus.NOT_FOUND: ErrorClass.NOT_FOUND_OR_EXPIRED,
    HTTPStatus.REQUEST_TIMEOUT: ErrorClass.PROVIDER_UNAVAILABLE,
    HTTPStatus.GONE: ErrorClass.NOT_FOUND_OR_EXPIRED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorClass.TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ErrorClass.UNSUPPORTED_INPUT,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorClass.RATE_LIMITED,
}

_BY_WORD = (
    (ErrorClass.RATE_LIMITED, "ratelimit ratequota toomanyrequests throttl slowdown qpslimit"),
    (ErrorClass.CONCURRENCY_LIMITED, "concurren toomanyjobs toomanytasks parallel"),
    (
        ErrorClass.QUOTA_OR_BILLING,
        (
            "quota billing creditbalance insufficientcredit insufficientbalance insufficientfund "
            "balanceexhausted spendlimit usagelimit arrear payment dailylimit"
        ),
    ),
    (ErrorClass.AUTH, "apikey unauthor unauthenticat authentication invalidtoken tokenexpired accessdenied"),
    (ErrorClass.MODERATION, "moderation contentpolicy contentfilter datainspection sensitivecontent"),
    (ErrorClass.TOO_LARGE, "toolarge filesize sizelimit toomanypages pagelimit"),
    (ErrorClass.UNSUPPORTED_INPUT, "unsupportedformat unsupportedfile unsupportedmedia"),
    (
        ErrorClass.PROVIDER_UNAVAILABLE,
        "overload unavailable internalerror internalserver servererror timeout",
    ),
)
_MONEY = ("balance", "billing", "insufficient_quota", "top up", "recharge", "余额", "欠费")


def classify(code: str | None, http_status: int, message: str = "") -> ErrorClass:
    """Return the class of an error: by its code if that tells, else by the HTTP status.

    A 429 is looked at more closely, because several providers use it for an empty balance.
    """
    plain = re.sub(r"[^a-z0-9]", "", (code or "").casefold())
    for found, words in _BY_WORD:
        if any(word in plain for word in words.split()):
            return found
    if http_status == HTTPStatus.TOO_MANY_REQUESTS and any(word in message.casefold() for word in _MONEY):
        return ErrorClass.QUOTA_OR_BILLING
    if http_status in _BY_STATUS:
        return _BY_STATUS[HTTPStatus(http_status)]
    if HTTPStatus.BAD_REQUEST <= http_status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorClass.INVALID_REQUEST
    if http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorClass.PROVIDER_UNAVAILABLE
    return ErrorClass.UNKNOWN
