"""Gates and their history as JSON, for stores that keep them so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from coatcheck.errors import StoreError
from coatcheck.gates import Gate, GateAction, GateRecord, Pause, Rate
from coatcheck.task import JSON, as_millis, from_millis, millis

__all__ = ["decode_gate", "decode_gate_records", "encode_gate", "encode_gate_records"]


_ACTIONS = {action.value: action for action in GateAction}


def encode_gate(gate: Gate) -> dict[str, JSON]:
    """Return a gate as a document."""
    document: dict[str, JSON] = {"name": gate.name, "concurrency": gate.concurrency}
    if gate.rate is not None:
        document["rate"] = [gate.rate.count, millis(gate.rate.per)]
    if gate.pause is not None:
        document["pause"] = {
            "reason": gate.pause.reason,
            "who": gate.pause.who,
            "since": as_millis(gate.pause.since),
            "until": None if gate.pause.until is None else as_millis(gate.pause.until),
        }
    return document


def decode_gate(document: dict[str, Any]) -> Gate:
    """Return the gate of a document.

    Raises:
        StoreError: this version cannot read it.
    """
    try:
        rate, pause = document.get("rate"), document.get("pause")
        return Gate(
            name=document["name"],
            concurrency=document["concurrency"],
            rate=Rate(rate[0], timedelta(milliseconds=rate[1])) if rate else None,
            pause=Pause(
                reason=pause["reason"],
                who=pause["who"],
                since=from_millis(pause["since"]),
                until=None if pause["until"] is None else from_millis(pause["until"]),
            )
            if pause
            else None,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(f"the gate {document!r} cannot be read by this version: {error!r}") from error


def encode_gate_records(history: Iterable[GateRecord]) -> list[JSON]:
    """Return a gate's history as a list of documents."""
    documents: list[JSON] = []
    for record in history:
        document: dict[str, JSON] = {
            "action": str(record.action),
            "at": as_millis(record.at),
            "gate": encode_gate(record.gate),
        }
        for name in ("who", "reason"):
            if getattr(record, name) is not None:
                document[name] = getattr(record, name)
        if record.times != 1:
            document["times"] = record.times
        documents.append(document)
    return documents


def decode_gate_records(documents: Sequence[Any]) -> tuple[GateRecord, ...]:
    """Return the history of such a list.

    Raises:
        StoreError: this version cannot read it.
    """
    try:
        return tuple(
            GateRecord(
                action=_ACTIONS.get(document["action"], document["action"]),
                at=from_millis(document["at"]),
                who=document.get("who"),
                reason=document.get("reason"),
                gate=decode_gate(document["gate"]),
                times=document.get("times", 1),
            )
            for document in documents
        )
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(f"a gate's history cannot be read by this version: {error!r}") from error
