"""A listener is one loopback port that can be closed and opened again, and that answers no web page.

While it is closed its number stays taken: neither a request for a free port nor an outgoing connection gets it.
"""

import asyncio
import socket

from local.whatsapp.http_transport import HEAD_LIMIT, Handle, Request, Response, converse, json_answer
from local.whatsapp.origin_check import refusal

LOOPBACK = "127.0.0.1"
BACKLOG = 1024


async def _drop(_: Request) -> Response | None:
    return None


class Listener:
    """Bound at once, and closed until `open`; port 0 takes a free one. Connections get their answers from `handle`."""

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
        """Take connections, unless it does already."""
        if not self.is_open:
            self.is_open = True
            self._server = await asyncio.start_server(
                self._connected, sock=self._socket, limit=HEAD_LIMIT, backlog=BACKLOG
            )

    async def close(self) -> None:
        """Refuse connections. An idle one is dropped, one that waits for its answer ends with it."""
        if not self.is_open or self._server is None:
            return
        self.is_open = False
        self._server.close()
        self._socket = _bound(self.port)  # who connects to a bound port at which nobody listens is refused
        for writer in self._idle:
            writer.transport.abort()
        await asyncio.sleep(0)  # in its next turn the loop closes their sockets

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await converse(reader, writer, self._answer, self._idle, lambda: self.is_open)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the client left, or never spoke HTTP
        except asyncio.CancelledError:
            pass  # the program ends; this is the top of its task, and Python 3.11 would print a traceback
        finally:
            writer.transport.abort()

    async def _answer(self, request: Request) -> Response | None:
        """What `handle` says, where a program on this machine asks."""
        refused = refusal(request.headers, self.port)
        return await self.handle(request) if refused is None else json_answer(403, {"error": refused})


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((LOOPBACK, port))
    return bound
