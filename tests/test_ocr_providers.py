"""One real document of several pages through every OCR provider, as the sandbox speaks their protocols."""

import asyncio
import io
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module

import pytest

from coatcheck import App, ExponentialRetry
from coatcheck_handler_ocr import OcrHandler, OcrRequest, OcrResult, OutputFormat
from coatcheck_sandbox import SandboxServer, character_accuracy, pages
from coatcheck_sandbox.demo.providers import OCR, make_handler

PAGES = ("letter.jpg", "foxes.png", "invoice.jpg")
DOCUMENT = "bundle.pdf"
TELL_PAGES_APART = frozenset(
    {
        "ocr:azure", "ocr:baidu", "ocr:docling", "ocr:documentai", "ocr:llamaparse", "ocr:mistral", "ocr:paddleocr",
        "ocr:reducto", "ocr:textract", "ocr:unstructured",
    }
)  # fmt: skip
"""Whose results have pages."""
HAVE_PLACES = TELL_PAGES_APART - {"ocr:mistral"}
"""Whose pages have blocks with their boxes."""


def bundle() -> bytes:
    """Return a PDF of scanned pages."""
    image = import_module("PIL.Image")
    sheets = [image.open(io.BytesIO(pages.read(name))).convert("RGB") for name in PAGES]
    made = io.BytesIO()
    sheets[0].save(made, "PDF", save_all=True, append_images=sheets[1:], resolution=150)
    return made.getvalue()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxServer]:
    """A provider of every kind, which really reads."""
    with SandboxServer() as server:
        server.serve(DOCUMENT, bundle(), "application/pdf")
        yield server


def test_every_provider_is_tried() -> None:
    """The declarative handler aside, for which there is no one provider."""
    plugin = import_module("coatcheck_handler_ocr.plugin")
    assert {each.key for each in plugin.coatcheck_handlers()} - {"ocr:http"} == set(OCR)
    assert set(OCR) >= TELL_PAGES_APART


@pytest.mark.timeout(300)
@pytest.mark.parametrize("key", sorted(OCR))
async def test_a_document_of_several_pages_is_read(key: str, sandbox: SandboxServer) -> None:
    """Submitted once, and its text is that of all its pages, in their order."""
    place = OCR[key].pages.replace("{url}", sandbox.url)
    handler = make_handler(key, sandbox.url)
    assert isinstance(handler, OcrHandler)
    handler.retry = ExponentialRetry(initial=timedelta(milliseconds=100), maximum=timedelta(milliseconds=500))
    before = sandbox.created_jobs(DOCUMENT)
    outputs = {OutputFormat.MARKDOWN, OutputFormat.JSON} & handler.formats  # JSON asks for pages and places
    async with App("memory://", [handler]) as app, app.worker(call_timeout=timedelta(seconds=25)):
        task = await app.manager.submit(
            OcrRequest(url=f"{place}{DOCUMENT}", outputs=tuple(outputs)),
            tracking_timeout=timedelta(minutes=10),
        )
        assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 120)
        result = await app.manager.result(task.id, OcrResult, timeout=timedelta(minutes=3))
    truth = "\n\n".join(pages.truth(name) for name in PAGES)
    assert character_accuracy(result.text, truth) >= 0.9, result.text
    assert sandbox.created_jobs(DOCUMENT) == before + 1
    if key in TELL_PAGES_APART:
        assert [page.index for page in result.pages] == [0, 1, 2]
        for page, name in zip(result.pages, PAGES, strict=True):
            assert character_accuracy(page.markdown, pages.truth(name)) >= 0.8, page.markdown
    if key in HAVE_PLACES:
        assert all(any(block.box for block in page.blocks) for page in result.pages)
