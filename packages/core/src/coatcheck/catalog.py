"""The catalog: what plugins offer, and how it is created when it is asked for.

`discover` imports light modules only. What a key stands for is imported when the key is first used, and a
broken plugin that nobody asks for changes nothing but the listing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import define, evolve, field

from coatcheck import builtin
from coatcheck.errors import ConfigurationError, PluginError
from coatcheck.hooks import Kind, Observer, is_reference
from coatcheck.listing import Row, row_of, row_of_plugin
from coatcheck.plugins import Offer, Plugin, PluginState, find_plugins, installed_version, normalized
from coatcheck.remedies import distribution_of, nearest
from coatcheck.urls import StoreUrl

if TYPE_CHECKING:
    from coatcheck.gates import AdmissionPolicy
    from coatcheck.handler import AnyHandler
    from coatcheck.recipes import Recipe
    from coatcheck.retry import RetryPolicy
    from coatcheck.selector import Selector
    from coatcheck.settings import Parts
    from coatcheck.store import Store

__all__ = ["STRICT_VARIABLE", "Catalog", "create_store", "discover"]

STRICT_VARIABLE = "COATCHECK_STRICT_PLUGINS"
"""Set to 1, this environment variable makes `discover` raise if any plugin is broken, for CI."""

T = TypeVar("T")

Settings = Mapping[str, object]

_USABLE = frozenset({PluginState.AVAILABLE, PluginState.LOADED})


@define(kw_only=True, eq=False)
class Catalog:
    """What was discovered. Creating something imports its factory, and remembers how that went."""

    plugins: tuple[Plugin, ...]
    """All of them, in order of distribution and name, also the broken ones."""
    prefer: Mapping[str, str] = field(factory=dict)
    """Which distribution serves a key, or a URL scheme, that several offer."""
    _offers: dict[tuple[Kind, str], list[Offer]] = field(init=False, factory=dict, repr=False)
    _recipes: dict[int, Recipe] = field(init=False, factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        """Find the conflicts, and settle those that `prefer` decides."""
        self.prefer = {key: normalized(distribution) for key, distribution in self.prefer.items()}
        for offer in self.offers:
            for name in offer.names:
                self._offers.setdefault((offer.kind, name), []).append(offer)
        for (_, name), rivals in self._offers.items():
            self._mark(name, [each for each in rivals if each.state is not PluginState.INCOMPATIBLE])

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Everything that is offered, in order of distribution and key."""
        everything = (offer for plugin in self.plugins for offer in plugin.offers)
        return tuple(sorted(everything, key=lambda each: (each.plugin.distribution, each.key, each.kind)))

    def _mark(self, name: str, rivals: list[Offer]) -> None:
        preferred = self.prefer.get(name)
        if len(rivals) < 2:  # noqa: PLR2004 - two are a conflict
            return
        for rival in rivals:
            others = ", ".join(str(each.plugin) for each in rivals if each is not rival)
            if preferred not in {each.plugin.distribution for each in rivals}:
                rival.state = PluginState.CONFLICT
                rival.reason = f"{name!r} is also offered by {others}; decide by prefer = {{{name!r}: ...}}"
            elif rival.plugin.distribution != preferred:
                rival.state = PluginState.BLOCKED
                rival.reason = f"`prefer` gives {name!r} to {preferred}"

    # -------------------------------------------------------------- the listing

    def listing(self, *, load: bool = False) -> list[Row]:
        """Return a row for each thing offered, and one for each plugin that failed or offers nothing.

        In order of distribution and key. With `load`, the factories are imported first, and those that
        cannot be are shown as failed; nothing is created either way.
        """
        if load:
            for offer in self.offers:
                self._try_to_load(offer)
        rows = [row_of(offer) for offer in self.offers]
        rows += [row_of_plugin(each) for each in self.plugins if each.reason or not each.offers]
        return sorted(rows, key=lambda row: (row.distribution, row.key or "", row.kind or ""))

    def _try_to_load(self, offer: Offer) -> None:
        if offer.state is PluginState.AVAILABLE and offer.descriptor is not None:
            try:
                self._recipe_of(offer)
            except PluginError:
                return  # the offer remembers it

    # -------------------------------------------------------------- creating

    def create_store(self, url: str, *, use: str | None = None, **settings: object) -> Store:
        """Return a closed store; no I/O is done.

        Args:
            url: where it is. Its scheme finds the plugin; its query string and the keywords are the same
                settings.
            use: ``module:attribute`` of a factory that goes before any plugin.
            settings: as the plugin's settings class names them.

        Raises:
            ConfigurationError: the URL is none, no plugin serves its scheme (the message says what to
                install), or the settings do not fit. No message shows a password.
            PluginError: the plugin that serves it is broken, incompatible, blocked or in conflict.
        """
        from coatcheck.recipes import STORE, Recipe  # noqa: PLC0415 - a listing has no use for what makes things

        parsed = StoreUrl.parse(url)
        both = sorted(parsed.settings.keys() & settings.keys())
        if both:
            message = f"{', '.join(both)}: given in the URL and as a keyword; give each once"
            raise ConfigurationError(message)
        found = Recipe.of_reference(use) if use else self._recipe_of(self._offer(Kind.STORE, parsed.scheme))
        recipe = evolve(found, secrets=parsed.secrets)
        made = recipe.settings_from({**parsed.settings, **settings})
        return recipe.make(STORE, parsed.url, **({} if made is None else {"settings": made}))

    def create_handler(
        self,
        key: str,
        *,
        use: AnyHandler | str | None = None,
        accounts: Mapping[str, object] | None = None,
        settings: Settings | None = None,
    ) -> AnyHandler:
        """Return a handler that is persisted as `key`; no I/O is done and no credential is read.

        Args:
            key: its own key, such as ``docs:acme-eu``.
            use: a handler, a ``module:attribute`` or a plugin's key; by default the plugin with this key.
            accounts: credentials by account id: objects, or what they are made from, such as
                ``{"default": {"api_key": {"env": "ACME_KEY"}}}``; None where no provider is called.
            settings: everything else, as the plugin's settings class names it.

        Raises:
            ConfigurationError: nothing offers it (the message says what to install), or the accounts or
                settings do not fit.
            PluginError: the plugin that offers it is broken, incompatible, blocked or in conflict.
        """
        from coatcheck.recipes import HANDLER, finished  # noqa: PLC0415 - a listing has no use for what makes things

        if use is not None and not isinstance(use, str):
            return _with_key(finished(use, HANDLER, "handler", accounts or settings), key)
        # its own key is no reference, however much "acme:ocr" looks like one
        recipe = (
            self._recipe_of(self._offer(Kind.HANDLER, key))
            if use is None
            else self._recipe(Kind.HANDLER, use)
        )
        if isinstance(recipe.factory, HANDLER):
            return _with_key(finished(recipe.factory, HANDLER, recipe.owner, accounts or settings), key)
        made: AnyHandler = recipe.make(
            HANDLER,
            key=key,
            accounts=recipe.accounts_from(accounts),
            settings=recipe.settings_from(settings, self.parts()),
        )
        return _with_key(made, key)

    def create_selector(self, use: Selector | str, settings: Settings | None = None) -> Selector:
        """Return a selector: `use` itself, or what a ``module:attribute`` or a plugin's key stands for.

        Raises:
            ConfigurationError: nothing offers it, or the settings do not fit.
            PluginError: the plugin that offers it is broken, incompatible, blocked or in conflict.
        """
        from coatcheck.recipes import SELECTOR  # noqa: PLC0415 - a listing has no use for what makes things

        return self._create(Kind.SELECTOR, SELECTOR, use, settings)

    def create_retry_policy(self, use: RetryPolicy | str, settings: Settings | None = None) -> RetryPolicy:
        """Return a retry policy, as `create_selector` does a selector."""
        from coatcheck.recipes import RETRY  # noqa: PLC0415 - a listing has no use for what makes things

        return self._create(Kind.RETRY, RETRY, use, settings)

    def create_admission_policy(
        self, use: AdmissionPolicy | str, settings: Settings | None = None
    ) -> AdmissionPolicy:
        """Return an admission policy, as `create_selector` does a selector."""
        from coatcheck.recipes import ADMISSION  # noqa: PLC0415 - a listing has no use for what makes things

        return self._create(Kind.ADMISSION, ADMISSION, use, settings)

    def observer(self, use: Observer | str) -> Observer:
        """Return an observer: `use` itself, what a ``module:attribute`` names, or the plugin of that name.

        Raises:
            ConfigurationError: nothing offers it, or it has no method `coatcheck_tasks_changed`.
            PluginError: it cannot be imported, or is blocked or in conflict.
        """
        from coatcheck.recipes import imported  # noqa: PLC0415 - a listing has no use for what makes things

        found: object = use
        if isinstance(use, str):
            offered = (Kind.OBSERVER, use) in self._offers or not is_reference(use)
            found = self._offer(Kind.OBSERVER, use).plugin.module if offered else imported(use)
        if not callable(getattr(found, "coatcheck_tasks_changed", None)):
            message = f"{use!r} is no observer: it has no method coatcheck_tasks_changed(changes)"
            raise ConfigurationError(message)
        return cast("Observer", found)

    def _create(self, kind: Kind, product: type[T], use: T | str, settings: Settings | None) -> T:
        from coatcheck.recipes import finished  # noqa: PLC0415 - a listing has no use for what makes things

        if isinstance(use, str):
            return self._recipe(kind, use).make_policy(product, settings, self.parts())
        return finished(use, product, kind.value, settings)

    def parts(self) -> Parts:
        """Return what makes selectors and policies that are settings of others.

        They are written as a name, or as a table with the name as `use` and the settings beside it.
        """
        from coatcheck.recipes import ADMISSION, RETRY, SELECTOR  # noqa: PLC0415 - a listing has no use for what makes things
        from coatcheck.selector import Selector  # noqa: PLC0415 - the same

        kinds: list[tuple[object, Kind, type]] = [
            (Selector, Kind.SELECTOR, SELECTOR),
            (RETRY, Kind.RETRY, RETRY),
            (ADMISSION, Kind.ADMISSION, ADMISSION),
        ]
        return {each: partial(self._part, kind, product) for each, kind, product in kinds}

    def _part(self, kind: Kind, product: type[T], written: object) -> T:
        if isinstance(written, Mapping):
            settings = dict(written)
            use = settings.pop("use", None)
            if not isinstance(use, str):
                message = f"a {kind} is a name, or a table with the name as `use` and its settings beside it"
                raise ConfigurationError(message)
            return self._create(kind, product, use, settings)
        return self._create(kind, product, cast("T | str", written), None)

    # -------------------------------------------------------------- finding

    def _recipe(self, kind: Kind, use: str) -> Recipe:
        """Return how to make what configuration names.

        A key that a plugin offers is never taken for a ``module:attribute``: "ocr:gitee" could be both.
        """
        from coatcheck.recipes import Recipe  # noqa: PLC0415 - a listing has no use for what makes things

        if (kind, use) not in self._offers and is_reference(use) and distribution_of(kind, use) is None:
            return Recipe.of_reference(use)
        return self._recipe_of(self._offer(kind, use))

    def _recipe_of(self, offer: Offer) -> Recipe:
        """Import what an offer names, once."""
        from coatcheck.recipes import Recipe  # noqa: PLC0415 - a listing has no use for what makes things

        if id(offer) not in self._recipes:
            try:
                self._recipes[id(offer)] = Recipe.of_descriptor(cast("Any", offer.descriptor), str(offer))
            except PluginError as error:
                offer.fail(error)
                raise _unusable(offer) from error.__cause__
            if offer.state is PluginState.AVAILABLE:  # under another name it may be in conflict
                offer.state = PluginState.LOADED
        return self._recipes[id(offer)]

    def _offer(self, kind: Kind, name: str) -> Offer:
        """Return the one usable offer of this name.

        Raises:
            ConfigurationError: there is none.
            PluginError: there is, and it cannot be used.
        """
        found = self._offers.get((kind, name), [])
        usable = [each for each in found if each.state is not PluginState.INCOMPATIBLE] or found
        preferred = self.prefer.get(name)
        chosen = [each for each in usable if preferred in {None, each.plugin.distribution}]
        if not found:
            raise self._absent(kind, name)
        if len(chosen) > 1:
            rivals = " and ".join(str(each.plugin) for each in chosen)
            message = (
                f"{kind} {name!r} is offered by {rivals}; decide by prefer = {{{name!r}: 'a distribution'}}"
            )
            raise PluginError(message)
        if not chosen:
            message = (
                f"`prefer` gives {kind} {name!r} to {preferred}, which does not offer it; "
                f"offered by: {', '.join(str(each.plugin) for each in usable)}"
            )
            raise PluginError(message)
        offer = chosen[0]
        if offer.state in {PluginState.FAILED, PluginState.INCOMPATIBLE}:
            raise _unusable(offer) from offer.error
        return offer

    def _absent(self, kind: Kind, name: str) -> ConfigurationError:
        """Return the error for a name that nothing offers, with the cause if a broken plugin may be why."""
        wanted = distribution_of(kind, name)
        unusable = [plugin for plugin in self.plugins if plugin.state not in _USABLE]
        if wanted is not None:
            its = normalized(wanted.partition("[")[0])
            for plugin in unusable:
                if plugin.distribution == its:
                    message = f"{kind} {name!r} comes from {plugin}, which is {plugin.state}: {plugin.reason}"
                    return _caused(PluginError(message), plugin.error)
            if all(plugin.distribution != its for plugin in self.plugins):
                return ConfigurationError(f"nothing installed offers {kind} {name!r}: pip install '{wanted}'")
            unusable = []
        known = sorted({each for offered, each in self._offers if offered is kind})
        message = f"nothing installed offers {kind} {name!r}; {nearest(name, known)}"
        if not unusable:
            return ConfigurationError(message)
        told = "; ".join(f"{plugin} is {plugin.state}: {plugin.reason}" for plugin in unusable)
        return _caused(PluginError(f"{message}. Plugins that cannot be used: {told}"), unusable[0].error)


