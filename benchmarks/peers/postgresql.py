"""coatcheck on PostgreSQL."""

from __future__ import annotations

import os

from common import fresh_pg  # type: ignore[import-not-found]  # the harness's

from benchmarks.peers.contender import Contender
from coatcheck.store import Store
from coatcheck_store_sql import create


class Peer(Contender):
    """coatcheck on PostgreSQL."""

    store = "PostgreSQL"

    async def make_store(self) -> Store:
        """Make it, empty."""
        await fresh_pg()
        store = create(os.environ["BENCH_PG"])
        await store.setup()
        return store
