"""`./dev run python -m benchmarks.retries`: what retry policies cost, and how late they are.

For each distribution, tasks come one after the other, each with a duration drawn from it. A policy is asked
as a worker would ask it, with snapshots and a clock of the simulation's own; nothing waits. Told are the queries per
task, and how late the result is found after the job is done. With ``--write`` the table in docs/retries.md and the
picture beside it are made anew. The same seed gives the same figures.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from attrs import frozen

from coatcheck import ExponentialRetry, QueryParams, RetryPolicy, Status, Task, TaskChange
from coatcheck.evolving import evolve
from coatcheck.results import QueryResult
from coatcheck.task import Lease, Outcome, Progress
from coatcheck.testing import make_task
from coatcheck_retries import equal_jitter, fixed, full_jitter, learned, proportional

__all__ = ["DISTRIBUTIONS", "POLICIES", "Figures", "simulate"]

TASKS = 600
WARM_UP = 200
"""Tasks that come before those that count, so that a policy that learns has something to go by."""
TRACKING_TIMEOUT = timedelta(hours=12)
DOCS = Path(__file__).parent.parent / "docs"
PICTURE = "retries.svg"

Draw = Callable[[random.Random], float]

DISTRIBUTIONS: Mapping[str, Draw] = {
    "OCR (log-normal, median 12 s)": lambda dice: dice.lognormvariate(math.log(12), 0.6),
    "video (log-normal, median 4 min)": lambda dice: dice.lognormvariate(math.log(240), 0.35),
    "bimodal (half 5 s, half 2 min)": lambda dice: max(1.0, dice.gauss(*dice.choice([(5, 1), (120, 15)]))),
    "heavy tail (Pareto, median 15 s)": lambda dice: min(10 * dice.paretovariate(1.7), 10_000.0),
}
"""How long jobs take at the provider, in seconds."""

POLICIES: Mapping[str, Callable[[], RetryPolicy]] = {
    "exponential (the default)": lambda: ExponentialRetry(seed=1),
    "full jitter": lambda: full_jitter(seed=1),
    "equal jitter": lambda: equal_jitter(seed=1),
    "fixed, 2 s": lambda: fixed(timedelta(seconds=2), seed=1),
    "fixed, 10 s": lambda: fixed(timedelta(seconds=10), seed=1),
    "proportional": lambda: proportional(seed=1),
    "learned": lambda: learned(seed=1),
}


@frozen(kw_only=True)
class Figures:
    """What came of one policy on one distribution."""

    queries: float
    """Queries per task, on average."""
    late: float
    """How late a result is found, on average, in seconds."""
    late_95: float
    """How late it is found at most, for 95 of 100 tasks, in seconds."""
    share: float
    """How late it is found, as a share of what the job took: the median."""


def simulate(policy: RetryPolicy, draw: Draw, *, tasks: int = TASKS, seed: int = 7) -> Figures:
    """Return what came of it."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    made = make_task(handler_key="simulated", tracking_timeout=TRACKING_TIMEOUT)
    counts, late, shares = [], [], []
    for number in range(WARM_UP + tasks):
        duration = draw(dice)
        queries, found = _track(policy, made, duration)
        if number >= WARM_UP:
            counts.append(queries)
            late.append(found - duration)
            shares.append((found - duration) / duration)
    return Figures(
        queries=statistics.fmean(counts),
        late=statistics.fmean(late),
        late_95=statistics.quantiles(late, n=20)[-1],
        share=statistics.median(shares),
    )


def _track(policy: RetryPolicy, made: Task, duration: float) -> tuple[int, float]:
    """Ask for one job until it is done; return how often, and when that was found, in seconds."""
    began = made.schedule.created_at
    lease = Lease(worker_id="w", token=1, nonce="n", until=began, started_at=began)
    submitting = evolve(made, status=Status.SUBMITTING, lease=lease)
    at = policy.next_query_delay(submitting, None).total_seconds()
    progress = Progress(submit_attempts=1, accepted_at=began)
    query_params = QueryParams(external_task_id="job")
    going = QueryResult.running()
    while True:
        now = began + timedelta(seconds=at)
        task = evolve(
            made,
            status=Status.RUNNING,
            progress=progress,
            lease=evolve(lease, started_at=now),
            query_params=query_params,
        )
        count = progress.query_count + 1
        if at >= duration:
            _tell(policy, task, evolve(task, status=Status.SUCCEEDED, outcome=Outcome(finished_at=now)))
            return count, at
        asking = evolve(task, progress=evolve(progress, query_count=count))
        at += policy.next_query_delay(asking, going).total_seconds()
        progress = evolve(progress, query_count=count, queried_at=now)


