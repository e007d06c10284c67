"""Credentials that have to be minted first: kept until shortly before they end, minted once at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

from attrs import define, field, frozen

from coatcheck.secret import Secret

__all__ = ["MintedToken", "TokenCache"]

K = TypeVar("K")


@frozen(kw_only=True)
class MintedToken:
    """A credential and how long it is good for."""

    token: Secret
    lifetime: timedelta | None = None
    """From now on; None if it does not end by itself."""


@frozen
class _Kept:
    token: Secret
    until: float | None
    since: float


@define(eq=False)
class TokenCache(Generic[K]):
    """Minted tokens by account id, or whatever tells credentials apart. For one event loop.

    However many callers ask at once, one mints and all get what it brings; one who stops waiting disturbs
    nobody. A failure goes to those who wait for it and is not kept.
    """

    mint: Callable[[K], Awaitable[MintedToken]]
    """Gets a new token for a key."""
    margin: timedelta = timedelta(seconds=30)
    """How long before its end a token is replaced; for short-lived ones half of the lifetime at most."""
    fresh: timedelta = timedelta(seconds=30)
    """A token that was minted so lately is not to blame if it is refused: see `refused`."""
    clock: Callable[[], float] = time.monotonic
    _kept: dict[K, _Kept] = field(factory=dict, repr=False)
    _last: dict[K, Secret] = field(factory=dict, repr=False)
    _minting: dict[K, asyncio.Task[Secret]] = field(factory=dict, repr=False)

    async def get(self, key: K) -> Secret:
        """Return a token that is good for now, minted if need be; raise what minting raises."""
        kept = self._kept.get(key)
        if kept is not None and (kept.until is None or self.clock() < kept.until):
            return kept.token
        task = self._minting.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._renew(key))
            self._minting[key] = task
            task.add_done_callback(lambda done: self._minted(key, done))
        return await asyncio.shield(task)

    def drop(self, key: K, token: Secret | None = None) -> bool:
        """Forget the token of `key`, as after the provider refused it; only if it is still `token`, if given.

        Returns whether there was one.
        """
        kept = self._kept.get(key)
        if kept is None or (token is not None and kept.token != token):
            return False
        del self._kept[key]
        return True

    def refused(self, key: K) -> bool:
        """Forget the token of `key`, which the provider refused, unless it is new: then something else is wrong.

        Returns whether another can be had, which is what `HttpHandler.credentials_refused` is to say.
        """
        kept = self._kept.get(key)
        if kept is None or self.clock() - kept.since < self.fresh.total_seconds():
            return False
        return self.drop(key, kept.token)

    def peek(self, key: K) -> Secret | None:
        """Return the token that was minted last, good or not, to hide it in messages; None if there was none.

        It is told also after it was dropped: the provider that has just refused it may repeat it aloud.
        """
        return self._last.get(key)

    async def _renew(self, key: K) -> Secret:
        minted = await self.mint(key)
        until = None
        if minted.lifetime is not None:
            lifetime = minted.lifetime.total_seconds()
            until = self.clock() + lifetime - min(self.margin.total_seconds(), lifetime / 2)
        self._last[key] = minted.token
        self._kept[key] = _Kept(minted.token, until, self.clock())
        return minted.token

    def _minted(self, key: K, done: asyncio.Task[Secret]) -> None:
        self._minting.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen, even if everybody who waited is gone
