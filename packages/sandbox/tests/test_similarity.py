import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck_sandbox.similarity import character_accuracy, edit_distance


def table_distance(left: str, right: str) -> int:
    """The edit distance by the textbook's table."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


@settings(deadline=None)
@given(st.text("abc", max_size=40), st.text("abc", max_size=40))
def test_edit_distance_equals_the_textbook_table(left: str, right: str) -> None:
    """The fast algorithm gives what the slow one gives."""
    assert edit_distance(left, right) == table_distance(left, right)


@pytest.mark.parametrize(
    ("recognised", "truth", "accuracy"),
    [
        ("", "", 1.0),
        ("", "text", 0.0),
        ("one  line\nand another", "one line and\n another ", 1.0),
        ("\N{LATIN SMALL LIGATURE FL}y", "fly", 1.0),
        ("abcd", "abXd", 0.75),
        ("abcdabcd", "abcd", 0.5),
    ],
)
def test_accuracy_is_the_share_of_right_characters(recognised: str, truth: str, accuracy: float) -> None:
    """White space and forms of characters don't count; each wrong, missing or surplus character does."""
    assert character_accuracy(recognised, truth) == accuracy
