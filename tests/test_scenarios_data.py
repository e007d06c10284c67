"""What really went wrong elsewhere with what had to be stored: odd values, long texts, many writes."""

import asyncio
import json
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck import App, NotPersistable, QueryResult, Status, Store, Task, create_store
from coatcheck.codec import encode_task
from coatcheck.events import QueryErred, StillGoing
from coatcheck.lifecycle import Settlement
from coatcheck.task import JSON, ErrorCode, TaskError
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end
from coatcheck_handler_ocr import OcrRequest
from coatcheck_sandbox import Answer, HugeBody, Operation, SandboxServer, When
from processes import Orders, Process
from provider import HOUR, document, handler_of
from waits import until

MINUTE = timedelta(minutes=1)
MEGABYTES_20 = 20 * 1024 * 1024


async def end_of(
    store: Store, clock: ManualClock, sandbox: SandboxServer, operation: Operation, body: str
) -> Task:
    """Return what becomes of a task if every answer to an operation is `body`, byte for byte."""
    answer = Answer(
        operation=operation,
        status=200,
        body=body,
        content_type="application/json",
        when=When.AFTER,
        times=None,
    )
    sandbox.faults.add(answer)
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=10 * MINUTE)
        done = task
        while not done.status.terminal:
            assert clock.now() <= task.schedule.deadline_at + MINUTE
            await app.worker().drain()
            clock.advance(MINUTE)
            (done,) = await app.manager.find()
    assert done.progress.lost_leases == 0
    assert sandbox.creating_requests("a.png") == 1
    return done


def succeeded(markdown: str, price: str = "0") -> str:
    """Return a query's answer as it is on the wire; the arguments are JSON texts."""
    return f'{{"task_id": "j", "status": "success", "output": {{"markdown": {markdown}}}, "price": {price}}}'


@pytest.mark.parametrize(
    ("body", "markdown", "price"),
    [
        (succeeded(r'"a\u0000b\u0000"'), "a\0b\0", 0),
        (succeeded(r'"\ud83d\ude00 \uffff"'), "\U0001f600 \uffff", 0),
        (succeeded(r'"a\ud800b"'), "a\ufffdb", 0),
        (succeeded('"x"', str(2**63)), "x", 2**63),
        (succeeded('"x"', str(-(2**200))), "x", -(2**200)),
        (succeeded('"x"', "0.1"), "x", 0.1),
    ],
    ids=["nul", "beyond-the-bmp", "lone-surrogate-in-text", "2**63", "-2**200", "0.1"],
)
async def test_25_an_odd_answer_that_is_stored_exactly(
    store: Store, clock: ManualClock, sandbox: SandboxServer, body: str, markdown: str, price: float
) -> None:
    """Scenario 25: stored exactly, but for halves of characters in a text, which are replaced as such."""
    done = await end_of(store, clock, sandbox, Operation.QUERY, body)
    assert done.status is Status.SUCCEEDED
    assert isinstance(done.result, dict)
    assert done.result["markdown"] == markdown
    assert done.result["usage"] == {"price": price}


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        (succeeded('"x"', r'"\ud800"'), Status.FAILED, ErrorCode.HANDLER_ERROR, "result.usage.price"),
        (succeeded('"x"', "1e999"), Status.FAILED, ErrorCode.HANDLER_ERROR, "NaN or infinite"),
        (
            '{"task_id": "j", "status": "failure", "error_code": "\\ud800", "error_message": "a\\u0000\\ud801"}',
            Status.FAILED,
            ErrorCode.PROVIDER_FAILED,
            r"a\x00\ud801",
        ),
        (succeeded('"x"', "NaN"), Status.TRACKING_TIMED_OUT, ErrorCode.DEADLINE_PASSED, "NaN is no JSON"),
        (succeeded('"x"', "9" * 5000), Status.TRACKING_TIMED_OUT, ErrorCode.DEADLINE_PASSED, "is no JSON"),
        (
            r'{"task_id": "j", "status": "\ud800"}',
            Status.TRACKING_TIMED_OUT,
            ErrorCode.DEADLINE_PASSED,
            "unlisted status",
        ),
        (
            r'{"task_id": "j", "status": "a\u0000"}',
            Status.TRACKING_TIMED_OUT,
            ErrorCode.DEADLINE_PASSED,
            "unlisted status",
        ),
    ],
    ids=[
        "lone-surrogate",
        "infinity",
        "odd-error",
        "nan",
        "5000-digits",
        "surrogate-as-status",
        "nul-in-status",
    ],
)
async def test_25_an_odd_answer_that_cannot_be_stored(  # noqa: PLR0913, PLR0917 - fixtures and cases
    store: Store,
    clock: ManualClock,
    sandbox: SandboxServer,
    body: str,
    status: Status,
    code: ErrorCode,
    says: str,
) -> None:
    """Scenario 25: a failure that names what is wrong; never a task stuck in RUNNING."""
    done = await end_of(store, clock, sandbox, Operation.QUERY, body)
    assert done.status is status
    assert done.error is not None
    assert done.error.code == code
    assert says in done.error.message


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (r'{"task_id": "\ud800"}', Status.SUBMIT_UNKNOWN, r"\ud800"),
        ('{"task_id": NaN}', Status.SUBMIT_UNKNOWN, "NaN"),
        ('{"task_id": ["j"]}', Status.SUBMIT_UNKNOWN, "no task_id"),
        (r'{"task_id": "a\u0000b"}', Status.FAILED, r"'a\x00b'"),
        (f'{{"task_id": {2**70}}}', Status.FAILED, f"'{2**70}'"),
        (r'{"task_id": "j", "status": "\ud800"}', Status.FAILED, "'j'"),
    ],
    ids=["lone-surrogate", "nan", "list", "nul", "2**70", "surrogate-as-status"],
)
async def test_25_an_odd_answer_to_a_submit(
    store: Store, clock: ManualClock, sandbox: SandboxServer, body: str, status: Status, says: str
) -> None:
    """Scenario 25: an id that can be stored is, and asked for; any other is told, and never sent again."""
    done = await end_of(store, clock, sandbox, Operation.SUBMIT, body)
    assert done.status is status
    assert done.error is not None
    assert says in done.error.message
    assert done.error.code == (
        ErrorCode.PROVIDER_LOST if status is Status.FAILED else ErrorCode.SUBMIT_UNKNOWN
    )


