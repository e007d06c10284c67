"""Tokens that are made here rather than fetched: JWTs, signed with an account's secret by HMAC-SHA256.

They need PyJWT, the extra ``jwt``, which is imported when the first one is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Generic, TypeVar

from attrs import define, field

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret
from coatcheck.task import JSON
from coatcheck_http import MintedToken, TokenCache

__all__ = ["FRESH", "SignedTokens", "sign_jwt", "unix_seconds"]

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


@define(eq=False)
class SignedTokens(Generic[A]):
    """Signed tokens by account, each used until shortly before its end. For one event loop."""

    make: Callable[[A], MintedToken]
    """Signs one for an account, which has to be hashable."""
    clock: Callable[[], float] = time.monotonic
    _made: dict[A, tuple[Secret, float]] = field(factory=dict, repr=False)
    _cache: TokenCache[A] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Begin without tokens."""
        self._cache = TokenCache(self._mint, clock=self.clock)

    async def get(self, account: A) -> Secret:
        """Return a token that is good for now; raise what signing one raises."""
        return await self._cache.get(account)

    def refused(self, account: A) -> bool:
        """Drop a token that the provider refused; True if another may do: not if it was as good as new."""
        token, since = self._made.get(account, (None, 0.0))
        if token is None or self.clock() - since < FRESH.total_seconds():
            return False
        return self._cache.drop(account, token)

    def known(self, account: A) -> tuple[str, ...]:
        """Return the token that was made last for an account, as text that must not show; none if none was."""
        made = self._made.get(account)
        return () if made is None else (made[0].reveal(),)

    async def _mint(self, account: A) -> MintedToken:
        minted = self.make(account)
        self._made[account] = (minted.token, self.clock())
        return minted
