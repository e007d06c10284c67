"""The Lua scripts: each step of the store is one, put together from its file and the shared parts that it names."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

from attrs import frozen

__all__ = ["Script", "script"]

_SHARED = re.compile(r"^-- shared: (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@frozen
class Script:
    """One script, as the server gets it."""

    name: str
    text: str
    sha: str
    """Under which the server knows it once it has been run."""


@cache
def script(name: str) -> Script:
    """Return the script of a step."""
    folder = files("coatcheck_store_redis") / "scripts"
    own = (folder / f"{name}.lua").read_text("utf-8")
    shared = _SHARED.search(own)
    parts = shared.group(1).split() if shared else []
    texts = [(folder / "shared" / f"{part}.lua").read_text("utf-8") for part in parts]
    text = _COMMENT.sub("", "\n".join([*texts, own]))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
