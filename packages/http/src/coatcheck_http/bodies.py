"""Reading bodies within limits: of what comes over the wire, and of what it unpacks to."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from attrs import define, field

from coatcheck_http.errors import UnreadableAnswer

__all__ = ["ACCEPTED_ENCODINGS", "Body"]

ACCEPTED_ENCODINGS = "gzip, deflate"
"""What requests offer; anything else in an answer is refused."""

_WINDOW = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


@define
class Body:
    """A body as far as it has been read; never longer than `limit_bytes`, packed or not.

    Unpacking asks zlib for no more than what the limit still allows, so a small answer that unpacks to
    gigabytes costs no more than the limit.
    """

    encoding: str
    limit_bytes: int
    _parts: list[bytes] = field(factory=list)
    _size: int = 0
    _packed: int = 0
    _unpacker: zlib._Decompress | None = field(init=False)

    @_unpacker.default
    def _make_unpacker(self) -> zlib._Decompress | None:
        name = self.encoding.strip().lower()
        if name in {"", "identity"}:
            return None
        if name not in _WINDOW:
            message = (
                f"the answer is packed as {self.encoding!r}, which was not offered ({ACCEPTED_ENCODINGS})"
            )
            raise UnreadableAnswer(message, code="unreadable_answer")
        return zlib.decompressobj(_WINDOW[name])

    @property
    def data(self) -> bytes:
        """What has been read and unpacked."""
        return b"".join(self._parts)

    async def read(self, chunks: AsyncIterator[bytes]) -> None:
        """Read to the end.

        Raises:
            UnreadableAnswer: it is larger than the limit, or cannot be unpacked. `data` has what came before.
        """
        async for chunk in chunks:
            self._packed += len(chunk)
            if self._packed > self.limit_bytes:
                raise self._too_large()
            self._add(chunk)
        if self._unpacker is not None and not self._unpacker.eof and self._packed:
            message = "the packed answer ends too early"
            raise UnreadableAnswer(message, code="unreadable_answer")

    def _add(self, chunk: bytes) -> None:
        if self._unpacker is not None:
            try:
                chunk = self._unpacker.decompress(chunk, self.limit_bytes - self._size + 1)
            except zlib.error as error:
                message = f"the answer cannot be unpacked as {self.encoding!r}: {error}"
                raise UnreadableAnswer(message, code="unreadable_answer") from error
        if self._size + len(chunk) > self.limit_bytes:
            raise self._too_large()
        self._size += len(chunk)
        self._parts.append(chunk)

    def _too_large(self) -> UnreadableAnswer:
        message = f"the body is larger than {self.limit_bytes} bytes"
        return UnreadableAnswer(message, code="body_too_large")
