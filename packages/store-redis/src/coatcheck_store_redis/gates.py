"""Gates: setting, pausing, how they stand, and who has changed them (S11)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import cast

from coatcheck.codec import decode_gate_records, dumps, loads
from coatcheck.gates import MAX_GATE_RECORDS, Gate, GateRecord, GateUsage, Pause, Rate
from coatcheck.task import from_millis, millis
from coatcheck_store_redis.calls import Calls, Words

__all__ = ["delete_gate", "gate_history", "gate_usages", "pause_gate", "resume_gate", "set_gate"]

_AT_ONCE = 200
_FIELDS = 11


async def set_gate(
    calls: Calls, wanted: Gate, who: str | None, reason: str | None, *, only_if_new: bool
) -> None:
    """Set a gate's limits, leaving its pause; one that was only ever paused counts as new."""
    rate = wanted.rate
    words = (
        "set",
        "" if wanted.concurrency is None else wanted.concurrency,
        "" if rate is None else rate.count,
        "" if rate is None else millis(rate.per),
        "1" if only_if_new else "",
    )
    await _change(calls, wanted.name, who, reason, words)


async def pause_gate(
    calls: Calls, name: str, who: str | None, reason: str, duration: timedelta | None
) -> None:
    """Pause a gate, unless a pause that lasts longer is in force."""
    await _change(calls, name, who, reason, ("pause", "" if duration is None else millis(duration)))


async def resume_gate(calls: Calls, name: str, who: str | None, reason: str | None) -> None:
    """Undo a pause."""
    await _change(calls, name, who, reason, ("resume",))


async def delete_gate(calls: Calls, name: str, who: str | None, reason: str | None) -> None:
    """Forget a gate's limits and pause."""
    await _change(calls, name, who, reason, ("delete",))


async def _change(calls: Calls, name: str, who: str | None, reason: str | None, words: Words) -> None:
    texts = dumps(name, path="name"), dumps(who, path="who"), dumps(reason, path="reason")
    with calls.marks.one() as mark:
        await calls.step("gate", (*mark, name, *texts, MAX_GATE_RECORDS, *words))


async def gate_history(calls: Calls, name: str) -> list[GateRecord]:
    """Return what was done to a gate, the oldest first."""
    told = await calls.look("history", (name,))
    return list(decode_gate_records([loads(each) for each in told]))


async def gate_usages(calls: Calls, names: Collection[str] | None) -> list[GateUsage]:
    """Return the defined gates, or those of `names`, by name."""
    usages: list[GateUsage] = []
    if names is not None:
        wanted = sorted({*names})
        for first in range(0, len(wanted), _AT_ONCE):
            _, *told = await calls.look("usage", ("named", *wanted[first : first + _AT_ONCE]))
            usages += _usages(told)
        return sorted(usages, key=lambda usage: usage.gate.name)
    after = b""
    while True:
        after, *told = await calls.look("usage", ("all", after, _AT_ONCE))
        usages += _usages(told)
        if not after:
            return sorted(usages, key=lambda usage: usage.gate.name)


def _usages(told: list[bytes]) -> list[GateUsage]:
    return [_usage(told[first : first + _FIELDS]) for first in range(0, len(told), _FIELDS)]


def _usage(told: list[bytes]) -> GateUsage:
    name, concurrency, count, per, paused, reason, who, since, until, used, granted = told
    pause = None
    if paused:
        pause = Pause(
            reason=cast("str", loads(reason)),
            who=cast("str | None", loads(who)),
            since=from_millis(int(since)),
            until=from_millis(int(until)) if until else None,
        )
    gate = Gate(
        name=name.decode(),
        concurrency=int(concurrency) if concurrency else None,
        rate=Rate(int(count), timedelta(milliseconds=int(per))) if count else None,
        pause=pause,
    )
    return GateUsage(gate=gate, used=int(used), granted=int(granted))
