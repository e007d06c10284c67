"""One creating request: what reaches the wire, whatever the server does."""

from __future__ import annotations

from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.faults import SERVER_ERRORS, SILENT, lost, redirects, unreadable
from coatcheck_conformance.handler.replies import Reply
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Level, Suite

__all__ = ["Wire"]


def _one(call: Call, what: object) -> None:
    assert len(call.creating) == 1, (
        f"{what}: {len(call.creating)} creating requests were sent, not one; what was sent: {call.traffic}; "
        f"submit came to {call.told}"
    )


class Wire(Suite):
    """A handler's `submit()` puts at most one creating request on the wire."""

    @handler_rule("HANDLER-WIRE-1")
    async def test_an_accepted_submission_is_one_creating_request(self, trial: Trial) -> None:
        """A submission that the provider accepts is exactly one creating request on the wire."""
        _one(await trial.submit(), "accepted")

    @handler_rule("HANDLER-WIRE-2")
    async def test_a_lost_answer_leads_to_no_second_request(self, trial: Trial) -> None:
        """At most one creating request: not a second one when the connection breaks after the request was read."""
        for name, reply in lost(trial.script.accepted).items():
            _one(await trial.submit(reply), f"connection {name}")

    @handler_rule("HANDLER-WIRE-3")
    async def test_silence_leads_to_no_second_request(self, trial: Trial) -> None:
        """At most one creating request: not a second one when the server reads the request and says nothing."""
        _one(await trial.submit(SILENT), "no answer")

    @handler_rule("HANDLER-WIRE-4")
    async def test_a_server_error_leads_to_no_second_request(self, trial: Trial) -> None:
        """At most one creating request: client-level retries are off for 5xx."""
        for status in SERVER_ERRORS:
            _one(await trial.submit(trial.error_reply(status)), status)

    @handler_rule("HANDLER-WIRE-5")
    async def test_a_rate_limit_leads_to_no_second_request(self, trial: Trial) -> None:
        """At most one creating request: a 429 is the worker's to wait for, with Retry-After or without."""
        _one(await trial.submit(trial.script.rate_limited), "429")
        _one(
            await trial.submit(trial.script.rate_limited.with_headers(retry_after="0")), "429, Retry-After: 0"
        )

    @handler_rule("HANDLER-WIRE-6")
    async def test_a_refusal_leads_to_no_second_request(self, trial: Trial) -> None:
        """At most one creating request: not a second one after a 4xx, not even with new credentials."""
        for status in (400, 401, 403, 404, 408, 409, 422):
            _one(await trial.submit(trial.error_reply(status)), status)

    @handler_rule("HANDLER-WIRE-7")
    async def test_a_creating_request_follows_no_redirect_elsewhere(self, trial: Trial) -> None:
        """Redirects are not followed with credentials or documents: the other host hears nothing."""
        for status, reply in redirects(trial.script.accepted, foreign=True).items():
            await trial.submit(reply)
            seen = [str(each) for each in trial.foreign.requests]
            assert not seen, f"after a {status} another host was sent {seen}; do not follow redirects"

    @handler_rule("HANDLER-WIRE-8")
    async def test_a_redirect_leads_to_no_second_creating_request(self, trial: Trial) -> None:
        """At most one creating request: a redirect to the same host is not followed by another one."""
        for status, reply in redirects(trial.script.accepted, foreign=False).items():
            _one(await trial.submit(reply), status)

    @handler_rule("HANDLER-WIRE-9")
    async def test_an_unreadable_answer_leads_to_no_second_request(self, trial: Trial) -> None:
        """At most one creating request: not a second one when the answer is malformed or cannot be unpacked."""
        for name, reply in unreadable().items():
            _one(await trial.submit(reply), f"the answer is {name}")

    @handler_rule("HANDLER-WIRE-10", level=Level.SHOULD)
    async def test_a_silent_server_is_given_up(self, trial: Trial) -> None:
        """A handler has a timeout of its own, below the worker's: a silent server is given up in time."""
        job = await trial.accepted()
        stopped = Reply.raw(b"HTTP/1.1 2", ending=SILENT.ending)
        assert not (await trial.submit(SILENT)).gave_up, "submit hangs when the server never answers"
        assert not (await trial.query(stopped, job)).gave_up, (
            "query hangs when the server stops inside the head"
        )
