"""Secrets never show, and are read when they are used."""

import copy
import json
import pickle
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import attrs
import pytest

from coatcheck.errors import ConfigurationError, NotPersistable
from coatcheck.persistable import to_json
from coatcheck.secret import Secret


@attrs.frozen
class Account:
    """A credential as handlers declare it."""

    api_key: Secret


@dataclass
class OldAccount:
    """A credential as a dataclass."""

    api_key: Secret


def test_a_secret_prints_as_stars() -> None:
    """Neither printing, formatting nor the repr of what holds it shows it."""
    secret = Secret("hunter2")
    shown = [str(secret), repr(secret), f"{secret}", f"{secret!r:>10}", f"{Account(secret)}", repr([secret])]
    shown += [
        repr(attrs.asdict(Account(secret))),
        repr(asdict(OldAccount(secret))),
        repr(Secret.from_env("X")),
    ]
    assert all("hunter2" not in each and "***" in each for each in shown)
    assert secret.reveal() == "hunter2"


@pytest.mark.parametrize("refuse", [pickle.dumps, to_json, lambda each: to_json({"a": [each]})])
def test_a_secret_is_never_stored(refuse: Any) -> None:
    """Pickling a credential, or making JSON of it, is refused, and tells nothing."""
    with pytest.raises(NotPersistable) as caught:
        refuse(Secret("hunter2"))
    assert "hunter2" not in str(caught.value)


def test_json_does_not_know_secrets() -> None:
    """The standard library's JSON refuses it like any foreign object."""
    with pytest.raises(TypeError):
        json.dumps(Secret("hunter2"))


def test_copies_are_the_secret_itself() -> None:
    """Copying what holds a credential works, since a secret does not change."""
    account = Account(Secret("x"))
    assert copy.copy(account.api_key) is account.api_key
    assert copy.deepcopy(account) == account
    with pytest.raises(AttributeError):
        account.api_key._content = "y"
    with pytest.raises(AttributeError):
        del account.api_key._content


def test_secrets_compare_by_where_they_come_from() -> None:
    """Two accounts of the same credential are equal, and may be keys."""
    assert Secret("x") == Secret("x")
    assert Secret("x") != Secret("y")
    assert Secret("x") != Secret.from_env("x")
    assert Secret("x") != "x"
    assert len({Secret("x"), Secret("x"), Secret.from_env("x"), Secret.from_file("x")}) == 3


@pytest.mark.parametrize("value", ["", "  ", None, b"x", 7])
def test_a_secret_is_text(value: Any) -> None:
    """Nothing and anything but text is refused when it is made, without showing it."""
    with pytest.raises(ConfigurationError, match=r"Secret\.from_env") as caught:
        Secret(value)
    assert "b'x'" not in str(caught.value)


def test_the_environment_is_read_at_each_reveal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential that is rotated, or not there yet, needs no restart and stops no start."""
    monkeypatch.delenv("ACME_KEY", raising=False)
    secret = Secret.from_env("ACME_KEY")
    with pytest.raises(ConfigurationError, match="'ACME_KEY' is not set"):
        secret.reveal()
    for value in ("one", "two"):
        monkeypatch.setenv("ACME_KEY", value)
        assert secret.reveal() == value
    monkeypatch.setenv("ACME_KEY", " ")
    with pytest.raises(ConfigurationError, match="'ACME_KEY' is blank"):
        secret.reveal()


def test_a_file_is_read_at_each_reveal(tmp_path: Path) -> None:
    """A mounted file is read without its last newline, anew each time."""
    path = tmp_path / "key"
    secret = Secret.from_file(path)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        secret.reveal()
    for value in ("one", "two\r\n", " three \n"):
        path.write_bytes(value.encode())
        assert secret.reveal() == value.rstrip("\r\n")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not text in UTF-8") as caught:
        secret.reveal()
    assert "xff" not in "".join(traceback.format_exception(caught.value))
    path.write_text("\n")
    with pytest.raises(ConfigurationError, match="is blank"):
        secret.reveal()
