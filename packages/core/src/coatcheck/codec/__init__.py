"""Tasks as JSON, exactly: what goes in comes out equal, and what cannot is refused before it is written.

Documents leave out what is at its default, hold times as whole milliseconds since 1970, and keep fields that
this version does not know, in the task and in each part of it. No class name is ever stored, and none is
imported.
"""

from __future__ import annotations

from coatcheck.codec.copies import copy_json, isolated
from coatcheck.codec.documents import FIELDS, decode_task, encode_fields, encode_task
from coatcheck.codec.gates import decode_gate, decode_gate_records, encode_gate, encode_gate_records
from coatcheck.codec.parts import Document
from coatcheck.codec.texts import digest, dumps, loads

__all__ = [
    "FIELDS",
    "Document",
    "copy_json",
    "decode_gate",
    "decode_gate_records",
    "decode_task",
    "digest",
    "dumps",
    "encode_fields",
    "encode_gate",
    "encode_gate_records",
    "encode_task",
    "isolated",
    "loads",
]
