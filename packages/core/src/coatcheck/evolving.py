"""Frozen data, made and changed fast: a task's life is some fifty such objects, and they are most of its price.

A frozen class makes its objects through a detour around its own guard, field by field. Here each class gets
an *open* subclass, which differs in nothing but that its objects can be written to. An object is made open,
filled by plain assignments, and then turned into what it is to be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

import attrs

__all__ = ["changer", "constructor", "evolve"]

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _open(cls: type) -> type:
    """Return the open subclass of a slotted attrs class."""
    free = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}
    return type(cls.__name__, (cls,), {"__slots__": (), **free})


def _fields(cls: Any) -> tuple[attrs.Attribute[Any], ...]:  # noqa: ANN401 - an attrs class
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
    return fields


def _compiled(cls: Any, name: str, lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:  # noqa: ANN401 - a class
    """Return a function whose source ends with an open object in `_new`, which becomes one of `cls`.

    attrs makes its methods so, too: a loop over the fields would cost twice as much.
    """
    source = "\n    ".join([*lines, "_new.__class__ = _cls", "return _new"])
    scope["_cls"] = cls
    exec(compile(source, f"<{name} {cls.__name__}>", "exec"), scope)  # noqa: S102 - our own names
    made: Callable[..., Any] = scope[name]
    return made


_KEEP: Any = object()


def changer(cls: Callable[..., T], *names: str) -> Callable[..., T]:
    """Return what copies objects of a slotted attrs class with these fields changed, which are named at each call.

    It is `evolve` for one class and for changes that are known beforehand, at less than half of its price.
    Without `names` it takes any fields of the class, and keeps the others.

    Raises:
        TypeError: there is no such field.
    """
    open_class: type = _open(cls)
    known = [each.name for each in _fields(cls)]
    for name in names:
        if name not in known:
            raise TypeError(_no_field(open_class, name, known))
    values = {name: f"_old.{name}" for name in known}
    if names:
        values |= {name: name for name in names}
    else:
        values = {name: f"{value} if {name} is _KEEP else {name}" for name, value in values.items()}
    parameters = ", ".join(names or (f"{name}=_KEEP" for name in known))
    writes = [f"_new.{name} = {value}" for name, value in values.items()]
    lines = [f"def change(_old, *, {parameters}):", "_new = _open()", *writes]
    return _compiled(cls, "change", lines, {"_open": open_class, "_KEEP": _KEEP})


def _no_field(cls: type, name: str, known: list[str]) -> str:
    return f"{cls.__name__} has no field {name!r}; it has: {', '.join(known)}"


class _Changers(dict[type, Callable[..., Any]]):
    """For each class, what copies objects of it with any fields changed."""

    def __missing__(self, cls: type) -> Callable[..., Any]:
        self[cls] = change = changer(cls)
        return change


_changers = _Changers()


def evolve(instance: T, **changes: Any) -> T:  # noqa: ANN401 - the fields of any attrs class
    """Return a copy of a slotted attrs object with some fields changed, like `attrs.evolve`, for a third of its price.

    Validators do not run: what is copied was validated when it was made, and what changes is for the caller
    to have right.

    Raises:
        TypeError: there is no such field.
    """
    cls = instance.__class__
    try:
        changed: T = _changers[cls](instance, **changes)
    except TypeError:
        known = [each.name for each in _fields(cls)]
        for name in changes:
            if name not in known:
                raise TypeError(_no_field(cls, name, known)) from None
        raise
    return changed


def constructor(cls: Callable[P, T]) -> Callable[P, T]:
    """Return what makes objects of a slotted attrs class, called like the class itself, for a third of its price.

    Neither validators nor `__attrs_post_init__` run, so it is for values that are right already.
    """
    scope: dict[str, Any] = {"_open": _open(cls), "_MISSING": attrs.NOTHING}
    parameters, writes = [], []
    for each in _fields(cls):
        name, default, value = each.name, each.default, each.name
        if each.kw_only and "*" not in parameters:
            parameters.append("*")
        factory = getattr(default, "factory", None)
        if factory is not None:
            scope[f"_new_{name}"], default = factory, attrs.NOTHING
            value = f"_new_{name}() if {name} is _MISSING else {name}"
        required = default is attrs.NOTHING and factory is None
        scope[f"_default_{name}"] = default
        parameters.append(name if required else f"{name}=_default_{name}")
        writes.append(f"_new.{name} = {value}")
    lines = [f"def construct({', '.join(parameters)}):", "_new = _open()", *writes]
    return _compiled(cls, "construct", lines, scope)
