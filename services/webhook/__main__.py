"""python -m services.webhook: serve the public service on PORT (8080)."""

from pathlib import Path

import flask

from services.server import serve
from shared.bootstrap import webhook as bootstrap


def make_app() -> flask.Flask:
    """The functions-framework app that serves the function."""
    import functions_framework

    source = str(Path(__file__).with_name("main.py"))
    app: flask.Flask = functions_framework.create_app("webhook", source)  # type: ignore[no-untyped-call]
    app.after_request_funcs.clear()  # it would read the rest of any request into memory, even to /robots.txt
    for rule in app.url_map.iter_rules():
        rule.strict_slashes = False  # a request without a path would be redirected to the address in its Host header
    return app


if __name__ == "__main__":
    serve(bootstrap.parts, make_app, default_port=8080)
