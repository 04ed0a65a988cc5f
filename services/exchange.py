"""An exchange: one request and its response, as an ASGI app sees them (https://asgi.readthedocs.io, 2.3)."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from shared import logs

HELD_AT_MOST = 16 * 1024
"""Bytes of a body that are held before the app asks for them; then the client is not read. The last read may add to
them.
"""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

_FAILED = b'{"error": "internal_server_error"}'
_JSON: Headers = ((b"content-type", b"application/json"),)


class Connection(Protocol):
    """What an exchange needs of its connection."""

    def resume_reading(self) -> None: ...
    def continue_100(self) -> None: ...
    def respond(self, exchange: "Exchange", status: int, headers: Headers, body: bytes) -> None: ...


class Exchange:
    """The body arrives while the app runs; the response is sent when the app has given all of it."""

    __slots__ = (
        "_app", "_connection", "_expects", "_held", "_pieces", "_waiter", "body", "broken", "complete", "headers",
        "keep_alive", "more_body", "scope", "status",
    )  # fmt: skip

    def __init__(self, connection: Connection, app: App, scope: Scope, keep_alive: bool, expects: bool) -> None:
        self._connection = connection
        self._app = app
        self.scope = scope
        self.keep_alive = keep_alive
        self.more_body = True
        self.broken = False
        self.complete = False
        self.status = 0
        self.headers: Headers = ()
        self.body = b""
        self._pieces: list[bytes] = []
        self._held = 0
        self._waiter: asyncio.Future[None] | None = None
        self._expects = expects  # it sends the body after 100 Continue

    async def run(self) -> None:
        try:
            await self._app(self.scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - what the app did not map to a response
            logs.event("unexpected_error", severity="ERROR", error=error)
        finally:
            if not self.complete:
                self.keep_alive = False
                self._complete(HTTPStatus.INTERNAL_SERVER_ERROR, _JSON, _FAILED)

    # ---- the connection's side

    def take(self, piece: bytes) -> bool:
        """Keep a piece of the body. Returns whether the client must wait."""
        if self.complete:
            return False
        self._pieces.append(piece)
        self._held += len(piece)
        self._wake()
        return self._held > HELD_AT_MOST

    def end(self) -> None:
        """The body has arrived."""
        self.more_body = False
        self._wake()

    def break_off(self) -> None:
        """The rest of the body will not come."""
        self.broken = self.more_body
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- the app's side

    async def receive(self) -> Message:
        """What has arrived of the body; waits if that is nothing."""
        while not (self._pieces or self.broken or self.complete) and self.more_body:
            self._waiter = asyncio.get_running_loop().create_future()
            if self._expects:
                self._expects = False
                self._connection.continue_100()
            self._connection.resume_reading()
            await self._waiter
        if self.broken or self.complete:
            return {"type": "http.disconnect"}
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._held = [], 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = tuple([(name, value) for name, value in message.get("headers", ())])
        elif message["type"] == "http.response.body" and self.status and not self.complete:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                self._complete(self.status, self.headers, self.body)
        else:
            raise RuntimeError("The app sent a message out of order.")

    def _complete(self, status: int, headers: Headers, body: bytes) -> None:
        self._connection.respond(self, status, headers, body)
        self.complete = True
        self._pieces = []
