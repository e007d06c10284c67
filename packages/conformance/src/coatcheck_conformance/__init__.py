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
    from coatcheck_conformance.rules import Kind, Level, Rule, Suite, registered, rule, table
    from coatcheck_conformance.store.spec import Hook, StoreSpec
    from coatcheck_conformance.store.suite import StoreConformance

__all__ = [
    "Hook",
    "Kind",
    "Level",
    "Rule",
    "StoreConformance",
    "StoreSpec",
    "Suite",
    "make_draft",
    "make_drafts",
    "registered",
    "rule",
    "table",
]

_HOMES = {
    "Hook": "store.spec",
    "Kind": "rules",
    "Level": "rules",
    "Rule": "rules",
    "StoreConformance": "store.suite",
    "StoreSpec": "store.spec",
    "Suite": "rules",
    "make_draft": "drafts",
    "make_drafts": "drafts",
    "registered": "rules",
    "rule": "rules",
    "table": "rules",
}

if "pytest" in sys.modules:
    # Rules assert, and what they compared is to be seen when one fails.
    sys.modules["pytest"].register_assert_rewrite("coatcheck_conformance.store")


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
