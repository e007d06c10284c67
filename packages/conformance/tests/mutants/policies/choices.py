"""Mutants of selectors that promise more: shares, one handler for one key, and an eye on how the candidates stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from hashlib import blake2b
from itertools import cycle

from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck.selector import Load, Selection
from coatcheck.task import JSON
from coatcheck_conformance.policy.spec import candidate_names
from mutants.policies import Picker, breaks_selector

_EVEN = {"shares": dict.fromkeys(candidate_names(120), 1)}


def _of_tenant(key: str) -> tuple[object, Mapping[str, JSON]]:
    return None, {"tenant_id": key}


_KEYED = {"keyed": _of_tenant}


class Turns:
    """A good selector: takes turns, with a sequence for each set of candidates."""

    def __init__(self) -> None:
        self.sequences: dict[tuple[str, ...], cycle[str]] = {}

    async def __call__(self, selection: Selection):
        return self.pick(selection.candidates)

    def pick(self, candidates):
        return next(self.sequences.setdefault(tuple(candidates), cycle(candidates)))


class Rendezvous:
    """A good selector: the same tenant, the same handler."""

    async def __call__(self, selection: Selection):
        return self.pick(str(selection.options.get("tenant_id")), selection.candidates)

    def pick(self, key, candidates):
        return max(candidates, key=lambda each: self.score(key, each))

    def score(self, key, candidate):
        return blake2b(f"{key}/{candidate}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


class Careful(Turns):
    """A good selector: leaves out who is paused, does badly or is full, and takes turns among the others."""

    async def __call__(self, selection: Selection):
        usages = await selection.standing.gates()
        loads = await selection.standing.load()
        ends = await selection.standing.outcomes(timedelta(minutes=5))
        names = [{each.gate.name for each in usages.get(key, ())} for key in selection.candidates]
        shared = self.shared(names)
        well = [
            key
            for key in selection.candidates
            if all(
                self.is_open(each, loads.get(key, Load()).waiting)
                for each in usages.get(key, ())
                if each.gate.name not in shared
            )
            and not (key in ends and self.is_bad(ends[key]))
        ]
        return self.pick(well or self.last_resort(selection))

    def shared(self, names):
        return set.intersection(*names) if len(names) > 1 else set()

    def is_open(self, usage, waiting):
        gate = usage.gate
        slots = gate.concurrency is None or usage.used + waiting < gate.concurrency
        grants = gate.rate is None or usage.granted + waiting < gate.rate.count
        return gate.pause is None and slots and grants

    def is_bad(self, ended):
        return ended.bad >= 10 and ended.bad > ended.good

    def last_resort(self, selection):
        return selection.candidates


_CAREFUL = {"promises": ["pauses", "outcomes", "room"]}


# ------------------------------------------------------------------ shares


@breaks_selector("SELECTOR-SHARE-1", **_EVEN)
class LooksTwice(Turns):
    """Takes the first of five twice."""

    def pick(self, candidates):
        return next(
            self.sequences.setdefault(
                tuple(candidates), cycle([*candidates, *candidates[: len(candidates) == 5]])
            )
        )


@breaks_selector("SELECTOR-SHARE-2", **_EVEN)
class OneCounterForAll(Picker):
    """Counts the turns of all candidates together."""


@breaks_selector("SELECTOR-SHARE-3", **_EVEN)
class LosesTurns(Turns):
    """Lets others in between reading the turn and writing it."""

    def __init__(self) -> None:
        self.turns: dict[tuple[str, ...], int] = {}

    async def __call__(self, selection: Selection):
        turn = self.turns.get(selection.candidates, 0)
        await asyncio.sleep(0)
        self.turns[selection.candidates] = turn + 1
        return selection.candidates[turn % len(selection.candidates)]


@breaks_selector("SELECTOR-SHARE-4", **_EVEN, promises=["closed"])
class TakesStrangers(Turns):
    """Gives a share to who has none."""


# ------------------------------------------------------------------ keys


@breaks_selector("SELECTOR-KEY-1", **_KEYED)
class ForgetsWhoItIs(Rendezvous):
    """Tells some tenants apart by when they came."""

    seen: str | None = None

    async def __call__(self, selection: Selection):
        key = str(selection.options.get("tenant_id"))
        self.seen = self.seen or key
        return self.pick(
            "first of all" if key == "key 7" and self.seen != "key 0" else key, selection.candidates
        )


@breaks_selector("SELECTOR-KEY-2", **_KEYED)
class HashesByPython(Rendezvous):
    """Uses the hash that changes with each process."""

    def score(self, key, candidate):
        return super().score(str(hash(key)), candidate)


@breaks_selector("SELECTOR-KEY-3", **_KEYED)
class CountsTheCandidates(Rendezvous):
    """Takes the hash modulo their number."""

    def pick(self, key, candidates):
        return candidates[int.from_bytes(self.score(key, ""), "big") % len(candidates)]


@breaks_selector("SELECTOR-KEY-4", **_KEYED)
class HasAFavourite(Rendezvous):
    """Gives one of them most keys."""

    def score(self, key, candidate):
        return (candidate == "kit:provider-003" and key[-1] in "02468", super().score(key, candidate))


# ------------------------------------------------------------------ how the candidates stand


@breaks_selector("SELECTOR-STANDING-1", **_CAREFUL)
class KnowsPausesForEver(Careful):
    """Takes a pause that ends by itself for none."""

    def is_open(self, usage, waiting):
        pause = usage.gate.pause
        return pause.until is not None if pause else super().is_open(usage, waiting)

    def shared(self, names):
        return set()


@breaks_selector("SELECTOR-STANDING-2", **_CAREFUL)
class NeedsAFullSetOfFailures(Careful):
    """Thinks well of who has ever done well."""

    def is_bad(self, ended):
        return ended.bad >= 10 and not ended.good


@breaks_selector("SELECTOR-STANDING-3", **_CAREFUL)
class ForgetsWhoWaits(Careful):
    """Looks at the slots that are taken, and not at who stands before them."""

    def is_open(self, usage, waiting):
        return super().is_open(usage, 0)


@breaks_selector("SELECTOR-STANDING-4")
class WantsSomebodyWell(Careful):
    """Finds nobody good enough."""

    def last_resort(self, selection):
        raise ConfigurationError("nobody is well")


@breaks_selector("SELECTOR-STANDING-5")
class DoesNotRecover(Turns):
    """Takes the store's troubles for the end."""

    down = False

    async def __call__(self, selection: Selection):
        if self.down:
            return "nobody"
        try:
            await selection.standing.gates()
        except StoreUnavailable:
            self.down = True
            raise
        return self.pick(selection.candidates)


