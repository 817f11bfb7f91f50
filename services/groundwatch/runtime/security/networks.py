"""To which addresses of the network somebody else's name may lead us."""

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
"""Where clouds give credentials to whoever asks from the machine: no setting allows these."""

_NOT_PUBLIC = tuple(
    ipaddress.ip_network(one)
    for one in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
    )
)
"""What the registries of special addresses (RFC 6890) name, of IPv6 within the addresses of hosts."""

_HOSTS_6 = ipaddress.ip_network("2000::/3")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_ENDING = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""What ends in an address of IPv4: compatible ones, translated ones (RFC 2765), those of NAT64."""


class Networks:
    """What may be connected to: public addresses, and what the operator lists."""

    def __init__(self, listed: Iterable[str] = ()) -> None:
        self._listed: tuple[Network, ...] = tuple(map(ipaddress.ip_network, listed))

    def allowed(self, text: str) -> str | None:
        """The address to connect to, None where it is not allowed.

        An address of IPv6 that stands for one of IPv4 is allowed only if that one is too.
        """
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if not all(map(self._allows, (address, *_inner(address)))):
            return None
        return str(address)

    def _allows(self, address: Address) -> bool:
        if address in METADATA:
            return False
        return _public(address) or any(address in network for network in self._listed)


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _HOSTS_6:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


def _inner(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """The addresses of IPv4 that translators and tunnels would make of it."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if address.teredo:
        return (address.teredo[1],)
    if address.sixtofour:
        return (address.sixtofour,)
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address in _NAT64_LOCAL:
        # RFC 6052 puts them around the bits 64 to 71 behind a prefix of 48 bits, and last behind one of 96.
        return last, ipaddress.IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
    if number <= 0xFFFFFF:
        # Itself, and nobody: neither stands for another.
        return ()
    isatap = number >> 32 & 0xFDFFFFFF == 0x5EFE
    return (last,) if isatap or any(address in network for network in _ENDING) else ()
