"""The baseline: a webhook that checks the signature, parses the JSON and answers 200. No store, queue or guarantee."""

import hashlib
import hmac
import json
import os

import flask
from gunicorn.app.base import BaseApplication


def make_app() -> flask.Flask:
    app = flask.Flask("baseline")
    secret = os.environ["META_APP_SECRET"].encode()

    @app.post("/webhooks/whatsapp")
    def webhook() -> tuple[str, int]:
        body = flask.request.get_data()
        signature = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature, flask.request.headers.get("X-Hub-Signature-256", "")):
            return "", 403
        json.loads(body)
        return "", 200

    @app.get("/livez")
    def livez() -> tuple[str, int]:
        return "", 200

    return app


class _Server(BaseApplication):
    def load_config(self) -> None:
        for name, value in {
            "bind": f"127.0.0.1:{os.environ['PORT']}",
            "worker_class": "gthread",
            "threads": 16,
            "loglevel": "error",
            "control_socket_disable": True,
        }.items():
            self.cfg.set(name, value)

    def load(self) -> flask.Flask:
        return make_app()


if __name__ == "__main__":
    _Server().run()
