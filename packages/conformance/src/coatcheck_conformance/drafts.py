"""Tasks for rules to try a store with: short to write, and ordinary in all that a rule does not name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from coatcheck.codec import digest
from coatcheck.task import JSON, Identity, Rank, Route, TaskDraft, new_task_id

__all__ = ["HANDLER", "OTHER", "make_draft", "make_drafts"]

HANDLER = "kit:one"
"""The handler of a draft that names none."""
OTHER = "kit:two"
"""Another handler."""

_HOUR = timedelta(hours=1)


def make_draft(  # noqa: PLR0913 - one keyword for each thing that a rule may want to say
    *,
    id: str | None = None,  # noqa: A002 - a task has an id
    handler: str = HANDLER,
    params: JSON = None,
    gates: Sequence[str] = (),
    query_gate: str | None = None,
    priority: int = 0,
    rank: Rank | None = None,
    delay: timedelta = timedelta(),
    not_before: datetime | None = None,
    timeout: timedelta = _HOUR,
    tenant: str | None = None,
    account: str | None = None,
    dedup_key: str | None = None,
    idempotency_key: str | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> TaskDraft:
    """Return a draft as the manager would make it; its rank is that of its priority unless `rank` is given."""
    task_id = id or new_task_id()
    body: JSON = {"url": "https://files.example.com/report.pdf"} if params is None else params
    return TaskDraft(
        id=task_id,
        route=Route(
            handler_key=handler,
            provider_key=handler,
            account_id=account,
            tenant_id=tenant,
            gates=tuple(sorted(gates)),
            query_gate=query_gate,
        ),
        identity=Identity(
            params_digest=digest(body), idempotency_key=idempotency_key or task_id, dedup_key=dedup_key
        ),
        params=body,
        tracking_timeout=timeout,
        priority=priority,
        rank=rank or Rank(band=-priority),
        delay=delay,
        not_before=not_before,
        metadata=dict(metadata or {}),
    )


def make_drafts(
    count: int, *, gates: Sequence[str] = (), priority: int = 0, handler: str = HANDLER
) -> list[TaskDraft]:
    """Return `count` drafts that differ in their ids only, ascending."""
    return [make_draft(gates=gates, priority=priority, handler=handler) for _ in range(count)]
