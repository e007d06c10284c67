"""The manager: what application code calls. It never calls a provider."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Never, TypeVar, cast

from attrs import field, fields, frozen

from coatcheck import codec
from coatcheck.errors import (
    CallbackRejected,
    ConfigurationError,
    InvalidParams,
    InvalidTransition,
    ParamsMismatch,
    TaskNotFound,
    TaskUnsuccessful,
    WaitTimeout,
)
from coatcheck.events import Abandon, Adopt, Extend, Resolution, Resubmit
from coatcheck.evolving import constructor, evolve
from coatcheck.gates import AdmissionPolicy, Gate, GateRecord, Gates, GateUsage, Rate, TaskChange
from coatcheck.handler import AnyHandler, Callback, CallbackRequest
from coatcheck.loops import HandlerLoops
from coatcheck.persistable import from_json, to_json
from coatcheck.registry import Registry
from coatcheck.selector import Selection, Selector
from coatcheck.standing import StoreStanding
from coatcheck.store import Added, Filter, Stats, Store
from coatcheck.tallies import Tally
from coatcheck.task import JSON, Identity, QueryParams, Rank, Route, Status, Task, TaskDraft, new_task_id

__all__ = ["Manager", "Submission", "SubmitOptions", "rank_of", "read_result"]

logger = logging.getLogger("coatcheck.manager")
R = TypeVar("R")

_new_identity, _new_route = constructor(Identity), constructor(Route)

CALLBACK_TIMEOUT_SECONDS = 10.0
MAX_EXTERNAL_ID_CHARACTERS = 1024
"""What a callback names and is longer is no job's id."""
FIRST_LOOK = timedelta(milliseconds=20)
"""How soon `wait` looks again at first; it then looks ever more rarely."""
LAST_LOOK = timedelta(seconds=1)


