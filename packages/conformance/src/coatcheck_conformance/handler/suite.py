"""The suite of handlers: all topics in one class."""

from __future__ import annotations

import pytest

from coatcheck_conformance.handler.accounts import Accounts
from coatcheck_conformance.handler.bodies import Bodies
from coatcheck_conformance.handler.callbacks import CallingBack
from coatcheck_conformance.handler.capabilities import Cancellation, Declared, Idempotency
from coatcheck_conformance.handler.certainty import Certain
from coatcheck_conformance.handler.holding import Holding
from coatcheck_conformance.handler.lookups import Finds, Many
from coatcheck_conformance.handler.opening import Opening
from coatcheck_conformance.handler.params import Keys, Params
from coatcheck_conformance.handler.queries import Queries
from coatcheck_conformance.handler.query_params import Stored, Upgrading
from coatcheck_conformance.handler.retry_after import RetryAfter
from coatcheck_conformance.handler.secrecy import Secrecy
from coatcheck_conformance.handler.spec import HandlerSpec
from coatcheck_conformance.handler.statuses import Statuses
from coatcheck_conformance.handler.wire import Wire

__all__ = ["HandlerConformance"]


class HandlerConformance(
    Keys,
    Opening,
    Params,
    Wire,
    Holding,
    Certain,
    Bodies,
    RetryAfter,
    Accounts,
    Secrecy,
    Stored,
    Upgrading,
    Queries,
    Statuses,
    Declared,
    Idempotency,
    Cancellation,
    Finds,
    Many,
    CallingBack,
):
    """Every promise of the handler contract. Subclass it, and give the fixture `handler_spec`."""

    fixture = "handler_spec"

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """Return how to make the handler under test, and what its provider answers."""
        pytest.fail(f"{type(self).__name__} needs a fixture `handler_spec` that returns a HandlerSpec")
