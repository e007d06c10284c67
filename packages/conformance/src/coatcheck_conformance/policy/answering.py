"""What an admission policy answers together with the fleet: to what was settled, and to what is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from coatcheck.errors import StoreUnavailable
from coatcheck.fleet import apply_gate_change
from coatcheck.gates import TaskChange
from coatcheck.task import LONGEST, TaskDraft
from coatcheck_conformance.policy.asking import AdmissionTrial, admission_rule
from coatcheck_conformance.policy.observing import CHANGES
from coatcheck_conformance.policy.snapshots import EVENTS, changes, make_change, ordinary_draft
from coatcheck_conformance.policy.spec import CREDITS, SETTLES
from coatcheck_conformance.policy.watching import longest_gap_seconds, unchanged
from coatcheck_conformance.rules import Suite

__all__ = ["Answering", "Crediting"]

_BATCH = 40
_GAP_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
"""What the worker gives a policy."""


def _batches() -> list[Sequence[TaskChange]]:
    """Return good and bad days in batches, as a worker settles them, and one change alone."""
    seen = list(changes())
    return [seen[:1], *(seen[first : first + _BATCH] for first in range(0, len(seen), _BATCH))]


def _drafts(count: int) -> list[TaskDraft]:
    """Return drafts of a few tenants, and of none."""
    return [ordinary_draft(tenant=("acme", "umbrella", None)[n % 3], priority=n % 2) for n in range(count)]


class Answering(Suite):
    """`settled` answers what was committed together with changes to gates, as a circuit breaker does."""

    @admission_rule("ADMISSION-SETTLED-1", requires=(SETTLES,))
    async def test_it_answers_with_changes_that_a_store_can_make(self, trial: AdmissionTrial) -> None:
        """It returns a sequence of changes of gates, and a store carries them out."""
        for batch in _batches():
            answer: object = await trial.policy.settled(batch)
            assert isinstance(answer, (list, tuple)), f"it answered {answer!r}"
            for each in answer:
                assert isinstance(each, CHANGES), f"it answered {each!r}"
                await apply_gate_change(trial.store, each)

    @admission_rule("ADMISSION-SETTLED-2", requires=(SETTLES,))
    async def test_it_takes_every_event_in_any_company(self, trial: AdmissionTrial) -> None:
        """It takes each event, also those yet to come, tasks with little in them, and one task several times."""
        for bare in (False, True):
            told = [
                make_change(event, source, target, bare=bare and source is not None and event[0].isupper())
                for event, source, target in EVENTS
            ]
            await trial.policy.settled(told)
            for each in told:
                await trial.policy.settled([each, each])

    @admission_rule("ADMISSION-SETTLED-3", requires=(SETTLES,))
    async def test_answering_does_not_block_the_loop(self, trial: AdmissionTrial) -> None:
        """It awaits what it waits for: calls and leases go on, on the same loop, while it answers."""
        batches = _batches()
        gap = await longest_gap_seconds(
            lambda number: trial.policy.settled(batches[number % len(batches)]), 3 * len(batches)
        )
        assert gap < _GAP_SECONDS, f"the loop stood still for {gap:.2f} s"

    @admission_rule("ADMISSION-SETTLED-4", requires=(SETTLES,))
    async def test_answering_changes_no_task(self, trial: AdmissionTrial) -> None:
        """A snapshot is read-only."""
        for batch in _batches():
            with unchanged("settled", batch[0]):
                await trial.policy.settled(batch)

    @admission_rule("ADMISSION-SETTLED-5", requires=(SETTLES,))
    async def test_an_outage_leaves_nothing_stuck(self, trial: AdmissionTrial) -> None:
        """While the store is away it may fail, as `StoreUnavailable`; when it is back it answers as before."""
        batches = _batches()
        for method in ("count", "gates", "now"):
            trial.store.fail(method, times=2, error=StoreUnavailable("away"))
        async with asyncio.timeout(_ANSWER_SECONDS):
            for batch in batches[:6]:
                try:
                    await trial.policy.settled(batch)
                except StoreUnavailable:
                    continue
            await trial.policy.settled(batches[0])


class Crediting(Suite):
    """`credits` says how much waiting a task is credited with in the queue."""

    @admission_rule("ADMISSION-CREDIT-1", requires=(CREDITS,))
    async def test_each_draft_has_its_credit(self, trial: AdmissionTrial) -> None:
        """It returns a duration for each draft, in order, however many are submitted together."""
        for count in (1, 2, 50):
            answer: object = await trial.policy.credits(_drafts(count))
            assert isinstance(answer, (list, tuple)), f"it answered {answer!r}"
            assert len(answer) == count, f"to {count} drafts it gave {len(answer)} credits"
            for each in answer:
                assert isinstance(each, timedelta), f"it credited {each!r}"

    @admission_rule("ADMISSION-CREDIT-2", requires=(CREDITS,))
    async def test_a_credit_can_be_stored(self, trial: AdmissionTrial) -> None:
        """A credit is within a hundred years, also when thousands were submitted before."""
        for _ in range(20):
            for each in await trial.policy.credits(_drafts(500)):
                assert not isinstance(each, timedelta) or abs(each) <= LONGEST, f"it credited {each!r}"

    @admission_rule("ADMISSION-CREDIT-3", requires=(CREDITS,))
    async def test_crediting_changes_no_draft(self, trial: AdmissionTrial) -> None:
        """A draft is read-only."""
        drafts = _drafts(3)
        for each in drafts:
            with unchanged("credits", each):
                await trial.policy.credits(drafts)
