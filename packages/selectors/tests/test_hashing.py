from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from coatcheck import InvalidParams, PluginError, Selection
from coatcheck_selectors import consistent_hash, sticky_by_tenant

Make = Callable[..., Selection]
TEN = tuple(f"ocr:{number}" for number in range(10))


@frozen
class Document:
    """Params with a key in them."""

    owner: dict[str, Any]


def owner_of(selection: Selection) -> str:
    """Return the owner's name, as an application would."""
    return str(selection.params.owner["name"])  # type: ignore[attr-defined] # of this params type


async def test_the_same_key_goes_to_the_same_handler(selection: Make) -> None:
    """Whatever else the submission has, and whichever instance is asked."""
    choose, again = consistent_hash("metadata.user"), consistent_hash("metadata.user")
    for number in range(50):
        metadata = {"user": f"user-{number}"}
        chosen = await choose(selection(*TEN, metadata=metadata))
        assert chosen == await again(selection(*TEN[::-1], metadata=metadata, tenant_id="t"))


async def test_placement_never_changes_between_versions(selection: Make) -> None:
    """Keys stay where they are when this library is updated: these placements are for ever."""
    choose = consistent_hash(lambda each: str(each.params))
    placed = [await choose(selection("a", "b", "c", params=f"key {number}")) for number in range(12)]
    assert "".join(placed) == "ccacacbbabac"


async def test_removing_one_of_ten_moves_about_a_tenth_and_only_its_own(selection: Make) -> None:
    """And adding it again brings back exactly those."""
    choose = consistent_hash(lambda each: str(each.params))
    before = {str(n): await choose(selection(*TEN, params=n)) for n in range(2_000)}
    after = {str(n): await choose(selection(*TEN[:4], *TEN[5:], params=n)) for n in range(2_000)}
    moved = {key for key in before if before[key] != after[key]}
    assert moved == {key for key, handler in before.items() if handler == TEN[4]}
    assert 150 < len(moved) < 250
    spread = Counter(after[key] for key in moved)
    assert set(spread) == {*TEN} - {TEN[4]}


@pytest.mark.parametrize("extractor", [owner_of, f"{__name__}:owner_of", "params.owner.name"])
async def test_the_key_is_found_by_a_function_or_a_path(
    selection: Make, extractor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As configuration or code has it."""
    monkeypatch.setattr("coatcheck_selectors.hashing.imported", lambda _: owner_of)
    choose = consistent_hash(extractor)
    by_text = consistent_hash("tenant_id")
    document = Document({"name": "ann"})
    assert await choose(selection(*TEN, params=document)) == await by_text(selection(*TEN, tenant_id="ann"))


@pytest.mark.parametrize("key", ["", "  ", None, 7, b"x"])
async def test_a_key_is_text_that_is_not_blank(selection: Make, key: object) -> None:
    """Anything else is refused, with the value: it would put everybody on one handler, or change with each process."""
    choose = consistent_hash(lambda _: key)  # type: ignore[arg-type,return-value] # that is what is refused
    with pytest.raises(InvalidParams, match="is text that is not blank, not "):
        await choose(selection("a", "b"))


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("tenant_id", {}),
        ("metadata.user", {}),
        ("metadata.user.id", {"metadata": {"user": None}}),
        ("params.x", {}),
    ],
)
async def test_a_submission_without_the_key_is_told(
    selection: Make, path: str, options: dict[str, Any]
) -> None:
    """The message says what is missing and what to do."""
    with pytest.raises(InvalidParams, match=f"this submission has no {path}, by which the handler is chosen"):
        await consistent_hash(path)(selection("a", "b", **options))


@pytest.mark.parametrize("path", ["", "params", "metadata", "tenant", "tenant_id.", "params..x", "options.x"])
def test_a_path_that_leads_nowhere_is_refused_when_it_is_made(path: str) -> None:
    """Not with the first task."""
    with pytest.raises(InvalidParams, match="is no place of a key"):
        consistent_hash(path)


def test_a_reference_that_cannot_be_imported_is_told() -> None:
    """By its name."""
    with pytest.raises(PluginError, match="'coatcheck_selectors.nowhere:key' cannot be imported"):
        consistent_hash("coatcheck_selectors.nowhere:key")


async def test_a_tenant_stays_where_it_is(selection: Make) -> None:
    """In every process; submissions of no tenant take turns, or as another selector says."""
    choose = sticky_by_tenant()
    homes = {
        tenant: await choose(selection(*TEN, tenant_id=tenant)) for tenant in ("acme", "umbrella", "zeta")
    }
    for tenant, home in homes.items():
        assert await sticky_by_tenant()(selection(*TEN, tenant_id=tenant, priority=3)) == home
    assert [await choose(selection("a", "b")) for _ in range(3)] == ["a", "b", "a"]

    async def last(selection: Selection) -> str:
        return selection.candidates[-1]

    assert await sticky_by_tenant(last)(selection("a", "b")) == "b"
