"""Ack: checks the signature, parses the JSON and answers 200. It stores nothing and guarantees nothing.

gunicorn --worker-class gthread --threads 16 --chdir bench/baselines ack:app
"""

import hashlib
import hmac
import json
import os

import flask

app = flask.Flask("ack")
secret = os.environ["META_APP_SECRET"].encode()


@app.post("/webhooks/whatsapp")
def webhook() -> tuple[str, int]:
    body = flask.request.get_data()
    expected = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, flask.request.headers.get("X-Hub-Signature-256", "")):
        return "", 403
    json.loads(body)
    return "", 200
