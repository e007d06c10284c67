"""Of whichever four numbers a provider gives, one box."""

from __future__ import annotations

import pytest

from coatcheck.task import JSON
from coatcheck_handler_ocr.boxes import Box, box_around, box_of, numbers_at, sized_box


@pytest.mark.parametrize(
    ("told", "sides", "sized"),
    [
        ([1, 2, 3, 4.5], (1.0, 2.0, 3.0, 4.5), (1.0, 2.0, 4.0, 6.5)),
        ([1, 2, 3], None, None),
        ([1, 2, 3, 4, 5], None, None),
        ([1, 2, True, 4], None, None),
        ([1, 2, "3", 4], None, None),
        ("1234", None, None),
        (None, None, None),
    ],
)
def test_a_box_is_four_numbers(told: JSON, sides: Box | None, sized: Box | None) -> None:
    """Whatever else stands there is no box."""
    numbers = numbers_at({"page": {"box": told}}, "page.box")
    assert (box_of(numbers), sized_box(numbers)) == (sides, sized)


def test_a_box_around_points_is_upright() -> None:
    """And there is none around nothing."""
    assert box_around([(3.0, 1.0), (1.0, 2.0), (2.0, 4.0)]) == (1.0, 1.0, 3.0, 4.0)
    assert box_around([]) is None
