"""S11: gates that are defined, changed, paused and deleted."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.events import GaveBack
from coatcheck.gates import Gate, Rate
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Defining", "Pausing"]


class Defining(Suite):
    """S11: gates are defined, changed, listed and deleted."""

    @store_rule("STORE-GATE-1")
    async def test_gates_are_listed_by_name_with_live_usage(self, trial: Trial) -> None:
        """`set_gate`, `gates()` with live usage."""
        await trial.store.set_gate("b", concurrency=3, rate=Rate(5, timedelta(minutes=1)))
        await trial.store.set_gate("a", rate=Rate(2))
        await trial.store.set_gate("B", concurrency=9)
        await trial.claimed(*make_drafts(2, gates=["b"]))
        listed = await trial.store.gates()
        assert [each.gate for each in listed] == [
            Gate(name="B", concurrency=9),
            Gate(name="a", rate=Rate(2)),
            Gate(name="b", concurrency=3, rate=Rate(5, timedelta(minutes=1))),
        ]
        assert [(each.used, each.granted) for each in listed] == [(0, 0), (0, 0), (2, 2)]
        assert [each.gate.name for each in await trial.store.gates(["b", "a"])] == ["a", "b"]

    @store_rule("STORE-GATE-2")
    async def test_an_undefined_gate_is_unlimited(self, trial: Trial) -> None:
        """Undefined means unlimited."""
        await trial.claimed(*make_drafts(50, gates=["nowhere", "never"]))
        assert await trial.store.gates() == []

    @store_rule("STORE-GATE-3")
    async def test_setting_replaces_the_limits(self, trial: Trial) -> None:
        """`set_gate` sets a gate's limits: what is not named is no limit any more."""
        await trial.store.set_gate("g", concurrency=1)
        await trial.store.set_gate("g", rate=Rate(7))
        assert (await trial.usage("g")).gate == Gate(name="g", rate=Rate(7))
        assert len(await trial.claimed(*make_drafts(3, gates=["g"]))) == 3

    @store_rule("STORE-GATE-4")
    async def test_only_if_new_leaves_what_is_there(self, trial: Trial) -> None:
        """With `only_if_new`, limits are set if there are none: a starting worker undoes nothing. A pause is none."""
        await trial.store.pause_gate("g", reason="429")
        await trial.store.set_gate("g", concurrency=1, only_if_new=True)
        await trial.store.set_gate("g", concurrency=5, only_if_new=True)
        assert (await trial.usage("g")).gate.concurrency == 1

    @store_rule("STORE-GATE-5")
    async def test_usage_counts_from_before_the_definition(self, trial: Trial) -> None:
        """Tasks naming the gate count even from before it was defined."""
        claimed = await trial.claimed(*make_drafts(2, gates=["g"]))
        await trial.tracked(make_draft(gates=["g", "h"]))
        (waiting,) = await trial.add(make_draft(gates=["g"]))
        await trial.store.set_gate("g", concurrency=3)
        assert await trial.used("g") == 3
        assert await trial.claim() == []
        await trial.settle(claimed[0], GaveBack(delay=LONG))
        assert [task.id for task in await trial.claim()] == [waiting.id]

    @store_rule("STORE-GATE-6")
    async def test_lowering_revokes_nothing_and_grants_nothing(self, trial: Trial) -> None:
        """Lowering a limit revokes nothing and grants nothing until usage is below it."""
        await trial.store.set_gate("g", concurrency=4)
        tasks = await trial.started(*make_drafts(4, gates=["g"]))
        (waiting,) = await trial.add(make_draft(gates=["g"]))
        await trial.store.set_gate("g", concurrency=2)
        assert await trial.used("g") == 4
        for task in tasks[:2]:
            await trial.settle(task, succeeded())
            assert await trial.claim() == []
        await trial.settle(tasks[2], succeeded())
        assert [task.id for task in await trial.claim()] == [waiting.id]
        await trial.settle(tasks[3], succeeded())

    @store_rule("STORE-GATE-7")
    async def test_raising_grants_at_the_next_claim(self, trial: Trial) -> None:
        """Changes are seen by every worker at its next claim."""
        await trial.store.set_gate("g", concurrency=1)
        await trial.add(*make_drafts(5, gates=["g"]))
        assert len(await trial.claim()) == 1
        await trial.store.set_gate("g", concurrency=3)
        assert len(await trial.claim()) == 2

    @store_rule("STORE-GATE-8")
    async def test_a_deleted_gate_is_open(self, trial: Trial) -> None:
        """`delete_gate` forgets a gate's limits and pause; the gate is open then."""
        await trial.store.set_gate("g", concurrency=1)
        await trial.store.pause_gate("g", reason="maintenance")
        await trial.add(*make_drafts(4, gates=["g"]))
        assert await trial.claim() == []
        await trial.store.delete_gate("g")
        await trial.store.delete_gate("g")
        assert await trial.store.gates() == []
        assert len(await trial.claim(3)) == 3
        await trial.store.set_gate("g", concurrency=3)
        assert await trial.used("g") == 3
        assert await trial.claim() == []

    @store_rule("STORE-GATE-9")
    async def test_names_compare_by_exact_bytes(self, trial: Trial) -> None:
        """A gate is a name: others that look alike are other gates."""
        await trial.store.set_gate("gate", concurrency=1)
        names = ["gate", "Gate", "gate ", "g\u00e4te", "ga\u0308te", "provider/ocr%3Agitee", "%", "_ate"]
        await trial.add(*(make_draft(gates=[name]) for name in names for _ in range(2)))
        assert len(await trial.claim()) == 2 * len(names) - 1


