"""What a `LockedStore` does to tallies, inside one exclusive section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from coatcheck.locked.ledger import Ledger
from coatcheck.tallies import Count, Counted, Tally, counted
from coatcheck.task import as_millis, from_millis, millis

__all__ = ["count", "tallies"]

SWEEP = 100
"""How many forgotten tallies one step deletes at most, beside as many as it counts on."""


def count(ledger: Ledger, counts: Sequence[Count]) -> list[Counted]:
    """Count, in order (S21)."""
    _sweep(ledger, SWEEP + len(counts))
    return [_count(ledger, each) for each in counts]


def _count(ledger: Ledger, wanted: Count) -> Counted:
    now = as_millis(ledger.now)
    total, until = _read(ledger, wanted.name)
    answer = counted(wanted, total if until > now else 0, now)
    if answer.counted and wanted.amount:
        expires = max(until, now + millis(wanted.lifetime))
        ledger.records.delete(("expiry", from_millis(until), wanted.name))
        ledger.records.put(("tally", wanted.name), [answer.total, expires])
        ledger.records.mark(("expiry", from_millis(expires), wanted.name))
    return answer


def _read(ledger: Ledger, name: str) -> tuple[int, int]:
    known = cast("list[int] | None", ledger.records.get(("tally", name)))
    return (known[0], known[1]) if known else (0, 0)


def _sweep(ledger: Ledger, limit: int) -> None:
    """Delete some of those that nobody has counted on for their lifetime."""
    for key in ledger.records.scan(("expiry",), ("expiry", ledger.now), limit):
        ledger.records.delete(key)
        ledger.records.delete(("tally", key[2]))


def tallies(ledger: Ledger, prefix: str, limit: int) -> list[Tally]:
    """Return those whose names begin so, by name (S21)."""
    found: list[Tally] = []
    now = as_millis(ledger.now)
    for key in ledger.records.under(("tally",)):
        name = str(key[1])
        if not name.startswith(prefix):
            continue
        total, until = _read(ledger, name)
        if until > now and len(found) < limit:
            found.append(Tally(name=name, total=total, expires_at=from_millis(until)))
    return found
