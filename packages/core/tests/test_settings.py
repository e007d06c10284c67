"""Settings as people write them."""

import enum
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.errors import ConfigurationError, PluginError
from coatcheck.gates import Gate, Rate
from coatcheck.remedies import nearest
from coatcheck.secret import Secret
from coatcheck.settings import parse_duration, parse_rate, structure_settings

SECOND = timedelta(seconds=1)


class Size(enum.IntEnum):
    """How large."""

    SMALL = 1


class Colour(enum.StrEnum):
    """Which colour."""

    RED = "red"


def _not_negative(_settings: object, _field: object, value: float) -> None:
    if value < 0:
        message = f"{value} is negative"
        raise ValueError(message)


@runtime_checkable
class Clock(Protocol):
    """Something that only code can pass."""

    def now(self) -> int:
        """Return the time."""


class Stopped:
    """A clock that stands still."""

    def __repr__(self) -> str:
        """Name no address: tests that are shared among processes have the same names in each."""
        return "Stopped()"

    def now(self) -> int:
        """Return always the same."""
        return 7


STOPPED = Stopped()


@frozen
class Settings:
    """Every kind of setting there is."""

    name: str
    pool_size: int = 5
    factor: float = field(default=1.5, validator=_not_negative)
    verify: bool = True
    timeout: timedelta = SECOND
    rate: Rate | None = None
    folder: Path | None = None
    password: Secret | None = None
    gates: Sequence[Gate] = ()
    size: Size = Size.SMALL
    colour: Colour = Colour.RED
    clock: Clock | None = None
    made: str = field(init=False, default="here")


@dataclass
class Old:
    """Settings as a dataclass."""

    name: str = ""


