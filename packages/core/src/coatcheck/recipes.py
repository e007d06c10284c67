"""How to make one thing: a factory and what it takes, from a descriptor or a ``module:attribute``."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar, cast

import attrs
from attrs import field, frozen

from coatcheck.errors import CoatcheckError, ConfigurationError, PluginError
from coatcheck.gates import AdmissionPolicy
from coatcheck.handler import AnyHandler, Handler
from coatcheck.hooks import Descriptor, HandlerDescriptor
from coatcheck.retry import RetryPolicy
from coatcheck.selector import Selector
from coatcheck.settings import Parts, structure_settings
from coatcheck.store import Store

__all__ = ["ADMISSION", "HANDLER", "RETRY", "SELECTOR", "STORE", "Recipe", "finished", "imported"]

T = TypeVar("T")

# all that is done with these is isinstance(); mypy wants classes that could be called
STORE: type[Store] = Store  # type: ignore[type-abstract]
HANDLER: type[AnyHandler] = Handler  # type: ignore[type-abstract]
RETRY: type[RetryPolicy] = RetryPolicy  # type: ignore[type-abstract]
ADMISSION: type[AdmissionPolicy] = AdmissionPolicy  # type: ignore[type-abstract]
SELECTOR = cast("type[Selector]", Callable)


def imported(reference: str) -> object:
    """Return what ``package.module:attribute`` names.

    Raises:
        PluginError: it cannot be imported; the cause says why.
    """
    module, _, attribute = reference.partition(":")
    try:
        found: object = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split())
        message = f"{reference!r} cannot be imported: {type(error).__name__}: {why}"
        raise PluginError(message) from error
    return found


@frozen(kw_only=True)
class Recipe:
    """What makes one thing, with its classes imported."""

    owner: str
    """Whose it is, for messages."""
    factory: object
    """What is called; of a reference it may be the thing itself."""
    settings: type | None = None
    account: type | None = None
    declared: bool = True
    """Whether a descriptor says which settings and accounts it takes; if not, they are passed as written."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not show in an error."""

    @classmethod
    def of_descriptor(cls, descriptor: Descriptor, owner: str) -> Recipe:
        """Import what a descriptor names.

        Raises:
            PluginError: something cannot be imported.
        """
        account = descriptor.account if isinstance(descriptor, HandlerDescriptor) else None
        return cls(
            owner=owner,
            factory=imported(descriptor.factory),
            settings=cast("type", imported(descriptor.settings)) if descriptor.settings else None,
            account=cast("type", imported(account)) if account else None,
        )

    @classmethod
    def of_reference(cls, reference: str) -> Recipe:
        """Import what configuration names: a factory, the thing itself, or a descriptor.

        Raises:
            PluginError: it cannot be imported.
        """
        owner = repr(reference)
        found = imported(reference)
        if isinstance(found, Descriptor):
            return cls.of_descriptor(found, owner)
        return cls(owner=owner, factory=found, declared=False)

    def settings_from(self, raw: Mapping[str, object] | None, parts: Parts | None = None) -> object:
        """Return the settings object; without a class, None, or what was written if no descriptor forbids it.

        Raises:
            ConfigurationError: they do not fit, or it takes none.
        """
        if self.settings is not None:
            return structure_settings(raw or {}, self.settings, owner=self.owner, parts=parts)
        if not raw:
            return None
        if self.declared:
            message = f"{self.owner} takes no settings; leave out {', '.join(sorted(map(repr, raw)))}"
            raise ConfigurationError(message)
        return dict(raw)

    def accounts_from(self, raw: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """Return the accounts by id: objects as they are, mappings made into the account class.

        Raises:
            ConfigurationError: they do not fit, or it takes none.
        """
        if raw is None or not self.declared:
            return raw
        if self.account is None:
            message = f"{self.owner} takes no accounts; leave them out"
            raise ConfigurationError(message)
        return {account_id: self._account_from(account_id, each) for account_id, each in raw.items()}

    def _account_from(self, account_id: str, raw: object) -> object:
        if isinstance(raw, Mapping):
            owner = f"{self.owner}, account {account_id!r},"
            return structure_settings(raw, cast("type[Any]", self.account), owner=owner, path="credential")
        return raw

    def make(self, product: type[T], *arguments: object, **keywords: object) -> T:
        """Call the factory, and check that it returned a `product`.

        Raises:
            ConfigurationError: what the factory itself raised of that kind.
            PluginError: it raised anything else, or returned something else.
        """
        try:
            made = cast("Callable[..., object]", self.factory)(*arguments, **keywords)
        except CoatcheckError as error:
            if self._shows_secret(error):
                raise ConfigurationError(f"{self.owner} cannot be created ({type(error).__name__})") from None
            raise
        except Exception as error:
            if self._shows_secret(error):
                raise PluginError(f"{self.owner} cannot be created ({type(error).__name__})") from None
            why = " ".join(str(error).split())
            raise PluginError(f"{self.owner} cannot be created: {type(error).__name__}: {why}") from error
        return self.checked(made, product)

    def checked(self, made: object, product: type[T]) -> T:
        """Return what was made if it is a `product`; raise `PluginError` if not."""
        if not isinstance(made, product):
            message = f"{self.owner} made a {type(made).__name__}, which is no {product.__name__}"
            raise PluginError(message)
        return made

    def make_policy(
        self, product: type[T], raw: Mapping[str, object] | None, parts: Parts | None = None
    ) -> T:
        """Return a selector or policy: the thing itself, its settings object, or what the factory returns.

        Its settings may hold other selectors or policies, which `parts` makes.

        Raises:
            ConfigurationError: the settings do not fit.
            PluginError: it cannot be made.
        """
        if self.declared:
            settings = self.settings_from(raw, parts)
            if self.settings is not None and self.settings is self.factory:
                return self.checked(settings, product)
            return self.make(product, **({} if self.settings is None else {"settings": settings}))
        if _is_finished(self.factory, product):
            if raw:
                message = (
                    f"{self.owner} is a finished {product.__name__}, which takes no settings; leave them out"
                )
                raise ConfigurationError(message)
            return cast("T", self.factory)
        if isinstance(self.factory, type) and attrs.has(self.factory):
            made = structure_settings(raw or {}, self.factory, owner=self.owner, parts=parts)
            return self.checked(made, product)
        return self.make(product, **(raw or {}))

    def _shows_secret(self, error: BaseException) -> bool:
        if not self.secrets:
            return False
        shown = "".join(traceback.format_exception(error)) + repr(error)
        return any(secret in shown for secret in self.secrets)


def finished(made: object, product: type[T], owner: str, settings: object) -> T:
    """Return an object that was passed in code, if it is a `product` and nothing would be ignored.

    Raises:
        ConfigurationError: it is none, or there are settings or accounts for it.
    """
    if not isinstance(made, product):
        message = f"{made!r} is no {product.__name__}, and no name of one"
        raise ConfigurationError(message)
    if settings:
        message = f"{owner} is a finished {type(made).__name__}; leave out settings and accounts"
        raise ConfigurationError(message)
    return made


def _is_finished(found: object, product: type) -> bool:
    """Whether what a reference names is the thing itself and not its factory."""
    if product is not SELECTOR:
        return isinstance(found, product)
    call = found if inspect.isroutine(found) else getattr(found, "__call__", None)  # noqa: B004 - what it is, not whether
    return not isinstance(found, type) and inspect.iscoroutinefunction(call)
