"""Mutants of admission policies."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from attrs import evolve, field, frozen

from coatcheck import gates
from coatcheck.gates import Admit, Fleet, Gate, Gates, Pause, PauseGate, Postpone, SetGate, StandardAdmission
from coatcheck.tallies import Count
from mutants.policies import breaks_admission

_MINUTE = timedelta(minutes=1)


# ------------------------------------------------------------------ gates_for


@breaks_admission("ADMISSION-GATES-1")
class NamesNothingProper(StandardAdmission):
    """Returns what looks like gates."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        return SimpleNamespace(submit=found.submit, query=found.query)


@breaks_admission("ADMISSION-GATES-2")
class NamesNobodyCanHold(StandardAdmission):
    """Names a gate after what no store can hold."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        return evolve(found, submit=[*found.submit, "odd\x00"])


@breaks_admission("ADMISSION-GATES-2")
class NamesWithoutEnd(StandardAdmission):
    """Names a gate at length."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        return evolve(found, submit=[*found.submit, "long/" * 60])


@breaks_admission("ADMISSION-GATES-3")
@frozen(kw_only=True)
class TakesTurns(StandardAdmission):
    """Spreads tasks over gates by turns."""

    turns: list[int] = field(factory=lambda: [0], init=False)

    def gates_for(self, draft):
        self.turns[0] = (self.turns[0] + 1) % 3
        found = super().gates_for(draft)
        shard = f"shard/{draft.route.provider_key}/{self.turns[0]}"
        return evolve(found, submit=[*found.submit, shard] if draft.priority else found.submit)


@breaks_admission("ADMISSION-GATES-4")
class OneGateATask(StandardAdmission):
    """Names a gate after the task."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        return evolve(found, submit=[*found.submit, f"task/{draft.id}"])


@breaks_admission("ADMISSION-GATES-5")
class ManyGates(StandardAdmission):
    """Has a gate for each hour."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        return evolve(found, submit=[*found.submit, *(f"hour/{n}" for n in range(24))])


@breaks_admission("ADMISSION-GATES-6")
class WantsATenant(StandardAdmission):
    """Names a gate after a tenant that may not be there."""

    def gates_for(self, draft):
        return Gates(submit=[gates.provider(draft.route.provider_key), gates.tenant(draft.route.tenant_id)])


@breaks_admission("ADMISSION-GATES-7")
class TypesNames(StandardAdmission):
    """Puts names together by hand."""

    def gates_for(self, draft):
        route = draft.route
        return Gates(submit=[f"account/{route.provider_key}/{route.account_id}"], query=None)


@breaks_admission("ADMISSION-GATES-8")
class ReadsTheLimits(StandardAdmission):
    """Looks limits up in a file."""

    def gates_for(self, draft):
        Path(os.devnull).read_text("utf-8")
        return super().gates_for(draft)


