import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from coatcheck_sandbox import (
    DocumentUnreadable,
    Failure,
    Recognition,
    RequestRefused,
    State,
    Upload,
    describe,
)
from coatcheck_sandbox.jobs import Jobs


class Reader:
    """A recognizer that waits for the test."""

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.documents: list[str] = []

    def __call__(self, content: bytes, name: str) -> Recognition:
        """Read once the test allows it; an empty document can't be read, and another shows a bug."""
        self.documents.append(name)
        assert self.allowed.wait(10)
        if not content:
            raise DocumentUnreadable(name)
        if content == b"bug":
            raise ZeroDivisionError(name)
        return Recognition.of(content.decode())


@pytest.fixture
def reader() -> Iterator[Reader]:
    """A recognizer that is allowed to finish at the latest when the test ends."""
    reader_ = Reader()
    yield reader_
    reader_.allowed.set()


@pytest.fixture
def jobs(reader: Reader, clock: Callable[[], float]) -> Iterator[Jobs]:
    """Jobs read by `reader` and moved by `advance`."""
    with closing(Jobs(reader, clock=clock)) as jobs_:
        yield jobs_
        reader.allowed.set()


def upload(content: bytes = b"text", name: str = "a.png") -> Upload:
    """Make an upload."""
    return Upload(name=name, content=content, model="m")


def test_a_job_runs_until_it_is_read(jobs: Jobs, reader: Reader, advance: Callable[[float], None]) -> None:
    """However late it is, a job isn't done before its document is."""
    job = jobs.create(upload())
    advance(1000)
    assert jobs.look_at(job).state is State.IN_PROGRESS
    assert not jobs.wait_recognized(0.01)
    reader.allowed.set()
    assert jobs.wait_recognized(5)
    snapshot = jobs.look_at(job)
    assert snapshot.state is State.SUCCEEDED
    assert snapshot.recognition == Recognition.of("text")


@pytest.mark.parametrize(("content", "code"), [(b"", "document_unreadable"), (b"bug", "internal_error")])
def test_a_document_that_cant_be_read_fails_its_job(
    jobs: Jobs, reader: Reader, content: bytes, code: str
) -> None:
    """An error of the recognizer becomes the job's failure, and the next job is read all the same."""
    reader.allowed.set()
    bad, good = jobs.create(upload(content)), jobs.create(upload())
    assert jobs.wait_recognized(5)
    failure = jobs.look_at(bad).failure
    assert failure is not None
    assert (failure.code, "a.png" in failure.message) == (code, True)
    assert jobs.look_at(good).state is State.SUCCEEDED


def test_a_planned_failure_comes_after_the_delay(jobs: Jobs, advance: Callable[[float], None]) -> None:
    """A job that is to fail runs like any other before."""
    jobs.delay = timedelta(seconds=8)
    job = jobs.create(upload(), planned_failure=Failure(code="c", message="m"))
    states = []
    for _ in range(3):
        states.append(jobs.look_at(job).state)
        advance(4)
    assert states == [State.WAITING, State.IN_PROGRESS, State.FAILED]


def test_a_document_is_read_once_and_counted_each_time(jobs: Jobs, reader: Reader) -> None:
    """The same bytes are recognised once; jobs are counted by name and by digest."""
    reader.allowed.set()
    for name in ("a.png", "a.png", "b.png"):
        jobs.create(upload(name=name))
    assert jobs.wait_recognized(5)
    assert reader.documents == ["a.png"]
    assert (jobs.count("a.png"), jobs.count("b.png"), jobs.count(upload().digest)) == (2, 1, 3)
    jobs.clear()
    assert jobs.count("a.png") == 0


def test_a_token_brings_the_same_job_again() -> None:
    """Once for the same document; another document under it is refused."""
    registry = Jobs(describe)
    first = registry.create(Upload(name="a", content=b"1", model="m", token="t", reference="r"))
    again = registry.create(Upload(name="a", content=b"1", model="m", token="t"))
    assert again.job_id == first.job_id
    assert registry.find("r") is first
    assert registry.find("s") is None
    with pytest.raises(RequestRefused, match="another document"):
        registry.create(Upload(name="b", content=b"2", model="m", token="t"))
    registry.close()


def test_a_job_is_canceled_unless_it_has_ended() -> None:
    """A finished one stays as it is."""
    registry = Jobs(describe, delay=timedelta(hours=1))
    job = registry.create(Upload(name="a", content=b"1", model="m"))
    assert registry.cancel(job)
    assert registry.look_at(job).state is State.CANCELED
    assert not registry.cancel(job)
    registry.delay = timedelta(0)
    done = registry.create(Upload(name="a", content=b"1", model="m"))
    assert registry.wait_recognized(10)
    assert not registry.cancel(done)
    assert registry.look_at(done).state is State.SUCCEEDED
    registry.close()
