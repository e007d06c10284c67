"""From a provider's error to what a submit or a query raises: pure functions of data."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import timedelta
from http import HTTPStatus

from attrs import frozen

from coatcheck.errors import HandlerError, QueryFailed, SubmitDeferred, SubmitRejected
from coatcheck.results import QueryResult
from coatcheck_http.classify import MENDABLE, RATE, REJECTED, ErrorClass, ProviderError
from coatcheck_http.errors import OutcomeUnknown

__all__ = ["Verdicts"]

_REPEAT_ELSEWHERE = frozenset({HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT})


@frozen(kw_only=True)
class Verdicts:
    """What a provider's errors prove, with the declarations of one handler."""

    classify: Callable[[str | None, int, str], ErrorClass]
    not_created_statuses: AbstractSet[int]
    """HTTP statuses that this provider documents as "not created"."""
    known_codes: AbstractSet[str]
    """Codes that the handler lists, and so vouches for."""
    not_created_codes: AbstractSet[str]
    """Codes that mean "not created", though their class or status alone would not prove it."""

    def of_submit(
        self, error: ProviderError, retry_after: timedelta | None, *, mended: bool = False
    ) -> HandlerError:
        """Return what to raise for a submission that was answered with an error.

        `mended` tells that nobody needs to be waited for: the refused credentials are gone, and others come.

        An answer that may come from something in between (5xx, a redirect, "unavailable" in a good answer)
        proves nothing, unless the handler has declared that it does.
        """
        found = self.classify(error.code, error.status, error.message)
        text = _text(error, found)
        if not self._proves_not_created(error, found):
            return OutcomeUnknown(text, code=error.code or str(found), retry_after=retry_after)
        if error.status in _REPEAT_ELSEWHERE:
            return SubmitDeferred(
                f"{text}; redirects are not followed, so set base_url to where it leads",
                code=error.code or "redirected",
                retry_after=max(retry_after or timedelta(), timedelta(minutes=1)),
            )
        if found in REJECTED:
            return SubmitRejected(text, code=error.code or str(found))
        return SubmitDeferred(
            text,
            code=error.code or str(found),
            retry_after=retry_after if mended else _wait(found, retry_after),
            rate_limited=found in RATE,
            blames_provider=found not in MENDABLE,
        )

    def of_query(
        self, error: ProviderError, retry_after: timedelta | None, *, mended: bool = False
    ) -> QueryResult | QueryFailed:
        """Return what a query that was answered with an error comes to: an answer, or an error to raise."""
        found = self.classify(error.code, error.status, error.message)
        text = _text(error, found)
        if found is ErrorClass.NOT_FOUND_OR_EXPIRED:
            return QueryResult.not_found(text, code=error.code)
        if found is ErrorClass.TASK_FAILED:
            return QueryResult.failed(error.code, error.message or text)
        return QueryFailed(
            text,
            code=error.code or str(found),
            retry_after=retry_after if mended else _wait(found, retry_after),
            rate_limited=found in RATE,
        )

    def _proves_not_created(self, error: ProviderError, found: ErrorClass) -> bool:
        if error.status in self.not_created_statuses or error.code in self.not_created_codes:
            return True
        unavailable = found is ErrorClass.PROVIDER_UNAVAILABLE
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return error.code in self.known_codes and not unavailable
        if error.status >= HTTPStatus.BAD_REQUEST:
            # a gateway answers 408 also for a server that went on working
            return error.status != HTTPStatus.REQUEST_TIMEOUT
        if error.status >= HTTPStatus.MULTIPLE_CHOICES:
            # 307 and 308 say "not here, ask there"; after 301 to 303 the job may well have been created
            return error.status in _REPEAT_ELSEWHERE
        return not unavailable


def _wait(found: ErrorClass, retry_after: timedelta | None) -> timedelta | None:
    least = MENDABLE.get(found)
    return retry_after if least is None else max(retry_after or timedelta(), least)


def _text(error: ProviderError, found: ErrorClass) -> str:
    code = f", code {error.code!r}" if error.code else ""
    words = f": {error.message}" if error.message else ""
    return f"the provider answered HTTP {error.status}{code} ({found}){words}"
