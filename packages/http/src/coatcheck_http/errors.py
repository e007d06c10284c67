"""Every error that this distribution adds.

::

    HandlerError (coatcheck)
    ├─ NotSent            certain: nothing was written to the wire
    ├─ AnswerLost         something was written, and its answer was lost
    ├─ OutcomeUnknown     an answer came that proves neither that the job exists nor that it does not
    ├─ UnreadableAnswer   the answer is not what the provider's documentation says
    ├─ UntrustedUrl       a URL would take credentials to a server that was not named for them
    └─ DownloadFailed (.final, .status)
       └─ AddressRefused  a document's or a result's URL leads into a private network

Raised by `HttpHandler.submit`, all of them leave the task's fate to the rules of coatcheck: what came before
the wire is deferred, what came after it leaves the outcome unknown.
"""

from __future__ import annotations

from coatcheck.errors import HandlerError

__all__ = [
    "AddressRefused",
    "AnswerLost",
    "DownloadFailed",
    "NotSent",
    "OutcomeUnknown",
    "UnreadableAnswer",
    "UntrustedUrl",
]


class NotSent(HandlerError):
    """Nothing was written to the wire: no address, no connection, no handshake, or no time left."""


class AnswerLost(HandlerError):
    """The request was written, in part or whole, and its answer did not come, or not to its end."""


class OutcomeUnknown(HandlerError):
    """An answer came that proves neither that the job was created nor that it was not."""


class UnreadableAnswer(HandlerError):
    """The answer is not what the provider's documentation says: no JSON, another shape, too large."""


class UntrustedUrl(HandlerError):
    """A URL, such as one that a provider supplied, is not of an origin that may see the credentials."""


class DownloadFailed(HandlerError):
    """A document or a result could not be fetched.

    `final` tells that trying again is of no use, as after a 404; `status` is the HTTP status, if any came.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        final: bool = False,
        status: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.final = final
        self.status = status


class AddressRefused(DownloadFailed):
    """The URL, or a redirect, leads to an address that is not public."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="address_refused", final=True)
