import asyncio
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from coatcheck import (
    AdmissionPolicy,
    Admit,
    Gate,
    Gates,
    Postpone,
    Selection,
    StandardAdmission,
    Task,
    TaskChange,
    events,
    gates,
)
from coatcheck.errors import ConfigurationError
from coatcheck.gates import Admission, GateChange, PauseGate
from coatcheck.retry import ExponentialRetry
from coatcheck.task import TaskDraft
from coatcheck_conformance import (
    AdmissionConformance,
    AdmissionSpec,
    RetryConformance,
    RetrySpec,
    SelectorConformance,
    SelectorSpec,
    Suite,
    validate,
)
from coatcheck_conformance.policy.snapshots import EVENTS
from coatcheck_conformance.policy.spec import ANY_PARAMS, HINTS, candidate_names
from coatcheck_conformance.policy.watching import growth, longest_gap_seconds, staying_inside, unchanged


async def first(selection: Selection) -> str:
    """Take the first candidate: as short as a selector can be."""
    return selection.candidates[0]


class InTurn:
    """Takes one candidate after the other."""

    def __init__(self) -> None:
        self._turn = 0

    async def __call__(self, selection: Selection) -> str:
        """Return the next one."""
        self._turn += 1
        return selection.candidates[self._turn % len(selection.candidates)]


def choose_at_once(selection: Selection) -> str:
    """Look like a selector, and be none: it is not awaited."""
    return selection.candidates[0]


class NightShift(AdmissionPolicy):
    """The example of the docs: a gate for everything, low priority at night, a circuit breaker."""

    def __init__(self, concurrency: int = 500) -> None:
        self._standard = StandardAdmission()
        self._failures: Counter[str] = Counter()
        self._concurrency = concurrency

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name the usual gates, and one for everything."""
        usual = self._standard.gates_for(draft)
        everything = Gate(name="everything", concurrency=self._concurrency)
        return Gates(submit=[*usual.submit, everything], query=usual.query)

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Keep tasks of low priority for the night."""
        if task.schedule.priority < 0 and 8 <= now.hour < 20:
            tonight = now.replace(hour=20, minute=0, second=0, microsecond=0)
            return Postpone(until=tonight, reason="low priority waits for the night")
        return Admit()

    def observe(self, change: TaskChange) -> Sequence[GateChange]:
        """Break the circuit after five failures in a row."""
        name = gates.provider(change.after.route.provider_key)
        if change.event == "Accepted":
            del self._failures[name]
        if change.event == "Deferred":
            self._failures[name] += 1
        if self._failures[name] < 5:
            return ()
        del self._failures[name]
        return [PauseGate(name=name, reason="five failures in a row", duration=timedelta(minutes=1))]


class TestFirst(SelectorConformance):
    """A function."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return the function itself."""
        return SelectorSpec(f"{__name__}:first")


class TestInTurn(SelectorConformance):
    """A class of selectors with a state."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return the class."""
        return SelectorSpec(f"{__name__}:InTurn")


class TestExponentialRetry(RetryConformance):
    """The default, by its key."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return the plugin's key."""
        return RetrySpec("exponential")


class TestRetryWithSettings(RetryConformance):
    """The default with settings that leave little as it was."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return the class, with settings as configuration has them."""
        settings = {
            "initial": "100ms",
            "maximum": "2h",
            "factor": 3,
            "ceiling": "1m",
            "max_consecutive_errors": 8,
        }
        return RetrySpec("coatcheck.retry:ExponentialRetry", settings=settings, ceiling=timedelta(minutes=1))


class TestStandardAdmission(AdmissionConformance):
    """The default, by its key."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return the plugin's key."""
        return AdmissionSpec("standard")


class TestNightShift(AdmissionConformance):
    """The example of the docs."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return the class."""
        return AdmissionSpec(f"{__name__}:NightShift", settings={"concurrency": 7})


