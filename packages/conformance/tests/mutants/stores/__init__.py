"""What mutants of stores are made with: a good store, and a decorator for what breaks it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from coatcheck.store import Store
from coatcheck_conformance import StoreConformance, StoreSpec
from coatcheck_conformance.running import SpecMaker
from mutants import Mutant, register
from mutants.damage import corrupt, previous

__all__ = ["Base", "breaks_store", "create"]


class Base(StrEnum):
    """The good store that a mutant is made of."""

    MEMORY = "memory"
    "For most: quick, and on a clock that can be moved."
    FILE = "file"
    "For rules about other processes, reopening, and rows that cannot be decoded."
    NOTIFYING = "notifying"
    "The same, for the rule about waking other processes."
    SQL = "sql"
    "For rules about transactions of the caller's that `add` joins."


_broken_here: set[str] = set()


def create(place: str, *, make: str, mutant: str, module: str, home: int, **settings: object) -> Store:
    """Make a store in whatever process asks for it, broken there, too; in the process `home` it is already."""
    if os.getpid() != home and mutant not in _broken_here:
        _broken_here.add(mutant)
        getattr(import_module(module), mutant)(pytest.MonkeyPatch())
    where, _, name = make.partition(":")
    maker: Callable[..., Store] = getattr(import_module(where), name)
    return maker(place, **settings)


_Breaks = Callable[[pytest.MonkeyPatch], None]


def breaks_store(rule: str, base: Base = Base.MEMORY) -> Callable[[_Breaks], _Breaks]:
    """Return a decorator for ``def name(patch)``, which breaks the store so that `rule` alone notices."""

    def decorate(breaks: _Breaks) -> _Breaks:
        specs: dict[Base, SpecMaker] = {
            Base.MEMORY: _memory,
            Base.FILE: partial(_file, breaks, "FileStore"),
            Base.NOTIFYING: partial(_file, breaks, "NotifyingFileStore"),
            Base.SQL: partial(_sql, breaks),
        }
        register(
            Mutant(name=breaks.__name__, rule=rule, suite=StoreConformance, spec=specs[base], breaks=breaks)
        )
        return breaks

    return decorate


_PATIENCE = timedelta(seconds=8)
_LONG_PATIENCE = timedelta(seconds=50)


def _memory(_: Path) -> StoreSpec:
    return StoreSpec("coatcheck.memory:MemoryStore", clock="clock", patience=_PATIENCE)


def _file(breaks: _Breaks, name: str, folder: Path) -> StoreSpec:
    return StoreSpec(
        f"{__name__}:create",
        url=str(folder / "tasks"),
        settings=_settings(breaks, f"file_store:{name}"),
        clock="clock",
        corrupt=corrupt,
        previous=previous,
        patience=_LONG_PATIENCE,
    )


def _sql(breaks: _Breaks, folder: Path) -> StoreSpec:
    from mutants.joining import transaction  # noqa: PLC0415 - loads SQLAlchemy, which other processes need not

    return StoreSpec(
        f"{__name__}:create",
        url=f"sqlite:///{folder / 'tasks.db'}",
        settings=_settings(breaks, "coatcheck_store_sql:create"),
        clock="clock",
        transaction=transaction,
        patience=_LONG_PATIENCE,
    )


def _settings(breaks: _Breaks, make: str) -> dict[str, object]:
    return {"make": make, "mutant": breaks.__name__, "module": breaks.__module__, "home": os.getpid()}
