"""S11: who changed a gate, when, how and why."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from coatcheck.gates import MAX_GATE_RECORDS, Gate, GateAction, Rate
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Recording"]

_AT_ONCE = 20


class Recording(Suite):
    """S11: each change of a gate is recorded in the step that makes it."""

    @store_rule("STORE-RECORD-1")
    async def test_each_change_is_recorded(self, trial: Trial) -> None:
        """`gate_history` says who changed a gate when, how and why, the oldest first, and what it was then."""
        store, rate = trial.store, Rate(5, timedelta(minutes=1))
        before = await trial.time.now()
        await store.set_gate("g", concurrency=2, rate=rate, who="ada", reason="a larger contract")
        await store.pause_gate("g", reason="broken pages", who="grace", duration=LONG)
        await store.resume_gate("g", who="alan", reason="mended")
        await store.set_gate("g", concurrency=1, rate=rate, who="ada", reason="once more")
        await store.delete_gate("g", who="edsger", reason="the provider is gone")
        limits, paused, resumed, changed, deleted = await store.gate_history("g")
        assert [each.action for each in (limits, paused, resumed, changed, deleted)] == [
            GateAction.LIMITED,
            GateAction.PAUSED,
            GateAction.RESUMED,
            GateAction.LIMITED,
            GateAction.DELETED,
        ]
        assert [(each.who, each.reason) for each in (limits, paused, resumed, changed, deleted)] == [
            ("ada", "a larger contract"),
            ("grace", "broken pages"),
            ("alan", "mended"),
            ("ada", "once more"),
            ("edsger", "the provider is gone"),
        ]
        assert limits.gate == Gate(name="g", concurrency=2, rate=rate)
        assert (resumed.gate.name, resumed.gate.pause) == ("g", None)
        assert changed.gate == Gate(name="g", concurrency=1, rate=rate)
        assert deleted.gate == Gate(name="g")
        pause = paused.gate.pause
        assert pause is not None
        assert (pause.reason, pause.who, pause.until) == ("broken pages", "grace", pause.since + LONG)
        times = [each.at for each in (limits, paused, resumed, changed, deleted)]
        assert times == sorted(times)
        assert before <= times[0] <= times[-1] <= await trial.time.now()

    @store_rule("STORE-RECORD-2")
    async def test_what_changes_nothing_is_not_recorded(self, trial: Trial) -> None:
        """No record tells of limits that it has already, a pause that is outlasted, or undoing what is not there."""
        store = trial.store
        await store.resume_gate("unknown", who="ada")
        assert await store.gate_history("unknown") == []
        await store.delete_gate("g", who="ada")
        assert await store.gate_history("g") == []
        await store.set_gate("g", concurrency=1, only_if_new=True, reason="at first")
        await store.set_gate("g", concurrency=1, only_if_new=True, who="a worker")
        await store.set_gate("g", concurrency=1, who="ada")
        await store.resume_gate("g", who="ada")
        await store.pause_gate("g", reason="maintenance")
        await store.pause_gate("g", reason="429", duration=SHORT)
        pause = (await trial.usage("g")).gate.pause
        told = [each.reason for each in await store.gate_history("g")]
        assert told[:2] == ["at first", "maintenance"]
        assert len(told) == 2 or (pause is not None and pause.reason == told[2])

    @store_rule("STORE-RECORD-3")
    async def test_what_repeats_the_last_is_counted(self, trial: Trial) -> None:
        """A policy's thousandth step does not push out what operators did: it takes the place of the one before."""
        store = trial.store
        for limit in (1, 2, 3):
            await store.set_gate("g", concurrency=limit, who="adaptive", reason="more is taken")
        between = await trial.time.pass_(SHORT / 10)
        for who, reason in (("adaptive", "more is taken"), ("adaptive", "429"), ("ada", "429")):
            limit += 1
            await store.set_gate("g", concurrency=limit, who=who, reason=reason)
        folded, slower, by_hand = await store.gate_history("g")
        assert [each.times for each in (folded, slower, by_hand)] == [4, 1, 1]
        assert [each.gate.concurrency for each in (folded, slower, by_hand)] == [4, 5, 6]
        assert folded.at >= between

    @store_rule("STORE-RECORD-4")
    async def test_the_history_is_bounded(self, trial: Trial) -> None:
        """The latest changes are kept, in bounded number."""
        for number in range(MAX_GATE_RECORDS + 3):
            await trial.store.set_gate("g", concurrency=number + 1, who=f"operator {number}")
        history = await trial.store.gate_history("g")
        assert [each.who for each in history] == [f"operator {n + 3}" for n in range(MAX_GATE_RECORDS)]

    @store_rule("STORE-RECORD-5")
    async def test_each_gate_has_its_own(self, trial: Trial) -> None:
        """Names compare by exact bytes, words come back as they were, and who may be unknown."""
        names = ["g", "G", "g ", "gé", "a/b"]
        for name in names:
            await trial.store.set_gate(name, concurrency=1, reason=f"für {name!r} \N{SNOWMAN}")
        for name in names:
            (record,) = await trial.store.gate_history(name)
            assert (record.who, record.reason, record.gate.name) == (None, f"für {name!r} \N{SNOWMAN}", name)
        assert await trial.store.gate_history("a") == []

    @store_rule("STORE-RECORD-6")
    async def test_no_change_of_many_at_once_is_lost(self, trial: Trial) -> None:
        """Each change is recorded, also of many at the same moment."""
        async with asyncio.TaskGroup() as group:
            for number in range(_AT_ONCE):
                group.create_task(trial.store.set_gate("g", concurrency=number + 1, who=f"operator {number}"))
        history = await trial.store.gate_history("g")
        assert sorted(each.who or "" for each in history) == sorted(f"operator {n}" for n in range(_AT_ONCE))
        assert history[-1].gate == (await trial.usage("g")).gate
