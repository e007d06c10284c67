"""Reading and writing tasks: those known here are not read again, and what cannot be read is set aside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from attrs import frozen

from coatcheck.codec import isolated
from coatcheck.errors import StoreUnavailable, TaskNotFound, UndecodableRow
from coatcheck.lifecycle import nudged
from coatcheck.locked.snapshots import proven
from coatcheck.task import Task, from_millis
from coatcheck_store_redis.calls import Calls, Doubt
from coatcheck_store_redis.records import Change, arguments_of, decode, revision_of

__all__ = ["Known", "Read", "Rows"]

_REMEMBERED = 20_000
"""How many tasks, leased or settled here, a process remembers at most."""
_READ_AT_ONCE, _WRITTEN_AT_ONCE = 500, 100
_ROUNDS = 100
"""How often a step begins anew because others change the same task meanwhile."""


@frozen
class Known:
    """A task as it was at a revision."""

    revision: int
    task: Task


@frozen
class Read:
    """What was read in one step."""

    now: datetime
    found: dict[str, Known]
    """Those that exist and can be decoded."""
    undecodable: dict[str, str]
    """Why others cannot."""


class Rows:
    """The tasks of a store."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[str, Known] = {}
        self._faults = 0

    # -------------------------------------------------------------- what is known

    def known(self, task_id: str) -> Known | None:
        """Return what is remembered of a task; it may have changed since."""
        if self._faults != self._calls.faults:
            # another server may have taken over, with an older state, and count its writes from there
            self._faults = self._calls.faults
            self._known.clear()
        return self._known.get(task_id)

    def remember(self, task_id: str, revision: int, task: Task) -> None:
        """Remember a task that is leased or was settled here, so that it need not be read again."""
        known = self._known
        known.pop(task_id, None)
        known[task_id] = Known(revision, task)
        if len(known) > _REMEMBERED:
            del known[next(iter(known))]

    def forget(self, task_id: str) -> None:
        """Forget a task."""
        self._known.pop(task_id, None)

    # -------------------------------------------------------------- reading

    async def read(self, task_ids: Collection[str]) -> Read:
        """Read tasks."""
        wanted = list(dict.fromkeys(task_ids))
        read = Read(from_millis(0), {}, {})
        for first in range(0, max(len(wanted), 1), _READ_AT_ONCE):
            some = wanted[first : first + _READ_AT_ONCE]
            faults = self._calls.faults
            read = await self._read_some({task_id: self.known(task_id) for task_id in some}, read)
            if self._calls.faults != faults:  # another server may have answered, with other revisions
                read = await self._read_some(dict.fromkeys(some), read)
        return read

    async def _read_some(self, asked: Mapping[str, Known | None], before: Read) -> Read:
        """Read some tasks, those that are known only if they have changed, and add them to what was read before."""
        found, undecodable = before.found, before.undecodable
        words: list[str | int] = []
        for task_id, known in asked.items():
            words += (task_id, "" if known is None else known.revision)
        now, *told = await self._calls.look("read", words)
        stored = zip(told[::2], told[1::2], strict=True)
        for (task_id, known), (record, document) in zip(asked.items(), stored, strict=True):
            if record == b"=" and known is not None:  # as it was asked: it may be forgotten by now
                found[task_id] = known
            elif record:
                try:
                    found[task_id] = Known(*decode(task_id, record, document))
                except UndecodableRow as error:
                    undecodable[task_id] = str(error)
            else:
                found.pop(task_id, None)
        return Read(from_millis(now), found, undecodable)

    async def set_aside(self, broken: dict[str, str], nonces: dict[str, str] | None = None) -> None:
        """Set tasks aside that cannot be decoded; claims under these nonces are undone."""
        words: list[str] = []
        for task_id, reason in broken.items():
            words += (task_id, (nonces or {}).get(task_id, ""), reason)
        if words:
            await self._calls.step("aside", words)

    # -------------------------------------------------------------- writing

    async def write(self, changes: Sequence[Change]) -> list[int]:
        """Write each change whose task is still as it was read.

        Returns:
            For each its revision now; 0 if the task has changed or the lease has ended; -1 if a nudge is remembered for
            the external id that it saves, and is to be applied first.
        """
        answers: list[int] = []
        for first in range(0, len(changes), _WRITTEN_AT_ONCE):
            some = changes[first : first + _WRITTEN_AT_ONCE]
            words = [arguments_of(change) for change in some]
            doubt = Doubt()
            _, *said = await self._calls.step("write", [word for each in words for word in each], doubt=doubt)
            if doubt.possible and 0 in said:
                said = await self._looked_up(some, words, said)
            answers += said
        return answers

    async def _looked_up(
        self, changes: Sequence[Change], words: list[list[str | int]], said: list[int]
    ) -> list[int]:
        """Tell what an earlier try, whose answer was lost, has written: then the row is as it was to be."""
        asked: list[str | int] = []
        for change in changes:
            asked += (change.after.id, "")
        _, *records = await self._calls.look("read", asked)
        looked_up = []
        stored = zip(records[::2], records[1::2], strict=True)
        for change, written, (record, document), answer in zip(changes, words, stored, said, strict=True):
            mine = (
                answer == 0
                and bool(record)
                and revision_of(record) == change.revision + 1
                and document == str(written[-1]).encode()
            )
            looked_up.append(change.revision + 1 if mine else answer)
        return looked_up

    async def change(self, task_id: str, decide: Callable[[Task, datetime], Task]) -> Task:
        """Let one task become what `decide` makes of it, and return it as it was written.

        Raises:
            TaskNotFound: there is no such task, or it cannot be read.
        """
        for _ in range(_ROUNDS):
            read = await self.read([task_id])
            known = read.found.get(task_id)
            if known is None:
                await self.set_aside(read.undecodable)
                raise TaskNotFound(task_id)
            after = decide(known.task, read.now)
            if after is known.task:
                return isolated(after)
            change = Change(known.revision, known.task, proven(after, known.task))
            (revision,) = await self.write([change])
            if revision < 0:
                change = change.as_nudged(nudged(change.after, read.now) or change.after)
                (revision,) = await self.write([change])
            if revision > 0:
                self.forget(task_id)
                return isolated(change.after)
        raise busy(task_id)


def busy(task_id: str) -> StoreUnavailable:
    """Return what is raised when others change a task faster than this process can."""
    return StoreUnavailable(f"task {task_id} is changed by others all the time; try again")
