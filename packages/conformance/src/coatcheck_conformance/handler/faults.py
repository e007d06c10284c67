"""Whatever a server may do instead of answering as it should, by name."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck_conformance.handler.replies import FOREIGN, SERVER, Ending, Reply

__all__ = [
    "CREATED_MAYBE",
    "SERVER_ERRORS",
    "SILENT",
    "lost",
    "redirects",
    "unreadable",
]

SERVER_ERRORS = (500, 502, 503, 504)
"""Answers of a provider, or of something before it, that prove nothing."""
CREATED_MAYBE = (301, 302, 303)
"""Redirects after which the job may well have been created: "look there"."""
SILENT = Reply.raw(b"", ending=Ending.STALL)
"""The request is read, and nothing comes."""


def lost(good: Reply) -> Mapping[str, Reply]:
    """Return ways to break a connection once the request was read; `good` is what is broken off."""
    return {
        "closed": Reply.raw(b""),
        "reset": Reply.raw(b"", ending=Ending.RESET),
        "closed inside the head": Reply.raw(b"HTTP/1.1 200 OK\r\ncontent-le"),
        "closed inside the body": good.cut(),
    }


def unreadable() -> Mapping[str, Reply]:
    """Return answers that look good, and are not what any documentation says."""
    return {
        "nothing": Reply.of(b""),
        "a page": Reply.of(b"<html><body>busy</body></html>", headers={"content-type": "text/html"}),
        "half a document": Reply.of(b'{"id": "x", "sta', headers={"content-type": "application/json"}),
        "a list": Reply.of([]),
        "null": Reply.of(None),
        "an empty object": Reply.of({}),
        "other types": Reply.of({"id": [], "task_id": {}, "status": {}, "data": 7, "output": True}),
        "no text": Reply.of(b"\xff\xfe\x00\x81", headers={"content-type": "application/json"}),
        "nested too deeply": Reply.of(b"[" * 200_000, headers={"content-type": "application/json"}),
        "a broken gzip": Reply.of(b"\x1f\x8b\x00 broken", headers={"content-encoding": "gzip"}),
        "an unknown encoding": Reply.of(b"\x0b\x02", headers={"content-encoding": "kit"}),
        "no HTTP": Reply.raw(b"SSH-2.0-OpenSSH_9.9\r\n"),
    }


def redirects(good: Reply, *, foreign: bool) -> Mapping[int, Reply]:
    """Return redirects, by status, to the other server or to another path of this one."""
    place = f"{FOREIGN if foreign else SERVER}/kit-moved"
    return {
        status: Reply(status=status, headers={**good.headers, "location": place}, body=good.body)
        for status in (301, 302, 303, 307, 308)
    }
