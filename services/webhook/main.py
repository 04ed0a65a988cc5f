"""The public service: every provider's webhooks, as a functions-framework function on an event loop.

functions-framework --target webhook --source services/webhook/main.py     (or python -m services.webhook)
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from http import HTTPStatus
from typing import Any

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from services import error_responses, health
from services.error_responses import Busy, HttpError
from services.webhook import admission
from services.webhook.admission import Turns
from services.webhook.service import Service
from shared import logs
from shared.bootstrap import webhook as bootstrap
from shared.domain.deadline import Deadline
from shared.domain.errors import (
    Forbidden,
    QueueUnavailable,
    RegistryUnavailable,
    RegistryUnreadable,
    SignatureInvalid,
    StoreUnavailable,
)
from shared.pipeline.intake import Acknowledgement, Incoming, IntakeChannel

WEBHOOKS = "/webhooks/"
TRACE = "logging.googleapis.com/trace"

DRAINED_AT_MOST = 32 * 1024 * 1024
"""Cloud Run takes no larger HTTP/1 request. A body over our cap is read and discarded, so the client gets the answer.
"""

Headers = Mapping[str, str]


@functions_framework.aio.http
async def webhook(request: Request) -> Response:
    """The entry point: answers every request with the parts of this process."""
    return await answer(request, _service())


@cache
def _service() -> Service:
    """Of this process, made with its first request."""
    return Service.of(bootstrap.parts())


async def answer(request: Request, service: Service) -> Response:
    """Answer every request of this service."""
    headers = _headers(request)
    name = _name(request.scope["path"])
    channel = service.parts.channels.at(name) if name else None
    fields = {"provider": channel.provider} if channel and request.scope["method"] in channel.webhooks[name] else {}
    if trace := logs.trace_of(headers.get, service.parts.config["GOOGLE_CLOUD_PROJECT"]):
        fields[TRACE] = trace
    with logs.context(**fields):
        try:
            if channel is None:
                return await _of_process(request, service)
            return await _of_channel(request, headers, name, channel, service)
        except Exception as error:  # noqa: BLE001 - the one place that maps errors to HTTP
            return _json(*error_responses.answer(error, unavailable=500))


async def _of_process(request: Request, service: Service) -> Response:
    match request.scope["path"], request.scope["method"]:
        case "/livez", "GET":
            return _json(*health.livez())
        case "/startz", "GET":
            return _json(*await service.health.startz())
        case "/readyz", "GET":
            return _json(*await service.health.readyz())
        case "/health", "GET":
            return _json((await service.health.readyz())[0], 200)
        case "/livez" | "/startz" | "/readyz" | "/health", _:
            return _not_allowed("GET")
        case _:
            raise HttpError(HTTPStatus.NOT_FOUND)


async def _of_channel(
    request: Request, headers: Headers, name: str, channel: IntakeChannel, service: Service
) -> Response:
    if request.scope["method"] not in channel.webhooks[name]:
        return _not_allowed(", ".join(channel.webhooks[name]))
    if request.scope["method"] == "POST":
        return await _post(request, headers, channel, service)
    try:
        return _acknowledged(channel.handshake(_incoming(request, headers, channel, b"")))
    except Forbidden as error:
        logs.event("webhook_refused", severity="WARNING", reason=error.cause)
        raise


async def _post(request: Request, headers: Headers, channel: IntakeChannel, service: Service) -> Response:
    """The deadline counts from the head: the provider waits while the body arrives and the POST waits for its turn."""
    deadline = Deadline.of_webhook(service.parts.accept.clock.monotonic)
    try:
        body = await _beginning(request, service.parts.config["WEBHOOK_MAX_BYTES"])
        if isinstance(body, bytes):
            return await _in_turn(_incoming(request, headers, channel, body), channel, service, deadline)
        await service.admission.arriving.take(deadline)
        try:
            incoming = _incoming(request, headers, channel, await body.rest(request, service.admission.arriving))
            await service.admission.large.take(deadline)
            try:
                return await _in_turn(incoming, channel, service, deadline)
            finally:
                service.admission.large.give_back()
        finally:
            service.admission.arriving.give_back()
    except SignatureInvalid:
        logs.event("webhook_refused", severity="WARNING", reason="signature")
        raise
    except _TooLarge as error:
        await _drain(request, error)
        logs.event("webhook_refused", severity="WARNING", reason="too_large")
        return _json({"error": "too_large"}, 413)
    except Busy:
        logs.event("webhook_refused", severity="WARNING", reason="busy")
        raise


async def _in_turn(incoming: Incoming, channel: IntakeChannel, service: Service, deadline: Deadline) -> Response:
    """Accept one POST. If the store or the queue is away, those that wait for a turn are refused at once: they would
    only wait for the same failure, longer than the 5 s in which an outage is answered.
    """
    await service.admission.posts.take(deadline)
    try:
        await service.parts.accept(incoming, deadline)
    except (StoreUnavailable, QueueUnavailable, RegistryUnavailable) as error:
        # A POST that was too much for its time says nothing of the others, nor does one tenant's unreadable entry.
        if not deadline.has_passed and not isinstance(error, RegistryUnreadable):
            service.admission.refuse_waiting()
        raise
    finally:
        service.admission.posts.give_back()
    return _acknowledged(channel.acknowledge(incoming))


class _TooLarge(Exception):
    """The body is over the cap."""

    def __init__(self, read: int, more: bool) -> None:
        self.read = read
        self.more = more


@dataclass
class _Large:
    """The beginning of a large body. The rest may be read when it has its turn."""

    pieces: list[bytes]
    size: int
    more: bool
    cap: int

    async def rest(self, request: Request, places: Turns) -> bytes:
        """The whole body. Raises _TooLarge, or HttpError if it breaks off or stalls while others wait for its place."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(admission.ARRIVAL_SECONDS):
                    await self._read(request)
                break
            if places.are_awaited:
                raise HttpError(HTTPStatus.BAD_REQUEST)
        if self.size > self.cap:
            raise _TooLarge(self.size, self.more)
        return b"".join(self.pieces)

    async def _read(self, request: Request) -> None:
        while self.more and self.size <= self.cap:
            piece, self.more = await _piece(request)
            self.pieces.append(piece)
            self.size += len(piece)


