"""What the sandbox saw on the wire."""

import threading
import time
from collections import Counter, deque
from datetime import UTC, datetime

from attrs import asdict, define, evolve, frozen

from coatcheck_sandbox.faults import Operation

_KEPT_REQUESTS = 100_000


@define(kw_only=True)
class LoggedRequest:
    """One request, from its first byte to the end of its answer."""

    number: int
    """Counts requests from 1."""
    received_at: datetime
    received_monotonic_seconds: float
    """When it came by `time.monotonic()`, to compare with other requests of this run."""
    method: str
    path: str
    has_authorization: bool
    """Whether it carried an Authorization header: shows credentials sent after a redirect."""
    operation: Operation | None = None
    """None for a path that is no provider's."""
    document: str | None = None
    """The file name of the document it is about; set when the body was read or the job was found."""
    digest: str | None = None
    """The document's SHA-256."""
    job_id: str | None = None
    """The job it created or asked for; set for a creation even if the answer was lost."""
    fault: str | None = None
    """The kind of the fault that struck it."""
    status: int | None = None
    """The HTTP status of the answer; None until there is one, and for ever if there was none."""
    finished: bool = False
    """Whether the sandbox is done with it."""


@frozen(kw_only=True)
class DocumentStatistics:
    """How often one document was submitted."""

    document: str
    digest: str
    creating_requests: int
    """Requests that asked for a job and arrived complete, whatever became of them."""
    jobs: int
    """Jobs that were created, which is what a provider charges for."""


class RequestLog:
    """All requests to the providers' paths, the last 100,000 of them; safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: deque[LoggedRequest] = deque(maxlen=_KEPT_REQUESTS)
        self._received = 0
        self._creating: Counter[tuple[str, str]] = Counter()

    def receive(self, method: str, path: str, *, has_authorization: bool) -> LoggedRequest:
        """Enter a request that has just come; the caller fills in the rest through `note`."""
        with self._changed:
            self._received += 1
            request = LoggedRequest(
                number=self._received,
                received_at=datetime.now(UTC),
                received_monotonic_seconds=time.monotonic(),
                method=method,
                path=path,
                has_authorization=has_authorization,
            )
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def note(
        self,
        request: LoggedRequest,
        *,
        operation: Operation | None = None,
        document: tuple[str, str] | None = None,
        job_id: str | None = None,
        fault: str | None = None,
    ) -> None:
        """Add what became known of a request; `document` is its file name and SHA-256."""
        with self._changed:
            request.operation = operation or request.operation
            request.job_id = job_id or request.job_id
            request.fault = fault or request.fault
            if document is not None:
                if request.operation is Operation.SUBMIT and request.digest is None:
                    self._creating[document] += 1
                request.document, request.digest = document
            self._changed.notify_all()

    def answer(self, request: LoggedRequest, status: int) -> None:
        """Enter the status that is about to be sent."""
        with self._changed:
            request.status = status
            self._changed.notify_all()

    def finish(self, request: LoggedRequest) -> None:
        """Enter that nothing more will be sent."""
        with self._changed:
            request.finished = True
            self._changed.notify_all()

    def requests(self, operation: Operation | None = None) -> list[LoggedRequest]:
        """Copies of the entries, oldest first, of one operation or of all."""
        with self._changed:
            return [evolve(entry) for entry in self._requests if operation in {None, entry.operation}]

    def creating_requests(self, document: str) -> int:
        """How many creating requests came for a document, given by its file name or its SHA-256."""
        with self._changed:
            return sum(count for key, count in self._creating.items() if document in key)

    def statistics(self, jobs: Counter[tuple[str, str]]) -> list[DocumentStatistics]:
        """Each document's counts, by file name; `jobs` are the jobs created, by file name and SHA-256."""
        with self._changed:
            creating = dict(self._creating)
        return [
            DocumentStatistics(document=name, digest=digest, creating_requests=count, jobs=jobs[name, digest])
            for (name, digest), count in sorted(creating.items())
        ]

    def wait_for(self, count: int, operation: Operation | None, timeout_seconds: float) -> bool:
        """Wait until so many requests of an operation have come, with their bodies; False on time-out."""

        def arrived() -> bool:
            seen = (entry for entry in self._requests if operation in {None, entry.operation})
            return sum(entry.finished or entry.digest is not None for entry in seen) >= count

        with self._changed:
            return self._changed.wait_for(arrived, timeout_seconds)

    def clear(self) -> None:
        """Forget all requests and counts."""
        with self._changed:
            self._requests.clear()
            self._creating.clear()


def request_to_json(request: LoggedRequest) -> dict[str, object]:
    """The entry as a JSON object: its fields, the time in ISO 8601."""
    return {**asdict(request), "received_at": request.received_at.isoformat()}
