"""How long scripts hold up the server, with and without a backlog; `benchmarks/redis_scale.py` is the long version."""

import importlib.util
import statistics
import sys
from types import ModuleType
from typing import Any

import pytest

from coatcheck.task import Status
from coatcheck_conformance.drafts import make_drafts
from coatcheck_store_redis import create
from workspace import ROOT

pytestmark = [pytest.mark.crowd, pytest.mark.slow, pytest.mark.timeout(180)]

BATCH = 50
ROUNDS = 10
LONGEST_MILLISECONDS = 50.0
LONGEST_CLAIM_MILLISECONDS = 10.0
"""Of the median."""
STEPS = {
    "add", "claim", "due", "ended", "gate", "look", "named", "page", "purge", "read", "renew", "stale", "start",
    "stats", "usage", "write",
}  # fmt: skip


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    """Load the benchmark, which is no package that tests can import."""
    spec = importlib.util.spec_from_file_location("redis_scale", ROOT / "benchmarks" / "redis_scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_no_script_takes_longer_for_a_backlog(redis_url: str, scale: Any) -> None:
    """100,000 tasks that wait and 50,000 that have ended lengthen none; and none holds up the server."""
    async with (
        create(redis_url, namespace="few") as quiet,
        create(redis_url, namespace="many") as busy,
    ):
        await quiet.add(make_drafts(1000))
        await busy.pause_gate("closed", reason="test")
        for status, gates, count in (
            (Status.SUCCEEDED, [], 50_000),
            (Status.PENDING_SUBMIT, ["closed"], 50_000),
            (Status.PENDING_SUBMIT, [], 50_000),
        ):
            await scale.copy(busy, await scale.some_task(busy, status, *gates), count)
        few, many = await scale.in_turns(quiet, busy, ROUNDS, BATCH)
        counts = (await busy.stats()).handlers[0].by_status
    assert counts[Status.PENDING_SUBMIT] > 100_000
    assert counts[Status.SUCCEEDED] > 45_000
    assert few.by_script.keys() == many.by_script.keys() >= STEPS
    for name in few.by_script:
        # a few parts of a millisecond say nothing
        assert many.median(name) < 3 * few.median(name) + 1, name
    assert many.median("claim") < LONGEST_CLAIM_MILLISECONDS
    all_times = sorted(time for times in many.by_script.values() for time in times)
    # one that was interrupted, while the machine did something else, is no slow one
    assert statistics.quantiles(all_times, n=200)[-1] < LONGEST_MILLISECONDS
