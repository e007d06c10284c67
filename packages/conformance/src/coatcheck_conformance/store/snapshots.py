"""S3: reading tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve

from coatcheck.codec import dumps, encode_task
from coatcheck.errors import NotPersistable
from coatcheck.events import Finished, GaveBack
from coatcheck.lifecycle import HISTORY_LIMIT
from coatcheck.task import JSON, QueryParams, Status, TaskDraft, TaskError, new_task_id
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, deferred, going, succeeded
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["HOSTILE_TEXTS", "HOSTILE_VALUES", "Snapshots"]

HOSTILE_TEXTS = (
    "\u0000",
    "a\u0000b",
    "\u0001\u001f\u007f\u0085\u2028",
    "\U0001f9fe\U0001d538 \u202e \u0301",
    "caf\u00e9 cafe\u0301",
    "'; DROP TABLE task; --",
    '%s {0} $1 :name ? \\ \\u0000 "quoted"',
    " both ends ",
    "\r\n\t",
    "\ufeffbom \ufffe \uffff",
)
"""Texts that break what stores are made of."""

_DEEP: JSON = None
for _ in range(100):
    _DEEP = [_DEEP]

HOSTILE_VALUES: dict[str, JSON] = {
    "texts": list(HOSTILE_TEXTS),
    "keys": dict.fromkeys((*HOSTILE_TEXTS, "", "$ref", "a.b", "__proto__"), 1),
    "integers": [2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**100, 0],
    "floats": [0.1, 1e308, 5e-324, 1e-7, 2.5, 1e22, -0.5, 1.0],
    "nulls": {"a": None, "b": [None, {"c": None}, []], "c": {}},
    "bools are no numbers": [True, False, 1, 0, "true", "1", "null", ""],
    "depth": _DEEP,
    "order": {"b": 1, "a": 2, "c": {"z": 1, "y": 2}},
    "large": "x" * (1 << 20),
    "large unicode": "\u00e9\U0001f9fe" * (1 << 17),
}
"""JSON values that have to come back as they were."""

_UNSTORABLE: dict[str, Callable[[], TaskDraft]] = {
    "NaN": lambda: evolve(make_draft(), params={"a": [1, float("nan")]}),
    "infinity": lambda: evolve(make_draft(), params=float("inf")),
    "a lone surrogate": lambda: evolve(make_draft(), params=["\ud800"]),
    "a lone surrogate in a key": lambda: evolve(make_draft(), params={"\udc00": 1}),
    "NaN in metadata": lambda: make_draft(metadata={"a": float("nan")}),
    "a lone surrogate in metadata": lambda: make_draft(metadata={"a": "half: \udfff"}),
    "a lone surrogate in the tenant": lambda: make_draft(tenant="\ud800"),
    "a lone surrogate in the dedup key": lambda: make_draft(dedup_key="\ud800"),
    "no JSON at all": lambda: evolve(make_draft(), params={"a": {1, 2}}),  # type: ignore[dict-item]
}


class Snapshots(Suite):
    """S3: `get` and `get_many` return isolated snapshots, and every field round-trips."""

    @store_rule("STORE-READ-1")
    async def test_reading_by_id(self, trial: Trial) -> None:
        """`get(id)`, `get_many`: those that exist, by id."""
        tasks = await trial.add(*make_drafts(5))
        wanted = [new_task_id(), *(task.id for task in tasks[1:4]), "no id at all", ""]
        assert await trial.store.get_many(wanted) == {task.id: task for task in tasks[1:4]}
        assert await trial.store.get_many([]) == {}
        assert await trial.store.get(new_task_id()) is None
        assert await trial.store.get(tasks[0].id) == tasks[0]

    @store_rule("STORE-READ-2")
    async def test_hostile_values_round_trip(self, trial: Trial) -> None:
        """Every field round-trips: unicode, NUL, integers beyond 2^53, nested nulls, 1 MiB bodies."""
        for name, value in HOSTILE_VALUES.items():
            (task,) = await trial.started(make_draft(params={"v": value}, metadata={"v": value}))
            read = await trial.get(task)
            assert read.params == {"v": value}, name
            assert read.metadata == {"v": value}, name
            assert dumps(read.params) == dumps({"v": value}), f"{name}: equal, but not the same"
            event = accepted(provider_params={"v": value})
            await trial.settle(task, event)
            assert (await trial.get(task)).query_params == event.query_params, name
            (task,) = await trial.claim_queries()
            await trial.settle(task, succeeded(value))
            assert (await trial.get(task)).result == value, name

    @store_rule("STORE-READ-3")
    async def test_hostile_texts_round_trip_in_every_field(self, trial: Trial) -> None:
        """Every field round-trips: names and notes as well as bodies."""
        for text in HOSTILE_TEXTS:
            draft = make_draft(
                handler=f"{HANDLER}{text}",
                gates=[f"g{text}", f"h{text}"],
                query_gate=f"q{text}",
                account=text,
                tenant=text,
                dedup_key=text,
                idempotency_key=text,
            )
            (added,) = await trial.add(draft)
            (task,) = await trial.claim(handlers=[draft.route.handler_key], worker=f"w{text}")
            assert (task.route, task.identity) == (draft.route, draft.identity)
            assert (await trial.get(added)).lease == task.lease
            (task,) = await trial.start(task)
            await trial.settle(task, accepted(f"x{text}", provider_status=text))
            assert (await trial.get(task)).external_task_id == f"x{text}"
            assert await trial.store.nudge(draft.route.handler_key, f"x{text}") == 1
            (task,) = await trial.claim_queries(handlers=[draft.route.handler_key])
            error = TaskError(code=f"c{text}", message=text, provider_code=text)
            await trial.settle(task, Finished(status=Status.FAILED, error=error))
            assert (await trial.get(task)).error == error

    @store_rule("STORE-READ-4")
    async def test_what_cannot_be_stored_is_refused_before_anything_is_written(self, trial: Trial) -> None:
        """Lone surrogates and NaN are refused with a clear error before anything is written."""
        for name, make in _UNSTORABLE.items():
            good, bad = make_draft(), make()
            with pytest.raises(NotPersistable):
                await trial.store.add([good, bad])
            assert await trial.store.get_many([good.id, bad.id]) == {}, name
        assert await trial.claim() == []

    @store_rule("STORE-READ-5")
    async def test_snapshots_are_isolated(self, trial: Trial) -> None:
        """Isolated snapshots: nothing that is done to one shows in the store, or in another."""
        pages: list[JSON] = [1]
        notes: dict[str, JSON] = {"n": [1]}
        draft = evolve(make_draft(), params={"pages": pages}, metadata=notes)
        (added,) = await trial.store.add([draft])
        pages.append("changed after the add")
        notes["changed"] = True
        for snapshot in (added.task, await trial.get(added.task)):
            assert isinstance(snapshot.params, dict)
            snapshot.params["changed"] = True
        assert (await trial.get(added.task)).params == {"pages": [1]}
        assert (await trial.get(added.task)).metadata == {"n": [1]}

    @store_rule("STORE-READ-6")
    async def test_results_are_isolated(self, trial: Trial) -> None:
        """Isolated snapshots: results and provider params too."""
        (task,) = await trial.started()
        regions: list[JSON] = ["eu"]
        pages: list[JSON] = [{"text": "a"}]
        event = evolve(
            succeeded(pages), query_params=QueryParams(external_task_id="r", provider_params={"r": regions})
        )
        settled = await trial.settle(task, event)
        regions.append("changed")
        pages.append("changed")
        for snapshot in (settled, await trial.get(task)):
            assert isinstance(snapshot.result, list)
            snapshot.result.append("changed")
        read = await trial.get(task)
        assert read.result == [{"text": "a"}]
        assert read.query_params is not None
        assert read.query_params.provider_params == {"r": ["eu"]}

    @store_rule("STORE-READ-7")
    async def test_every_step_returns_what_is_stored(self, trial: Trial) -> None:
        """Every field round-trips, at every step of a life."""
        draft = make_draft(
            gates=["a", "b"], query_gate="q", account="eu", tenant="acme", dedup_key="k", priority=-7,
            delay=timedelta(milliseconds=7), metadata={"n": 1},
        )  # fmt: skip
        (task,) = await trial.add(draft)
        assert await trial.get(task) == task
        await trial.time.reach(task.schedule.due_at)
        (task,) = await trial.claim()
        assert await trial.get(task) == task
        (task,) = await trial.start(task)
        assert await trial.get(task) == task
        task = await trial.settle(task, accepted(provider_params={"region": "eu"}))
        assert await trial.get(task) == task
        (task,) = await trial.claim_queries()
        assert await trial.get(task) == task
        task = await trial.settle(task, evolve(going(), fraction=0.25, provider_status="half way"))
        assert await trial.get(task) == task
        (task,) = await trial.claim_queries()
        task = await trial.settle(task, succeeded({"pages": 3}))
        assert await trial.get(task) == task

    @store_rule("STORE-READ-8")
    async def test_a_queried_task_does_not_grow(self, trial: Trial) -> None:
        """Querying 10,000 times leaves the row's size constant."""
        (task,) = await trial.tracked()
        sizes = []
        for _ in range(40):
            (task,) = await trial.claim_queries()
            task = await trial.settle(task, going())
            sizes.append(len(dumps(encode_task(task))))
        assert max(sizes[10:]) <= max(sizes[:10]) + 2

    @store_rule("STORE-READ-9")
    async def test_history_is_bounded_and_repetitions_are_folded(self, trial: Trial) -> None:
        """Each task keeps a bounded list of transitions; repeated deferrals are folded into one entry."""
        (task,) = await trial.add()
        for _ in range(50):
            (task,) = await trial.claim()
            task = await trial.settle(task, deferred())
        assert len(task.history) <= HISTORY_LIMIT
        assert len(task.history) < 10
        for n in range(50):
            (task,) = await trial.claim()
            task = await trial.settle(task, GaveBack(note=f"postponed for reason {n}"))
        assert len(task.history) <= HISTORY_LIMIT
        assert task.history[0].source is None
        assert await trial.get(task) == task
