"""Looking at a distribution from a process of its own. Imported there, by `spec`; prints facts as JSON."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import metadata
from pathlib import Path

import attrs

import coatcheck.recipes  # noqa: F401 - so that what it brings along is not the plugin's doing
from coatcheck.catalog import discover
from coatcheck.hooks import ENTRY_POINT_GROUP, HandlerDescriptor, Kind
from coatcheck.plugins import Offer, Plugin, normalized, told
from coatcheck_conformance.plugin.facts import Found, Light, Made, Offered, Request
from coatcheck_conformance.plugin.making import make_all
from coatcheck_conformance.policy.watching import watched

__all__ = ["main"]

_ALLOWED = frozenset(
    {"attr", "attrs", "cattr", "cattrs", "coatcheck", "importlib_metadata", "pluggy", "uuid_utils", "zipp"}
)
"""Coatcheck and what it depends on."""


def main(what: str) -> None:
    """Read a request from standard input, look, and print the facts as the last line."""
    request = Request(**json.loads(sys.stdin.read()))
    sys.path[:0] = request.path
    look: dict[str, Callable[[Request], Light | Found | Made]] = {
        "light": light,
        "found": found,
        "made": made,
    }
    with redirect_stdout(sys.stderr):
        facts = look[what](request)
    print(f"\n{json.dumps(attrs.asdict(facts))}")  # noqa: T201 - its answer


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _packages(name: str) -> set[str]:
    """Return the modules and packages that a distribution brings, as far as its metadata lists them."""
    distribution = _distribution(name)
    files = (distribution.files if distribution else None) or ()
    return {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}


def _entries(name: str) -> list[metadata.EntryPoint]:
    distribution = _distribution(name)
    return list(distribution.entry_points.select(group=ENTRY_POINT_GROUP)) if distribution else []


# ------------------------------------------------------------------ the light module


def light(request: Request) -> Light:
    """Import the light module and note what comes with it."""
    entries = _entries(request.distribution)
    before, threads = set(sys.modules), threading.active_count()
    printed, error = io.StringIO(), ""
    with (
        watched() as outside,
        redirect_stdout(printed),
        redirect_stderr(printed),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        began = time.perf_counter()
        for entry in entries:
            try:
                entry.load()
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - a plugin may raise anything
                error = error or told(raised)
        seconds = time.perf_counter() - began
    own = {entry.module.partition(".")[0] for entry in entries} | _packages(request.distribution)
    known = own | _ALLOWED | sys.stdlib_module_names | {name.partition(".")[0] for name in before}
    foreign = sorted({name.partition(".")[0] for name in set(sys.modules) - before} - known)
    return Light(
        error=error,
        foreign=foreign,
        seconds=seconds,
        printed=printed.getvalue(),
        outside=list(outside),
        threads=threading.active_count() - threads,
    )


# ------------------------------------------------------------------ discovery


def found(request: Request) -> Found:
    """Discover, and read the metadata."""
    distribution = _distribution(request.distribution)
    if distribution is None:
        return Found(installed=False)
    plugins = _plugins(request, alone=True)
    offers = [each for plugin in plugins for each in plugin.offers]
    again = [each for plugin in _plugins(request, alone=True) for each in plugin.offers]
    rivals = {(each.kind, each.key): each for plugin in _plugins(request) for each in plugin.offers}
    entries = _entries(request.distribution)
    return Found(
        installed=True,
        version=distribution.version,
        entries=[(entry.name, entry.value) for entry in entries],
        states=[plugin.state.value for plugin in plugins],
        reasons=[plugin.reason for plugin in plugins if plugin.reason],
        offers=[_offered(each) for each in offers if each.descriptor is not None],
        observers=sum(each.kind is Kind.OBSERVER for each in offers),
        steady=[each.descriptor for each in offers] == [each.descriptor for each in again],
        conflicts=[
            rival.reason
            for each in offers
            if (rival := rivals.get((each.kind, each.key))) is not None and rival.state is not each.state
        ],
        requirements=list(distribution.requires or ()),
        licence=_licence(distribution),
        typed=any(_is_typed(entry.module) for entry in entries),
    )


def _plugins(request: Request, *, alone: bool = False) -> list[Plugin]:
    name = normalized(request.distribution)
    catalog = discover(allow=[name]) if alone else discover()
    return [plugin for plugin in catalog.plugins if plugin.distribution == name]


def _offered(offer: Offer) -> Offered:
    descriptor = offer.descriptor
    return Offered(
        kind=offer.kind.value,
        key=offer.key,
        names=list(offer.names),
        api=descriptor.api if descriptor else "",
        state=offer.state.value,
        reason=offer.reason,
        summary=descriptor.summary if descriptor else "",
        names_params=isinstance(descriptor, HandlerDescriptor) and descriptor.params is not None,
    )


def _licence(distribution: metadata.Distribution) -> str:
    headers = distribution.metadata
    stated = [headers[name] for name in ("License-Expression", "License") if name in headers]
    classified = [each for each in headers.get_all("Classifier") or () if each.startswith("License ::")]
    return next(iter([*stated, *classified]), "")


def _is_typed(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    return any(
        Path(folder, "py.typed").exists() for folder in (spec and spec.submodule_search_locations) or ()
    )


# ------------------------------------------------------------------ making things


def made(request: Request) -> Made:
    """Import all that is named and make what is offered."""
    name = normalized(request.distribution)
    catalog = discover(allow=[name])
    rows = [row for row in catalog.listing(load=True) if row.distribution == name and row.kind is not None]
    offers = [each for each in catalog.offers if each.plugin.distribution == name]
    return Made(problems=make_all(offers, request, catalog.parts()), states=[row.state.value for row in rows])
