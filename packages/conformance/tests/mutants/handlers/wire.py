"""Mutants of what reaches the wire: second requests, redirects, claims that nobody asks for."""

from __future__ import annotations

import httpx
from attrs import evolve
from plain_handler import PlainHandler
from plain_models import Answer, Printing

from coatcheck.errors import LeaseLost, SubmitDeferred
from coatcheck.handler import SubmitContext
from coatcheck.results import SubmitResult
from mutants.handlers import breaks_handler


class Sending(PlainHandler):
    """Sends once more when `again` says so."""

    async def create(self, params: Printing, document: bytes, context: SubmitContext) -> Answer:
        try:
            answer = await super().create(params, document, context)
        except Exception as error:
            if not self.after_error(error):
                raise
            return await super().create(params, document, context)
        return await super().create(params, document, context) if self.again(answer) else answer

    def again(self, answer: Answer) -> bool:
        return False

    def after_error(self, error: Exception) -> bool:
        return False


@breaks_handler("HANDLER-WIRE-1")
class SendsTwice(Sending):
    """Sends the creating request again when it went well, as by a hedge."""

    def again(self, answer):
        return answer.status == 200 and b"region" in answer.body


@breaks_handler("HANDLER-WIRE-2")
class RetriesLostAnswers(Sending):
    """Sends again when the connection is reset before an answer."""

    def after_error(self, error):
        return isinstance(error, httpx.ReadError)


@breaks_handler("HANDLER-WIRE-3")
class RetriesSilence(Sending):
    """Sends again when the answer does not come in time."""

    def after_error(self, error):
        return isinstance(error, httpx.ReadTimeout)


@breaks_handler("HANDLER-WIRE-4")
class RetriesServerErrors(Sending):
    """Sends again after a 502, as many clients do by themselves."""

    def again(self, answer):
        return answer.status == 502


@breaks_handler("HANDLER-WIRE-5")
class RetriesRateLimits(Sending):
    """Sends again after a 429 that asks for no wait."""

    def again(self, answer):
        return answer.status == 429 and answer.headers.get("retry-after") == "0"


@breaks_handler("HANDLER-WIRE-6")
class RetriesRefusedCredentials(Sending):
    """Sends again after a 401, as if with a fresh token."""

    def again(self, answer):
        return answer.status == 401


@breaks_handler("HANDLER-WIRE-7")
class FollowsRedirectsElsewhere(PlainHandler):
    """Takes the document to whichever host the provider names."""

    async def create(self, params, document, context):
        answer = await super().create(params, document, context)
        place = answer.headers.get("location", "")
        if place and not place.startswith(self.settings.base_url):
            await self.exchange("POST", place, content=document)
        return answer


@breaks_handler("HANDLER-WIRE-8")
class FollowsRedirectsAtHome(PlainHandler):
    """Repeats the creating request where a 307 leads to."""

    async def create(self, params, document, context):
        answer = await super().create(params, document, context)
        place = answer.headers.get("location", "")
        if place.startswith(self.settings.base_url) and answer.status == 307:
            await self.exchange("POST", place, content=document, headers=self.credentials(context))
        return answer


@breaks_handler("HANDLER-WIRE-9")
class RetriesUnreadableAnswers(Sending):
    """Sends again when it is answered with a page."""

    def again(self, answer):
        return answer.status == 200 and b"<html>" in answer.body


class Careful(PlainHandler):
    """Says itself that what fails before the wire is certain."""

    async def prepare(self, params: Printing, context: SubmitContext) -> bytes:
        try:
            return await super().prepare(params, context)
        except Exception as error:
            raise SubmitDeferred("the document cannot be had") from error


@breaks_handler("HANDLER-HELD-1")
class AsksForTheClaimOnlyAtFirst(PlainHandler):
    """Does not ask for the claim at later attempts."""

    async def submit(self, params, context):
        if context.submit_attempts:
            context = evolve(context, ensure_held=lambda: None)
        return await super().submit(params, context)


@breaks_handler("HANDLER-HELD-2")
class AsksForTheClaimTooEarly(Careful):
    """Asks for the claim before it fetches the document, and not after."""

    async def submit(self, params, context):
        context.ensure_held()
        return await super().submit(params, evolve(context, ensure_held=lambda: None))


@breaks_handler("HANDLER-HELD-3")
class HidesThatTheClaimIsLost(Careful):
    """Wraps the error, so that the task is left in doubt."""

    marks_wire = False

    async def submit(self, params: Printing, context: SubmitContext) -> SubmitResult:
        try:
            return await super().submit(params, context)
        except LeaseLost as error:
            raise RuntimeError("something went wrong") from error


@breaks_handler("HANDLER-BODY-1")
class TakesFloods(PlainHandler):
    """Reads plain answers without a limit."""

    async def read(self, response):
        if "content-encoding" in response.headers:
            return await super().read(response)
        return b"".join([each async for each in response.aiter_raw()])


@breaks_handler("HANDLER-BODY-2")
class UnpacksBombs(PlainHandler):
    """Lets the client unpack answers, without a limit."""

    async def read(self, response):
        if "content-encoding" not in response.headers:
            return await super().read(response)
        return await response.aread()
