"""Origin: whether a request comes from a program on this machine, and not from a web page that a browser here has open.

Any page can make a browser post a form to a loopback port, and can give its own name the address 127.0.0.1 (DNS
rebinding). Neither can be told by the connection. The browser tells: the first by `Origin`, the second by `Host`.
"""

from collections.abc import Mapping

NAMES = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80
"""The one that a browser leaves out."""


def refusal(headers: Mapping[str, str], port: int) -> str | None:
    """Why a request to this port is refused, in a sentence; None where it is not. Names of headers in lower case."""
    own = {f"{name}:{port}" for name in NAMES} | ({*NAMES} if port == HTTP_PORT else set())
    if headers.get("host", "").lower() not in own:
        return f"Only 127.0.0.1:{port} and localhost:{port} are served here; Host names another address."
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{address}" for address in own}:
        return "A page of another address may not call this port; only programs on this machine may."
    return None
