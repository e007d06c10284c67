"""What happens behind each provider's door: one request, struck by at most one fault."""

from collections.abc import Callable, Mapping

from attrs import field, frozen
from starlette.requests import Request
from starlette.responses import Response

from coatcheck_sandbox.documents import Documents
from coatcheck_sandbox.faults import (
    Answer,
    Drop,
    Fault,
    HugeBody,
    MalformedHttp,
    MalformedJson,
    Operation,
    Redirect,
    SlowBody,
    Stall,
    TruncatedBody,
    When,
)
from coatcheck_sandbox.jobs import Jobs
from coatcheck_sandbox.log import LoggedRequest, RequestLog
from coatcheck_sandbox.plan import FaultPlan
from coatcheck_sandbox.stalls import Stalls
from coatcheck_sandbox.wire import (
    DroppedConnection,
    HugeResponse,
    MalformedResponse,
    SlowResponse,
    TruncatedResponse,
)


@frozen(kw_only=True)
class Payload:
    """The true answer to a request."""

    status: int = 200
    content: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(factory=dict)

    def response(self) -> Response:
        """The answer as it should be sent."""
        return Response(self.content, self.status, dict(self.headers), self.media_type)


@frozen(kw_only=True)
class Backend:
    """What all protocols of a sandbox share."""

    jobs: Jobs
    documents: Documents
    faults: FaultPlan
    log: RequestLog
    stalls: Stalls

    def entry_of(self, request: Request) -> LoggedRequest:
        """The log's entry for a request; the recorder around the application made it."""
        entry = request.scope["coatcheck_sandbox.entry"]
        if not isinstance(entry, LoggedRequest):
            raise TypeError(f"{entry!r} is not an entry of the log; wrap the application in `Recorder`")
        return entry

    def pick_fault(
        self, request: Request, operation: Operation, document: str | None, *, finished: bool = False
    ) -> Fault | None:
        """The fault that strikes this request, entered into the log."""
        fault = self.faults.pick(operation, document, finished=finished)
        if fault is not None:
            self.log.note(self.entry_of(request), fault=fault.kind)
        return fault

    async def serve(
        self,
        fault: Fault | None,
        work: Callable[[], Payload],
        render_error: Callable[[Answer], Payload],
    ) -> Response:
        """Do the work and answer, unless the fault has it otherwise; `work` is called once at most."""
        struck = await self._strike(fault, When.BEFORE, render_error)
        if struck is not None:
            return struck
        payload = work()
        struck = await self._strike(fault, When.AFTER, render_error)
        return struck if struck is not None else _spoil(fault, payload)

    async def _strike(
        self, fault: Fault | None, when: When, render_error: Callable[[Answer], Payload]
    ) -> Response | None:
        """What is sent in place of the true answer, if the fault strikes at this side of the work."""
        if isinstance(fault, Redirect) and when is When.BEFORE:
            return Response(status_code=fault.status, headers={"location": fault.location})
        if not isinstance(fault, Answer | Drop | Stall) or fault.when is not when:
            return None
        if isinstance(fault, Drop):
            return DroppedConnection(reset=fault.reset)
        if isinstance(fault, Stall):
            return None if await self.stalls.wait(fault.seconds) else DroppedConnection()
        response = _error_payload(fault, render_error).response()
        if fault.retry_after is not None:
            response.headers["retry-after"] = fault.retry_after
        return response


def _error_payload(fault: Answer, render_error: Callable[[Answer], Payload]) -> Payload:
    if fault.body is None:
        return render_error(fault)
    # Lone surrogates are among what a provider's bug may send: let them through as they are.
    content = fault.body.encode(errors="surrogatepass")
    return Payload(status=fault.status, content=content, media_type=fault.content_type)


def _spoil(fault: Fault | None, payload: Payload) -> Response:
    """The true answer, in the form that the fault gives it."""
    response = _spoiled(fault, payload.content, payload.status, payload.media_type)
    response.headers.update(payload.headers)
    return response


def _spoiled(fault: Fault | None, content: bytes, status: int, media_type: str) -> Response:
    match fault:
        case SlowBody():
            return SlowResponse(content, status, media_type, fault.seconds)
        case MalformedJson():
            return Response(content[: len(content) // 2], status, media_type=media_type)
        case MalformedHttp():
            return MalformedResponse()
        case TruncatedBody():
            return TruncatedResponse(content, status, media_type=media_type)
        case HugeBody():
            return HugeResponse(content, status, media_type, fault.size_bytes)
        case _:
            return Response(content, status, media_type=media_type)
