"""Tokens that are made here rather than fetched: JWTs, signed with an account's secret by HMAC-SHA256.

They need PyJWT, the extra ``jwt``, which is imported when the first one is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret
from coatcheck.task import JSON
from coatcheck_http import MintedToken, TokenCache

__all__ = ["FRESH", "sign_jwt", "signed_tokens", "unix_seconds"]

FRESH = timedelta(minutes=1)
"""A token that is refused at this age is no old one: another would be refused as well."""

A = TypeVar("A")


def unix_seconds() -> float:
    """Return the time of this machine, which is what tokens are stamped with."""
    return time.time()


def sign_jwt(
    claims: Mapping[str, JSON], secret: Secret, *, headers: Mapping[str, str] | None = None
) -> Secret:
    """Return a JWT with these claims, signed with `secret`; `headers` go beside ``alg`` and ``typ``.

    Raises:
        ConfigurationError: PyJWT is not installed, or cannot sign with this secret.
    """
    try:
        from jwt import PyJWS, PyJWTError  # noqa: PLC0415 - an extra, which few accounts need
        from jwt.algorithms import HMACAlgorithm  # noqa: PLC0415
    except ImportError as error:
        message = (
            "tokens of this account are signed here, for which PyJWT is not installed; "
            "pip install 'coatcheck-handler-video[jwt]'"
        )
        raise ConfigurationError(message) from error

    class AnyLength(HMACAlgorithm):
        """Takes secrets as short as providers give them out; a warning about that would help nobody."""

        def check_key_length(self, key: bytes) -> str | None:
            return None

    signer = PyJWS(algorithms=[])
    signer.register_algorithm("HS256", AnyLength(HMACAlgorithm.SHA256))
    payload = json.dumps(dict(claims), separators=(",", ":")).encode()
    try:
        return Secret(signer.encode(payload, secret.reveal(), "HS256", dict(headers or {})))
    except PyJWTError as error:
        message = f"the account's secret cannot sign tokens: {error}; copy it again from the provider"
        raise ConfigurationError(message) from error


def signed_tokens(make: Callable[[A], MintedToken]) -> TokenCache[A]:
    """Return a cache of the tokens that `make` signs for accounts, each used until shortly before its end."""

    async def mint(account: A) -> MintedToken:
        return make(account)

    return TokenCache(mint, fresh=FRESH)
