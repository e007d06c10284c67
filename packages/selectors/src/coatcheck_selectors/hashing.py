"""The same key, the same handler: rendezvous hashing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias, cast

from attrs import field, fields_dict, frozen

from coatcheck import InvalidParams, Selection, Selector, SubmitOptions
from coatcheck.hooks import is_reference
from coatcheck.recipes import imported
from coatcheck_selectors.sequences import in_order
from coatcheck_selectors.turns import RoundRobin

__all__ = [
    "ConsistentHash",
    "ConsistentHashSettings",
    "Extractor",
    "StickyByTenant",
    "consistent_hash",
    "create_consistent_hash",
    "sticky_by_tenant",
]

Extractor: TypeAlias = Callable[[Selection], str]
"""Returns what a submission is known by, such as its user: text that is not empty, and always the same."""


def most_fitting(key: str, candidates: Sequence[str]) -> str:
    """Return the candidate that scores highest with `key`.

    Each pair has a score of its own, the same in every process. So a candidate that goes leaves its keys to the
    others, one that comes takes its share of keys, and no other key moves.
    """
    prefix = f"{len(key)}:{key}"
    return max(candidates, key=lambda candidate: (_score(prefix + candidate), candidate))


def _score(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@frozen(kw_only=True, eq=False)
class ConsistentHash:
    """Gives all submissions of one key to one handler, for as long as that is there."""

    extractor: Extractor

    async def __call__(self, selection: Selection) -> str:
        """Return the handler of this key.

        Raises:
            InvalidParams: the submission has no key, or one that is no text or is empty.
        """
        key = self.extractor(selection)
        if not isinstance(key, str) or not key.strip():
            message = (
                f"the key that chooses among {', '.join(selection.candidates)} is text that is not blank, "
                f"not {key!r}, which {self.extractor!r} returned"
            )
            raise InvalidParams(message)
        return most_fitting(key, in_order(selection))


@frozen(kw_only=True)
class ConsistentHashSettings:
    """Settings of the selector ``consistent-hash``."""

    extractor: str
    """As for `consistent_hash`, as text."""


def consistent_hash(extractor: Extractor | str) -> ConsistentHash:
    """Return a selector that gives all submissions of one key to the same handler.

    Args:
        extractor: a function that returns the key of a `Selection`; or, as text, where the key stands:
            ``params.user.id``, ``metadata.user``, an option such as ``tenant_id``, or the
            ``module:attribute`` of such a function.

    Raises:
        InvalidParams: the text is none of these.
        PluginError: what it refers to cannot be imported.
    """
    if not isinstance(extractor, str):
        return ConsistentHash(extractor=extractor)
    if is_reference(extractor):
        return ConsistentHash(extractor=cast("Extractor", imported(extractor)))
    return ConsistentHash(extractor=_At(extractor))


def create_consistent_hash(settings: ConsistentHashSettings) -> ConsistentHash:
    """Return what configuration asks for."""
    return consistent_hash(settings.extractor)


@frozen
class _At:
    """Finds the key by its place."""

    path: str

    def __attrs_post_init__(self) -> None:
        first, *more = self.path.split(".")
        known = {*fields_dict(SubmitOptions)} - {"metadata"}
        if not all((first, *more)) or not (more if first in {"params", "metadata"} else first in known):
            message = (
                f"{self.path!r} is no place of a key; write params.FIELD, metadata.NAME, an option such as "
                "tenant_id, or the module:attribute of a function"
            )
            raise InvalidParams(message)

    def __call__(self, selection: Selection) -> str:
        first, *more = self.path.split(".")
        found: object = selection.params if first == "params" else selection.options.get(first)
        for name in more:
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if found is None:
            message = (
                f"this submission has no {self.path}, by which the handler is chosen; give it one, "
                "or name the handler with SubmitOptions(handler_key=...)"
            )
            raise InvalidParams(message)
        return cast("str", found)  # the selector looks


@frozen(kw_only=True, eq=False)
class StickyByTenant:
    """Gives all tasks of a tenant to one handler, and those of no tenant to whom another selector takes."""

    otherwise: Selector = field(factory=RoundRobin)
    """Who chooses for submissions without a tenant."""

    async def __call__(self, selection: Selection) -> str:
        """Return the tenant's handler."""
        tenant_id = selection.options.get("tenant_id")
        if not isinstance(tenant_id, str):
            return await self.otherwise(selection)
        return most_fitting(tenant_id, in_order(selection))


def sticky_by_tenant(otherwise: Selector | None = None) -> StickyByTenant:
    """Return a selector that keeps each tenant with one handler; `otherwise` is for submissions of no tenant."""
    return StickyByTenant(otherwise=otherwise or RoundRobin())
