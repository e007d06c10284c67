"""What is wrong with the plugins that are installed, and with what the configuration names of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import asdict, frozen

from coatcheck.catalog import Catalog
from coatcheck.configuration import Configuration
from coatcheck.errors import CoatcheckError
from coatcheck.hooks import Kind
from coatcheck.listing import Row
from coatcheck.plugins import Offer, PluginState, normalized

__all__ = ["Finding", "diagnose"]

_PIP = re.compile(r"pip install (?:--upgrade )?('[^']+'|[^\s,;]+)")
_NOTED = frozenset({PluginState.BLOCKED, PluginState.NOT_ALLOWED})

Place = Callable[..., str]
"""Returns where something is written, by its path in the configuration."""


@frozen(kw_only=True)
class Finding:
    """One thing that is wrong, or that somebody wanted so."""

    problem: bool = True
    """False for a note: it is so on purpose."""
    subject: str
    """What it is about: a plugin, something that it offers, or a place of the configuration."""
    reason: str
    """What is wrong with it."""
    remedy: str = ""
    """What mends it; empty if the reason says it all."""

    def as_json(self) -> dict[str, str]:
        """Return it as JSON."""
        told = asdict(self)
        del told["problem"]
        return told


def diagnose(catalog: Catalog, configuration: Configuration | None, place: Place) -> list[Finding]:
    """Return what is wrong, problems first. Factories are imported, and what is configured is made; no I/O is done."""
    found = [*_of_configuration(catalog, configuration, place)] if configuration is not None else []
    rows = catalog.listing(load=True)
    found += _conflicts(catalog)
    found += [_broken(row) for row in rows if row.broken and row.state is not PluginState.CONFLICT]
    found += [_set_aside(row) for row in rows if row.state in _NOTED]
    return sorted(found, key=lambda each: not each.problem)


# ------------------------------------------------------------------ what is installed


def _broken(row: Row) -> Finding:
    mend = f"pip install --upgrade --force-reinstall {row.distribution}"
    if row.state is PluginState.INCOMPATIBLE:
        pip = _PIP.search(row.reason)
        mend = pip[0] if pip else mend
    remedy = f'{mend}; or leave it out: plugins.block = ["{row.distribution}"]'
    return Finding(subject=row.title, reason=f"{row.state}: {row.reason}", remedy=remedy)


def _set_aside(row: Row) -> Finding:
    remedy = f"if you want it, {_readmitted(row.state, row.distribution)}" if row.kind is None else ""
    return Finding(problem=False, subject=row.title, reason=f"{row.state}: {row.reason}", remedy=remedy)


def _readmitted(state: PluginState, distribution: str) -> str:
    if state is PluginState.BLOCKED:
        return f'take "{distribution}" out of plugins.block'
    return f'add "{distribution}" to plugins.allow'


def _conflicts(catalog: Catalog) -> Iterator[Finding]:
    """Yield one finding for all names that the same distributions offer."""
    rivals: dict[tuple[Kind, str], list[Offer]] = {}
    for offer in catalog.offers:
        if offer.state is PluginState.CONFLICT:
            for name in offer.names:
                rivals.setdefault((offer.kind, name), []).append(offer)
    groups: dict[tuple[Kind, tuple[int, ...]], list[str]] = {}
    for (kind, name), offers in rivals.items():
        if len(offers) > 1:
            groups.setdefault((kind, tuple(map(id, offers))), []).append(name)
    for (kind, _), names in groups.items():
        plugins = [each.plugin for each in rivals[kind, names[0]]]
        first, *others = sorted({each.distribution for each in plugins})
        lines = ", ".join(f'"{name}" = "{first}"' for name in names)
        remedy = f"plugins.prefer = {{{lines}}}"
        if others:
            remedy += f", or that of {' or '.join(others)}; or pip uninstall the one that you don't want"
        yield Finding(
            subject=f"{kind} {', '.join(map(repr, names))}",
            reason=f"conflict: offered by {' and '.join(map(str, plugins))}",
            remedy=remedy,
        )


# ------------------------------------------------------------------ what is configured


def _of_configuration(catalog: Catalog, configuration: Configuration, place: Place) -> Iterator[Finding]:
    for path, make in _makers(catalog, configuration).items():
        try:
            make()
        except CoatcheckError as error:
            yield Finding(subject=place(*path), reason=str(error), remedy=_remedy(catalog, str(error)))
    yield from _lists(catalog, configuration, place)


def _makers(catalog: Catalog, configuration: Configuration) -> Mapping[tuple[str, ...], Callable[[], object]]:
    """Return what makes each configured thing, by its path."""

    def store() -> object:
        settings = dict(configuration.store)
        return catalog.create_store(settings.pop("url"), **settings)

    def handler(key: str) -> Callable[[], object]:
        each = configuration.handlers[key]
        return lambda: catalog.create_handler(
            key, use=each.use, accounts=dict(each.accounts) or None, settings=each.settings or None
        )

    def policy(create: Callable[..., object], written: str | Mapping[str, Any]) -> Callable[[], object]:
        if isinstance(written, str):
            return lambda: create(written)
        settings = {name: value for name, value in written.items() if name != "use"}
        return lambda: create(written["use"], settings)

    makers: dict[tuple[str, ...], Callable[[], object]] = {("store",): store}
    makers |= {("handlers", key): handler(key) for key in configuration.handlers}
    for name, create, written in (
        ("selector", catalog.create_selector, configuration.selector),
        ("retry", catalog.create_retry_policy, configuration.retry),
        ("admission", catalog.create_admission_policy, configuration.admission),
    ):
        if written is not None:
            makers[name,] = policy(create, written)
    return makers


def _remedy(catalog: Catalog, reason: str) -> str:
    """Return what mends that something cannot be made: what is to be let in, installed or spelt otherwise."""
    set_aside = [each for each in catalog.plugins if each.state in _NOTED and str(each) in reason]
    if set_aside and "did you mean" not in reason:
        told = " or ".join(_readmitted(each.state, each.distribution) for each in set_aside)
        return told if "comes from" in reason else f"if that is who offers it, {told}"
    pip = _PIP.search(reason)
    return pip[0] if pip else ""


def _lists(catalog: Catalog, configuration: Configuration, place: Place) -> Iterator[Finding]:
    """Yield what is wrong with the lists of distributions themselves."""
    plugins = configuration.plugins
    installed = {each.distribution for each in catalog.plugins}
    for name, distribution in plugins.prefer.items():
        offers = {each.plugin.distribution for each in catalog.offers if name in each.names}
        if normalized(distribution) not in offers:
            yield Finding(
                subject=place("plugins", "prefer", name),
                reason=f"{distribution!r} does not offer {name!r}, so nobody may; "
                f"offered by: {', '.join(sorted(offers)) or 'none'}",
                remedy=f"pip install {normalized(distribution)}, or take the line out",
            )
    for option, given in (("allow", plugins.allow or ()), ("block", plugins.block)):
        for distribution in given:
            if normalized(distribution) not in installed:
                yield Finding(
                    problem=False,
                    subject=place("plugins", option),
                    reason=f"{distribution!r} is not installed",
                    remedy="see whether it is spelt as pip spells it",
                )
