"""From the blocks of Amazon Textract to pages.

Shapes are those of botocore 1.44.8, `data/textract/2018-06-27/service-2.json`, read in 2026: blocks refer to each
other by id, boxes are fractions of the page's width and height.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import define, field

from coatcheck.task import JSON
from coatcheck_handler_ocr.boxes import sized_box
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import sound
from coatcheck_http import first_text, items, number

__all__ = ["Block", "needed", "read_pages", "read_warnings"]

Block: TypeAlias = Mapping[str, JSON]

_MARKS = {"SELECTED": "[x]", "NOT_SELECTED": "[ ]"}
_READ = frozenset({"PAGE", "LINE", "WORD", "TABLE", "CELL", "SELECTION_ELEMENT", "QUERY_RESULT"})
_SIDES = ("Left", "Top", "Width", "Height")
_READ_OF_DETECTION = frozenset({"PAGE", "LINE"})


def needed(body: Block, *, analysis: bool) -> list[Block]:
    """Return those of an answer's blocks that `read_pages` looks at; most are words, of no use without tables."""
    kinds = _READ if analysis else _READ_OF_DETECTION
    return [
        each for each in items(body, "Blocks") if isinstance(each, Mapping) and each.get("BlockType") in kinds
    ]


def read_pages(blocks: Sequence[Block]) -> tuple[OcrPage, ...]:
    """Return the pages: lines in the provider's order, and tables as Markdown where their first line stands."""
    known = _Known({_id(each): each for each in blocks})
    by_page: dict[int, list[Block]] = {}
    for each in blocks:
        by_page.setdefault(_count(each, "Page", 1), []).append(each)
    return tuple(known.page(page - 1, by_page[page]) for page in sorted(by_page))


def read_warnings(body: Block) -> Iterator[str]:
    """Yield what the provider says, in an answer about a job, that it could not read."""
    if first_text(body, "JobStatus") == "PARTIAL_SUCCESS":
        words = first_text(body, "StatusMessage")
        yield f"the provider read the document in part{f': {words}' if words else ''}"
    for each in items(body, "Warnings"):
        pages = ", ".join(str(page) for page in items(each, "Pages"))
        yield f"{first_text(each, 'ErrorCode') or 'a warning without a code'}{pages and f' on pages {pages}'}"


@define
class _Known:
    """Blocks by id."""

    by_id: Mapping[str, Block]
    _table_of: dict[str, str] = field(factory=dict)
    """To which table a word belongs."""

    def page(self, index: int, blocks: Sequence[Block]) -> OcrPage:
        """Return one page."""
        tables: dict[str, OcrBlock] = {}
        for each in blocks:
            if each["BlockType"] == "TABLE":
                tables[_id(each)] = self._table(each)
        found: list[OcrBlock] = []
        for each in blocks:
            if each["BlockType"] not in {"LINE", "QUERY_RESULT"}:
                continue
            table = next((self._table_of[one] for one in _related(each) if one in self._table_of), None)
            if table is None:
                found.append(_block(each, sound(first_text(each, "Text") or "")))
            elif table in tables:
                found.append(tables.pop(table))
        found.extend(tables.values())
        lines = [_paragraph(each) for each in found if each.kind != "QUERY_RESULT"]
        return OcrPage(
            index=index, markdown="\n".join(lines).strip(), width=1.0, height=1.0, blocks=tuple(found)
        )

    def _table(self, table: Block) -> OcrBlock:
        rows: dict[int, dict[int, str]] = {}
        for cell in self._children(table):
            for word in _related(cell):
                self._table_of[word] = _id(table)
            row = rows.setdefault(_count(cell, "RowIndex", 1), {})
            row[_count(cell, "ColumnIndex", 1)] = self._text(cell)
        return _block(table, sound(_markdown(rows)))

    def _children(self, block: Block) -> Iterator[Block]:
        return (self.by_id[each] for each in _related(block) if each in self.by_id)

    def _text(self, cell: Block) -> str:
        words = (
            first_text(each, "Text") or _MARKS.get(first_text(each, "SelectionStatus") or "", "")
            for each in self._children(cell)
        )
        return " ".join(word for word in words if word)


def _markdown(rows: Mapping[int, Mapping[int, str]]) -> str:
    """Return a table, whose first row is its head; cells that are missing are empty."""
    width = len({column for row in rows.values() for column in row})
    columns = sorted({column for row in rows.values() for column in row})
    lines = [
        "| " + " | ".join(rows[row].get(column, "").replace("|", "\\|") for column in columns) + " |"
        for row in sorted(rows)
    ]
    return "\n".join([*lines[:1], "|" + " --- |" * width, *lines[1:]]) if lines else ""


def _paragraph(block: OcrBlock) -> str:
    return f"\n{block.text}\n" if block.kind == "TABLE" else block.text


def _block(block: Block, text: str) -> OcrBlock:
    box = sized_box(number(block, f"Geometry.BoundingBox.{side}") for side in _SIDES)
    return OcrBlock(kind=first_text(block, "BlockType") or "", text=text, box=box)


def _related(block: Block) -> Iterator[str]:
    """Yield the ids of a block's children."""
    for each in items(block, "Relationships"):
        if isinstance(each, Mapping) and each.get("Type") == "CHILD":
            yield from (one for one in items(each, "Ids") if isinstance(one, str))


def _id(block: Block) -> str:
    found = block.get("Id")
    return found if isinstance(found, str) else ""


def _count(block: Block, name: str, otherwise: int) -> int:
    found = block.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else otherwise
