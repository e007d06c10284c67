from collections.abc import Sequence

from coatcheck_sandbox.reading import Block, Line, read_blocks


def texts(lines: Sequence[Line]) -> list[str]:
    """The texts of the paragraphs."""
    return [block.text for block in read_blocks(lines)]


def line(text: str, left: float, top: float, width: float = 300) -> Line:
    """Make a line 30 pixels high."""
    return Line(text=text, left=left, top=top, right=left + width, bottom=top + 30)


def test_no_lines_make_no_blocks() -> None:
    """An empty page has an empty text."""
    assert read_blocks([]) == ()


def test_a_skewed_row_stays_one_row() -> None:
    """Both ends of a row are joined though they are a line's height apart."""
    cells = [line(f"a{i}", 110 * i, 100 - 9 * i, 100) for i in range(5)]
    below = [line(f"b{i}", 110 * i, 140 - 9 * i, 100) for i in range(5)]
    assert texts([*below, *reversed(cells)]) == ["a0 a1 a2 a3 a4\nb0 b1 b2 b3 b4"]


def test_columns_are_read_one_after_the_other_below_their_heading() -> None:
    """A newspaper's heading comes first, then the left column, then the right one, then the footer."""
    heading, footer = line("heading", 0, 0, 700), line("footer", 0, 400, 700)
    left = [line(f"l{i}", 0, 60 + 36 * i) for i in range(4)]
    right = [line(f"r{i}", 400, 63 + 36 * i) for i in range(4)]
    mixed = [footer, *right, heading, *left]
    assert texts(mixed) == ["heading", "l0\nl1\nl2\nl3", "r0\nr1\nr2\nr3", "footer"]


def test_a_table_is_read_row_by_row() -> None:
    """Figures beside their descriptions are no column of their own."""
    names = [line(f"item{i}", 0, 36 * i) for i in range(4)]
    prices = [line(f"{i}.00", 500, 36 * i, 60) for i in range(4)]
    assert texts(prices + names) == ["item0 0.00\nitem1 1.00\nitem2 2.00\nitem3 3.00"]


def test_a_wide_gap_starts_a_paragraph() -> None:
    """Lines further apart than usual are separate blocks; each has the place of its lines."""
    assert read_blocks([line("a", 0, 0), line("b", 0, 34), line("c", 0, 90)]) == (
        Block(text="a\nb", left=0, top=0, right=300, bottom=64),
        Block(text="c", left=0, top=90, right=300, bottom=120),
    )
