"""What was read: the result of every OCR and document-parsing handler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import field, frozen

from coatcheck.task import JSON

__all__ = ["OcrAsset", "OcrBlock", "OcrPage", "OcrResult"]


@frozen(kw_only=True)
class OcrBlock:
    """A part of a page, such as a paragraph or a table."""

    kind: str = "text"
    """The provider's word."""
    text: str = ""
    box: tuple[float, float, float, float] | None = None
    """Left, top, right, bottom, in the unit of the page's width and height."""


@frozen(kw_only=True)
class OcrPage:
    """One page."""

    index: int
    """Its place in the document; the first is 0."""
    markdown: str = ""
    width: float | None = None
    """In the provider's unit."""
    height: float | None = None
    blocks: tuple[OcrBlock, ...] = ()


@frozen(kw_only=True)
class OcrAsset:
    """A file that the provider keeps, often for a short time: copy what you need."""

    type: str
    """Such as ``markdown``, ``json``, ``archive`` or ``image``."""
    url: str
    expires_at: datetime | None = None
    """When the URL, or the file, ends, if the provider's documentation tells."""


@frozen(kw_only=True)
class OcrResult:
    """The document as text. Providers give more or less of the rest."""

    markdown: str = ""
    """The whole document; plain text where the provider has no Markdown. Empty if it found no text."""
    text: str = ""
    """The whole document as plain text, where the provider gives it apart; else as `markdown`."""
    pages: tuple[OcrPage, ...] = ()
    """Where the provider tells pages apart."""
    assets: tuple[OcrAsset, ...] = ()
    usage: Mapping[str, JSON] = field(factory=dict)
    """What the provider counted or charged, under its own names."""
    warnings: tuple[str, ...] = ()
    """What went wrong without making the result useless."""
