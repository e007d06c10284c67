"""What the handler written by hand works with: params, account, settings, answers."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from attrs import field, frozen

from coatcheck.errors import HandlerError
from coatcheck.secret import Secret
from coatcheck.task import JSON

__all__ = ["Answer", "PlainAccount", "PlainSettings", "Printing", "signature"]


@frozen(kw_only=True)
class Printing:
    """A document to print."""

    url: str
    title: str = "untitled"
    options: Mapping[str, JSON] = field(factory=dict)


@frozen
class PlainAccount:
    """One key."""

    key: Secret


@frozen(kw_only=True)
class PlainSettings:
    """Where the provider is, and limits."""

    base_url: str
    timeout: timedelta = timedelta(seconds=30)
    limit_bytes: int = 1024 * 1024


@frozen(kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Mapping[str, Any]:
        """The body as a JSON object."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            message = f"the answer (HTTP {self.status}) is no JSON"
            raise HandlerError(message) from error
        if not isinstance(found, dict):
            message = f"the answer (HTTP {self.status}) is no JSON object"
            raise HandlerError(message)
        return found


def signature(key: str, body: bytes) -> str:
    """Return what callbacks are signed with."""
    return hmac.new(key.encode(), body, "sha256").hexdigest()
