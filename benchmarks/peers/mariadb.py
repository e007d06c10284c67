"""coatcheck on MariaDB."""

from __future__ import annotations

import os

from benchmarks.peers.contender import Contender
from coatcheck.store import Store
from coatcheck_store_sql import create


class Peer(Contender):
    """coatcheck on MariaDB."""

    store = "MariaDB"

    async def make_store(self) -> Store:
        """Make it, empty."""
        store = create(os.environ["BENCH_MYSQL"], table_prefix=f"bench_{os.getpid()}_")
        await store.setup()
        return store