@breaks_admission("ADMISSION-GATES-9")
class SignsDrafts(StandardAdmission):
    """Leaves a note in the draft."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        draft.metadata["gates"] = len(found.submit)
        return found


@breaks_admission("ADMISSION-GATES-10")
class NamesAPausedGate(StandardAdmission):
    """Would have a gate begin with a pause."""

    def gates_for(self, draft):
        found = super().gates_for(draft)
        paused = Gate(name="paused", pause=Pause(reason="at first", since=datetime(2030, 1, 1, tzinfo=UTC)))
        return evolve(found, submit=[*found.submit, paused])


@breaks_admission("ADMISSION-GATES-11")
@frozen(kw_only=True)
class RemembersDrafts(StandardAdmission):
    """Keeps a list of all tasks."""

    seen: list[str] = field(factory=list, init=False, repr=False)

    def gates_for(self, draft):
        self.seen.append(draft.id)
        return super().gates_for(draft)


# ------------------------------------------------------------------ admit


@breaks_admission("ADMISSION-ADMIT-1")
class SaysTrue(StandardAdmission):
    """Answers at night as other frameworks want it."""

    async def admit(self, task, now):
        return False if now.hour < 6 else Admit()


@breaks_admission("ADMISSION-ADMIT-2")
class Naive(StandardAdmission):
    """Postpones until a time of no zone."""

    async def admit(self, task, now):
        if task.schedule.priority < 0:
            return Postpone(until=(now + _MINUTE).replace(tzinfo=None), reason="later")
        return Admit()


@breaks_admission("ADMISSION-ADMIT-2")
class SaysNotWhy(StandardAdmission):
    """Gives no reason."""

    async def admit(self, task, now):
        return Postpone(until=now + _MINUTE, reason=" ") if task.schedule.priority < 0 else Admit()


@breaks_admission("ADMISSION-ADMIT-3")
class UntilNow(StandardAdmission):
    """Postpones for no time."""

    async def admit(self, task, now):
        return Postpone(until=now, reason="busy") if task.schedule.priority < 0 else Admit()


@breaks_admission("ADMISSION-ADMIT-3")
class HasAClock(StandardAdmission):
    """Reckons by the clock of its host."""

    async def admit(self, task, now):
        if task.schedule.priority < 0:
            return Postpone(until=datetime.now(UTC) + timedelta(days=365), reason="next year")
        return Admit()


@breaks_admission("ADMISSION-ADMIT-4")
class ThinksLong(StandardAdmission):
    """Waits the longer the more was tried."""

    async def admit(self, task, now):
        await asyncio.sleep(min(60, task.progress.submit_attempts // 10 * 10))
        return Admit()


@breaks_admission("ADMISSION-ADMIT-5")
@frozen(kw_only=True)
class Sleeps(StandardAdmission):
    """Stops the whole loop, now and then."""

    asked: list[int] = field(factory=lambda: [0], init=False)

    async def admit(self, task, now):
        self.asked[0] += 1
        if self.asked[0] % 40 == 0 and task.schedule.priority == 0 and task.progress.submit_attempts == 1:
            time.sleep(0.3)  # noqa: ASYNC251 - that is what is broken
        return Admit()


@breaks_admission("ADMISSION-ADMIT-6")
class SignsTasks(StandardAdmission):
    """Leaves a note in the task."""

    async def admit(self, task, now):
        task.metadata["asked"] = now.isoformat()
        return Admit()


@breaks_admission("ADMISSION-ADMIT-7")
@frozen(kw_only=True)
class OneAtATime(StandardAdmission):
    """Answers about a few at once, and no more."""

    asked: list[str] = field(factory=list, init=False)

    async def admit(self, task, now):
        if len(self.asked) > 50:
            raise RuntimeError("busy")
        self.asked.append(task.id)
        try:
            await asyncio.sleep(0)
        finally:
            self.asked.remove(task.id)
        return Admit()


@breaks_admission("ADMISSION-ADMIT-8")
@frozen(kw_only=True)
class HoldsOn(StandardAdmission):
    """Never releases what a cancelled call holds."""

    lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def admit(self, task, now):
        await self.lock.acquire()
        await asyncio.sleep(0)
        self.lock.release()
        return Admit()


@breaks_admission("ADMISSION-ADMIT-9")
class WantsATeam(StandardAdmission):
    """Looks for metadata that may not be there."""

    async def admit(self, task, now):
        assert task.metadata["team"]
        return Admit()


# ------------------------------------------------------------------ observe


@breaks_admission("ADMISSION-OBSERVE-1")
class AnswersWithGates(StandardAdmission):
    """Answers with what a gate is to be, and not with a change."""

    def observe(self, change):
        return [Gate(name="g", concurrency=2)] if change.event == "GaveUp" else []


@breaks_admission("ADMISSION-OBSERVE-1")
class AnswersNone(StandardAdmission):
    """Forgets that nothing is an empty list."""

    def observe(self, change):
        return None if change.event == "StillGoing" else ()


@breaks_admission("ADMISSION-OBSERVE-2")
@frozen(kw_only=True)
class PausesForNoTime(StandardAdmission):
    """Pauses for as long as tasks fail, which is not at all at first."""

    failures: Counter[str] = field(factory=Counter, init=False)

    def observe(self, change):
        self.failures[change.event] += 1
        if change.event == "Deferred" and self.failures["Deferred"] == 20:
            return [PauseGate(name="g", reason="failing", duration=timedelta())]
        return ()


@breaks_admission("ADMISSION-OBSERVE-2")
class LimitsToNothing(StandardAdmission):
    """Stops a gate by its limit."""

    def observe(self, change):
        return [SetGate(name="g", concurrency=0)] if change.event == "Rejected" else ()


@breaks_admission("ADMISSION-OBSERVE-3")
class WantsABefore(StandardAdmission):
    """Compares with a snapshot that may not be there."""

    def observe(self, change):
        assert change.before.version < change.after.version
        return ()


@breaks_admission("ADMISSION-OBSERVE-3")
class KnowsAllEvents(StandardAdmission):
    """Has a table of the events of today."""

    def observe(self, change):
        if " " in change.event:
            raise KeyError(change.event)
        return ()


@breaks_admission("ADMISSION-OBSERVE-4")
class WantsAnAccount(StandardAdmission):
    """Names a gate after an account that may not be there."""

    def observe(self, change):
        route = change.after.route
        if change.event == "Deferred":
            gates.account(route.provider_key, route.account_id)
        return ()


@breaks_admission("ADMISSION-OBSERVE-5")
class WritesALog(StandardAdmission):
    """Writes down what happens."""

    def observe(self, change):
        Path(os.devnull).write_text(change.event, "utf-8")
        return ()


@breaks_admission("ADMISSION-OBSERVE-6")
class ReckonsLong(StandardAdmission):
    """Computes statistics now and then."""

    def observe(self, change):
        until = time.thread_time() + 0.01
        while (
            change.event == "CancelDone"
            and change.after.route.tenant_id == "umbrella"
            and time.thread_time() < until
        ):
            pass
        return ()


@breaks_admission("ADMISSION-OBSERVE-7")
class SignsSnapshots(StandardAdmission):
    """Leaves a note in the task."""

    def observe(self, change):
        change.after.metadata["events"] = [*change.after.metadata.get("events", []), change.event]
        return ()


@breaks_admission("ADMISSION-OBSERVE-8")
class PausesForEver(StandardAdmission):
    """Leaves it to a person to open a gate again."""

    def observe(self, change):
        return [PauseGate(name="g", reason="doubt")] if change.event == "LeftUnknown" else ()


@breaks_admission("ADMISSION-OBSERVE-9")
@frozen(kw_only=True)
class RemembersFailures(StandardAdmission):
    """Counts by task, for ever."""

    counts: Counter[str] = field(factory=Counter, init=False, repr=False)

    def observe(self, change):
        self.counts[change.after.id] += 1
        return ()


@breaks_admission("ADMISSION-MAKE-1")
@frozen(kw_only=True)
class ReadsWhenMade(StandardAdmission):
    """Reads a file when it is made."""

    text: str = field(factory=lambda: Path(os.devnull).read_text("utf-8"))


# ------------------------------------------------------------------ settled


@breaks_admission("ADMISSION-SETTLED-1")
class SettlesWithGates(StandardAdmission):
    """Answers with what a gate is to be, and not with a change."""

    async def settled(self, changes):
        return [Gate(name="g", concurrency=2)] if any(each.event == "GaveUp" for each in changes) else []


@breaks_admission("ADMISSION-SETTLED-1")
class LimitsWhatHasNoName(StandardAdmission):
    """Answers with what no store can do."""

    async def settled(self, changes):
        return [PauseGate(name="", reason="failing", duration=_MINUTE)] if len(changes) > 1 else ()


@breaks_admission("ADMISSION-SETTLED-2")
class ExpectsEachTaskOnce(StandardAdmission):
    """Takes a batch for a set of tasks."""

    async def settled(self, changes):
        assert len({each.after.id for each in changes}) == len(changes)
        return ()


@breaks_admission("ADMISSION-SETTLED-2")
class SettlesAfterAccounts(StandardAdmission):
    """Names a gate after an account that may not be there."""

    async def settled(self, changes):
        for each in changes:
            if each.event == "Deferred":
                gates.account(each.after.route.provider_key, each.after.route.account_id)
        return ()


@breaks_admission("ADMISSION-SETTLED-3")
@frozen(kw_only=True)
class SettlesAsleep(StandardAdmission):
    """Stops the whole loop, now and then."""

    asked: list[int] = field(factory=lambda: [0], init=False)

    async def settled(self, changes):
        self.asked[0] += len(changes) > 1
        if self.asked[0] % 5 == 4:
            time.sleep(0.3)  # noqa: ASYNC251 - that is what is broken
        return ()


@breaks_admission("ADMISSION-SETTLED-4")
class SettlesWithNotes(StandardAdmission):
    """Leaves a note in the task."""

    async def settled(self, changes):
        for each in changes:
            each.after.metadata["events"] = [*each.after.metadata.get("events", []), each.event]
        return ()


@breaks_admission("ADMISSION-SETTLED-5")
@frozen(kw_only=True)
class LocksForGood(StandardAdmission):
    """Keeps its lock when the store is away."""

    lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    fleet: list[Fleet] = field(factory=list, init=False)

    def attach(self, fleet):
        self.fleet.append(fleet)

    async def settled(self, changes):
        await self.lock.acquire()
        await self.fleet[-1].count([Count(name="settled", amount=len(changes), lifetime=_MINUTE)])
        self.lock.release()
        return ()


# ------------------------------------------------------------------ credits


@breaks_admission("ADMISSION-CREDIT-1")
class CreditsByTenant(StandardAdmission):
    """Answers once for each tenant."""

    async def credits(self, drafts):
        return [timedelta() for _ in {each.route.tenant_id for each in drafts}]


@breaks_admission("ADMISSION-CREDIT-1")
class CreditsInSeconds(StandardAdmission):
    """Answers with numbers."""

    async def credits(self, drafts):
        return [-1.5 if len(drafts) == 50 else timedelta() for _ in drafts]


@breaks_admission("ADMISSION-CREDIT-2")
@frozen(kw_only=True)
class CreditsWithoutEnd(StandardAdmission):
    """Doubles what it asks for."""

    asked: list[int] = field(factory=lambda: [0], init=False)

    async def credits(self, drafts):
        self.asked[0] += 1
        return [-timedelta(days=2 ** min(self.asked[0], 20)) for _ in drafts]


@breaks_admission("ADMISSION-CREDIT-3")
class CreditsWithNotes(StandardAdmission):
    """Leaves a note in the draft."""

    async def credits(self, drafts):
        for each in drafts:
            each.metadata["asked"] = len(drafts)
        return [timedelta() for _ in drafts]
