"""`./dev run python -m benchmarks.admission URL...`: what gates and admission policies do to a provider's traffic.

For each URL of an empty store, four worker processes work for a provider in this process, the sandbox, which writes
down when each submission comes. Trials of `--seconds` each: a rate, the same in small portions, a limit of
concurrency, a circuit breaker around an outage of the provider, and a fair share between a tenant with a flood and two
with little, once without and once with it. With ``--write`` the table in docs/admission.md and the picture beside it
are made anew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

from attrs import asdict, field, frozen

from coatcheck import (
    AdmissionPolicy,
    App,
    ExponentialRetry,
    Rate,
    Status,
    Submission,
    SubmitOptions,
    Task,
    create_store,
    gates,
)
from coatcheck_admissions import circuit_breaker, fair_share
from coatcheck_handler_ocr import ApiKey, GiteeOcr, HttpSettings, OcrRequest
from coatcheck_sandbox import Answer, Operation, SandboxServer, describe

__all__ = ["Arrival", "Trial", "most_at_once", "most_in"]

WORKERS = 4
STARTING_SECONDS = 4.0
"""How long worker processes may take to begin."""
RATE = 20
SLOTS = 8
JOB_SECONDS = 0.8
"""How long a job takes at the provider."""
OUTAGE = (8.0, 16.0)
"""When the provider is out of order, in seconds of the trial."""
BREAKER = {
    "window": timedelta(seconds=3),
    "min_calls": 10,
    "open_for": timedelta(seconds=3),
    "probe_every": timedelta(seconds=1),
}
BRISK = 1.5
"""In how many seconds as many submissions come as the rate grants in one, when things are as before."""
FLOOD, LITTLE = 1_500, 3
LATE = (5.0, 12.0)
"""When the tenants with little come."""
SPACING = timedelta(seconds=1) / RATE
PROVIDER = gates.provider("ocr:gitee")
HOUR = timedelta(hours=1)
DOCS = Path(__file__).parent.parent / "docs"
PICTURE = "admission.svg"


@frozen(kw_only=True)
class Arrival:
    """One submission, as the provider saw it."""

    at: float
    """Seconds since the trial began."""
    tenant: str
    good: bool
    """Whether the provider took it."""


@frozen(kw_only=True)
class Trial:
    """What came of one trial."""

    name: str
    arrivals: Sequence[Arrival]
    told: str
    """The figures, in words."""
    held: Sequence[tuple[float, int]] = field(factory=list)
    """How many jobs were at the provider when."""


def most_in(window: float, arrivals: Sequence[float]) -> int:
    """Return the most arrivals in any window of so many seconds."""
    most, first = 0, 0
    for last, at in enumerate(arrivals):
        while arrivals[first] <= at - window:
            first += 1
        most = max(most, last - first + 1)
    return most


def most_at_once(steps: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return how many were there after each step, of which each is a time and 1 or -1."""
    there, told = 0, []
    for at, step in sorted(steps):
        there += step
        told.append((at, there))
    return told


# ------------------------------------------------------------------ the workers


def make_policy(name: str) -> AdmissionPolicy | None:
    """Return the policy of a trial."""
    made: dict[str, Callable[[], AdmissionPolicy]] = {
        "breaker": lambda: circuit_breaker(**BREAKER),
        "fair": lambda: fair_share(spacing=SPACING),
    }
    return made[name]() if name in made else None


@frozen(kw_only=True)
class Orders:
    """What a worker process is to do."""

    store: str
    place: dict[str, object]
    provider: str
    policy: str


def make_app(orders: Orders) -> App:
    """Return the app of all processes."""
    settings = HttpSettings(base_url=f"{orders.provider}/gitee/v1", allow_private=True)
    retry = ExponentialRetry(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=1))
    handler = GiteeOcr(ApiKey("sandbox-key"), settings=settings)
    store = create_store(orders.store, **orders.place)
    return App(store, [handler], admission=make_policy(orders.policy), retry=retry)


async def work(orders: Orders) -> None:
    """Work until this process is told to stop."""
    logging.basicConfig(level=logging.CRITICAL)  # a provider out of order is what is tried
    async with make_app(orders) as app:
        await app.worker(submissions=40, queries=40).run()


