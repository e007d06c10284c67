"""What a crash or a failover can lose, as far as servers tell; and steps that wait until it cannot be lost.

``docs/redis-durability.md`` is the long version. In short: a server answers before its disk or its replicas have a
step, unless it is told to wait. What they lack is lost when another server takes over or the host crashes, and a task
comes back in an older state: a started submission as one that never was, which is then made a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from attrs import frozen
from redis.exceptions import ResponseError

from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck.task import millis
from coatcheck_store_redis.clients import Command, Connected
from coatcheck_store_redis.survey import Found, survey

__all__ = ["Durability", "DurabilitySettings", "objections", "shortcomings", "warnings_of"]

_LOG = logging.getLogger("coatcheck_store_redis")
_OLDEST = (6, 2)
_KNOWS_WAITAOF = (7, 2)
_DOCS = "see docs/redis-durability.md"
_TWICE = "a task can come back in an older state, and a submission that was started be made a second time"


@frozen(kw_only=True)
class DurabilitySettings:
    """What steps wait for, and what is accepted of a server."""

    acknowledge: Literal["none", "start", "all"] = "none"
    """Which steps wait, after the server has made them, until replicas or disks have them: none; those right before
    a provider is called, so that no failover leads to a second creating request; or all that write."""
    ack_replicas: int = 0
    """How many replicas must have a step that waits."""
    ack_disk: bool = False
    """Whether the disks of the master and of these replicas must have it (``WAITAOF``: Redis 7.2, Valkey)."""
    ack_timeout: timedelta = timedelta(seconds=2)
    """How long a step waits before it fails with `StoreUnavailable`; it may have been made."""
    survives_failover: bool = False
    """Whether the store promises that nothing acknowledged is lost in a failover or a crash of a host (S15). Opening
    it is refused where the servers are seen not to keep that."""
    allow_eviction: bool = False
    """Whether a server may be used that throws data away when its memory is full."""

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.acknowledge not in {"none", "start", "all"}:
            message = f"acknowledge is 'none', 'start' or 'all', not {self.acknowledge!r}"
            raise ConfigurationError(message)
        if self.ack_replicas < 0:
            message = f"ack_replicas is a number of replicas, not {self.ack_replicas}"
            raise ConfigurationError(message)
        if (self.acknowledge == "none") == bool(self.ack_replicas or self.ack_disk):
            message = (
                "acknowledge says which steps wait, ack_replicas and ack_disk what they wait for: give both"
            )
            raise ConfigurationError(message)
        if self.ack_timeout < timedelta(milliseconds=1):
            message = f"ack_timeout is at least a millisecond, not {self.ack_timeout}"
            raise ConfigurationError(message)


class Durability:
    """Sends steps so that they are as safe as the settings demand."""

    def __init__(self, settings: DurabilitySettings, connected: Connected, fence: str) -> None:
        """Use `fence`, a key in the same slot as all others, for a write that comes after a step's."""
        self._settings = settings
        self._connected = connected
        self._fence = fence
        self._said: set[str] = set()

    async def meet(self) -> Found:
        """Look at the server before it is used, and log, once, what may be lost.

        Raises:
            ConfigurationError: it cannot be used, or does not keep what the settings promise.
            RedisError: it cannot be reached.
        """
        found = await survey(self._connected, self._fence)
        for objection in objections(found, self._settings, self._connected):
            raise ConfigurationError(objection)
        for warning in warnings_of(found, self._settings):
            if warning not in self._said:
                self._said.add(warning)
                _LOG.warning("%s: %s", self._connected.url, warning)
        return found

    async def send(self, key: str, commands: Sequence[Command], *, start: bool = False) -> list[Any]:
        """Send the commands of a step that writes, as `Connected.send` does, and wait as the settings say.

        Args:
            key: a key of the step.
            commands: what the step consists of.
            start: it is the one right before providers are called.

        Raises:
            StoreUnavailable: the server has made the step, but not enough others have it within `ack_timeout`. It may
                be lost, so nothing may be built on it; it may also last, so look, or repeat it.
        """
        wait = self._waiting(start=start)
        answers = await self._connected.send(key, [*commands, *wait])
        if wait:
            self._check(answers[-1])
        return answers[: len(commands)]

    def _waiting(self, *, start: bool) -> list[Command]:
        settings = self._settings
        if settings.acknowledge == "none" or (settings.acknowledge == "start" and not start):
            return []
        # WAIT counts what this connection has written. A repeated step may write nothing, because an earlier one, on a
        # connection that was lost, has: the fence is written after it, and who has the fence has all before it
        fence: Command = ("SET", self._fence, "1")
        patience = millis(settings.ack_timeout)
        if settings.ack_disk:
            return [fence, ("WAITAOF", 1, settings.ack_replicas, patience)]
        return [fence, ("WAIT", settings.ack_replicas, patience)]

    def _check(self, answer: Any) -> None:  # noqa: ANN401 - a server's answer
        settings = self._settings
        if isinstance(answer, ResponseError):
            message = f"{self._connected.url} made the step, but did not wait for others to have it: {answer}"
            raise StoreUnavailable(message) from answer
        on_disk, replicas = answer if isinstance(answer, list) else (1, answer)
        lacking = []
        if not on_disk:
            lacking.append("the server's own disk")
        if replicas < settings.ack_replicas:
            where = "the disks of " if settings.ack_disk else ""
            lacking.append(f"{where}{settings.ack_replicas - replicas} of {settings.ack_replicas} replicas")
        if lacking:
            message = (
                f"{self._connected.url} made the step, but {' and '.join(lacking)} did not have it within "
                f"{settings.ack_timeout.total_seconds():g} s (ack_timeout); see that its replicas run and keep up"
            )
            raise StoreUnavailable(message)


