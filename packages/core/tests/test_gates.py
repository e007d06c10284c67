"""Gates: their names, their limits, and the standard ones."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck import gates
from coatcheck.codec import decode_gate_records, encode_gate_records
from coatcheck.errors import InvalidParams, StoreError
from coatcheck.gates import (
    AdmissionPolicy,
    Admit,
    Gate,
    Gates,
    Pause,
    Rate,
    StandardAdmission,
    TaskChange,
    recorded,
)
from coatcheck.task import Identity, Route, TaskDraft
from coatcheck.testing import make_task

T0 = datetime(2030, 1, 1, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(TEXT, TEXT, TEXT, TEXT)
def test_names_are_one_to_one(a: str, b: str, c: str, d: str) -> None:
    """No two providers, accounts or tenants share a gate, whatever characters are in their names."""
    names = {gates.provider(a), gates.tenant(a), gates.query(a), gates.account(a, b)}
    assert len(names) == 4
    assert (gates.account(a, b) == gates.account(c, d)) == ((a, b) == (c, d))
    assert (gates.provider(a) == gates.provider(c)) == (a == c)


@pytest.mark.parametrize("part", ["", None, 7])
def test_a_name_needs_its_parts(part: Any) -> None:
    """A gate of nothing is refused."""
    with pytest.raises(InvalidParams, match="non-empty"):
        gates.account("p", part)


@pytest.mark.parametrize(("count", "per"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -1.0)])
def test_a_rate_grants_something_in_some_time(count: int, per: float) -> None:
    """A rate of nothing, or in no time, is refused."""
    with pytest.raises(InvalidParams, match="rate"):
        Rate(count, timedelta(seconds=per))


def test_a_gate_limits_something() -> None:
    """A gate without a name, or of no concurrency, is refused with what to do instead."""
    Gate(name="g", concurrency=1)
    with pytest.raises(InvalidParams, match="needs a name"):
        Gate(name="")
    with pytest.raises(InvalidParams, match="pause it"):
        Gate(name="g", concurrency=0)


def test_a_pause_ends_by_itself_or_never() -> None:
    """A pause lasts until its time, or until somebody resumes the gate."""
    assert not Gate(name="g").paused_at(T0)
    assert Gate(name="g", pause=Pause(reason="r", since=T0)).paused_at(T0 + timedelta(days=999))
    until = Gate(name="g", pause=Pause(reason="r", since=T0, until=T0 + timedelta(seconds=1)))
    assert until.paused_at(T0)
    assert not until.paused_at(T0 + timedelta(seconds=1))


def draft(**route: Any) -> TaskDraft:
    """Return a draft that goes to provider p."""
    return TaskDraft(
        route=Route(handler_key="h", provider_key="p", **route),
        identity=Identity(params_digest="0", idempotency_key="k"),
        params=None,
        tracking_timeout=timedelta(hours=1),
    )


def test_the_standard_gates() -> None:
    """A task passes its provider's gate, and those of the account and the tenant if it has any."""
    policy = StandardAdmission()
    assert policy.gates_for(draft()) == Gates(submit=["provider/p"], query="query/p")
    assert policy.gates_for(draft(account_id="a/b", tenant_id="t")).submit == [
        "provider/p",
        "account/p/a%2Fb",
        "tenant/t",
    ]


def test_standard_gates_carry_limits() -> None:
    """Limits that are configured for a gate come with its name."""
    limited = Gate(name=gates.provider("p"), concurrency=2)
    asked = Gate(name=gates.query("p"), rate=Rate(5))
    policy = StandardAdmission(limits=[limited, asked])
    assert policy.gates_for(draft()) == Gates(submit=[limited], query=asked)
    assert policy.limits == (limited, asked)


async def test_a_policy_admits_everything_unless_it_says_otherwise() -> None:
    """The last word and the observation are optional."""

    class Plain(AdmissionPolicy):
        def gates_for(self, draft: TaskDraft) -> Gates:
            return Gates()

    task = make_task()
    assert await Plain().admit(task, T0) == Admit()
    assert list(Plain().observe(TaskChange(before=None, after=task, event="created"))) == []


def test_a_history_keeps_what_a_newer_version_did() -> None:
    """A word that this version does not know is read, counted when it repeats, and written back."""
    newer = [{"action": "SCALED", "at": 1_000, "who": "ada", "gate": {"name": "g", "concurrency": 2}}]
    (record,) = history = decode_gate_records(newer)
    assert (record.action, record.who, record.gate.concurrency) == ("SCALED", "ada", 2)
    assert encode_gate_records(recorded(history, record))[0] == {**newer[0], "times": 2}
    assert encode_gate_records(history) == newer


def test_a_history_that_cannot_be_read_is_an_error() -> None:
    """It says what is missing."""
    with pytest.raises(StoreError, match="cannot be read by this version: KeyError"):
        decode_gate_records([{"action": "LIMITED"}])