def _unusable(offer: Offer) -> PluginError:
    return PluginError(f"{offer} cannot be used: {offer.reason}")


def _caused(error: PluginError, cause: BaseException | None) -> PluginError:
    error.__cause__ = cause
    return error


def _with_key(handler: AnyHandler, key: str) -> AnyHandler:
    if handler.key != key:
        message = f"{type(handler).__qualname__} is asked for as {key!r}, but its key is {handler.key!r}"
        raise ConfigurationError(message)
    return handler


# ------------------------------------------------------------------ discovery


def discover(
    *,
    allow: Collection[str] | None = None,
    block: Collection[str] = (),
    prefer: Mapping[str, str] | None = None,
) -> Catalog:
    """Return what the installed distributions offer, and core itself. Only light modules are imported.

    Args:
        allow: names of the distributions that may be imported; None allows all.
        block: names of those that may not; goes before `allow`. What is built in is always there.
        prefer: which distribution serves a key or URL scheme that several offer.

    Raises:
        ConfigurationError: `allow` or `block` is a single string.
        PluginError: something is broken, and the environment variable `COATCHECK_STRICT_PLUGINS` is set.
    """
    own = ("coatcheck", installed_version("coatcheck"), builtin)
    catalog = Catalog(plugins=find_plugins([own], allow=allow, block=block), prefer=prefer or {})
    if os.environ.get(STRICT_VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"}:
        _require_sound(catalog)
    return catalog


def _require_sound(catalog: Catalog) -> None:
    broken = [row for row in catalog.listing() if row.broken]
    if broken:
        told = "; ".join(f"{row.title} is {row.state}: {row.reason}" for row in broken)
        cause = next((each.error for each in catalog.plugins if each.error), None)
        raise _caused(PluginError(f"{STRICT_VARIABLE} is set, and plugins are broken: {told}"), cause)


def create_store(url: str, **settings: object) -> Store:
    """Return a closed store for a URL, from whatever is installed; no I/O is done.

    It discovers anew; make several things from one `discover()`. As `Catalog.create_store`, also in what it
    raises.
    """
    return discover().create_store(url, **settings)  # type: ignore[arg-type] # `use` is one of them
