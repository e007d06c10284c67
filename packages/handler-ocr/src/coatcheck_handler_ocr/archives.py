"""Finding the Markdown in a ZIP archive that nobody vouches for."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import PurePosixPath

from attrs import frozen

from coatcheck.errors import HandlerError

__all__ = ["ArchiveLimits", "ArchiveRefused", "read_markdown"]

_MIB = 1024 * 1024
_SMALL_BYTES = 1 * _MIB
_ENCRYPTED = 0x1


class ArchiveRefused(HandlerError):
    """An archive is broken, dangerous, or larger than the limits."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="archive_refused")


@frozen(kw_only=True)
class ArchiveLimits:
    """How much of an archive is taken."""

    entries: int = 10_000
    total_bytes: int = 200 * _MIB
    """Of all entries unpacked, as the archive itself declares."""
    markdown_bytes: int = 50 * _MIB
    """Of the one entry that is unpacked."""
    ratio: int = 200
    """Unpacked to packed size of that entry, if it is larger than a megabyte."""


def read_markdown(content: bytes, limits: ArchiveLimits | None = None) -> str | None:
    """Return the text of ``full.md``, or else of the ``.md`` with the shortest path; None if there is none.

    Nothing is written to disk, and only that entry is unpacked, within the limits, whatever sizes the archive
    declares.

    Raises:
        ArchiveRefused: it is no ZIP, or damaged or encrypted; an entry's path leads out of the archive; or
            a limit is passed.
    """
    allowed = limits or ArchiveLimits()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entry = _choose(archive.infolist(), allowed)
            return None if entry is None else _unpack(archive, entry, allowed)
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
    ) as error:
        message = f"the archive cannot be read: {error}"
        raise ArchiveRefused(message) from error


def _choose(entries: list[zipfile.ZipInfo], limits: ArchiveLimits) -> zipfile.ZipInfo | None:
    if len(entries) > limits.entries:
        message = f"the archive has {len(entries)} entries; at most {limits.entries} are taken"
        raise ArchiveRefused(message)
    if sum(entry.file_size for entry in entries) > limits.total_bytes:
        message = f"the archive unpacks to more than {limits.total_bytes} bytes"
        raise ArchiveRefused(message)
    for entry in entries:
        _check_path(entry)
    found = [each for each in entries if not each.is_dir() and each.filename.lower().endswith(".md")]
    return min(found, key=_preference, default=None)


def _check_path(entry: zipfile.ZipInfo) -> None:
    """Refuse paths that lead out of the archive: who writes such ones means harm."""
    name = entry.orig_filename.replace("\\", "/")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name or name[1:2] == ":":
        message = f"the archive has an entry that leads out of it: {entry.orig_filename[:100]!r}"
        raise ArchiveRefused(message)


def _preference(entry: zipfile.ZipInfo) -> tuple[bool, int, int, str]:
    path = PurePosixPath(entry.filename.lower())
    return (path.name != "full.md", len(path.parts), len(entry.filename), entry.filename)


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limits: ArchiveLimits) -> str:
    if entry.flag_bits & _ENCRYPTED:
        message = f"the archive's {entry.filename!r} is encrypted"
        raise ArchiveRefused(message)
    if entry.file_size > _SMALL_BYTES and entry.file_size > limits.ratio * max(entry.compress_size, 1):
        message = f"the archive's {entry.filename!r} is packed more than {limits.ratio} to 1"
        raise ArchiveRefused(message)
    with archive.open(entry) as stream:
        text = stream.read(limits.markdown_bytes + 1)
    if len(text) > limits.markdown_bytes:
        message = f"the archive's {entry.filename!r} is larger than {limits.markdown_bytes} bytes"
        raise ArchiveRefused(message)
    return text.decode("utf-8-sig", "replace")
