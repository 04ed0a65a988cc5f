"""HANDLER_URL: calls the team's code behind an address, with one signed POST for each call."""

# docs/handler-url.md has the wire form. An invalid answer counts as raised. Its sentence is stored and shown in the
# timeline, so it holds nothing of the request or the answer.

import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import httpcore

from shared.domain.identity import backend_id
from shared.domain.limits import PostTimes
from shared.domain.message_kinds import DEFAULT_KINDS
from shared.domain.messages import Drop, to_json
from shared.domain.outbound.messages import InvalidReply, PlanItem, from_json
from shared.domain.verdicts import Origin
from shared.handlers import origin
from shared.handlers.signature import signed_headers
from shared.net import bounded_json
from shared.net.bounded_http import HttpResponse, NoAnswer, NotSent, Poster, Unread
from shared.net.egress_policy import PUBLIC, EgressPolicy, NotPublic
from shared.net.retry_after import retry_after
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault

VERSION = 1
"""The version of the wire form. A backend may refuse one that it does not know."""

GRACE = timedelta(seconds=0.5)
"""What the runner waits beyond the timeout. This client ends a hanging call at the timeout by closing its connection,
and leaves no thread behind. The runner's own timeout is for name resolution, which no socket timeout bounds."""

_HINTS: Mapping[int, str] = {
    401: "does it know HANDLER_URL_SECRET?",
    403: "does it know HANDLER_URL_SECRET?",
    404: "does HANDLER_URL name the right path?",
    405: "it must take a POST",
}

_TENANTS_HINTS = {
    **_HINTS,
    401: "does it know the tenant's signing secret?",
    403: "does it know the tenant's signing secret?",
    404: "does the tenant's handler URL name the right path?",
}
"""A tenant's own backend is not in the environment."""

_UNAVAILABLE: Mapping[int, bool] = {429: False, 503: False, 502: True, 504: True}
"""Statuses that mean that the backend is down, and whether it may still have taken the call: a proxy in front of it
answers 502 and 504 if the backend broke off or was silent.
"""


