"""The API service: what a business's own programs call, with an API key."""

from dataclasses import dataclass
from typing import Any, Self

from flask import Response, g, jsonify, redirect, request
from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI
from flask_openapi3_swagger.plugins import RegisterPlugin
from pydantic import ValidationError
from werkzeug.exceptions import HTTPException

from services import health
from services.api import access_log, dead_letters, health_routes, keys, messages, problems, senders, tenants
from services.api.bodies import StrictJson, check_body
from services.api.cached import Cached
from services.api.callers import Caller, Callers, needs_of
from services.api.dead_letters import DeadLetterParts
from services.api.health_routes import HealthParts
from services.api.messages import MessageParts
from services.api.new_messages import NewMessages
from services.api.problems import ProblemDocument
from services.api.rate_limits import RateLimits
from services.api.registry_parts import RegistryParts
from shared.bootstrap.api import ApiParts
from shared.bootstrap.channels import explain, read_message
from shared.config import Config
from shared.operations.health import Health
from shared.pipeline.ports import Queue, Store

LARGEST_BODY = 1024 * 1024
"""Bytes: a batch of 100 messages of ten thousand characters each."""

DOCUMENT, DOCS = "/openapi.json", "/docs"
PROBED_SECONDS = 1.0
"""How old the answer to a probe may be."""

WITHOUT_KEY = frozenset({"/livez", "/startz", "/readyz", "/health", "/health/whatsapp", DOCUMENT, DOCS})
"""Routes that anyone may ask for, beside those below DOCS."""


@dataclass(frozen=True, slots=True)
class Api:
    """What the API service needs."""

    config: Config
    callers: Callers
    messages: MessageParts
    dead_letters: DeadLetterParts
    registry: RegistryParts
    health: HealthParts
    store: Store
    queue: Queue

    @classmethod
    def of(cls, parts: ApiParts) -> Self:
        """The service of these parts, with its own caches and rate limits."""
        config, store, queue, clock = parts.config, parts.store, parts.queue, parts.clock
        new = NewMessages(parts.tenants, parts.channels, clock, config["TIME_SCALE"], config.limits.message_max_age)
        return cls(
            config=config,
            callers=Callers(parts.keys, RateLimits(clock.monotonic)),
            messages=MessageParts(store, new, parts.accept, parts.cancel, explain),
            dead_letters=DeadLetterParts.of(store, queue, parts.tenants, config.limits, clock),
            registry=RegistryParts.of(parts),
            health=HealthParts(Health(store, parts.registry, parts.tenants, config.limits, clock), read_message),
            store=store,
            queue=queue,
        )


def create_app(parts: Api) -> OpenAPI:
    """The Flask app for these parts. It makes no connection."""
    app = OpenAPI(
        "pombo-api",
        info=Info(title="Pombo", version="1", description="Send WhatsApp messages once, and see where each is."),
        security_schemes={"key": {"type": "http", "scheme": "bearer", "description": "pombo_<id>_<secret>"}},
        doc_prefix=DOCS,
        doc_url=DOCUMENT,
        validation_error_status=400,
        validation_error_model=ProblemDocument,
        validation_error_callback=_invalid,
        static_folder=None,
    )
    app.config.update(MAX_CONTENT_LENGTH=LARGEST_BODY, PROVIDE_AUTOMATIC_OPTIONS=False)
    app.json = StrictJson(app)
    app.url_map.merge_slashes = False
    access_log.install(app, parts.config["GOOGLE_CLOUD_PROJECT"])

    @app.before_request
    def authenticate() -> None:
        if not _is_open():
            g.caller = parts.callers.caller(request)
            parts.callers.check_rate(g.caller)  # known by now, so that the access log names it
            _check_scope(app, g.caller)
            check_body(request)

    @app.errorhandler(HTTPException)
    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        return problems.response(problems.problem_of(error))

    _add_probes(app, parts)
    _add_document(app)
    app.register_api(messages.routes(parts.messages))
    app.register_api(dead_letters.routes(parts.dead_letters))
    app.register_api(tenants.routes(parts.registry))
    app.register_api(senders.routes(parts.registry))
    app.register_api(keys.routes(parts.registry))
    app.register_api(health_routes.routes(parts.health))
    return app


def _add_probes(app: OpenAPI, parts: Api) -> None:
    """What a platform asks to see whether the process lives and works. Anyone may ask, so a flood of requests pings the
    store and the queue once in PROBED_SECONDS at most.
    """
    monotonic = parts.health.health.clock.monotonic
    start = Cached(lambda: health.startz(parts.store), PROBED_SECONDS, monotonic)
    ready = Cached(lambda: health.readyz(parts.store, parts.queue), PROBED_SECONDS, monotonic)

    @app.get("/livez", doc_ui=False)
    def livez() -> tuple[Response, int]:
        body, status = health.livez()
        return jsonify(body), status

    @app.get("/startz", doc_ui=False)
    def startz() -> tuple[Response, int]:
        body, status = start()
        return jsonify(body), status

    @app.get("/readyz", doc_ui=False)
    def readyz() -> tuple[Response, int]:
        body, status = ready()
        return jsonify(body), status

    @app.get("/health", doc_ui=False)
    def whole_health() -> Response:
        return jsonify(ready()[0])


def _add_document(app: OpenAPI) -> None:
    """The document and its page at their own addresses; the page reads the same document below its own."""

    @app.get(DOCUMENT, doc_ui=False)
    def document() -> Response:
        return jsonify(app.api_doc)

    @app.get(DOCS, doc_ui=False)
    def page() -> Any:
        return redirect(f"{DOCS}/{RegisterPlugin.name}")


def _is_open() -> bool:
    """Whether the route is for anyone. A path that no route takes is not."""
    rule = request.url_rule.rule if request.url_rule else ""
    return rule in WITHOUT_KEY or rule.startswith(f"{DOCS}/")


def _check_scope(app: OpenAPI, caller: Caller) -> None:
    """Raises Problem unless the key is enough for the route, and LookupError for a route that does not say what it
    needs.
    """
    if request.endpoint is None:
        return  # no route takes the request, which is found next
    needed = needs_of(app.view_functions[request.endpoint])
    if needed is None:
        raise LookupError(request.endpoint)
    caller.check(needed, (request.view_args or {}).get("id"))


def _invalid(error: ValidationError) -> Response:
    return problems.response(problems.of_validation(error))
