"""Which faults are in effect."""

import random
import threading

from attrs import define, evolve

from coatcheck_sandbox.faults import Fault, Operation


@define
class _Entry:
    fault: Fault
    remaining: int | None


class FaultPlan:
    """The faults in effect, in the order in which they were added; safe to use from any thread.

    A request is struck by at most one fault: the first that suits it and whose chance comes up.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - chance has to be repeatable, not secret
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []

    def add(self, *faults: Fault) -> None:
        """Put faults into effect, after those that are."""
        with self._lock:
            self._entries.extend(_Entry(fault, fault.times) for fault in faults)

    def pick(self, operation: Operation, document: str | None, *, finished: bool = False) -> Fault | None:
        """The fault that strikes a request, which uses it up once; None lets the request pass."""
        with self._lock:
            for entry in self._entries:
                if not entry.fault.suits(operation, document, finished=finished):
                    continue
                if self._random.random() >= entry.fault.probability:
                    continue
                if entry.remaining is not None:
                    entry.remaining -= 1
                    self._entries = [kept for kept in self._entries if kept.remaining != 0]
                return entry.fault
        return None

    def pending(self) -> list[Fault]:
        """The faults still in effect, `times` being what is left of it."""
        with self._lock:
            return [evolve(entry.fault, times=entry.remaining) for entry in self._entries]

    def clear(self) -> None:
        """Lift all faults, and start the generator of chances anew."""
        with self._lock:
            self._entries.clear()
            self._random.seed(self._seed)
