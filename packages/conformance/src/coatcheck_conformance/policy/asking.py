"""One admission policy, made for one rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from functools import wraps
from typing import Any, TypeVar

from attrs import frozen

from coatcheck.clock import ManualClock
from coatcheck.faulty import FaultyStore
from coatcheck.fleet import StoreFleet
from coatcheck.gates import AdmissionPolicy
from coatcheck.memory import MemoryStore
from coatcheck.standing import StoreStanding
from coatcheck_conformance.policy.snapshots import START
from coatcheck_conformance.policy.spec import AdmissionSpec
from coatcheck_conformance.rules import Kind, Level, Suite, spec_rule

__all__ = ["AdmissionTrial", "admission_rule"]

_S = TypeVar("_S", bound=Suite)


@frozen
class AdmissionTrial:
    """An admission policy that was just made."""

    spec: AdmissionSpec
    policy: AdmissionPolicy
    """Attached to the fleet of `store`."""
    store: FaultyStore
    """A store in memory, whose clock stands still, and which can be made to fail."""


def admission_rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[Callable[[_S, AdmissionTrial], Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that makes ``async def (self, trial)`` a rule for admission policies, on its own loop."""

    def decorate(body: Callable[[_S, AdmissionTrial], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        async def run(suite: _S, spec: AdmissionSpec) -> None:
            async with asyncio.timeout(spec.patience.total_seconds()):
                async with FaultyStore(MemoryStore(ManualClock(START))) as store:
                    policy = spec.create()
                    policy.attach(StoreFleet(store, StoreStanding(store)))
                    await body(suite, AdmissionTrial(spec, policy, store))

        @wraps(body)
        def test(suite: _S, spec: AdmissionSpec) -> None:
            asyncio.run(run(suite, spec))

        return spec_rule("admission_spec", id, level=level, kind=kind, requires=requires)(test)

    return decorate
