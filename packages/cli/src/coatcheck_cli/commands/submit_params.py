"""From a command line to typed params: which handler is meant, which field a value fills, what text means."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
from attrs import frozen

from coatcheck_cli.failing import Exit, Failure

if TYPE_CHECKING:
    from coatcheck import App

__all__ = ["Form", "Kind", "form_of", "kind_of", "structured", "with_member", "written"]

_AS_TEXT = (str, datetime, date, time, UUID, Decimal)
"""Types that JSON has as text."""
_TRUTHS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}


@frozen(kw_only=True)
class Kind:
    """What is submitted."""

    name: str
    """As it was written."""
    params_type: type
    handler_key: str | None
    """The handler that was named; None leaves the choice to the app."""


def kind_of(app: App, name: str) -> Kind:
    """Return what `name` means: a handler's key, or what stands before the colon of the keys of one params type.

    Raises:
        Failure: no handler is meant, or handlers of several params types are.
    """
    registry = app.registry
    if name in registry:
        return Kind(name=name, params_type=registry.params_type(name), handler_key=name)
    meant = [key for key in registry if key.partition(":")[0] == name and ":" in key]
    found = {registry.params_type(key) for key in meant}
    if len(found) == 1:
        lone = meant[0] if len(meant) == 1 else None
        return Kind(name=name, params_type=found.pop(), handler_key=lone)
    if found:
        told = ", ".join(f"{key} ({registry.params_type(key).__qualname__})" for key in meant)
        message = f"{name!r} stands for several kinds of params: {told}; name one of these handlers"
        raise Failure(message, Exit.USAGE)
    raise Failure(_missing(name, list(registry)), Exit.USAGE)


def _missing(name: str, known: Collection[str]) -> str:
    from coatcheck.hooks import Kind as PluginKind  # noqa: PLC0415 - only for the message
    from coatcheck.remedies import distribution_of, nearest  # noqa: PLC0415

    prefixes = {key.partition(":")[0] for key in known if ":" in key}
    where = distribution_of(PluginKind.HANDLER, name if ":" in name else f"{name}:")
    install = f"; handlers of that kind come with: pip install {where}" if where else ""
    if not known:
        return (
            f"no handler {name!r}: the app has none; add one to the configuration under [handlers]{install}"
        )
    return (
        f"no handler {name!r} here, and no kind of that name; {nearest(name, {*known, *prefixes})}{install}"
    )


@frozen(kw_only=True)
class Form:
    """The fields of a params type."""

    hints: Mapping[str, object]
    """By name, what each holds, in order."""
    required: tuple[str, ...]
    """Those without a default."""

    @property
    def first(self) -> str | None:
        """The field that a value without a name fills: the first without a default, else the first."""
        return next(iter((*self.required, *self.hints)), None)


def form_of(params_type: type) -> Form:
    """Return the fields of an attrs class, dataclass or pydantic model; none of anything else."""
    required = _required(params_type)
    try:
        hints = get_type_hints(params_type)
    except (NameError, TypeError):  # it names what only a type checker imports
        hints = {}
    return Form(
        hints={name: hints.get(name, object) for name in required},
        required=tuple(name for name, needed in required.items() if needed),
    )


def _required(params_type: Any) -> dict[str, bool]:  # noqa: ANN401 - a class
    """Return the names of the fields, and whether each is needed."""
    if attrs.has(params_type):
        return {each.name: each.default is attrs.NOTHING for each in attrs.fields(params_type) if each.init}
    if dataclasses.is_dataclass(params_type):
        missing = dataclasses.MISSING
        return {
            each.name: each.default is missing and each.default_factory is missing
            for each in dataclasses.fields(params_type)
            if each.init
        }
    fields = getattr(params_type, "__pydantic_fields__", {})
    return {info.alias or name: info.is_required() for name, info in fields.items()}


def structured(raw: object, params_type: type) -> Any:  # noqa: ANN401 - an instance of that type
    """Return the params that JSON describes, as stored params are read.

    Raises:
        ValueError: it describes none; the message names each path and what is wrong there.
    """
    from coatcheck import InvalidParams, NotPersistable  # noqa: PLC0415 - help has no use for it
    from coatcheck.converter import make_converter, problems_of  # noqa: PLC0415

    try:
        return make_converter().structure(raw, params_type)
    except Exception as error:  # noqa: BLE001 - classes' own validators raise what they like
        # whoever reads this has written the values, so the classes' own words may quote them
        told = problems_of(error, "params", trusted=(InvalidParams, NotPersistable, ValueError))
        message = "; ".join(f"{path}: {why}" for path, why in told)
        raise ValueError(message) from None


def written(text: str, hint: object) -> object:
    """Return the JSON that text stands for where `hint` is wanted.

    Text is taken as it is where text is wanted. Elsewhere it is JSON; durations are written ``30s``, truth values also
    ``yes`` and ``no``, and lists also with commas.
    """
    wanted = _members(hint)
    if text == "null" and type(None) in wanted and str not in wanted:
        return None
    for each in wanted:
        found = _written_as(text, each)
        if found is not _NOT_THIS:
            return found
    return _json_or_text(text)


_NOT_THIS = object()


def _members(hint: object) -> tuple[object, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _written_as(text: str, hint: object) -> object:
    origin = get_origin(hint) or hint
    if not isinstance(origin, type):
        return _NOT_THIS
    if issubclass(origin, _AS_TEXT) or (issubclass(origin, Enum) and text in {each.value for each in origin}):
        return text
    if issubclass(origin, bool):
        return _TRUTHS.get(text.lower(), _NOT_THIS)
    if issubclass(origin, timedelta):
        return _seconds(text)
    if issubclass(origin, (Sequence, AbstractSet)) and not text.lstrip().startswith("["):
        item = (*get_args(hint), object)[0]
        return [written(part.strip(), item) for part in text.split(",")]
    return _NOT_THIS


def _seconds(text: str) -> object:
    from coatcheck import ConfigurationError  # noqa: PLC0415 - help has no use for it
    from coatcheck.settings import parse_duration  # noqa: PLC0415

    try:
        return parse_duration(text).total_seconds()
    except ConfigurationError:
        return _NOT_THIS


def _json_or_text(text: str) -> object:
    from coatcheck.codec import loads  # noqa: PLC0415 - help has no use for it
    from coatcheck.errors import UndecodableRow  # noqa: PLC0415

    try:
        return loads(text)
    except UndecodableRow:
        return text


def with_member(values: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Return `values` with a member set, making objects on the way; what is no object gives way."""
    name, *rest = path
    if not rest:
        return {**values, name: value}
    inner = values.get(name)
    return {**values, name: with_member(inner if isinstance(inner, Mapping) else {}, rest, value)}
