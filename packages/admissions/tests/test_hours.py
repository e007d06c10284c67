from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from coatcheck import Admit, InvalidParams, Postpone, Status, SubmitOptions
from coatcheck.task import Route
from coatcheck.testing import ManualClock, ScriptedHandler, make_task, memory_app
from coatcheck_admissions import TimeWindow, time_window

HOUR = timedelta(hours=1)
Handler = ScriptedHandler[dict[str, Any]]


def at(text: str) -> datetime:
    """Return an instant."""
    return datetime.fromisoformat(text).astimezone(UTC)


def opens(policy: TimeWindow, now: str) -> str | None:
    """Return when it opens next, in UTC; None while it is open."""
    found = policy.next_opening(at(now))
    return None if found is None else f"{found[0]:%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("window", "now", "expected"),
    [
        ("22:00-06:00", "2030-01-01T21:59", "01-01 22:00"),
        ("22:00-06:00", "2030-01-01T22:00", None),
        ("22:00-06:00", "2030-01-01T05:59", None),
        ("22:00-06:00", "2030-01-01T06:00", "01-01 22:00"),
        ("09:00-17:00", "2030-01-01T17:00", "01-02 09:00"),
        ("18:00-24:00", "2030-01-01T23:59", None),
        ("18:00-24:00", "2030-01-01T00:00", "01-01 18:00"),
        ("00:00-24:00", "2030-01-01T12:00", None),
        ("sat,sun 00:00-24:00", "2030-01-01T12:00", "01-05 00:00"),  # a Tuesday
        ("sat,sun 00:00-24:00", "2030-01-06T23:59", None),
        ("mon-fri 22:00-06:00", "2030-01-05T05:59", None),  # begun on Friday
        ("mon-fri 22:00-06:00", "2030-01-06T05:59", "01-07 22:00"),
        ("fri-mon 08:00-09:00", "2030-01-01T12:00", "01-04 08:00"),
        ("Tue 08:00 - 09:00", "2030-01-01T12:00", "01-08 08:00"),
    ],
)
def test_when_it_is_open(window: str, now: str, expected: str | None) -> None:
    """From the start on, until the end; over midnight, and on the days on which it opens."""
    assert opens(time_window(window), f"{now}+00:00") == expected


@pytest.mark.parametrize(
    ("window", "now", "expected"),
    [
        ("02:30-04:00", "2030-03-31T00:00+00:00", "03-31 01:00"),  # 02:30 is skipped: at 03:00
        ("02:30-04:00", "2030-03-31T01:59+00:00", None),
        ("02:30-04:00", "2030-03-31T02:00+00:00", "04-01 00:30"),
        ("02:10-02:50", "2030-03-31T00:00+00:00", "04-01 00:10"),  # skipped as a whole
        ("02:30-04:00", "2030-10-27T00:15+00:00", "10-27 00:30"),  # comes twice: the first
        ("02:30-04:00", "2030-10-27T02:59+00:00", None),
        ("01:00-02:30", "2030-10-27T00:45+00:00", "10-28 00:00"),  # ends the first time
        ("22:00-06:00", "2030-03-31T03:59+00:00", None),
        ("22:00-06:00", "2030-03-31T04:00+00:00", "03-31 20:00"),
        ("22:00-06:00", "2030-10-27T04:59+00:00", None),
        ("22:00-06:00", "2030-10-27T05:00+00:00", "10-27 21:00"),
        ("sun 02:10-02:50", "2030-03-31T00:00+00:00", "04-07 00:10"),  # a week later
    ],
)
def test_days_on_which_clocks_change(window: str, now: str, expected: str | None) -> None:
    """A time that is skipped is when clocks go forward; one that comes twice is the first."""
    assert opens(time_window(window, zone="Europe/Berlin"), now) == expected


def test_several_windows_are_one_after_the_other() -> None:
    """The next one counts."""
    policy = time_window("08:00-10:00", "12:00-14:00", "09:00-11:00")
    told = [opens(policy, f"2030-01-01T{hour:02}:30+00:00") for hour in range(7, 15)]
    assert told == ["01-01 08:00", None, None, None, "01-01 12:00", None, None, "01-02 08:00"]


