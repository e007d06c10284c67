"""What all tests of the workspace share, and how processes share the tests (`./dev test --parallel`)."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

pytest_plugins = ["servers.fixtures", "servers.groups"]

# machines are shared and noisy: how long an example takes says nothing about what is right
settings.register_profile("workspace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workspace")


TOGETHER = {
    "tests/test_wheels.py": "wheels",  # which are built once
    "packages/store-sql/tests/test_faults_restart.py": "fleets",  # of processes, one after the other
    "packages/store-sql/tests/test_processes.py": "fleets",
    "packages/store-redis/tests/test_conformance_topologies.py::TestSentinel": "sentinel",  # fails over in the middle
    "packages/store-redis/tests/test_topologies.py": "topologies",  # a Cluster is started once
}
"""How the names of tests begin that are all run by one process, one after the other, and by which one."""


PROVIDERS = re.compile(r"packages/(handler-\w+)/tests/(test_\w+)\.py::Test")
"""How the names of the kit's rules on a provider begin."""
EVERYWHERE = {("handler-ocr", "test_conformance"), ("handler-video", "test_volcengine")}
"""Those that every Python tries; the others take minutes together, and are tried on one."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what is given most time where processes share the tests: none is to be left with it alone."""
    for item in items:
        found = PROVIDERS.match(item.nodeid)
        if found and (found[1], found[2]) not in EVERYWHERE:
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        items.sort(key=_limit, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what a test has printed reach the other process: pytest-xdist gives up at a lone surrogate."""
    report = yield
    report.sections = [(title, _sendable(text)) for title, text in report.sections]
    return report


def _sendable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _limit(item: pytest.Item) -> float:
    own = item.get_closest_marker("timeout")
    return float(own.args[0]) if own else 0.0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:  # noqa: ANN401 - of xdist's own
    """Give each process one test after the other, but what is to stay together to one."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where there are several

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # likewise
        """Marks would say it, too, but pytest-xdist 3.8 doesn't see them with pytest 9.2."""

        def _split_scope(self, nodeid: str) -> str:
            return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)

    return Scheduling(config, log)
