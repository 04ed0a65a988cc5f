"""Bare: a Flask app that does the work of POST /v1/messages and no more: one read, one commit and one task.

It uses Pombo's own store and queue, so the ratio shows what API keys, validation, limits and log lines cost. It has
none of them. It runs in the environment of the API service.

gunicorn --worker-class gthread --threads 16 --pythonpath bench/baselines bare_api:app
"""

import flask

from shared.bootstrap.api import parts
from shared.domain.delivery.create import create
from shared.domain.identity import sender_id
from shared.domain.record import Kind
from shared.domain.tenants import DEFAULT_TENANT

app = flask.Flask("bare_api")
api = parts()
limits = api.config.limits


@app.post("/v1/messages")
def send() -> tuple[dict[str, str], int]:
    body = flask.request.get_json()
    api.store.marks(sender_id("meta", body["from"]))
    record = create(
        Kind.OUTBOUND,
        api.clock.token(),
        provider="meta",
        tenant=DEFAULT_TENANT,
        sender=body["from"],
        contact=body["to"],
        correlation_id=api.clock.token(),
        payload={"type": "text", "content": {"body": body["text"]}, "to": body["to"]},
        limits=limits,
        now=api.clock.now(),
    )
    api.store.create(record)
    api.dispatch.ensure(record)
    return {"id": record.key, "state": "pending", "correlation_id": record.correlation_id}, 202
