"""Settings of the handler of Google Document AI."""

from __future__ import annotations

import re

from attrs import frozen

from coatcheck.errors import ConfigurationError
from coatcheck_http import HttpSettings

__all__ = ["DocumentAiOcrSettings"]

_BUCKET = re.compile(r"gs://[^/\s]+/(?:[^\s].*)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


@frozen(kw_only=True)
class DocumentAiOcrSettings(HttpSettings):
    """Settings of `DocumentAiOcr`; the first three have to be given."""

    project: str = ""
    """The id or number of the project."""
    processor: str = ""
    """The id of the processor."""
    output_prefix: str = ""
    """Where the provider writes results, such as ``gs://my-bucket/ocr/``; each task has a folder below it."""
    location: str = "us"
    """Where the processor is, such as ``us`` or ``eu``."""
    processor_version: str | None = None
    """For requests that name no `model`; None is the processor's default version."""
    storage_url: str = "https://storage.googleapis.com"
    """Cloud Storage, which sees the credentials, too."""
    max_shards: int = 1000
    """How many files of one result are read; together they have at most `max_download_bytes`. The rest is left,
    with a warning."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        super().__attrs_post_init__()
        for name in ("project", "processor", "location"):
            if not _NAME.fullmatch(getattr(self, name)):
                message = f"Document AI needs the setting {name}, not {getattr(self, name)!r}"
                raise ConfigurationError(message)
        if not _BUCKET.fullmatch(self.output_prefix):
            message = (
                "Document AI needs the setting output_prefix, where it writes results, such as "
                f"'gs://my-bucket/ocr/', not {self.output_prefix!r}"
            )
            raise ConfigurationError(message)
        if self.max_shards < 1:
            message = f"max_shards must be positive: {self!r}"
            raise ConfigurationError(message)
