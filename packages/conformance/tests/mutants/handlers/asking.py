"""Mutants of query params and queries, and of what the provider's words mean."""

from __future__ import annotations

import itertools
from datetime import timedelta

import httpx
from attrs import evolve
from plain_handler import PlainHandler
from plain_spec import SCRIPT

from coatcheck.errors import HandlerError, QueryFailed
from coatcheck.results import QueryResult
from mutants.handlers import breaks_handler

_numbers = itertools.count()


class Adding(PlainHandler):
    """Adds something to the query params of a submission."""

    async def submit(self, params, context):
        result = await super().submit(params, context)
        assert result.query_params is not None
        return evolve(result, query_params=result.query_params.evolve(**self.more()))

    def more(self):
        raise AssertionError("tell what to add")


@breaks_handler("HANDLER-STORED-1")
class StoresTuples(Adding):
    """Stores what comes back as something else."""

    def more(self):
        return {"size": (210, 297)}


@breaks_handler("HANDLER-STORED-2")
class StoresANumberOfItsOwn(Adding):
    """Stores something else each time."""

    def more(self):
        return {"number": next(_numbers)}


@breaks_handler("HANDLER-STORED-3")
class RemembersItsJobs(PlainHandler):
    """Keeps in memory where a job runs."""

    async def submit(self, params, context):
        result = await super().submit(params, context)
        self.mine = result.query_params
        return result

    async def look(self, params, context):
        mine = getattr(self, "mine", params)
        known = hasattr(self, "mine") and mine.external_task_id == params.external_task_id
        region = params.read("region", str) if known else "nowhere"
        return await self.ask("GET", f"/jobs/{params.external_task_id}", context, params={"region": region})


@breaks_handler("HANDLER-UPGRADE-1")
class CannotReadOldParams(PlainHandler):
    """Takes old params for new ones."""

    def upgrade_params(self, raw, version):
        return raw


@breaks_handler("HANDLER-UPGRADE-2")
class CannotReadOldQueryParams(PlainHandler):
    """Takes old query params for new ones."""

    def upgrade_query_params(self, params, version):
        return params


@breaks_handler("HANDLER-UPGRADE-3", script=evolve(SCRIPT, previous=None))
class ShowsNothingOfTheVersionBefore(PlainHandler):
    """Has a new version, and nothing to try it on."""


class Looking(PlainHandler):
    """Looks once more when `again` says so."""

    async def look(self, params, context):
        answer = await super().look(params, context)
        return await super().look(params, context) if self.again(answer) else answer

    def again(self, answer):
        raise AssertionError("tell when")


@breaks_handler("HANDLER-QUERY-1")
class LooksTwice(Looking):
    """Looks again at once while a job goes on."""

    def again(self, answer):
        return b"printing" in answer.body


@breaks_handler("HANDLER-QUERY-2")
class RetriesQueries(Looking):
    """Asks again by itself after a 500."""

    def again(self, answer):
        return answer.status == 500


@breaks_handler("HANDLER-QUERY-3")
class QueriesAsItCreates(PlainHandler):
    """Sends a creating request to ask how a job is."""

    async def look(self, params, context):
        return await self.ask("POST", "/jobs", context, params={"region": params.read("region", str)})


@breaks_handler("HANDLER-QUERY-4")
class FailsJobsOnServerErrors(PlainHandler):
    """Takes a 503 for the end of the job."""

    async def query(self, params, context):
        try:
            return await super().query(params, context)
        except QueryFailed as error:
            if "503" in str(error):
                return QueryResult.failed("busy", "the provider is busy")
            raise


@breaks_handler("HANDLER-QUERY-5")
class FailsJobsOnLostConnections(PlainHandler):
    """Takes a reset for the end of the job."""

    async def query(self, params, context):
        try:
            return await super().query(params, context)
        except httpx.ReadError:
            return QueryResult.failed("lost", "the connection broke")


@breaks_handler("HANDLER-QUERY-6")
class FailsJobsOnUnreadableAnswers(PlainHandler):
    """Takes an answer that it cannot read for the end of the job."""

    async def query(self, params, context):
        try:
            return await super().query(params, context)
        except QueryFailed:
            raise
        except HandlerError as error:
            return QueryResult.failed("unreadable", str(error))


class Judging(PlainHandler):
    """Takes the word "stopped", or one that it does not know, in its own way."""

    async def judged(self, document, answer, params, context):
        result = await super().judged(document, answer, params, context)
        return self.taken(document.get("state"), result)

    def taken(self, word, result):
        raise AssertionError("tell how")


@breaks_handler("HANDLER-STATUS-1")
class ForgetsAWord(Judging):
    """Does not know one of the provider's words."""

    def taken(self, word, result):
        return QueryResult.unlisted(word) if word == "stopped" else result


@breaks_handler("HANDLER-STATUS-2")
class RunsForEver(Judging):
    """Takes every word that it does not know for a job that goes on."""

    def taken(self, word, result):
        return QueryResult.running(provider_status=word) if result.verdict == "UNLISTED" else result


@breaks_handler("HANDLER-STATUS-3")
class FailsMissingJobs(PlainHandler):
    """Takes a 404 for a failure of the job."""

    async def query(self, params, context):
        result = await super().query(params, context)
        return QueryResult.failed("gone", "no such job") if result.verdict == "NOT_FOUND" else result


@breaks_handler("HANDLER-STATUS-4")
class HasNoGrace(PlainHandler):
    """Gives a provider no time to find what it has just accepted."""

    not_found_grace = timedelta()


@breaks_handler("HANDLER-STATUS-5")
class SucceedsWithoutAResult(PlainHandler):
    """Takes done for done, with or without a result."""

    async def done(self, document, context):
        if not document.get("link"):
            return QueryResult.succeeded({}, provider_status="printed")
        return await super().done(document, context)


@breaks_handler("HANDLER-STATUS-6")
class ReturnsBytes(PlainHandler):
    """Returns what no store can hold."""

    async def done(self, document, context):
        result = await super().done(document, context)
        return evolve(result, result=b"# Printed") if result.result else result
