"""The access token of this process's Google account, renewed in the background, so that no call waits for it.

On Cloud Run the token comes from the metadata server (https://cloud.google.com/run/docs/container-contract, 2026-11),
without google-auth, whose import takes longer than the call and brings `requests` with it. Elsewhere google-auth finds
the credential: a key file, a person's, or one that impersonates another account.
"""

import asyncio
import http.client
import json
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from shared.net.async_http import NotConnected

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

METADATA_HOST = "metadata.google.internal"
_METADATA_PATH = f"/computeMetadata/v1/instance/service-accounts/default/token?scopes={SCOPE}"

EARLY = 225.0
"""Seconds before its end that a token is renewed: the metadata server gives out the same token until 4 minutes before
its end (google-auth does as much, google/auth/_helpers.py).
"""

_FETCH_SECONDS = 5.0
_LEAST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_AGAIN = 10.0
"""Seconds after which a token that is about to end is asked for again, if the answer was the same token."""


_LEAST_INTERVAL = 1.0
"""Seconds from a fetch that a call requested to the next one: the metadata server may answer with the same token again,
and every call whose token is refused requests a new one.
"""


class TokenUnavailable(NotConnected):
    """There is no valid token, so the request was not sent. It names only the class of the cause."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and until when it is valid, in seconds since 1970."""

    text: str
    ends: float


Fetch = Callable[[], AccessToken]
"""Gets a new token, and blocks meanwhile. It may raise anything."""


class GoogleToken:
    """Starts its thread on first use, or earlier by `begin`. It may be used by several threads and event loops."""

    def __init__(self, fetch: Fetch | None = None, early: float = EARLY) -> None:
        self._fetch = fetch
        self._early = early
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_fetching = False
        self._header: bytes | None = None
        self._ends = 0.0
        self._next: Future[bytes] = Future()
        self._failure: TokenUnavailable | None = None
        self._rests_until = 0.0

    def begin(self) -> None:
        """Get the first token in the background."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._renew_always, name="pombo-token", daemon=True)
                    self._thread.start()

    @property
    def header(self) -> bytes | None:
        """The Authorization header as a complete line; None if there is no valid token now."""
        return self._header if time.time() < self._ends else None

    async def renewed(self, used: bytes | None, seconds: float) -> bytes:
        """The header of a newer token than `used`, or of any if None. It may be `used` again: the newest that can be
        had. Raises TokenUnavailable if none comes in time.
        """
        self.begin()
        with self._lock:
            current = self.header
            if current is not None and (current != used or time.monotonic() < self._rests_until):
                return current
            coming = self._next
            if not self._is_fetching:
                self._wanted.set()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await asyncio.shield(asyncio.wrap_future(coming))
        except TimeoutError:
            raise TokenUnavailable(str(self._failure or "No access token (TimeoutError).")) from self._failure

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._wanted.set()

    def _renew_always(self) -> None:
        failures, is_requested = 0, False
        while not self._is_closed:
            with self._lock:
                self._is_fetching = True
                self._wanted.clear()
            try:
                fetch = self._fetch = self._fetch or default_fetch(os.environ)
                token = fetch()
                failures = 0
            except Exception as error:  # noqa: BLE001 - a library may raise anything; the next try follows
                self._tell(TokenUnavailable(f"No access token ({type(error).__name__})."), error)
                failures += 1
                self._sleep(min(_LONGEST_PAUSE, _LEAST_PAUSE * 2.0**failures) * random.uniform(0.5, 1))  # noqa: S311
                continue
            pause = self._take(token, is_requested)
            is_requested = self._wanted.wait(pause)
            self._sleep(self._rests_until - time.monotonic())

    def _take(self, token: AccessToken, is_requested: bool) -> float:
        """Use this token, which a call requested or its time did. Returns the seconds until the next one is needed."""
        with self._lock:
            self._header, self._ends = f"Authorization: Bearer {token.text}\r\n".encode(), token.ends
            self._failure, self._is_fetching = None, False
            if is_requested:
                self._rests_until = time.monotonic() + _LEAST_INTERVAL
            told, self._next = self._next, Future()
        told.set_result(self._header)
        return max(_AGAIN, token.ends - self._early - time.time())

    def _tell(self, error: TokenUnavailable, cause: Exception) -> None:
        """Fail the calls that wait. A token that is still valid stays."""
        error.__cause__ = cause
        with self._lock:
            self._failure, self._is_fetching = error, False
            told, self._next = self._next, Future()
        told.set_exception(error)

    def _sleep(self, seconds: float) -> None:
        """Wait between two tries, even if a token is wanted: the server that failed needs the time."""
        ends = time.monotonic() + seconds
        while not self._is_closed and (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))


# ---- where a token comes from


def default_fetch(environ: Mapping[str, str]) -> Fetch:
    """The metadata server on Cloud Run or where GCE_METADATA_HOST names one; otherwise what google-auth finds. Raises
    google.auth's DefaultCredentialsError.
    """
    host = environ.get("GCE_METADATA_HOST")
    if not environ.get("GOOGLE_APPLICATION_CREDENTIALS") and (host or environ.get("K_SERVICE")):
        return lambda: from_metadata_server(host or METADATA_HOST)
    import google.auth

    transport = _transport()
    credentials: Any
    credentials, _ = google.auth.default(scopes=[SCOPE], request=transport)

    def fetch() -> AccessToken:
        credentials.refresh(transport)
        return AccessToken(credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp())

    return fetch


def from_metadata_server(host: str) -> AccessToken:
    """A token of the account that the instance runs as. Raises OSError, HTTPException, ValueError or KeyError."""
    status, _, body = _http_call(f"http://{host}{_METADATA_PATH}", "GET", None, {"Metadata-Flavor": "Google"})
    if status != 200:
        raise http.client.HTTPException(f"HTTP {status}")
    answer = json.loads(body)
    return AccessToken(answer["access_token"], datetime.now(UTC).timestamp() + float(answer["expires_in"]))


def _http_call(
    url: str, method: str, body: bytes | None, headers: Mapping[str, str], seconds: float = _FETCH_SECONDS
) -> tuple[int, Mapping[str, str], bytes]:
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.netloc, timeout=seconds, context=ssl.create_default_context())
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    try:
        connection.request(method, parts._replace(scheme="", netloc="").geturl() or "/", body, dict(headers))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def _transport() -> Any:
    """google-auth's way to make an HTTP call: its own need `requests` or urllib3, or have no TLS."""
    from google.auth import transport
    from google.auth.exceptions import TransportError

    class _Response(transport.Response):
        def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
            self._status, self._headers, self._data = status, headers, data

        status = property(lambda self: self._status)
        headers = property(lambda self: self._headers)
        data = property(lambda self: self._data)

    class _Request(transport.Request):
        def __call__(
            self,
            url: str,
            method: str = "GET",
            body: bytes | None = None,
            headers: Mapping[str, str] | None = None,
            timeout: float | None = None,
            **_: Any,
        ) -> _Response:
            try:
                return _Response(*_http_call(url, method, body, headers or {}, min(timeout or 60, _FETCH_SECONDS)))
            except (OSError, http.client.HTTPException) as error:
                raise TransportError(error) from error  # type: ignore[no-untyped-call]

    return _Request()
