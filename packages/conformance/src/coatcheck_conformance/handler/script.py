"""The author's part: what the provider answers in each situation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from attrs import field, frozen

from coatcheck.handler import CallbackRequest
from coatcheck.task import JSON, QueryParams
from coatcheck_conformance.handler.replies import Body, Reply, as_reply

__all__ = ["Callbacks", "Cancelling", "Finding", "Means", "Previous", "QueryingMany", "Script"]

UNHEARD_OF = "kit_unheard_of"
"""A status word that no provider has."""


class Means(StrEnum):
    """What a provider's status word means."""

    WAITING = "waiting"
    "Accepted, not begun."
    RUNNING = "running"
    "Begun."
    SUCCEEDED = "succeeded"
    "Done, with a result."
    FAILED = "failed"
    "Ended without one."
    CANCELED = "canceled"
    "Cancelled at the provider."


def _error(message: str) -> JSON:
    return {"error": {"code": "E1000", "message": message}}


@frozen(kw_only=True)
class Cancelling:
    """What the provider answers when it is told to cancel."""

    confirmed: Reply = field(converter=as_reply)
    refused: Reply | None = None
    """That it will not, or cannot any more; None if there is no such answer."""


@frozen(kw_only=True)
class Finding:
    """What the provider answers when a job is looked up by our own reference."""

    found: Reply = field(converter=as_reply)
    """There is the job of `Script.job`."""
    nothing: Reply = field(converter=as_reply)
    """There is none."""


@frozen(kw_only=True)
class QueryingMany:
    """What the provider answers when it is asked about several jobs in one request."""

    status: Callable[[Mapping[str, str]], Body]
    """The reply about these jobs, by id, with the status word of each."""


@frozen(kw_only=True)
class Callbacks:
    """Callbacks as the provider sends them, about the job `Script.job`, for the default account."""

    authentic: CallbackRequest
    forged: CallbackRequest
    """As authentic, but for what proves where it comes from."""


@frozen(kw_only=True)
class Previous:
    """What is stored by the version before: the handler must still read it. ``{server}`` in texts is the url."""

    version: int
    """The `params_version` under which it was stored."""
    params: JSON = None
    """Stored params; None if their shape has not changed."""
    query_params: QueryParams | None = None
    """Stored query params; None if their shape has not changed."""


@frozen(kw_only=True)
class Script:
    """What the provider answers in each situation. Where a `Reply` is taken, the body of a good one will do."""

    job: str
    """The id of the job in `accepted`."""
    accepted: Reply = field(converter=as_reply)
    """The answer to a creating request: the job was created."""
    status: Callable[[str], Body]
    """The answer to a query of a job with this status word, with whatever goes with it, such as a result."""
    words: Mapping[str, Means]
    """Every status word of the provider, as it sends them."""
    rejected: Reply = field(default=Reply.of(_error("no such format"), status=400), converter=as_reply)
    """The answer to a creating request that the provider will never take."""
    rate_limited: Reply = field(default=Reply.of(_error("slow down"), status=429), converter=as_reply)
    """The answer to a caller who is too fast. `Retry-After` is added by the rules."""
    not_found: Reply = field(default=Reply.of(_error("no such job"), status=404), converter=as_reply)
    """The answer to a query of a job that the provider does not know."""
    error: Callable[[str], JSON] = _error
    """The body of an error, with this message for people."""
    done_without_result: Reply | None = None
    """The answer to a query that says done and has no result."""
    has_results: bool = True
    """False if a job that is done has no result by nature."""
    served: Mapping[str, Body] = field(factory=dict)
    """What is answered in every situation to requests for these paths, such as that of a document that the handler
    downloads first, of a token, or of a result that it fetches. A method may go before the path."""
    cancel: Cancelling | None = None
    find: Finding | None = None
    many: QueryingMany | None = None
    callbacks: Callbacks | None = None
    previous: Previous | None = None

    def word(self, *meanings: Means) -> str | None:
        """Return the first status word with one of these meanings, or None."""
        return next((word for word, means in self.words.items() if means in meanings), None)

    def reply_of(self, word: str) -> Reply:
        """Return the answer to a query of a job with this status word."""
        return as_reply(self.status(word))

    def problems(self) -> Sequence[str]:
        """Return what makes it unusable, a line each."""
        found = []
        if not self.job.strip():
            found.append("script.job is blank; give the id of the job in script.accepted")
        if self.job.encode() not in self._accepted_text():
            found.append(f"script.accepted does not hold the job's id {self.job!r}; put it there")
        if self.word(Means.WAITING, Means.RUNNING) is None:
            found.append("script.words has no word for a job that goes on (Means.WAITING or RUNNING)")
        if self.word(Means.SUCCEEDED) is None:
            found.append("script.words has no word for a job that is done (Means.SUCCEEDED)")
        if any(each.startswith(("http:", "https:")) for each in self.served):
            found.append("script.served has a whole URL; give paths, such as '/document.pdf'")
        return found

    def _accepted_text(self) -> bytes:
        reply = self.accepted
        headers = " ".join(reply.headers.values())
        return b" ".join([reply.body, reply.bytes_sent or b"", headers.encode()])
