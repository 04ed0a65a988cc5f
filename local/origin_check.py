"""Origin check: accept requests from programs on this machine, but not from a web page in a browser on it.

Any page can make a browser post a form to a loopback port, and can resolve its own name to 127.0.0.1 (DNS rebinding).
The connection shows neither; the browser's headers do: `Origin` the first, `Host` the second.
"""

from collections.abc import Mapping

NAMES = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80
"""The default port, which a browser omits."""


def refusal(headers: Mapping[str, str], port: int) -> str | None:
    """Why a request to this port is refused, in a sentence; None if it is accepted. Header names are in lower case."""
    own = {f"{name}:{port}" for name in NAMES} | ({*NAMES} if port == HTTP_PORT else set())
    if headers.get("host", "").lower() not in own:
        return f"Only 127.0.0.1:{port} and localhost:{port} are served here; Host names another address."
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{address}" for address in own}:
        return "A page of another address may not call this port; only programs on this machine may."
    return None