@breaks_selector("SELECTOR-STANDING-6", **_CAREFUL)
class CountsGatesOfAll(Careful):
    """Gives up where all are paused by one gate."""

    def shared(self, names):
        return set()


@breaks_selector("SELECTOR-LOAD-1", promises=["load"])
class TakesTheLastOfEquals:
    """Takes any that has least."""

    async def __call__(self, selection: Selection):
        loads = await selection.standing.load()
        return min(reversed(selection.candidates), key=lambda key: loads.get(key, Load()).total)


@breaks_selector("SELECTOR-LOAD-2", promises=["load"])
class ReadsForEach:
    """Asks the store anew for each candidate."""

    async def __call__(self, selection: Selection):
        loads = {key: (await selection.standing.load()).get(key, Load()) for key in selection.candidates}
        return min(selection.candidates, key=lambda key: loads[key].total)


_asking: list[int] = []


@breaks_selector("SELECTOR-THREAD-1")
class OneThreadAtATime(Turns):
    """Keeps what it works on where other threads write, too."""

    async def __call__(self, selection: Selection):
        loop = id(asyncio.get_running_loop())
        _asking.append(loop)
        try:
            await asyncio.sleep(0.001 if len(selection.candidates) == 4 else 0)
            if {*_asking} != {loop}:
                raise RuntimeError("two at once")
        finally:
            _asking.remove(loop)
        return self.pick(selection.candidates)
