from collections.abc import Sequence

import pytest

from coatcheck_http import AddressGuard, AddressRefused, DownloadFailed
from coatcheck_http.addresses import is_public, resolve

PRIVATE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.1.2.3", "169.254.169.254",
    "168.63.129.16", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "172.32.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_inside_are_not_public(address: str) -> None:
    """Private, local, shared, reserved and multicast ones, metadata services, and those wrapped in IPv6."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_outside_are_public(address: str) -> None:
    """Also if they are wrapped in IPv6."""
    assert is_public(address)


def answering(*addresses: str) -> AddressGuard:
    """Return a guard whose names all have these addresses."""

    async def resolver(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return AddressGuard(resolver=resolver, private_hosts=frozenset({"Files.Internal."}))


async def test_one_private_address_spoils_a_name() -> None:
    """A name with both kinds is refused, and the message says how to allow it."""
    assert await answering("8.8.8.8", "1.1.1.1").addresses("x.example", 443) == ("8.8.8.8", "1.1.1.1")
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1.*private_hosts") as caught:
        await answering("8.8.8.8", "10.0.0.1").addresses("x.example", 443)
    assert caught.value.final


async def test_hosts_can_be_allowed() -> None:
    """By name, whatever the case and a final dot; or all of them."""
    assert await answering("10.0.0.1").addresses("files.internal", 80) == ("10.0.0.1",)
    with pytest.raises(AddressRefused):
        await answering("10.0.0.1").addresses("evil.files.internal", 80)
    assert await AddressGuard(allow_private=True).addresses("127.0.0.1", 80) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "[::1]".strip("[]")]
)
async def test_odd_spellings_lead_nowhere(host: str) -> None:
    """What the system takes for this machine is judged by the address that it gives."""
    with pytest.raises((AddressRefused, DownloadFailed)):
        await AddressGuard().addresses(host, 80)


async def test_a_name_that_cannot_be_looked_up_may_be_later() -> None:
    """It is no reason to give up; no address at all neither."""

    async def resolver(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such name")

    for guard in (AddressGuard(resolver=resolver), answering()):
        with pytest.raises(DownloadFailed) as caught:
            await guard.addresses("x.example", 80)
        assert (caught.value.final, caught.value.code) == (False, "name_unknown")
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
