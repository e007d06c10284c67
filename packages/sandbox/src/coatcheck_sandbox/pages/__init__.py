"""Scanned pages with the text that is on them; `NOTICE.md` beside this file says where they come from."""

from importlib import resources

from coatcheck_sandbox.errors import UnknownPage

__all__ = ["media_type", "names", "read", "truth"]

_MEDIA_TYPES = {".jpg": "image/jpeg", ".png": "image/png"}


def names() -> list[str]:
    """The file names of all pages, sorted."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return sorted(name for name in files if _suffix(name) in _MEDIA_TYPES)


def read(name: str) -> bytes:
    """The image of a page.

    Raises:
        UnknownPage: no page of that name is shipped.
    """
    _ensure_known(name)
    return resources.files(__name__).joinpath(name).read_bytes()


def truth(name: str) -> str:
    """The text that is on a page, in reading order and in the page's own lines.

    Raises:
        UnknownPage: no page of that name is shipped.
    """
    _ensure_known(name)
    text_name = name.removesuffix(_suffix(name)) + ".txt"
    return resources.files(__name__).joinpath(text_name).read_text(encoding="utf-8")


def media_type(name: str) -> str:
    """The media type of a page's image.

    Raises:
        UnknownPage: no page of that name is shipped.
    """
    _ensure_known(name)
    return _MEDIA_TYPES[_suffix(name)]


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""


def _ensure_known(name: str) -> None:
    known = names()
    if name not in known:
        raise UnknownPage(name, known)
