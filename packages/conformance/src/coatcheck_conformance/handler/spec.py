"""How to get at the handler under test, and at its provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from importlib import import_module
from typing import cast

import attrs
from attrs import field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.handler import AnyHandler, Handler
from coatcheck.secret import Secret
from coatcheck_conformance.handler.replies import Received
from coatcheck_conformance.handler.script import Script
from coatcheck_conformance.handler.shapes import document_slots, nested_slots, slots
from coatcheck_conformance.rules import Identity

__all__ = ["HandlerHook", "HandlerSpec"]

_SOMEWHERE = "http://127.0.0.1:9"


class HandlerHook(StrEnum):
    """What a spec can offer beyond the handler's capabilities. Rules name what they cannot do without."""

    ACCOUNT = "account"
    "The handler takes accounts."
    TWO_ACCOUNTS = "two accounts"
    "There is a second account."
    DOCUMENTS = "document fields"
    "Params have a field with the URL of a document."
    FIELDS = "fields"
    "Params have a field that can hold something else than it should."
    NESTED = "nested fields"
    "Params have a document, and a field for a mapping."
    WITHOUT_RESULT = "answer without a result"
    "The script has an answer that says done and gives no result."
    PREVIOUS = "previous payload"
    "The script has what the version before has stored."


def _posts(method: str, _path: str) -> bool:
    return method == "POST"


def _itself(key: str) -> str:
    return key


def _no_settings(_url: str) -> object:
    return None


@frozen
class HandlerSpec:
    """Where the handler under test is, how it is made, and what its provider answers."""

    factory: str
    """``"package.module:attribute"``, called with ``key=``, ``accounts=`` and ``settings=``, as that of a plugin's
    `HandlerDescriptor`; returns a handler."""
    key: str = field(kw_only=True)
    """What the factory is called with."""
    params: Callable[[str], object] = field(kw_only=True)
    """Returns good params, given the url of the kit's server; a document's URL should be one of that server."""
    script: Script = field(kw_only=True)
    """What the provider answers."""
    settings: Callable[[str], object] = field(default=_no_settings, kw_only=True)
    """Returns the handler's settings, given the url of the kit's server, to which it is to talk; with timeouts of
    one or two seconds, and limits of a few megabytes, if they can be set."""
    accounts: Mapping[str, object] = field(factory=dict, kw_only=True)
    """Accounts by id, one of them "default"; a second one lets the choice be tried. Empty: it needs no credentials."""
    secrets: Mapping[str, Collection[str]] | None = field(default=None, kw_only=True, repr=False)
    """The secrets of each account, as plain text; None takes the fields of the accounts that are a `Secret`."""
    creating: Callable[[str, str], bool] = field(default=_posts, kw_only=True)
    """Whether a request of this method and path, which is not among `Script.served`, creates a job: any POST."""
    creating_request: Callable[[Received], bool] | None = field(default=None, kw_only=True)
    """Takes the place of `creating` where method and path don't tell: where one path serves all, and a header or
    the body says what is wanted."""
    idempotency_token: Callable[[str], str] = field(default=_itself, kw_only=True)
    """What the handler makes of our idempotency key for the provider, such as a UUID; by default the key itself."""
    not_created_statuses: Collection[int] = field(default=(), kw_only=True)
    """Statuses of 500 and more that the provider documents as "not created"."""
    patience: timedelta = field(default=timedelta(seconds=10), kw_only=True)
    """How long the handler may take to give up on a server that says nothing. Longer only if its timeouts, by
    `settings`, cannot be shortened."""
    answer_limit_bytes: int = field(default=64 * 1024 * 1024, kw_only=True)
    """How much of one answer it may read at most, packed or unpacked. Smaller makes the rules faster."""

    def create(
        self, url: str, *, accounts: Mapping[str, object] | None = None, key: str | None = None
    ) -> AnyHandler:
        """Return a new handler that talks to the server at `url`, with `accounts` as they are.

        Raises:
            ConfigurationError: the factory is not ``module:attribute``, cannot be found, or makes no handler.
        """
        module, _, attribute = self.factory.partition(":")
        if not attribute:
            message = f"a handler's factory is written 'package.module:attribute', not {self.factory!r}"
            raise ConfigurationError(message)
        try:
            make = cast("Callable[..., object]", getattr(import_module(module), attribute))
        except (ImportError, AttributeError) as error:
            message = f"there is no {self.factory!r} here: {error}"
            raise ConfigurationError(message) from error
        try:
            made = make(key=key or self.key, accounts=accounts, settings=self.settings(url))
        except TypeError as error:
            message = f"{self.factory!r} is called with key=, accounts= and settings=, and refuses: {error}"
            raise ConfigurationError(message) from error
        if not isinstance(made, Handler):
            message = f"{self.factory!r} made {made!r}, which is no coatcheck.Handler"
            raise ConfigurationError(message)
        return made

    def creates(self, request: Received) -> bool:
        """Whether a request, which is not among `Script.served`, creates a job."""
        if self.creating_request is not None:
            return self.creating_request(request)
        return self.creating(request.method, request.path)

    def problems(self) -> Sequence[str]:
        """Return what makes it unusable, a line each, with what to do."""
        found = list(self.script.problems())
        if self.accounts and "default" not in self.accounts:
            found.append("accounts has no 'default', which is what tasks without an account use")
        if self.accounts and not self.all_secrets:
            found.append(
                "accounts hold no Secret; name their secrets as plain text in secrets={'default': [...]}"
            )
        return found

    @property
    def all_secrets(self) -> frozenset[str]:
        """The secrets of all accounts, as plain text."""
        return frozenset().union(*(self.secrets_of(each) for each in self.accounts))

    def secrets_of(self, account_id: str) -> frozenset[str]:
        """Return the secrets of one account, as plain text."""
        if self.secrets is not None:
            return frozenset(self.secrets.get(account_id, ()))
        return frozenset(_revealed(self.accounts[account_id]))

    @property
    def other_account(self) -> str | None:
        """The id of an account that is not the default one, or None."""
        return next((each for each in self.accounts if each != "default"), None)

    def offers(self) -> frozenset[str]:
        """Return the handler's capabilities and this spec's hooks."""
        params = self.params(_SOMEWHERE)
        given = {
            HandlerHook.ACCOUNT: self.accounts,
            HandlerHook.TWO_ACCOUNTS: self.other_account,
            HandlerHook.DOCUMENTS: document_slots(params),
            HandlerHook.FIELDS: slots(params),
            HandlerHook.NESTED: document_slots(params) and nested_slots(params),
            HandlerHook.WITHOUT_RESULT: self.script.done_without_result,
            HandlerHook.PREVIOUS: self.script.previous,
        }
        hooks = {str(hook) for hook, there in given.items() if there}
        handler = self.create(_SOMEWHERE, accounts=self.accounts or None)
        return frozenset(str(each) for each in handler.capabilities) | hooks

    def identity(self) -> Identity:
        """Return the factory and the key."""
        return Identity(target=f"{self.factory} as {self.key!r}", modules=[self.factory.partition(":")[0]])


def _revealed(account: object) -> list[str]:
    """Return the secrets that an account holds in the fields of its attrs class."""
    found = []
    kind = type(account)
    if attrs.has(kind):
        for each in attrs.fields(kind):
            value = getattr(account, each.name)
            if isinstance(value, Secret):
                with suppress(ConfigurationError):
                    found.append(value.reveal())
    return found
