import io
import zipfile

import pytest

from coatcheck.errors import HandlerError
from coatcheck.task import JSON
from coatcheck_handler_ocr import ArchiveRefused, OcrAsset, OcrPage, OcrSources
from coatcheck_handler_ocr.sources import complete, given_text, page_of, sound
from coatcheck_http import Download, DownloadFailed, UnreadableAnswer


def archive(*names: str) -> bytes:
    """Return a ZIP whose entries hold their names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name in names:
            made.writestr(name, f"from {name}")
    return buffer.getvalue()


FILES = {
    "md": b"from url",
    "zip": archive("full.md"),
    "empty.zip": archive("x.json"),
    "broken.zip": b"no zip",
    "jsonl": b'{"markdown": {"text": "one"}}\n\n{"text": "two"}\n{"other": 1}\n',
    "broken.jsonl": b'{"text": "one"}\n{',
    "blank": b"  \n",
}


async def fetch(url: str) -> Download:
    """Return a file, or fail."""
    if url not in FILES:
        raise DownloadFailed(f"{url} answered HTTP 403", status=403)
    return Download(url=url, content=FILES[url])


@pytest.mark.parametrize(
    ("sources", "markdown"),
    [
        (OcrSources(markdown="inline", markdown_url="md", archive_url="zip", text="t"), "inline"),
        (OcrSources(markdown_url="md", archive_url="zip", text="t"), "from url"),
        (OcrSources(markdown=" ", markdown_url="md"), "from url"),
        (OcrSources(archive_url="zip", pages=(OcrPage(index=0, markdown="p"),)), "from full.md"),
        (OcrSources(archive_url="empty.zip", text="t"), "t"),
        (
            OcrSources(pages=(OcrPage(index=1, markdown="b"), OcrPage(index=0, markdown="a")), text="t"),
            "a\n\nb",
        ),
        (OcrSources(jsonl_url="jsonl", text="t"), "one\n\ntwo"),
        (OcrSources(text="t"), "t"),
    ],
)
async def test_the_best_source_counts(sources: OcrSources, markdown: str) -> None:
    """Markdown, its URL, an archive, pages, JSONL, text: the first that has something."""
    result = await complete(sources, fetch)
    assert result is not None
    assert result.markdown == markdown
    assert result.text == (sources.text or markdown)
    assert result.warnings == ()


async def test_what_comes_along_is_kept() -> None:
    """Pages, assets, usage and warnings; pages from JSONL are numbered."""
    assets = (OcrAsset(type="json", url="u"),)
    result = await complete(
        OcrSources(jsonl_url="jsonl", assets=assets, usage={"p": 1}, warnings=("w",)), fetch
    )
    assert result is not None
    assert [(page.index, page.markdown) for page in result.pages] == [(0, "one"), (1, "two")]
    assert (result.assets, result.usage, result.warnings) == (assets, {"p": 1}, ("w",))


@pytest.mark.parametrize(
    ("sources", "error"),
    [
        (OcrSources(markdown_url="gone", archive_url="also gone"), DownloadFailed),
        (OcrSources(archive_url="broken.zip"), ArchiveRefused),
        (OcrSources(jsonl_url="broken.jsonl"), UnreadableAnswer),
    ],
)
async def test_sources_that_cannot_be_had_are_an_error(
    sources: OcrSources, error: type[HandlerError]
) -> None:
    """Not an empty result: the first failure is told."""
    with pytest.raises(error):
        await complete(sources, fetch)


async def test_a_source_that_cannot_be_had_is_passed_over() -> None:
    """If a later one can, the failure is a warning."""
    result = await complete(OcrSources(markdown_url="gone", archive_url="broken.zip", text="t"), fetch)
    assert result is not None
    assert result.markdown == "t"
    assert len(result.warnings) == 2
    assert "gone answered HTTP 403" in result.warnings[0]


async def test_no_source_is_no_result() -> None:
    """So that the query says "incomplete"; an archive without Markdown has none, either."""
    assert await complete(OcrSources(), fetch) is None
    assert await complete(OcrSources(archive_url="empty.zip"), fetch) is None


@pytest.mark.parametrize("sources", [OcrSources(markdown=""), OcrSources(markdown_url="blank")])
async def test_a_blank_document_is_a_result(sources: OcrSources) -> None:
    """A page without text was read, too; the warning says so."""
    result = await complete(sources, fetch)
    assert result is not None
    assert result.warnings == ("the provider found no text",)


async def test_no_store_chokes_on_a_result() -> None:
    """Lone surrogates are replaced, real pairs are kept."""
    assert sound("a\ud800b\U0001f600") == "a\ufffdb\U0001f600"
    result = await complete(OcrSources(markdown="\udfff", text="\ud800"), fetch)
    assert result is not None
    assert (result.markdown, result.text) == ("\ufffd", "\ufffd")
    assert page_of({"text": "\ud800"}, 3) == (OcrPage(index=3, markdown="\ufffd"),)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"a": " t ", "b": "u"}, " t "),
        ({"a": "", "b": "u"}, "u"),
        ({"a": " ", "b": None}, " "),
        ({"a": 7}, None),
    ],
)
def test_a_given_text_is_a_string_as_it_is(document: JSON, text: str | None) -> None:
    """A blank one counts if there is no other; a number does not."""
    assert given_text(document, "a", "b") == text
