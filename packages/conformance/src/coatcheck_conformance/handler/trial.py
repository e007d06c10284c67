"""One handler, opened for one rule beside a server that plays its provider, and the ordinary calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from typing import Any, TypeVar, cast

from attrs import define, field

from coatcheck.errors import ConfigurationError
from coatcheck.handler import AnyHandler, CallContext, CancelContext, QueryContext, SubmitContext
from coatcheck.task import QueryParams
from coatcheck_conformance.handler.calls import Call, Certainty, Claim, certainty_of
from coatcheck_conformance.handler.replies import Received, Reply, as_reply
from coatcheck_conformance.handler.script import Means, Script
from coatcheck_conformance.handler.server import Server
from coatcheck_conformance.handler.spec import HandlerSpec
from coatcheck_conformance.rules import Kind, Level, Suite, spec_rule

__all__ = ["IDEMPOTENCY_KEY", "TASK_ID", "Trial", "handler_rule", "opening_rule"]

TASK_ID = "kit-task-7f3a9c"
IDEMPOTENCY_KEY = "kit-key-51d2e8"
"""Not the task's id: they differ where the application gives one."""

_FLOOD_EXTRA_BYTES = 32 * 1024 * 1024
_NOT_SERVED = Reply.of(
    {"error": "script.served has nothing for this request of the kit's handler"}, status=404
)
_C = TypeVar("_C", bound=CallContext)
_S = TypeVar("_S", bound=Suite)
_Body = Callable[[_S, "Trial"], Coroutine[Any, Any, None]]


