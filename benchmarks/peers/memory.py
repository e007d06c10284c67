"""coatcheck on memory."""

from __future__ import annotations

from benchmarks.peers.contender import Contender
from coatcheck import create_store
from coatcheck.store import Store


class Peer(Contender):
    """coatcheck on memory."""

    store = "memory"

    async def make_store(self) -> Store:
        """Make it, empty."""
        return create_store("memory://")
