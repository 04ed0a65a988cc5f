"""python -m services.api: serve the API service on PORT (8084)."""

import flask

from services.api.worker import ApiWorker
from services.server import serve
from shared.bootstrap import api as bootstrap
from shared.bootstrap.api import ApiParts


def make_app(parts: ApiParts) -> flask.Flask:
    """The app for these parts."""
    from services.api.main import Api, create_app

    return create_app(Api.of(parts))


if __name__ == "__main__":
    serve(bootstrap.parts, make_app, default_port=8084, worker=ApiWorker)
