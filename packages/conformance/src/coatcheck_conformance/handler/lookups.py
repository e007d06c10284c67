"""Looking jobs up: by our own reference, and several at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from attrs import evolve

from coatcheck.handler import Capability
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import QueryParams
from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.faults import lost
from coatcheck_conformance.handler.replies import Reply, as_reply
from coatcheck_conformance.handler.script import Finding, Means
from coatcheck_conformance.handler.trial import IDEMPOTENCY_KEY, TASK_ID, Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Finds", "Many"]

_OTHER_JOB = "kit-job-2"


def _finding(trial: Trial) -> Finding:
    script = trial.script.find
    assert script is not None, "the handler declares find_submission; give script.find"
    return script


class Finds(Suite):
    """`find_submission()` looks a job up by our own reference; only a positive answer counts."""

    @handler_rule("HANDLER-FIND-1", requires=(Capability.FIND_SUBMISSION,))
    async def test_a_job_that_is_there_is_found(self, trial: Trial) -> None:
        """A job that the provider knows by our reference is returned as a `SubmitResult`, with its id."""
        call = await trial.find(_finding(trial).found)
        assert isinstance(call.answer, SubmitResult), f"script.find.found came to {call.told}"
        assert call.answer.query_params is not None
        assert call.answer.query_params.external_task_id == trial.script.job

    @handler_rule("HANDLER-FIND-2", requires=(Capability.FIND_SUBMISSION,))
    async def test_nothing_found_is_none(self, trial: Trial) -> None:
        """None is "nothing found"."""
        call = await trial.find(_finding(trial).nothing)
        assert call.error is None, f"script.find.nothing came to {call.told}"
        assert call.answer is None, f"script.find.nothing came to {call.told}"

    @handler_rule("HANDLER-FIND-3", requires=(Capability.FIND_SUBMISSION,))
    async def test_a_failed_look_up_finds_nothing(self, trial: Trial) -> None:
        """A look-up that fails is an error or None, and never a job."""
        replies = {str(status): trial.error_reply(status) for status in (500, 503, 429)}
        for name, reply in {**replies, **lost(_finding(trial).found)}.items():
            call = await trial.find(reply)
            assert call.answer is None, f"{name}: a look-up that failed came to {call.told}"

    @handler_rule("HANDLER-FIND-4", requires=(Capability.FIND_SUBMISSION,))
    async def test_the_reference_is_the_one_that_was_sent(self, trial: Trial) -> None:
        """A look-up goes by our own reference, which the creating request has told the provider."""
        told = (await trial.submit()).creating
        asked = (await trial.find(_finding(trial).found)).requests
        references = (TASK_ID, IDEMPOTENCY_KEY)
        assert any(
            any(each.holds(reference) for each in told) and any(each.holds(reference) for each in asked)
            for reference in references
        ), "neither the task's id nor the idempotency key is both in the creating request and in the look-up"

    @handler_rule("HANDLER-FIND-5", requires=(Capability.FIND_SUBMISSION,))
    async def test_a_look_up_creates_nothing(self, trial: Trial) -> None:
        """A look-up puts no creating request on the wire, whether it finds something or not."""
        for reply in (_finding(trial).found, _finding(trial).nothing):
            call = await trial.find(reply)
            assert not call.creating, f"a look-up sent {call.traffic}"


class Many(Suite):
    """`query_many()` asks about several jobs of one account in one request."""

    async def _asked(self, trial: Trial, told: Mapping[str, str]) -> tuple[Call, Mapping[str, object]]:
        """Ask about two jobs while the provider tells of these, by id with their words."""
        batch: Sequence[QueryParams] = [
            job := await trial.accepted(),
            evolve(job, external_task_id=_OTHER_JOB),
        ]
        call = await trial.query_many(self._reply(trial, told), batch)
        assert isinstance(call.answer, Mapping), f"query_many came to {call.told}, not to answers by id"
        return call, cast("Mapping[str, object]", call.answer)

    def _reply(self, trial: Trial, told: Mapping[str, str]) -> Reply:
        assert trial.script.many is not None, "the handler declares query_many; give script.many"
        return as_reply(trial.script.many.status(told))

    @handler_rule("HANDLER-MANY-1", requires=(Capability.QUERY_MANY,))
    async def test_each_job_has_its_own_answer(self, trial: Trial) -> None:
        """Answers are by external id, each with the meaning of its own status word."""
        going_on, done = trial.word(Means.RUNNING, Means.WAITING), trial.word(Means.SUCCEEDED)
        for words in ((going_on, done), (done, going_on)):
            told = dict(zip((trial.script.job, _OTHER_JOB), words, strict=True))
            _, answers = await self._asked(trial, told)
            for job, word in told.items():
                wanted = Verdict.SUCCEEDED if word == done else Verdict.RUNNING
                answer = answers.get(job)
                assert isinstance(answer, QueryResult), (
                    f"job {job!r} with the word {word!r} came to {answer!r}"
                )
                assert answer.verdict is wanted, (
                    f"job {job!r} with the word {word!r} came to {answer.verdict}"
                )

    @handler_rule("HANDLER-MANY-2", requires=(Capability.QUERY_MANY,))
    async def test_a_job_that_is_left_out_has_no_answer(self, trial: Trial) -> None:
        """A job that the answer leaves out is missing or an error, and never has another one's answer."""
        _, answers = await self._asked(trial, {trial.script.job: trial.word(Means.SUCCEEDED)})
        other = answers.get(_OTHER_JOB)
        allowed = other is None or isinstance(other, Exception)
        assert allowed or (isinstance(other, QueryResult) and other.verdict is Verdict.NOT_FOUND), (
            f"a job that the answer leaves out came to {other!r}"
        )

    @handler_rule("HANDLER-MANY-3", requires=(Capability.QUERY_MANY,))
    async def test_several_jobs_are_one_request(self, trial: Trial) -> None:
        """Several jobs are asked about in one request, which creates nothing."""
        word = trial.word(Means.RUNNING, Means.WAITING)
        call, _ = await self._asked(trial, {trial.script.job: word, _OTHER_JOB: word})
        assert len(call.requests) == 1, f"query_many sent {call.traffic}"
        assert not call.creating, (
            f"query_many sent {call.traffic}; if that creates nothing, say so by spec.creating"
        )
