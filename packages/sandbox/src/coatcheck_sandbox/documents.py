"""What the sandbox serves under `/pages`: the pages that are shipped, and what a test or user adds."""

import threading

from coatcheck_sandbox import pages
from coatcheck_sandbox.errors import UnknownPage

__all__ = ["Documents"]


class Documents:
    """Documents by name; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added: dict[str, tuple[bytes, str]] = {}

    def add(self, name: str, content: bytes, media_type: str) -> None:
        """Serve a document; it takes the place of one of the same name."""
        with self._lock:
            self._added[name] = (content, media_type)

    def read(self, name: str) -> tuple[bytes, str]:
        """A document and its media type.

        Raises:
            UnknownPage: there is none of that name.
        """
        with self._lock:
            if name in self._added:
                return self._added[name]
        if name not in pages.names():
            with self._lock:
                raise UnknownPage(name, sorted({*pages.names(), *self._added}))
        return pages.read(name), pages.media_type(name)
