"""The settings of the SQL stores."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from attrs import field, frozen

from coatcheck.clock import Clock
from coatcheck.errors import ConfigurationError

__all__ = ["SqlSettings"]

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


@frozen(kw_only=True)
class SqlSettings:
    """How a SQL store works. A URL's query string and keywords of `create` are the same settings."""

    table_prefix: str = "coatcheck_"
    """What the names of all tables begin with; a letter or underscore, then letters, digits, underscores."""
    schema: str | None = None
    """PostgreSQL's schema in which the tables are; None is the first of the search path."""
    timeout: timedelta = timedelta(seconds=30)
    """How long a call may take, waiting for other processes' locks included, before `StoreUnavailable`."""
    poll_interval: timedelta | None = None
    """How often `wait` looks whether another process has changed something; this process's changes wake it at once.
    None: every 20 ms in a file; every second on PostgreSQL, where changes are announced; else every 50 ms."""
    pool_size: int = 5
    """How many connections to a server a process works with, at most; one more listens for announcements."""
    sslmode: Literal["disable", "require", "verify-ca", "verify-full"] | None = None
    """How connections to a server are encrypted, in libpq's words: not at all, without a look at the server's
    certificate, with one, and with one at its name, too. None is what the driver does by itself."""
    sslrootcert: str | None = None
    """The file with the certificates of the authorities to trust; None: those of the system."""
    survives_failover: bool = False
    """Whether the server replicates synchronously, so that what it has acknowledged is never lost when another takes
    its place; then the store promises it, too (S15)."""
    synchronous: Literal["normal", "full"] = "full"
    """SQLite's. With "full", nothing acknowledged is lost, as far as the disk keeps its word; each commit costs an
    fsync, which steps that wait together share. With "normal", a power loss or a crash of the host can lose the
    last committed steps, never the database, and so bring a task back to before it was submitted; a crash of
    processes loses nothing."""
    clock: Clock | None = field(default=None, repr=False)
    """What tells the time; None is the server's clock, for a file the host's. Any other is for tests."""

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot work."""
        if not _PREFIX.fullmatch(self.table_prefix):
            message = (
                f"table_prefix begins with a letter or underscore and goes on with letters, digits and "
                f"underscores, 31 at most; not {self.table_prefix!r}"
            )
            raise ConfigurationError(message)
        if self.schema is not None and not _SCHEMA.fullmatch(self.schema):
            message = f"schema is a name of letters, digits and underscores, not {self.schema!r}"
            raise ConfigurationError(message)
        if self.pool_size < 1:
            message = f"pool_size is at least 1, not {self.pool_size}"
            raise ConfigurationError(message)
        if self.timeout <= timedelta() or (
            self.poll_interval is not None and self.poll_interval <= timedelta()
        ):
            message = "timeout and poll_interval must be positive"
            raise ConfigurationError(message)
        if self.synchronous not in {"normal", "full"}:
            message = f"synchronous is 'normal' or 'full', not {self.synchronous!r}"
            raise ConfigurationError(message)
        if self.sslmode not in {None, "disable", "require", "verify-ca", "verify-full"}:
            message = f"sslmode is 'disable', 'require', 'verify-ca' or 'verify-full', not {self.sslmode!r}"
            raise ConfigurationError(message)
        if self.sslrootcert is not None and self.sslmode not in {"verify-ca", "verify-full"}:
            message = "sslrootcert is looked at only with sslmode 'verify-ca' or 'verify-full'"
            raise ConfigurationError(message)
