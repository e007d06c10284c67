"""What a document is called, and how much of it is read."""

from __future__ import annotations

import pytest

from coatcheck.task import JSON
from coatcheck_handler_ocr import OcrRequest
from coatcheck_handler_ocr.documents import name_of, part_read


@pytest.mark.parametrize(
    ("url", "file_name", "name"),
    [
        ("https://x.test/a/b.pdf?sign=1#c", None, "b.pdf"),
        ("https://x.test/a%20b.pdf", None, "a b.pdf"),
        ("https://x.test/b.pdf", "own.png", "own.png"),
        ("https://x.test/", None, ""),
    ],
)
def test_a_document_has_the_name_of_its_request_or_url(url: str, file_name: str | None, name: str) -> None:
    """Without folders, a query, and the escapes of URLs."""
    assert name_of(OcrRequest(url=url, file_name=file_name)) == name


@pytest.mark.parametrize(
    ("done", "total", "part"),
    [(1, 4, 0.25), (0, 4, 0.0), (5, 4, 1.0), (-1, 4, 0.0), (1, 0, None), (None, 4, None), (1, "4", None)],
)
def test_a_part_is_from_0_to_1(done: JSON, total: JSON, part: float | None) -> None:
    """And is not known without both numbers."""
    assert part_read({"of": {"done": done, "total": total}}, "of.done", "of.total") == part
