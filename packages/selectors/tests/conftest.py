"""What the tests of selectors share: selections, and how candidates stand."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pytest
from attrs import define, field

from coatcheck import Load, Outcomes, Selection, Standing
from coatcheck.gates import GateUsage
from coatcheck.task import JSON

Choose = Callable[..., Selection]


@define(eq=False)
class Told(Standing):
    """A standing that a test tells, and that counts how often it is asked."""

    usages: Mapping[str, Sequence[GateUsage]] = field(factory=dict)
    loads: Mapping[str, Load] = field(factory=dict)
    ends: Mapping[str, Outcomes] = field(factory=dict)
    within: timedelta | None = None
    asked: list[str] = field(factory=list)

    async def gates(self) -> Mapping[str, Sequence[GateUsage]]:
        """Return what was told."""
        self.asked.append("gates")
        return self.usages

    async def load(self) -> Mapping[str, Load]:
        """Return what was told."""
        self.asked.append("load")
        return self.loads

    async def outcomes(self, within: timedelta) -> Mapping[str, Outcomes]:
        """Return what was told."""
        self.asked.append("outcomes")
        self.within = within
        return self.ends


@pytest.fixture
def selection() -> Callable[..., Selection]:
    """Make selections: candidates, params, options, and how they stand."""

    def make(
        *candidates: str, params: object = None, standing: Standing | None = None, **options: JSON
    ) -> Selection:
        return Selection(
            params=params,
            options={"metadata": {}, **options},
            candidates=candidates,
            standing=standing or Standing(),
        )

    return make


@pytest.fixture
def told() -> type[Told]:
    """Make a standing."""
    return Told