@contextlib.contextmanager
def workers(orders: Orders) -> Iterator[None]:
    """Have four processes work."""
    command = [sys.executable, "-m", "benchmarks.admission", "--work", json.dumps(asdict(orders))]
    running = [subprocess.Popen(command) for _ in range(WORKERS)]  # noqa: S603 - this very program
    try:
        yield
    finally:
        for each in running:
            each.terminate()
        for each in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(20)
            each.kill()


# ------------------------------------------------------------------ the trials


@frozen
class Stage:
    """A store, a provider and an app for one trial."""

    app: App
    sandbox: SandboxServer
    seconds: float
    began: float

    async def submit(self, tenant: str, count: int) -> None:
        """Submit as many documents of a tenant."""
        options = SubmitOptions(tenant_id=tenant)
        documents = (
            OcrRequest(url=f"{self.sandbox.url}/pages/foxes.png", file_name=f"{tenant}-{number}.png")
            for number in range(count)
        )
        await self.app.manager.submit_many(
            [Submission(params=each, tracking_timeout=HOUR, options=options) for each in documents]
        )

    async def until(self, seconds: float) -> None:
        """Wait until so much of the trial is over."""
        await asyncio.sleep(max(self.began + seconds - time.monotonic(), 0))

    def arrivals(self) -> list[Arrival]:
        """Return what has come during the trial."""
        told = []
        for each in self.sandbox.log.requests(Operation.SUBMIT):
            at = each.received_monotonic_seconds - self.began
            if at <= self.seconds:
                tenant = (each.document or "").rpartition("-")[0]
                told.append(Arrival(at=at, tenant=tenant, good=each.status == HTTPStatus.OK))
        return sorted(told, key=lambda each: each.at)


async def rate(stage: Stage) -> tuple[str, Sequence[tuple[float, int]]]:
    """20 a second."""
    return await _rated(stage, Rate(RATE))


