"""One call of a handler, as the kit sees it: what it came to, what reached the server, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum

from attrs import define, frozen

from coatcheck.errors import HandlerError, LeaseLost
from coatcheck.events import Deferred, Rejected
from coatcheck.handler import AnyHandler
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.retry import ExponentialRetry
from coatcheck.testing import make_task
from coatcheck.verdicts import Judge
from coatcheck_conformance.handler.replies import Received

__all__ = ["Call", "Certainty", "Claim", "ask_alike", "certainty_of", "texts_of"]


class Certainty(StrEnum):
    """What the worker makes of a submit call."""

    ACCEPTED = "accepted"
    "There is a job."
    REJECTED = "rejected: certainly not created, final"
    DEFERRED = "deferred: certainly not created, may be tried again"
    UNKNOWN = "unknown: nobody can tell"


@define(eq=False)
class Claim:
    """A claim on a task; the handler asks whether it is held."""

    lost: Callable[[], bool] = lambda: False
    asked: int = 0
    """How often the handler asked."""
    on_wire: bool = False
    """Whether it has asked and been told that it is held."""

    def ensure_held(self) -> None:
        """Raise `LeaseLost` once the claim is lost."""
        self.asked += 1
        if self.lost():
            raise LeaseLost("the kit has taken the claim away; nothing may be sent any more")
        self.on_wire = True


@frozen(kw_only=True)
class Call:
    """What one call of the handler came to."""

    answer: object
    error: BaseException | None
    requests: Sequence[Received]
    """What reached the server meanwhile, but for what is served in every situation."""
    creating: Sequence[Received]
    """Those of them that create a job."""
    claim: Claim
    seconds: float
    gave_up: bool
    """Whether the kit's patience was over before the call was."""

    @property
    def told(self) -> str:
        """What it came to, in a few words, for messages."""
        if self.gave_up:
            return "no end within the spec's patience"
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return f"the answer {self.answer!r}"

    @property
    def traffic(self) -> str:
        """What reached the server, for messages."""
        return ", ".join(str(each) for each in self.requests) or "nothing"

    @property
    def submitted(self) -> SubmitResult:
        """The answer of a submit."""
        assert isinstance(self.answer, SubmitResult), (
            f"submit came to {self.told}, not to a SubmitResult; sent was {self.traffic}"
        )
        return self.answer

    @property
    def queried(self) -> QueryResult:
        """The answer of a query."""
        assert isinstance(self.answer, QueryResult), (
            f"query came to {self.told}, not to a QueryResult; sent was {self.traffic}"
        )
        return self.answer


def ask_alike(one: Call, again: Call, other: Call) -> bool:
    """Whether `other` sent the same as `one`, as far as `again`, which is to be the same, did.

    Only paths are compared where queries hold a signature or a time, and so differ each time.
    """
    whole = [str(each) for each in one.requests] == [str(each) for each in again.requests]
    sent = [[str(each) if whole else each.path for each in call.requests] for call in (one, other)]
    return sent[0] == sent[1]


def certainty_of(handler: AnyHandler, call: Call) -> Certainty:
    """Return what the worker makes of a submit call."""
    if call.error is None:
        return Certainty.ACCEPTED if isinstance(call.answer, SubmitResult) else Certainty.UNKNOWN
    judge = Judge(handler=handler, retry=ExponentialRetry(), call_timeout=timedelta(minutes=1))
    task = make_task(handler_key=handler.key)
    event = judge.submit_error(task, call.error, reached_handler=True, on_wire=call.claim.on_wire)
    if isinstance(event, Rejected):
        return Certainty.REJECTED
    return Certainty.DEFERRED if isinstance(event, Deferred) else Certainty.UNKNOWN


def texts_of(call: Call) -> Iterator[str]:
    """Yield every text that a call may leave in the store or in a log: of errors, their causes, and answers."""
    waiting, seen = [call.error], set[int]()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield f"{each} {each!r}"
        if isinstance(each, HandlerError):
            yield str(each.code)
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
    if isinstance(call.answer, (SubmitResult, QueryResult)):
        answer = call.answer
        yield f"{answer.error_code} {answer.error_message} {answer.provider_status}"
