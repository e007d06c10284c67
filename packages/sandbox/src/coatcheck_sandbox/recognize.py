"""Reading documents: a real OCR engine, and a stand-in where none is installed."""

import hashlib
import importlib
import importlib.util
import io
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

from attrs import frozen

from coatcheck_sandbox.errors import DocumentUnreadable, EngineMissing
from coatcheck_sandbox.reading import Block, Line, read_blocks

_PDF_DOTS_PER_POINT = 150 / 72
_MAX_THREADS = 2
_MODULES = ("rapidocr", "onnxruntime", "pypdfium2")


@frozen(kw_only=True)
class RecognizedPage:
    """What was read on one page."""

    blocks: tuple[Block, ...] = ()
    """The paragraphs in reading order."""
    width: float = 0.0
    """In pixels, as the coordinates of the blocks; 0 if nobody knows."""
    height: float = 0.0

    @property
    def text(self) -> str:
        """The page's text, paragraphs separated by an empty line."""
        return "\n\n".join(block.text for block in self.blocks)


@frozen(kw_only=True)
class Recognition:
    """What was read in a document."""

    pages: tuple[RecognizedPage, ...]

    @classmethod
    def of(cls, *paragraphs: str) -> "Recognition":
        """A document of one page with these paragraphs."""
        return cls(pages=(RecognizedPage(blocks=tuple(Block(text=each) for each in paragraphs)),))

    @property
    def blocks(self) -> tuple[str, ...]:
        """The paragraphs in reading order, of all pages."""
        return tuple(block.text for page in self.pages for block in page.blocks)

    @property
    def text(self) -> str:
        """The whole text, paragraphs separated by an empty line."""
        return "\n\n".join(self.blocks)


class Recognizer(Protocol):
    """Reads a document; called in a worker thread, one document at a time."""

    def __call__(self, content: bytes, name: str) -> Recognition:
        """What is in `content`, uploaded under the file name `name`.

        Raises:
            DocumentUnreadable: it can't be opened. The job ends as failed.
        """
        ...


def describe(content: bytes, name: str) -> Recognition:
    """The name, size and digest of a document instead of its text: works without an engine, and at once."""
    digest = hashlib.sha256(content).hexdigest()
    return Recognition.of(f"{name}: {len(content)} bytes", f"sha256 {digest}")


class _Found(Protocol):
    boxes: Sequence[Sequence[Sequence[float]]] | None
    """For each line its four corners, as x and y in pixels."""
    txts: Sequence[str]


class _Engine(Protocol):
    def __call__(self, pixels: object) -> _Found: ...


class Ocr:
    """Reads PNG, JPEG, TIFF and PDF with RapidOCR on the CPU.

    The models (PP-OCRv6 small) come inside the engine's wheel: nothing is downloaded. They are loaded once,
    at the first document, which takes a second or two more.
    """

    def __init__(self) -> None:
        if any(importlib.util.find_spec(name) is None for name in _MODULES):
            raise EngineMissing
        self._engine: _Engine | None = None
        self._loading = threading.Lock()

    def __call__(self, content: bytes, name: str) -> Recognition:
        """The text of a document.

        Raises:
            DocumentUnreadable: it is neither an image nor a PDF, or it is damaged.
        """
        return Recognition(
            pages=tuple(
                RecognizedPage(
                    blocks=read_blocks(self._find_lines(image)),
                    width=float(image.width),
                    height=float(image.height),
                )
                for image in _open(content, name)
            )
        )

    def _find_lines(self, image: object) -> list[Line]:
        pixels = importlib.import_module("numpy").asarray(image)[:, :, ::-1]
        found = self._load()(pixels)
        if found.boxes is None:
            return []
        return [
            Line(
                text=str(text),
                left=float(min(corner[0] for corner in box)),
                top=float(min(corner[1] for corner in box)),
                right=float(max(corner[0] for corner in box)),
                bottom=float(max(corner[1] for corner in box)),
            )
            for box, text in zip(found.boxes, found.txts, strict=True)
        ]

    def _load(self) -> "_Engine":
        with self._loading:
            if self._engine is None:
                engine: _Engine = importlib.import_module("rapidocr").RapidOCR(
                    params={
                        "Global.log_level": "error",
                        # The classifier of upside-down lines turns some straight ones in a curved page.
                        "Global.use_cls": False,
                        "EngineConfig.onnxruntime.intra_op_num_threads": min(
                            _MAX_THREADS, os.cpu_count() or 1
                        ),
                        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                    }
                )
                self._engine = engine
            return self._engine


def _open(content: bytes, name: str) -> Iterator[Any]:
    """The document's pages as RGB images of Pillow."""
    if content.startswith(b"%PDF-"):
        yield from _open_pdf(content, name)
        return
    image_module = importlib.import_module("PIL.Image")
    sequence = importlib.import_module("PIL.ImageSequence")
    operations = importlib.import_module("PIL.ImageOps")
    try:
        with image_module.open(io.BytesIO(content)) as image:
            for frame in sequence.Iterator(image):
                yield operations.exif_transpose(frame).convert("RGB")
    except (OSError, ValueError, SyntaxError, image_module.DecompressionBombError) as error:
        raise DocumentUnreadable(name) from error


def _open_pdf(content: bytes, name: str) -> Iterator[Any]:
    pdfium = importlib.import_module("pypdfium2")
    try:
        with closing(pdfium.PdfDocument(content)) as document:
            for page in document:
                yield page.render(scale=_PDF_DOTS_PER_POINT).to_pil().convert("RGB")
    except pdfium.PdfiumError as error:
        raise DocumentUnreadable(name) from error
