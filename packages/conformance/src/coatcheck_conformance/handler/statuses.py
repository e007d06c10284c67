"""What the provider's words mean."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.events import GaveUp, StillGoing
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.retry import ExponentialRetry
from coatcheck.task import ErrorCode, Progress, Status
from coatcheck.testing import make_task
from coatcheck.verdicts import Judge
from coatcheck_conformance.handler.script import UNHEARD_OF, Means
from coatcheck_conformance.handler.spec import HandlerHook
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Level, Suite

__all__ = ["Statuses"]

_MEANINGS = {
    Means.WAITING: (Verdict.RUNNING, Status.SUBMITTED),
    Means.RUNNING: (Verdict.RUNNING, Status.RUNNING),
    Means.SUCCEEDED: (Verdict.SUCCEEDED, None),
    Means.FAILED: (Verdict.FAILED, None),
    Means.CANCELED: (Verdict.CANCELED, None),
}


class Statuses(Suite):
    """Verdicts of a query: declared by the handler, enforced by the worker."""

    @handler_rule("HANDLER-STATUS-1")
    async def test_every_word_is_mapped(self, trial: Trial) -> None:
        """Every status word of the provider has its meaning."""
        job = await trial.accepted()
        for word, means in trial.script.words.items():
            found = (await trial.query(trial.script.reply_of(word), job)).queried
            verdict, status = _MEANINGS[means]
            told = found.verdict if status is None else f"{found.verdict}, {found.status}"
            assert found.verdict is verdict, f"the word {word!r}, which means {means}, came to {told}"
            assert status in {None, found.status}, f"the word {word!r}, which means {means}, came to {told}"

    @handler_rule("HANDLER-STATUS-2")
    async def test_an_unknown_word_is_unlisted(self, trial: Trial) -> None:
        """An unlisted provider status is an error with its name, not a silent RUNNING for ever."""
        found = (await trial.query(trial.script.reply_of(UNHEARD_OF))).queried
        assert found.verdict is Verdict.UNLISTED, f"the word {UNHEARD_OF!r} came to {found.verdict}"
        told = found.provider_status
        assert (told or "").casefold() == UNHEARD_OF, f"the word {UNHEARD_OF!r} is passed on as {told!r}"

    @handler_rule("HANDLER-STATUS-3")
    async def test_a_job_that_is_not_there_is_not_found(self, trial: Trial) -> None:
        """Not found is `QueryResult.not_found()`: the worker knows what it means, and when."""
        found = (await trial.query(trial.script.not_found)).queried
        assert found.verdict is Verdict.NOT_FOUND, f"script.not_found came to {found.verdict}"

    @handler_rule("HANDLER-STATUS-4")
    async def test_not_found_has_its_grace(self, trial: Trial) -> None:
        """Not found within a grace period after submit is "not yet", after it `provider_lost`."""
        handler = trial.handler
        assert isinstance(handler.not_found_grace, timedelta), "not_found_grace must be a timedelta"
        judge = Judge(handler=handler, retry=ExponentialRetry(), call_timeout=timedelta(minutes=1))
        job = await trial.accepted()
        task = make_task(
            handler_key=handler.key,
            status=Status.SUBMITTED,
            query_params=job,
            progress=Progress(accepted_at=trial.now),
        )
        soon = trial.now + min(timedelta(seconds=1), handler.not_found_grace / 2)
        assert isinstance(judge.query_answer(task, QueryResult.not_found(), None, soon), StillGoing), (
            f"not_found_grace is {handler.not_found_grace}: a job is lost as soon as it is created"
        )
        late = judge.query_answer(task, QueryResult.not_found(), None, trial.now + timedelta(days=1))
        assert isinstance(late, GaveUp), (
            f"not_found_grace is {handler.not_found_grace}: a lost job is tracked on"
        )
        assert late.error.code == ErrorCode.PROVIDER_LOST

    @handler_rule("HANDLER-STATUS-5", requires=(HandlerHook.WITHOUT_RESULT,))
    async def test_done_without_a_result_is_incomplete(self, trial: Trial) -> None:
        """Done without a result is `QueryResult.incomplete()`, which is asked again, and then a named failure."""
        reply = trial.script.done_without_result
        assert reply is not None
        found = (await trial.query(reply)).queried
        assert found.verdict is Verdict.INCOMPLETE, f"script.done_without_result came to {found.verdict}"

    @handler_rule("HANDLER-STATUS-6")
    async def test_a_result_can_be_stored(self, trial: Trial) -> None:
        """A job that is done has a result, unless it has none by nature; it can be stored as JSON."""
        found = (await trial.query(trial.script.reply_of(trial.word(Means.SUCCEEDED)))).queried
        assert found.result is not None or not trial.script.has_results, (
            "a job that is done has no result; if it has none by nature, say script.has_results=False"
        )
        to_json(found.result, path="result", prove=False)

    @handler_rule("HANDLER-STATUS-7", level=Level.SHOULD)
    async def test_the_word_is_passed_on(self, trial: Trial) -> None:
        """`provider_status` is the provider's own word, for people."""
        job = await trial.accepted()
        for word in trial.script.words:
            found = (await trial.query(trial.script.reply_of(word), job)).queried
            told = found.provider_status
            assert (told or "").casefold() == word.casefold(), f"the word {word!r} is passed on as {told!r}"
