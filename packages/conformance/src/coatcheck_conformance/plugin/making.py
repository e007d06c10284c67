"""Making what a distribution offers, and telling what is wrong with it. Runs in a process of its own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import cast

import attrs
from attrs import field, frozen

from coatcheck.errors import CoatcheckError, ConfigurationError, PluginError
from coatcheck.handler import AnyHandler, params_type_of
from coatcheck.hooks import Descriptor, HandlerDescriptor, Kind
from coatcheck.plugins import Offer, PluginState
from coatcheck.recipes import ADMISSION, HANDLER, RETRY, SELECTOR, STORE, Recipe, imported
from coatcheck.settings import Parts, structure_settings
from coatcheck.store import Store
from coatcheck_conformance.plugin.facts import Request, Topic
from coatcheck_conformance.policy.watching import watched

__all__ = ["make_all"]

_MARKER = "kit-marker-that-must-not-show"
_UNKNOWN = "no_setting_has_this_name"
_SECRET = re.compile(r"(key|secret|token|password|passphrase|credentials?)$", re.IGNORECASE)
_TEXT = re.compile(r"\b(str|Secret)\b")
_POLICIES: Mapping[Kind, type] = {Kind.SELECTOR: SELECTOR, Kind.RETRY: RETRY, Kind.ADMISSION: ADMISSION}


@frozen
class _Findings:
    """What is wrong, by topic."""

    problems: dict[str, list[str]] = field(factory=lambda: defaultdict(list))

    def add(self, topic: str, problem: str) -> None:
        if problem not in self.problems[topic]:
            self.problems[topic].append(problem)


def make_all(offers: Iterable[Offer], request: Request, parts: Parts) -> dict[str, list[str]]:
    """Return what is wrong with each thing that is offered, by topic; what is for another API is left out.

    Selectors and policies that are settings of others are made by `parts`.
    """
    findings = _Findings()
    for offer in offers:
        if offer.descriptor is not None and offer.state is not PluginState.INCOMPATIBLE:
            _examine(offer.descriptor, request, parts, findings)
    return dict(findings.problems)


def _examine(descriptor: Descriptor, request: Request, parts: Parts, findings: _Findings) -> None:
    title = f"{descriptor.kind} {descriptor.key!r}"
    if not _resolves(descriptor, title, findings):
        return
    recipe = Recipe.of_descriptor(descriptor, title)
    classes = {"settings": recipe.settings, "account": recipe.account}
    for name, found in classes.items():
        if found is not None and not (isinstance(found, type) and attrs.has(found)):
            findings.add(Topic.CLASSES, f"{title}: its {name} are {found!r}, which is no attrs class")
            return
    for name, found in classes.items():
        if found is not None:
            _require_unknown_keys_told(f"{title}, {name}", found, findings)
            _look_for_secrets(f"{title}, {name}", found, _sample(descriptor, name, request), findings)
    if descriptor.kind is Kind.STORE:
        _make_store(descriptor, recipe, request, findings)
    elif isinstance(descriptor, HandlerDescriptor):
        _make_handler(descriptor, recipe, request, findings)
    else:
        make = partial(
            recipe.make_policy, _POLICIES[descriptor.kind], request.settings.get(descriptor.key), parts
        )
        topics = (Topic.POLICIES, Topic.POLICIES)
        _made(make, descriptor, topics, findings, _hint(descriptor, request))


def _resolves(descriptor: Descriptor, title: str, findings: _Findings) -> bool:
    good = True
    for name in ("factory", "settings", "account", "params"):
        reference = getattr(descriptor, name, None)
        try:
            found = imported(reference) if reference else None
        except PluginError as error:
            findings.add(Topic.REFERENCES, f"{title}: {name} {error}")
            good = False
            continue
        if name == "factory" and not callable(found):
            findings.add(Topic.REFERENCES, f"{title}: factory {reference!r} cannot be called")
            good = False
        if name == "params" and reference and not isinstance(found, type):
            findings.add(Topic.REFERENCES, f"{title}: params {reference!r} is no class")
    return good


def _require_unknown_keys_told(title: str, cls: type, findings: _Findings) -> None:
    try:
        structure_settings({_UNKNOWN: _MARKER}, cls, owner=title)
    except ConfigurationError as error:
        if _UNKNOWN in str(error) and title in str(error):
            return
    findings.add(Topic.CLASSES, f"{title}: an unknown key is not told")


# ------------------------------------------------------------------ secrets


def _sample(descriptor: Descriptor, name: str, request: Request) -> Mapping[str, object]:
    return request.samples.get(getattr(descriptor, name), {})


def _secret_fields(cls: type) -> list[str]:
    with suppress(NameError, TypeError):  # a type that cannot be resolved is read as it is written
        attrs.resolve_types(cls)
    return [
        each.name
        for each in attrs.fields(cls)
        if each.init and _SECRET.search(each.name) and _TEXT.search(str(each.type))
    ]


def _with_secrets(cls: type, sample: Mapping[str, object]) -> object:
    """Return one whose every secret is the marker; other fields without a default are as in the sample, or text."""
    needed = [each.name for each in attrs.fields(cls) if each.init and each.default is attrs.NOTHING]
    raw = {**dict.fromkeys(needed, "text"), **sample, **dict.fromkeys(_secret_fields(cls), _MARKER)}
    made: object = structure_settings(raw, cls, owner=cls.__qualname__)
    return made


def _look_for_secrets(title: str, cls: type, sample: Mapping[str, object], findings: _Findings) -> None:
    if not _secret_fields(cls):
        return
    try:
        made = _with_secrets(cls, sample)
    except ConfigurationError as error:
        where = f"{cls.__module__}:{cls.__qualname__}"
        findings.add(Topic.SECRETS, f"{title}: {error}; give PluginSpec(samples={{{where!r}: {{...}}}})")
        return
    if _MARKER in repr(made) or _MARKER in str(made):
        names = ", ".join(_secret_fields(cls))
        findings.add(Topic.SECRETS, f"{title}: its repr shows {names}; make that a Secret, or repr=False")


# ------------------------------------------------------------------ making


def _made(
    make: Callable[[], object],
    descriptor: Descriptor,
    topics: tuple[str, str],
    findings: _Findings,
    hint: str,
) -> object | None:
    """Make it twice, the second time watched, when all is imported; None if it cannot be made."""
    title = f"{descriptor.kind} {descriptor.key!r}"
    try:
        make()
        with watched() as outside:
            made = make()
    except CoatcheckError as error:
        findings.add(topics[0], f"{title}: {error}{hint}")
        return None
    if outside:
        findings.add(topics[1], f"{title}: {'; '.join(outside[:3])}")
    return made


def _hint(descriptor: Descriptor, request: Request) -> str:
    """Return what may be missing, if it cannot be made."""
    if descriptor.settings is None or descriptor.key in request.settings:
        return ""
    return f"; if it needs settings, give PluginSpec(settings={{{descriptor.key!r}: {{...}}}})"


def _make_store(descriptor: Descriptor, recipe: Recipe, request: Request, findings: _Findings) -> None:
    title = f"store {descriptor.key!r}"

    def make(url: str) -> Store:
        made = recipe.settings_from(request.settings.get(descriptor.key))
        return recipe.make(STORE, url, **({} if made is None else {"settings": made}))

    for scheme in descriptor.names:
        given = request.urls.get(scheme)
        url = given or _guessed_url(scheme, make)
        if url is None:
            hint = f"give PluginSpec(urls={{{scheme!r}: ...}}){_hint(descriptor, request)}"
            findings.add(
                Topic.STORES, f"{title}: no URL of {scheme!r} that the kit can think of will do; {hint}"
            )
            continue
        store = _made(
            partial(make, url),
            descriptor,
            (Topic.STORES, Topic.STORES_OUTSIDE),
            findings,
            _hint(descriptor, request),
        )
        if isinstance(store, Store):
            own, told = sorted(map(str, store.capabilities)), sorted(map(str, descriptor.capabilities))
            if own != told:
                findings.add(Topic.CAPABILITIES, f"{title}: listed are {told}, and it has {own}")


def _guessed_url(scheme: str, make: Callable[[str], Store]) -> str | None:
    """Return the first URL of which a store can be made; nothing is opened."""
    for rest in ("", "/coatcheck", "localhost/coatcheck", "localhost"):
        with suppress(CoatcheckError):
            make(f"{scheme}://{rest}")
            return f"{scheme}://{rest}"
    return None


def _make_handler(
    descriptor: HandlerDescriptor, recipe: Recipe, request: Request, findings: _Findings
) -> None:
    title = f"handler {descriptor.key!r}"

    def make(key: str, accounts: object = None) -> AnyHandler:
        made = recipe.settings_from(request.settings.get(descriptor.key))
        return recipe.make(HANDLER, key=key, accounts=accounts, settings=made)

    topics = (Topic.HANDLERS, Topic.HANDLERS_OUTSIDE)
    handler = _made(partial(make, descriptor.key), descriptor, topics, findings, _hint(descriptor, request))
    if handler is None:
        return
    for key in (descriptor.key, f"{descriptor.key}-of-the-kit"):
        found = getattr(make(key), "key", None)
        if found != key:
            findings.add(Topic.HANDLER_KEYS, f"{title}: asked for as {key!r}, and its key is {found!r}")
    _compare_params(descriptor, cast("AnyHandler", handler), title, findings)
    if recipe.account is not None:
        with suppress(ConfigurationError):  # told where accounts are looked at
            account = _with_secrets(recipe.account, _sample(descriptor, "account", request))
            if _MARKER in repr(make(descriptor.key, {"default": account})):
                findings.add(Topic.SECRETS_OF_MADE, f"{title}: its repr shows its account's secrets")


def _compare_params(
    descriptor: HandlerDescriptor, handler: AnyHandler, title: str, findings: _Findings
) -> None:
    try:
        taken = params_type_of(handler)
    except ConfigurationError as error:
        findings.add(Topic.HANDLER_PARAMS, f"{title}: {error}")
        return
    if descriptor.params is not None and imported(descriptor.params) is not taken:
        told = (
            f"its descriptor says {descriptor.params!r}, and it takes {taken.__module__}:{taken.__qualname__}"
        )
        findings.add(Topic.HANDLER_PARAMS, f"{title}: {told}")
