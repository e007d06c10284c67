"""Transactions of a caller's own, for `add` to join."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from coatcheck.store import Store

__all__ = ["transaction"]


@asynccontextmanager
async def transaction(store: Store) -> AsyncIterator[object]:
    """Open a transaction on a connection of the caller's own, to the file of a SQL store."""
    engine = create_async_engine(store.url.replace("sqlite:", "sqlite+aiosqlite:"), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()