async def test_25_an_answer_of_20_megabytes(store: Store, clock: ManualClock, sandbox: SandboxServer) -> None:
    """Scenario 25: stored exactly, whether it is text or blanks around it."""
    text = "0123456789abcde\n" * (MEGABYTES_20 // 16)
    done = await end_of(store, clock, sandbox, Operation.QUERY, succeeded(json.dumps(text)))
    assert done.status is Status.SUCCEEDED
    assert isinstance(done.result, dict)
    assert done.result["markdown"] == text


async def test_25_an_answer_of_20_megabytes_of_blanks(
    store: Store, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 25: what it comes to is small, and stored; above the limit of bytes it is a named failure."""
    sandbox.faults.add(HugeBody(operation=Operation.QUERY, size_bytes=MEGABYTES_20, times=2))
    small = App(store, [handler_of(sandbox.url, max_answer_bytes=1024 * 1024)])
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        await app.worker().drain()
        clock.advance(MINUTE)
        await small.worker().drain()
        refused = await app.manager.get(task.id)
        assert refused is not None
        assert refused.status.queryable
        assert refused.error is not None
        assert "1048576" in refused.error.message
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED


async def test_25_odd_params(store: Store, clock: ManualClock, sandbox: SandboxServer) -> None:
    """Scenario 25: what a caller submits is kept exactly, or refused before anything is written."""
    options: dict[str, JSON] = {
        "nul": "\0",
        "big": 2**200,
        "small": 5e-324,
        "deep": [{"": None}],
        "long": "a text, " * 2**17,
    }
    url = document(sandbox.url).url
    async with App(store, [handler_of(sandbox.url)]) as app:
        for culprit in ("\ud800", float("nan"), float("inf"), 10**5000):
            with pytest.raises(NotPersistable, match="params.options.odd"):
                await app.manager.submit(OcrRequest(url=url, options={"odd": culprit}), tracking_timeout=HOUR)
        assert await app.manager.find() == []
        await app.manager.submit(OcrRequest(url=url, options=options), tracking_timeout=HOUR)
        (saved,) = await app.manager.find()
        assert isinstance(saved.params, dict)
        assert saved.params["options"] == options
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED


async def test_25_what_a_handler_says_of_an_error(store: Store, clock: ManualClock) -> None:
    """Scenario 25: codes that are numbers and notes that are no text hold up nothing."""
    failed = QueryResult.failed(17, {"why": "\ud800"})  # type: ignore[arg-type]  # as handlers do
    handler = ScriptedHandler("scan", OcrRequest, query=[failed], cancel=[OSError("\ud800\0")])
    async with App(store, [handler]) as app:
        fails, cancelled = [
            await app.manager.submit(OcrRequest(url="https://example.com/a.png"), tracking_timeout=HOUR)
            for _ in range(2)
        ]
        await app.worker(submissions=1).run_once()
        clock.advance(MINUTE)
        await app.worker(submissions=1).run_once()
        await app.manager.cancel(cancelled.id)
        await app.worker().drain()
        ends = await app.store.get_many([fails.id, cancelled.id])
    failure, cancel = ends[fails.id].error, ends[cancelled.id].error
    assert failure is not None
    assert (ends[fails.id].status, failure.provider_code) == (Status.FAILED, "17")
    assert cancel is not None
    assert ends[cancelled.id].status is Status.CANCELED
    assert r"\ud800\x00" in cancel.message


@pytest.mark.crowd
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_26_eight_processes_on_one_sqlite_file(tmp_path: Path, sandbox: SandboxServer) -> None:
    """Scenario 26: nobody sees "database is locked", nothing is lost, and every task is submitted once."""
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    names = [[f"{process}-{number}.png" for number in range(12)] for process in range(8)]
    orders = [Orders(store_url=url, provider_url=sandbox.url, submits=mine) for mine in names]
    with Process(tmp_path, *orders) as processes:
        await until(lambda: processes.works, "the start of all")
        async with App(create_store(url)) as app:

            async def all_done() -> bool:
                (stats,) = (await app.manager.stats()).handlers or (None,)
                return stats is not None and stats.by_status.get(Status.SUCCEEDED) == 8 * 12

            await until(all_done, "the end of all tasks")
            tasks = await app.manager.find(limit=1000)
        processes.send(signal.SIGTERM)
        assert await asyncio.to_thread(processes.wait) == 0
    assert processes.lines_with("database is locked|the store is away|traceback") == []
    assert len(tasks) == 8 * 12
    documents = [name for mine in names for name in mine]
    assert {sandbox.creating_requests(name) for name in documents} == {1}
    assert {sandbox.created_jobs(name) for name in documents} == {1}
    assert len({task.attempt.worker_id for task in tasks if task.attempt}) > 1


def _bytes_in_sqlite(database: Path) -> int:
    """Return how many bytes the one task has in all its columns, and in what was moved out of its row."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [
            *connection.execute("SELECT * FROM coatcheck_task"),
            *connection.execute("SELECT * FROM coatcheck_body"),
        ]
    return sum(len(str(value).encode()) for row in rows for value in tuple(row) if value is not None)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_27_ten_thousand_queries_of_one_task(store: Store, clock: ManualClock, tmp_path: Path) -> None:
    """Scenario 27: its row does not grow, whatever the provider says in turn; only its counters get digits."""
    sizes: dict[int, list[int]] = {}
    handler = ScriptedHandler("scan", OcrRequest)
    async with App(store, [handler]) as app:
        task = await app.manager.submit(
            OcrRequest(url="https://example.com/a.png"), tracking_timeout=1000 * HOUR
        )
        await app.worker().run_once()
        for number in range(1, 10_001):
            clock.advance(MINUTE)
            (claimed,) = (await store.claim_queries("w", ["scan"], 1, MINUTE)).tasks
            going = StillGoing(
                delay=timedelta(seconds=10),
                status=(Status.SUBMITTED, Status.RUNNING)[number % 2],
                fraction=0.5,
                provider_status=("waiting", "working")[number % 2],
            )
            erred = QueryErred(delay=going.delay, error=TaskError(code="query_failed", message="no answer"))
            event = going if number % 5 else erred
            (settled,) = await store.settle([Settlement(task=claimed, event=event)])
            assert isinstance(settled, Task)
            if number in (200, 10_000):
                sizes[number] = [len(json.dumps(encode_task(settled)))]
                if store.url.startswith("sqlite"):
                    sizes[number].append(_bytes_in_sqlite(tmp_path / "tasks.db"))
        after = await app.manager.get(task.id)
    assert after is not None
    assert after.progress.query_count == 10_000
    assert len(after.history) <= 32
    for early, late in zip(sizes[200], sizes[10_000], strict=True):
        assert late - early <= 64
