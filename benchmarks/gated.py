"""Limits for benchmarks: a concurrency and a rate for all tasks, and a concurrency for each tenant."""

from __future__ import annotations

from datetime import datetime, timedelta

from coatcheck import AdmissionPolicy, Admit, Gates, Rate
from coatcheck.store import Store
from coatcheck.task import Task, TaskDraft

__all__ = ["Gated", "set_limits"]

FOR_ALL = 1_000
EACH_TENANT = 50
RATE = Rate(1_000_000, timedelta(seconds=1))


class Gated(AdmissionPolicy):
    """One gate for all, and one for each tenant."""

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name the gates."""
        return Gates(submit=["all", f"tenant-{draft.route.tenant_id}"])

    async def admit(self, task: Task, now: datetime) -> Admit:
        """Let everybody pass."""
        return Admit()


async def set_limits(store: Store, tenants: int) -> None:
    """Limit them all, far above what they need."""
    await store.set_gate("all", concurrency=FOR_ALL, rate=RATE)
    for tenant in range(tenants):
        await store.set_gate(f"tenant-{tenant}", concurrency=EACH_TENANT)
