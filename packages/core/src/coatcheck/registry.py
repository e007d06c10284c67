"""The handlers of an app, by key and by the params type that they take."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from types import MappingProxyType

from coatcheck.errors import AmbiguousHandler, ConfigurationError, NoHandler, ParamsMismatch
from coatcheck.handler import AnyHandler, Handler, params_type_of

__all__ = ["Registry"]


class Registry:
    """An immutable collection of handlers, in the order of their keys. Refuses doubles."""

    def __init__(self, handlers: Iterable[AnyHandler] = ()) -> None:
        found: dict[str, AnyHandler] = {}
        for handler in handlers:
            if not isinstance(handler, Handler):
                message = f"a handler is an instance of a coatcheck.Handler subclass, not {handler!r}"
                raise ConfigurationError(message)
            key = getattr(handler, "key", None)
            if not isinstance(key, str) or not key.strip():
                message = f"{type(handler).__qualname__} needs a `key`, a non-blank string, not {key!r}"
                raise ConfigurationError(message)
            if key in found:
                message = (
                    f"two handlers have the key {key!r}: {_name(found[key])} and {_name(handler)}; "
                    "give one of them another key"
                )
                raise ConfigurationError(message)
            found[key] = handler
        self._handlers = MappingProxyType(dict(sorted(found.items())))
        self._types = {key: params_type_of(handler) for key, handler in self._handlers.items()}

    def __getitem__(self, key: str) -> AnyHandler:
        """Return the handler of `key`; raise `NoHandler` naming the nearest one."""
        try:
            return self._handlers[key]
        except KeyError:
            raise NoHandler(self._missing(key)) from None

    def get(self, key: str) -> AnyHandler | None:
        """Return the handler of `key`, or None."""
        return self._handlers.get(key)

    def __contains__(self, key: object) -> bool:
        """Whether there is a handler of this key."""
        return key in self._handlers

    def __iter__(self) -> Iterator[str]:
        """Go through the keys, sorted."""
        return iter(self._handlers)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._handlers)

    def params_type(self, key: str) -> type:
        """Return the params type that the handler of `key` takes."""
        self[key]
        return self._types[key]

    def candidates(self, params_type: type) -> tuple[str, ...]:
        """Return the keys of the handlers that take exactly this type, sorted."""
        return tuple(key for key, taken in self._types.items() if taken is params_type)

    def check(self, key: str, params_type: type) -> AnyHandler:
        """Return the handler of `key`; raise `ParamsMismatch` unless it takes exactly this type."""
        handler = self[key]
        if self._types[key] is not params_type:
            message = (
                f"handler {key!r} takes {self._types[key].__qualname__}, not {params_type.__qualname__}; "
                f"handlers for that: {', '.join(self.candidates(params_type)) or 'none'}"
            )
            raise ParamsMismatch(message)
        return handler

    def only(self, params_type: type, candidates: tuple[str, ...]) -> str:
        """Return the one candidate; raise if there is none, or several and nothing to choose by."""
        if not candidates:
            known = ", ".join(sorted({each.__qualname__ for each in self._types.values()})) or "nothing"
            message = f"no handler takes {params_type.__qualname__}; the registered ones take: {known}"
            raise NoHandler(message)
        if len(candidates) > 1:
            message = (
                f"{len(candidates)} handlers take {params_type.__qualname__}: {', '.join(candidates)}; "
                "name one with SubmitOptions(handler_key=...), or give the app a selector"
            )
            raise AmbiguousHandler(message, candidates)
        return candidates[0]

    def _missing(self, key: str) -> str:
        near = difflib.get_close_matches(str(key), self._handlers, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"registered: {', '.join(self) or 'none'}"
        return f"no handler {key!r} is registered; {hint}"


def _name(handler: AnyHandler) -> str:
    return f"{type(handler).__module__}.{type(handler).__qualname__}"
