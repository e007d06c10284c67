"""What a URL says about where Redis is: one server, the servers of a Sentinel, or a Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from attrs import evolve, field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.urls import StoreUrl, redacted_url

__all__ = ["SCHEMES", "Place", "Tls", "Topology"]

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
"""The schemes of URLs; those with two s encrypt."""
_EXAMPLES = {
    "redis": "redis://:password@host:6379/0",
    "rediss": "rediss://user:password@host:6379/0",
    "unix": "unix:///run/redis/redis.sock?db=0",
    "redis+sentinel": "redis+sentinel://host1:26379,host2:26379,host3:26379/service/0",
    "rediss+sentinel": "rediss+sentinel://host1:26379,host2:26379,host3:26379/service/0",
    "redis+cluster": "redis+cluster://host1:6379,host2:6379",
    "rediss+cluster": "rediss+cluster://host1:6379,host2:6379",
}
_PORT = 6379
_SENTINEL_PORT = 26379
_LAST_PORT = 65_535
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Topology(StrEnum):
    """How the servers stand to each other."""

    SINGLE = "single"
    "One address, whatever stands behind it."
    SENTINEL = "sentinel"
    "A master and its replicas, of which Sentinels say which is which."
    CLUSTER = "cluster"
    "Several masters, each for a part of the keys. All keys of a store are on one of them."


@frozen(kw_only=True)
class Tls:
    """How connections are encrypted. The names are those that redis-py has, in the URL, too."""

    ssl_ca_certs: str | None = None
    """The file with the certificates of the authorities to trust; None: those of the system."""
    ssl_certfile: str | None = None
    """The file with our own certificate, for a server that wants one."""
    ssl_keyfile: str | None = None
    """The file with its key."""
    ssl_check_hostname: bool = True
    """Whether the certificate must name the host that we connect to."""


@frozen(kw_only=True)
class Place:
    """Where Redis is, and who we are there."""

    scheme: str
    topology: Topology
    addresses: tuple[tuple[str, int], ...] = ()
    """Host and port: of the server, of Sentinels, or of some nodes of a Cluster. None for a Unix socket."""
    path: str | None = None
    """The Unix socket."""
    service: str | None = None
    """The name under which Sentinels know the master."""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    """Of the Sentinels themselves, which have accounts of their own."""
    tls: Tls | None = None
    """None: nothing is encrypted."""
    settings: Mapping[str, str] = field(factory=dict, repr=False)
    """What else the query string says: for the store."""

    @property
    def shown(self) -> str:
        """The URL for people: without passwords and settings."""
        who = f"{self.username or ''}:***@" if self.password else ""
        where = self.path or ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.addresses)
        if self.topology is Topology.CLUSTER:
            return f"{self.scheme}://{who}{where}"
        if self.path is not None:
            return f"{self.scheme}://{who}{where}?db={self.database}"
        service = f"/{self.service}" if self.service is not None else ""
        return f"{self.scheme}://{who}{where}{service}/{self.database}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return what a URL says.

        Raises:
            ConfigurationError: it cannot be what was meant; the message shows no password.
        """
        given = StoreUrl.parse(text)
        if given.scheme not in SCHEMES:
            message = (
                f"{given.scheme}:// is not served; coatcheck-store-redis serves "
                f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
            )
            raise ConfigurationError(message)
        return _Reading(text, given).place()


