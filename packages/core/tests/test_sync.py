"""The blocking face of the app."""

import asyncio
import multiprocessing
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import (
    CallbackRejected,
    ConfigurationError,
    QueryParams,
    QueryResult,
    Rate,
    Status,
    Submission,
    SubmitOptions,
    TaskNotFound,
    Unsupported,
    WaitTimeout,
    sync,
)
from coatcheck.app import App
from coatcheck.handler import Callback, CallbackRequest
from coatcheck.manager import Manager
from coatcheck.memory import MemoryStore
from coatcheck.testing import ManualClock, ScriptedHandler

HOUR = timedelta(hours=1)


@frozen
class Page:
    """What the handler takes."""

    url: str


class Scan(ScriptedHandler[Page]):
    """A handler with callbacks."""

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Believe nothing."""
        message = "not signed"
        raise CallbackRejected(message)


PAGE = Page("https://example.com/a.png")


def work(store: MemoryStore, handler: ScriptedHandler[Page]) -> None:
    """Let a worker do what is due."""
    asyncio.run(App(store, [handler]).worker().drain())


def test_every_method_of_the_manager_has_a_blocking_twin() -> None:
    """Same names; what only the app calls is left out."""
    public = {name for name in vars(Manager) if not name.startswith("_")} - {"notice", "announce"}
    assert public == {name for name in vars(sync.Manager) if not name.startswith("_")}


def test_a_task_lives_its_life_from_blocking_code() -> None:
    """Submit, look up, wait, result, stats."""
    clock, handler = ManualClock(), Scan("scan", Page)
    store = MemoryStore(clock=clock)
    with sync.App(store, [handler]) as app:
        task = app.manager.submit(PAGE, tracking_timeout=HOUR)
        assert app.manager.get(task.id) == task
        with pytest.raises(WaitTimeout):
            app.manager.wait(task.id, timedelta(milliseconds=10))
        work(store, handler)
        clock.advance(timedelta(seconds=5))
        work(store, handler)
        done = app.manager.wait(task.id, timedelta(seconds=5))
        assert done.status is Status.SUCCEEDED
        assert app.manager.result(task.id, dict, timeout=timedelta(seconds=5)) == {"id": "scan-1"}
        assert app.manager.read_result(done, dict) == {"id": "scan-1"}
        assert [each.id for each in app.manager.find()] == [task.id]
        assert app.manager.stats().handlers[0].handler_key == "scan"


def test_resolutions_and_gates_from_blocking_code() -> None:
    """Each is passed on with its arguments."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    handler = Scan("scan", Page, submit=[TimeoutError()] * 3, query=[QueryResult.running()] * 9)
    with sync.App(store, [handler]) as app:
        one, two, three = app.manager.submit_many(
            [Submission(params=PAGE, tracking_timeout=HOUR) for _ in range(3)]
        )
        work(store, handler)
        assert app.manager.adopt(one.id, QueryParams(external_task_id="x")).status is Status.SUBMITTED
        assert app.manager.resubmit(two.id, tracking_timeout=HOUR).status is Status.PENDING_SUBMIT
        assert app.manager.abandon(three.id).status is Status.FAILED
        clock.advance(HOUR)
        work(store, handler)
        assert app.manager.extend(one.id, tracking_timeout=HOUR).status is Status.SUBMITTED
        assert app.manager.cancel(one.id) is True
        app.manager.set_gate("g", rate=Rate(1))
        app.manager.pause("g", reason="r")
        app.manager.resume("g")
        assert [usage.gate.name for usage in app.manager.gates()] == ["g"]
        app.manager.delete_gate("g")
        with pytest.raises(CallbackRejected):
            app.manager.receive_callback("scan", CallbackRequest(method="POST", path="/", headers={}))
        with pytest.raises(TaskNotFound):
            app.manager.abandon("no-such-task")


def test_a_store_that_cannot_join_a_transaction_says_so() -> None:
    """The memory store has no transactions of the caller's."""
    with sync.App(MemoryStore(), [Scan("scan", Page)]) as app, pytest.raises(Unsupported, match="join"):
        app.manager.submit(PAGE, tracking_timeout=HOUR, transaction=object())


def test_it_opens_at_the_first_call_and_again_after_closing() -> None:
    """No thread before it is needed; closing twice is fine."""
    app = sync.App(MemoryStore(), [Scan("scan", Page)])
    app.close()
    assert app.manager.find() == []
    app.close()
    app.close()
    assert app.manager.find() == []
    app.close()


def test_a_store_that_fails_to_open_leaves_no_thread_behind() -> None:
    """The error is the store's own, and the next call tries again."""

    class Closed(MemoryStore):
        tries = 0

        async def open(self) -> None:
            self.tries += 1
            message = "no disk"
            raise OSError(message)

    store = Closed()
    app = sync.App(store, [])
    for tries in (1, 2):
        with pytest.raises(OSError, match="no disk"):
            app.manager.find()
        assert store.tries == tries


async def test_calling_it_inside_a_running_loop_is_an_error() -> None:
    """It would block the loop; the message says what to use."""
    app = sync.App(MemoryStore(), [Scan("scan", Page)])
    with pytest.raises(ConfigurationError, match="use coatcheck.App"):
        app.manager.submit(PAGE, tracking_timeout=HOUR)


def test_what_cannot_be_composed_is_refused_at_once() -> None:
    """Not at the first call."""
    with pytest.raises(ConfigurationError, match="two handlers"):
        sync.App(MemoryStore(), [Scan("scan", Page), Scan("scan", Page)])


def _child(app: sync.App, answers: "multiprocessing.Queue[int]") -> None:
    task = app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(priority=1))
    answers.put(task.schedule.priority)
    app.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_gets_a_thread_of_its_own() -> None:
    """Servers fork after the app was used; the child works."""
    app = sync.App("memory://", [Scan("scan", Page)])
    app.manager.find()
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[int] = context.Queue()
    child = context.Process(target=_child, args=(app, answers))
    child.start()
    try:
        assert answers.get(timeout=20) == 1
    finally:
        child.join(20)
        app.close()
    assert child.exitcode == 0
