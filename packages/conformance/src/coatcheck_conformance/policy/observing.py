"""What an admission policy makes of what happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import get_args

from coatcheck.evolving import evolve
from coatcheck.gates import GateChange, PauseGate, Rate, SetGate
from coatcheck.task import LONGEST, new_task_id
from coatcheck_conformance.policy.asking import AdmissionTrial, admission_rule
from coatcheck_conformance.policy.naming import require_name
from coatcheck_conformance.policy.snapshots import EVENTS, changes, make_change
from coatcheck_conformance.policy.watching import growth, staying_inside, unchanged
from coatcheck_conformance.rules import Level, Suite

__all__ = ["CHANGES", "Observing"]

CHANGES = get_args(GateChange)
"""What a policy answers with."""

_ZERO = timedelta()
_MUCH = 3_000
"""Blocks of memory, after ten thousand steps."""
_FAILING = frozenset({"Deferred", "QueryErred", "LeftUnknown"})
_FAILURES = 10_000
_EACH_SECONDS = 0.005
_LONG = 1.0


def _answers(trial: AdmissionTrial) -> Iterator[GateChange]:
    """Return the policy's answers to good and bad days, as far as they are changes of gates."""
    for change in changes():
        answer: object = trial.policy.observe(change)
        if isinstance(answer, (list, tuple)):
            yield from (each for each in answer if isinstance(each, CHANGES))


class Observing(Suite):
    """`observe` answers a committed change with changes to gates, as a circuit breaker does."""

    @admission_rule("ADMISSION-OBSERVE-1")
    async def test_it_answers_with_changes_of_gates(self, trial: AdmissionTrial) -> None:
        """It returns a sequence of `SetGate`, `PauseGate`, `ResumeGate` and `DeleteGate`, by default none."""
        for change in changes():
            answer: object = trial.policy.observe(change)
            assert isinstance(answer, (list, tuple)), f"to {change.event} it answered {answer!r}"
            for each in answer:
                assert isinstance(each, CHANGES), f"to {change.event} it answered {each!r}"

    @admission_rule("ADMISSION-OBSERVE-2")
    async def test_changes_can_be_carried_out(self, trial: AdmissionTrial) -> None:
        """What it asks for can be done: gates have names, limits grant something, pauses last and have a reason."""
        for each in _answers(trial):
            require_name(each.name)
            if isinstance(each, SetGate):
                assert each.concurrency is None or each.concurrency >= 1, (
                    f"{each!r}; to stop a gate, pause it"
                )
                assert each.rate is None or isinstance(each.rate, Rate), f"{each!r} has no Rate"
            elif isinstance(each, PauseGate):
                assert each.duration is None or _ZERO < each.duration <= LONGEST, (
                    f"{each!r} lasts for no time"
                )
                assert isinstance(each.reason, str), f"the reason of {each!r} is no text"
                assert each.reason.strip(), f"{each!r} gives no reason"

    @admission_rule("ADMISSION-OBSERVE-3")
    async def test_it_survives_every_event(self, trial: AdmissionTrial) -> None:
        """It sees each committed change: of every event, of tasks just added, and of events yet to come."""
        for event, source, target in EVENTS:
            trial.policy.observe(make_change(event, source, target))

    @admission_rule("ADMISSION-OBSERVE-4")
    async def test_it_takes_tasks_with_little_in_them(self, trial: AdmissionTrial) -> None:
        """It takes snapshots as they come, also with nothing in them but what every task has."""
        for event, source, target in EVENTS:
            if source is not None and event[0].isupper():
                trial.policy.observe(make_change(event, source, target, bare=True))

    @admission_rule("ADMISSION-OBSERVE-5")
    async def test_observing_stays_inside(self, trial: AdmissionTrial) -> None:
        """It is called on the worker's loop, between settling and settling: it neither sleeps nor does I/O."""
        seen = list(changes())
        for change in seen:
            trial.policy.observe(change)  # what it imports may be read
        with staying_inside("observe"):
            for change in seen:
                trial.policy.observe(change)

    @admission_rule("ADMISSION-OBSERVE-6")
    async def test_observing_is_quick(self, trial: AdmissionTrial) -> None:
        """A worker commits thousands of changes a second: each takes five milliseconds at most, and mostly far less."""
        seen = list(changes())
        taken = [_LONG] * len(seen)
        for _ in range(3):  # the collector of garbage may come in between
            for number, change in enumerate(seen):
                began = time.thread_time()
                trial.policy.observe(change)
                taken[number] = min(taken[number], time.thread_time() - began)
            if max(taken) < _EACH_SECONDS:
                break
        slowest = seen[taken.index(max(taken))]
        assert max(taken) < _EACH_SECONDS, f"{slowest.event} takes {max(taken) * 1000:.0f} ms"

    @admission_rule("ADMISSION-OBSERVE-7")
    async def test_observing_changes_no_task(self, trial: AdmissionTrial) -> None:
        """A snapshot is read-only."""
        for change in list(changes())[::7]:
            with unchanged("observe", change):
                trial.policy.observe(change)

    @admission_rule("ADMISSION-OBSERVE-8", level=Level.SHOULD)
    async def test_a_pause_ends_by_itself(self, trial: AdmissionTrial) -> None:
        """What a policy pauses opens again by itself: a circuit breaker pauses a gate until a time."""
        for each in _answers(trial):
            assert not isinstance(each, PauseGate) or each.duration is not None, (
                f"nobody but a person ends {each!r}; give it a duration"
            )

    @admission_rule("ADMISSION-OBSERVE-9", level=Level.SHOULD)
    async def test_failing_tasks_leave_nothing_behind(self, trial: AdmissionTrial) -> None:
        """It counts by gate and not by task: ten thousand failing tasks make it no larger to speak of."""
        failures = [make_change(*each) for each in EVENTS if each[0] in _FAILING]

        def fail(number: int) -> None:
            change = failures[number % len(failures)]
            before, after = change.before, evolve(change.after, id=new_task_id())
            trial.policy.observe(evolve(change, before=before and evolve(before, id=after.id), after=after))

        grown = growth(fail, _FAILURES)
        assert grown < _MUCH, f"it grew by {grown} blocks of memory"
