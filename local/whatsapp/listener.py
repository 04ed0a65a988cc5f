"""A listener: one loopback port that can be closed and reopened, and that refuses web pages.

While it is closed its number stays taken: neither a request for a free port nor an outgoing connection gets it.
"""

import asyncio
import socket

from local.origin_check import refusal
from local.whatsapp.http_transport import HEAD_LIMIT, Handle, Request, Response, converse, json_answer

LOOPBACK = "127.0.0.1"
BACKLOG = 1024


async def _drop(_: Request) -> Response | None:
    return None


class Listener:
    """Bound at once, but closed until `open`; port 0 takes a free one. `handle` answers the requests."""

    def __init__(self, port: int) -> None:
        self.handle: Handle = _drop
        self._socket = _bound(port)
        self.port: int = self._socket.getsockname()[1]
        self.is_open = False
        self._server: asyncio.Server | None = None
        self._idle: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def open(self) -> None:
        """Accept connections. Does nothing if it is open."""
        if not self.is_open:
            self.is_open = True
            self._server = await asyncio.start_server(
                self._connected, sock=self._socket, limit=HEAD_LIMIT, backlog=BACKLOG
            )

    async def close(self) -> None:
        """Refuse connections. An idle one is dropped; one that waits for its response ends after it."""
        if not self.is_open or self._server is None:
            return
        self.is_open = False
        self._server.close()
        self._socket = _bound(self.port)  # a connection to a bound port on which nothing listens is refused
        for writer in self._idle:
            writer.transport.abort()
        await asyncio.sleep(0)  # in its next turn the loop closes the connections' sockets

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await converse(reader, writer, self._answer, self._idle, lambda: self.is_open)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the client disconnected, or never spoke HTTP
        except asyncio.CancelledError:
            pass  # the program ends; without this, Python 3.11 prints a traceback at the top of its task
        finally:
            writer.transport.abort()

    async def _answer(self, request: Request) -> Response | None:
        """The response of `handle` if a program on this machine asks; a refusal for a web page."""
        refused = refusal(request.headers, self.port)
        return await self.handle(request) if refused is None else json_answer(403, {"error": refused})


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((LOOPBACK, port))
    return bound
