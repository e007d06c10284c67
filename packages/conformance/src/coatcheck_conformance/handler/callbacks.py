"""Callbacks: authentic ones nudge, all others are rejected."""

from __future__ import annotations

from attrs import evolve

from coatcheck.errors import CallbackRejected
from coatcheck.handler import Callback, CallbackRequest, Capability
from coatcheck_conformance.handler.script import Callbacks
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["CallingBack"]


def _callbacks(trial: Trial) -> Callbacks:
    script = trial.script.callbacks
    assert script is not None, "the handler declares parse_callback; give script.callbacks"
    return script


class CallingBack(Suite):
    """`parse_callback()` authenticates a callback and says which jobs it is about."""

    async def _rejected(self, trial: Trial, request: CallbackRequest, what: str) -> None:
        try:
            callback = await trial.handler.parse_callback(request, None)
        except CallbackRejected:
            return
        message = f"{what} was taken: {callback!r}; raise CallbackRejected"
        raise AssertionError(message)

    @handler_rule("HANDLER-CALLBACK-1", requires=(Capability.CALLBACK,))
    async def test_an_authentic_callback_names_its_jobs(self, trial: Trial) -> None:
        """An authentic callback gives the external ids of the jobs that it is about."""
        callback = await trial.handler.parse_callback(_callbacks(trial).authentic, None)
        assert isinstance(callback, Callback), f"script.callbacks.authentic came to {callback!r}"
        told = list(callback.external_task_ids)
        assert told == [trial.script.job], f"script.callbacks.authentic is about {told}"

    @handler_rule("HANDLER-CALLBACK-2", requires=(Capability.CALLBACK,))
    async def test_a_forged_callback_is_rejected(self, trial: Trial) -> None:
        """A callback that is not authentic is `CallbackRejected`: anybody can send one."""
        await self._rejected(trial, _callbacks(trial).forged, "a forged callback")

    @handler_rule("HANDLER-CALLBACK-3", requires=(Capability.CALLBACK,))
    async def test_a_callback_that_makes_no_sense_is_rejected(self, trial: Trial) -> None:
        """A callback that cannot be understood is `CallbackRejected`, and no other error."""
        good = _callbacks(trial).authentic
        await self._rejected(trial, CallbackRequest(method="GET", path="/", headers={}), "an empty request")
        for body in (b"", b"\xff\xfe", b"[]", b"null", b"{}", b'{"id": {}}', b"[" * 100_000):
            await self._rejected(trial, evolve(good, body=body), f"the body {body[:20]!r}")
