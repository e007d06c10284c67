"""Settings as people write them, in TOML, a URL or keywords, into the classes that plugins declare.

Durations are written "30s", "5m" or "1h30m", rates "5/s" or "100/30s", and credentials
``{env = "NAME"}`` or ``{file = "/run/secrets/name"}``. No message quotes a value: it may be a secret.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn

from coatcheck.converter import make_converter, problems_of
from coatcheck.errors import ConfigurationError, InvalidParams, PluginError
from coatcheck.gates import Rate
from coatcheck.remedies import nearest
from coatcheck.secret import Secret

__all__ = ["Parts", "parse_duration", "parse_rate", "structure_settings"]

S = TypeVar("S")

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_RATE = re.compile(r"(\d+)\s*/\s*(\S+)", re.ASCII)
_TRUTHS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` tells, such as "500ms", "30s", "1.5h" or "1h30m".

    Raises:
        ConfigurationError: it tells none.
    """
    compact = text.strip().replace(" ", "")
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        message = (
            f"{text!r} is no duration; write a number and a unit (ms, s, m, h, d), such as '30s' or '1h30m'"
        )
        raise ConfigurationError(message)
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError:
        message = f"{text!r} is longer than any duration can be; leave out what is to have no limit"
        raise ConfigurationError(message) from None


def parse_rate(text: str) -> Rate:
    """Return the rate that `text` tells, such as "5/s", "100/m" or "10/30s".

    Raises:
        ConfigurationError: it tells none.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None:
        message = f"{text!r} is no rate; write a count and a time, such as '5/s' or '10/30s'"
        raise ConfigurationError(message)
    per = found[2] if found[2][0].isdigit() else f"1{found[2]}"
    try:
        return Rate(int(found[1]), parse_duration(per))
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no rate: {error}") from error


_OWN_WORDS = (InvalidParams, ConfigurationError)
"""What a settings class raises for people to read: its author quotes no secret."""
Parts: TypeAlias = Mapping[object, Callable[[object], object]]
"""What makes the parts of settings that are things themselves, by the type of their field."""


def structure_settings(
    raw: Mapping[str, object],
    kind: type[S],
    *,
    owner: str,
    path: str = "settings",
    parts: Parts | None = None,
) -> S:
    """Return settings of the attrs class or dataclass `kind`, made from what was written.

    Text is read as the number, truth value, duration, rate or path that the field wants; an object of the
    wanted type is taken as it is.

    Args:
        raw: what was written, by name.
        kind: the class that the plugin declares.
        owner: whose settings these are, for messages.
        path: what to call them in messages.
        parts: what makes fields of these types, such as a selector within a selector, of what was written.

    Raises:
        ConfigurationError: a name is not known (the nearest is told), a required one is missing, or a value
            does not fit.
        PluginError: `kind` is no class that can hold settings.
    """
    known = _names_of(kind, owner)
    for name in raw:
        if name not in known:
            message = f"{owner} has no {path} {name!r}; {nearest(str(name), known)}"
            raise ConfigurationError(message)
    try:
        converter = _with_parts(parts) if parts and _is_composed(kind, parts) else _converter()
        return converter.structure(dict(raw), kind)
    except Exception as error:  # noqa: BLE001 - classes' own validators raise what they like
        # not chained: the causes quote values
        told = "; ".join(f"{where}: {why}" for where, why in problems_of(error, path, trusted=_OWN_WORDS))
        message = f"{owner} cannot take its {path}: {told}"
        raise ConfigurationError(message) from None


def _names_of(kind: type, owner: str) -> frozenset[str]:
    if isinstance(kind, type) and attrs.has(kind):
        return frozenset(each.name for each in attrs.fields(kind) if each.init)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return frozenset(each.name for each in dataclasses.fields(kind) if each.init)
    message = f"{owner} declares settings that are no attrs class: {kind!r}; its author has to mend that"
    raise PluginError(message)


def _is_composed(kind: type, parts: Parts) -> bool:
    """Whether a field is one of the parts, or a collection of them."""
    try:
        hints = get_type_hints(kind)
    except NameError:  # it names what only a type checker imports
        return False
    return any(_holds(hint, parts) for hint in hints.values())


def _holds(hint: object, parts: Parts) -> bool:
    if isinstance(hint, list):  # the arguments of a callable
        return False
    return hint in parts or any(_holds(each, parts) for each in get_args(hint))


def _with_parts(parts: Parts) -> cattrs.Converter:
    converter = _new_converter()
    converter.register_structure_hook_func(
        lambda wanted: wanted in parts, lambda value, wanted: _part(parts[wanted], value)
    )
    return converter


def _part(make: Callable[[object], object], value: object) -> object:
    try:
        return make(value)
    except ConfigurationError as error:
        raise TypeError(f"expected something else: {error}") from error


@cache
def _converter() -> cattrs.Converter:
    return _new_converter()


def _new_converter() -> cattrs.Converter:
    converter = make_converter()
    for number in (int, float):
        converter.register_structure_hook(number, _number(number))
    for kind, read in _READERS.items():
        converter.register_structure_hook(kind, _taken_or(kind, read))
    converter.register_structure_hook_factory(
        attrs.has,
        lambda kind: _taken_or(kind, make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)),
    )
    converter.register_structure_hook_func(
        lambda kind: getattr(kind, "_is_runtime_protocol", False), _taken_or_refused
    )
    return converter


def _taken_or_refused(value: object, wanted: Any) -> object:  # noqa: ANN401 - a class
    """Take an object that has what a protocol asks for, such as a clock; nothing written can be one."""
    if isinstance(value, wanted):
        return value
    raise _expected(f"an object like {wanted.__name__}", value)


def _taken_or(kind: type, structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a hook that takes an object of `kind` as it is, and else structures it."""
    return lambda value, wanted: value if isinstance(value, kind) else structure(value, wanted)


