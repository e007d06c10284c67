"""Calls of scripts: sent, tried again within the call's time, and told apart when they fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from attrs import define
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from coatcheck.clock import Clock
from coatcheck.errors import StoreError, StoreUnavailable
from coatcheck.task import as_millis
from coatcheck_store_redis.clients import Command, Connected
from coatcheck_store_redis.durability import Durability
from coatcheck_store_redis.marks import Marks
from coatcheck_store_redis.scripts import Script, script
from coatcheck_store_redis.troubles import FAULTS, told

__all__ = ["Calls", "Doubt", "Words"]

Words = Sequence["str | bytes | int | float"]

_NAPS_SECONDS = (0.002, 0.02)
"""How long a call naps before it tries again; doubled each time."""
_LONGEST_NAP_SECONDS = 0.5
_REFUSED = (AuthenticationError, AuthorizationError, NoPermissionError)
_PASSING = (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MasterNotFoundError,
    ReadOnlyError,
    RedisClusterException,
    RedisConnectionError,
    RedisTimeoutError,
    TryAgainError,
    OSError,
)
"""What ends by itself, when a server is there again, or another one has taken over."""
_PASSING_WORDS = ("BUSY ", "LOADING ", "MASTERDOWN ", "NOREPLICAS ", "READONLY ", "TRYAGAIN ", "UNBLOCKED ")


@define
class Doubt:
    """Whether a call may have been carried out though its answer was lost."""

    possible: bool = False


class Calls:
    """How a store's steps reach the server."""

    def __init__(
        self, connected: Connected, durability: Durability, prefix: str, seconds: float, clock: Clock | None
    ) -> None:
        self.connected = connected
        self.durability = durability
        self.prefix = prefix
        self.seconds = seconds
        """How long a call may take."""
        self.faults = 0
        """How often a server was away, or no master any more: another one may have other tasks since."""
        self.marks = Marks(seconds)
        """For steps that must not be made twice."""
        self._clock = clock

    async def step(self, name: str, words: Words, *, start: bool = False, doubt: Doubt | None = None) -> Any:  # noqa: ANN401 - a server's answer
        """Carry out a step that writes, and return its answer; it is tried again while its time lasts.

        Raises:
            StoreUnavailable: the server could not be reached in time, or failed.
        """
        return await self._do(script(name), words, writes=True, start=start, doubt=doubt or Doubt())

    async def look(self, name: str, words: Words) -> Any:  # noqa: ANN401 - a server's answer
        """Carry out a step that changes nothing, as `step` does."""
        return await self._do(script(name), words, writes=False, start=False, doubt=Doubt())

    async def _do(self, what: Script, words: Words, *, writes: bool, start: bool, doubt: Doubt) -> Any:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        ends, tries = loop.time() + self.seconds, 0
        while True:
            try:
                # a connection that was lost without a word must leave time for another one
                async with asyncio.timeout_at(min(ends, loop.time() + self.seconds / 3)):
                    return await self._try(what, words, writes=writes, start=start)
            except StoreUnavailable:
                raise  # made, but not acknowledged; it is an OSError, too
            except FAULTS as error:
                self._judge(error, doubt, late=loop.time() >= ends - _NAPS_SECONDS[1])
            nap = min(random.uniform(*_NAPS_SECONDS) * 2**tries, _LONGEST_NAP_SECONDS)  # noqa: S311 - a nap
            tries += 1
            await asyncio.sleep(min(nap, max(ends - loop.time(), 0) / 2))

    def _judge(self, error: BaseException, doubt: Doubt, *, late: bool) -> None:
        """Return to try again.

        Raises:
            StoreUnavailable: trying again is of no use, or there is no time left.
            StoreError: the script failed.
        """
        self.faults += 1
        url = self.connected.url
        passing = isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS)
        if isinstance(error, _REFUSED) or not passing:
            scripted = isinstance(error, ResponseError) and "script" in str(error).lower()
            if scripted and "user_script" in str(error):
                message = f"a step of the store failed in Redis at {url}: {error}"
                raise StoreError(message) from error
            raise StoreUnavailable(told(error, url)) from error
        if not isinstance(error, ResponseError):
            doubt.possible = True
        if late:
            unknown = (
                "; whether the step was made is unknown, so look, or repeat it" if doubt.possible else ""
            )
            message = f"{told(error, url)}; tried for {self.seconds:g} s{unknown}"
            raise StoreUnavailable(message) from error

    async def _try(self, what: Script, words: Words, *, writes: bool, start: bool) -> Any:  # noqa: ANN401
        now = "" if self._clock is None else as_millis(self._clock.now()) * 1000
        rest = (1, self.prefix, now, *words)
        answer = await self._send(("EVALSHA", what.sha, *rest), writes=writes, start=start)
        if isinstance(answer, NoScriptError):
            answer = await self._send(("EVAL", what.text, *rest), writes=writes, start=start)
        if isinstance(answer, ResponseError):
            raise answer
        return answer

    async def _send(self, command: Command, *, writes: bool, start: bool) -> Any:  # noqa: ANN401 - an answer
        if writes:
            (answer,) = await self.durability.send(self.prefix, [command], start=start)
        else:
            (answer,) = await self.connected.send(self.prefix, [command])
        return answer
