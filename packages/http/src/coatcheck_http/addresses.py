"""Which addresses a download may connect to: public ones, and private ones only where the settings say so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from attrs import field, frozen

from coatcheck_http.errors import AddressRefused, DownloadFailed

__all__ = ["AddressGuard", "is_public", "resolve"]

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, for a port."""

_NAT64 = IPv6Network("64:ff9b::/96")
_REFUSED: tuple[IPv4Network | IPv6Network, ...] = tuple(
    ip_network(each)
    for each in (
        "100.64.0.0/10",  # shared by carriers; also Alibaba Cloud's metadata service
        "168.63.129.16/32",  # public by number, and Azure's metadata service by use
        "192.0.0.0/24",  # protocol assignments; also Oracle Cloud's metadata service
        "192.88.99.0/24",  # 6to4 relays
        "::/96",  # IPv4 in IPv6, long abandoned
        "64:ff9b:1::/48",  # NAT64 for local use
        "2001::/23",  # protocol assignments, among them Teredo, which embeds IPv4
        "2002::/16",  # 6to4, which embeds IPv4
        "5f00::/16",  # segment routing
    )
)
"""What Python calls global, on some of its versions, and a guard must not."""


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet: not private, local, shared, reserved or multicast.

    IPv4 addresses inside IPv6 ones, mapped or by NAT64, are judged themselves.
    """
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found in _NAT64:
            found = IPv4Address(int(found) & 0xFFFFFFFF)
        elif found.is_site_local:
            return False
    if not found.is_global or found.is_multicast or found.is_reserved or found.is_unspecified:
        return False
    return not any(found.version == network.version and found in network for network in _REFUSED)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of `host`, in the system's order of preference; raise `OSError` for none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _names(hosts: Iterable[str]) -> frozenset[str]:
    return frozenset(host.lower().rstrip(".") for host in hosts)


@frozen(kw_only=True)
class AddressGuard:
    """Looks a host up once and says which of its addresses to connect to."""

    allow_private: bool = False
    private_hosts: frozenset[str] = field(default=frozenset(), converter=_names)
    resolver: Resolver = resolve

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of `host`, all of which may be connected to. Connect to these, and to no name.

        Raises:
            AddressRefused: any of them is not public; a name with both kinds is how such checks are deceived.
            DownloadFailed: the name cannot be looked up now.
        """
        try:
            found = await self.resolver(host, port)
        except (OSError, UnicodeError) as error:
            message = f"the host {host!r} cannot be looked up: {error}"
            raise DownloadFailed(message, code="name_unknown") from error
        if not found:
            message = f"the host {host!r} has no address"
            raise DownloadFailed(message, code="name_unknown")
        if not self.allow_private and host.lower().rstrip(".") not in self.private_hosts:
            for address in found:
                if not is_public(address):
                    message = (
                        f"the host {host!r} leads to {address}, which is not a public address; to allow it, "
                        "name the host in the setting private_hosts"
                    )
                    raise AddressRefused(message)
        return found
