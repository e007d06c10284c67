"""Mutants of what is optional: capabilities, keys, cancels, look-ups, callbacks."""

from __future__ import annotations

import json

from attrs import evolve
from plain_handler import PlainHandler

from coatcheck.errors import HandlerError
from coatcheck.handler import Capability
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import CancelOutcome
from mutants.handlers import breaks_handler


@breaks_handler("HANDLER-CAPABILITY-1")
class HidesThatItCancels(PlainHandler):
    """Can do more than it says."""

    @property
    def capabilities(self):
        return super().capabilities - {Capability.CANCEL}


@breaks_handler("HANDLER-CAPABILITY-2")
class HasCapabilitiesThatChange(PlainHandler):
    """Gives a set that anybody can change."""

    @property
    def capabilities(self):
        return set(super().capabilities)


@breaks_handler("HANDLER-IDEMPOTENCY-1")
class SendsAnotherKey(PlainHandler):
    """Sends the task's id in place of the key."""

    def reference(self, context):
        return context.task_id


@breaks_handler("HANDLER-IDEMPOTENCY-2")
class SendsAKeyForEachAttempt(PlainHandler):
    """Sends a key that the provider has not seen before."""

    def reference(self, context):
        return f"{context.idempotency_key}-{context.submit_attempts}"


@breaks_handler("HANDLER-IDEMPOTENCY-3")
class TellsItsWindowInSeconds(PlainHandler):
    """Says how long by a bare number."""

    idempotency_window = 86_400  # type: ignore[assignment]  # that is what is wrong


class Cancelling(PlainHandler):
    """Takes one status for something else."""

    status = 0
    outcome = CancelOutcome.CONFIRMED

    async def cancel(self, params, context):
        answer = await self.stop(params, context)
        if answer.status == self.status:
            return self.outcome
        if answer.status == 200:
            return CancelOutcome.CONFIRMED
        return CancelOutcome.REFUSED if answer.status == 409 else CancelOutcome.UNKNOWN


@breaks_handler("HANDLER-CANCEL-1")
class DoubtsConfirmations(Cancelling):
    """Takes a confirmation for nothing."""

    status, outcome = 200, CancelOutcome.UNKNOWN


@breaks_handler("HANDLER-CANCEL-2")
class ConfirmsRefusals(Cancelling):
    """Takes a refusal for a confirmation."""

    status = 409


@breaks_handler("HANDLER-CANCEL-3")
class ConfirmsServerErrors(Cancelling):
    """Takes a 503 for a confirmation."""

    status = 503


@breaks_handler("HANDLER-CANCEL-4")
class CancelsTwice(PlainHandler):
    """Tells the provider twice."""

    async def stop(self, params, context):
        await super().stop(params, context)
        return await super().stop(params, context)


@breaks_handler("HANDLER-FIND-1")
class FindsNothing(PlainHandler):
    """Looks, and finds nothing."""

    async def find_submission(self, params, context):
        await super().find_submission(params, context)


@breaks_handler("HANDLER-FIND-2")
class RaisesWhenItFindsNothing(PlainHandler):
    """Takes nothing for an error."""

    async def find_submission(self, params, context):
        found = await super().find_submission(params, context)
        if found is None:
            raise HandlerError("there is no such job")
        return found


@breaks_handler("HANDLER-FIND-3")
class FindsWhatItCannotSee(PlainHandler):
    """Takes an error for a job."""

    async def find_submission(self, params, context):
        try:
            return await super().find_submission(params, context)
        except HandlerError:
            return SubmitResult.accepted(self.reference(context))


@breaks_handler("HANDLER-FIND-4")
class LooksForTheTitle(PlainHandler):
    """Looks up what the provider was never told."""

    async def find_submission(self, params, context):
        answer = await self.ask("GET", "/jobs", context, params={"reference": params.title})
        if answer.status != 200:
            self.unanswered(answer, context)
        return self.accepted(answer, context) if answer.document.get("id") else None


@breaks_handler("HANDLER-FIND-5")
class CreatesWhatItDoesNotFind(PlainHandler):
    """Creates a job when there is none."""

    async def find_submission(self, params, context):
        found = await super().find_submission(params, context)
        if found is None:
            await self.create(params, b"%PDF", context)
        return found


@breaks_handler("HANDLER-MANY-1")
class MixesJobsUp(PlainHandler):
    """Gives each job the answer of another one."""

    async def query_many(self, batch, contexts):
        answers = await super().query_many(batch, contexts)
        return dict(zip(answers, reversed(list(answers.values())), strict=True))


@breaks_handler("HANDLER-MANY-2")
class InventsAnswers(PlainHandler):
    """Says that a job goes on of which the provider said nothing."""

    async def query_many(self, batch, contexts):
        answers = await super().query_many(batch, contexts)
        return {each.external_task_id: QueryResult.running() for each in batch} | dict(answers)


@breaks_handler("HANDLER-MANY-3")
class AsksOneByOne(PlainHandler):
    """Sends a request for each job."""

    async def query_many(self, batch, contexts):
        found: dict[str, QueryResult | Exception] = {}
        for each in batch:
            found |= await super().query_many([each], contexts)
        return found


@breaks_handler("HANDLER-CALLBACK-1")
class NamesNoJobs(PlainHandler):
    """Authenticates a callback and forgets what it is about."""

    async def parse_callback(self, request, account_id):
        return evolve(await super().parse_callback(request, account_id), external_task_ids=[])


@breaks_handler("HANDLER-CALLBACK-2")
class BelievesEveryCallback(PlainHandler):
    """Checks no signature."""

    def authenticate(self, request, key):
        pass


@breaks_handler("HANDLER-CALLBACK-3")
class CrashesOnOddCallbacks(PlainHandler):
    """Parses before it checks, and raises what the parser raises."""

    async def parse_callback(self, request, account_id):
        json.loads(request.body)
        return await super().parse_callback(request, account_id)
