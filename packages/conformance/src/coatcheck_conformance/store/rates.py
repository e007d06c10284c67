"""S11: gates that limit how often something is granted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from coatcheck.events import GaveBack
from coatcheck.gates import Rate
from coatcheck.task import Task
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Kind, Level, Suite
from coatcheck_conformance.store.outcomes import deferred, succeeded
from coatcheck_conformance.store.spec import Hook
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Rates", "grants_of", "require_rate"]

_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)


def grants_of(tasks: Sequence[Task]) -> list[datetime]:
    """Return when each of these claims was granted by a rate, ascending."""
    stamps = [lease_of(task).granted_at for task in tasks]
    assert None not in stamps, "a claim through a rate-limited gate does not say when it was granted"
    return sorted(at for at in stamps if at is not None)


def require_rate(stamps: Sequence[datetime], rate: Rate) -> None:
    """Check that no window `(t - per, t]` holds more than `rate.count` of the stamps."""
    for first, beyond in zip(stamps, stamps[rate.count :], strict=False):
        assert beyond - first >= rate.per, (
            f"{rate.count + 1} grants within {beyond - first}, of a gate that allows {rate.count} in {rate.per}"
        )


class Rates(Suite):
    """S11: in no window `(t - per, t]` are more than `rate` grants."""

    @store_rule("STORE-RATE-1", requires=(Hook.CLOCK,))
    async def test_a_grant_counts_for_exactly_one_window(self, trial: Trial) -> None:
        """No window `(t - per, t]` exceeds the rate: 2 per second, A and B at 1000 ms, C not at 1500, but at 2000."""
        await trial.store.set_gate("g", rate=Rate(2, _SECOND))
        await trial.time.pass_(_SECOND)
        a, b, c = await trial.add(*make_drafts(3, gates=["g"]))
        assert [task.id for task in await trial.claim()] == [a.id, b.id]
        for step in (500 * _MILLISECOND, 499 * _MILLISECOND):
            await trial.time.pass_(step)
            assert await trial.claim() == []
        now = await trial.time.pass_(_MILLISECOND)
        (task,) = await trial.claim()
        assert task.id == c.id
        assert lease_of(task).granted_at == now

    @store_rule("STORE-RATE-2")
    async def test_a_rate_holds_in_every_window(self, trial: Trial) -> None:
        """In no window `(t - per, t]` more than `rate` grants, whatever the clock."""
        rate = Rate(3, SHORT)
        await trial.store.set_gate("g", rate=rate)
        await trial.add(*make_drafts(8, gates=["g"]))
        tasks = await trial.claim()
        while len(tasks) < 8:
            await trial.time.pass_(SHORT / 10)
            tasks += await trial.claim()
        require_rate(grants_of(tasks), rate)

    @store_rule("STORE-RATE-3", requires=(Hook.CLOCK,))
    async def test_windows_slide(self, trial: Trial) -> None:
        """In no window, wherever it begins: windows slide and are not reset."""
        await trial.store.set_gate("g", rate=Rate(2, _SECOND))
        await trial.add(*make_drafts(4, gates=["g"]))
        assert len(await trial.claim(1)) == 1
        await trial.time.pass_(900 * _MILLISECOND)
        assert len(await trial.claim()) == 1
        await trial.time.pass_(100 * _MILLISECOND)
        assert len(await trial.claim()) == 1
        await trial.time.pass_(850 * _MILLISECOND)
        assert len(await trial.claim()) == 0
        await trial.time.pass_(50 * _MILLISECOND)
        assert len(await trial.claim()) == 1

    @store_rule("STORE-RATE-4", requires=(Hook.CLOCK,))
    async def test_under_load_hardly_a_grant_is_missed(self, trial: Trial) -> None:
        """Under load at most 2 % fewer."""
        rate = Rate(100, _SECOND)
        await trial.store.set_gate("g", rate=rate)
        await trial.add(*make_drafts(800, gates=["g"]))
        tasks: list[Task] = []
        for step in range(500):
            tasks += await trial.claim(1 + step % 2)
            await trial.time.pass_(10 * _MILLISECOND)
        require_rate(grants_of(tasks), rate)
        assert len(tasks) >= 0.98 * rate.count * 5

    @store_rule("STORE-RATE-5")
    async def test_a_claim_takes_no_more_than_the_rate_has_left(self, trial: Trial) -> None:
        """A batch takes its grants in one step: never more than are left in the window."""
        await trial.store.set_gate("g", rate=Rate(3, LONG))
        await trial.add(*make_drafts(10, gates=["g"]))
        assert len(await trial.claim(2)) == 2
        assert len(await trial.claim()) == 1
        assert (await trial.usage("g")).granted == 3

    @store_rule("STORE-RATE-6")
    async def test_a_grant_that_was_given_back_can_be_taken_again(self, trial: Trial) -> None:
        """SUBMITTING, not started, given back: slots and rate grants returned."""
        await trial.store.set_gate("g", rate=Rate(2, LONG))
        first, _ = await trial.claimed(*make_drafts(2, gates=["g"]))
        await trial.settle(first, GaveBack(delay=LONG / 2))
        assert (await trial.usage("g")).granted == 1
        assert len(await trial.claimed(make_draft(gates=["g"]))) == 1
        await trial.add(make_draft(gates=["g"]))
        assert await trial.claim() == []

    @store_rule("STORE-RATE-7")
    async def test_a_deferred_submission_has_spent_its_grant(self, trial: Trial) -> None:
        """Back to PENDING_SUBMIT after a backoff: slot released, rate grant spent."""
        await trial.store.set_gate("g", rate=Rate(1, LONG), concurrency=1)
        (task,) = await trial.claimed(make_draft(gates=["g"]))
        await trial.settle(task, deferred())
        usage = await trial.usage("g")
        assert (usage.used, usage.granted) == (0, 1)
        assert await trial.claim() == []

    @store_rule("STORE-RATE-8")
    async def test_an_end_gives_no_grant_back(self, trial: Trial) -> None:
        """A grant is spent when the call was made, however soon it ended."""
        await trial.store.set_gate("g", rate=Rate(1, LONG))
        (task,) = await trial.claimed(make_draft(gates=["g"]))
        await trial.settle(task, succeeded())
        await trial.add(make_draft(gates=["g"]))
        assert await trial.claim() == []

    @store_rule("STORE-RATE-9", requires=(Hook.CLOCK,))
    async def test_usage_of_a_rate_falls_as_time_passes(self, trial: Trial) -> None:
        """`gates()` with live usage: grants in the window that ends now."""
        await trial.store.set_gate("g", rate=Rate(5, _SECOND))
        await trial.claimed(*make_drafts(2, gates=["g"]))
        await trial.time.pass_(600 * _MILLISECOND)
        await trial.claimed(make_draft(gates=["g"]))
        assert (await trial.usage("g")).granted == 3
        await trial.time.pass_(400 * _MILLISECOND)
        assert (await trial.usage("g")).granted == 1
        await trial.time.pass_(600 * _MILLISECOND)
        assert (await trial.usage("g")).granted == 0

    @store_rule("STORE-RATE-10", requires=(Hook.CLOCK,))
    async def test_a_clock_that_goes_back_grants_nothing_extra(self, trial: Trial) -> None:
        """Stamps are never below the gate's last: a clock that goes back opens no window."""
        assert trial.time.manual is not None
        await trial.store.set_gate("g", rate=Rate(2, _SECOND))
        await trial.add(*make_drafts(6, gates=["g"]))
        stamp = await trial.time.pass_(_SECOND)
        assert len(await trial.claim()) == 2
        trial.time.manual.set(stamp - 800 * _MILLISECOND)
        assert await trial.claim() == []
        trial.time.manual.set(stamp + 900 * _MILLISECOND)
        assert await trial.claim() == []
        trial.time.manual.set(stamp + _SECOND)
        assert len(await trial.claim(1)) == 1
        trial.time.manual.set(stamp + 500 * _MILLISECOND)
        assert all(at >= stamp + _SECOND for at in grants_of(await trial.claim(1)))

    @store_rule("STORE-RATE-12")
    async def test_changing_a_rate_keeps_what_was_granted(self, trial: Trial) -> None:
        """Lowering a limit revokes nothing and grants nothing until usage is below it: a rate, too."""
        await trial.store.set_gate("g", rate=Rate(4, LONG))
        await trial.add(*make_drafts(9, gates=["g"]))
        assert len(await trial.claim(3)) == 3
        await trial.store.set_gate("g", rate=Rate(2, LONG))
        assert (await trial.usage("g")).granted == 3
        assert await trial.claim() == []
        await trial.store.set_gate("g", rate=Rate(5, LONG))
        assert len(await trial.claim(2)) == 2
        assert await trial.claim() == []

    @store_rule("STORE-RATE-13", requires=(Hook.CLOCK,))
    async def test_a_grant_that_comes_back_late_makes_no_room(self, trial: Trial) -> None:
        """In no window more than `rate` grants: one that comes back after its window makes no room in another."""
        await trial.store.set_gate("g", rate=Rate(4, _SECOND))
        await trial.add(*make_drafts(12, gates=["g"]))
        unused = await trial.claim(2)
        await trial.time.pass_(2 * _SECOND)
        assert len(await trial.claim()) == 4
        for task in unused:
            await trial.settle(task, GaveBack())
        assert await trial.claim() == []
        assert (await trial.usage("g")).granted == 4

    @store_rule("STORE-RATE-14", requires=(Hook.CLOCK,))
    async def test_a_grant_from_before_the_rate_makes_no_room(self, trial: Trial) -> None:
        """In no window more than `rate` grants: one from before the rate was set was never counted."""
        await trial.store.set_gate("h", rate=Rate(100, _SECOND))
        await trial.add(*make_drafts(12, gates=["g", "h"]))
        unused = await trial.claim(2)
        await trial.time.pass_(100 * _MILLISECOND)
        await trial.store.set_gate("g", rate=Rate(3, _SECOND))
        assert len(await trial.claim()) == 3
        for task in unused:
            await trial.settle(task, GaveBack())
        assert await trial.claim() == []
        assert (await trial.usage("g")).granted == 3

    @store_rule("STORE-RATE-11", level=Level.SHOULD, kind=Kind.STOCHASTIC)
    async def test_a_window_of_thousands_stays_small(self, trial: Trial) -> None:
        """A rate of thousands is as exact as a small one: the window is merged, never above the rate."""
        rate = Rate(1500, SHORT)
        await trial.store.set_gate("g", rate=rate)
        await trial.add(*make_drafts(2000, gates=["g"]))
        tasks: list[Task] = []
        for step in range(200):
            tasks += await trial.claim(17 + step % 5)
            if step % 4 == 0:
                await trial.time.pass_(_MILLISECOND)
            if len(tasks) == 2000:
                break
        require_rate(grants_of(tasks), rate)
