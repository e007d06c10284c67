"""The jobs a provider runs: made by uploads, moved by time, finished by recognition."""

import hashlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from attrs import field, frozen

from coatcheck_sandbox.errors import DocumentUnreadable, EncoderMissing, RequestRefused
from coatcheck_sandbox.recognize import Recognition, Recognizer

_WAITING_SHARE = 0.25
"""The part of the delay that a job spends in the queue."""


class State(StrEnum):
    """Where a job is; each wire protocol has words of its own for these."""

    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


@frozen(kw_only=True)
class Failure:
    """Why a job failed."""

    code: str
    message: str


@frozen(kw_only=True)
class FilmOrder:
    """A video to make."""

    prompt: str
    seconds: float = 2.0
    width: int = 320
    """In pixels."""
    height: int = 180
    fps: int = 12
    """Frames in a second."""
    seed: int = 0


@frozen(kw_only=True)
class Film:
    """A video that was made."""

    content: bytes = field(repr=False)
    seconds: float
    width: int
    height: int
    fps: int
    media_type: str = "video/mp4"


@frozen(kw_only=True)
class Upload:
    """What a creating request brought: a document to read, or an order for a video."""

    name: str
    """The file name the caller gave."""
    content: bytes = field(repr=False)
    model: str
    failure: Failure | None = None
    """What the job will fail with, as when the document can't be fetched."""
    token: str | None = None
    """The caller's idempotency key: the same one brings the same job."""
    reference: str | None = None
    """The caller's own name for the job, by which some providers find it."""
    film: FilmOrder | None = None
    """What to make, if this is no document."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


@frozen(kw_only=True)
class Snapshot:
    """A job as seen at one time, for a protocol to put into its words."""

    job_id: str
    name: str
    """The document's file name."""
    model: str
    created_at: datetime
    state: State
    reference: str | None = None
    order: FilmOrder | None = None
    """What was ordered, if it was a video."""
    result: Recognition | Film | None = None
    """Set when the job has succeeded, unless a fault hides it."""
    failure: Failure | None = None
    """Set when the job has failed."""
    status_word: str | None = None
    """A word to use for the status in place of the protocol's own; set by a fault."""

    @property
    def recognition(self) -> Recognition | None:
        """What was read, if a document was."""
        return self.result if isinstance(self.result, Recognition) else None

    @property
    def film(self) -> Film | None:
        """What was made, if a video was."""
        return self.result if isinstance(self.result, Film) else None


@frozen(kw_only=True)
class Job:
    """One accepted document."""

    job_id: str
    name: str
    digest: str
    model: str
    created_at: datetime
    created_seconds: float
    """When it was created, by the registry's clock."""
    delay_seconds: float
    """How long it takes at least."""
    hidden_seconds: float
    """How long after its creation queries don't find it."""
    planned_failure: Failure | None
    """What it will fail with, whatever the document; None lets recognition decide."""
    reference: str | None
    work: Future[Recognition | Film]
    order: FilmOrder | None


