"""coatcheck on Redis."""

from __future__ import annotations

import os

from common import fresh_redis  # type: ignore[import-not-found]  # the harness's

from benchmarks.peers.contender import Contender
from coatcheck.store import Store
from coatcheck_store_redis import create


class Peer(Contender):
    """coatcheck on Redis."""

    store = "Redis"

    async def make_store(self) -> Store:
        """Make it, empty."""
        await fresh_redis()
        return create(os.environ["BENCH_REDIS"])
