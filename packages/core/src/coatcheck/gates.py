"""Gates: named limits that a task must pass to be claimed, held in the store and exact across the fleet.

Names are built by the functions here, never typed: a provider ``ocr:gitee`` or an account ``a/b`` could
not be read back from a name put together by hand.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Protocol, TypeAlias
from urllib.parse import quote

from attrs import field, frozen

from coatcheck.errors import InvalidParams
from coatcheck.evolving import evolve
from coatcheck.tallies import Count, Counted
from coatcheck.task import Task, TaskDraft, millis

__all__ = [
    "Admission",
    "AdmissionPolicy",
    "Admit",
    "DeleteGate",
    "Fleet",
    "Gate",
    "GateAction",
    "GateChange",
    "GateRecord",
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
    "named",
    "provider",
    "query",
    "recorded",
    "tenant",
]

logger = logging.getLogger("coatcheck.admission")

MAX_GATE_RECORDS = 50
"""How many changes of a gate are remembered at most; the oldest go first."""


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


def named(kind: str, *parts: str) -> str:
    """Return the name of a gate of a policy's own, such as ``named("breaker", "ocr:gitee")``.

    Raises:
        InvalidParams: `kind` or a part is no non-empty string, or `kind` has a slash.
    """
    if not kind or "/" in kind:
        message = f"a kind of gates is a word without a slash, not {kind!r}"
        raise InvalidParams(message)
    return _name(kind, *parts)


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


class GateAction(StrEnum):
    """What was done to a gate."""

    LIMITED = "LIMITED"
    "Its limits were set."
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    DELETED = "DELETED"
    "Its limits and its pause were forgotten."


@frozen(kw_only=True)
class GateRecord:
    """One change of a gate: what was done, by whom, when and why."""

    action: GateAction | str
    """A word of a newer version, which this one does not know, stays a word."""
    at: datetime
    """By the store's clock."""
    who: str | None = None
    reason: str | None = None
    gate: Gate
    """As the change left it."""
    times: int = 1
    """How often the same was done by the same for the same reason, one after the other; `at` is the last."""


def recorded(history: Sequence[GateRecord], change: GateRecord) -> tuple[GateRecord, ...]:
    """Return a gate's history with one change more, the oldest first, as every store keeps it.

    What repeats the last one takes its place and is counted, so that a provider's thousandth 429 does not push out
    what operators did.
    """
    if history:
        last = history[-1]
        if (last.action, last.who, last.reason) == (change.action, change.who, change.reason):
            return (*history[:-1], evolve(change, times=last.times + 1))
    return (*history[-(MAX_GATE_RECORDS - 1) :], change)


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
    who: str | None = None
    reason: str | None = None


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
    reason: str | None = None


@frozen(kw_only=True)
class DeleteGate:
    """Forget a gate's limits and pause."""

    name: str
    who: str | None = None
    reason: str | None = None


GateChange: TypeAlias = SetGate | PauseGate | ResumeGate | DeleteGate


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
    cost: int | None = None
    """What the handler says that the provider charges for a task that has ended, in the handler's unit."""
    rate_limited: bool = False
    """Whether the provider asked to slow down (429)."""
    retry_after: timedelta | None = None
    """For how long the provider asked to be left alone."""
    blames_provider: bool = True
    """Of a submission that was deferred, whether it tells something about the provider."""


class Fleet(Protocol):
    """What a policy shares with the same policy in other processes: the store's clock, tallies and gates."""

    async def now(self) -> datetime:
        """Return the store's time."""
        ...

    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """Count on tallies (S21), together with what others of this process count at the same moment."""
        ...

    async def gates(self, names: Collection[str]) -> dict[str, GateUsage]:
        """Return those that are defined, by name; up to a second old."""
        ...

    async def change(self, change: GateChange) -> None:
        """Change a gate now."""
        ...


class AdmissionPolicy(ABC):
    """Says which gates a task passes, and has a last word before it is submitted."""

    def attach(self, fleet: Fleet) -> None:  # noqa: B027 - not every policy needs it
        """Take what the policy shares with other processes; called when an app is made. By default it is not wanted.

        A policy that has another inside hands it on. In a process that was forked it is called again.
        """

    @abstractmethod
    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name the gates of a task that is being submitted; called once, by the manager."""

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Have a last word before `start`; by default everything is admitted.

        Not asked for tasks that are cancelled or past their deadline.
        """
        return Admit()

    async def credits(self, drafts: Sequence[TaskDraft]) -> Sequence[timedelta]:
        """Say for each task of a submission how much waiting it is credited with in the queue; by default none.

        One that is negative lets others go first, within the same priority: a fair share is made of it. Called by the
        manager with the drafts of one `submit_many`, in order; what is answered is rounded to milliseconds.
        """
        return [timedelta()] * len(drafts)

    def observe(self, change: TaskChange) -> Sequence[GateChange]:
        """Answer a committed change with changes to gates; by default none. It must be quick, and not block."""
        return ()

    async def settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Answer what this worker has committed together with changes to gates, as a circuit breaker does.

        By default it asks `observe` about each. It may use the fleet's tallies. Changes come in order, and the next
        wait for the answer; after five seconds it is given up.
        """
        answers: list[GateChange] = []
        for change in changes:
            try:
                answers.extend(self.observe(change))
            except Exception:
                logger.exception("admission policy %r failed to observe", self)
        return answers


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
