"""What pytest loads wherever the kit is installed: two options, and a report where a suite of the kit was run.

It imports nothing but pytest and the standard library until a rule has been tried: what a plugin imports early,
coverage of the user's own code misses.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from coatcheck_conformance.collecting import Trials

__all__: list[str] = []

_PROPERTY = "coatcheck_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("coatcheck", "conformance to coatcheck's contracts")
    group.addoption(
        "--conformance-report",
        metavar="FOLDER",
        help="write a JSON report of each conformance suite into this folder, named after the class",
    )
    group.addoption(
        "--conformance-require",
        metavar="CAPABILITY",
        action="append",
        default=[],
        help="fail instead of skipping where this capability or hook is missing; may be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the session for rules."""
    config.pluginmanager.register(_Watch(config), "coatcheck_conformance_watch")


class _Watch:
    """What one session has tried."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._trials: Trials | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Tell the suites what is required."""
        required = self._config.getoption("--conformance-require")
        for item in items if required else ():
            cls = getattr(item, "cls", None)
            if hasattr(getattr(item, "function", None), "__coatcheck_rule__") and cls is not None:
                cls.require = frozenset({*cls.require, *required})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write on the report of a rule which rule of what it is, so that it is known wherever the report gets to."""
        report = yield
        tried = getattr(getattr(item, "function", None), "__coatcheck_rule__", None)
        if tried is not None and (call.when == "call" or report.outcome != "passed"):
            from coatcheck_conformance.collecting import described  # noqa: PLC0415 - a rule has been tried

            report.user_properties.append((_PROPERTY, json.dumps(described(item, tried))))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a rule."""
        for name, value in report.user_properties:
            if name == _PROPERTY:
                from coatcheck_conformance.collecting import Trials  # noqa: PLC0415 - a rule has been tried

                self._trials = self._trials or Trials()
                self._trials.add(json.loads(str(value)), report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports; fail the run if a suite says that nothing was tried, or that rules are missing."""
        if self._trials is None or hasattr(self._config, "workerinput"):
            return
        folder = self._config.getoption("--conformance-report")
        if folder is not None:
            self._trials.write(folder)
        again = bool(self._config.getoption("lf", default=False))
        if session.exitstatus == pytest.ExitCode.OK and self._trials.not_conformant(again=again):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what each suite came to."""
        if self._trials is not None:
            terminalreporter.section("conformance to coatcheck's contracts")
            terminalreporter.write_line(self._trials.summary())
