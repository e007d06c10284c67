"""What all these policies have in common: another policy inside, whose word counts too, and the fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from attrs import define, evolve, field

from coatcheck import (
    AdmissionPolicy,
    ConfigurationError,
    Gate,
    Gates,
    InvalidParams,
    StandardAdmission,
    Task,
    TaskChange,
)
from coatcheck.gates import Admission, Fleet, GateChange
from coatcheck.task import TaskDraft

__all__ = ["Wrapping"]

logger = logging.getLogger("coatcheck.admission")


@define(kw_only=True, eq=False)
class Wrapping(AdmissionPolicy):
    """The base: it hands everything on to `inner`, and adds to what that answers.

    Gates and changes of gates of both count, credits are added up, and a task is submitted if both admit it. What a
    subclass has to say it says in `own_gates`, `own_credits` and `own_settled`, and, by overriding it, in `admit`.
    """

    inner: AdmissionPolicy = field(factory=StandardAdmission)
    """The policy inside; by default the standard gates."""
    _fleet: Fleet | None = field(init=False, default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        for rule, broken in self._wrong().items():
            if broken:
                message = f"{rule}: {self!r}"
                raise InvalidParams(message)

    def _wrong(self) -> dict[str, bool]:
        """Return rules about the settings, and whether each is broken."""
        return {}

    @property
    def fleet(self) -> Fleet:
        """What it shares with the same policy in other processes.

        Raises:
            ConfigurationError: it belongs to no app.
        """
        if self._fleet is None:
            message = (
                f"{type(self).__name__} belongs to no app: pass it as App(..., admission=...), or as `inner` of one "
                "that is; a policy of your own that has it inside hands `attach(fleet)` on"
            )
            raise ConfigurationError(message)
        return self._fleet

    def attach(self, fleet: Fleet) -> None:
        """Take what is shared, and hand it on."""
        self._fleet = fleet
        self.inner.attach(fleet)

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name the gates of both."""
        usual, own = self.inner.gates_for(draft), self.own_gates(draft)
        return evolve(usual, submit=[*usual.submit, *own]) if own else usual

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Ask the one inside."""
        return await self.inner.admit(task, now)

    async def credits(self, drafts: Sequence[TaskDraft]) -> Sequence[timedelta]:
        """Add up what both credit."""
        own, inner = await asyncio.gather(self.own_credits(drafts), self.inner.credits(drafts))
        return [one + other for one, other in zip(own, inner, strict=True)]

    def observe(self, change: TaskChange) -> Sequence[GateChange]:
        """Ask the one inside; this one answers what was settled together."""
        return self.inner.observe(change)

    async def settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Answer as both do; if one fails, as the other does."""
        told = await asyncio.gather(
            self.own_settled(changes), self.inner.settled(changes), return_exceptions=True
        )
        answers: list[GateChange] = []
        for policy, each in zip((self, self.inner), told, strict=True):
            if isinstance(each, Exception):
                logger.error("admission policy %r failed to answer what was settled", policy, exc_info=each)
            elif isinstance(each, BaseException):
                raise each
            else:
                answers.extend(each)
        return answers

    # -------------------------------------------------------------- of its own

    def own_gates(self, draft: TaskDraft) -> Sequence[str | Gate]:
        """Return the gates that this policy has of its own for a task; by default none."""
        return ()

    async def own_credits(self, drafts: Sequence[TaskDraft]) -> Sequence[timedelta]:
        """Return what this policy credits each task with; by default nothing."""
        return [timedelta()] * len(drafts)

    async def own_settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Return what this policy answers to what was settled together; by default nothing."""
        return ()