class Pausing(Suite):
    """S11: a paused gate grants nothing from the next claim on."""

    @store_rule("STORE-PAUSE-1")
    async def test_a_paused_gate_grants_nothing(self, trial: Trial) -> None:
        """A paused gate grants nothing from the next claim on, and has a reason, who, and optionally until when."""
        await trial.add(*make_drafts(3, gates=["g"]))
        assert len(await trial.claim(1)) == 1
        before = await trial.time.now()
        await trial.store.pause_gate("g", reason="broken pages", who="ada")
        assert await trial.claim() == []
        pause = (await trial.usage("g")).gate.pause
        assert pause is not None
        assert (pause.reason, pause.who, pause.until) == ("broken pages", "ada", None)
        assert before <= pause.since <= await trial.time.now()
        await trial.store.resume_gate("g")
        assert [usage.gate.pause for usage in await trial.store.gates(["g"]) if usage.gate.pause] == []
        assert len(await trial.claim()) == 2

    @store_rule("STORE-PAUSE-2")
    async def test_a_pause_may_end_by_itself(self, trial: Trial) -> None:
        """A paused gate has optionally until when; it opens then, and is not shown as paused any more."""
        await trial.add(make_draft(gates=["g"]))
        await trial.store.pause_gate("g", reason="429", duration=SHORT)
        pause = (await trial.usage("g")).gate.pause
        assert pause is not None
        assert pause.until == pause.since + SHORT
        assert await trial.claim() == [] or await trial.time.now() >= pause.until
        await trial.time.reach(pause.until)
        assert (await trial.usage("g")).gate.pause is None
        assert len(await trial.claim()) == 1

    @store_rule("STORE-PAUSE-3")
    async def test_pausing_twice_needs_one_resume(self, trial: Trial) -> None:
        """Pausing is idempotent: a pause is a state, not a count."""
        await trial.add(make_draft(gates=["g"]))
        for _ in range(3):
            await trial.store.pause_gate("g", reason="maintenance")
        await trial.store.resume_gate("g")
        assert len(await trial.claim()) == 1

    @store_rule("STORE-PAUSE-4")
    async def test_a_longer_pause_stands(self, trial: Trial) -> None:
        """A pause in force that lasts longer stands: a worker's pause for a 429 never shortens an operator's."""
        await trial.add(make_draft(gates=["g"]))
        await trial.store.pause_gate("g", reason="maintenance", who="ada")
        await trial.store.pause_gate("g", reason="429", duration=SHORT)
        pause = (await trial.usage("g")).gate.pause
        assert pause is not None
        assert (pause.reason, pause.who, pause.until) == ("maintenance", "ada", None)
        await trial.time.pass_(SHORT)
        assert await trial.claim() == []

    @store_rule("STORE-PAUSE-5")
    async def test_a_pause_is_lengthened(self, trial: Trial) -> None:
        """A pause that lasts as long as the one in force, or longer, takes its place."""
        await trial.store.pause_gate("g", reason="429", duration=SHORT)
        await trial.store.pause_gate("g", reason="503", duration=LONG)
        pause = (await trial.usage("g")).gate.pause
        assert pause is not None
        assert pause.reason == "503"
        await trial.store.pause_gate("g", reason="for ever")
        pause = (await trial.usage("g")).gate.pause
        assert pause is not None
        assert (pause.reason, pause.until) == ("for ever", None)

    @store_rule("STORE-PAUSE-6")
    async def test_a_pause_that_has_ended_lengthens_nothing(self, trial: Trial) -> None:
        """A pause in force that lasts longer stands; one that has ended is not in force, however long it was."""
        await trial.store.pause_gate("g", reason="long ago", duration=2 * SHORT)
        await trial.time.pass_(2 * SHORT)
        await trial.store.pause_gate("g", reason="now", duration=SHORT)
        pause = (await trial.usage("g")).gate.pause
        assert pause is not None
        assert pause.reason == "now"

    @store_rule("STORE-PAUSE-7")
    async def test_limits_and_pause_are_apart(self, trial: Trial) -> None:
        """`set_gate` leaves the pause, and pausing and resuming leave the limits."""
        rate = Rate(7)
        await trial.store.set_gate("g", concurrency=2, rate=rate)
        await trial.store.pause_gate("g", reason="maintenance")
        gate = (await trial.usage("g")).gate
        assert (gate.concurrency, gate.rate) == (2, rate)
        await trial.store.set_gate("g", concurrency=1)
        await trial.add(*make_drafts(3, gates=["g"]))
        assert await trial.claim() == []
        await trial.store.resume_gate("g")
        assert len(await trial.claim()) == 1

    @store_rule("STORE-PAUSE-8")
    async def test_resuming_what_is_not_paused_does_nothing(self, trial: Trial) -> None:
        """Resuming a gate that is not paused does nothing."""
        await trial.store.resume_gate("unknown")
        await trial.store.set_gate("g", concurrency=1)
        await trial.store.resume_gate("g")
        assert [usage.gate for usage in await trial.store.gates()] == [Gate(name="g", concurrency=1)]

    @store_rule("STORE-PAUSE-9")
    async def test_a_pause_takes_nothing_back(self, trial: Trial) -> None:
        """A paused gate grants nothing from the next claim on: what was granted may start, settle and renew."""
        (task,) = await trial.claimed(make_draft(gates=["g"]))
        await trial.store.pause_gate("g", reason="maintenance")
        assert await trial.renew(task)
        (task,) = await trial.start(task)
        await trial.settle(task, succeeded())
