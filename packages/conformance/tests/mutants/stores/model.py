"""The mutant of the state machine: what goes wrong only after several steps that are fine, one by one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from coatcheck.evolving import evolve
from coatcheck.memory import MemoryStore
from coatcheck.task import Task
from coatcheck_conformance import StoreConformance, StoreSpec
from mutants import Mutant, register


class CountsToOne(MemoryStore):
    """Knows that a task has been queried, and not how often.

    It is a class of its own, because the model, too, is a memory store.
    """

    async def settle(self, settlements):
        """Settle, and forget all queries but one."""
        answers = await super().settle(settlements)
        return [await self._do(partial(_counted, answer=answer)) for answer in answers]


def _counted(ledger, answer):
    if not isinstance(answer, Task) or answer.progress.query_count < 2:
        return answer
    return ledger.keep(evolve(answer, progress=evolve(answer.progress, query_count=1)))


def _spec(_: Path) -> StoreSpec:
    return StoreSpec(f"{__name__}:{CountsToOne.__name__}", clock="clock")


register(Mutant(name="queries_count_to_one", rule="STORE-MODEL-1", suite=StoreConformance, spec=_spec))
