"""Callbacks that came early: nudges for ids that no task has yet, remembered for a while, in bounded number."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from coatcheck.locked.ordered import Records
from coatcheck.store import MAX_NUDGES, NUDGE_MEMORY
from coatcheck.task import as_millis, from_millis

__all__ = ["Nudges"]


class Nudges:
    """What is remembered of nudges, inside one section."""

    def __init__(self, records: Records, now: datetime) -> None:
        self._records = records
        self._now = now

    def remember(self, handler_key: str, external_task_id: str) -> None:
        """Remember one; what is too old goes, and the oldest if there are too many."""
        records = self._records
        self.forget(handler_key, external_task_id)
        records.put(("nudge", handler_key, external_task_id), as_millis(self._now))
        records.mark(("nudged", self._now, handler_key, external_task_id))
        count = self._count(1)
        expired = records.scan(("nudged",), ("nudged", self._now - NUDGE_MEMORY), 100)
        oldest = records.under(("nudged",), 1) if count > MAX_NUDGES else ()
        for old in expired or oldest:
            self.forget(str(old[2]), str(old[3]))

    def forget(self, handler_key: str, external_task_id: str) -> bool:
        """Forget one, and return whether it was remembered and is young enough to count."""
        key = ("nudge", handler_key, external_task_id)
        known = cast("int | None", self._records.get(key))
        if known is None:
            return False
        at = from_millis(known)
        self._records.delete(key)
        self._records.delete(("nudged", at, handler_key, external_task_id))
        self._count(-1)
        return self._now - at <= NUDGE_MEMORY

    def _count(self, change: int) -> int:
        count = (cast("int | None", self._records.get(("nudges",))) or 0) + change
        self._records.put(("nudges",), count)
        return count
