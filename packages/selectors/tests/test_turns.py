from collections import Counter
from collections.abc import Callable

from coatcheck import Selection
from coatcheck_selectors import random, round_robin
from coatcheck_selectors.sequences import MAX_SETS

Make = Callable[..., Selection]


async def test_round_robin_goes_round_in_the_order_of_keys(selection: Make) -> None:
    """Whatever order the candidates are told in, turns go by key."""
    choose = round_robin()
    assert [await choose(selection("b", "c", "a")) for _ in range(7)] == [*"abcabca"]


async def test_each_set_of_candidates_has_its_own_sequence(selection: Make) -> None:
    """OCR never takes video's turn, and a set that loses a member begins anew."""
    choose = round_robin()
    turns = [(await choose(selection("a", "b")), await choose(selection("x", "y", "z"))) for _ in range(4)]
    assert turns == [("a", "x"), ("b", "y"), ("a", "z"), ("b", "x")]
    assert await choose(selection("x", "z")) == "x"


async def test_two_selectors_have_nothing_to_do_with_each_other(selection: Make) -> None:
    """No state is global."""
    one, other = round_robin(), round_robin()
    assert await one(selection("a", "b")) == await other(selection("a", "b")) == "a"


async def test_sets_that_were_not_asked_for_long_are_forgotten(selection: Make) -> None:
    """Ever new sets of candidates do not fill the memory."""
    choose = round_robin()
    await choose(selection("a", "b"))
    for number in range(MAX_SETS):
        await choose(selection("a", f"n{number}"))
    assert await choose(selection("a", "b")) == "a"


async def test_chance_is_fair_and_repeatable(selection: Make) -> None:
    """Each is as likely as the others, and a seed gives the same sequence, in each set of candidates by itself."""
    choose = random(seed=1)
    counted = Counter([await choose(selection("a", "b", "c")) for _ in range(3_000)])
    assert all(900 < counted[key] < 1_100 for key in "abc")
    one, other = random(seed=2), random(seed=2)
    first = [await one(selection("a", "b")) for _ in range(30)]
    second = []
    for _ in range(30):
        await other(selection("x", "y", "z"))
        second.append(await other(selection("a", "b")))
    assert first == second
    assert first != [await random(seed=3)(selection("a", "b")) for _ in range(30)]


async def test_without_a_seed_chance_differs(selection: Make) -> None:
    """Two processes do not throw the same dice."""
    one, other = random(), random()
    assert [await one(selection(*"abcd")) for _ in range(50)] != [
        await other(selection(*"abcd")) for _ in range(50)
    ]
