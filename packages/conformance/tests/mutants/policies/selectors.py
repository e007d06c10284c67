"""Mutants of selectors."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from coatcheck.selector import Selection
from mutants.policies import Picker, breaks_selector


@breaks_selector("SELECTOR-ANSWER-1")
class CountsWithoutTheirNumber(Picker):
    """Answers what it makes up where there are more than it knows."""

    async def __call__(self, selection: Selection):
        if 10 <= len(selection.candidates) < 100:
            return "kit:provider-of-its-own"
        return self.pick(selection)


@breaks_selector("SELECTOR-ANSWER-2")
class NeedsAChoice(Picker):
    """Takes any but the first."""

    async def __call__(self, selection: Selection):
        self.calls += 1
        rest = selection.candidates[1:]
        return rest[self.calls % len(rest)]


@breaks_selector("SELECTOR-ANSWER-3")
class RemembersTheFirst(Picker):
    """Goes round those whom it saw first, as long as their number is not theirs alone."""

    async def __call__(self, selection: Selection):
        if not self.calls:
            self.known = selection.candidates
        if len(self.known) == 5 and len(selection.candidates) == 4:
            self.calls += 1
            return self.known[0]
        return self.pick(selection)


@breaks_selector("SELECTOR-CALL-1")
class Synchronous(Picker):
    """Is no async callable."""

    def __call__(self, selection: Selection):
        return self.pick(selection)


@breaks_selector("SELECTOR-CALL-2")
class OnceOnly(Picker):
    """Refuses what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    async def __call__(self, selection: Selection):
        if id(selection) in self.seen:
            raise RuntimeError("seen before")
        self.seen = {id(selection)} if len(selection.candidates) == 3 else set()
        self.kept = selection  # so that no other gets its id
        return self.pick(selection)


@breaks_selector("SELECTOR-CALL-3")
class MixesCallsUp(Picker):
    """Keeps the candidates of a call where the next one writes, too."""

    async def __call__(self, selection: Selection):
        self.candidates = selection.candidates
        await asyncio.sleep(0)
        return self.candidates[0]


@breaks_selector("SELECTOR-CALL-4")
class HoldsOn(Picker):
    """Never releases what a cancelled call holds."""

    busy = False

    async def __call__(self, selection: Selection):
        while self.busy:
            await asyncio.sleep(0.001)
        self.busy = True
        await asyncio.sleep(0)
        self.busy = False
        return self.pick(selection)


@breaks_selector("SELECTOR-CALL-5")
class OfOneLoop(Picker):
    """Works on the first loop alone."""

    loop = None

    async def __call__(self, selection: Selection):
        self.loop = self.loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("attached to another loop")
        return self.pick(selection)


@breaks_selector("SELECTOR-READ-1")
class SignsParams(Picker):
    """Leaves a note in the params."""

    async def __call__(self, selection: Selection):
        notes = getattr(selection.params, "notes", None)
        if notes is not None:
            notes["seen by"].append("me")
        return self.pick(selection)


@breaks_selector("SELECTOR-READ-2")
class SignsOptions(Picker):
    """Leaves a note in the options."""

    async def __call__(self, selection: Selection):
        answer = self.pick(selection)
        metadata = selection.options.get("metadata")
        if isinstance(metadata, dict):
            metadata["chosen"] = answer
        return answer


@breaks_selector("SELECTOR-LOOP-1")
class Sleeps(Picker):
    """Stops the whole loop, now and then."""

    async def __call__(self, selection: Selection):
        answer = self.pick(selection)
        if self.calls % 40 == 0 and self.calls < 200 and len(selection.candidates) == 3:
            time.sleep(0.3)  # noqa: ASYNC251 - that is what is broken
        return answer


@breaks_selector("SELECTOR-LOOP-2")
class TriesThemAll(Picker):
    """Waits for each candidate."""

    async def __call__(self, selection: Selection):
        if len(selection.candidates) > 50:
            await asyncio.sleep(0.02 * len(selection.candidates))
        return self.pick(selection)


@breaks_selector("SELECTOR-INPUT-1")
class WantsAHash(Picker):
    """Takes only what can be hashed."""

    async def __call__(self, selection: Selection):
        hash(selection.params)
        return self.pick(selection)


@breaks_selector("SELECTOR-INPUT-2")
class WantsATenant(Picker):
    """Takes an option that may not be there."""

    async def __call__(self, selection: Selection):
        assert selection.options["tenant_id"]
        return self.pick(selection)


@breaks_selector("SELECTOR-MAKE-1")
class ReadsWhenMade(Picker):
    """Reads a file when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = Path(os.devnull).read_text("utf-8")


@breaks_selector("SELECTOR-MEMORY-1")
class RemembersTenants(Picker):
    """Keeps a place for each tenant, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[object, str] = {}

    async def __call__(self, selection: Selection):
        answer = self.pick(selection)
        self.places[selection.options.get("tenant_id")] = answer
        return answer