async def tenths(stage: Stage) -> tuple[str, Sequence[tuple[float, int]]]:
    """The same, granted a few at a time."""
    return await _rated(stage, Rate(RATE // 10, timedelta(seconds=0.1)))


def granted_at(task: Task) -> float | None:
    """Return when the claim was made whose call the provider has taken; claims that were given back spent nothing."""
    claimed: float | None = None
    for entry in task.history:
        if entry.target is Status.SUBMITTING:
            claimed = entry.at.timestamp()
        elif entry.target is not Status.PENDING_SUBMIT:
            return claimed
    return None


async def _rated(stage: Stage, limit: Rate) -> tuple[str, Sequence[tuple[float, int]]]:
    await stage.app.manager.set_gate(PROVIDER, rate=limit, who="benchmark")
    await stage.submit("a", int(RATE * stage.seconds * 1.2))
    await stage.until(stage.seconds)
    times = [each.at for each in stage.arrivals()]
    whole = int(stage.seconds - times[0]) - 3
    steady = [at for at in times if 0 <= at - times[0] - STARTING_SECONDS / 2 <= whole]
    tasks = await stage.app.manager.find(limit=10_000)
    granted = sorted(at for task in tasks if (at := granted_at(task)) is not None)
    return (
        f"granted in a second at most {most_in(1, granted)} of {RATE}, arrived {most_in(1, times)}; "
        f"{len(steady) / whole:.1f} a second"
    ), []


async def concurrency(stage: Stage) -> tuple[str, Sequence[tuple[float, int]]]:
    """8 at once."""
    await stage.app.manager.set_gate(PROVIDER, concurrency=SLOTS, who="benchmark")
    await stage.submit("a", int(SLOTS / JOB_SECONDS * stage.seconds * 1.2))
    await stage.until(stage.seconds)
    times = [each.at for each in stage.arrivals()]
    held = most_at_once([(at, 1) for at in times] + [(at + JOB_SECONDS, -1) for at in times])
    return f"most jobs at once {max(count for _, count in held)} of {SLOTS}; {len(times)} submissions", held


async def breaker(stage: Stage) -> tuple[str, Sequence[tuple[float, int]]]:
    """An outage of eight seconds."""
    await stage.app.manager.set_gate(PROVIDER, rate=Rate(RATE), who="benchmark")
    await stage.submit("a", int(RATE * stage.seconds * 1.2))
    await stage.until(OUTAGE[0])
    stage.sandbox.faults.add(Answer(operation=Operation.SUBMIT, status=503, times=None))
    await stage.until(OUTAGE[1])
    stage.sandbox.faults.clear()
    await stage.until(stage.seconds)
    arrivals = stage.arrivals()
    during = [each.at for each in arrivals if OUTAGE[0] <= each.at < OUTAGE[1]]
    after = [each.at for each in arrivals if each.at >= OUTAGE[1] and each.good]
    full = next(
        (at for n, at in enumerate(after) if n >= RATE and at - after[n - RATE] < BRISK), float("nan")
    )
    history = await stage.app.manager.gate_history(gates.named("breaker", "ocr:gitee"))
    return (
        f"{len(during)} submissions during the outage, {(OUTAGE[1] - OUTAGE[0]) * RATE:.0f} without a breaker; at its "
        f"rate {full - OUTAGE[1]:.1f} s after it; {len(history)} changes of the gate recorded"
    ), []


async def shares(stage: Stage) -> tuple[str, Sequence[tuple[float, int]]]:
    """One tenant with a flood, and two with little."""
    await stage.app.manager.set_gate(PROVIDER, rate=Rate(RATE), who="benchmark")
    await stage.submit("flood", FLOOD)
    for number, at in enumerate(LATE):
        await stage.until(at)
        await stage.submit(f"little{number}", LITTLE)
    await stage.until(stage.seconds)
    arrivals = stage.arrivals()
    waits = []
    for number, at in enumerate(LATE):
        came = [each.at - at for each in arrivals if each.tenant == f"little{number}"]
        waits.append(
            f"{max(came):.2f} s" if len(came) == LITTLE else f"not within {stage.seconds - at:.0f} s"
        )
    flood = sum(each.tenant == "flood" for each in arrivals)
    return (
        f"the two with {LITTLE} tasks were all submitted after {' and '.join(waits)}; {flood} of the flood",
        [],
    )


Act = Callable[[Stage], Awaitable[tuple[str, Sequence[tuple[float, int]]]]]

TRIALS: Sequence[tuple[str, str, Act]] = (
    (f"rate, {RATE} a second", "standard", rate),
    (f"rate, {RATE // 10} in a tenth of a second", "standard", tenths),
    (f"concurrency, {SLOTS} at once", "standard", concurrency),
    ("circuit breaker", "breaker", breaker),
    ("a flood, without fair share", "standard", shares),
    ("a flood, with fair share", "fair", shares),
)


def place_of(url: str, number: int) -> dict[str, object]:
    """Return the settings that keep a trial's tasks apart from the others'."""
    name = f"trial{os.getpid()}_{number}_"
    return {"namespace": name} if url.startswith(("redis", "valkey")) else {"table_prefix": name}


async def run(url: str, number: int, seconds: float) -> Trial:
    """Run one trial."""
    name, policy, act = TRIALS[number]
    place = place_of(url, number)
    with SandboxServer(recognizer=describe, delay=timedelta(seconds=JOB_SECONDS)) as sandbox:
        orders = Orders(store=url, place=place, provider=sandbox.url, policy=policy)
        app = make_app(orders)
        await app.store.setup()
        async with app:
            with workers(orders):
                await asyncio.sleep(STARTING_SECONDS)
                stage = Stage(app, sandbox, seconds, time.monotonic())
                told, held = await act(stage)
                arrivals = stage.arrivals()
    return Trial(name=name, arrivals=arrivals, told=told, held=held)


# ------------------------------------------------------------------ telling

Results = dict[str, list[Trial]]
"""Trials by kind of store."""

WIDTH, HEIGHT, MARGIN = 420, 210, 40
COLOURS = ("#4c72b0", "#dd8452", "#55a868")


def table(results: Results) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| trial | store | what the provider saw |", "|---|---|---|"]
    for number, (name, _, _) in enumerate(TRIALS):
        lines += [f"| {name} | {store} | {trials[number].told} |" for store, trials in results.items()]
    return "\n".join(lines) + "\n"


def picture(results: Results, seconds: float) -> str:
    """Return an SVG with a panel for each trial: what the provider saw in each second, a line for each store."""
    panels = "".join(
        f'<g transform="translate({WIDTH * (number % 2)},{HEIGHT * (number // 2)})">'
        f"{_panel(name, {store: trials[number] for store, trials in results.items()}, seconds)}</g>"
        for number, (name, _, _) in enumerate(TRIALS)
    )
    rows = (len(TRIALS) + 1) // 2
    legend = "".join(
        f'<text x="{MARGIN + 120 * n}" y="{HEIGHT * rows + 16}" font-weight="bold" fill="{colour}">{store}</text>'
        for n, (colour, store) in enumerate(zip(COLOURS, results, strict=False))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT * rows + 28}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
        f"{panels}{legend}</svg>\n"
    )


def _panel(name: str, by_store: dict[str, Trial], seconds: float) -> str:
    held = any(trial.held for trial in by_store.values())
    top = 1.25 * SLOTS if held else 2.1 * RATE
    right, bottom = WIDTH - 12, HEIGHT - MARGIN

    def across(at: float) -> float:
        return MARGIN + (right - MARGIN) * at / seconds

    def up(value: float) -> float:
        return bottom - (bottom - 34) * min(value / top, 1.05)

    unit = "jobs at the provider" if held else "submissions in each second"
    parts = [
        f'<text x="{MARGIN}" y="18" font-weight="bold">{name}</text>',
        f'<path d="M{MARGIN} 30V{bottom}H{right}" fill="none" stroke="#999"/>',
        f'<text x="{WIDTH / 2 - 20}" y="{HEIGHT - 10}">seconds</text>',
        f'<text x="{right}" y="18" text-anchor="end">{unit}</text>',
    ]
    if "breaker" in name:
        begin, end = map(across, OUTAGE)
        parts.append(
            f'<rect x="{begin:.0f}" y="30" width="{end - begin:.0f}" height="{bottom - 30}" fill="#f3d9d9"/>'
        )
    parts += [
        f'<path d="M{MARGIN} {up(limit):.1f}H{right}" stroke="#bbb" stroke-dasharray="3 3"/>'
        f'<text x="{MARGIN - 6}" y="{up(limit) + 4:.1f}" text-anchor="end">{limit}</text>'
        for limit in (0, SLOTS if held else RATE)
    ]
    parts += [
        f'<text x="{across(at):.1f}" y="{bottom + 14}" text-anchor="middle">{at}</text>'
        for at in range(0, int(seconds) + 1, 5)
    ]
    for colour, trial in zip(COLOURS, by_store.values(), strict=False):
        points = _steps(trial, seconds)
        path = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{across(each.at):.1f}" cy="{up(1.8 * RATE):.1f}" r="3.5" fill="{colour}"/>'
            for each in trial.arrivals
            if each.tenant.startswith("little")
        ]
    if "flood" in name:
        parts += [
            f'<path d="M{across(at):.1f} 26v14" stroke="#333"/>'
            f'<text x="{across(at) + 4:.1f}" y="34">another comes</text>'
            for at in LATE
        ]
    return "".join(parts)