async def _beginning(request: Request, cap: int) -> bytes | _Large:
    """The whole body if it is small. Raises _TooLarge or HttpError."""
    piece, more = await _piece(request)
    pieces, size = [piece], len(piece)
    while more and size <= min(cap, admission.SMALL):
        piece, more = await _piece(request)
        pieces.append(piece)
        size += len(piece)
    if size > cap:
        raise _TooLarge(size, more)
    if size > admission.SMALL:
        return _Large(pieces, size, more, cap)
    return piece if len(pieces) == 1 else b"".join(pieces)


async def _piece(request: Request) -> tuple[bytes, bool]:
    """The next bytes of the body, and whether there are more. Raises HttpError if it breaks off."""
    message = await request.receive()
    if message["type"] != "http.request":
        raise HttpError(HTTPStatus.BAD_REQUEST)
    return message.get("body", b""), message.get("more_body", False)


async def _drain(request: Request, error: _TooLarge) -> None:
    """Discard the rest of the body."""
    drained, more = error.read, error.more
    while more and drained < DRAINED_AT_MOST:
        piece, more = await _piece(request)
        drained += len(piece)


def _name(path: str) -> str:
    return path.removeprefix(WEBHOOKS) if path.startswith(WEBHOOKS) else ""


def _headers(request: Request) -> Headers:
    """By their names in lower case; one that came several times has all its values, as if in one line."""
    given = request.scope["headers"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in given}
    if len(headers) < len(given):
        for name in headers:
            headers[name] = ",".join(
                value.decode("latin-1") for other, value in given if other.decode("latin-1") == name
            )
    return headers


def _incoming(request: Request, headers: Headers, channel: IntakeChannel, body: bytes) -> Incoming:
    path, query = request.scope["path"], request.scope["query_string"].decode(errors="replace")
    return Incoming(channel.provider, request.scope["method"], f"{path}?{query}" if query else path, headers, body)


@lru_cache(maxsize=16)
def _acknowledged(answer: Acknowledgement) -> Response:
    """A response holds no state, so one serves every POST."""
    return Response(answer.body, 200, {"Content-Type": answer.content_type})


def _not_allowed(methods: str) -> Response:
    return Response(status_code=405, headers={"Allow": methods})


def _json(body: Any, status: int) -> Response:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True) + "\n"
    return Response(text.encode(), status, {"Content-Type": "application/json"})