def made(**raw: Any) -> Settings:
    """Return settings made of what was written."""
    return structure_settings({"name": "n", **raw}, Settings, owner="store 'x'")


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("1.5m", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        (" 2 d 3 s ", timedelta(days=2, seconds=3)),
        ("0s", timedelta()),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    """A duration is numbers with units."""
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "30", "s", "-3s", "3 weeks", "3s!", "1e3s", "٣s", "9" * 400 + "d"])
def test_what_is_no_duration(text: str) -> None:
    """A number without a unit, and anything else, is refused with an example."""
    with pytest.raises(ConfigurationError, match="duration"):
        parse_duration(text)


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_number_and_a_unit_are_a_duration(number: int, unit: str) -> None:
    """Every number with every unit is read, and none shorter than zero comes out."""
    assert parse_duration(f"{number}{unit}") >= timedelta()


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("5/s", Rate(5, SECOND)),
        ("100/m", Rate(100, timedelta(minutes=1))),
        ("10 / 30s", Rate(10, timedelta(seconds=30))),
    ],
)
def test_rates(text: str, rate: Rate) -> None:
    """A rate is a count and a time."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "5", "/s", "5/", "5/x", "0/s", "5/0s", "x/s"])
def test_what_is_no_rate(text: str) -> None:
    """Anything else is refused with an example, or with what is wrong with it."""
    with pytest.raises(ConfigurationError, match="rate|duration"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ({"pool_size": "7"}, 7),
        ({"pool_size": 7}, 7),
        ({"factor": "2.5"}, 2.5),
        ({"factor": 2}, 2.0),
        ({"verify": "Off"}, False),
        ({"verify": "1"}, True),
        ({"verify": False}, False),
        ({"timeout": "1m"}, timedelta(minutes=1)),
        ({"timeout": timedelta(minutes=2)}, timedelta(minutes=2)),
        ({"rate": "5/s"}, Rate(5)),
        ({"rate": Rate(6)}, Rate(6)),
        ({"folder": "/tmp/x"}, Path("/tmp/x")),
        ({"folder": Path("x")}, Path("x")),
        ({"password": "hunter2"}, Secret("hunter2")),
        ({"password": {"env": "X"}}, Secret.from_env("X")),
        ({"password": {"file": "/x"}}, Secret.from_file("/x")),
        ({"password": Secret("x")}, Secret("x")),
        (
            {"gates": [{"name": "g", "rate": "5/s"}, Gate(name="h")]},
            [Gate(name="g", rate=Rate(5)), Gate(name="h")],
        ),
        ({"size": 1}, Size.SMALL),
        ({"clock": STOPPED}, STOPPED),
        ({"colour": "red"}, Colour.RED),
    ],
    ids=str,
)
def test_settings_are_read_as_what_the_field_wants(raw: dict[str, Any], value: object) -> None:
    """Text becomes what the class declares; what has the right type already is taken as it is."""
    settings = made(**raw)
    got = getattr(settings, next(iter(raw)))
    assert (list(got) if isinstance(got, (tuple, list)) else got) == value


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"pool_size": "hunter2"}, "settings.pool_size: expected int"),
        ({"pool_size": 1.5}, "settings.pool_size: expected int, not float"),
        ({"pool_size": True}, "settings.pool_size: expected int, not bool"),
        ({"factor": -1.0}, "settings: "),
        ({"verify": "hunter2"}, "settings.verify: expected true or false"),
        ({"verify": 1}, "settings.verify: expected true or false, not int"),
        ({"timeout": "hunter2"}, "settings.timeout: expected a duration such as '30s'"),
        ({"timeout": 30}, "settings.timeout: expected a duration such as '30s', not int"),
        ({"rate": "hunter2"}, "settings.rate: expected a rate such as '5/s'"),
        ({"rate": 5}, "settings.rate: expected a rate such as '5/s', not int"),
        ({"clock": "hunter2"}, "settings.clock: expected an object like Clock, not str"),
        ({"folder": 5}, "settings.folder: expected a path, not int"),
        ({"password": 7}, "settings.password: expected a credential"),
        ({"password": {"vault": "hunter2"}}, "settings.password: expected a credential"),
        ({"password": {"env": "A", "file": "B"}}, "settings.password: expected a credential"),
        ({"password": {"env": 7}}, "settings.password: expected a credential"),
        ({"gates": [{"nam": "g"}]}, "settings.gates[0].name: is required and missing"),
        ({"gates": "hunter2"}, "settings.gates: expected a list, not str"),
        ({"name": None}, "settings.name: expected str, not NoneType"),
        ({"colour": "hunter2"}, "settings.colour: expected"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_and_not_shown(raw: dict[str, Any], message: str) -> None:
    """The message leads to the setting and says what it wants; the value may be a secret and is not quoted."""
    with pytest.raises(ConfigurationError) as caught:
        made(**raw)
    assert message in str(caught.value)
    assert "store 'x' cannot take its settings" in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value, limit=0))


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    """A typing error is named, with what it may have meant and all that there is."""
    with pytest.raises(ConfigurationError) as caught:
        made(pool_sise=3)
    assert "store 'x' has no settings 'pool_sise'; did you mean 'pool_size'? There are: clock, colour" in str(
        caught.value
    )
    with pytest.raises(ConfigurationError, match="no settings 'made'"):
        made(made="there")


def test_a_missing_setting_is_named() -> None:
    """What has no default has to be given."""
    with pytest.raises(ConfigurationError, match=r"settings\.name: is required and missing"):
        structure_settings({}, Settings, owner="store 'x'")


def test_dataclasses_hold_settings_too() -> None:
    """An attrs class is the rule; a dataclass works."""
    assert structure_settings({"name": "n"}, Old, owner="x") == Old("n")


@pytest.mark.parametrize("kind", [dict, len, Settings(name="n")])
def test_what_cannot_hold_settings_is_the_plugins_fault(kind: Any) -> None:
    """A settings class that is none is the plugin's error, not the user's."""
    with pytest.raises(PluginError, match="no attrs class"):
        structure_settings({}, kind, owner="store 'x'")


def test_nearest_tells_all_there_is() -> None:
    """Without a near name the message lists the known ones."""
    assert nearest("zzz", ["a", "b"]) == "there are: a, b"
    assert nearest("zzz", []) == "there are: none"


def test_an_annotation_that_leads_nowhere_is_told() -> None:
    """A class whose types only a checker can see takes no settings, and the message says whose it is."""

    @frozen
    class Blind:
        size: "NameOfTheFuture"  # type: ignore[name-defined]  # noqa: F821 - that is what is told

    with pytest.raises(ConfigurationError, match="acme cannot take its settings"):
        structure_settings({"size": 1}, Blind, owner="acme", parts={Path: str})