def _steps(trial: Trial, seconds: float) -> list[tuple[float, float]]:
    if trial.held:
        return [(at, count) for at, count in trial.held if at <= seconds]
    counts = [0] * int(seconds)
    for each in trial.arrivals:
        if 0 <= each.at < int(seconds):
            counts[int(each.at)] += 1
    return [(second + 0.5, count) for second, count in enumerate(counts)]


BEGIN, END = "<!-- made by benchmarks/admission.py -->\n", "<!-- end -->\n"


def written(page: str, results: Results) -> str:
    """Return the page with the table replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}"


async def measure(urls: Sequence[str], seconds: float, only: str) -> Results:
    """Run all trials on each store, and print what comes of each at once."""
    results: Results = {}
    for url in urls:
        store = url.partition(":")[0].partition("+")[0]
        results[store] = []
        for number, (name, _, _) in enumerate(TRIALS):
            if only in name:
                results[store].append(await run(url, number, seconds))
                print(f"{store}: {name}: {results[store][-1].told}", flush=True)
    return results


def main() -> None:
    """Measure and print, or write; or be a worker."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("urls", nargs="*", help="stores; each trial has tables or keys of its own there")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long a trial lasts")
    parser.add_argument("--only", default="", help="the trials in whose name this is")
    parser.add_argument(
        "--write", action="store_true", help="make the table and the picture of the docs anew"
    )
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        asyncio.run(work(Orders(**json.loads(arguments.work))))
        return
    results = asyncio.run(measure(arguments.urls, arguments.seconds, arguments.only))
    if arguments.write:
        page = DOCS / "admission.md"
        page.write_text(written(page.read_text("utf-8"), results), "utf-8")
        (DOCS / PICTURE).write_text(picture(results, arguments.seconds), "utf-8")


if __name__ == "__main__":
    main()
