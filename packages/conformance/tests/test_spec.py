import pickle

import pytest

from coatcheck.clock import ManualClock
from coatcheck.errors import ConfigurationError
from coatcheck.memory import MemoryStore
from coatcheck.store import Capability
from coatcheck_conformance import Hook, StoreSpec


def test_a_spec_makes_the_store_that_it_names() -> None:
    """The factory is called with the url, if any, and the settings, and with the kit's clock."""
    clock = ManualClock()
    store = StoreSpec("coatcheck:create_store", url="memory://", clock="clock").create(clock)
    assert isinstance(store, MemoryStore)
    assert store._clock is clock


def test_a_url_is_no_factory() -> None:
    """The message says where it belongs, without its password."""
    with pytest.raises(ConfigurationError, match="'coatcheck:create_store', url='redis://") as caught:
        StoreSpec("redis://user:hunter2@host").create()
    assert "hunter2" not in str(caught.value)


def test_a_report_names_the_home_of_a_store_that_somebody_else_makes() -> None:
    """Through `create_store`, too, so that the report has the version of what was tried."""
    spec = StoreSpec("coatcheck:create_store", url="memory://")
    assert spec.identity().modules == ["coatcheck", "coatcheck.memory"]


def test_a_clock_is_passed_only_where_one_is_taken() -> None:
    """A store with a clock of its own never sees the kit's."""
    store = StoreSpec("coatcheck.memory:MemoryStore").create(ManualClock())
    assert isinstance(store, MemoryStore)
    assert store._clock is None


def test_a_spec_can_be_sent_to_another_process() -> None:
    """A spec is data."""
    spec = StoreSpec("coatcheck.memory:MemoryStore", settings={"a": 1}, clock="clock")
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.portable().clock is None


def test_a_spec_offers_capabilities_and_hooks() -> None:
    """What rules require is what the store declares and what the spec brings along."""
    assert StoreSpec("coatcheck.memory:MemoryStore", clock="clock").offers() == {
        Capability.NOTIFIES,
        Hook.CLOCK,
        Hook.OWN_CLOCK,
    }


@pytest.mark.parametrize(
    "factory", ["coatcheck.memory", "coatcheck.nowhere:x", "coatcheck.memory:Nothing", "builtins:dict"]
)
def test_a_factory_that_makes_no_store_is_named(factory: str) -> None:
    """The message says which factory is wrong."""
    with pytest.raises(ConfigurationError, match=factory):
        StoreSpec(factory).create()
