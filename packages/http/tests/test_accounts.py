import pytest
from attrs import frozen

from coatcheck.errors import ConfigurationError, UnknownAccount
from coatcheck.secret import Secret
from coatcheck_http import ApiKey
from coatcheck_http.accounts import find_account, header_value, secrets_of


def test_an_account_never_shows_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made of text, or of the environment when it is used."""
    monkeypatch.setenv("TEST_KEY", "sk-from-env")
    assert "sk-" not in repr(ApiKey("sk-1")) + repr(ApiKey.from_env("TEST_KEY"))
    assert ApiKey.from_env("TEST_KEY").api_key.reveal() == "sk-from-env"
    assert ApiKey(Secret("sk-1")) == ApiKey("sk-1")


def test_accounts_come_alone_by_id_or_by_function() -> None:
    """One account is the default one; a function may look accounts up."""
    one, other = ApiKey("k1"), ApiKey("k2")
    assert find_account("h", one, None) is one
    assert find_account("h", {"default": one, "cn": other}, "cn") is other
    assert find_account("h", {"default": one}.get, "default") is one
    assert find_account("h", lambda account_id: other if account_id is None else None, None) is other


@pytest.mark.parametrize(
    "accounts",
    [None, ApiKey("k"), {"default": ApiKey("k")}, {}.__getitem__, {}.get],
)
def test_an_unknown_account_is_named(accounts: object) -> None:
    """However accounts are given, a missing one is the same error."""
    with pytest.raises(UnknownAccount, match="'cn'"):
        find_account("h", accounts, "cn")


@frozen
class KeyPair:
    """An account of two parts."""

    access_key: str
    secret_key: Secret
    gone: Secret


def test_all_secrets_of_an_account_are_known() -> None:
    """For redaction; one whose source is gone cannot leak."""
    gone = Secret.from_env("COATCHECK_TEST_NO_SUCH_VARIABLE")
    assert list(secrets_of(KeyPair("ak", Secret("sk-secret"), gone))) == ["sk-secret"]
    assert list(secrets_of("no account")) == []


def test_a_key_has_to_fit_a_header() -> None:
    """Line breaks and the like are found before anything is sent, and not shown."""
    assert header_value(Secret("sk-1")) == "sk-1"
    for wrong in ("sk\n1", "sk-1 ", "schlüssel", "sk\x00"):
        with pytest.raises(ConfigurationError, match="header") as caught:
            header_value(Secret(wrong))
        assert wrong not in str(caught.value)
