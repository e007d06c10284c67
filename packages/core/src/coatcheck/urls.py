"""Store URLs: taken apart, and shown without what is secret in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from attrs import field, frozen

from coatcheck.errors import ConfigurationError

__all__ = ["StoreUrl", "redacted_url"]

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_SECRET_NAME = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)
_SHORTEST_SECRET = 3
"""Shorter ones are part of many words, and hiding them would spoil every message."""
_HIDDEN = "***"


@frozen(kw_only=True)
class StoreUrl:
    """A store URL in two parts: where the store is, and its settings."""

    scheme: str
    """In lower case."""
    url: str = field(repr=False)
    """Without the query string; may hold a password."""
    settings: Mapping[str, str] = field(repr=False)
    """The query string, decoded."""

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        """Take `text` apart.

        Raises:
            ConfigurationError: it is no store URL; the message shows nothing that could be a password.
        """
        scheme, separator, rest = text.partition("://") if isinstance(text, str) else ("", "", "")
        scheme = scheme.lower()
        if not separator or not _SCHEME.fullmatch(scheme):
            message = (
                "this is no store URL; write scheme://..., such as sqlite:///jobs.db, memory:// or "
                "postgresql://user:password@host/database"
            )
            raise ConfigurationError(message)
        place, _, query = rest.partition("?")
        if _looks_cut(place, query):
            message = (
                f"the store URL {scheme}://... has a bare '#', or a password with a bare '?' or '/'; "
                "percent-encode it, as urllib.parse.quote(password, safe='') does"
            )
            raise ConfigurationError(message)
        return cls(scheme=scheme, url=f"{scheme}://{place}", settings=_settings_of(scheme, query))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must show in no message: the password, as written and decoded, and credentials among the settings."""
        credentials = self.url.partition("://")[2].rpartition("@")[0]
        password = credentials.partition(":")[2]
        named = [value for name, value in self.settings.items() if _SECRET_NAME.search(name)]
        return tuple(each for each in (password, unquote(password), *named) if len(each) >= _SHORTEST_SECRET)


def _looks_cut(place: str, query: str) -> bool:
    """Whether a character of the password was taken for the end of the part that holds it."""
    authority, _, path = place.partition("/")
    _, colon, port = authority.partition(":")
    password = bool(colon) and "@" not in authority and not port.isdecimal()
    return "#" in place + query or (password and "@" in path + query)


def _settings_of(scheme: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        message = (
            f"the query string of the store URL {scheme}://... is not made of name=value pairs, joined by &"
        )
        raise ConfigurationError(message) from None
    settings = dict(pairs)
    if len(settings) < len(pairs):
        names = [name for name, _ in pairs]
        twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
        message = f"the store URL {scheme}://... gives {twice} twice; give it once"
        raise ConfigurationError(message)
    return settings


def redacted_url(text: str) -> str:
    """Return a store URL for people: its password and the values of its query string as ``***``."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _HIDDEN
    place, mark, query = rest.partition("?")
    credentials, at, host = place.rpartition("@")
    user, colon, _ = credentials.partition(":")
    names = [each.partition("=")[0] for each in query.split("&")] if mark else []
    shown = "&".join(f"{name}={_HIDDEN}" for name in names)
    return f"{scheme}://{user}{colon and colon + _HIDDEN}{at}{host}{mark}{shown}"