def objections(found: Found, settings: DurabilitySettings, connected: Connected) -> list[str]:
    """Return why a server cannot be used."""
    url = connected.url
    if found.version < _OLDEST:
        version = ".".join(map(str, found.version))
        return [f"{url} is Redis {version}; the store needs 6.2 or later, or Valkey"]
    wrong = []
    if found.policy not in {None, "noeviction"} and not settings.allow_eviction:
        wrong.append(
            f"{url} has maxmemory-policy {found.policy!r}, so it throws tasks away when its memory is full: set "
            "`maxmemory-policy noeviction`, or use another server for caches; allow_eviction=True takes the risk"
        )
    if settings.ack_disk and found.version < _KNOWS_WAITAOF:
        wrong.append(
            f"ack_disk needs WAITAOF, which Redis has from 7.2 on; {url} is {'.'.join(map(str, found.version))}: "
            "set `appendfsync always` there instead"
        )
    if settings.ack_disk and found.aof is False:
        wrong.append(f"ack_disk waits for the append-only file, and {url} has none: set `appendonly yes`")
    if settings.survives_failover and found.refused is None:
        short = shortcomings(found, settings)
        if short:
            wrong.append(f"survives_failover cannot be promised of {url}: {'; '.join(short)} ({_DOCS})")
    return wrong


def shortcomings(found: Found, settings: DurabilitySettings) -> list[str]:
    """Return why an acknowledged step may be lost in a failover or a crash of a host; nothing if it cannot.

    A single fault is meant. Only what all replicas have is safe: which one is promoted is not known beforehand, and
    `WAIT` for some of them does not make it one of those.
    """
    short = []
    waits = settings.acknowledge == "all"
    if not found.aof:
        short.append("a host that restarts has lost what came after its last snapshot: set `appendonly yes`")
    elif found.fsync != "always" and not (waits and settings.ack_disk):
        short.append(
            f"the disk is written with `appendfsync {found.fsync or 'everysec'}`, after the answer: set "
            "`appendfsync always`, or acknowledge='all' with ack_disk=True"
        )
    if found.replicas and not (waits and settings.ack_replicas >= found.replicas):
        short.append(
            f"any of {found.replicas} replicas may take over, and steps wait for "
            f"{settings.ack_replicas if waits else 0}: set acknowledge='all' with ack_replicas={found.replicas}"
        )
    return short


def warnings_of(found: Found, settings: DurabilitySettings) -> list[str]:
    """Return what may be lost with this server, and what to do about it."""
    warnings = []
    if found.policy not in {None, "noeviction"}:
        warnings.append(
            f"maxmemory-policy is {found.policy!r}: tasks are thrown away when the memory is full"
        )
    if found.refused is not None:
        warnings.append(
            f"the server does not show its configuration ({found.refused}): see for yourself that it has "
            f"maxmemory-policy noeviction, appendonly yes, and appendfsync as you need it ({_DOCS})"
        )
    lost = _lost_in_crash(found, settings)
    if lost is not None:
        warnings.append(f"{lost}; then {_TWICE} ({_DOCS})")
    if settings.ack_replicas > found.replicas:
        warnings.append(
            f"steps wait for {settings.ack_replicas} replicas, and the server knows of {found.replicas}: until "
            "there are more, all of them fail; start replicas, or lower ack_replicas"
        )
    protected = settings.acknowledge != "none" and settings.ack_replicas >= found.replicas
    if found.replicas and not protected:
        warnings.append(
            f"a failover to one of {found.replicas} replicas loses the last steps, which it does not have yet; then "
            f"{_TWICE}: set acknowledge='start' and ack_replicas={found.replicas} against that ({_DOCS})"
        )
    return warnings


def _lost_in_crash(found: Found, settings: DurabilitySettings) -> str | None:
    if found.aof is None or (settings.acknowledge != "none" and settings.ack_disk):
        return None
    if not found.aof and found.saves:
        return (
            "there is no append-only file: a crash or restart loses all steps since the last snapshot; set "
            "`appendonly yes`"
        )
    if not found.aof:
        return "nothing is written to disk: a crash or restart loses all tasks; set `appendonly yes`"
    if found.fsync == "everysec":
        return (
            "appendfsync is 'everysec': a crash of the host, or of the server while its disk is busy, loses the steps "
            "of the last second or two; set `appendfsync always`, or acknowledge='start' with ack_disk=True"
        )
    if found.fsync == "no":
        return (
            "appendfsync is 'no': a crash of the host loses the steps of the last half minute or so; set "
            "`appendfsync always`"
        )
    return None
