"""Credentials that never show: in no log, no error, no listing, and never in the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn, Self

from coatcheck.errors import ConfigurationError, NotPersistable

__all__ = ["Secret"]

_HIDDEN = "***"


class Secret:
    """A credential. It prints as ``***``, and can be neither pickled nor stored.

    Making one does no I/O. What `from_env` and `from_file` make reads its source anew at each `reveal`, so a
    credential is rotated without a restart, and a process that never calls the provider needs none.

    It is no attrs class on purpose: `attrs.asdict` of an account would lay it open.
    """

    __slots__ = ("_content", "_source")

    _source: str
    _content: str

    def __init__(self, value: str) -> None:
        """Hold `value`.

        Raises:
            ConfigurationError: `value` is no string, or blank.
        """
        if not isinstance(value, str) or not value.strip():
            kind = "a blank one" if isinstance(value, str) else f"a {type(value).__name__}"
            message = (
                f"a secret is a non-blank string, not {kind}; leave it out, or use Secret.from_env(name)"
            )
            raise ConfigurationError(message)
        _fill(self, "value", value)

    @classmethod
    def from_env(cls, name: str) -> Self:
        """Return a secret that is read from the environment variable `name` whenever it is revealed."""
        return cls._of("env", name)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return a secret that is read from a file whenever it is revealed, without the newlines at its end.

        The file is text in UTF-8, as Docker and Kubernetes mount secrets.
        """
        return cls._of("file", os.fspath(path))

    @classmethod
    def _of(cls, source: str, content: str) -> Self:
        secret = cls.__new__(cls)
        _fill(secret, source, content)
        return secret

    def reveal(self) -> str:
        """Return the credential itself. Call it where it is used, and keep what it returns nowhere.

        Raises:
            ConfigurationError: the environment variable is not set, the file cannot be read, or it is blank.
        """
        if self._source == "value":
            return self._content
        value = self._read_env() if self._source == "env" else self._read_file()
        if not value.strip():
            message = f"the secret from {self._source} {self._content!r} is blank; put the credential there"
            raise ConfigurationError(message)
        return value

    def _read_env(self) -> str:
        try:
            return os.environ[self._content]
        except KeyError:
            message = f"the environment variable {self._content!r} is not set; it is to hold a credential"
            raise ConfigurationError(message) from None

    def _read_file(self) -> str:
        try:
            return Path(self._content).read_text("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            message = f"the secret file {self._content!r} cannot be read: {why}"
            raise ConfigurationError(message) from None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change; make another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a secret does not change; make another")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._source, self._content) == (other._source, other._content)

    def __hash__(self) -> int:
        return hash((self._source, self._content))

    def __repr__(self) -> str:
        return _HIDDEN

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise NotPersistable("secret", "a credential is never pickled; hand on where it comes from instead")


def _fill(secret: Secret, source: str, content: str) -> None:
    object.__setattr__(secret, "_source", source)
    object.__setattr__(secret, "_content", content)
