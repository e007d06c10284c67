"""Asking for the claim: `ensure_held()`, immediately before the wire."""

from __future__ import annotations

from coatcheck_conformance.handler.calls import Call, Certainty, Claim
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Holding"]


def _gone() -> bool:
    return True


def _nothing_sent(call: Call, what: str) -> None:
    assert not call.creating, (
        f"{what}: {call.traffic} was sent all the same; call context.ensure_held() right before writing"
    )


class Holding(Suite):
    """`context.ensure_held()` raises once the claim is lost, and is called immediately before writing to the wire."""

    @handler_rule("HANDLER-HELD-1")
    async def test_a_lost_claim_sends_nothing(self, trial: Trial) -> None:
        """`ensure_held()` is called before each creating request, at every attempt: what was given up sends nothing."""
        for attempts in (0, 1, 4):
            call = await trial.submit(claim=Claim(lost=_gone), submit_attempts=attempts, query_count=attempts)
            _nothing_sent(call, f"the claim was lost, after {attempts} attempts")
            await trial.submit()

    @handler_rule("HANDLER-HELD-2")
    async def test_a_claim_lost_while_preparing_sends_nothing(self, trial: Trial) -> None:
        """`ensure_held()` is called after whatever takes time, such as a download, immediately before the write."""
        await trial.submit()
        before = len(trial.server.requests)
        if before == 1:
            return  # nothing goes before the creating request
        call = await trial.submit(claim=Claim(lost=lambda: len(trial.server.requests) > before))
        prepared = len(trial.server.requests) - before - len(call.creating)
        if prepared:  # else it keeps what it fetched, and the wire begins at once
            _nothing_sent(call, f"the claim was lost during the {prepared} requests that go first")

    @handler_rule("HANDLER-HELD-3")
    async def test_a_lost_claim_is_certain(self, trial: Trial) -> None:
        """`LeaseLost` comes out of `submit` as it is: nothing was sent, so the task is not left in doubt."""
        call = await trial.submit(claim=Claim(lost=_gone))
        found = trial.certainty(call)
        assert found is Certainty.DEFERRED, (
            f"a claim lost before the wire is {found}; submit came to {call.told}"
        )
