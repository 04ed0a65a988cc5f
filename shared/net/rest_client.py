"""A Google API over REST, on an event loop, with timeouts and retries (shared.net.patience).

All calls through it are idempotent: one whose answer was lost is sent again, on a new connection.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from shared.net.async_http import (
    HTTPS,
    Answer,
    AsyncHttp,
    CallFailed,
    NoFreeConnection,
    NotConnected,
    TimedOut,
    public_authorities,
)
from shared.net.patience import Patience, ServicePace

PASSING = frozenset({408, 429, 499, 500, 502, 503, 504})
"""HTTP statuses after which a call is retried. https://google.aip.dev/193, https://google.aip.dev/194"""

UNAUTHENTICATED = 401

_CODES = frozenset(
    (
        *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
        *("PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED"),
        *("OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    )
)
"""https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto"""


class Refused(Exception):
    """The service answered with an error. It names only Google's code, or the HTTP status."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code or f"HTTP {status}")
        self.status = status
        self.code = code
        """Google's name of the error; empty if the answer has none."""

    @classmethod
    def of(cls, answer: Answer) -> "Refused":
        return cls(answer.status, code_of(answer.body))


class Token(Protocol):
    """What shows the service who calls."""

    @property
    def header(self) -> bytes | None:
        """The Authorization header as a complete line, with its line end; None if there is no valid token now."""
        ...

    async def renewed(self, used: bytes | None, seconds: float) -> bytes:
        """The header of a newer token than `used`. Raises CallFailed."""
        ...


class NoToken:
    """An emulator's: it asks for none, or for a fixed one."""

    def __init__(self, header: bytes = b"") -> None:
        self._header = header

    @property
    def header(self) -> bytes:
        return self._header

    async def renewed(self, used: bytes | None, seconds: float) -> bytes:  # noqa: ARG002 - the protocol's
        return self._header


class RestClient:
    """Calls to one API, at `host`, or at host:port of an emulator on this machine."""

    def __init__(self, host: str, emulator: str | None, token: Token, most: int) -> None:
        """`most`: how many connections may be open at once."""
        if emulator:
            name, _, port = emulator.rpartition(":")
            self._http = AsyncHttp(name.strip("[]"), int(port), most, None)
        else:
            self._http = AsyncHttp(host, HTTPS, most, public_authorities)
        self._token = token
        self._pace = ServicePace()
        self.patience = self._pace.patience
        """The patience of an operation that begins now, for so many seconds at most."""
        self.is_closed = False

    def post(self, path: str) -> bytes:
        """The start of a request with a JSON body, for `call`."""
        return self._http.start(b"POST", path.encode(), b"Content-Type: application/json\r\n")

    def get(self, path: str) -> bytes:
        """The start of a request without a body, for `call`."""
        return self._http.start(b"GET", path.encode())

    async def call(self, start: bytes, body: bytes, patience: Patience, quick: bool = True) -> bytes:
        """The body of the answer. Retries after an outage.

        `quick`: the call normally takes milliseconds. Raises OutOfPatience, Refused if the service understood the call
        and refused it, and CallFailed if the client is closed.
        """
        is_renewed = False
        while True:
            if self.is_closed:
                raise CallFailed("The client is closed.")
            began = time.monotonic()
            failure: Exception
            try:
                token = self._token.header
                if token is None:
                    token = await self._token.renewed(None, patience.left)
                request = b"".join((start, token, b"Content-Length: %d\r\n\r\n" % len(body), body))
                answer = await self._http.call(request, self._pace.timeout(patience, quick))
                if answer.status == 200:
                    self._pace.heard(began)
                    return answer.body
                if answer.status == UNAUTHENTICATED and not is_renewed:
                    is_renewed = True
                    self._pace.heard(began)
                    if await self._token.renewed(token, patience.left) != token:
                        continue
                failure = self._failure(answer, began)
            except CallFailed as error:
                self._leave_after(error, began)
                failure = error
            await self.pause(patience, failure)

    async def pause(self, patience: Patience, cause: Exception) -> None:
        """Wait before an operation is retried. Raises OutOfPatience once its patience is over."""
        await asyncio.sleep(patience.next_pause(cause))

    def close(self) -> None:
        """End the connections; calls that follow fail."""
        self.is_closed = True
        self._http.close()

    def _failure(self, answer: Answer, began: float) -> Refused:
        """A passing error. Raises Refused if it is none."""
        refused = Refused.of(answer)
        if answer.status in PASSING:
            return refused
        self._pace.heard(began)
        if refused.code == "ABORTED":
            return refused
        raise refused

    def _leave_after(self, error: CallFailed, began: float) -> None:
        """Close the connections that may be dead too."""
        if isinstance(error, TimedOut):
            if self._pace.timed_out(began):
                self._http.leave_idle()
        elif not isinstance(error, NotConnected | NoFreeConnection):
            self._http.leave_idle()


def code_of(body: bytes) -> str:
    """The code in the body of an error; empty if it has none that Google documents. A stream's error is in a list."""
    try:
        document: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if isinstance(document, list) and document:
        document = document[0]
    error = document.get("error") if isinstance(document, Mapping) else None
    code = error.get("status") if isinstance(error, Mapping) else None
    return code if isinstance(code, str) and code in _CODES else ""
