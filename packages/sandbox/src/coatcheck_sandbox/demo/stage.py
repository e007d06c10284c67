"""What happens in the demo: the provider, two workers, a kill, and the count at the end."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from attrs import define, field, frozen

from coatcheck import App, Status, Submission, Task
from coatcheck_sandbox.demo.app import make_app
from coatcheck_sandbox.demo.programme import Programme, Verdict
from coatcheck_sandbox.server import SandboxServer

PROVIDER_DELAY = timedelta(seconds=4)
GIVE_UP_AFTER_SECONDS = 120
TRACKING_TIMEOUT = timedelta(minutes=5)


@define
class Scene:
    """How things stand, for whoever draws it."""

    tasks: dict[str, Task] = field(factory=dict)
    """By piece, as last seen."""
    workers: dict[str, str] = field(factory=dict)
    """What each worker process does, by name."""
    owners: dict[str, str] = field(factory=dict)
    """Worker names by process id, as worker ids hold it."""
    said: list[str] = field(factory=list)
    """What happened, in words."""

    def name_of(self, worker_id: str | None) -> str:
        """Return the demo's name of a worker, from its id."""
        parts = (worker_id or "").rsplit("-", 2)
        return self.owners.get(parts[1], "") if len(parts) == 3 else ""  # noqa: PLR2004 - host, pid, nonce


@frozen(kw_only=True)
class Place:
    """Where everything is that the demo's processes share."""

    folder: Path
    provider_url: str
    key: str
    """The handler's."""

    @property
    def arguments(self) -> tuple[str, str, str]:
        """What a worker process is started with."""
        return str(self.folder), self.provider_url, self.key


class WorkerProcess:
    """One worker in a process of its own, with a log file."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._log = (place.folder / f"worker-{name}.log").open("w")
        self._process = subprocess.Popen(  # noqa: S603 - this very Python, with our own arguments
            [sys.executable, "-m", "coatcheck_sandbox.demo.worker", *place.arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.pid = self._process.pid

    def kill(self) -> None:
        """SIGKILL: no goodbye, no cleaning up."""
        self._process.kill()
        self._process.wait()

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Ask it to finish; return its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()
        return self._process.returncode


async def play(folder: Path, plays: Programme, draw: Callable[[Scene], None]) -> list[Verdict]:
    """Run the demo in `folder`, drawing the scene as it changes; return what came of each piece.

    Raises:
        TimeoutError: the tasks have not ended in time.
        ChildProcessError: a worker ended that was not killed.
    """
    scene = Scene()
    with SandboxServer(delay=PROVIDER_DELAY) as sandbox:
        place = Place(folder=folder, provider_url=sandbox.url, key=plays.key)
        app = make_app(*place.arguments)
        async with app:
            await _submit(app, plays, sandbox, scene)
            draw(scene)
            with _workers(scene, place) as workers:
                victim = await _middle(app, scene, workers, draw)
                victim.kill()
                scene.workers[victim.name] = "killed with SIGKILL"
                scene.said.append(f"worker {victim.name} (pid {victim.pid}) was killed with SIGKILL")
                await _end(app, scene, workers, draw, victim)
            draw(scene)
            return [plays.judge(sandbox, piece, task) for piece, task in scene.tasks.items()]


async def _submit(app: App, plays: Programme, sandbox: SandboxServer, scene: Scene) -> None:
    pieces = plays.pieces(sandbox)
    submissions = [Submission(params=params, tracking_timeout=TRACKING_TIMEOUT) for params in pieces.values()]
    tasks = await app.manager.submit_many(submissions)
    scene.tasks.update(zip(pieces, tasks, strict=True))
    scene.said.append(f"{len(tasks)} {plays.what} submitted: saved, and nothing sent yet")


@contextlib.contextmanager
def _workers(scene: Scene, place: Place) -> Iterator[list[WorkerProcess]]:
    workers = [WorkerProcess(name, place) for name in ("A", "B")]
    scene.owners.update({str(worker.pid): worker.name for worker in workers})
    scene.workers.update({worker.name: f"working (pid {worker.pid})" for worker in workers})
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()
            scene.workers[worker.name] = scene.workers[worker.name].replace("working", "stopped")


async def _look(app: App, scene: Scene) -> None:
    found = {task.id: task for task in await app.manager.find()}
    scene.tasks = {piece: found[task.id] for piece, task in scene.tasks.items()}


async def _middle(
    app: App, scene: Scene, workers: Sequence[WorkerProcess], draw: Callable[[Scene], None]
) -> WorkerProcess:
    """Wait for the middle: a worker has submitted what is not done, and no call is half made."""
    ends = time.monotonic() + GIVE_UP_AFTER_SECONDS
    while time.monotonic() < ends:
        await asyncio.sleep(0.05)
        await _look(app, scene)
        draw(scene)
        _check_alive(workers)
        tasks = scene.tasks.values()
        if any(task.status is Status.SUBMITTING for task in tasks):
            continue
        open_tasks = [task for task in tasks if task.status.queryable]
        for worker in workers:
            started = [task for task in open_tasks if _started_by(scene, task) == worker.name]
            if started and len(open_tasks) >= len(scene.tasks) // 2:
                return worker
    message = "no worker has submitted anything; see the logs of the workers"
    raise TimeoutError(message)


def _started_by(scene: Scene, task: Task) -> str:
    return scene.name_of(task.attempt.worker_id if task.attempt else None)


async def _end(
    app: App,
    scene: Scene,
    workers: Sequence[WorkerProcess],
    draw: Callable[[Scene], None],
    victim: WorkerProcess,
) -> None:
    ends = time.monotonic() + GIVE_UP_AFTER_SECONDS
    while not all(task.status.terminal for task in scene.tasks.values()):
        if time.monotonic() > ends:
            waiting = ", ".join(piece for piece, task in scene.tasks.items() if not task.status.terminal)
            message = f"not done after {GIVE_UP_AFTER_SECONDS} s: {waiting}"
            raise TimeoutError(message)
        await asyncio.sleep(0.1)
        await _look(app, scene)
        draw(scene)
        _check_alive([worker for worker in workers if worker is not victim])
    survivor = next(worker for worker in workers if worker is not victim)
    scene.said.append(f"worker {survivor.name} finished the rest")


def _check_alive(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        if worker.exit_code is not None:
            message = f"worker {worker.name} ended by itself with exit code {worker.exit_code}; see its log"
            raise ChildProcessError(message)
