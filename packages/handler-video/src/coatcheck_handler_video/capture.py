"""Copying finished videos to a place of one's own, before their URLs expire."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from attrs import define, field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck_handler_video.result import Copy, Video
from coatcheck_http import SavedFile

__all__ = ["Capture", "CaptureSettings", "Save"]

Save = Callable[[Path, int], Awaitable[SavedFile]]
"""Streams one video into a file of at most so many bytes, going on where an earlier call broke off."""

_GIB = 1024**3
_SUFFIXES = {
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "video/quicktime": ".mov",
    "video/x-matroska": ".mkv",
}
_CHUNK_BYTES = 1024 * 1024


class FileSystem(Protocol):
    """What is used of fsspec's file systems, which have no types."""

    def makedirs(self, path: str, exist_ok: bool = ...) -> None:  # noqa: FBT001 - fsspec's own
        """Make a folder."""

    def put_file(self, lpath: str, rpath: str) -> None:
        """Upload a file."""

    def size(self, path: str) -> int | None:
        """Return how large a file is."""


@frozen(kw_only=True)
class CaptureSettings:
    """Where to copy finished videos to."""

    destination: str
    """A folder, or the URL of one in an object store that fsspec knows, such as ``s3://bucket/videos``."""
    limit_bytes: int = 2 * _GIB
    """Of one video; a larger one is left where it is, with a warning in the result."""
    spool: Path | None = None
    """A folder for what is not whole yet; None is the destination itself, or for object stores one below the
    system's folder for temporary files. A shared one lets another worker go on where one has stopped."""
    options: Mapping[str, str] = field(factory=dict)
    """For fsspec's file system, such as ``endpoint_url``. Credentials do not belong here: fsspec's file systems take
    them from the environment or their own files."""

    def __attrs_post_init__(self) -> None:
        """Refuse what can never hold a video.

        Raises:
            ConfigurationError: the destination is blank, or the limit not positive.
        """
        if not self.destination.strip():
            raise ConfigurationError(
                "capture.destination is blank; give a folder, or a URL such as s3://bucket/videos"
            )
        if self.limit_bytes < 1:
            message = f"capture.limit_bytes must be positive, not {self.limit_bytes!r}"
            raise ConfigurationError(message)

    @property
    def folder(self) -> Path | None:
        """The destination as a folder of this machine; None if it is an object store."""
        if re.match(r"^[A-Za-z][A-Za-z0-9+.-]+://", self.destination) is None:
            return Path(self.destination)
        parts = urlsplit(self.destination)
        return Path(parts.path) if parts.scheme == "file" else None


@define(eq=False)
class Capture:
    """Copies videos to the destination of its settings."""

    settings: CaptureSettings

    async def copy(self, video: Video, name: str, save: Save) -> Copy:
        """Return the copy of a video, made now or found.

        A copy that is there is whole: it gets its name only at the end. So a query that is made again copies nothing
        again.

        Args:
            video: what to copy.
            name: what to call it, without a suffix, such as the task's id.
            save: streams the video into a file.

        Raises:
            DownloadFailed: it cannot be had; `final` tells whether trying again is of no use.
            OSError: it cannot be written.
            ConfigurationError: fsspec, or its part for this object store, is not installed.
        """
        folder = self.settings.folder
        file_name = f"{name}{_suffix(video)}"
        if folder is None:
            return await self._copy_to_store(file_name, save)
        return await self._copy_to_folder(folder, file_name, save)

    async def _copy_to_folder(self, folder: Path, file_name: str, save: Save) -> Copy:
        there = folder / file_name
        if not there.exists():
            spool = self.settings.spool or folder
            _make(folder, spool)
            saved = await save(spool / f".{file_name}.incomplete", self.settings.limit_bytes)
            await asyncio.to_thread(_move, saved.path, there)
            return Copy(location=str(there), size_bytes=saved.size_bytes, sha256=saved.sha256)
        size, digest = await asyncio.to_thread(_measure, there)
        return Copy(location=str(there), size_bytes=size, sha256=digest)

    async def _copy_to_store(self, file_name: str, save: Save) -> Copy:
        system = self._system()
        target = f"{self.settings.destination.rstrip('/')}/{file_name}"
        spool = self.settings.spool or Path(tempfile.gettempdir()) / "coatcheck-capture"
        _make(spool)
        saved = await save(spool / f".{file_name}.incomplete", self.settings.limit_bytes)
        await asyncio.to_thread(_put, system, saved.path, target, saved.size_bytes)
        saved.path.unlink(missing_ok=True)
        return Copy(location=target, size_bytes=saved.size_bytes, sha256=saved.sha256)

    def _system(self) -> FileSystem:
        try:
            fsspec = import_module("fsspec")
            system: FileSystem = fsspec.core.url_to_fs(self.settings.destination, **self.settings.options)[0]
        except (ImportError, ValueError) as error:
            message = (
                f"videos cannot be copied to {self.settings.destination!r}: {error}; "
                "pip install 'coatcheck-handler-video[capture]', and fsspec's part for this object store"
            )
            raise ConfigurationError(message) from error
        return system


def _suffix(video: Video) -> str:
    told = _SUFFIXES.get((video.content_type or "").lower())
    named = re.search(r"\.(mp4|webm|mov|mkv)$", urlsplit(video.url).path.lower())
    return told or (named[0] if named else ".mp4")


def _make(*folders: Path) -> None:
    for each in folders:
        each.mkdir(parents=True, exist_ok=True)


def _move(part: Path, there: Path) -> None:
    """Give a whole file its name, also if its spool is on another file system."""
    try:
        part.replace(there)
    except OSError:
        beside = there.with_name(f".{there.name}.moving")
        with part.open("rb") as source, beside.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        beside.replace(there)
        part.unlink(missing_ok=True)


def _measure(path: Path) -> tuple[int, str]:
    digest = sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _put(system: FileSystem, part: Path, target: str, size_bytes: int) -> None:
    """Upload, and see that all of it has come."""
    # Buckets have no folders: some stores cannot make one, and a key that may write objects need not be allowed to. If
    # the place is missing all the same, the upload says so.
    with contextlib.suppress(NotImplementedError, PermissionError, FileExistsError):
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
    system.put_file(str(part), target)
    there = system.size(target)
    if there is not None and there != size_bytes:
        message = f"{target} has {there} bytes after the upload of {size_bytes}"
        raise OSError(message)
