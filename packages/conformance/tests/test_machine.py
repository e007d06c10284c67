from pathlib import Path

import pytest

from coatcheck_conformance import StoreSpec
from coatcheck_conformance.store.machine import compare_with_model


@pytest.mark.parametrize("name", ["Deaf", "Generous", "Flattering"])
def test_a_store_that_breaks_a_promise_differs_from_the_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state machine notices what a store does otherwise than the memory store."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    spec = StoreSpec(f"broken_stores:{name}", clock="clock")
    with pytest.raises(AssertionError, match="differ"):
        compare_with_model(spec, examples=40, steps=30, derandomize=True, shrink=False)
