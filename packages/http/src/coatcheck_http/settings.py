"""Settings that every HTTP handler has. Credentials are no settings: see `coatcheck_http.accounts`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from attrs import field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret

__all__ = ["HttpSettings"]

_MIB = 1024 * 1024


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        message = f"a sequence of strings is wanted, not the string {values!r}; write ({values!r},)"
        raise ConfigurationError(message)
    return tuple(values)


@frozen(kw_only=True)
class HttpSettings:
    """Where a provider is, how long to wait for it, and how much to take from it.

    Proxies and `.netrc` of the environment are not used: a variable in somebody's shell must not send paid
    calls and credentials elsewhere. Name a proxy here. `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured.
    """

    base_url: str | None = None
    """The provider, or a gateway, region or sandbox; None is the handler's own."""
    allow_http: bool = False
    """Whether `base_url` may be plain http to another machine, as on a private network."""
    trusted_origins: tuple[str, ...] = field(default=(), converter=_strings)
    """URLs whose origins may see the credentials, beside the base URL's; for absolute URLs in answers."""
    connect_timeout: timedelta = timedelta(seconds=10)
    """For look-up of the name, connection and TLS handshake."""
    read_timeout: timedelta = timedelta(seconds=60)
    """For each wait for the next bytes, and for writing some."""
    exchange_timeout: timedelta = timedelta(minutes=2)
    """For one request and its whole answer, and for one download."""
    max_connections: int | None = None
    """At the same time, for queries; None leaves it to the worker's budget of calls."""
    max_answer_bytes: int = 32 * _MIB
    """Of one answer of the provider, unpacked."""
    max_download_bytes: int = 100 * _MIB
    """Of one document or result, unpacked. It is held in memory while it is handed on."""
    max_redirects: int = 5
    """Of one download. Redirects of the provider's own API are never followed."""
    allow_private: bool = False
    """Whether documents and results may be fetched from private and local addresses, whatever the host."""
    private_hosts: tuple[str, ...] = field(default=(), converter=_strings)
    """Hosts whose documents and results may be fetched from private and local addresses."""
    max_retry_after: timedelta = timedelta(hours=1)
    """No Retry-After counts for more."""
    proxy: Secret | None = None
    """URL of a proxy for the provider's API, which may hold a password. Downloads go without it, since a
    proxy would look names up itself and so undo the check of addresses."""
    ca_file: str | None = None
    """A file of certificates to trust beside the usual ones, as for a provider of one's own."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        zero = timedelta()
        wrong = {
            "timeouts must be positive": min(self.connect_timeout, self.read_timeout, self.exchange_timeout)
            <= zero,
            "limits of bytes must be positive": min(self.max_answer_bytes, self.max_download_bytes) < 1,
            "max_redirects must not be negative": self.max_redirects < 0,
            "max_retry_after must not be negative": self.max_retry_after < zero,
            "max_connections must be positive, or None": self.max_connections is not None
            and self.max_connections < 1,
        }
        for rule, broken in wrong.items():
            if broken:
                message = f"{rule}: {self!r}"
                raise ConfigurationError(message)
