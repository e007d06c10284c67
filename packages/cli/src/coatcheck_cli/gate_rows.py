"""How gates are shown: the columns, which scripts may rely on, and words for people."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from coatcheck_cli.output import duration_text, time_text

if TYPE_CHECKING:
    from coatcheck.gates import Gate, GateRecord, GateUsage, Rate

__all__ = [
    "APPLIED",
    "HISTORY",
    "LIST",
    "applied_row",
    "change_row",
    "gate_row",
    "limits_of",
    "limits_text",
    "rate_text",
    "state_of",
]

LIST = ("name", "concurrency", "used", "rate", "granted", "paused", "until", "reason", "who")
HISTORY = ("at", "action", "who", "reason", "times", "concurrency", "rate", "paused", "until")
APPLIED = ("name", "change", "concurrency", "rate", "concurrency_before", "rate_before")


def gate_row(usage: GateUsage, now: datetime) -> dict[str, object]:
    """Return a gate as `gates list` shows it; a pause that is over is none."""
    gate = usage.gate
    pause = gate.pause if gate.paused_at(now) else None
    return {
        "name": gate.name,
        "concurrency": gate.concurrency,
        "used": usage.used,
        "rate": rate_text(gate.rate),
        "granted": usage.granted,
        "paused": pause is not None,
        "until": pause and pause.until,
        "reason": pause and pause.reason,
        "who": pause and pause.who,
    }


def change_row(record: GateRecord) -> dict[str, object]:
    """Return a change of a gate as `gates show` lists it."""
    gate = record.gate
    return {
        "at": record.at,
        "action": str(record.action),
        "who": record.who,
        "reason": record.reason,
        "times": record.times,
        "concurrency": gate.concurrency,
        "rate": rate_text(gate.rate),
        "paused": gate.pause is not None,
        "until": gate.pause and gate.pause.until,
    }


def applied_row(gate: Gate, before: Gate | None, change: str) -> dict[str, object]:
    """Return what `gates apply` says of a gate."""
    return {
        "name": gate.name,
        "change": change,
        "concurrency": gate.concurrency,
        "rate": rate_text(gate.rate),
        "concurrency_before": before and before.concurrency,
        "rate_before": rate_text(before.rate) if before else None,
    }


def rate_text(rate: Rate | None) -> str | None:
    """Return a rate as it is written in configuration, such as ``5/s`` or ``10/30s``."""
    if rate is None:
        return None
    whole = {timedelta(milliseconds=1): "ms", timedelta(seconds=1): "s", timedelta(minutes=1): "m"}
    whole |= {timedelta(hours=1): "h", timedelta(days=1): "d"}
    if rate.per in whole:
        return f"{rate.count}/{whole[rate.per]}"
    if rate.per % timedelta(seconds=1):
        return f"{rate.count}/{rate.per / timedelta(milliseconds=1):g}ms"
    return f"{rate.count}/{duration_text(rate.per)}"


def limits_of(gate: Gate | None) -> str:
    """Return a gate's limits in words."""
    return "no such gate" if gate is None else limits_text(gate.concurrency, gate.rate)


def limits_text(concurrency: int | None, rate: Rate | None) -> str:
    """Return limits in words."""
    told = [f"concurrency {concurrency}"] if concurrency is not None else []
    told += [f"rate {rate_text(rate)}"] if rate is not None else []
    return ", ".join(told) or "no limits"


def state_of(gate: Gate, now: datetime) -> str:
    """Return a gate's limits and its pause in words."""
    if gate.pause is None or not gate.paused_at(now):
        return limits_of(gate)
    until = f"until {time_text(gate.pause.until)}" if gate.pause.until else "until it is resumed"
    who = f" by {gate.pause.who}" if gate.pause.who else ""
    return f"{limits_of(gate)}, paused {until}{who}: {gate.pause.reason}"
