"""The suite of stores: all topics in one class."""

from __future__ import annotations

import pytest

from coatcheck_conformance.store.adding import Adding
from coatcheck_conformance.store.attesting import Attesting
from coatcheck_conformance.store.blocking import Blocking
from coatcheck_conformance.store.cancellation import Cancellation
from coatcheck_conformance.store.claiming import Claiming
from coatcheck_conformance.store.finding import Finding
from coatcheck_conformance.store.gates import Defining, Pausing
from coatcheck_conformance.store.leases import Leases
from coatcheck_conformance.store.merging import Merging
from coatcheck_conformance.store.model import Modelled
from coatcheck_conformance.store.nudges import Nudges
from coatcheck_conformance.store.opening import Clocks, Opening
from coatcheck_conformance.store.ordering import Ordering
from coatcheck_conformance.store.purging import Purging
from coatcheck_conformance.store.queries import Queries
from coatcheck_conformance.store.racing import Racing
from coatcheck_conformance.store.rates import Rates
from coatcheck_conformance.store.recording import Recording
from coatcheck_conformance.store.resolving import Resolving
from coatcheck_conformance.store.setting_aside import SettingAside
from coatcheck_conformance.store.settling import Settling
from coatcheck_conformance.store.sharing import Sharing
from coatcheck_conformance.store.slots import Concurrency
from coatcheck_conformance.store.snapshots import Snapshots
from coatcheck_conformance.store.spec import StoreSpec
from coatcheck_conformance.store.stale import Stale
from coatcheck_conformance.store.standing import Standing
from coatcheck_conformance.store.starting import Starting
from coatcheck_conformance.store.tallying import Tallying
from coatcheck_conformance.store.upgrading import Upgrading
from coatcheck_conformance.store.waiting import Waiting

__all__ = ["StoreConformance"]


class StoreConformance(
    Opening,
    Clocks,
    Adding,
    Snapshots,
    Finding,
    Ordering,
    Claiming,
    Starting,
    Settling,
    Merging,
    Leases,
    Cancellation,
    Stale,
    Queries,
    Nudges,
    Defining,
    Concurrency,
    Pausing,
    Recording,
    Blocking,
    Rates,
    Tallying,
    Waiting,
    Attesting,
    Resolving,
    Purging,
    SettingAside,
    Upgrading,
    Standing,
    Racing,
    Sharing,
    Modelled,
):
    """Every promise of the store contract. Subclass it, and give the fixture `store_spec`."""

    fixture = "store_spec"

    @pytest.fixture
    def store_spec(self) -> StoreSpec:
        """Return how to open the store under test at an empty place, a new one for each test."""
        pytest.fail(f"{type(self).__name__} needs a fixture `store_spec` that returns a StoreSpec")
