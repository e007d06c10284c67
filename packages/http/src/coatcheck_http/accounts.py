"""Accounts: one credential each, kept apart from settings and never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

import attrs
from attrs import field, frozen
from attrs.converters import optional

from coatcheck.errors import ConfigurationError, UnknownAccount
from coatcheck.handler import pick_account
from coatcheck.secret import Secret

__all__ = ["Accounts", "ApiKey", "as_secret", "find_account", "header_value", "secrets_of"]

Accounts: TypeAlias = "object | Mapping[str, object] | Callable[[str | None], object | None] | None"
"""What handlers take: one account (the default one), accounts by id, or a function from id to account.

The function is asked at each call, raises `LookupError` or returns None for an id that it does not know, and
must not block.
"""


def as_secret(value: str | Secret) -> Secret:
    """Return `value` as a secret: what accounts convert their fields with."""
    return value if isinstance(value, Secret) else Secret(value)


@frozen
class ApiKey:
    """An account that is one key or token."""

    api_key: Secret = field(converter=as_secret)
    """Prints as ``***``."""
    callback_secret: Secret | None = field(default=None, kw_only=True, converter=optional(as_secret))
    """Ours alone, any long random text: it proves that a callback came to an address that only the provider was
    told. None asks for no callbacks and takes none."""

    @classmethod
    def from_env(cls, name: str) -> ApiKey:
        """Return the account whose key is in the environment variable `name`."""
        return cls(Secret.from_env(name))


def find_account(handler_key: str, accounts: Accounts, account_id: str | None) -> object:
    """Return the account called `account_id`; None is the default one.

    Raises:
        UnknownAccount: there is none; the message names those there are.
    """
    if accounts is None:
        return pick_account(handler_key, {}, account_id)
    if isinstance(accounts, Mapping):
        return pick_account(handler_key, accounts, account_id)
    if callable(accounts):
        try:
            found: object = accounts(account_id)
        except LookupError as error:
            message = f"handler {handler_key!r} has no account {account_id or 'default'!r}"
            raise UnknownAccount(message) from error
        if found is None:
            message = f"handler {handler_key!r} has no account {account_id or 'default'!r}"
            raise UnknownAccount(message)
        return found
    return pick_account(handler_key, {"default": accounts}, account_id)


def secrets_of(account: object) -> Iterator[str]:
    """Yield the plain text of every secret of an account, an attrs object."""
    kind = type(account)
    if not attrs.has(kind):
        return
    for each in attrs.fields(kind):
        value = getattr(account, each.name)
        if isinstance(value, Secret):
            with suppress(ConfigurationError):  # a source that is gone has nothing to give away
                yield value.reveal()


def header_value(secret: Secret) -> str:
    """Return a secret's text, checked to fit into a header.

    Raises:
        ConfigurationError: it is empty or holds what no header can carry; the text is not in the message.
    """
    text = secret.reveal()
    if not text or not text.isascii() or not text.isprintable() or text != text.strip():
        message = (
            "the account's key is empty or cannot be sent in a header; "
            "look for blanks or a line break at its ends, or characters that are not ASCII"
        )
        raise ConfigurationError(message)
    return text