class Jobs:
    """The jobs of one sandbox, safe to use from any thread.

    A document is recognised once, however often it is submitted; each submission is a job nevertheless.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        filmer: Callable[[FilmOrder], Film] | None = None,
        *,
        delay: timedelta = timedelta(0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recognizer = recognizer
        self._filmer = filmer
        self._clock = clock
        self.delay = delay
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._works: dict[str, Future[Recognition | Film]] = {}
        self._tokens: dict[str, str] = {}
        self._canceled: set[str] = set()
        # One thread: an engine uses all cores it may for one document.
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-recognize")

    @property
    def delay(self) -> timedelta:
        """How long jobs take at least, a quarter of it in the queue; a change affects new jobs.

        Raises:
            ValueError: it is set to less than nothing.
        """
        return self._delay

    @delay.setter
    def delay(self, delay: timedelta) -> None:
        if delay < timedelta(0):
            raise ValueError(f"jobs can't take {delay!r}; give a delay of 0 or more")
        self._delay = delay

    def create(
        self, upload: Upload, *, hidden: timedelta = timedelta(0), planned_failure: Failure | None = None
    ) -> Job:
        """A new job for a document, whose recognition is under way; the old one for a token that is known.

        Raises:
            RequestRefused: the token belongs to another document.
        """
        digest = upload.digest
        with self._lock:
            if upload.token is not None and upload.token in self._tokens:
                known = self._jobs[self._tokens[upload.token]]
                if known.digest != digest or known.name != upload.name:
                    raise RequestRefused(400, "idempotency_mismatch", "the token belongs to another document")
                return known
            if digest not in self._works:
                self._works[digest] = self._reader.submit(self._do, upload)
            job = Job(
                job_id=uuid.uuid4().hex,
                name=upload.name,
                digest=digest,
                model=upload.model,
                created_at=datetime.now(UTC),
                created_seconds=self._clock(),
                delay_seconds=self._delay.total_seconds(),
                hidden_seconds=hidden.total_seconds(),
                planned_failure=planned_failure or upload.failure,
                reference=upload.reference,
                work=self._works[digest],
                order=upload.film,
            )
            self._jobs[job.job_id] = job
            if upload.token is not None:
                self._tokens[upload.token] = job.job_id
        return job

    def find(self, reference: str) -> Job | None:
        """The job that its creator gave this reference; None if there is none."""
        with self._lock:
            return next((job for job in self._jobs.values() if job.reference == reference), None)

    def cancel(self, job: Job) -> bool:
        """Cancel a job; False if it had ended before, which changes nothing."""
        if self._outcome(job)[0] in {State.SUCCEEDED, State.FAILED, State.CANCELED}:
            return False
        with self._lock:
            self._canceled.add(job.job_id)
        return True

    def get(self, job_id: str) -> Job | None:
        """The job with this id, hidden or not; None if there is none."""
        with self._lock:
            return self._jobs.get(job_id)

    def is_hidden(self, job: Job) -> bool:
        """Whether queries don't find the job yet."""
        return self._age_seconds(job) < job.hidden_seconds

    def look_at(self, job: Job) -> Snapshot:
        """The job as it is now."""
        state, result, failure = self._outcome(job)
        return Snapshot(
            job_id=job.job_id,
            name=job.name,
            model=job.model,
            created_at=job.created_at,
            state=state,
            reference=job.reference,
            order=job.order,
            result=result,
            failure=failure,
        )

    def count(self, document: str) -> int:
        """How many jobs were created for a document, given by its file name or its SHA-256."""
        with self._lock:
            return sum(document in (job.name, job.digest) for job in self._jobs.values())

    def counts(self) -> Counter[tuple[str, str]]:
        """How many jobs were created, by file name and SHA-256."""
        with self._lock:
            return Counter((job.name, job.digest) for job in self._jobs.values())

    def wait_recognized(self, timeout_seconds: float) -> bool:
        """Wait until all documents so far have been read; False if that takes longer than the time given."""
        with self._lock:
            unfinished = list(self._works.values())
        return not wait(unfinished, timeout=timeout_seconds).not_done

    def clear(self) -> None:
        """Forget all jobs, as a provider does after its retention time."""
        with self._lock:
            self._jobs.clear()
            self._tokens.clear()
            self._canceled.clear()

    def close(self) -> None:
        """Stop reading documents; one that is being read is finished in the background."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _do(self, upload: Upload) -> Recognition | Film:
        if upload.film is None:
            return self._recognizer(upload.content, upload.name)
        if self._filmer is None:
            raise EncoderMissing
        return self._filmer(upload.film)

    def _age_seconds(self, job: Job) -> float:
        return self._clock() - job.created_seconds

    def _outcome(self, job: Job) -> tuple[State, Recognition | Film | None, Failure | None]:
        if job.job_id in self._canceled:
            return State.CANCELED, None, None
        age_seconds = self._age_seconds(job)
        if age_seconds < job.delay_seconds:
            waiting = age_seconds < job.delay_seconds * _WAITING_SHARE
            return State.WAITING if waiting else State.IN_PROGRESS, None, None
        if job.planned_failure is not None:
            return State.FAILED, None, job.planned_failure
        if not job.work.done() or job.work.cancelled():
            return State.IN_PROGRESS, None, None
        error = job.work.exception()
        if error is None:
            return State.SUCCEEDED, job.work.result(), None
        code = "document_unreadable" if isinstance(error, DocumentUnreadable) else "internal_error"
        return State.FAILED, None, Failure(code=code, message=str(error))
