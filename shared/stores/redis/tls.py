"""TLS to a Redis server whose certificate comes from an authority of its own, as Memorystore's does.

redis-py adds an authority to those of the system. Here the one that is given counts alone, and the name in the
certificate is not compared: whoever has a certificate of this authority is this server. (Memorystore puts its address
into the common name, which Python does not read: https://github.com/envoyproxy/ratelimit/pull/409, 2023-04.)
"""

import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import SSLConnection


def connection_class(ca_certs: str) -> "type[SSLConnection]":
    """Connections that believe these authorities (PEM) and no other. Raises ssl.SSLError where there is none in it."""
    from redis import SSLConnection

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=ca_certs)

    class OwnAuthority(SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            return context.wrap_socket(sock, server_hostname=self.host)

    return OwnAuthority