# ------------------------------------------------------------------ the specs


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (SelectorSpec("coatcheck.nowhere:choose"), "'coatcheck.nowhere:choose' cannot be imported"),
        (SelectorSpec("roundrobin"), "nothing installed offers selector 'roundrobin'"),
        (SelectorSpec(f"{__name__}:choose_at_once"), "choose_at_once' cannot be created: TypeError"),
        (SelectorSpec(f"{__name__}:first", settings={"a": 1}), "takes no settings"),
        (RetrySpec("coatcheck.retry:Nothing"), "'coatcheck.retry:Nothing' cannot be imported"),
        (RetrySpec("builtins:dict"), "'builtins:dict' made a dict, which is no RetryPolicy"),
        (RetrySpec("exponentail"), "did you mean 'exponential'"),
        (
            RetrySpec("exponential", settings={"initiall": "1s"}),
            "has no settings 'initiall'; did you mean 'initial'",
        ),
        (AdmissionSpec("builtins:list"), "'builtins:list' made a list, which is no AdmissionPolicy"),
        (AdmissionSpec("standard", settings={"limit": []}), "has no settings 'limit'"),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_told(spec: SelectorSpec | RetrySpec | AdmissionSpec, told: str) -> None:
    """A wrong factory or setting is an error that names it, before any rule is tried."""
    with pytest.raises(ConfigurationError, match=told):
        spec.create()


def test_specs_say_which_rules_apply() -> None:
    """A selector for certain params is not asked about others, and a policy without hints is not asked to heed any."""
    assert SelectorSpec("x:y").offers() == {ANY_PARAMS}
    assert SelectorSpec("x:y", params=["text"]).offers() == frozenset()
    assert RetrySpec("x:y").offers() == {HINTS}
    assert RetrySpec("x:y", ceiling=timedelta()).offers() == frozenset()
    assert AdmissionSpec("x:y").offers() == frozenset()


def test_specs_say_what_is_promised_beyond() -> None:
    """What an author claims is tried, and what nobody could try is refused, with the nearest that there is."""
    turns = SelectorSpec("x:y", shares={"kit:provider-000": 1}, promises=["closed", "pauses"])
    assert turns.offers() == {ANY_PARAMS, "shares", "closed", "pauses"}
    assert "keyed" in SelectorSpec("x:y", keyed=lambda key: (key, {})).offers()
    second = timedelta(seconds=1)
    bounded = RetrySpec("x:y", floor=second, maximum=9 * second, promises="last look")
    assert bounded.offers() == {HINTS, "floor", "maximum", "last look"}
    with pytest.raises(ConfigurationError, match="no promise 'lode'; did you mean 'load'"):
        SelectorSpec("x:y", promises=["lode"])
    with pytest.raises(ConfigurationError, match="no promise 'jiter'; did you mean 'jitter'"):
        RetrySpec("x:y", promises="jiter")


def test_a_selector_that_takes_turns_is_tried_for_its_shares() -> None:
    """One counter for all sets of candidates is noticed; one who takes turns by the wrong order is not broken."""
    shares = dict.fromkeys(candidate_names(120), 1)
    report = validate(SelectorConformance, SelectorSpec(f"{__name__}:InTurn", shares=shares))
    assert report.failed == {"SELECTOR-SHARE-2"}


@pytest.mark.parametrize("suite", [SelectorConformance, RetryConformance, AdmissionConformance])
def test_a_suite_without_its_fixture_says_so(suite: type[Suite]) -> None:
    """Who forgets the fixture is told its name and what it returns."""
    fixture = getattr(suite, suite.fixture)
    with pytest.raises(pytest.fail.Exception, match=f"needs a fixture `{suite.fixture}` that returns an? "):
        fixture.__wrapped__(suite())