async def test_tasks_come_back_over_a_few_seconds() -> None:
    """Not all at once, never before the opening, and told why."""
    policy = time_window("22:00-06:00", spread=timedelta(seconds=5), seed=1)
    now = at("2030-01-01T12:00+00:00")
    words = [await policy.admit(make_task(), now) for _ in range(200)]
    begin = at("2030-01-01T22:00+00:00")
    late = [word.until - begin for word in words if isinstance(word, Postpone)]
    assert len(late) == 200
    assert timedelta() <= min(late) < timedelta(seconds=1)
    assert timedelta(seconds=4) < max(late) <= timedelta(seconds=5)
    assert isinstance(words[0], Postpone)
    assert words[0].reason == "outside the hours 22:00-06:00 (UTC); they begin at 2030-01-01 22:00"


@pytest.mark.parametrize(
    ("settings", "priority", "handler", "tenant", "waits"),
    [
        ({}, 5, "scan", None, True),
        ({"below_priority": 0}, -1, "scan", None, True),
        ({"below_priority": 0}, 0, "scan", None, False),
        ({"handlers": ["scan"]}, 0, "scan", None, True),
        ({"handlers": ["scan"]}, 0, "film", None, False),
        ({"tenants": ["acme"]}, 0, "scan", "acme", True),
        ({"tenants": ["acme"]}, 0, "scan", None, False),
        ({"handlers": ["scan"], "below_priority": 0}, 0, "scan", None, False),
    ],
)
async def test_whom_it_concerns(
    settings: dict[str, Any], priority: int, handler: str, tenant: str | None, *, waits: bool
) -> None:
    """All that is given has to fit."""
    task = make_task(handler_key=handler)
    route = Route(handler_key=handler, provider_key=handler, tenant_id=tenant)
    task = evolve(task, route=route, schedule=evolve(task.schedule, priority=priority))
    policy = time_window("22:00-06:00", **settings)
    word = await policy.admit(task, at("2030-01-01T12:00+00:00"))
    assert isinstance(word, Postpone if waits else Admit)


async def test_a_task_waits_for_the_night() -> None:
    """And is submitted then; one of a higher priority is submitted at noon."""
    clock = ManualClock(at("2030-01-01T12:00+00:00"))
    policy = time_window("22:00-06:00", zone="Europe/Berlin", below_priority=0)
    app = memory_app(Handler("scan", dict), clock=clock, admission=policy)
    async with app:
        low, high = [
            await app.manager.submit({}, tracking_timeout=24 * HOUR, options=SubmitOptions(priority=each))
            for each in (-1, 0)
        ]
        await app.worker(queries=0).run_once()
        found = {task.id: task.status for task in await app.manager.find()}
        assert (found[low.id], found[high.id]) == (Status.PENDING_SUBMIT, Status.SUBMITTED)
        clock.set(at("2030-01-01T21:00+00:00") + timedelta(seconds=5))
        await app.worker(queries=0).run_once()
        found = {task.id: task.status for task in await app.manager.find()}
        assert found[low.id] is Status.SUBMITTED


@pytest.mark.parametrize(
    ("windows", "settings", "rule"),
    [
        ([], {}, "windows must not be empty"),
        (["at night"], {}, "'at night' is no window; write one such as '22:00-06:00'"),
        (["25:00-06:00"], {}, "'25:00-06:00' is no window: hour must be in 0..23"),
        (["22:00-24:30"], {}, "is no window: hour must be in 0..23"),
        (["08:00-08:00"], {}, "opens and closes at once; write '00:00-24:00' for a whole day"),
        (["son 08:00-09:00"], {}, "names the day 'son'; there are: mon, tue, wed, thu, fri, sat, sun"),
        (["08:00-09:00"], {"zone": "Mars"}, "there is no time zone 'Mars'"),
        (["08:00-09:00"], {"spread": timedelta(seconds=-1)}, "spread must not be negative"),
        (["08:00-09:00"], {"handlers": "scan"}, "expected a list of texts, not 'scan'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    windows: list[str], settings: dict[str, Any], rule: str
) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        time_window(*windows, **settings)
