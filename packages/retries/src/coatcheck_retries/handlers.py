"""A policy for each handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from attrs import field, frozen

from coatcheck import ExponentialRetry, QueryResult, RetryPolicy, SubmitDeferred, Task, TaskChange

__all__ = ["PerHandlerRetry", "per_handler"]


def _frozen_table(policies: Mapping[str, RetryPolicy]) -> Mapping[str, RetryPolicy]:
    return MappingProxyType(dict(policies))


@frozen(kw_only=True)
class PerHandlerRetry(RetryPolicy):
    """Asks the policy of the task's handler. A handler that brings its own policy goes before all of these."""

    policies: Mapping[str, RetryPolicy] = field(factory=dict, converter=_frozen_table)
    """The policy of each handler, by its key."""
    otherwise: RetryPolicy = field(factory=ExponentialRetry)
    """The policy of those that are not named."""

    def next_submit_delay(self, task: Task, error: SubmitDeferred) -> timedelta:
        """Ask the policy of this handler."""
        return self._of(task).next_submit_delay(task, error)

    def next_query_delay(self, task: Task, result: QueryResult | None) -> timedelta:
        """Ask the policy of this handler."""
        return self._of(task).next_query_delay(task, result)

    def next_error_delay(self, task: Task, error: Exception) -> timedelta | None:
        """Ask the policy of this handler."""
        return self._of(task).next_error_delay(task, error)

    def coatcheck_tasks_changed(self, changes: Sequence[TaskChange]) -> None:
        """Tell each policy that learns, once, what has become of the tasks of its handlers."""
        told: dict[int, tuple[RetryPolicy, list[TaskChange]]] = {}
        for change in changes:
            policy = self._of(change.after)
            told.setdefault(id(policy), (policy, []))[1].append(change)
        for policy, its in told.values():
            learn = getattr(policy, "coatcheck_tasks_changed", None)
            if learn is not None:
                learn(its)

    def _of(self, task: Task) -> RetryPolicy:
        return self.policies.get(task.route.handler_key, self.otherwise)


def per_handler(
    policies: Mapping[str, RetryPolicy], *, otherwise: RetryPolicy | None = None
) -> PerHandlerRetry:
    """Return a policy that asks the one of the task's handler; `otherwise` is for those that are not named."""
    return PerHandlerRetry(policies=policies, otherwise=otherwise or ExponentialRetry())
