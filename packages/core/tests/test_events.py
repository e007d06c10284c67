"""Events: what can happen, and what a person may not decide."""

from collections.abc import Callable
from datetime import timedelta
from typing import get_args

import pytest

from coatcheck import events
from coatcheck.errors import InvalidParams
from coatcheck.events import Adopt, Event, Extend, Resolution, Resubmit
from coatcheck.lifecycle.outcomes import STEPS
from coatcheck.task import QueryParams

JOB = QueryParams(external_task_id="remote-1")


def test_the_lifecycle_knows_every_event() -> None:
    """No event can be made that the lifecycle has no step for."""
    assert set(STEPS) == set(get_args(Event))


def test_events_are_public() -> None:
    """Every event and resolution is exported."""
    names = {each.__name__ for each in (*get_args(Event), *get_args(Resolution))}
    assert names <= set(events.__all__)


@pytest.mark.parametrize(
    "decide",
    [
        lambda timeout: Adopt(query_params=JOB, tracking_timeout=timeout),
        lambda timeout: Resubmit(tracking_timeout=timeout),
        lambda timeout: Extend(tracking_timeout=timeout),
    ],
)
@pytest.mark.parametrize("timeout", [timedelta(), timedelta(seconds=-1), timedelta.max], ids=str)
def test_a_decision_grants_time_to_come(
    decide: Callable[[timedelta], Resolution], timeout: timedelta
) -> None:
    """A tracking timeout without a future, or beyond any calendar, is refused."""
    decide(timedelta(seconds=1))
    with pytest.raises(InvalidParams, match="tracking_timeout"):
        decide(timeout)


def test_adopting_needs_no_new_timeout() -> None:
    """An adopted job may keep its deadline."""
    assert Adopt(query_params=JOB).tracking_timeout is None
