"""Which credential a call uses."""

from __future__ import annotations

import pytest

from coatcheck.errors import UnknownAccount
from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.spec import HandlerHook
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Accounts"]

_NOBODY = "kit-nobody"


def _refused(call: Call) -> None:
    assert isinstance(call.error, UnknownAccount), f"an account that there is not came to {call.told}"
    assert not call.creating, f"sent was {call.traffic}, for an account that there is not"


class Accounts(Suite):
    """A task names its account; None is "default"."""

    @handler_rule("HANDLER-ACCOUNT-1", requires=(HandlerHook.ACCOUNT,))
    async def test_an_unknown_account_sends_nothing(self, trial: Trial) -> None:
        """An account that the handler was not given is `UnknownAccount`, and certain: nothing was sent."""
        _refused(await trial.submit(account_id=_NOBODY))

    @handler_rule("HANDLER-ACCOUNT-2", requires=(HandlerHook.ACCOUNT,))
    async def test_a_query_for_an_unknown_account_sends_nothing(self, trial: Trial) -> None:
        """A query of an account that the handler was not given is an error, and sends nothing."""
        call = await trial.query(trial.going_on, account_id=_NOBODY)
        assert call.error is not None, f"a query for an account that there is not came to {call.told}"
        assert not call.requests, f"sent was {call.traffic}, for an account that there is not"

    @handler_rule("HANDLER-ACCOUNT-3", requires=(HandlerHook.ACCOUNT,))
    async def test_without_a_default_account_nothing_is_sent(self, trial: Trial) -> None:
        """None is the account "default": where it is not given, no other takes its place, and nothing is sent."""
        handler = trial.create(accounts={"kit-other": trial.spec.accounts["default"]})
        trial.stack.push_async_callback(handler.close)
        await handler.open()
        _refused(await trial.submit(handler=handler))

    @handler_rule("HANDLER-ACCOUNT-4", requires=(HandlerHook.TWO_ACCOUNTS,))
    async def test_the_account_that_is_named_is_used(self, trial: Trial) -> None:
        """The credential of the account that a task names is used, and no other."""
        spec = trial.spec
        other = spec.other_account or ""
        job = await trial.accepted()
        calls = {
            account_id: [
                *(await trial.submit(account_id=account_id)).creating,
                *(await trial.query(trial.going_on, job, account_id=account_id)).requests,
            ]
            for account_id in (None, "default", other)
        }
        plain = any(each.holds(secret) for each in calls[None] for secret in spec.secrets_of("default"))
        for account_id, requests in calls.items():
            own, wrong = (other, "default") if account_id == other else ("default", other)
            for each in requests:
                if any(each.holds(secret) for secret in spec.secrets_of(wrong) - spec.secrets_of(own)):
                    pytest.fail(f"{each} for account {account_id!r} has the secret of account {wrong!r}")
                if plain and not any(each.holds(secret) for secret in spec.secrets_of(own)):
                    pytest.fail(
                        f"{each} for account {account_id!r} does not have the secret of account {own!r}"
                    )