class _Reading:
    """One URL being read."""

    def __init__(self, text: str, given: StoreUrl) -> None:
        self.scheme = given.scheme
        self.topology = Topology(given.scheme.partition("+")[2] or "single")
        self.shown = redacted_url(text)
        self.settings = dict(given.settings)
        login, self.at, where = given.url.partition("://")[2].rpartition("@")
        self.user, self.colon, self.password = login.partition(":")
        self.hosts, self.slash, self.path = where.partition("/")

    def refuse(self, why: str) -> NoReturn:
        """Raise what tells how such a URL is written."""
        raise ConfigurationError(f"the URL {self.shown} {why}; write {_EXAMPLES[self.scheme]}")

    def place(self) -> Place:
        """Return what it says."""
        self._check_login()
        found = self._on_socket() if self.scheme == "unix" else self._on_network()
        return evolve(
            found,
            username=unquote(self.user) or None,
            password=unquote(self.password) or None,
            tls=self._tls(),
            settings=self.settings,
        )

    def _check_login(self) -> None:
        if self.at and not self.colon:
            # it may well be the password: it must not show
            self.shown = f"{self.scheme}://***@{self.hosts}"
            self.refuse("has a name before the @, but no password: a password alone has a colon before it")
        if self.at and self.user and not self.password:
            self.refuse(f"names the user {unquote(self.user)!r}, but no password")

    def _on_socket(self) -> Place:
        if self.hosts or not self.path:
            self.refuse("names no socket: the path of a socket begins with a slash")
        database = self._database(self.settings.pop("db", ""))
        path = Path("/") / unquote(self.path)
        return Place(scheme=self.scheme, topology=self.topology, path=str(path), database=database)

    def _on_network(self) -> Place:
        addresses = self._addresses()
        parts = [unquote(part) for part in self.path.rstrip("/").split("/")] if self.path else []
        service = None
        if self.topology is Topology.SENTINEL:
            if not parts or not parts[0] or parts[0].isdecimal():
                self.refuse("does not say under which name the Sentinels know the master")
            service = parts.pop(0)
        if len(parts) > 1:
            self.refuse(f"goes on after the number of the database: {'/'.join(parts)!r}")
        database = self._database(parts[0] if parts else "")
        if database and self.topology is Topology.CLUSTER:
            self.refuse(f"names database {database}, but a Cluster has only database 0")
        place = Place(
            scheme=self.scheme,
            topology=self.topology,
            addresses=addresses,
            service=service,
            database=database,
        )
        if self.topology is not Topology.SENTINEL:
            return place
        user, password = (self.settings.pop(f"sentinel_{name}", None) for name in ("username", "password"))
        return evolve(place, sentinel_username=user, sentinel_password=password)

    def _addresses(self) -> tuple[tuple[str, int], ...]:
        listed = self.hosts.split(",")
        if len(listed) > 1 and self.topology is Topology.SINGLE:
            encrypted = self.scheme.partition("+")[0]
            self.refuse(
                f"names {len(listed)} servers; {encrypted}+sentinel:// is for Sentinels, "
                f"{encrypted}+cluster:// for the nodes of a Cluster, and {encrypted}:// for one server"
            )
        return tuple(map(self._address, listed))

    def _address(self, text: str) -> tuple[str, int]:
        host, bracket, rest = text.rpartition("]")
        if not bracket and text.count(":") > 1:
            self.refuse(f"has the host {text!r}: an address of IPv6 stands in brackets, as in [::1]:6379")
        if bracket:
            host, port = host.removeprefix("["), rest.removeprefix(":")
        else:
            host, _, port = text.partition(":")
        if not host:
            self.refuse("names no host")
        if not port:
            return host, _SENTINEL_PORT if self.topology is Topology.SENTINEL else _PORT
        if not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
            self.refuse(f"has the port {port!r}, which is no number from 1 to {_LAST_PORT}")
        return host, int(port)

    def _database(self, text: str) -> int:
        if not text:
            return 0
        if not text.isdecimal():
            self.refuse(f"names the database {text!r}; databases of Redis have numbers, from 0 on")
        return int(text)

    def _tls(self) -> Tls | None:
        named = {name: self.settings.pop(name) for name in _TLS_NAMES if name in self.settings}
        if not self.scheme.startswith("rediss"):
            if named:
                self.refuse(f"has {', '.join(named)}, which only counts in rediss://, where it is encrypted")
            return None
        check = named.pop("ssl_check_hostname", "true").lower()
        if check not in _YES + _NO:
            self.refuse(f"has ssl_check_hostname={check!r}, which is neither true nor false")
        for name, file in named.items():
            if not Path(file).is_file():
                self.refuse(f"has {name}={file!r}, and there is no such file")
        return Tls(ssl_check_hostname=check in _YES, **named)


_TLS_NAMES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
