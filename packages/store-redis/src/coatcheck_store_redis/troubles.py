"""What an error of Redis means for people: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AuthenticationError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

__all__ = ["FAULTS", "told"]

FAULTS = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What is raised when a server cannot be reached, or fails."""


def _is(*kinds: type[BaseException]) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kinds)


def _says(*words: str) -> Callable[[BaseException], bool]:
    return lambda error: any(word in str(error).lower() for word in words)


def _moved(error: BaseException) -> bool:
    return isinstance(error, MovedError) or str(error).startswith(
        "MOVED "
    )  # as old versions of redis-py have it


_MEANINGS: tuple[tuple[Callable[[BaseException], bool], str], ...] = (
    (
        _is(MasterNotFoundError),
        "no Sentinel of {url} knows a master that is up under that name; see SENTINEL MASTERS for names",
    ),
    (_is(AuthenticationError), "Redis at {url} does not accept the user and password of the URL"),
    (
        _says("wrongpass", "noauth", "without any password"),
        "Redis at {url} does not accept the password of the URL",
    ),
    (
        _is(NoPermissionError),
        "the user of the URL may not do what the store needs at {url}; grant it with ACL SETUSER",
    ),
    (_moved, "Redis at {url} is a node of a Cluster; write redis+cluster://"),
    (
        _says("cluster mode is not enabled", "cluster support disabled"),
        "Redis at {url} is no node of a Cluster; write redis:// for a single server",
    ),
    (_is(RedisClusterException), "no node of the Cluster {url} can be reached"),
    (
        _is(ReadOnlyError),
        "Redis at {url} is a replica and takes no writes; name its master, or its Sentinels in redis+sentinel://",
    ),
    (_is(OutOfMemoryError), "Redis at {url} has no memory left; raise maxmemory, or purge finished tasks"),
    (_is(RedisTimeoutError, TimeoutError), "Redis at {url} did not answer in time"),
    (_is(RedisConnectionError, OSError), "Redis at {url} cannot be reached"),
    (
        _says("unknown command"),
        "what answers at {url} lacks a command that the store needs; Sentinels are written redis+sentinel://",
    ),
)
"""The first that fits counts."""


def told(error: BaseException, url: str) -> str:
    """Return what an error from the server at `url` says to people; `url` is shown, so it holds no password."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    meaning = next((meaning for fits, meaning in _MEANINGS if fits(error)), "Redis at {url} failed")
    return f"{meaning.replace('{url}', url)} ({said})"
