"""The conformance kit of coatcheck: every promise of its contracts, as tests that third parties run.

Subclass a suite, give it one fixture, and run pytest::

    class TestFileStore(StoreConformance):
        @pytest.fixture
        def store_spec(self, tmp_path) -> StoreSpec:
            return StoreSpec("coatcheck_store_file:create", url=f"file://{tmp_path}/tasks")

Names are loaded when they are first used: processes that only open a store load no test tools.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coatcheck_conformance.drafts import make_draft, make_drafts
    from coatcheck_conformance.handler.replies import Ending, Reply
    from coatcheck_conformance.handler.script import (
        Callbacks,
        Cancelling,
        Finding,
        Means,
        Previous,
        QueryingMany,
        Script,
    )
    from coatcheck_conformance.handler.spec import HandlerHook, HandlerSpec
    from coatcheck_conformance.handler.suite import HandlerConformance
    from coatcheck_conformance.plugin.spec import PluginSpec
    from coatcheck_conformance.plugin.suite import PluginConformance
    from coatcheck_conformance.policy.admission import AdmissionConformance
    from coatcheck_conformance.policy.retry import RetryConformance
    from coatcheck_conformance.policy.selector import SelectorConformance
    from coatcheck_conformance.policy.spec import AdmissionSpec, RetrySpec, SelectorSpec
    from coatcheck_conformance.report import Outcome, Report, Result, Verdict
    from coatcheck_conformance.rules import (
        Identity,
        Kind,
        Level,
        Rule,
        Spec,
        Suite,
        registered,
        rule,
        spec_rule,
        table,
    )
    from coatcheck_conformance.running import validate
    from coatcheck_conformance.store.spec import Hook, StoreSpec
    from coatcheck_conformance.store.suite import StoreConformance

__all__ = [
    "AdmissionConformance",
    "AdmissionSpec",
    "Callbacks",
    "Cancelling",
    "Ending",
    "Finding",
    "HandlerConformance",
    "HandlerHook",
    "HandlerSpec",
    "Hook",
    "Identity",
    "Kind",
    "Level",
    "Means",
    "Outcome",
    "PluginConformance",
    "PluginSpec",
    "Previous",
    "QueryingMany",
    "Reply",
    "Report",
    "Result",
    "RetryConformance",
    "RetrySpec",
    "Rule",
    "Script",
    "SelectorConformance",
    "SelectorSpec",
    "Spec",
    "StoreConformance",
    "StoreSpec",
    "Suite",
    "Verdict",
    "make_draft",
    "make_drafts",
    "registered",
    "rule",
    "spec_rule",
    "table",
    "validate",
]

_HOMES = {
    "AdmissionConformance": "policy.admission",
    "AdmissionSpec": "policy.spec",
    "Callbacks": "handler.script",
    "Cancelling": "handler.script",
    "Ending": "handler.replies",
    "Finding": "handler.script",
    "HandlerConformance": "handler.suite",
    "HandlerHook": "handler.spec",
    "HandlerSpec": "handler.spec",
    "Hook": "store.spec",
    "Identity": "rules",
    "Kind": "rules",
    "Level": "rules",
    "Means": "handler.script",
    "Outcome": "report",
    "PluginConformance": "plugin.suite",
    "PluginSpec": "plugin.spec",
    "Previous": "handler.script",
    "QueryingMany": "handler.script",
    "Reply": "handler.replies",
    "Report": "report",
    "Result": "report",
    "RetryConformance": "policy.retry",
    "RetrySpec": "policy.spec",
    "Rule": "rules",
    "Script": "handler.script",
    "SelectorConformance": "policy.selector",
    "SelectorSpec": "policy.spec",
    "Spec": "rules",
    "StoreConformance": "store.suite",
    "StoreSpec": "store.spec",
    "Suite": "rules",
    "Verdict": "report",
    "make_draft": "drafts",
    "make_drafts": "drafts",
    "registered": "rules",
    "rule": "rules",
    "spec_rule": "rules",
    "table": "rules",
    "validate": "running",
}

if "pytest" in sys.modules:
    # Rules assert, and what they compared is to be seen when one fails.
    sys.modules["pytest"].register_assert_rewrite(
        "coatcheck_conformance.handler",
        "coatcheck_conformance.plugin",
        "coatcheck_conformance.policy",
        "coatcheck_conformance.store",
    )


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
