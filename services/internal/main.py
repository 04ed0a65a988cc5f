"""The private service: what Cloud Tasks and the scheduler call."""

from collections.abc import Callable, Container
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, jsonify, request
from werkzeug.exceptions import HTTPException

from services import error_responses, health, task_responses
from services.error_responses import HttpError
from services.internal.callers import Callers
from services.internal.outages import CachedOutages
from shared import logs
from shared.bootstrap.internal import Internal
from shared.config import Config
from shared.domain.delivery.answers import Answer
from shared.domain.drains import DRAIN_PATH, parse_drain
from shared.domain.errors import Forbidden
from shared.domain.record import Kind, Task
from shared.domain.tasks import parse_task
from shared.pipeline import log_fields

LARGEST_TASK = 100 * 1024
"""Cloud Tasks takes no larger body; ours have 200 bytes."""


def create_app(parts: Internal) -> Flask:
    """The Flask app for these parts. It makes no connection."""
    app = Flask("pombo-internal")
    app.config.update(MAX_CONTENT_LENGTH=LARGEST_TASK, PROVIDE_AUTOMATIC_OPTIONS=False)
    app.url_map.merge_slashes = False  # no redirect from //livez, which would go to the address in the Host header
    callers, numbered = Callers(parts.config), _numbered_queues(parts.config)
    outages = CachedOutages(parts.senders, parts.process_inbound.handlers.own_backends_down)

    def _process(kind: Kind, process: Callable[[Task], Answer]) -> Response:
        task = parse_task(kind, _document())
        g.about = _context(task, parts, numbered)
        with logs.context(**g.about):
            return _answer(process(task))

    @app.post("/internal/process_inbound")
    def process_inbound() -> Response:
        callers.check_task(request.headers)
        return _process(Kind.INBOUND, parts.process_inbound)

    @app.post("/internal/process_outbound")
    def process_outbound() -> Response:
        callers.check_task(request.headers)
        return _process(Kind.OUTBOUND, parts.process_outbound)

    @app.post("/internal/sweep")
    def sweep() -> Response:
        callers.check_sweep(request.headers)
        return jsonify(asdict(parts.sweep()))

    @app.post(DRAIN_PATH)
    def drain() -> Response:
        callers.check_task(request.headers)
        return jsonify(asdict(parts.drain(parse_drain(_document()))))

    @app.get("/livez")
    def livez() -> tuple[Response, int]:
        body, status = health.livez(parts.handler.exhausted)
        return jsonify(body), status

    @app.get("/startz")
    def startz() -> tuple[Response, int]:
        body, status = health.startz(parts.store)
        return jsonify(body), status

    @app.get("/readyz")
    def readyz() -> tuple[Response, int]:
        body, status = health.readyz(parts.store, parts.queue)
        return jsonify(body), status

    @app.get("/health")
    def whole_health() -> Response:
        return jsonify(health.readyz(parts.store, parts.queue)[0] | {"outages": outages()})

    @app.after_request
    def flush(response: Response) -> Response:
        """Write the counters within a request: an instance of Cloud Run may have no processor between two."""
        if request.method == "POST":
            parts.counting.flush()
        return response

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> tuple[Response, int]:
        body, status = error_responses.answer(HttpError(HTTPStatus(error.code or 500)), unavailable=503)
        return jsonify(body), status

    @app.errorhandler(Exception)
    def failed(error: Exception) -> tuple[Response, int]:
        with logs.context(**g.get("about", {})):
            if isinstance(error, Forbidden):
                logs.event("task_refused", severity="WARNING", reason="forbidden", cause=error.cause)
            body, status = error_responses.answer(error, unavailable=503)
        return jsonify(body), status

    return app


def _document() -> Any:
    """The body as JSON; None if it is not JSON."""
    try:
        return request.get_json(force=True, silent=True)
    except RecursionError:
        return None


def _numbered_queues(config: Config) -> frozenset[str]:
    """The names of the tenants' queues."""
    patterns = (config["INBOUND_TENANT_QUEUE_PATTERN"], config["TENANT_QUEUE_PATTERN"])
    return frozenset(pattern.format(n=number) for pattern in patterns for number in range(config["TENANT_QUEUES"]))


def _context(task: Task, parts: Internal, numbered: Container[str]) -> dict[str, Any]:
    """The fields of every log line of this request. The queue's headers are only logged: anyone may send them. A task's
    body does not say in which queue it is, but a header does.
    """
    queue = request.headers.get("X-CloudTasks-QueueName", "")
    trace = logs.trace_of(request.headers.get, parts.config["GOOGLE_CLOUD_PROJECT"])
    retries = request.headers.get("X-CloudTasks-TaskRetryCount", "")
    return {
        **log_fields.of_task(task, parts.queue),
        **({"queue": queue} if queue in numbered else {}),
        "retry_count": int(retries) if retries.isascii() and retries.isdigit() and len(retries) < 10 else None,
        "logging.googleapis.com/trace": trace,
    }


def _answer(answer: Answer) -> Response:
    body, status = task_responses.of_task(answer)
    response = jsonify(body)
    response.status_code = status
    return response
