"""Stores that break one promise each."""

from __future__ import annotations

from coatcheck.gates import Rate
from coatcheck.memory import MemoryStore


class Deaf(MemoryStore):
    """Hears no callback."""

    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """Do nothing."""
        return 0


class Generous(MemoryStore):
    """Lets one more in than it may."""

    async def set_gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        only_if_new: bool = False,
        who: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Set a limit that is too high."""
        limit = None if concurrency is None else concurrency + 1
        why = {"who": who, "reason": reason}
        await super().set_gate(name, concurrency=limit, rate=rate, only_if_new=only_if_new, **why)


class Flattering(MemoryStore):
    """Says yes to every cancellation."""

    async def request_cancellation(self, task_id: str) -> bool:
        """Promise what may be too late."""
        await super().request_cancellation(task_id)
        return True
