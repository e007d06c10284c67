"""fal's webhooks: who has signed one, and the public keys of the provider.

The keys are Ed25519, one by one or in a set as in RFC 7517 and RFC 8037. What is signed was read in 2026 from the page
on webhooks of docs.fal.ai; nothing was tried against the live service.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import cast

from attrs import define, field

from coatcheck.errors import CallbackRejected, HandlerError
from coatcheck.handler import CallbackRequest
from coatcheck.secret import Secret
from coatcheck.task import JSON
from coatcheck_http import (
    MintedToken,
    TokenCache,
    callback_header,
    check_ed25519,
    check_timestamp,
    first_text,
    signature_bytes,
)
from coatcheck_http.extract import items

__all__ = ["WebhookKeys", "read_key", "read_keys"]

_KEY_BYTES = 32
_LIVE = timedelta(hours=24)
"""How long a set of keys is good; the provider allows no more."""
_FRESH = timedelta(minutes=5)
"""A set that was fetched so lately is not fetched again, whatever does not fit it."""
_STANDARD = str.maketrans("-_", "+/")
_HEADERS = tuple(f"x-fal-webhook-{name}" for name in ("request-id", "user-id", "timestamp", "signature"))


def read_key(text: str) -> bytes:
    """Return an Ed25519 key that is written in base64 for URLs, with or without ``=`` at its end.

    Raises:
        ValueError: it is something else, or has not 32 bytes.
    """
    plain = text.strip().rstrip("=").translate(_STANDARD)
    key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    if len(key) != _KEY_BYTES:
        message = f"it has {len(key)} bytes, and Ed25519 keys have {_KEY_BYTES}"
        raise ValueError(message)
    return key


def read_keys(text: str) -> tuple[bytes, ...]:
    """Return the Ed25519 keys of a set; keys of other kinds are passed over.

    Raises:
        ValueError: it is no JSON, a key is broken, or there is none.
    """
    found = [
        read_key(first_text(each, "x") or "")
        for each in items(cast("JSON", json.loads(text)), "keys")
        if (first_text(each, "kty"), first_text(each, "crv")) == ("OKP", "Ed25519")
    ]
    if not found:
        raise ValueError("the set has no Ed25519 key")
    return tuple(found)


@define(eq=False)
class WebhookKeys:
    """The keys that webhooks are signed with: those that are known, or else a set that is fetched and kept."""

    known: Sequence[str]
    url: str
    """Of the set of keys."""
    fetch: Callable[[str], Awaitable[str]]
    """Fetches the set, without credentials."""
    clock: Callable[[], float] = time.monotonic
    _kept: TokenCache[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the cache. The set is no secret, but wanted as tokens are: fetched once at a time, and kept."""
        self._kept = TokenCache(self._fetch, margin=timedelta(0), fresh=_FRESH, clock=self.clock)

    async def check(self, request: CallbackRequest, user_id: str | None) -> None:
        """Accept a callback that the provider has signed within 300 seconds, for this user of it, if one is given.

        Raises:
            CallbackRejected: it is none, or the keys cannot be had now.
            ConfigurationError: the extra ``ed25519`` of coatcheck-http is not installed.
        """
        job, user, timestamp, signature = (callback_header(request, name) for name in _HEADERS)
        check_timestamp(timestamp)
        if user_id is not None and user != user_id:
            raise CallbackRejected("the callback is of another user of the provider than the account's")
        digest = hashlib.sha256(request.body).hexdigest()
        signed = f"{job}\n{user}\n{timestamp}\n{digest}".encode("utf-8", "surrogatepass")
        raw = signature_bytes(signature, "hex")
        if self.known:
            check_ed25519(signed, raw, [read_key(each) for each in self.known])
            return
        try:
            check_ed25519(signed, raw, await self._fetched())
        except CallbackRejected:
            if not self._kept.refused(self.url):
                raise
            check_ed25519(signed, raw, await self._fetched())

    async def _fetched(self) -> tuple[bytes, ...]:
        try:
            return read_keys((await self._kept.get(self.url)).reveal())
        except (HandlerError, ValueError) as error:
            message = f"the provider's public keys cannot be had now, so no callback is taken: {error}"
            raise CallbackRejected(message) from error

    async def _fetch(self, url: str) -> MintedToken:
        text = await self.fetch(url)
        read_keys(text)  # what is no set of keys is not kept
        return MintedToken(token=Secret(text), lifetime=_LIVE)
