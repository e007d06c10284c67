"""Images that the worker downloads and hands on, for providers that fetch none themselves."""

from __future__ import annotations

from coatcheck.errors import InvalidParams
from coatcheck_http import Download, shown

__all__ = ["check_image"]

_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))
_RIFF, _WEBP = b"RIFF", b"WEBP"


def check_image(image: Download) -> str:
    """Return the media type of an image: what its first bytes say, or else what the server did.

    Raises:
        InvalidParams: it is empty, or no image.
    """
    if not image.content:
        message = f"the image at {shown(image.url)} is empty"
        raise InvalidParams(message)
    for beginning, kind in _BEGINNINGS:
        if image.content.startswith(beginning):
            return kind
    if image.content.startswith(_RIFF) and image.content[8:12] == _WEBP:
        return "image/webp"
    if image.content_type.startswith("image/"):
        return image.content_type
    message = f"what is at {shown(image.url)} is no image, but {image.content_type}"
    raise InvalidParams(message)
