"""Names of gates as the command line takes them: built, or checked where somebody typed one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from urllib.parse import quote, unquote

from coatcheck_cli.failing import Exit, Failure

__all__ = ["build_name", "check_name", "missing_gate"]

_PARTS: Mapping[str, tuple[str, ...]] = {
    "provider": ("PROVIDER",),
    "account": ("PROVIDER", "ACCOUNT"),
    "tenant": ("TENANT",),
    "query": ("PROVIDER",),
}
"""What names of the standard kinds are made of."""


def build_name(kind: str, parts: Sequence[str]) -> str:
    """Return the name of the gate of `kind` for these parts.

    Raises:
        Failure: the parts are not those of the kind, or the kind is no word.
    """
    from coatcheck import gates  # noqa: PLC0415 - help has no use for it

    wanted = _PARTS.get(kind)
    if wanted is not None and len(parts) != len(wanted):
        message = f"a gate of kind {kind!r} is named by {' and '.join(wanted)}; {len(parts)} were given"
        raise Failure(message, Exit.USAGE)
    if wanted is None and not parts:
        close = get_close_matches(kind, _PARTS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"standard kinds are {', '.join(_PARTS)}"
        raise Failure(f"{kind!r} alone names no gate; {hint}", Exit.USAGE)
    return gates.named(kind, *parts)


def check_name(name: str, known: Collection[str] = ()) -> None:
    """Refuse a name that no task can pass, unless there is such a gate.

    Raises:
        Failure: it is not written as `coatcheck.gates` builds names; the right one is told where it can be guessed.
    """
    if name in known:
        return
    kind, *parts = name.split("/")
    wanted = _PARTS.get(kind)
    built = [quote(unquote(part), safe="") for part in parts]
    shape = wanted is None or len(parts) == len(wanted)
    if kind and all(parts) and shape and built == parts and (parts or wanted is None):
        return
    if kind in _PARTS and shape and all(parts):
        told = f"it is written {'/'.join([kind, *built])!r}"
    elif wanted is not None:
        told = f"build it with `coatcheck gates name {kind} {' '.join(wanted)}`"
    else:
        told = "build it with `coatcheck gates name KIND PART...`"
    raise Failure(f"{name!r} is no gate's name; {told}", Exit.USAGE)


def missing_gate(name: str, known: Collection[str]) -> Failure:
    """Return the failure for a gate that is not there, with the nearest that is."""
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`coatcheck gates list` shows those that are"
    return Failure(f"there is no gate {name!r}; {hint}", Exit.NOT_FOUND)
