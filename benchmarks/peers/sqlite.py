"""coatcheck on SQLite."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.peers.contender import Contender
from coatcheck.store import Store
from coatcheck_store_sql import create


class Peer(Contender):
    """coatcheck on SQLite."""

    store = "SQLite"

    async def make_store(self) -> Store:
        """Make it, empty."""
        return create(f"sqlite:///{Path(tempfile.mkdtemp()) / 'bench.db'}")
