"""From a file and environment variables to a `Configuration`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
from attrs import evolve, field, frozen

from coatcheck.configuration.model import (
    Configuration,
    GateConfiguration,
    HandlerConfiguration,
    PluginConfiguration,
    RetentionConfiguration,
    WorkerConfiguration,
)
from coatcheck.configuration.places import line_of
from coatcheck.errors import ConfigurationError
from coatcheck.remedies import nearest
from coatcheck.settings import structure_settings

__all__ = ["FILE_NAME", "FILE_VARIABLE", "Written", "load_configuration", "read_written"]

FILE_NAME = "coatcheck.toml"
FILE_VARIABLE = "COATCHECK_CONFIG"
"""Names the file."""
_PREFIX = "COATCHECK_"
_NO_SETTINGS = frozenset({FILE_VARIABLE, "COATCHECK_STRICT_PLUGINS", "COATCHECK_REQUIRE_SERVERS"})
_SECTIONS = {
    "worker": WorkerConfiguration,
    "retention": RetentionConfiguration,
    "plugins": PluginConfiguration,
}
_OF_MANY = {"handlers": HandlerConfiguration, "gates": GateConfiguration}
C = TypeVar("C")


@frozen(kw_only=True)
class Written:
    """What was written, before it is checked."""

    values: Mapping[str, Any]
    file: Path | None = None
    """Where most of it is from; None if there is no file."""
    text: str = field(default="", repr=False)
    """The file's text."""
    table: tuple[str, ...] = ()
    """The table of the file that it is."""
    variables: Mapping[str, str] = field(factory=dict)
    """Which environment variable set a value, by its dotted path."""

    def place(self, *path: str) -> str:
        """Return where something was written, for the beginning of a message."""
        dotted = ".".join(path)
        for length in range(len(path), 0, -1):
            variable = self.variables.get(".".join(path[:length]))
            if variable is not None:
                return f"environment variable {variable}"
        if self.file is None:
            return dotted or "the configuration"
        line = line_of(self.text, (*self.table, *path))
        where = self.file.name if line is None else f"{self.file.name}:{line}"
        return f"{where}: {dotted}" if dotted else where


def load_configuration(
    file: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Configuration:
    """Return the configuration of `file`, or of the first place that has one, with what variables say over it.

    No secret is read, no driver is imported, and nothing is connected to.

    Raises:
        ConfigurationError: there is none, it is no TOML, a name is not known (the nearest is told), or a value does
            not fit. The message begins with the file and the line.
    """
    return configuration_of(read_written(file, environ=environ))


def read_written(
    file: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Written:
    """Return what is written, unchecked but for being TOML.

    Raises:
        ConfigurationError: there is nothing, or it is no TOML.
    """
    variables = os.environ if environ is None else environ
    named = file if file is not None else variables.get(FILE_VARIABLE)
    written = _read(Path(named)) if named else _find()
    overlaid = _overlaid(written, variables)
    if not overlaid.values:
        message = (
            f"there is no configuration: no {FILE_NAME} here, no [tool.coatcheck] in a pyproject.toml here, and no "
            f"variable such as {_PREFIX}STORE__URL; name a file, or write one with a store"
        )
        raise ConfigurationError(message)
    return overlaid


def _find() -> Written:
    if Path(FILE_NAME).is_file():
        return _read(Path(FILE_NAME))
    if Path("pyproject.toml").is_file():
        found = _read(Path("pyproject.toml"), table=("tool", "coatcheck"))
        if found.values:
            return found
    return Written(values={})


def _read(file: Path, table: tuple[str, ...] = ()) -> Written:
    if not table and file.name == "pyproject.toml":
        table = ("tool", "coatcheck")
    try:
        text = file.read_text("utf-8")
        document: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is no TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigurationError(f"{file} cannot be read: {why}") from error
    for name in table:
        document = document.get(name, {})
    return Written(values=document, file=file, text=text, table=table)


def _overlaid(written: Written, environ: Mapping[str, str]) -> Written:
    """Lay variables such as ``COATCHECK_WORKER__QUERIES`` over what a file says; ``__`` stands for a dot."""
    values = _copied(written.values)
    told: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(_PREFIX) or variable in _NO_SETTINGS:
            continue
        path = variable.removeprefix(_PREFIX).lower().split("__")
        if path[0] not in _names_of(Configuration):
            continue  # somebody else's, such as that of a test
        place = values
        for name in path[:-1]:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {"url": inner} if name == "store" and isinstance(inner, str) else {}
            place = inner
        place[path[-1]] = value
        told[".".join(path)] = variable
    return evolve(written, values=values, variables=told)


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(each) if isinstance(each, Mapping) else each for name, each in values.items()}


# ------------------------------------------------------------------ checking


def configuration_of(written: Written) -> Configuration:
    """Return what was written as typed data.

    Raises:
        ConfigurationError: a name is not known, or a value does not fit; the message begins with its place.
    """
    values = written.values
    for name in values:
        _require_known(written, (name,), _names_of(Configuration))
    if "store" not in values:
        message = f'{written.place()}: there is no store; write store = "sqlite:///jobs.db", or a table with its url'
        raise ConfigurationError(message)
    found: dict[str, Any] = {
        name: each for name, each in values.items() if name not in {*_SECTIONS, *_OF_MANY, "store"}
    }
    found["store"] = _store(written, values["store"])
    for name, kind in _SECTIONS.items():
        if name in values:
            found[name] = _structured(written, (name,), values[name], kind)
    for name, each_kind in _OF_MANY.items():
        table = _table(written, (name,), values.get(name, {}))
        found[name] = {key: _structured(written, (name, key), each, each_kind) for key, each in table.items()}
    for name in ("selector", "retry", "admission"):
        _check_named(written, name, values.get(name))
    return _structured(written, (), found, Configuration)


def _store(written: Written, value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        return {"url": value}
    table = _table(written, ("store",), value)
    if not isinstance(table.get("url"), str):
        message = f"{written.place('store')} has no url; write one such as sqlite:///jobs.db"
        raise ConfigurationError(message)
    return table


def _check_named(written: Written, name: str, value: object) -> None:
    if value is None or isinstance(value, str):
        return
    table = _table(written, (name,), value)
    if not isinstance(table.get("use"), str):
        message = f"{written.place(name)} has no use, the name of what makes it"
        raise ConfigurationError(message)


def _table(written: Written, path: tuple[str, ...], value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise ConfigurationError(f"{written.place(*path)} is to be a table, not {kind}")
    return value


def _structured(written: Written, path: tuple[str, ...], value: object, kind: type[C]) -> C:
    table = _table(written, path, value)
    for name in table:
        _require_known(written, (*path, name), _names_of(kind))
    try:
        return structure_settings(table, kind, owner="")
    except ConfigurationError as error:
        told = str(error).removeprefix(" cannot take its settings: ")
        where, _, why = told.partition(": ")
        inner = tuple(part for part in where.removeprefix("settings").split(".") if part)
        raise ConfigurationError(f"{written.place(*path, *inner)}: {why or told}") from None


def _require_known(written: Written, path: tuple[str, ...], known: frozenset[str]) -> None:
    if path[-1] not in known:
        inside = ".".join(path[:-1]) or "the configuration"
        message = f"{written.place(*path)}: {inside} has no {path[-1]!r}; {nearest(path[-1], known)}"
        raise ConfigurationError(message)


def _names_of(kind: type) -> frozenset[str]:
    return frozenset(each.name for each in attrs.fields(cast("Any", kind)))
