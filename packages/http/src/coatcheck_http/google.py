"""Google: service accounts, and the tokens that are minted of their keys.

The assertion is signed by google-auth, which the extra `google` brings. It is imported when it is needed, in a
thread, and never asks the network: the exchange goes the way of all requests. Claims and form are those of
google-auth 2.63.0 (`google/oauth2/service_account.py`, `_client.py`), read in 2026.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, cast

from attrs import field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret
from coatcheck.task import JSON
from coatcheck_http.accounts import as_secret
from coatcheck_http.extract import first, first_text
from coatcheck_http.messages import HttpRequest, HttpResponse
from coatcheck_http.tokens import MintedToken

__all__ = ["GoogleServiceAccount", "read_token", "token_request"]

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AUDIENCE = "https://oauth2.googleapis.com/token"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFETIME_SECONDS = 3600


@frozen
class GoogleServiceAccount:
    """A service account: the JSON document that Google gives as its key."""

    key_json: Secret = field(converter=as_secret)
    """The whole document, with `client_email`, `private_key` and `token_uri`. Never leaves the process."""

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GoogleServiceAccount:
        """Return the account whose key is in a file, read when it is needed."""
        return cls(Secret.from_file(path))


async def token_request(account: GoogleServiceAccount) -> HttpRequest:
    """Return the request that exchanges a signed assertion, good for an hour, for an access token.

    Raises:
        ConfigurationError: google-auth is not installed, or the key is none.
    """
    key = _read_key(account.key_json.reveal())
    assertion = await asyncio.to_thread(_sign, key, int(time.time()))
    return HttpRequest.post(key["token_uri"], form={"grant_type": _GRANT, "assertion": assertion})


def read_token(response: HttpResponse) -> MintedToken | None:
    """Return the token in the answer to `token_request`; None if there is none. Pure."""
    token = first_text(response.json_object(), "access_token") if response.ok else None
    if token is None:
        return None
    lives = first(response.json(), "expires_in")
    known = isinstance(lives, int) and not isinstance(lives, bool) and lives > 0
    return MintedToken(token=Secret(token), lifetime=timedelta(seconds=cast("int", lives)) if known else None)


def _read_key(text: str) -> Mapping[str, str]:
    wanted = ("client_email", "private_key", "token_uri")
    try:
        found: JSON = json.loads(text)
    except ValueError:
        found = None  # where it fails would tell a part of it
    if not isinstance(found, Mapping):
        raise ConfigurationError("the service account's key is no JSON object; give the whole document")
    missing = [name for name in wanted if not isinstance(found.get(name), str)]
    if missing:
        message = f"the service account's key has no {', '.join(missing)}; give the whole JSON document"
        raise ConfigurationError(message)
    return {name: each for name, each in found.items() if isinstance(each, str)}


def _sign(key: Mapping[str, str], now_seconds: int) -> str:
    crypt, jwt = _load()
    claims = {
        "iss": key["client_email"],
        "aud": _AUDIENCE,
        "scope": SCOPE,
        "iat": now_seconds,
        "exp": now_seconds + _LIFETIME_SECONDS,
    }
    try:
        signer = crypt.RSASigner.from_service_account_info(key)
    except ValueError:
        message = "the private_key in the service account's key cannot be read; download a new key"
        raise ConfigurationError(message) from None
    signed: bytes = jwt.encode(signer, claims)
    return signed.decode("ascii")


def _load() -> tuple[Any, Any]:
    """Import what signs."""
    try:
        return import_module("google.auth.crypt"), import_module("google.auth.jwt")
    except ImportError as error:
        message = (
            "keys of service accounts are used by google-auth, which is not installed: "
            "run pip install 'coatcheck-http[google]'"
        )
        raise ConfigurationError(message) from error
