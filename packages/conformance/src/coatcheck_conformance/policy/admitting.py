"""An admission policy's last word before a task is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from coatcheck.gates import Admission, Admit, Postpone
from coatcheck.task import LONGEST, Progress, Status, Task
from coatcheck_conformance.policy.asking import AdmissionTrial, admission_rule
from coatcheck_conformance.policy.snapshots import (
    START,
    make_bare_snapshot,
    make_snapshot,
    ordinary_draft,
)
from coatcheck_conformance.policy.watching import longest_gap_seconds, unchanged
from coatcheck_conformance.rules import Suite

__all__ = ["Admitting"]

_ADMIT_SECONDS = 5.0
"""What the worker gives a policy."""
_GAP_SECONDS = 0.2
_HOUR = timedelta(hours=1)


def _claimed(number: int = 0, *, at: datetime = START, priority: int = 0, attempts: int = 1) -> Task:
    """Return a task that was just claimed for submission: its lease is not started."""
    draft = ordinary_draft(tenant=f"tenant-{number}", priority=priority)
    made = Progress(submit_attempts=attempts, consecutive_errors=attempts)
    return _unstarted(make_snapshot(Status.SUBMITTING, draft=draft, at=at, progress=made))


def _unstarted(task: Task) -> Task:
    lease = task.lease
    return evolve(task, lease=lease and evolve(lease, started_at=None), query_params=None)


def _week(first: datetime) -> Iterator[datetime]:
    """Return each second hour of a week, at which a policy may say this or that."""
    return (first + number * 2 * _HOUR for number in range(7 * 12))


async def _words(trial: AdmissionTrial, first: datetime) -> AsyncIterator[tuple[Admission, datetime]]:
    """Return the policy's words on tasks of all sorts, and when it was asked."""
    for number, now in enumerate(_week(first)):
        for priority in (-1, 0, 1):
            task = _claimed(number % 3, at=now - _HOUR / 6, priority=priority, attempts=1 + number % 2)
            yield await trial.policy.admit(task, now), now


class Admitting(Suite):
    """`admit` has a last word before `start`: go ahead, or not now."""

    @admission_rule("ADMISSION-ADMIT-1")
    async def test_its_word_is_admit_or_postpone(self, trial: AdmissionTrial) -> None:
        """Its word is `Admit` or `Postpone`, and no other."""
        async for word, now in _words(trial, START):
            assert isinstance(word, (Admit, Postpone)), f"at {now} it said {word!r}"

    @admission_rule("ADMISSION-ADMIT-2")
    async def test_a_postponement_has_an_aware_time_and_a_reason(self, trial: AdmissionTrial) -> None:
        """`Postpone` has an aware `until`, and a reason for whoever wonders why the task waits."""
        async for word, _ in _words(trial, START):
            if isinstance(word, Postpone):
                assert isinstance(word.until, datetime), f"until is a datetime, not {word.until!r}"
                assert word.until.tzinfo is not None, f"until is aware, unlike {word.until!r}; add tzinfo=UTC"
                assert isinstance(word.reason, str), f"the reason is text, not {word.reason!r}"
                assert word.reason.strip(), "it gives no reason"

    @admission_rule("ADMISSION-ADMIT-3")
    async def test_a_postponement_ends_after_the_time_it_was_given(self, trial: AdmissionTrial) -> None:
        """`until` is by the store's clock, whose time it is given: after that, and within a hundred years of it."""
        real = datetime.now(UTC)
        for first in (real, real - timedelta(days=9_000), real + timedelta(days=9_000)):
            async for word, now in _words(trial, first):
                if isinstance(word, Postpone):
                    until = word.until if word.until.tzinfo else word.until.replace(tzinfo=UTC)
                    assert now < until <= now + LONGEST, f"at {now} it postponed a task until {until}"

    @admission_rule("ADMISSION-ADMIT-4")
    async def test_it_answers_in_time(self, trial: AdmissionTrial) -> None:
        """It answers within five seconds, also about tasks that have come a long way."""
        for attempts in (1, 10, 1_000):
            try:
                async with asyncio.timeout(_ADMIT_SECONDS):
                    await trial.policy.admit(_claimed(attempts=attempts), START)
            except TimeoutError:
                pytest.fail(f"it has not answered within {_ADMIT_SECONDS:g} s")

    @admission_rule("ADMISSION-ADMIT-5")
    async def test_it_does_not_block_the_loop(self, trial: AdmissionTrial) -> None:
        """It awaits what it waits for: a heartbeat on the worker's loop goes on while it is asked."""
        gap = await longest_gap_seconds(lambda number: trial.policy.admit(_claimed(number), START), 60)
        assert gap < _GAP_SECONDS, f"the loop stood still for {gap:.2f} s"

    @admission_rule("ADMISSION-ADMIT-6")
    async def test_admitting_changes_no_task(self, trial: AdmissionTrial) -> None:
        """A snapshot is read-only."""
        for number in range(5):
            task = _claimed(number)
            with unchanged("admit", task):
                await trial.policy.admit(task, START)

    @admission_rule("ADMISSION-ADMIT-7")
    async def test_a_whole_claim_is_asked_about_at_once(self, trial: AdmissionTrial) -> None:
        """It is asked about all tasks of a claim at once, and answers about each."""
        tasks = [_claimed(number) for number in range(200)]
        words = await asyncio.gather(*(trial.policy.admit(task, START) for task in tasks))
        assert len(words) == len(tasks)

    @admission_rule("ADMISSION-ADMIT-8")
    async def test_a_word_that_comes_too_late_holds_up_no_other(self, trial: AdmissionTrial) -> None:
        """A call that is cancelled, since its time was over, holds up no other."""
        calls = [asyncio.ensure_future(trial.policy.admit(_claimed(number), START)) for number in range(20)]
        await asyncio.sleep(0)
        for each in calls[::2]:
            each.cancel()
        async with asyncio.timeout(_ADMIT_SECONDS):
            await asyncio.gather(*calls, return_exceptions=True)
            await trial.policy.admit(_claimed(), START)

    @admission_rule("ADMISSION-ADMIT-9")
    async def test_it_takes_a_task_with_little_in_it(self, trial: AdmissionTrial) -> None:
        """It takes snapshots as they come, also with nothing in them but what every task has."""
        bare = make_bare_snapshot(Status.SUBMITTING)
        assert isinstance(await trial.policy.admit(bare, START), (Admit, Postpone))
