"""TLS to a Redis server whose certificate comes from a private authority, as Memorystore's does.

redis-py adds an authority to those of the system. This code trusts only the given authority and does not compare the
name in the certificate: any certificate of this authority proves this server. (Memorystore puts its address into the
common name, which Python does not read: https://github.com/envoyproxy/ratelimit/pull/409, 2023-04.)
"""

import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import SSLConnection


def connection_class(ca_certs: str) -> "type[SSLConnection]":
    """Connections that trust only these authorities (PEM). Raises ssl.SSLError if the PEM holds none."""
    from redis import SSLConnection

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=ca_certs)

    class OwnAuthority(SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            return context.wrap_socket(sock, server_hostname=self.host)

    return OwnAuthority
