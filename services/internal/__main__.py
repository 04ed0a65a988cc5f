"""python -m services.internal: serve the private service on PORT (8081)."""

import flask

from services.server import serve
from shared.bootstrap import internal as bootstrap
from shared.bootstrap.internal import Internal


def make_app(parts: Internal) -> flask.Flask:
    """The app for these parts."""
    from services.internal.main import create_app

    return create_app(parts)


if __name__ == "__main__":
    serve(bootstrap.parts, make_app, default_port=8081)