class Backend:
    """One address, the secrets that sign for it, and the kinds of message it is called for.

    It follows no redirect, which would take a message to an address that is not configured. `reach` limits where the
    address may lead; the deployment's own address may lead anywhere. It connects on the first call, so it may be
    created before a fork. `tenant`: whose backend it is; "" for the deployment's.
    """

    @property
    def backend(self) -> str:
        """The id of the backend's marks."""
        return backend_id(self._url, self._tenant)

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str],
        timeout: timedelta,
        connect: timedelta,
        connections: int,
        max_replies: int,
        now: Callable[[], datetime],
        kinds: frozenset[str] = DEFAULT_KINDS,
        reach: EgressPolicy = PUBLIC,
        tenant: str = "",
    ) -> None:
        self.kinds = kinds
        self._tenant = tenant
        self._url = url
        self._secrets = secrets
        self._times = PostTimes(connect=min(connect, timeout), write=timeout, read=timeout, total=timeout)
        self._connections = connections
        self._max_replies = max_replies
        self._now = now
        self._reach = reach
        self._lock = threading.Lock()
        self._poster: Poster | None = None
        self._in_use: Counter[int] = Counter()  # by the id of the Poster

    def __call__(self, call: HandlerCall) -> list[PlanItem]:
        """The replies, within the timeout. Raises Drop, BackendUnavailable and HandlerFault."""
        body = bounded_json.dumps(_document(call)).encode()
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "Pombo",
            **signed_headers(self._secrets, call.inbound_event_id, self._now(), body),
        }
        try:
            with self._pool() as pool:
                answer = pool.post(self._url, headers, body)
        except (NotSent, NoAnswer) as error:
            raise BackendUnavailable(f"The backend {self._why(error)}.", took=isinstance(error, NoAnswer)) from error
        match answer.status:
            case 200:
                return self._replies(answer)
            case 204:
                return []
            case 410:
                raise Drop(_reason(answer))
            case status if status in _UNAVAILABLE:
                raise BackendUnavailable(
                    f"The backend answered {status}.",
                    took=_UNAVAILABLE[status],
                    retry_after=retry_after(answer.headers),
                )
            case status:
                raise HandlerFault(f"The backend answered {status}{_hint(status, self._tenant)}.")

    def origin_of(self, error: BaseException) -> Origin:
        """The team's code is elsewhere, so only the error raised here is known."""
        return origin.of_exception(error, "")

    def origin_in(self, thread: int | None) -> Origin:  # noqa: ARG002 - the team's code is in no thread here
        return Origin()

    def close(self) -> None:
        """Close the connections, those of a call in progress once that call has ended; a later call opens new ones."""
        with self._lock:
            poster, self._poster = self._poster, None
            is_idle = poster is not None and id(poster) not in self._in_use
        if poster and is_idle:
            poster.close()

    @contextmanager
    def _pool(self) -> Iterator[Poster]:
        """The connections, which stay open until the call that uses them has ended."""
        with self._lock:
            if self._poster is None:
                self._poster = Poster(self._times, time.monotonic, self._connections, self._reach)
            poster = self._poster
            self._in_use[id(poster)] += 1
        try:
            yield poster
        finally:
            with self._lock:
                self._in_use[id(poster)] -= 1
                is_last = not self._in_use[id(poster)]
                if is_last:
                    del self._in_use[id(poster)]
                is_closed = is_last and poster is not self._poster
            if is_closed:
                poster.close()

    def _replies(self, answer: HttpResponse) -> list[PlanItem]:
        document = _json(answer)
        replies = document.get("replies") if isinstance(document, dict) else None
        if not isinstance(replies, list):
            raise HandlerFault('The backend\'s answer is not an object with a list of "replies".')
        if len(replies) > self._max_replies:
            raise HandlerFault(f"The backend may give {self._max_replies} replies; it gave {len(replies)}.")
        return [_item(reply) for reply in replies]

    def _why(self, error: NotSent | NoAnswer) -> str:
        """Why there is no answer, as the rest of a sentence that begins with "The backend"."""
        causes = list(_causes(error))
        for kind, words in (
            (NotPublic, "may not be called: its name leads to an address that is not public"),
            (socket.gaierror, "cannot be found: its name was not resolved"),
            (ssl.SSLError, "cannot be trusted: its certificate, or its TLS, was not accepted"),
            (ConnectionRefusedError, "refused the connection"),
            (httpcore.ConnectTimeout, f"accepted no connection within {self._times.connect.total_seconds():g} s"),
            (httpcore.TimeoutException, f"gave no answer within {self._times.total.total_seconds():g} s"),
            (httpcore.RemoteProtocolError, "hung up, or sent invalid HTTP"),
        ):
            if any(isinstance(cause, kind) for cause in causes):
                return words
        return "broke off the connection" if isinstance(error, NoAnswer) else "cannot be reached"


def _document(call: HandlerCall) -> dict[str, Any]:
    return {
        "v": VERSION,
        "inbound_event_id": call.inbound_event_id,
        "correlation_id": call.correlation_id,
        "attempt": call.attempt,
        "message": to_json(call.message),
    }


def _json(answer: HttpResponse) -> Any:
    """The JSON in a 200. Raises HandlerFault, and BackendUnavailable if the answer broke off."""
    if answer.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HandlerFault("The backend's answer is compressed, which was not asked for.")
    if answer.unread in (Unread.TOO_SLOW, Unread.BROKEN):
        raise BackendUnavailable(f"The backend's answer {answer.unread}.", took=True)
    if answer.body is None:
        raise HandlerFault(f"The backend's answer {answer.unread}.")
    try:
        return bounded_json.loads(answer.body)
    except bounded_json.NotJson as error:
        raise HandlerFault("The backend's answer is not JSON.") from error


def _item(reply: object) -> PlanItem:
    """One reply; one that cannot be sent keeps its place."""
    try:
        return from_json(reply)
    except ValueError as error:
        return InvalidReply.of(reply, error)


def _reason(answer: HttpResponse) -> str:
    """The backend's {"reason"}, if it gives one."""
    try:
        document = bounded_json.loads(answer.body or b"")
    except bounded_json.NotJson:
        document = None
    reason = document.get("reason") if isinstance(document, dict) else None
    return reason if isinstance(reason, str) and reason.strip() else "the backend answered 410"


def _hint(status: int, tenant: str) -> str:
    if 300 <= status < 400:
        return ", a redirect, which is not followed"
    hints = _TENANTS_HINTS if tenant else _HINTS
    return f" ({hints[status]})" if status in hints else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The causes of an error. httpcore's pool hides the cause (raise ... from None), but it is kept as the context."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
