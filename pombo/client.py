"""A client of Pombo's API in one file without dependencies: import it, or copy it.

    client = Client("https://api.example.com", os.environ["POMBO_API_KEY"])
    accepted = client.send(NewMessage("+15550002222", "Your appointment is at nine.", delay="2h"))
    print(client.message(accepted.id).shown)

A request without an answer, or with one that says "later" (REPEATED), is repeated. Each send has an Idempotency-Key,
the same for every repetition, so the message counts once. A Client may be used by several threads.
"""

import json
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import ceil
from ssl import SSLCertVerificationError
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

REPEATED = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0
"""Seconds before a repetition, doubled each time and scattered by half, unless the answer has a Retry-After."""

_ON_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADER_TEXT = re.compile(r"[\x21-\x7e]{1,255}")

T = TypeVar("T")


# ---- what is sent


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a message is tried if WhatsApp refuses it for the moment, and the wait between, like "15s"."""

    attempts: int
    wait: str | timedelta


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to send: a text, or Meta's type and content. `to` is a number with +, or a user id. `from_` is the
    business number, by its id in Pombo or at WhatsApp; a tenant with one number may leave it out. It is sent at once,
    at `send_at` or after `delay` ("15s", "2h", "3d"), at most 30 days ahead.
    """

    to: str
    text: str | None = None
    from_: str | None = None
    type: str | None = None
    content: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    send_at: datetime | None = None
    delay: str | timedelta | None = None
    retry: Retry | None = None
    reply_to: str | None = None
    metadata: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The body of the request. Raises ValueError if send_at has no time zone."""
        given = {each.name.rstrip("_"): getattr(self, each.name) for each in fields(self)}
        given["send_at"] = _rfc_3339(self.send_at) if self.send_at else None
        given["delay"] = _duration(self.delay) if self.delay is not None else None
        if self.retry:
            given["retry"] = {"attempts": self.retry.attempts, "wait": _duration(self.retry.wait)}
        return {name: value for name, value in given.items() if value is not None}


# ---- what comes back; docs/api.md and the API's /docs say what each field means


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that is stored and will be sent."""

    id: str
    state: str
    shown: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a message's timeline: a code for programs, a sentence for people."""

    at: datetime
    what: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message, in either direction. In a list it has no timeline."""

    id: str
    direction: str
    state: str
    shown: str
    tenant: str
    sender: str
    contact: str
    type: str
    correlation_id: str
    created_at: datetime
    content: Any = None
    why: str | None = None
    reason: str | None = None
    send_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    timeline: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """The content of a dead letter."""

    contact: str
    type: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A delivery that failed. `preview` needs a key with the scope dead:read."""

    id: str
    direction: str
    tenant: str
    sender: str
    correlation_id: str
    error: str
    at: datetime
    attempts: int
    round: int
    replay: str
    code: int | None = None
    error_type: str | None = None
    preview: Preview | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a dead letter, or with dry_run would become of it: replayed, done, discarded or skipped."""

    id: str
    outcome: str
    dry_run: bool
    why: str | None = None
    letter: DeadLetter | None = None


@dataclass(frozen=True, slots=True)
class Sender:
    """A number that the registry has connected."""

    id: str
    tenant: str
    provider: str
    provider_id: str
    display: str


@dataclass(frozen=True, slots=True)
class Health:
    """Whether messages flow: healthy, degraded or unhealthy. With an `error` the other values are unknown."""

    status: str
    queue_depth: int | None = None
    dlq_depth: int | None = None
    connected: bool | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Page:
    items: Sequence[Any]
    next: str | None


# ---- errors


class ApiError(Exception):
    """A request that failed. No message of these errors holds a number, a text or a key."""


@dataclass(eq=False)  # not frozen: Python sets the traceback of an exception
class Refused(ApiError):
    """The API refused the request: the fields of its problem document. `code` is "" if another server answered.
    `retry_after` is in seconds. To repeat a send later, give it the same `idempotency_key`.
    """

    status: int
    code: str
    detail: str
    title: str = ""
    field: str | None = None
    retry_after: float | None = None
    idempotency_key: str | None = None

    def __str__(self) -> str:
        return f"{self.detail} ({self.code or 'status'} {self.status})"


@dataclass(eq=False)
class NoAnswer(ApiError):
    """No answer came: what was asked may have happened. A send that is repeated with the same `idempotency_key` still
    counts once.
    """

    attempts: int
    idempotency_key: str | None = None

    def __str__(self) -> str:
        return f"The API did not answer; what was asked may have happened (attempts: {self.attempts})."


class NotUnderstood(ApiError):
    """The answer is not one of Pombo's API: the address is another server's, or this file is too old."""


# ---- the client


@dataclass(frozen=True, slots=True)
class Client:
    """The API at `url`, with an API key. Raises ValueError if they cannot be used.

    An attempt fails after `timeout` seconds of silence. A request is given up after `attempts`, or if the next one
    would begin more than `patience` seconds after the first.
    """

    url: str
    key: str = field(repr=False)
    timeout: float = 15.0
    attempts: int = 6
    patience: float = 60.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    monotonic: Callable[[], float] = field(default=time.monotonic, repr=False)
    now: Callable[[], float] = field(default=time.time, repr=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.url)
        if url.scheme not in ("http", "https") or not url.hostname or url.port == 0 or "@" in url.netloc:
            raise ValueError("The address of the API is a URL like https://api.example.com.")
        if url.query or url.fragment:
            raise ValueError("The address of the API has no query and no fragment.")
        if url.scheme == "http" and url.hostname not in _ON_THIS_MACHINE:
            raise ValueError("The address of the API begins with https://: the key would be readable on its way.")
        if not _HEADER_TEXT.fullmatch(self.key):
            raise ValueError("The API key is empty, or holds characters that no key has.")

    # ---- messages

    def send(self, message: NewMessage, *, idempotency_key: str | None = None) -> Accepted:
        """Send a message once. With a key of your own, like "order-17-reminder", it counts once even if your program
        is restarted and calls this again. Raises ApiError, and ValueError or TypeError for what no request can hold.
        """
        key = _checked(idempotency_key)
        return _read(Accepted, self._call("POST", "/v1/messages", message.as_json(), key))

    def send_batch(
        self, messages: Iterable[NewMessage], *, idempotency_key: str | None = None
    ) -> list[Accepted | Refused]:
        """Send up to 100 messages; each succeeds or fails by itself. The batch is repeated as a whole while one of them
        failed for the moment. Raises as `send`.
        """
        key, body = _checked(idempotency_key), {"messages": [each.as_json() for each in messages]}
        results = _results(self._call("POST", "/v1/messages/batch", body, key))
        if len(results) != len(body["messages"]):
            raise NotUnderstood
        return [
            _read(Accepted, result) if result["status"] == 202 else _refused(result, f"{key}:{place}")
            for place, result in enumerate(results)
        ]

    def message(self, id: str) -> Message:
        """A message with its timeline. Raises ApiError."""
        return _read(Message, self._call("GET", f"/v1/messages/{_segment(id)}"))

    def messages(
        self,
        *,
        tenant: str | None = None,
        direction: Literal["inbound", "outbound"] | None = None,
        state: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Message]:
        """A tenant's messages, the newest first, read page by page; an operator's key names the tenant. Raises
        ApiError.
        """
        wanted = {"tenant": tenant, "direction": direction, "state": state, "since": since, "until": until}
        return self._list(Message, "/v1/messages", wanted)

    def cancel(self, id: str) -> Message:
        """Take back a message that waits. Raises ApiError: Refused with NOT_CANCELLABLE if it is too late."""
        return _read(Message, self._call("POST", f"/v1/messages/{_segment(id)}/cancel"))

    # ---- dead letters

    def dead_letters(
        self,
        *,
        tenant: str | None = None,
        direction: Literal["inbound", "outbound"] | None = None,
        sender: str | None = None,
        errors: Sequence[str | int] = (),
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[DeadLetter]:
        """What failed, the newest first, read page by page. `errors`: Pombo's reasons or WhatsApp's codes. Raises
        ApiError.
        """
        wanted = {"tenant": tenant, "direction": direction, "sender": sender, "since": since, "until": until}
        return self._list(DeadLetter, "/v1/dead-letters", {**wanted, "error": errors})

    def replay_all(
        self,
        *,
        tenant: str | None = None,
        direction: Literal["inbound", "outbound"] | None = None,
        sender: str | None = None,
        errors: Sequence[str | int] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        may_double: bool = False,
        dry_run: bool = False,
    ) -> Iterator[Decided]:
        """Retry what failed and matches, without a filter everything, the newest first and a page at a time while you
        iterate. Raises ApiError.
        """
        wanted = {"tenant": tenant, "direction": direction, "sender": sender, "since": since, "until": until}
        how = {"may_double": may_double, "dry_run": dry_run}
        return self._decide("replay", {**wanted, "error": list(errors) or None}, how)

    def discard_all(
        self,
        reason: str,
        *,
        tenant: str | None = None,
        direction: Literal["inbound", "outbound"] | None = None,
        sender: str | None = None,
        errors: Sequence[str | int] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
    ) -> Iterator[Decided]:
        """Give up what failed and matches, as `replay_all` selects it. Raises ApiError."""
        wanted = {"tenant": tenant, "direction": direction, "sender": sender, "since": since, "until": until}
        how = {"reason": reason, "dry_run": dry_run}
        return self._decide("discard", {**wanted, "error": list(errors) or None}, how)

    def replay(self, id: str, *, may_double: bool = False, dry_run: bool = False) -> Decided:
        """Retry a dead letter; with `may_double` also one of which a copy may have arrived. Raises ApiError."""
        body = {"may_double": may_double, "dry_run": dry_run}
        return _read(Decided, self._call("POST", f"/v1/dead-letters/{_segment(id)}/replay", body))

    def discard(self, id: str, reason: str, *, dry_run: bool = False) -> Decided:
        """Give up a dead letter. Raises ApiError."""
        body = {"reason": reason, "dry_run": dry_run}
        return _read(Decided, self._call("POST", f"/v1/dead-letters/{_segment(id)}/discard", body))

    # ---- numbers and health

    def senders(self, *, tenant: str | None = None) -> Iterator[Sender]:
        """The numbers of the registry, read page by page. Raises ApiError."""
        return self._list(Sender, "/v1/senders", {"tenant": tenant})

    def health(self) -> Health:
        """Whether messages flow. Raises ApiError."""
        return _read(Health, self._call("GET", "/health/whatsapp"))

    # ---- requests

    def _decide(self, verb: str, wanted: Mapping[str, Any], how: Mapping[str, Any]) -> Iterator[Decided]:
        given = _given(wanted)
        body = {**given, **how, "all": not given}
        yield from _paged(Decided, lambda cursor: self._call("POST", f"/v1/dead-letters/{verb}", {**body, **cursor}))

    def _list(self, kind: type[T], path: str, wanted: Mapping[str, Any]) -> Iterator[T]:
        given = _given(wanted)

        def ask(cursor: Mapping[str, str]) -> Any:
            return self._call("GET", f"{path}?{urlencode({**given, **cursor, 'limit': 100}, doseq=True)}")

        yield from _paged(kind, ask)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, key: str | None = None) -> Any:
        """The answer's object, repeated requests included. Raises ApiError."""
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"Authorization": f"Bearer {self.key}", "User-Agent": "pombo-client"}
        headers |= {"Content-Type": "application/json"} if content is not None else {}
        headers |= {"Idempotency-Key": key} if key else {}
        until = self.monotonic() + self.patience
        attempt = 0
        while True:
            attempt += 1
            answer = self._try(method, path, content, headers)
            wait = answer.wait if isinstance(answer, _Answer) and answer.wait is not None else _backoff(attempt)
            is_last = attempt >= self.attempts or self.monotonic() + wait > until
            if isinstance(answer, _Answer) and (is_last or not answer.is_for_now):
                return answer.result(key)
            if isinstance(answer, Exception) and (is_last or isinstance(answer, SSLCertVerificationError)):
                raise NoAnswer(attempt, key) from answer
            self.sleep(wait)

    def _try(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> "_Answer | OSError | HTTPException":
        """One request on a connection of its own: its answer, or why there is none. No redirect is followed."""
        url = urlsplit(self.url)
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        connection = kind(str(url.hostname), url.port, timeout=self.timeout)
        try:
            connection.request(method, url.path.rstrip("/") + path, content, headers)
            response = connection.getresponse()
            wait = _seconds(response.headers.get("Retry-After"), self.now())
            return _Answer(response.status, _object(response.read()), wait)
        except (OSError, HTTPException) as error:
            return error
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    document: Mapping[str, Any] | None
    """None: the body is not a JSON object."""
    wait: float | None
    """What Retry-After says, in seconds."""

    @property
    def is_for_now(self) -> bool:
        """Whether it, or one result of a batch, says "later"."""
        return not REPEATED.isdisjoint({self.status, *(result["status"] for result in _results(self.document))})

    def result(self, key: str | None) -> Any:
        """Raises Refused and NotUnderstood."""
        if 200 <= self.status < 300:
            return self.document
        raise _refused({**(self.document or {}), "status": self.status}, key, self.wait)


def _results(document: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The results of a batch, each with a status."""
    found = (document or {}).get("results")
    results = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return [each for each in results if isinstance(each.get("status"), int)]


def _refused(document: Mapping[str, Any], key: str | None, wait: float | None = None) -> Refused:
    status = document["status"]
    detail = str(document.get("detail") or f"The API answered with status {status}.")
    known = {"code": str(document.get("code", "")), "title": str(document.get("title", ""))}
    return Refused(status, detail=detail, field=document.get("field"), retry_after=wait, idempotency_key=key, **known)


def _backoff(attempt: int) -> float:
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1)  # noqa: S311 - to scatter callers needs no cryptography


def _seconds(retry_after: str | None, now: float) -> float | None:
    """A Retry-After in seconds: a number, or an HTTP date (RFC 9110, 10.2.3). None if there is none to read."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that are given, with times as text. Raises ValueError for a time without a time zone."""
    given = {name: value for name, value in wanted.items() if value is not None}
    return {name: _rfc_3339(value) if isinstance(value, datetime) else value for name, value in given.items()}


def _paged(kind: type[T], ask: Callable[[Mapping[str, str]], Any]) -> Iterator[T]:
    """The items of all pages. `ask` gets a page: the first, or the one at a cursor."""
    cursor: dict[str, str] = {}
    while True:
        page = _read(_Page, ask(cursor))
        yield from (_read(kind, item) for item in page.items)
        if page.next is None:
            return
        cursor = {"cursor": page.next}


def _read(kind: type[T], document: Any) -> T:
    """A value of this dataclass. Members that it does not know are left out: a newer API has more. Raises
    NotUnderstood.
    """
    try:
        names = [each.name for each in fields(kind) if each.name in document]  # type: ignore[arg-type]
        return kind(**{name: _value(name, document[name]) for name in names})
    except (TypeError, ValueError) as error:
        raise NotUnderstood from error


def _value(name: str, value: Any) -> Any:
    match name, value:
        case _, None:
            return None
        case (("at" | "created_at" | "send_at"), _):
            return datetime.fromisoformat(value)
        case "timeline", _:
            return tuple(_read(Moment, each) for each in value)
        case "letter", _:
            return _read(DeadLetter, value)
        case "preview", _:
            return _read(Preview, value)
    return value


def _checked(idempotency_key: str | None) -> str:
    """The caller's key, or a new one. Raises ValueError."""
    if idempotency_key is None:
        return uuid.uuid4().hex
    if not _HEADER_TEXT.fullmatch(idempotency_key):
        raise ValueError("An Idempotency-Key is 1 to 255 printable ASCII characters without blanks.")
    return idempotency_key


def _segment(id: str) -> str:
    return quote(id, safe="")


def _rfc_3339(at: datetime) -> str:
    if at.tzinfo is None:
        raise ValueError("A time needs a time zone, like datetime.now(UTC).")
    return at.isoformat()


def _duration(length: str | timedelta) -> str:
    return f"{ceil(length.total_seconds())}s" if isinstance(length, timedelta) else length
