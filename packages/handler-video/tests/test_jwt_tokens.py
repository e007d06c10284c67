import asyncio
import sys
from datetime import timedelta

import pytest

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret
from coatcheck_handler_video import ApiKey
from coatcheck_handler_video.jwt_tokens import FRESH, sign_jwt, signed_tokens, unix_seconds
from coatcheck_http import MintedToken
from coatcheck_sandbox.signed_tokens import read_jwt

SHORT = "tiny"
"""Shorter than what PyJWT warns about."""


def test_a_token_is_signed_with_the_secret() -> None:
    """Whatever its length; the headers that are given go beside those that every token has."""
    token = sign_jwt({"iss": "me", "exp": 7}, Secret(SHORT), headers={"sign_type": "SIGN"}).reveal()
    header = {"alg": "HS256", "typ": "JWT", "sign_type": "SIGN"}
    assert read_jwt(token, SHORT) == (header, {"iss": "me", "exp": 7})
    assert read_jwt(token, "another") is None
    assert read_jwt("no-token", SHORT) is None


def test_a_token_never_shows() -> None:
    """It is a secret like the one that it was made of."""
    assert repr(sign_jwt({}, Secret(SHORT))) == "***"


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigurationError, match=r"coatcheck-handler-video\[jwt\]"):
        sign_jwt({}, Secret(SHORT))


def test_a_key_of_another_kind_cannot_sign() -> None:
    """The message does not hold it."""
    key = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----"
    with pytest.raises(ConfigurationError, match="cannot sign") as caught:
        sign_jwt({}, Secret(key))
    assert "MFkw" not in str(caught.value)


def test_tokens_are_stamped_with_unix_time() -> None:
    """In seconds, long after 2020 and long before milliseconds."""
    assert 1_600_000_000 < unix_seconds() < 100_000_000_000


async def test_a_token_is_kept_and_dropped_when_it_is_old() -> None:
    """One that is refused as soon as it is made is kept: another would be refused as well."""
    now, made = [0.0], list[str]()

    def make(account: ApiKey) -> MintedToken:
        made.append(account.api_key.reveal())
        return MintedToken(token=Secret(f"token-{len(made)}"), lifetime=timedelta(minutes=30))

    tokens = signed_tokens(make)
    tokens.clock = lambda: now[0]
    one, other = ApiKey("one"), ApiKey("other")
    assert tokens.peek(one) is None
    assert not tokens.refused(one)
    got = await asyncio.gather(*(tokens.get(each) for each in (one, one, other)))
    assert [each.reveal() for each in got] == ["token-1", "token-1", "token-2"]
    assert tokens.peek(one) == Secret("token-1")
    assert not tokens.refused(one)
    now[0] = FRESH.total_seconds() + 1
    assert tokens.refused(one)
    assert not tokens.refused(one)
    assert (await tokens.get(one)).reveal() == "token-3"
    now[0] += 30 * 60
    assert (await tokens.get(one)).reveal() == "token-4"
    assert made == ["one", "other", "one", "one"]