@frozen(kw_only=True)
class SubmitOptions:
    """What may be said about a submission. Nothing of it is needed."""

    handler_key: str | None = None
    """Use this handler; goes before the selector."""
    provider_key: str | None = None
    """Use a handler of this provider."""
    account_id: str | None = None
    """Use this credential; None is the handler's default account."""
    tenant_id: str | None = None
    """Whose task it is."""
    priority: int = 0
    """Signed 32-bit; higher goes first."""
    delay: timedelta | None = None
    """Submit to the provider no earlier than this from now, by the store's clock."""
    not_before: datetime | None = None
    """Submit to the provider no earlier than this instant; aware."""
    dedup_key: str | None = None
    """A second submission with the same key and tenant gets the first one's task."""
    idempotency_key: str | None = None
    """What a provider that deduplicates is given; the task id if None."""
    metadata: Mapping[str, object] = field(factory=dict)
    """Your own notes; JSON values, no secrets."""

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.delay is not None and self.not_before is not None:
            message = f"give delay or not_before, not both: {self.delay!r} and {self.not_before!r}"
            raise InvalidParams(message)
        for name in (
            "handler_key",
            "provider_key",
            "account_id",
            "tenant_id",
            "dedup_key",
            "idempotency_key",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                message = f"{name} is a non-blank string or None, not {value!r}"
                raise InvalidParams(message)
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            message = f"priority is an integer, not {self.priority!r}"
            raise InvalidParams(message)


_NO_OPTIONS = SubmitOptions()


@frozen(kw_only=True)
class Submission:
    """One of many to submit at once."""

    params: object
    tracking_timeout: timedelta
    options: SubmitOptions = _NO_OPTIONS


def rank_of(priority: int, ageing: timedelta | None) -> Rank:
    """Return the store's two numbers for a priority.

    With `ageing`, one point of priority is worth that much waiting, and nothing starves.
    """
    if ageing is None:
        return Rank(band=-priority)
    return Rank(credit=ageing * priority, mode=f"ageing:{ageing.total_seconds():g}s")


def read_result(task: Task, result_type: type[R]) -> R:
    """Return the result of a snapshot as `result_type`; no I/O.

    Raises:
        TaskUnsuccessful: it has none.
        InvalidParams: the stored result does not fit the type.
    """
    if task.status is not Status.SUCCEEDED:
        raise TaskUnsuccessful(task)
    return from_json(task.result, result_type)


class Manager:
    """Submits, looks up, waits for, cancels and resolves tasks. Made by `App`."""

    def __init__(  # noqa: PLR0913 - the parts that an app puts together, once
        self,
        store: Store,
        registry: Registry,
        loops: HandlerLoops,
        *,
        standing: StoreStanding,
        admission: AdmissionPolicy,
        selector: Selector | None,
        priority_ageing: timedelta | None,
        on_change: Callable[[Sequence[TaskChange]], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._loops = loops
        self._admission = admission
        self._selector = selector
        self._standing = standing
        self._ageing = priority_ageing
        self._on_change = on_change
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._defined: set[Gate] = set()

    # -------------------------------------------------------------- submit

    async def submit(
        self,
        params: object,
        *,
        tracking_timeout: timedelta,
        options: SubmitOptions | None = None,
        transaction: object = None,
    ) -> Task:
        """Save a task and return its snapshot at once; workers do the rest.

        Args:
            params: an instance of the params type of one of the handlers.
            tracking_timeout: positive; covers delay, queueing and provider time.
            options: routing, order, time, keys, metadata.
            transaction: a SQLAlchemy session or connection whose transaction the add joins.

        Raises:
            NoHandler, AmbiguousHandler, ParamsMismatch: no single handler can be found.
            InvalidParams: params, options or metadata cannot be accepted or stored; nothing was written.
            DedupConflict: the dedup key is held by a task with other params.
            StoreUnavailable: whether it was saved is unknown; submit again under a dedup key.
        """
        one = Submission(params=params, tracking_timeout=tracking_timeout, options=options or _NO_OPTIONS)
        return (await self.submit_many([one], transaction=transaction))[0]

    async def submit_many(
        self, submissions: Sequence[Submission], *, transaction: object = None
    ) -> list[Task]:
        """Save several tasks, all or none, in order. Raises like `submit`."""
        drafts = await self._credited([await self._prepare(each) for each in submissions])
        if not drafts:
            return []
        added = await self._store.add(drafts, transaction=transaction)
        if transaction is None:
            self.announce(added)
        return [each.task for each in added]

    def announce(self, added: Sequence[Added]) -> None:
        """Tell the observers of tasks that were added."""
        new = [TaskChange(before=None, after=each.task, event="created") for each in added if each.created]
        if new:
            self._on_change(new)

    async def prepare(self, submission: Submission) -> TaskDraft:
        """Route and check a submission and return what the store would add, without adding it.

        For callers that write the row themselves, in a transaction that is not SQLAlchemy's.
        """
        return (await self._credited([await self._prepare(submission)]))[0]

    async def _prepare(self, submission: Submission) -> TaskDraft:
        if not isinstance(submission, Submission):
            message = f"submit_many takes Submission(params=..., tracking_timeout=...), not {submission!r}"
            raise InvalidParams(message)
        options = submission.options
        params, timeout = submission.params, submission.tracking_timeout
        if not isinstance(timeout, timedelta):
            message = f"tracking_timeout is a timedelta, not {timeout!r}; for example timedelta(minutes=30)"
            raise InvalidParams(message)
        candidates = self._candidates(type(params), options)
        stored = to_json(params, path="params")
        handler = await self._choose(submission, stored, candidates)
        handler.validate(cast("Never", params))  # it was routed by exactly this type
        draft = self._draft(submission, stored, handler)
        return await self._with_gates(draft, self._admission.gates_for(draft))

    def _draft(self, submission: Submission, stored: JSON, handler: AnyHandler) -> TaskDraft:
        """Return the draft of a submission to that handler, without gates."""
        options = submission.options
        metadata = to_json(dict(options.metadata), path="metadata") if options.metadata else {}
        task_id = new_task_id()
        return TaskDraft(
            id=task_id,
            route=_new_route(
                handler_key=handler.key,
                provider_key=handler.provider_key,
                account_id=options.account_id,
                tenant_id=options.tenant_id,
            ),
            identity=_new_identity(
                params_digest=codec.digest(stored),
                idempotency_key=options.idempotency_key or task_id,
                dedup_key=options.dedup_key,
                params_version=handler.params_version,
            ),
            params=stored,
            tracking_timeout=submission.tracking_timeout,
            priority=options.priority,
            rank=rank_of(options.priority, self._ageing),
            delay=options.delay or timedelta(),
            not_before=options.not_before,
            metadata=cast("Mapping[str, JSON]", metadata),
        )

    def _candidates(self, params_type: type, options: SubmitOptions) -> tuple[str, ...]:
        if options.handler_key is not None:
            handler = self._registry.check(options.handler_key, params_type)
            if options.provider_key not in (None, handler.provider_key):
                message = (
                    f"handler {handler.key!r} is of provider {handler.provider_key!r}, "
                    f"not of {options.provider_key!r}, which was asked for too"
                )
                raise ParamsMismatch(message)
            return (handler.key,)
        candidates = self._registry.candidates(params_type)
        if options.provider_key is not None:
            candidates = tuple(
                key for key in candidates if self._registry[key].provider_key == options.provider_key
            )
        if len(candidates) == 1 or not candidates or self._selector is None:
            return (self._registry.only(params_type, candidates),)
        return candidates

    async def _choose(self, submission: Submission, stored: JSON, candidates: tuple[str, ...]) -> AnyHandler:
        if len(candidates) == 1 or self._selector is None:
            return self._registry[candidates[0]]
        options = submission.options
        given = {
            each.name: getattr(options, each.name)
            for each in fields(SubmitOptions)
            if getattr(options, each.name) != each.default and each.name != "metadata"
        }
        snapshot = cast(
            "dict[str, JSON]",
            to_json({**given, "metadata": dict(options.metadata)}, path="options", prove=False),
        )

        def gates_of(key: str) -> Sequence[str | Gate]:
            return self._admission.gates_for(self._draft(submission, stored, self._registry[key])).submit

        selection = Selection(
            params=from_json(stored, type(submission.params)),
            options=MappingProxyType(snapshot),
            candidates=candidates,
            standing=self._standing.of(candidates, gates_of),
        )
        key = await self._selector(selection)
        if key not in candidates:
            message = (
                f"the selector answered {key!r}, which is none of the candidates: {', '.join(candidates)}"
            )
            raise ConfigurationError(message)
        self._standing.sent(key)
        return self._registry[key]

    async def _with_gates(self, draft: TaskDraft, wanted: Gates) -> TaskDraft:
        for gate in (*wanted.submit, *((wanted.query,) if wanted.query is not None else ())):
            if isinstance(gate, Gate) and gate not in self._defined:
                await self._store.set_gate(
                    gate.name,
                    concurrency=gate.concurrency,
                    rate=gate.rate,
                    only_if_new=True,
                    reason="the limits that come with the app",
                )
                self._defined.add(gate)
        names = sorted({gate if isinstance(gate, str) else gate.name for gate in wanted.submit})
        query = wanted.query if wanted.query is None or isinstance(wanted.query, str) else wanted.query.name
        return evolve(draft, route=evolve(draft.route, gates=tuple(names), query_gate=query))

    async def _credited(self, drafts: list[TaskDraft]) -> list[TaskDraft]:
        """Return the drafts with what the admission policy credits them with in the queue."""
        if not drafts or type(self._admission).credits is AdmissionPolicy.credits:
            return drafts
        given = await self._admission.credits(drafts)
        if len(given) != len(drafts) or not all(isinstance(each, timedelta) for each in given):
            message = (
                f"admission policy {self._admission!r} credits each draft with a timedelta, not {given!r}"
            )
            raise ConfigurationError(message)
        return [
            evolve(draft, rank=evolve(draft.rank, credit=draft.rank.credit + credit)) if credit else draft
            for draft, credit in zip(drafts, given, strict=True)
        ]

    # -------------------------------------------------------------- look up, wait

    async def get(self, task_id: str, *, tenant_id: str | None = None) -> Task | None:
        """Return the task's snapshot; None if there is none, or if it is another tenant's."""
        task = await self._store.get(task_id)
        if task is None or (tenant_id is not None and task.route.tenant_id != tenant_id):
            return None
        return task

    async def find(
        self, query: Filter | None = None, *, limit: int = 100, after: str | None = None
    ) -> list[Task]:
        """Return tasks by id, the first `limit` after `after`."""
        return await self._store.find(query or Filter(), limit=limit, after=after)

    async def wait(self, task_id: str, timeout: timedelta, *, tenant_id: str | None = None) -> Task:
        """Return the task's snapshot once it has ended, however it ended.

        Raises:
            WaitTimeout: it has not ended within `timeout`; it goes on.
            TaskNotFound: there is none, or it is another tenant's.
        """
        ends = asyncio.get_running_loop().time() + timeout.total_seconds()
        changed = asyncio.Event()
        self._waiting.setdefault(task_id, set()).add(changed)
        look = FIRST_LOOK
        try:
            while True:
                changed.clear()
                task = await self.get(task_id, tenant_id=tenant_id)
                if task is None:
                    raise TaskNotFound(task_id)
                if task.status.terminal:
                    return task
                left = ends - asyncio.get_running_loop().time()
                if left <= 0:
                    raise WaitTimeout(task, timeout)
                pause = look.total_seconds() * (0.8 + 0.4 * random.random())  # noqa: S311 - spreads callers out
                try:
                    await asyncio.wait_for(changed.wait(), min(left, pause))
                except TimeoutError:
                    look = min(look * 1.5, LAST_LOOK)
        finally:
            waiting = self._waiting[task_id]
            waiting.discard(changed)
            if not waiting:
                del self._waiting[task_id]

    def notice(self, changes: Sequence[TaskChange]) -> None:
        """Wake whoever waits for one of these tasks; called by the app, with what its worker has committed."""
        if not self._waiting:
            return
        for change in changes:
            for waiting in self._waiting.get(change.after.id, ()):
                waiting.set()

    async def result(
        self, task_id: str, result_type: type[R], *, timeout: timedelta, tenant_id: str | None = None
    ) -> R:
        """Wait for the task and return its result as `result_type`.

        Raises:
            TaskUnsuccessful: it ended without one.
            WaitTimeout, TaskNotFound: as `wait`.
        """
        return self.read_result(await self.wait(task_id, timeout, tenant_id=tenant_id), result_type)

    def read_result(self, task: Task, result_type: type[R]) -> R:
        """Return the result of a snapshot as `result_type`; no I/O. Raises like the function `read_result`."""
        return read_result(task, result_type)

    async def stats(self) -> Stats:
        """Return how the store stands."""
        return await self._store.stats()

    # -------------------------------------------------------------- cancel, resolve

    async def cancel(self, task_id: str, *, tenant_id: str | None = None) -> bool:
        """Request cancellation. True only the first time, and only if the task had not ended.

        From then on it ends in nothing but CANCELED; whether the provider could be told is in
        `outcome.remote_cancel`. Another tenant's task is False.
        """
        if tenant_id is not None and await self.get(task_id, tenant_id=tenant_id) is None:
            return False
        accepted = await self._store.request_cancellation(task_id)
        after = await self._store.get(task_id) if accepted else None
        if after is not None:
            self._on_change([TaskChange(before=None, after=after, event="cancellation")])
        return accepted

    async def adopt(
        self,
        task_id: str,
        query_params: QueryParams,
        *,
        tracking_timeout: timedelta | None = None,
        who: str | None = None,
        note: str = "",
    ) -> Task:
        """Say that the provider has the job of a task in doubt under this id; it is tracked from now on."""
        task = await self._doubtful(task_id)
        handler = self._registry.get(task.route.handler_key)
        resolution = Adopt(
            query_params=query_params,
            tracking_timeout=tracking_timeout,
            query_params_version=handler.params_version if handler else 1,
            who=who,
            note=note,
        )
        return await self._resolve(task, resolution)

    async def resubmit(
        self, task_id: str, *, tracking_timeout: timedelta, who: str | None = None, note: str = ""
    ) -> Task:
        """Say that sending a task of unknown outcome again is right; its idempotency key stays."""
        task = await self._doubtful(task_id)
        return await self._resolve(task, Resubmit(tracking_timeout=tracking_timeout, who=who, note=note))

    async def abandon(self, task_id: str, *, who: str | None = None, note: str = "") -> Task:
        """Give a task in doubt up: FAILED."""
        return await self._resolve(await self._doubtful(task_id), Abandon(who=who, note=note))

    async def extend(
        self, task_id: str, *, tracking_timeout: timedelta, who: str | None = None, note: str = ""
    ) -> Task:
        """Grant a timed-out task more time."""
        task = await self._doubtful(task_id)
        return await self._resolve(task, Extend(tracking_timeout=tracking_timeout, who=who, note=note))

    async def _doubtful(self, task_id: str) -> Task:
        task = await self._store.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        if task.status not in (Status.SUBMIT_UNKNOWN, Status.TRACKING_TIMED_OUT):
            message = (
                f"task {task_id} is {task.status}; only SUBMIT_UNKNOWN and TRACKING_TIMED_OUT tasks "
                "can be resolved"
            )
            raise InvalidTransition(message)
        return task

    async def _resolve(self, task: Task, resolution: Resolution) -> Task:
        after = await self._store.resolve(task.id, task.version, resolution)
        name = type(resolution).__name__
        self._on_change([TaskChange(before=task, after=after, event=name)])
        return after

    # -------------------------------------------------------------- gates, callbacks

    async def set_gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        who: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Set a gate's limits across the fleet; None is no limit. Build the name with `coatcheck.gates`."""
        Gate(name=name, concurrency=concurrency, rate=rate)  # refuses what means nothing
        await self._store.set_gate(name, concurrency=concurrency, rate=rate, who=who, reason=reason)

    async def apply_suggested_gates(
        self, *, who: str | None = None, reason: str = "suggested by the handler"
    ) -> list[Gate]:
        """Set the limits that the handlers suggest at gates which have none yet; return these gates.

        They keep to what providers document, for all accounts of a provider together. Limits that somebody has
        set stay, and so does a pause.
        """
        handlers = [self._registry[key] for key in self._registry]
        suggested = {gate.name: gate for handler in handlers for gate in handler.suggested_gates()}
        limited = {
            usage.gate.name
            for usage in await self._store.gates(tuple(suggested))
            if (usage.gate.concurrency, usage.gate.rate) != (None, None)
        }
        new = [gate for name, gate in sorted(suggested.items()) if name not in limited]
        for gate in new:
            await self._store.set_gate(
                gate.name,
                concurrency=gate.concurrency,
                rate=gate.rate,
                only_if_new=True,
                who=who,
                reason=reason,
            )
        return new

    async def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Forget a gate's limits and its pause; its history stays."""
        await self._store.delete_gate(name, who=who, reason=reason)

    async def pause(
        self,
        name: str,
        *,
        reason: str,
        who: str | None = None,
        until: datetime | None = None,
        duration: timedelta | None = None,
    ) -> None:
        """Let a gate grant nothing until then, for `duration`, or until resumed. Pausing twice is fine.

        A pause in force that lasts longer stands; to shorten one, resume first.
        """
        if until is not None and duration is not None:
            message = f"give until or duration, not both: {until!r} and {duration!r}"
            raise InvalidParams(message)
        if until is not None:
            if until.tzinfo is None:
                message = f"until must be an aware datetime, not {until!r}; add tzinfo=UTC"
                raise InvalidParams(message)
            duration = max(until - await self._store.now(), timedelta(milliseconds=1))
        await self._store.pause_gate(name, reason=reason, who=who, duration=duration)

    async def resume(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Let a paused gate grant again. Resuming twice is fine."""
        await self._store.resume_gate(name, who=who, reason=reason)

    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return the defined gates, or those of `names`, with live usage."""
        return await self._store.gates(names)

    async def gate_history(self, name: str) -> list[GateRecord]:
        """Return who changed a gate when, how and why: the latest fifty changes, the oldest first."""
        return await self._store.gate_history(name)

    async def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """Return what admission policies have counted, such as a budget's, by name."""
        return await self._store.tallies(prefix, limit=limit)

    async def receive_callback(
        self, handler_key: str, request: CallbackRequest, *, account_id: str | None = None
    ) -> Callback:
        """Take a provider's callback: authenticate it, and make the jobs that it names due at once.

        A callback is only ever a nudge: the job is queried, what the callback says is not believed.

        Raises:
            CallbackRejected: it is not authentic, or not understood.
            Unsupported: the handler has no callbacks.
            NoHandler: there is no such handler here.
        """
        handler = self._registry[handler_key]
        callback = await self._loops.call(
            handler_key,
            lambda: handler.parse_callback(request, account_id),
            CALLBACK_TIMEOUT_SECONDS,
        )
        for external_id in callback.external_task_ids:
            _check_external_id(external_id)
        for external_id in callback.external_task_ids:
            await self._store.nudge(handler_key, external_id)
        return callback


def _check_external_id(external_id: str) -> None:
    """Refuse what no store can hold, whoever sent it: stores remember ids that they do not know yet."""
    unsound = external_id.encode("utf-8", "ignore").decode("utf-8") != external_id
    if not external_id.strip() or unsound or len(external_id) > MAX_EXTERNAL_ID_CHARACTERS:
        message = (
            f"the callback names {external_id[:40]!r}, of {len(external_id)} characters, which is no job's id"
        )
        raise CallbackRejected(message)
