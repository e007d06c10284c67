"""The settings of the Redis store."""

from __future__ import annotations

import re
from datetime import timedelta

from attrs import field, frozen

from coatcheck.clock import Clock
from coatcheck.errors import ConfigurationError
from coatcheck_store_redis.durability import DurabilitySettings

__all__ = ["RedisSettings"]

_NAMESPACE = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")


@frozen(kw_only=True)
class RedisSettings(DurabilitySettings):
    """How a Redis store works. A URL's query string and keywords of `create` are the same settings."""

    namespace: str = "coatcheck"
    """What the names of all keys begin with, in braces: stores of several names share a database, and in a Cluster all
    keys of a store are on one node. Letters, digits and ``_.:/-``, 100 at most."""
    timeout: timedelta = timedelta(seconds=30)
    """How long a call may take, with all that it tries again, before `StoreUnavailable`."""
    poll_interval: timedelta = timedelta(seconds=1)
    """How often `wait` looks for work beside being told of it; so long a lost notification costs at most."""
    keep_finished: timedelta | None = None
    """How long tasks that have ended are kept, unless `purge` deletes them earlier; SUBMIT_UNKNOWN stays until it is
    resolved or purged by name. None: until they are purged."""
    clock: Clock | None = field(default=None, repr=False)
    """What tells the time; None is the server's clock. Any other is for tests."""

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__attrs_post_init__()
        if not _NAMESPACE.fullmatch(self.namespace):
            message = f"namespace has 1 to 100 letters, digits and any of _.:/- in it, not {self.namespace!r}"
            raise ConfigurationError(message)
        if self.timeout <= timedelta() or self.poll_interval <= timedelta():
            message = "timeout and poll_interval must be positive"
            raise ConfigurationError(message)
        if self.keep_finished is not None and self.keep_finished < timedelta():
            message = f"keep_finished is a time to keep tasks for, not {self.keep_finished!r}"
            raise ConfigurationError(message)