@define(eq=False, kw_only=True)
class Trial:
    """A handler that was just opened, and its provider."""

    spec: HandlerSpec
    server: Server
    foreign: Server
    """Another server, to which redirects lead."""
    stack: AsyncExitStack
    """What is opened for it is closed with it."""
    now: datetime = field(factory=lambda: datetime.now(UTC).replace(microsecond=0))
    """The time in contexts."""
    spoiled: Reply | None = None
    """Takes the place of what is served in every situation."""
    _handler: AnyHandler | None = None
    _reply: Reply = field(factory=Reply)
    _submitting: bool = False

    @classmethod
    @asynccontextmanager
    async def of(cls, spec: HandlerSpec) -> AsyncIterator[Trial]:
        """Open the handler that `spec` describes, beside a server; close both at the end."""
        problems = spec.problems()
        if problems:
            raise ConfigurationError("this HandlerSpec cannot be used: " + "; ".join(problems))
        answers: list[Callable[[Received], Reply]] = []
        with ExitStack() as servers:
            foreign = servers.enter_context(Server(lambda _: Reply.of({})))
            server = servers.enter_context(
                Server(
                    lambda request: answers[0](request),  # noqa: PLW0108 - answers come later
                    foreign=foreign.url,
                    flood_bytes=spec.answer_limit_bytes + _FLOOD_EXTRA_BYTES,
                )
            )
            async with AsyncExitStack() as stack:
                trial = cls(spec=spec, server=server, foreign=foreign, stack=stack)
                answers.append(trial._answer)
                trial._handler = await trial.another()
                yield trial

    @property
    def handler(self) -> AnyHandler:
        """The handler, open."""
        assert self._handler is not None
        return self._handler

    @property
    def script(self) -> Script:
        """What the provider answers."""
        return self.spec.script

    @property
    def params(self) -> object:
        """Good params, made anew."""
        return self.spec.params(self.server.url)

    def create(self, **changes: Any) -> AnyHandler:  # noqa: ANN401 - those of HandlerSpec.create
        """Return a new handler, closed, that talks to the server."""
        return self.spec.create(self.server.url, **{"accounts": self.spec.accounts or None, **changes})

    async def another(self, url: str | None = None) -> AnyHandler:
        """Return a new handler, open, as another worker has; of the server at `url`, if not the trial's."""
        handler = self.spec.create(url or self.server.url, accounts=self.spec.accounts or None)
        self.stack.push_async_callback(handler.close)
        await handler.open()
        return handler

    def _answer(self, request: Received) -> Reply:
        served = self._served(request)
        if served is not None:
            return self.spoiled or served
        if self._submitting and not self.spec.creates(request):
            return _NOT_SERVED
        return self._reply

    def _served(self, request: Received) -> Reply | None:
        served = self.script.served
        found = served.get(f"{request.method} {request.path}", served.get(request.path))
        return None if found is None else as_reply(found)

    # ------------------------------------------------------------------ what is given

    def context(
        self,
        kind: Callable[..., _C],
        claim: Claim | None = None,
        **changes: Any,  # noqa: ANN401 - fields of the context
    ) -> _C:
        """Return a context for a call by hand."""
        given: dict[str, Any] = {
            "task_id": TASK_ID,
            "idempotency_key": IDEMPOTENCY_KEY,
            "account_id": None,
            "now": self.now,
            "created_at": self.now - timedelta(minutes=1),
            "deadline_at": self.now + timedelta(hours=1),
            "ensure_held": (claim or Claim()).ensure_held,
        }
        return kind(**{**given, **changes})

    def word(self, *meanings: Means) -> str:
        """Return a status word of one of these meanings, of which there must be one."""
        found = self.script.word(*meanings)
        assert found is not None, f"script.words has no word that means {' or '.join(meanings)}"
        return found

    @property
    def going_on(self) -> Reply:
        """The answer to a query of a job that goes on."""
        return self.script.reply_of(self.word(Means.RUNNING, Means.WAITING))

    def error_reply(self, status: int, message: str = "the kit says so") -> Reply:
        """Return an error of the provider, in its form."""
        return Reply.of(self.script.error(message), status=status)

    # ------------------------------------------------------------------ calls

    async def submit(
        self,
        reply: Reply | None = None,
        *,
        params: object = None,
        claim: Claim | None = None,
        handler: AnyHandler | None = None,
        **context: Any,  # noqa: ANN401 - fields of the context
    ) -> Call:
        """Submit while the provider answers with `reply` (accepted), and return what it came to."""
        held = claim or Claim()
        subject = handler or self.handler
        given = cast("Any", self.params if params is None else params)
        made = self.context(SubmitContext, held, **context)
        self._submitting = True
        try:
            return await self._call(reply or self.script.accepted, lambda: subject.submit(given, made), held)
        finally:
            self._submitting = False

    async def accepted(self) -> QueryParams:
        """Submit, and return the query params of the job."""
        found = (await self.submit()).submitted.query_params
        assert found is not None, "the answer `script.accepted` came to a submission without query params"
        return found

    async def query(
        self,
        reply: Reply,
        params: QueryParams | None = None,
        *,
        handler: AnyHandler | None = None,
        **context: Any,  # noqa: ANN401 - fields of the context
    ) -> Call:
        """Query the job while the provider answers with `reply`, and return what it came to."""
        job = params or await self.accepted()
        made = self.context(QueryContext, **context)
        return await self._call(reply, lambda: (handler or self.handler).query(job, made))

    async def cancel(self, reply: Reply) -> Call:
        """Cancel the job while the provider answers with `reply`, and return what it came to."""
        job, made = await self.accepted(), self.context(CancelContext)
        return await self._call(reply, lambda: self.handler.cancel(job, made))

    async def find(self, reply: Reply) -> Call:
        """Look the submission up while the provider answers with `reply`, and return what it came to."""
        given, made = cast("Any", self.params), self.context(SubmitContext)
        return await self._call(reply, lambda: self.handler.find_submission(given, made))

    async def query_many(self, reply: Reply, batch: Sequence[QueryParams]) -> Call:
        """Query several jobs while the provider answers with `reply`, and return what it came to."""
        contexts: Mapping[str, QueryContext] = {
            each.external_task_id: self.context(QueryContext) for each in batch
        }
        return await self._call(reply, lambda: self.handler.query_many(batch, contexts))

    async def _call(
        self, reply: Reply, make: Callable[[], Awaitable[object]], claim: Claim | None = None
    ) -> Call:
        self._reply = reply
        before = len(self.server.requests)
        answer: object = None
        error: BaseException | None = None
        began = time.monotonic()
        scope = asyncio.timeout(self.spec.patience.total_seconds())
        try:
            async with scope:
                answer = await make()
        except Exception as raised:  # noqa: BLE001 - what it raises is what is looked at
            error = raised
        seconds = time.monotonic() - began
        if self.server.problems:
            problem = self.server.problems[0]
            message = f"the script has a reply that cannot be sent: {problem!r}"
            raise ConfigurationError(message) from problem
        requests = [each for each in self.server.requests[before:] if self._served(each) is None]
        return Call(
            answer=answer,
            error=error,
            requests=requests,
            creating=[each for each in requests if self.spec.creates(each)],
            claim=claim or Claim(),
            seconds=seconds,
            gave_up=scope.expired(),
        )

    def certainty(self, call: Call) -> Certainty:
        """Return what the worker makes of a submit call."""
        return certainty_of(self.handler, call)


def handler_rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[_Body[_S]], Callable[..., None]]:
    """Return a decorator that makes ``async def (self, trial)`` a rule for handlers, run on a loop of its own."""

    def decorate(body: _Body[_S]) -> Callable[..., None]:
        async def run(suite: _S, spec: HandlerSpec) -> None:
            async with Trial.of(spec) as trial:
                await body(suite, trial)

        @wraps(body)
        def test(suite: _S, spec: HandlerSpec) -> None:
            asyncio.run(run(suite, spec))

        return opening_rule(id, level=level, kind=kind, requires=requires)(test)

    return decorate


opening_rule = partial(spec_rule, "handler_spec")
"""Makes ``def (self, handler_spec)`` a rule for handlers, which makes them itself."""
