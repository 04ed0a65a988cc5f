"""Egress policy: where a connection may lead. An address from outside may lead only to the public Internet."""

# A name is resolved once, every answer is checked, and the connection goes to a checked address. So a name that
# resolves differently a moment later (DNS rebinding) has no effect. The check sees the address that the socket gets,
# not the URL: 0x7f.1, 2130706433, a user before an @ or a trailing dot make no difference.

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

IPAddress = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Iterable[str]]
"""Every address of a name or of a literal address. Raises OSError if there is none."""

GLOBAL_UNICAST = ip_network("2000::/3")
"""All public IPv6. It excludes ::1, fc00::/7, fe80::/10 and ff00::/8, and embedded IPv4: mapped (::ffff:0:0/96) and
translated (64:ff9b::/96, 64:ff9b:1::/48)."""

NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = tuple(
    ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network; 0.0.0.0 is this machine
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by a carrier's customers; metadata of one cloud at 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # a public address, but in Azure the host's services
        "169.254.0.0/16",  # link-local; metadata of most clouds at 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",  # protocol assignments, including Teredo (2001::/32)
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",
    )
)
"""https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry (seen November 2026). Not
`is_global` of the standard library, because its answers differ between versions."""


class NotPublic(OSError):
    """An address from outside is not public."""


def is_public(address: IPAddress) -> bool:
    """Whether the address is public: not of this machine, its network or its cloud."""
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return not any(address in block for block in NOT_PUBLIC)


def resolve(host: str, port: int) -> list[str]:
    """The addresses from the machine's resolver, in its order."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Where connections may lead. The creator of a client chooses it; the default is the public Internet."""

    allows: Callable[[IPAddress], bool]
    resolve: Resolve = resolve

    def addresses(self, host: str, port: int) -> list[str]:
        """The addresses to try for this host, in order. Raises NotPublic if any of them is not allowed (a mix is
        suspicious), and what the resolver raises.
        """
        found = list(self.resolve(host, port))
        if not all(self.allows(ip_address(address)) for address in found):
            raise NotPublic("The name leads to an address that is not public.")
        return found


PUBLIC = EgressPolicy(is_public)
ANYWHERE = EgressPolicy(lambda _: True)
"""For the addresses in the deployment's configuration."""
