"""From what a provider gives, in whichever form, to one result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import cast

from attrs import evolve, field, frozen

from coatcheck.errors import HandlerError
from coatcheck.task import JSON
from coatcheck_handler_ocr.archives import read_markdown
from coatcheck_handler_ocr.result import OcrAsset, OcrPage, OcrResult
from coatcheck_http import Download, HttpRequest, UnreadableAnswer, first_text, lookup

__all__ = ["OcrSources", "Unfetched", "complete", "given_text", "json_lines", "page_of", "sound"]

Fetch = Callable[[str], Awaitable[Download]]
"""Downloads a URL without credentials."""
ReadPage = Callable[[JSON, int], Sequence[OcrPage]]
"""Returns the pages of one line of a JSONL file; the number is the index of the first."""


@frozen(kw_only=True)
class OcrSources:
    """Where the text of a finished job is to be had. What is None was not given; the first of them counts."""

    markdown: str | None = None
    markdown_url: str | None = None
    archive_url: str | None = None
    """A ZIP with Markdown in it."""
    pages: tuple[OcrPage, ...] = ()
    jsonl_url: str | None = None
    """A file with one JSON document a line, made of pages."""
    text: str | None = None
    """Plain text; also kept beside Markdown."""
    assets: tuple[OcrAsset, ...] = ()
    usage: Mapping[str, JSON] = field(factory=dict)
    warnings: tuple[str, ...] = ()


@frozen(kw_only=True)
class Unfetched(OcrSources):
    """The result of a job that is done, before it was asked for; see `OcrHandler.fetch_sources`."""

    request: HttpRequest
    """What asks for it, with credentials."""


def sound(text: str) -> str:
    """Return `text` with lone surrogates, which no store can hold, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def given_text(document: JSON, *paths: str) -> str | None:
    """Return the first string with text in it, as it is; else one that is blank, as a document without text has."""
    found = [text for text in (lookup(document, path) for path in paths) if isinstance(text, str)]
    return next((text for text in found if text.strip()), found[0] if found else None)


def json_lines(text: str) -> Iterator[JSON]:
    """Yield the documents of a file of JSONL.

    Raises:
        UnreadableAnswer: a line is no JSON; the message tells which.
    """
    # only this one ends a line: a text may hold others, such as U+2028
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield cast("JSON", json.loads(line))
        except (ValueError, RecursionError) as error:
            message = f"line {number} of the result is no JSON: {error}"
            raise UnreadableAnswer(message, code="unreadable_answer") from error


def page_of(document: JSON, index: int) -> Sequence[OcrPage]:
    """Return the one page that most providers put into a line of JSONL."""
    text = first_text(document, "markdown.text", "markdown", "md", "text", "content")
    return () if text is None else (OcrPage(index=index, markdown=sound(text)),)


async def complete(sources: OcrSources, fetch: Fetch, read_page: ReadPage = page_of) -> OcrResult | None:
    """Return the result: of Markdown, its URL, an archive, pages, JSONL or plain text, in this order.

    A source that cannot be had is passed over, with a warning, if a later one can. None: none was given.

    Raises:
        HandlerError: sources were given, and none could be had; the error is the first one's.
    """
    failures: list[HandlerError] = []
    best: OcrResult | None = None
    for read in (_from_markdown, _from_url, _from_archive, _from_pages, _from_jsonl, _from_text):
        try:
            found = await read(sources, fetch, read_page)
        except HandlerError as error:
            failures.append(error)
            continue
        if found is not None and found.markdown.strip():
            return _finish(found, sources, failures)
        best = best or found
    if best is not None:
        return _finish(best, sources, failures)
    if failures:
        raise failures[0]
    return None


def _finish(found: OcrResult, sources: OcrSources, failures: Sequence[HandlerError]) -> OcrResult:
    warnings = [*sources.warnings, *(str(each) for each in failures)]
    if not found.markdown.strip():
        warnings.append("the provider found no text")
    markdown = sound(found.markdown)
    return evolve(
        found,
        markdown=markdown,
        text=markdown if sources.text is None else sound(sources.text),
        assets=sources.assets,
        usage=sources.usage,
        warnings=tuple(sound(each) for each in warnings),
    )


async def _from_markdown(sources: OcrSources, _fetch: Fetch, _read_page: ReadPage) -> OcrResult | None:
    if sources.markdown is None:
        return None
    return OcrResult(markdown=sources.markdown, pages=sources.pages)


async def _from_url(sources: OcrSources, fetch: Fetch, _read_page: ReadPage) -> OcrResult | None:
    if sources.markdown_url is None:
        return None
    return OcrResult(markdown=(await fetch(sources.markdown_url)).text, pages=sources.pages)


async def _from_archive(sources: OcrSources, fetch: Fetch, _read_page: ReadPage) -> OcrResult | None:
    if sources.archive_url is None:
        return None
    archive = await fetch(sources.archive_url)
    # unpacking may take a while, and other calls share this loop
    text = await asyncio.to_thread(read_markdown, archive.content)
    return None if text is None else OcrResult(markdown=text, pages=sources.pages)


async def _from_pages(sources: OcrSources, _fetch: Fetch, _read_page: ReadPage) -> OcrResult | None:
    return _joined(sources.pages) if sources.pages else None


async def _from_jsonl(sources: OcrSources, fetch: Fetch, read_page: ReadPage) -> OcrResult | None:
    if sources.jsonl_url is None:
        return None
    pages: list[OcrPage] = []
    for document in json_lines((await fetch(sources.jsonl_url)).text):
        pages.extend(read_page(document, len(pages)))
    return _joined(pages)


async def _from_text(sources: OcrSources, _fetch: Fetch, _read_page: ReadPage) -> OcrResult | None:
    return None if sources.text is None else OcrResult(markdown=sources.text, pages=sources.pages)


def _joined(pages: Sequence[OcrPage]) -> OcrResult:
    ordered = sorted(pages, key=lambda page: page.index)
    return OcrResult(markdown="\n\n".join(page.markdown for page in ordered), pages=tuple(ordered))
