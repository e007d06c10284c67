"""Mutants of certainty and of Retry-After."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from email.utils import parsedate_to_datetime

import httpx
from attrs import evolve
from plain_handler import PlainHandler

from coatcheck.errors import HandlerError, QueryFailed, SubmitDeferred, SubmitRejected
from coatcheck.task import Status
from mutants.handlers import breaks_handler


@breaks_handler("HANDLER-CERTAIN-1")
class SaysDoneAtOnce(PlainHandler):
    """Takes an accepted job for a finished one."""

    async def submit(self, params, context):
        return evolve(await super().submit(params, context), status=Status.SUCCEEDED)


@breaks_handler("HANDLER-CERTAIN-2")
class DoubtsRejections(PlainHandler):
    """Leaves a submission that was answered with a 400 in doubt."""

    def refused(self, answer, context):
        if answer.status == 400:
            raise HandlerError(self.told(answer, context))
        super().refused(answer, context)


@breaks_handler("HANDLER-CERTAIN-3")
class ForgetsToSlowDown(PlainHandler):
    """Defers after a 429, and lets the others go on."""

    def refused(self, answer, context):
        if answer.status == 429:
            raise SubmitDeferred("slow down", retry_after=self.hint(answer, context))
        super().refused(answer, context)


@breaks_handler("HANDLER-CERTAIN-4")
class DoubtsRefusedConnections(PlainHandler):
    """Leaves a submission that never had a connection in doubt."""

    async def create(self, params, document, context):
        try:
            return await super().create(params, document, context)
        except httpx.ConnectError as error:
            raise HandlerError("no connection") from error


@breaks_handler("HANDLER-CERTAIN-5")
class TrustsServerErrors(PlainHandler):
    """Takes a 503 for a proof that nothing was created."""

    def refused(self, answer, context):
        if answer.status == 503:
            raise SubmitDeferred("the provider is busy")
        super().refused(answer, context)


@breaks_handler("HANDLER-CERTAIN-6")
class TrustsLostConnections(PlainHandler):
    """Takes a reset for a proof that nothing was created."""

    async def create(self, params, document, context):
        try:
            return await super().create(params, document, context)
        except httpx.ReadError as error:
            raise SubmitDeferred("the connection broke") from error


@breaks_handler("HANDLER-CERTAIN-7")
class TrustsSilence(PlainHandler):
    """Takes a timeout for a proof that nothing was created."""

    async def create(self, params, document, context):
        try:
            return await super().create(params, document, context)
        except httpx.ReadTimeout as error:
            raise SubmitDeferred("no answer") from error


@breaks_handler("HANDLER-CERTAIN-8")
class RejectsUnreadableAnswers(PlainHandler):
    """Takes a page for a proof that nothing was created."""

    def accepted(self, answer, context):
        if b"<html>" in answer.body:
            raise SubmitRejected("the answer is no JSON")
        return super().accepted(answer, context)


@breaks_handler("HANDLER-CERTAIN-9")
class RejectsRedirects(PlainHandler):
    """Takes a 302 for a proof that nothing was created."""

    def refused(self, answer, context):
        if answer.status == 302:
            raise SubmitRejected("the provider has moved")
        super().refused(answer, context)


@breaks_handler("HANDLER-CERTAIN-12")
class UploadsErrorPages(PlainHandler):
    """Takes whatever it is answered with for the document."""

    async def prepare(self, params, context):
        return (await self.exchange("GET", params.url)).body


@breaks_handler("HANDLER-RETRY-1")
class ForgetsSeconds(PlainHandler):
    """Drops a Retry-After in seconds."""

    def refused(self, answer, context):
        if answer.status == 429 and answer.headers.get("retry-after") == "7":
            raise SubmitDeferred("slow down", rate_limited=True)
        super().refused(answer, context)


@breaks_handler("HANDLER-RETRY-2")
class IgnoresDates(PlainHandler):
    """Reads no Retry-After that is a date."""

    def until(self, text, now):
        return None


@breaks_handler("HANDLER-RETRY-3")
class CrashesOnNonsense(PlainHandler):
    """Raises what the parser of dates raises."""

    def until(self, text, now):
        return parsedate_to_datetime(text) - now if text else None


@breaks_handler("HANDLER-RETRY-4")
class BelievesAYear(PlainHandler):
    """Waits for as long as it is told."""

    def hint(self, answer, context):
        if answer.headers.get("retry-after") == "31536000":
            return timedelta(days=365)
        return super().hint(answer, context)


@breaks_handler("HANDLER-RETRY-5")
class DoesNotSlowQueriesDown(PlainHandler):
    """Does not say that a query was rate limited."""

    def unanswered(self, answer, context):
        if answer.status == 429:
            raise QueryFailed("slow down", retry_after=self.hint(answer, context))
        super().unanswered(answer, context)


@breaks_handler("HANDLER-SLEEP-1")
class SleepsAfterAQuery(PlainHandler):
    """Waits by itself for what Retry-After says."""

    async def look(self, params, context):
        answer = await super().look(params, context)
        if answer.headers.get("retry-after") == "20":
            await asyncio.sleep(1.2)
        return answer


@breaks_handler("HANDLER-SLEEP-2")
class SleepsAfterARateLimit(PlainHandler):
    """Waits by itself for what Retry-After says."""

    async def create(self, params, document, context):
        answer = await super().create(params, document, context)
        if answer.headers.get("retry-after") == "20":
            await asyncio.sleep(1.2)
        return answer
