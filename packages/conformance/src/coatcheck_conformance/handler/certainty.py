"""How certain a failed submission is: what the worker concludes from what a handler raises."""

from __future__ import annotations

from coatcheck.errors import SubmitDeferred
from coatcheck_conformance.handler.calls import Call, Certainty
from coatcheck_conformance.handler.faults import (
    CREATED_MAYBE,
    SERVER_ERRORS,
    SILENT,
    lost,
    redirects,
    unreadable,
)
from coatcheck_conformance.handler.replies import Reply
from coatcheck_conformance.handler.server import unused_url
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Level, Suite

__all__ = ["Certain"]


def _is(trial: Trial, call: Call, wanted: Certainty, what: object) -> None:
    found = trial.certainty(call)
    assert found is wanted, (
        f"{what}: the submission is {found}; it must be {wanted}. submit came to {call.told}"
    )


class Certain(Suite):
    """Certainty of a failed submit: what proves that nothing was created, and what proves nothing."""

    @handler_rule("HANDLER-CERTAIN-1")
    async def test_an_accepted_job_has_the_providers_id(self, trial: Trial) -> None:
        """A submission that was accepted is SUBMITTED or RUNNING, with the provider's id."""
        result = (await trial.submit()).submitted
        assert result.status.queryable, f"script.accepted came to {result.status}"
        job = result.query_params and result.query_params.external_task_id
        assert job == trial.script.job, f"the id is {job!r}; script.job is {trial.script.job!r}"

    @handler_rule("HANDLER-CERTAIN-2")
    async def test_a_rejection_is_final(self, trial: Trial) -> None:
        """`SubmitRejected`: the provider answered: not created, final."""
        _is(trial, await trial.submit(trial.script.rejected), Certainty.REJECTED, "script.rejected")

    @handler_rule("HANDLER-CERTAIN-3")
    async def test_a_rate_limit_defers(self, trial: Trial) -> None:
        """`SubmitDeferred`: a 429 certainly created nothing, and also pauses a gate: `rate_limited` is set."""
        call = await trial.submit(trial.script.rate_limited)
        _is(trial, call, Certainty.DEFERRED, "script.rate_limited")
        assert isinstance(call.error, SubmitDeferred), f"script.rate_limited came to {call.told}"
        assert call.error.rate_limited, "SubmitDeferred(rate_limited=True) is what slows the others down"

    @handler_rule("HANDLER-CERTAIN-4")
    async def test_a_refused_connection_defers(self, trial: Trial) -> None:
        """`SubmitDeferred`: a connection that was refused certainly created nothing."""
        handler = await trial.another(unused_url())
        _is(trial, await trial.submit(handler=handler), Certainty.DEFERRED, "connection refused")

    @handler_rule("HANDLER-CERTAIN-5")
    async def test_a_server_error_proves_nothing(self, trial: Trial) -> None:
        """A 5xx is uncertain, but where the provider documents that this answer means "not created"."""
        declared = trial.spec.not_created_statuses
        for status in (*SERVER_ERRORS, *sorted(set(declared) - set(SERVER_ERRORS))):
            wanted = Certainty.DEFERRED if status in declared else Certainty.UNKNOWN
            _is(trial, await trial.submit(trial.error_reply(status)), wanted, status)

    @handler_rule("HANDLER-CERTAIN-6")
    async def test_a_lost_answer_proves_nothing(self, trial: Trial) -> None:
        """Uncertain: the connection broke after the request was read, so the job may exist."""
        for name, reply in lost(trial.script.accepted).items():
            _is(trial, await trial.submit(reply), Certainty.UNKNOWN, f"connection {name}")

    @handler_rule("HANDLER-CERTAIN-7")
    async def test_silence_proves_nothing(self, trial: Trial) -> None:
        """Uncertain: the request was read and no answer came in time, so the job may exist."""
        _is(trial, await trial.submit(SILENT), Certainty.UNKNOWN, "no answer")

    @handler_rule("HANDLER-CERTAIN-8")
    async def test_an_unreadable_answer_proves_nothing(self, trial: Trial) -> None:
        """Uncertain: a good answer that cannot be read, or has no id, so the job may exist."""
        for name, reply in unreadable().items():
            _is(trial, await trial.submit(reply), Certainty.UNKNOWN, f"the answer is {name}")

    @handler_rule("HANDLER-CERTAIN-9")
    async def test_a_redirect_proves_nothing(self, trial: Trial) -> None:
        """Uncertain: after a 301, 302 or 303 the job may well have been created."""
        for status, reply in redirects(trial.script.accepted, foreign=False).items():
            if status in CREATED_MAYBE:
                _is(trial, await trial.submit(reply), Certainty.UNKNOWN, status)

    @handler_rule("HANDLER-CERTAIN-10", level=Level.SHOULD)
    async def test_refused_credentials_defer(self, trial: Trial) -> None:
        """What an operator can mend is deferred: a key that has expired fails none of the tasks that wait."""
        for status in (401, 403):
            _is(trial, await trial.submit(trial.error_reply(status)), Certainty.DEFERRED, status)

    @handler_rule("HANDLER-CERTAIN-11", level=Level.SHOULD)
    async def test_a_request_timeout_proves_nothing(self, trial: Trial) -> None:
        """Uncertain: a gateway answers 408 also for a server that went on working."""
        _is(trial, await trial.submit(trial.error_reply(408)), Certainty.UNKNOWN, 408)

    @handler_rule("HANDLER-CERTAIN-12")
    async def test_what_fails_before_the_wire_is_certain(self, trial: Trial) -> None:
        """Before the wire, as while a document is fetched: nothing is sent, and the failure is certain."""
        good = Reply.of(b"text")
        for name, reply in {
            "500": Reply.of(b"", status=500),
            "404": Reply.of(b"", status=404),
            **lost(good),
        }.items():
            trial.spoiled = reply
            before = len(trial.server.requests)
            call = await trial.submit()
            if len(trial.server.requests) == before + len(call.requests):
                continue  # nothing goes before the creating request
            what = f"what goes first is answered with {name}"
            assert not call.creating, f"{what}: {call.traffic} was sent all the same"
            found = trial.certainty(call)
            assert found in {Certainty.DEFERRED, Certainty.REJECTED}, (
                f"{what}: the submission is {found}; submit came to {call.told}"
            )
