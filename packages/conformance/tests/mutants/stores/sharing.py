"""Mutants of S11 and S15: several processes."""

from __future__ import annotations

import asyncio

import pytest
from file_store import FileStore, NotifyingFileStore

from coatcheck import lifecycle
from coatcheck.locked import claims, entries
from coatcheck.locked.claims import Claimant
from coatcheck.locked.gatekeeper import Gatekeeper
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.snapshots import proven
from coatcheck.store import Claims
from coatcheck.task import Status
from mutants.stores import Base, breaks_store

_MEANWHILE_SECONDS = 0.004


class _Seen(Exception):
    """Carries what a section would have come to out of it, undone."""


async def _seen(store, look):
    """Return what `look` comes to, without doing it, and let others do something meanwhile."""

    def see(ledger):
        raise _Seen(look(ledger))

    try:
        await store._do(see)
    except _Seen as seen:
        if seen.args[0]:
            await asyncio.sleep(_MEANWHILE_SECONDS)
        return seen.args[0]


@breaks_store("STORE-SHARE-1", base=Base.FILE)
def claims_what_it_saw(patch: pytest.MonkeyPatch) -> None:
    """Looks for tasks in one transaction, and takes them in the next, whoever has them by then."""

    async def claim_submissions(self, worker_id, handler_keys, limit, lease):
        claimant = Claimant(worker_id, handler_keys, limit, lease)
        seen = await _seen(self, lambda ledger: claims.claim_submissions(ledger, claimant).tasks)

        def take(ledger):
            got = claims.claim_submissions(ledger, Claimant(worker_id, handler_keys, limit, lease))
            mine = {task.id for task in got.tasks}
            gone = [task for task in seen if task.id not in mine]
            taken = [task for task in gone if ledger.load(task.id).status is Status.SUBMITTING]
            return Claims((*got.tasks, *map(ledger.keep, taken)), again=got.again)

        return await self._do(take)

    patch.setattr(FileStore, "claim_submissions", claim_submissions)


def _counts_too_early(patch: pytest.MonkeyPatch, counter: str) -> None:
    """Count in one transaction what a gate has left, and take it in the next."""

    async def claim_submissions(self, worker_id, handler_keys, limit, lease):
        claimant = Claimant(worker_id, handler_keys, limit, lease)

        def count(ledger):
            return {name: getattr(ledger.gates.state(name), counter) for name in ledger.gates.names()}

        before = await _seen(self, count)

        def take(ledger):
            more = {
                name: getattr(ledger.gates.state(name), counter) - known for name, known in before.items()
            }
            more = {name: count for name, count in more.items() if count > 0}
            for name, count in more.items():
                state = ledger.gates.state(name)
                setattr(state, counter, getattr(state, counter) - count)
                ledger.submissions.look_over(name)
            got = claims.claim_submissions(ledger, claimant)
            for name, count in more.items():
                state = ledger.gates.state(name)
                setattr(state, counter, getattr(state, counter) + count)
            return got

        return await self._do(take)

    patch.setattr(FileStore, "claim_submissions", claim_submissions)


@breaks_store("STORE-SHARE-2", base=Base.FILE)
def counts_slots_too_early(patch: pytest.MonkeyPatch) -> None:
    """Counts in one transaction which slots are held, and takes what is left in the next."""
    _counts_too_early(patch, "used")


@breaks_store("STORE-SHARE-3", base=Base.FILE)
def counts_grants_too_early(patch: pytest.MonkeyPatch) -> None:
    """Counts in one transaction the grants of the window, and takes what is left in the next."""
    _counts_too_early(patch, "granted")


@breaks_store("STORE-SHARE-4", base=Base.FILE)
def checks_keys_too_early(patch: pytest.MonkeyPatch) -> None:
    """Looks in one transaction whether a key is taken, and adds in the next."""
    good, good_add, holder_of = FileStore.add, Ledger.add, Ledger.holder_of

    async def add(self, drafts, *, transaction=None):
        def free_keys(ledger):
            keyed = [draft for draft in drafts if draft.identity.dedup_key]
            tasks = [proven(lifecycle.created(draft, ledger.now)) for draft in keyed]
            return {entries.dedup_key(task) for task in tasks if ledger.holder_of(task) is None}

        free = await _seen(self, free_keys)

        def not_held(ledger, task):
            return None if entries.dedup_key(task) in free else holder_of(ledger, task)

        def taken(ledger, task):
            free.discard(entries.dedup_key(task))
            return good_add(ledger, task)

        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Ledger, "holder_of", not_held)
            meanwhile.setattr(Ledger, "add", taken)
            return await good(self, drafts, transaction=transaction)

    patch.setattr(FileStore, "add", add)


@breaks_store("STORE-SHARE-5", base=Base.FILE)
def knows_only_its_own_leases(patch: pytest.MonkeyPatch) -> None:
    """Watches over the leases that it gave itself: those of a process that died end unnoticed."""
    ours: set[str] = set()
    good, sweep = Claimant.__init__, Ledger._sweep

    def init(self, *args):
        good(self, *args)
        ours.add(self.nonce)

    patch.setattr(Claimant, "__init__", init)
    patch.setattr(Ledger, "_sweep", lambda self, key: sweep(self, key) if key[2] in ours else 1)


@breaks_store("STORE-SHARE-6", base=Base.NOTIFYING)
def hears_no_other_process(patch: pytest.MonkeyPatch) -> None:
    """Declares that it notifies, and polls."""
    patch.setattr(NotifyingFileStore, "_look_again", lambda _: None)


@breaks_store("STORE-SHARE-7", base=Base.FILE)
def remembers_gates(patch: pytest.MonkeyPatch) -> None:
    """Reads a gate's limits and pause once, and then knows them."""
    good, read, define, forget = FileStore._step, Gatekeeper._read, Gatekeeper.define, Gatekeeper.forget

    def step(self, work):
        known = self.__dict__.setdefault("known", {})

        def knowing(ledger):
            ledger.gates.known = known
            return work(ledger)

        return good(self, knowing)

    def read_once(self, name):
        state = read(self, name)
        state.gate = self.known.setdefault(name, state.gate)
        return state

    def define_known(self, gate):
        define(self, gate)
        self.known[gate.name] = gate

    def forget_known(self, name):
        forget(self, name)
        self.known[name] = None

    patch.setattr(FileStore, "_step", step)
    patch.setattr(Gatekeeper, "_read", read_once)
    patch.setattr(Gatekeeper, "define", define_known)
    patch.setattr(Gatekeeper, "forget", forget_known)