def _number(kind: type[int | float]) -> Callable[[Any, Any], Any]:
    def read(value: object, wanted: Any) -> object:  # noqa: ANN401 - a class
        if issubclass(wanted, enum.Enum):
            return wanted(value)
        if isinstance(value, str) or type(value) in {int, kind}:
            return wanted(value)
        raise _expected(kind.__name__, value)

    return read


def _truth(value: object, _wanted: object) -> bool:
    if isinstance(value, str) and value.lower() in _TRUTHS:
        return _TRUTHS[value.lower()]
    raise _expected("true or false", value)


def _duration(value: object, _wanted: object) -> timedelta:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ConfigurationError as error:
            raise TypeError("expected a duration such as '30s' or '1h30m'") from error
    raise _expected("a duration such as '30s'", value)


def _rate(value: object, _wanted: object) -> Rate:
    if isinstance(value, str):
        try:
            return parse_rate(value)
        except ConfigurationError as error:
            raise TypeError("expected a rate such as '5/s' or '10/30s'") from error
    raise _expected("a rate such as '5/s'", value)


def _path(value: object, _wanted: object) -> Path:
    if isinstance(value, str):
        return Path(value)
    raise _expected("a path", value)


def _secret(value: object, _wanted: object) -> Secret:
    if isinstance(value, str):
        return Secret(value)
    if isinstance(value, Mapping) and len(value) == 1:
        source, name = next(iter(value.items()))
        if source in _SOURCES and isinstance(name, str):
            return _SOURCES[source](name)
    raise TypeError("expected a credential: text, {env = 'NAME'} or {file = '/path'}")


def _expected(what: str, value: object) -> TypeError:
    return TypeError(f"expected {what}, not {type(value).__name__}")


_SOURCES: dict[object, Callable[[str], Secret]] = {"env": Secret.from_env, "file": Secret.from_file}
_READERS: dict[type, Callable[[Any, Any], Any]] = {
    bool: _truth,
    timedelta: _duration,
    Rate: _rate,
    Path: _path,
    Secret: _secret,
}
