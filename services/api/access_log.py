"""The access log: one line for each request, which says what was asked and answered and nothing private.

It has the route and never the URL: an id in a path or a value in a query is a caller's own text.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flask import Flask, Response, g, request
from werkzeug.datastructures import EnvironHeaders

from services.api.callers import Caller
from services.api.problems import CONTENT_TYPE
from shared import logs
from shared.domain.record import Delivery, Kind

PROBES = frozenset({"/livez", "/startz", "/readyz", "/health"})
"""Asked every few seconds by what watches the process: no line."""

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


def install(app: Flask, project: str) -> None:
    """Log each request of this app. Call it before anything else is added: what comes first sees each request."""
    app.wsgi_app = _traced(app.wsgi_app, project)  # type: ignore[assignment, method-assign] # as Flask's documentation says

    @app.before_request
    def begin() -> None:
        g.began, g.records = time.monotonic(), []

    @app.after_request
    def end(response: Response) -> Response:
        if _route() not in PROBES:
            logs.event("api_answered", **_fields(response))
        return response


def about(record: Delivery) -> None:
    """The request that is being answered is about this record: its line names it. About several, the line has their
    count.
    """
    g.records.append(record)


def _fields(response: Response) -> dict[str, Any]:
    caller: Caller | None = g.get("caller")
    return {
        "tenant": caller.tenant if caller else None,
        **_fields_of_records(g.records),
        "route": f"{request.method} {_route()}" if _route() else None,
        "http_status": response.status_code,
        "problem": response.get_json()["code"] if response.content_type == CONTENT_TYPE else None,
        "key": caller.key if caller else None,
        "duration_ms": round((time.monotonic() - g.began) * 1000, 1),
    }


def _fields_of_records(records: Sequence[Delivery]) -> dict[str, Any]:
    tenants = {record.tenant for record in records if record.tenant}
    tenant = {"tenant": tenants.pop()} if len(tenants) == 1 else {}
    match records:
        case []:
            return {}
        case [record]:
            name = "delivery" if record.kind is Kind.OUTBOUND else "inbound_event_id"
            return {**tenant, name: record.key, "correlation_id": record.correlation_id}
        case _:
            return {**tenant, "count": len(records)}


def _route() -> str | None:
    """The path of the route, with names in place of values; None if no route takes the request."""
    return request.url_rule.rule if request.url_rule else None


def _traced(app: Wsgi, project: str) -> Wsgi:
    """Every log line of a request has its trace."""

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        trace = logs.trace_of(EnvironHeaders(environ).get, project)
        with logs.context(**{"logging.googleapis.com/trace": trace}):
            return app(environ, start_response)

    return serve
