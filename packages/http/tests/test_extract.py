import pytest

from coatcheck.task import JSON
from coatcheck_http import first, first_object, first_text, form_text, items, lookup, number

DOCUMENT: JSON = {
    "data": {"extract_result": [{"state": "done"}], "id": 7, "none": None, "blank": "  ", "no": False},
    "output": {},
    "list": [],
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("data.extract_result.0.state", "done"),
        ("data.extract_result.1.state", None),
        ("data.extract_result.x", None),
        ("data.id.deeper", None),
        ("data.blank.0", None),
        ("missing", None),
    ],
)
def test_a_path_leads_to_a_value_or_nowhere(path: str, found: JSON) -> None:
    """Whatever the shape of the document, looking something up raises nothing."""
    assert lookup(DOCUMENT, path) == found


def test_the_first_that_is_not_empty_counts() -> None:
    """Null, blank text, and empty lists and objects are passed over; False and 0 are values."""
    assert first(DOCUMENT, "data.none", "data.blank", "output", "list", "data.id") == 7
    assert first(DOCUMENT, "data.no") is False
    assert first(DOCUMENT, "output") is None


def test_ids_may_be_numbers() -> None:
    """A number is told as text; a bool or an object is none."""
    assert first_text(DOCUMENT, "data", "data.no", "data.blank", "data.id") == "7"
    assert first_text({"a": " x "}, "a") == "x"
    assert first_text(DOCUMENT, "output") is None


def test_an_object_is_found_or_empty() -> None:
    """So that what follows need not ask."""
    assert first_object(DOCUMENT, "output", "data.extract_result.0") == {"state": "done"}
    assert first_object(DOCUMENT, "data.id") == {}


@pytest.mark.parametrize("document", [{"a": [1, 2]}, {"a": (1, 2)}])
def test_a_list_is_found(document: JSON) -> None:
    """As it is."""
    assert list(items(document, "a")) == [1, 2]


@pytest.mark.parametrize("document", [{}, {"a": None}, {"a": "text"}, {"a": {"b": 1}}, {"a": 7}, [], None])
def test_what_is_no_list_is_an_empty_one(document: JSON) -> None:
    """So that one can loop over it."""
    assert items(document, "a") == ()


@pytest.mark.parametrize(
    ("value", "found"), [(1, 1.0), (-0.5, -0.5), (True, None), ("1", None), (None, None), ([1], None)]
)
def test_a_number_is_found(value: JSON, found: float | None) -> None:
    """Nothing else is taken for one."""
    assert number({"a": value}, "a") == found


@pytest.mark.parametrize(
    ("value", "text"), [("é", "é"), (True, "true"), (None, "null"), (["é", 1], '["é", 1]'), (1.5, "1.5")]
)
def test_a_value_becomes_a_field_of_a_form(value: JSON, text: str) -> None:
    """Text as it is, the rest as JSON."""
    assert form_text(value) == text
