"""Tasks as JSON: every field comes back, and what would not is refused."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck import lifecycle
from coatcheck.codec import (
    copy_json,
    decode_task,
    digest,
    dumps,
    encode_fields,
    encode_task,
    isolated,
    loads,
)
from coatcheck.errors import NotPersistable, UndecodableRow
from coatcheck.events import Accepted, Finished
from coatcheck.lifecycle import Settlement
from coatcheck.task import (
    JSON,
    Attempt,
    CancelOutcome,
    Identity,
    Lease,
    Outcome,
    Progress,
    QueryParams,
    Rank,
    Route,
    Schedule,
    Status,
    Task,
    TaskError,
    Transition,
    from_millis,
)
from coatcheck.testing import make_task

LATER = from_millis(60_000)
ONCE = Progress(lost_leases=1)
FAILURE = Outcome(error=TaskError(code="submit_deferred", message="no"))
T0 = datetime(2030, 1, 1, 12, 30, 15, 123_000, tzinfo=UTC)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
COUNTS = st.integers(0, 2**63)
SMALL = st.integers(-(2**31), 2**31 - 1)
TIMES = st.integers(0, 4_000_000_000_000).map(from_millis)
DURATIONS = st.integers(0, 10**12).map(lambda count: timedelta(milliseconds=count))
FRACTIONS = st.floats(0, 1)
JSONS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSONS, max_size=3)
STATUSES = st.sampled_from(Status)


EXTRAS = st.none() | st.dictionaries(TEXT.map("new_{}".format), JSONS, min_size=1, max_size=2).map(dumps)
"""What a newer version may have stored in a part."""


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return the strategy, or None."""
    return st.none() | strategy


