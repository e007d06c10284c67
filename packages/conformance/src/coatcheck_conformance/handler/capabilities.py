"""What is optional: declared and true, or not declared and `Unsupported`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

from coatcheck.errors import Unsupported
from coatcheck.handler import CallbackRequest, CancelContext, Capability, QueryContext, SubmitContext
from coatcheck.task import CancelOutcome
from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.faults import lost
from coatcheck_conformance.handler.script import Cancelling
from coatcheck_conformance.handler.trial import IDEMPOTENCY_KEY, Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Cancellation", "Declared", "Idempotency"]


class Declared(Suite):
    """What is optional is told by `capabilities`, and verified both ways."""

    @handler_rule("HANDLER-CAPABILITY-1")
    async def test_what_is_not_declared_is_unsupported(self, trial: Trial) -> None:
        """An optional method that is not among `capabilities` raises `Unsupported`."""
        handler, job = trial.handler, await trial.accepted()
        params = cast("Any", trial.params)
        submit, cancel = trial.context(SubmitContext), trial.context(CancelContext)
        contexts = {job.external_task_id: trial.context(QueryContext)}
        request = CallbackRequest(method="POST", path="/", headers={})
        methods: dict[Capability, Callable[[], Awaitable[object]]] = {
            Capability.QUERY_MANY: lambda: handler.query_many([job], contexts),
            Capability.CANCEL: lambda: handler.cancel(job, cancel),
            Capability.FIND_SUBMISSION: lambda: handler.find_submission(params, submit),
            Capability.CALLBACK: lambda: handler.parse_callback(request, None),
        }
        for capability, call in methods.items():
            if capability in handler.capabilities:
                continue
            try:
                answer = await call()
            except Unsupported:
                continue
            except Exception as error:  # noqa: BLE001 - told below
                answer = error
            message = f"{capability} is not declared and must raise Unsupported; it came to {answer!r}"
            raise AssertionError(message)

    @handler_rule("HANDLER-CAPABILITY-2")
    async def test_capabilities_are_words_of_the_contract(self, trial: Trial) -> None:
        """`capabilities` is a frozen set of `Capability`, the same every time."""
        found = trial.handler.capabilities
        assert isinstance(found, frozenset)
        assert all(isinstance(each, Capability) for each in found), f"capabilities are {found!r}"
        assert found == trial.create().capabilities


class Idempotency(Suite):
    """Where the provider deduplicates on our key, the key is passed on."""

    async def _keys(self, trial: Trial, attempts: int) -> set[str]:
        call = await trial.submit(submit_attempts=attempts)
        token = re.escape(trial.spec.idempotency_token(IDEMPOTENCY_KEY))
        around = re.compile(rf"[\w.:-]*{token}[\w.:-]*")
        found = set[str]()
        for sent in call.creating:
            text = " ".join([sent.target, *sent.headers.values(), sent.body.decode("utf-8", "replace")])
            found.update(around.findall(text))
        return found

    @handler_rule("HANDLER-IDEMPOTENCY-1", requires=(Capability.IDEMPOTENT_SUBMIT,))
    async def test_the_key_is_sent(self, trial: Trial) -> None:
        """`context.idempotency_key` is sent with the creating request, where `idempotency_window` is declared."""
        assert await self._keys(trial, 0), (
            "the creating request does not hold context.idempotency_key, or what spec.idempotency_token makes of it"
        )

    @handler_rule("HANDLER-IDEMPOTENCY-2", requires=(Capability.IDEMPOTENT_SUBMIT,))
    async def test_the_key_is_the_same_at_every_attempt(self, trial: Trial) -> None:
        """The idempotency key is the same at every attempt of a task."""
        first = await self._keys(trial, 0)
        assert await self._keys(trial, 3) == first, "a later attempt sends another key"

    @handler_rule("HANDLER-IDEMPOTENCY-3", requires=(Capability.IDEMPOTENT_SUBMIT,))
    async def test_the_window_is_a_time(self, trial: Trial) -> None:
        """`idempotency_window` is how long the provider deduplicates: a positive `timedelta`."""
        window = trial.handler.idempotency_window
        assert isinstance(window, timedelta), f"idempotency_window is {window!r}"
        assert window > timedelta(), f"idempotency_window is {window!r}"


def _cancelling(trial: Trial) -> Cancelling:
    script = trial.script.cancel
    assert script is not None, "the handler declares cancel; give script.cancel"
    return script


class Cancellation(Suite):
    """`cancel()` tells the provider, once, and says what came of it."""

    def _outcome(self, call: Call) -> CancelOutcome:
        assert isinstance(call.answer, CancelOutcome), f"cancel came to {call.told}, not to a CancelOutcome"
        return call.answer

    @handler_rule("HANDLER-CANCEL-1", requires=(Capability.CANCEL,))
    async def test_a_confirmed_cancel_is_confirmed(self, trial: Trial) -> None:
        """`CONFIRMED`: the provider says that the job is cancelled."""
        call = await trial.cancel(_cancelling(trial).confirmed)
        assert self._outcome(call) is CancelOutcome.CONFIRMED, f"script.cancel.confirmed came to {call.told}"

    @handler_rule("HANDLER-CANCEL-2", requires=(Capability.CANCEL,))
    async def test_a_refused_cancel_is_refused(self, trial: Trial) -> None:
        """`REFUSED`: the provider answered that it will not, or cannot any more."""
        refused = _cancelling(trial).refused
        if refused is not None:
            call = await trial.cancel(refused)
            assert self._outcome(call) is CancelOutcome.REFUSED, f"script.cancel.refused came to {call.told}"

    @handler_rule("HANDLER-CANCEL-3", requires=(Capability.CANCEL,))
    async def test_a_cancel_without_an_answer_is_unknown(self, trial: Trial) -> None:
        """`UNKNOWN`, or an error: the call failed or stayed unanswered, so nobody knows."""
        replies = {str(status): trial.error_reply(status) for status in (500, 503)}
        for name, reply in {**replies, **lost(_cancelling(trial).confirmed)}.items():
            call = await trial.cancel(reply)
            assert call.error is not None or self._outcome(call) is CancelOutcome.UNKNOWN, (
                f"{name}: cancel came to {call.told}"
            )

    @handler_rule("HANDLER-CANCEL-4", requires=(Capability.CANCEL,))
    async def test_a_cancel_is_one_request(self, trial: Trial) -> None:
        """A cancel is one request, and creates nothing."""
        call = await trial.cancel(_cancelling(trial).confirmed)
        assert len(call.requests) == 1, f"cancel sent {call.traffic}"
        assert not call.creating, (
            f"cancel sent {call.traffic}; if that creates nothing, say so by spec.creating"
        )
