"""The settings of the SQL stores."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from attrs import field, frozen

from coatcheck.clock import Clock
from coatcheck.errors import ConfigurationError

__all__ = ["SqlSettings"]

_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


@frozen(kw_only=True)
class SqlSettings:
    """How a SQL store works. A URL's query string and keywords of `create` are the same settings."""

    table_prefix: str = "coatcheck_"
    """What the names of all tables begin with; a letter or underscore, then letters, digits, underscores."""
    timeout: timedelta = timedelta(seconds=30)
    """How long a call may take, waiting for other processes' locks included, before `StoreUnavailable`."""
    poll_interval: timedelta = timedelta(milliseconds=20)
    """How often `wait` looks whether another process has changed something; this process's changes wake it at once."""
    synchronous: Literal["normal", "full"] = "full"
    """SQLite's. With "full", nothing acknowledged is lost, as far as the disk keeps its word; each commit costs an
    fsync, which steps that wait together share. With "normal", a power loss or a crash of the host can lose the
    last committed steps, never the database, and so bring a task back to before it was submitted; a crash of
    processes loses nothing."""
    clock: Clock | None = field(default=None, repr=False)
    """What tells the time; None is the host's clock. SQLite has no server that could tell it."""

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot work."""
        if not _PREFIX.fullmatch(self.table_prefix):
            message = (
                f"table_prefix begins with a letter or underscore and goes on with letters, digits and "
                f"underscores, 31 at most; not {self.table_prefix!r}"
            )
            raise ConfigurationError(message)
        if self.timeout <= timedelta() or self.poll_interval <= timedelta():
            message = "timeout and poll_interval must be positive"
            raise ConfigurationError(message)
        if self.synchronous not in {"normal", "full"}:
            message = f"synchronous is 'normal' or 'full', not {self.synchronous!r}"
            raise ConfigurationError(message)