def built(cls: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return objects with every field drawn; fail if a field of the class is forgotten here."""
    assert set(fields) == {each.name for each in attrs.fields(cls)}
    return st.builds(cls, **fields)


QUERY_PARAMS = built(
    QueryParams,
    external_task_id=NAMES.filter(lambda text: text.strip()),
    provider_params=OBJECTS,
    extra_json=EXTRAS,
)
ERRORS = built(TaskError, code=TEXT, message=TEXT, provider_code=maybe(TEXT), extra_json=EXTRAS)
RANKS = built(Rank, band=SMALL, credit=DURATIONS, mode=NAMES)
TASKS = built(
    Task,
    id=NAMES,
    status=STATUSES,
    version=COUNTS,
    token=COUNTS,
    route=built(
        Route,
        handler_key=TEXT,
        provider_key=TEXT,
        account_id=maybe(TEXT),
        tenant_id=maybe(TEXT),
        gates=st.lists(TEXT, max_size=3).map(tuple),
        query_gate=maybe(TEXT),
        extra_json=EXTRAS,
    ),
    schedule=built(
        Schedule,
        priority=SMALL,
        rank=RANKS,
        created_at=TIMES,
        scheduled_at=TIMES,
        due_at=TIMES,
        deadline_at=TIMES,
        extra_json=EXTRAS,
    ),
    identity=built(
        Identity,
        params_digest=TEXT,
        idempotency_key=TEXT,
        dedup_key=maybe(TEXT),
        params_version=COUNTS,
        query_params_version=COUNTS,
        extra_json=EXTRAS,
    ),
    lease=maybe(
        built(
            Lease,
            worker_id=TEXT,
            token=COUNTS,
            nonce=TEXT,
            until=TIMES,
            granted_at=maybe(TIMES),
            started_at=maybe(TIMES),
            extra_json=EXTRAS,
        )
    ),
    attempt=maybe(
        built(
            Attempt,
            token=COUNTS,
            worker_id=TEXT,
            started_at=TIMES,
            first_started_at=TIMES,
            open=st.booleans(),
            extra_json=EXTRAS,
        )
    ),
    progress=built(
        Progress,
        submit_attempts=COUNTS,
        query_count=COUNTS,
        consecutive_errors=COUNTS,
        lost_leases=COUNTS,
        missing_results=COUNTS,
        fraction=maybe(FRACTIONS),
        provider_status=maybe(TEXT),
        accepted_at=maybe(TIMES),
        queried_at=maybe(TIMES),
        extra_json=EXTRAS,
    ),
    outcome=built(
        Outcome,
        result=JSONS,
        error=maybe(ERRORS),
        finished_at=maybe(TIMES),
        remote_cancel=maybe(st.sampled_from(CancelOutcome)),
        extra_json=EXTRAS,
    ),
    params=JSONS,
    query_params=maybe(QUERY_PARAMS),
    metadata=OBJECTS,
    cancellation_requested_at=maybe(TIMES),
    holds_slots=st.booleans(),
    nudged=st.booleans(),
    settled_by=maybe(TEXT),
    history=st.lists(
        built(
            Transition,
            at=TIMES,
            source=maybe(STATUSES),
            target=STATUSES,
            token=COUNTS,
            worker_id=maybe(TEXT),
            note=TEXT,
            count=st.integers(1, 10**6),
            extra_json=EXTRAS,
        ),
        max_size=3,
    ).map(tuple),
    extra=st.dictionaries(TEXT.map("x_{}".format), JSONS, max_size=2),
)


@given(TASKS)
@settings(max_examples=200)
def test_every_task_comes_back_equal(task: Task) -> None:
    """Every field of every part survives the way through text, whatever is in it."""
    assert decode_task(cast("dict[str, Any]", loads(dumps(encode_task(task))))) == task


@pytest.mark.parametrize("value", [0, 0.0, False, "", [], {}, [None], {"a": None}], ids=str)
def test_values_that_look_like_nothing_are_something(value: JSON) -> None:
    """An empty result is not the same as none, nor 0 as False."""
    task = make_task(outcome=Outcome(result=value), params=value)
    back = decode_task(encode_task(task))
    assert (back.result, type(back.result), back.params) == (value, type(value), value)


def test_defaults_are_left_out() -> None:
    """A fresh task's document holds what is told of it and no more."""
    document = encode_task(make_task())
    assert set(document) == {
        "id",
        "status",
        "version",
        "token",
        "route",
        "schedule",
        "identity",
        "params",
        "history",
    }
    json.dumps(document)


def test_what_a_newer_version_stored_is_kept() -> None:
    """Top-level fields that this version does not know are written back unchanged."""
    document = {**encode_task(make_task()), "mood": {"good": True}}
    task = decode_task(document)
    assert task.extra == {"mood": {"good": True}}
    assert encode_task(evolve(task, version=7)) == {**document, "version": 7}


def with_news(document: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    """Return a copy of a document, with a field in one of its parts that this version does not know."""
    changed = json.loads(dumps(document))
    part = changed
    for step in path:
        part = part[step]
    part["mood"] = {"good": [True]}
    return cast("dict[str, Any]", changed)


PARTS: list[tuple[str | int, ...]] = [
    ("route",),
    ("schedule",),
    ("identity",),
    ("lease",),
    ("attempt",),
    ("progress",),
    ("outcome",),
    ("outcome", "error"),
    ("query_params",),
    ("history", 0),
]


@pytest.mark.parametrize("path", PARTS, ids=lambda path: ".".join(map(str, path)))
def test_what_a_newer_version_stored_in_a_part_is_kept(path: tuple[str | int, ...]) -> None:
    """Fields of a part that this version does not know are written back unchanged, and hinder nothing."""
    now = from_millis(7_000)
    known = evolve(
        make_task(status=Status.RUNNING),
        lease=Lease(worker_id="w", token=1, nonce="n", until=now),
        attempt=Attempt(token=1, worker_id="w", started_at=now, first_started_at=now),
        progress=Progress(query_count=3),
        outcome=Outcome(error=TaskError(code="query_failed", message="no")),
        query_params=QueryParams(external_task_id="x"),
        history=(Transition(at=now, source=None, target=Status.PENDING_SUBMIT, token=0),),
    )
    document = with_news(encode_task(known), path)
    task = decode_task(document)
    assert encode_task(evolve(task, version=7)) == {**document, "version": 7}
    assert encode_task(isolated(task)) == document
    assert encode_fields(task, [str(path[0])]) == {path[0]: document[str(path[0])]}
    assert task != known
    assert decode_task(encode_task(known)) == known
    hash(task.lease)


@pytest.mark.parametrize("path", [("route",), ("identity",), ("progress",), ("outcome",)], ids=str)
def test_what_a_newer_version_stored_outlives_a_life(path: tuple[str | int, ...]) -> None:
    """The steps of a life keep what stands in parts that they change and do not replace."""
    now = from_millis(7_000)
    task = decode_task(with_news(encode_task(evolve(make_task(), outcome=FAILURE, progress=ONCE)), path))
    task = lifecycle.claimed_for_submission(task, Lease(worker_id="w", token=1, nonce="n", until=LATER), now)
    task = lifecycle.started(task, now, LATER)
    accepted = Accepted(query_params=QueryParams(external_task_id="x"), delay=timedelta())
    for event in (accepted, Finished(status=Status.SUCCEEDED, result=1)):
        settled = lifecycle.settled(task, Settlement(task=task, event=event), now)
        assert isinstance(settled, Task)
        assert encode_task(settled)[str(path[0])]["mood"] == {"good": [True]}
        lease = Lease(worker_id="w", token=2, nonce="m", until=LATER)
        task = lifecycle.claimed_for_query(settled, lease, now)


def test_extras_are_shared_by_no_snapshots() -> None:
    """What somebody does to the unknown fields of one snapshot shows in no other."""
    task = decode_task({**encode_task(make_task()), "mood": {"good": True}})
    isolated(task).extra["mood"]["good"] = False  # type: ignore[index]  # what nobody should do
    assert task.extra == {"mood": {"good": True}}


@pytest.mark.parametrize(
    "damage",
    [
        {"status": "SLEEPING"},
        {"status": None},
        {"schedule": {}},
        {"route": 7},
        {"lease": {"worker_id": "w"}},
        {"query_params": {"external_task_id": " "}},
        {"outcome": {"error": {"codeword": 1}}},
        {"history": [{"at": "yesterday"}]},
        {"identity": {"params_digest": "0", "colour": "red"}},
    ],
    ids=str,
)
def test_damage_is_one_error(damage: dict[str, Any]) -> None:
    """Whatever is wrong with a stored document is an `UndecodableRow`, so that it can be set aside."""
    with pytest.raises(UndecodableRow):
        decode_task({**encode_task(make_task()), **damage})


def test_missing_fields_are_damage() -> None:
    """A document without what every task has cannot be read."""
    with pytest.raises(UndecodableRow, match="KeyError"):
        decode_task({})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "not JSON"),
        ([math.inf], "not JSON"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        ({1: 2}, "keys are strings"),
        ([({"a": [{None: 1}]},)], "keys are strings"),
        (object, "not JSON"),
        ({"a": b"x"}, "not JSON"),
    ],
    ids=repr,
)
def test_what_no_store_could_hold_is_refused(value: Any, message: str) -> None:
    """NaN, lone surrogates, keys that are no strings and foreign objects are refused, and say where."""
    with pytest.raises(NotPersistable, match=message) as caught:
        dumps(value, path="params")
    assert caught.value.path == "params"


