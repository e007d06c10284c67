"""Errors of Google's APIs: words, their numbers, and what they mean.

Words and numbers are those of Google's common status codes (`google.rpc.Code`), as generally known: the file itself was
not at hand.
"""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.task import JSON
from coatcheck_http.classify import ErrorClass
from coatcheck_http.extract import lookup

__all__ = ["ERROR_CLASSES", "code_of"]

_CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""By their numbers."""

ERROR_CLASSES: Mapping[str, ErrorClass] = {
    "ABORTED": ErrorClass.PROVIDER_UNAVAILABLE,
    "ALREADY_EXISTS": ErrorClass.INVALID_REQUEST,
    "CANCELLED": ErrorClass.PROVIDER_UNAVAILABLE,
    "DATA_LOSS": ErrorClass.PROVIDER_UNAVAILABLE,
    "DEADLINE_EXCEEDED": ErrorClass.PROVIDER_UNAVAILABLE,
    "FAILED_PRECONDITION": ErrorClass.INVALID_REQUEST,
    "INTERNAL": ErrorClass.PROVIDER_UNAVAILABLE,
    "INVALID_ARGUMENT": ErrorClass.INVALID_REQUEST,
    "NOT_FOUND": ErrorClass.NOT_FOUND_OR_EXPIRED,
    "OUT_OF_RANGE": ErrorClass.INVALID_REQUEST,
    "PERMISSION_DENIED": ErrorClass.AUTH,
    "RESOURCE_EXHAUSTED": ErrorClass.RATE_LIMITED,
    "UNAUTHENTICATED": ErrorClass.AUTH,
    "UNAVAILABLE": ErrorClass.PROVIDER_UNAVAILABLE,
    "UNIMPLEMENTED": ErrorClass.INVALID_REQUEST,
    "UNKNOWN": ErrorClass.PROVIDER_UNAVAILABLE,
}
"""What the words mean; a limit of rate and a quota are one there."""


def code_of(status: JSON) -> str | None:
    """Return the word for the code of a status, or None if there is no error in it."""
    code = lookup(status, "code")
    if isinstance(code, bool) or not isinstance(code, int) or code == 0:
        return None
    return _CODES[code] if 0 < code < len(_CODES) else str(code)
