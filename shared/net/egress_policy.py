"""Egress policy: where a connection may lead. An address from outside leads to the public Internet or nowhere."""

# A name is resolved once, every answer is looked at, and the connection goes to an address that was looked at: a name
# that answers otherwise a moment later changes nothing. What counts is what the socket is given, never how a URL is
# written: 0x7f.1, 2130706433, a user before an @ or a dot at the end are all the same to it.

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

IPAddress = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Iterable[str]]
"""Every address of a name, or of what stands for one; raises OSError where there is none."""

GLOBAL_UNICAST = ip_network("2000::/3")
"""All that is public of IPv6. So neither ::1 nor fc00::/7, fe80::/10 and ff00::/8, nor IPv4 in its disguises: mapped
(::ffff:0:0/96) and translated (64:ff9b::/96, 64:ff9b:1::/48)."""

NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = tuple(
    ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network; 0.0.0.0 is this machine
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by a carrier's customers; metadata of one cloud at 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # a public number that is the host's own services in Azure
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
        "2001::/23",  # protocols' own, Teredo (2001::/32) among them
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",
    )
)
"""https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry (seen November 2026). Not
`is_global` of the standard library: what it says has changed between its versions."""


class NotPublic(OSError):
    """An address leads to where a stranger may not send us."""


def is_public(address: IPAddress) -> bool:
    """Whether it is anybody's to reach, and nothing of this machine, its network, or its cloud."""
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return not any(address in block for block in NOT_PUBLIC)


def resolve(host: str, port: int) -> list[str]:
    """What the machine's resolver says, in its order."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """How far connections may go. Who makes a client says so; where nobody does, it is the public Internet."""

    allows: Callable[[IPAddress], bool]
    resolve: Resolve = resolve

    def addresses(self, host: str, port: int) -> list[str]:
        """Where a connection to this host may be tried, in order. Raises NotPublic if only one of its addresses lies
        beyond reach (whoever mixes them means it), and what the resolver raises.
        """
        found = list(self.resolve(host, port))
        if not all(self.allows(ip_address(address)) for address in found):
            raise NotPublic("The name leads to an address that is not public.")
        return found


PUBLIC = EgressPolicy(is_public)
ANYWHERE = EgressPolicy(lambda _: True)
"""For the addresses of the deployment's own configuration."""
