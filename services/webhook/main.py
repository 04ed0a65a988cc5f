"""The public service: every provider's webhooks, as a functions-framework function.

functions-framework --target webhook --source services/webhook/main.py     (or python -m services.webhook)
"""

import functions_framework
from flask import Request, Response, jsonify
from werkzeug.exceptions import BadRequest

from services import error_responses, health
from shared import logs
from shared.bootstrap import webhook as bootstrap
from shared.bootstrap.webhook import Webhook
from shared.domain.errors import Forbidden, SignatureInvalid
from shared.pipeline.ports import Acknowledgement, Channel, Incoming

WEBHOOKS = "/webhooks/"

DRAINED_AT_MOST = 32 * 1024 * 1024
"""Cloud Run takes no larger HTTP/1 request. A body over our cap is read and discarded, so the client gets the answer.
"""


@functions_framework.http
def webhook(request: Request) -> Response:
    """The entry point: answers every request with the parts of this process."""
    return answer(request, bootstrap.parts())


def answer(request: Request, parts: Webhook) -> Response:
    """Answer every request of this service."""
    trace = logs.trace_of(request.headers.get, parts.config["GOOGLE_CLOUD_PROJECT"])
    with logs.context(**({"logging.googleapis.com/trace": trace} if trace else {})):
        try:
            return _streamed(_route(request, parts))
        except Exception as error:  # noqa: BLE001 - the one place that maps errors to HTTP
            return _streamed(_json(*error_responses.answer(error, unavailable=500)))


def _route(request: Request, parts: Webhook) -> Response:
    match request.path, request.method:
        case "/livez", "GET":
            return _json(*health.livez())
        case "/startz", "GET":
            return _json(*health.startz(parts.store))
        case "/readyz", "GET":
            return _json(*health.readyz(parts.store, parts.queue))
        case "/health", "GET":
            return _json(health.readyz(parts.store, parts.queue)[0], 200)
        case "/livez" | "/startz" | "/readyz" | "/health", _:
            return Response(status=405, headers={"Allow": "GET"})
        case path, method:
            name = path.removeprefix(WEBHOOKS) if path.startswith(WEBHOOKS) else ""
            channel = parts.channels.at(name)
            if channel is None:
                return _json({"error": "not_found"}, 404)
            if method not in channel.webhooks[name]:
                return Response(status=405, headers={"Allow": ", ".join(channel.webhooks[name])})
            with logs.context(provider=channel.provider):
                return (_post if method == "POST" else _handshake)(request, channel, parts)


def _post(request: Request, channel: Channel, parts: Webhook) -> Response:
    cap = parts.config["WEBHOOK_MAX_BYTES"]
    body = _read(request, cap + 1)
    if len(body) > cap:
        _drain(request)
        logs.event("webhook_refused", severity="WARNING", reason="too_large")
        return _json({"error": "too_large"}, 413)
    incoming = _incoming(request, channel, body)
    try:
        parts.accept(incoming)
    except SignatureInvalid:
        logs.event("webhook_refused", severity="WARNING", reason="signature")
        raise
    return _acknowledged(channel.acknowledge(incoming))


def _read(request: Request, at_most: int) -> bytes:
    """The next bytes of the body. Raises BadRequest if it breaks off or has invalid chunks."""
    try:
        return request.stream.read(at_most)
    except Exception as error:  # each server raises a different one
        raise BadRequest from error


def _drain(request: Request) -> None:
    drained = 0
    while drained < DRAINED_AT_MOST and (piece := _read(request, 64 * 1024)):
        drained += len(piece)


def _handshake(request: Request, channel: Channel, _parts: Webhook) -> Response:
    try:
        return _acknowledged(channel.handshake(_incoming(request, channel, b"")))
    except Forbidden as error:
        logs.event("webhook_refused", severity="WARNING", reason=error.cause)
        raise


def _incoming(request: Request, channel: Channel, body: bytes) -> Incoming:
    query = request.query_string.decode(errors="replace")
    url = f"{request.path}?{query}" if query else request.path
    headers = {name.lower(): value for name, value in request.headers}
    return Incoming(channel.provider, request.method, url, headers, body)


def _acknowledged(answer: Acknowledgement) -> Response:
    return Response(answer.body, 200, content_type=answer.content_type)


def _json(body: object, status: int) -> Response:
    response = jsonify(body)
    response.status_code = status
    return response


def _streamed(response: Response) -> Response:
    """The same response, as a stream. Before any other response, functions-framework reads the rest of the request into
    memory, of any length and from any caller, and fails if the request broke off.
    """
    body = response.get_data()
    response.response = iter((body,))
    response.headers["Content-Length"] = str(len(body))
    return response