def _tell(policy: RetryPolicy, before: Task, after: Task) -> None:
    learn = getattr(policy, "coatcheck_tasks_changed", None)
    if learn is not None:
        learn([TaskChange(before=before, after=after, event="Finished")])


# ------------------------------------------------------------------ what is shown

Results = Mapping[str, Mapping[str, Figures]]


def measure() -> Results:
    """Return the figures by distribution and policy."""
    return {
        name: {policy: simulate(make(), draw) for policy, make in POLICIES.items()}
        for name, draw in DISTRIBUTIONS.items()
    }


def table(results: Results) -> str:
    """Return them as a Markdown table."""
    lines = [
        "| durations | policy | queries per task | late, mean | late, 95 % below | late, share of the duration |",
        "|---|---|---|---|---|---|",
    ]
    for name, by_policy in results.items():
        for policy, each in by_policy.items():
            lines.append(
                f"| {name} | {policy} | {each.queries:.1f} | {each.late:.1f} s | {each.late_95:.1f} s "
                f"| {each.share:.0%} |"
            )
    return "\n".join(lines) + "\n"


WIDTH, HEIGHT, MARGIN, LABEL_WIDTH = 420, 300, 46, 70
COLOURS = ("#4c72b0", "#dd8452", "#937860", "#c44e52", "#da8bc3", "#55a868", "#8172b3")


def picture(results: Results) -> str:
    """Return an SVG: for each distribution queries per task against mean lateness, both on logarithmic axes."""
    panels = "".join(
        f'<g transform="translate({WIDTH * (number % 2)},{HEIGHT * (number // 2)})">{_panel(name, by_policy)}</g>'
        for number, (name, by_policy) in enumerate(results.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {2 * HEIGHT}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>{panels}</svg>\n'
    )


def _panel(name: str, by_policy: Mapping[str, Figures]) -> str:
    across = _scale([each.queries for each in by_policy.values()], MARGIN, WIDTH - 110)
    up = _scale([each.late for each in by_policy.values()], HEIGHT - MARGIN, 34)
    parts = [
        f'<text x="{MARGIN}" y="20" font-weight="bold">{name}</text>',
        f'<path d="M{MARGIN} 30V{HEIGHT - MARGIN}H{WIDTH - 12}" fill="none" stroke="#999"/>',
        f'<text x="{WIDTH / 2 - 40}" y="{HEIGHT - 12}">queries per task</text>',
        f'<text transform="translate(12,{HEIGHT / 2 + 50})rotate(-90)">seconds late, mean</text>',
    ]
    for low_high, scale, mark in (
        ([each.queries for each in by_policy.values()], across, _mark_across),
        ([each.late for each in by_policy.values()], up, _mark_up),
    ):
        parts += [mark(scale(value), f"{value:g}") for value in _ticks(min(low_high), max(low_high))]
    points = [
        (up(each.late), across(each.queries), colour, policy.split(" (")[0])
        for colour, (policy, each) in zip(COLOURS, by_policy.items(), strict=True)
    ]
    last_x, last_y = -math.inf, -math.inf
    for y, x, colour, policy in sorted(points):
        label_y = max(y + 4, last_y + 11) if abs(x - last_x) < LABEL_WIDTH else y + 4  # none upon another
        last_x, last_y = x, label_y
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 8:.1f}" y="{label_y:.1f}" fill="{colour}">{policy}</text>')
    return "".join(parts)


def _scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    low, high = math.log(min(values) / 1.15), math.log(max(values) * 1.15)
    return lambda value: first + (last - first) * (math.log(value) - low) / (high - low)


def _ticks(low: float, high: float) -> list[float]:
    steps = (factor * 10.0**power for power in range(-2, 5) for factor in (1, 2, 5))
    return [each for each in steps if low / 1.1 <= each <= high * 1.1]


def _mark_across(x: float, text: str) -> str:
    y = HEIGHT - MARGIN
    return f'<path d="M{x:.1f} {y}v4" stroke="#999"/><text x="{x:.1f}" y="{y + 16}" text-anchor="middle">{text}</text>'


def _mark_up(y: float, text: str) -> str:
    return (
        f'<path d="M{MARGIN} {y:.1f}h-4" stroke="#999"/>'
        f'<text x="{MARGIN - 7}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    )


BEGIN, END = "<!-- made by benchmarks/retries.py -->\n", "<!-- end -->\n"


def written(page: str, results: Results) -> str:
    """Return the page with the table replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Simulate and print, or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="make the table and the picture of the docs anew"
    )
    arguments = parser.parse_args()
    results = measure()
    print(table(results), end="")
    if arguments.write:
        page = DOCS / "retries.md"
        page.write_text(written(page.read_text("utf-8"), results), "utf-8")
        (DOCS / PICTURE).write_text(picture(results), "utf-8")


if __name__ == "__main__":
    main()
