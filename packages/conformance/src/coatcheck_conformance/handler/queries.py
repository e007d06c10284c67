"""One question, one request: what a query sends, and what it makes of no answer."""

from __future__ import annotations

from coatcheck.results import QueryResult, Verdict
from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.faults import SERVER_ERRORS, lost, unreadable
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Queries"]


def _one(call: Call, what: object) -> None:
    assert len(call.requests) == 1, (
        f"{what}: a query sent {len(call.requests)} requests, not one: {call.traffic}; "
        "what fetches a result belongs into script.served"
    )


def _unanswered(call: Call, what: object) -> None:
    assert call.error is not None, (
        f"{what}: the question was not answered, and query came to {call.told}; raise QueryFailed"
    )


class Queries(Suite):
    """`query()` asks once how the job is, and returns the answer."""

    @handler_rule("HANDLER-QUERY-1")
    async def test_a_query_is_one_request(self, trial: Trial) -> None:
        """A query is one request on the wire, apart from fetching a result."""
        job = await trial.accepted()
        for word in trial.script.words:
            _one(await trial.query(trial.script.reply_of(word), job), f"status {word!r}")

    @handler_rule("HANDLER-QUERY-2")
    async def test_a_failed_query_is_one_request(self, trial: Trial) -> None:
        """A query that fails is one request: asking again is the worker's part."""
        job = await trial.accepted()
        for status in (*SERVER_ERRORS, 401, 404, 429):
            _one(await trial.query(trial.error_reply(status), job), status)
        for name, reply in lost(trial.going_on).items():
            _one(await trial.query(reply, job), f"connection {name}")

    @handler_rule("HANDLER-QUERY-3")
    async def test_a_query_creates_nothing(self, trial: Trial) -> None:
        """A query puts no creating request on the wire."""
        call = await trial.query(trial.going_on)
        assert not call.creating, (
            f"a query sent {call.traffic}; if that creates nothing, say so by spec.creating"
        )

    @handler_rule("HANDLER-QUERY-4")
    async def test_an_error_of_the_provider_is_no_answer(self, trial: Trial) -> None:
        """A query that is answered with a 5xx, 401, 403 or 429 is an error, and never the end of the job."""
        job = await trial.accepted()
        for status in (*SERVER_ERRORS, 401, 403, 429):
            _unanswered(await trial.query(trial.error_reply(status), job), status)

    @handler_rule("HANDLER-QUERY-5")
    async def test_a_lost_answer_is_no_answer(self, trial: Trial) -> None:
        """A query whose connection breaks is an error, and never the end of the job."""
        job = await trial.accepted()
        for name, reply in lost(trial.going_on).items():
            _unanswered(await trial.query(reply, job), f"connection {name}")

    @handler_rule("HANDLER-QUERY-6")
    async def test_an_unreadable_answer_is_no_answer(self, trial: Trial) -> None:
        """A query whose answer is malformed is an error, and never the end of the job."""
        job = await trial.accepted()
        for name, reply in unreadable().items():
            call = await trial.query(reply, job)
            if isinstance(call.answer, QueryResult) and call.answer.verdict is Verdict.UNLISTED:
                continue  # it is asked again, with an alarm
            _unanswered(call, f"the answer is {name}")
