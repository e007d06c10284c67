"""Where a store's steps run: in threads of its own for a file, on its connections to a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from coatcheck.store import Added, Capability
from coatcheck.task import TaskDraft
from coatcheck_store_sql.adding import add
from coatcheck_store_sql.inserts import ParamStyle, Written
from coatcheck_store_sql.statements import Statements
from coatcheck_store_sql.step import Step

__all__ = ["Room"]

T = TypeVar("T")


class Room(ABC):
    """One database, opened and closed, in which steps run."""

    url: str
    """Without a password."""
    sql: Statements
    """What its steps say."""

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """What the store promises in it (S15)."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and see that the tables are there."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was asked for and close the connections."""

    @abstractmethod
    def leave(self) -> None:
        """Forget what belongs to the process that this one was forked from."""

    @abstractmethod
    async def setup(self) -> None:
        """Create or upgrade the tables."""

    @abstractmethod
    async def write(self, work: Callable[[Step], T], *, shared: bool = True, repeatable: bool = True) -> T:
        """Do `work` as one atomic step.

        Args:
            work: the step; may be called again if the transaction has to be repeated.
            shared: the step holds every `Guard` together with others; not if it may want one alone.
            repeatable: doing it twice is as good as once, so that it is repeated when its outcome is unknown.
        """

    async def add(self, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add tasks in a step of their own."""
        return await self.write(lambda step: add(step, drafts))

    @abstractmethod
    async def read(self, work: Callable[[Step], T], *, brief: bool = False) -> T:
        """Do `work` on a snapshot of the database."""

    @abstractmethod
    def join(self, transaction: object, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add tasks in a synchronous session's or connection's transaction, in this thread."""

    @abstractmethod
    def insert_statements(self, drafts: Sequence[TaskDraft], paramstyle: ParamStyle | None) -> Written:
        """Return SQL that adds tasks, for a cursor of the caller's."""

    @abstractmethod
    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work; return whether there may be (S12)."""
