"""Tallies: counting together, and how they stand (S21)."""

from __future__ import annotations

from collections.abc import Sequence

from coatcheck.codec import dumps
from coatcheck.tallies import Count, Counted, Tally, counted
from coatcheck.task import from_millis, millis
from coatcheck_store_redis.calls import Calls

__all__ = ["count", "tallies"]

_LISTED_AT_ONCE = 500


async def count(calls: Calls, counts: Sequence[Count]) -> list[Counted]:
    """Count, in order, all or none.

    Raises:
        InvalidParams: a total would leave the range of `MAX_TALLY`.
    """
    if not counts:
        return []
    words: list[str | int] = []
    for each in counts:
        dumps(each.name, path="name")  # refuses what is no text
        most = "" if each.at_most is None else each.at_most
        words += (each.name, each.amount, most, "1" if each.clock else "", millis(each.lifetime))
    with calls.marks.one() as mark:
        first, *told = await calls.step("count", (*mark, *words))
    if first:
        counted(counts[int(first)], int(told[0]), 0)  # raises, and says what is wrong
    numbers = iter(map(int, told))
    return [
        Counted(before, total, counted=bool(made))
        for before, total, made in zip(numbers, numbers, numbers, strict=True)
    ]


async def tallies(calls: Calls, prefix: str, limit: int) -> list[Tally]:
    """Return the tallies whose names begin so, by name: the first `limit`."""
    start = prefix.encode("utf-8", "surrogatepass")
    first, last = b"[" + start, b"(" + start + b"\xff"  # which no text has in it
    found: list[Tally] = []
    while len(found) < limit:
        wanted = min(limit - len(found), _LISTED_AT_ONCE)
        after, *told = await calls.look("tallies", (first, last, wanted))
        texts = iter(told)
        found += [
            Tally(name=name.decode(), total=int(total), expires_at=from_millis(int(ends)))
            for name, total, ends in zip(texts, texts, texts, strict=True)
        ]
        if not after:
            break
        first = b"(" + after
    return found
