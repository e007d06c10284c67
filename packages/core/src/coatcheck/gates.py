"""Gates: named limits that a task must pass to be claimed, held in the store and exact across the fleet.

Names are built by the functions here, never typed: a provider ``ocr:gitee`` or an account ``a/b`` could
not be read back from a name put together by hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

from attrs import field, frozen

from coatcheck.errors import InvalidParams
from coatcheck.task import Task, TaskDraft, millis

__all__ = [
    "Admission",
    "AdmissionPolicy",
    "Admit",
    "Gate",
    "GateChange",
    "GateUsage",
    "Gates",
    "Pause",
    "PauseGate",
    "Postpone",
    "Rate",
    "ResumeGate",
    "SetGate",
    "StandardAdmission",
    "TaskChange",
    "account",
    "provider",
    "query",
    "tenant",
]


@lru_cache(maxsize=10_000)  # the same few providers and tenants name the gates of every task
def _name(*parts: str) -> str:
    for part in parts[1:]:
        if not part or not isinstance(part, str):
            message = f"a gate's name is built from non-empty strings, not {part!r}"
            raise InvalidParams(message)
    return "/".join((parts[0], *(quote(part, safe="") for part in parts[1:])))


def provider(provider_key: str) -> str:
    """Return the name of the gate that all submissions to a provider pass."""
    return _name("provider", provider_key)


def account(provider_key: str, account_id: str) -> str:
    """Return the name of the gate that all submissions under one account of a provider pass."""
    return _name("account", provider_key, account_id)


def tenant(tenant_id: str) -> str:
    """Return the name of the gate that all submissions of a tenant pass, whatever the provider."""
    return _name("tenant", tenant_id)


def query(provider_key: str) -> str:
    """Return the name of the gate whose rate and pause the queries of a provider obey."""
    return _name("query", provider_key)


@frozen
class Rate:
    """At most `count` grants in any window of length `per`."""

    count: int
    """Grants; at least 1."""
    per: timedelta = timedelta(seconds=1)
    """The window's length; at least a millisecond."""

    def __attrs_post_init__(self) -> None:
        """Refuse a rate that means nothing."""
        if self.count < 1:
            message = f"a rate grants at least 1, not {self.count!r}; to stop a gate, pause it"
            raise InvalidParams(message)
        if millis(self.per) < 1 or self.per <= timedelta():
            message = f"a rate's window must be a millisecond or longer, not {self.per!r}"
            raise InvalidParams(message)


@frozen(kw_only=True)
class Pause:
    """Why a gate grants nothing now."""

    reason: str
    who: str | None = None
    since: datetime
    """When it was paused, by the store's clock."""
    until: datetime | None = None
    """When it opens by itself; None means when somebody resumes it."""


@frozen(kw_only=True)
class Gate:
    """One gate's limits, and its pause."""

    name: str
    concurrency: int | None = None
    """How many tasks may hold a slot at once; None is no limit."""
    rate: Rate | None = None
    """How many grants in a window; None is no limit."""
    pause: Pause | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse limits that mean nothing."""
        if not self.name:
            message = "a gate needs a name; build it with coatcheck.gates.provider() and its like"
            raise InvalidParams(message)
        if self.concurrency is not None and self.concurrency < 1:
            message = f"gate {self.name!r}: concurrency is at least 1, not {self.concurrency!r}; to stop it, pause it"
            raise InvalidParams(message)

    def paused_at(self, now: datetime) -> bool:
        """Whether it grants nothing at `now` because it is paused."""
        return self.pause is not None and (self.pause.until is None or now < self.pause.until)


@frozen(kw_only=True)
class GateUsage:
    """A gate and how it stands."""

    gate: Gate
    used: int
    """Slots held now, also by tasks that were claimed before the gate was defined."""
    granted: int
    """Grants in the window that ends now; 0 without a rate."""


@frozen(kw_only=True)
class Gates:
    """The gates of one task: names, or gates with limits that are applied if the store has none of that name."""

    submit: Sequence[str | Gate] = ()
    query: str | Gate | None = None


@frozen(kw_only=True)
class SetGate:
    """Set a gate's limits, leaving its pause as it is."""

    name: str
    concurrency: int | None = None
    rate: Rate | None = None


@frozen(kw_only=True)
class PauseGate:
    """Stop a gate from granting, from the next claim on."""

    name: str
    reason: str
    who: str | None = None
    duration: timedelta | None = None
    """From now, by the store's clock; None means until resumed."""


@frozen(kw_only=True)
class ResumeGate:
    """Let a gate grant again."""

    name: str
    who: str | None = None


GateChange: TypeAlias = SetGate | PauseGate | ResumeGate


@frozen
class Admit:
    """Go ahead."""


@frozen(kw_only=True)
class Postpone:
    """Not now; the claim is given back unspent."""

    until: datetime
    """When to try again, by the store's clock."""
    reason: str


Admission: TypeAlias = Admit | Postpone


@frozen(kw_only=True)
class TaskChange:
    """One committed transition, for observers."""

    before: Task | None
    """The snapshot that was claimed; None for a task just added."""
    after: Task
    """The snapshot as committed."""
    event: str
    """What happened: the name of the event."""


class AdmissionPolicy(ABC):
    """Says which gates a task passes, and has a last word before it is submitted."""

    @abstractmethod
    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name the gates of a task that is being submitted; called once, by the manager."""

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Have a last word before `start`; by default everything is admitted.

        Not asked for tasks that are cancelled or past their deadline.
        """
        return Admit()

    def observe(self, change: TaskChange) -> Sequence[GateChange]:
        """Answer a committed change with changes to gates, as a circuit breaker does; by default none."""
        return ()


def _gates(given: Iterable[Gate]) -> tuple[Gate, ...]:
    return tuple(given)


@frozen(kw_only=True)
class StandardAdmission(AdmissionPolicy):
    """Gates of the provider, the account and the tenant, and a query gate of the provider.

    A task without an account or a tenant passes no such gate.
    """

    limits: Sequence[Gate] = field(default=(), converter=_gates)
    """Limits for gates of these names, applied where the store has none yet."""
    _known: Mapping[str, Gate] = field(init=False, repr=False, eq=False)

    @_known.default
    def _by_name(self) -> Mapping[str, Gate]:
        return {gate.name: gate for gate in self.limits}

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name the standard gates."""
        known, route = self._known, draft.route
        names = [provider(route.provider_key)]
        if route.account_id is not None:
            names.append(account(route.provider_key, route.account_id))
        if route.tenant_id is not None:
            names.append(tenant(route.tenant_id))
        asked = query(route.provider_key)
        return Gates(submit=[known.get(name, name) for name in names], query=known.get(asked, asked))