def deep(levels: int) -> Any:
    """Return a list in a list in a list."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_refused_and_not_a_crash() -> None:
    """A value too deep for Python is not JSON, neither to write, nor to digest, nor to read."""
    with pytest.raises(NotPersistable):
        dumps(deep(100_000))
    with pytest.raises(NotPersistable):
        digest(deep(100_000))
    with pytest.raises(UndecodableRow):
        loads("[" * 100_000)
    with pytest.raises(UndecodableRow):
        loads(b"\xff")


@given(JSONS)
def test_text_is_compact_and_exact(value: JSON) -> None:
    """A value comes back equal from its text."""
    assert loads(dumps(value)) == value


@given(OBJECTS)
def test_the_digest_is_of_the_value(value: dict[str, JSON]) -> None:
    """Two objects that differ in the order of their keys only have one digest."""
    assert digest(value) == digest(dict(reversed(value.items())))
    assert digest({**value, "\x00new": 1}) != digest(value)


def test_what_has_no_json_has_no_digest() -> None:
    """A digest of what cannot be stored is refused."""
    for value in (math.nan, "\ud800", {1, 2}):
        with pytest.raises(NotPersistable):
            digest(cast("JSON", value))


def test_copies_share_nothing() -> None:
    """A copy of JSON has containers of its own, and only JSON's kinds of them."""
    inner: list[JSON] = [1]
    value: JSON = {"a": inner, "b": (1, {"c": 2})}
    copy = copy_json(value)
    inner.append(2)
    assert copy == {"a": [1], "b": [1, {"c": 2}]}


def test_isolated_tasks_cannot_be_changed_through_each_other() -> None:
    """Nothing that is done to a snapshot's params, metadata, query params or result shows in another."""
    task = make_task(
        params={"p": [1]},
        metadata={"m": [1]},
        query_params=QueryParams(external_task_id="x", provider_params={"q": [1]}),
        outcome=Outcome(result=[[1]]),
    )
    copy = isolated(task)
    assert copy == task
    for container in (
        cast("Any", task.params)["p"],
        cast("Any", task.metadata)["m"],
        cast("Any", task.query_params).provider_params["q"],
        cast("Any", task.result)[0],
    ):
        container.append(2)
    assert copy == evolve(
        task,
        params={"p": [1]},
        metadata={"m": [1]},
        query_params=QueryParams(external_task_id="x", provider_params={"q": [1]}),
        outcome=Outcome(result=[[1]]),
    )


def test_isolating_copies_empty_containers_too() -> None:
    """Who writes into an empty one writes into a copy."""
    task = make_task()
    copy = isolated(task)
    assert copy == task
    assert copy.metadata is not task.metadata
