from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from attrs import field, frozen

from coatcheck.errors import InvalidParams
from coatcheck_http import check_fields, text_tuple


@frozen(kw_only=True)
class Order:
    """One field of each kind."""

    name: str = "a"
    note: str | None = None
    count: int | None = None
    share: float = 0.5
    sharp: bool | None = None
    length: timedelta | None = None
    options: Mapping[str, Any] = field(factory=dict)
    words: tuple[str, ...] = field(default=(), converter=text_tuple)

    def __attrs_post_init__(self) -> None:
        """Check them."""
        check_fields(self)


def test_what_fits_is_taken() -> None:
    """A whole number is a number, and None stands where it may."""
    Order(note=None, count=3, share=1, sharp=True, length=timedelta(1), options={"a": 1}, words=["x", "y"])
    assert Order(words=["x"]).words == ("x",)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"name": None}, "name must be str, not NoneType: None"),
        ({"name": 7}, "name must be str, not int: 7"),
        ({"note": b"x"}, "note must be str, not bytes"),
        ({"count": "3"}, "count must be int, not str: '3'"),
        ({"count": True}, "count must be int, not bool: True"),
        ({"share": "half"}, "share must be float, not str"),
        ({"sharp": 1}, "sharp must be bool, not int: 1"),
        ({"length": 5}, "length must be timedelta, not int: 5"),
        ({"options": 3}, "options must be Mapping, not int: 3"),
        ({"words": "en"}, r"not the string 'en'; write \('en',\)"),
        ({"words": 5}, "a sequence of strings is wanted, not int: 5"),
        ({"words": {"en": 1}}, "a sequence of strings is wanted, not dict"),
        ({"words": ["en", 1]}, "1 in it is int"),
    ],
)
def test_what_does_not_fit_is_told(values: dict[str, Any], told: str) -> None:
    """With the field, the value, and what is wanted."""
    with pytest.raises(InvalidParams, match=told):
        Order(**values)