def test_a_selector_for_certain_params_is_tried_with_those() -> None:
    """Its examples take the place of the kit's."""
    spec = SelectorSpec(f"{__name__}:ByLength", params=["short", "a long text"])
    report = validate(SelectorConformance, spec)
    assert report.failed == set()
    assert any("any params" in each.reason for each in report.results)


class ByLength:
    """Looks into its params, which are text."""

    async def __call__(self, selection: Selection) -> str:
        """Return the first for short texts, else the last."""
        assert isinstance(selection.params, str)
        return selection.candidates[0 if len(selection.params) < 8 else -1]


@pytest.mark.parametrize(
    ("suite", "spec"),
    [
        (RetryConformance, RetrySpec(f"{__name__}:Stubborn", ceiling=timedelta())),
        (RetryConformance, RetrySpec(f"{__name__}:Stubborn")),
    ],
    ids=["told", "not told"],
)
def test_a_policy_that_heeds_no_hints_says_so(suite: type[Suite], spec: RetrySpec) -> None:
    """With a ceiling of zero the rules about hints are left out; without it they fail."""
    expected = {"RETRY-HINT-1", "RETRY-HINT-2", "RETRY-HINT-3"} if spec.ceiling else set()
    assert validate(suite, spec).failed == expected


class Stubborn(ExponentialRetry):
    """Waits a second, whatever anybody says."""

    def next_submit_delay(self, task: Task, error: Exception) -> timedelta:
        """Wait a second."""
        return timedelta(seconds=1)

    def next_query_delay(self, task: Task, result: object) -> timedelta:
        """Wait a second."""
        return timedelta(seconds=1)

    def next_error_delay(self, task: Task, error: Exception) -> timedelta:
        """Wait a second."""
        return timedelta(seconds=1)


def test_every_event_is_told_to_a_policy() -> None:
    """What workers settle with, and what managers do, is all in the table that `observe` is tried on."""
    known = {each.__name__ for each in (*get_args(events.Event), *get_args(events.Resolution))}
    assert known | {"created", "cancellation"} == {name for name, _, _ in EVENTS if "newer" not in name}


# ------------------------------------------------------------------ watching


def test_reaching_outside_is_noticed() -> None:
    """Files, connections and sleep are seen; what another thread does is not."""
    with pytest.raises(AssertionError, match="it reached outside: time.sleep"), staying_inside("it"):
        time.sleep(0)
    with pytest.raises(AssertionError, match="it reached outside: open"), staying_inside("it"):
        Path(os.devnull).read_text("utf-8")
    with pytest.raises(AssertionError, match="socket.getaddrinfo"), staying_inside("it"):
        socket.getaddrinfo("127.0.0.1", 9)
    with staying_inside("it"):
        other = threading.Thread(target=Path(os.devnull).read_text)
        other.start()
        other.join()


def test_a_change_is_noticed() -> None:
    """Also one of an error, which is not in its repr."""
    given: Mapping[str, list[int]] = {"a": []}
    error = ValueError("x")
    with pytest.raises(AssertionError, match="it changed what it was given"), unchanged("it", 1, given):
        given["a"].append(1)
    with pytest.raises(AssertionError, match="it changed"), unchanged("it", error):
        error.hint = 1  # type: ignore[attr-defined] # as a policy might
    with unchanged("it", given, error):
        pass


async def test_a_blocked_loop_is_noticed() -> None:
    """What awaits does not hold it up; what sleeps does, each time it is tried."""

    async def block(number: int) -> None:
        if number == 2:
            time.sleep(0.08)  # noqa: ASYNC251 - that is what is noticed

    assert await longest_gap_seconds(block, 3) >= 0.08
    assert await longest_gap_seconds(lambda _: asyncio.sleep(0.001), 3) < 0.08


def test_growth_is_noticed() -> None:
    """Whatever is remembered counts, and what is let go does not."""
    kept: list[object] = []
    assert growth(lambda number: kept.append([number]), 5_000) >= 5_000
    assert growth(lambda number: [number], 5_000) < 1_000
