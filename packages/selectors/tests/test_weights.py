from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from coatcheck import ConfigurationError, InvalidParams, Selection
from coatcheck_selectors import weighted

Make = Callable[..., Selection]


async def test_two_to_one_is_exactly_that_in_every_three(selection: Make) -> None:
    """Any three turns in a row have two a and one b, and no two b are ever neighbours."""
    choose = weighted({"a": 2, "b": 1})
    turns = [await choose(selection("a", "b")) for _ in range(30)]
    assert turns[:3] == ["a", "b", "a"]
    for begin in range(len(turns) - 2):
        assert Counter(turns[begin : begin + 3]) == {"a": 2, "b": 1}


async def test_the_interleaving_is_smooth(selection: Make) -> None:
    """Weights 5, 1 and 1 are spread out as nginx spreads them, and not five in a row."""
    choose = weighted({"a": 5, "b": 1, "c": 1})
    assert [await choose(selection(*"abc")) for _ in range(7)] == [*"aabacaa"]


async def test_one_table_covers_several_groups(selection: Make) -> None:
    """Each group has its own turns; who is not among the candidates takes none."""
    choose = weighted({"a": 3, "b": 1, "x": 1, "y": 1})
    ocr = [await choose(selection("a", "b")) for _ in range(2)]
    video = [await choose(selection("x", "y")) for _ in range(2)]
    ocr += [await choose(selection("a", "b")) for _ in range(2)]
    assert Counter(ocr) == {"a": 3, "b": 1}
    assert video == ["x", "y"]


async def test_large_weights_cost_nothing(selection: Make) -> None:
    """No list is as long as the weights are large."""
    choose = weighted({"a": 10**12, "b": 10**12})
    turns = [await choose(selection("a", "b")) for _ in range(4)]
    assert all(one != other for one, other in pairwise(turns))


async def test_a_candidate_without_a_weight_is_an_error_at_once(selection: Make) -> None:
    """Not when its turn would come; and the message says what is missing."""
    choose = weighted({"a": 100, "b": 1})
    with pytest.raises(ConfigurationError, match="no weight for 'c', which could take this task; add it"):
        await choose(selection("a", "b", "c"))
    assert await choose(selection("a", "b")) == "a"


@pytest.mark.parametrize("weight", [0, -1, 1.5, 2.0, "2", True, None])
def test_a_weight_is_a_positive_integer(weight: object) -> None:
    """Anything else is refused when the selector is made, by name."""
    with pytest.raises(InvalidParams, match=f"the weight of 'b' is a positive integer, not {weight!r}"):
        weighted({"a": 1, "b": weight})  # type: ignore[dict-item] # that is what is refused


def test_an_empty_table_is_refused() -> None:
    """It would be an error with every task."""
    with pytest.raises(InvalidParams, match="the table of weights is empty"):
        weighted({})


async def test_the_table_is_a_copy(selection: Make) -> None:
    """Who changes the dict later changes nothing."""
    table = {"a": 1}
    choose = weighted(table)
    table["a"] = 0
    assert await choose(selection("a")) == "a"
