"""The public service: Meta's handshake and webhooks, as a functions-framework function.

functions-framework --target webhook --source services/webhook/main.py     (or python -m services.webhook)
"""

import hmac
from urllib.parse import parse_qsl

import functions_framework
from flask import Request, Response, jsonify
from werkzeug.exceptions import BadRequest

from services import errors, health
from shared import bootstrap, logs
from shared.domain.errors import SignatureInvalid

DRAINED_AT_MOST = 32 * 1024 * 1024
"""Cloud Run takes no larger HTTP/1 request. What is over our cap is read away, so that the client sees the answer."""


@functions_framework.http
def webhook(request: Request) -> Response:
    """Every request of this service."""
    parts = bootstrap.webhook()
    trace = logs.trace_of(request.headers.get, parts.config["GOOGLE_CLOUD_PROJECT"])
    with logs.context(**({"logging.googleapis.com/trace": trace} if trace else {})):
        try:
            return _streamed(_route(request, parts))
        except Exception as error:  # noqa: BLE001 - the one place that maps errors to HTTP
            return _streamed(_json(*errors.answer(error, unavailable=500)))


def _route(request: Request, parts: bootstrap.Webhook) -> Response:
    match request.path, request.method:
        case "/webhooks/whatsapp", "POST":
            return _post(request, parts)
        case "/webhooks/whatsapp", "GET":
            return _handshake(request, parts)
        case "/webhooks/whatsapp", _:
            return Response(status=405, headers={"Allow": "GET, POST"})
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
        case _:
            return _json({"error": "not_found"}, 404)


def _post(request: Request, parts: bootstrap.Webhook) -> Response:
    cap = parts.config["WEBHOOK_MAX_BYTES"]
    body = _read(request, cap + 1)
    if len(body) > cap:
        _drain(request)
        logs.event("webhook_refused", severity="WARNING", reason="too_large")
        return _json({"error": "too_large"}, 413)
    try:
        parts.accept(body, request.headers.get("X-Hub-Signature-256"))
    except SignatureInvalid:
        logs.event("webhook_refused", severity="WARNING", reason="signature")
        raise
    return _json({"status": "ok"}, 200)


def _read(request: Request, at_most: int) -> bytes:
    """The next bytes of the body. Raises BadRequest where it breaks off or is chunked wrongly."""
    try:
        return request.stream.read(at_most)
    except Exception as error:  # every server has its own for this
        raise BadRequest from error


def _drain(request: Request) -> None:
    drained = 0
    while drained < DRAINED_AT_MOST and (piece := _read(request, 64 * 1024)):
        drained += len(piece)


def _handshake(request: Request, parts: bootstrap.Webhook) -> Response:
    """https://developers.facebook.com/docs/graph-api/webhooks/getting-started: echo the challenge as it came."""
    query = dict(parse_qsl(request.query_string.decode(errors="replace"), keep_blank_values=True))
    given = query.get("hub.verify_token", "").encode()
    known = [hmac.compare_digest(given, token.encode()) for token in parts.config["META_VERIFY_TOKEN"]]
    if query.get("hub.mode") != "subscribe" or not any(known):
        logs.event("webhook_refused", severity="WARNING", reason="verify_token")
        return _json({"error": "forbidden"}, 403)
    return Response(query.get("hub.challenge", ""), 200, mimetype="text/plain")


def _json(body: object, status: int) -> Response:
    response = jsonify(body)
    response.status_code = status
    return response


def _streamed(response: Response) -> Response:
    """The same answer, as a stream. Before any other functions-framework reads what is left of the request, into
    memory, however long it is and whoever sent it; and falls over a request that broke off.
    """
    body = response.get_data()
    response.response = iter((body,))
    response.headers["Content-Length"] = str(len(body))
    return response
