"""The application's own table."""

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


class Base(DeclarativeBase):
    """What all tables share."""


class Document(Base):
    """A document of somebody's, and the task that reads it."""

    __tablename__ = "document"

    task_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(index=True)
    title: Mapped[str]


def make_engine(database_url: str) -> AsyncEngine:
    """Return an engine on the database of a store's URL."""
    url = make_url(database_url)
    return create_async_engine(url.set(drivername=_DRIVERS.get(url.drivername, url.drivername)))


async def create_tables(engine: AsyncEngine) -> None:
    """Create the table if it is not there; an application that lasts has migrations."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
