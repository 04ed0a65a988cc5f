"""The API service around its routes: who may ask what without a key, malformed HTTP, and how it is served."""

import json
import runpy
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import flask
import pytest

from local.stack import PORTS, Options
from services import server
from services.api import __main__ as program
from services.api.main import Api, create_app
from services.api.problems import CONTENT_TYPE
from services.api.worker import ApiWorker
from services.bounded_worker import STATUS
from shared.bootstrap import api as bootstrap
from shared.bootstrap.api import build_api


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> flask.Flask:
    return create_app(Api.of(build_api({"SQLITE_PATH": str(tmp_path_factory.mktemp("api") / "pombo.sqlite")})))


@pytest.mark.parametrize(
    "path",
    [
        *("/livez", "/startz", "/health", "/health/whatsapp"),
        *("/openapi.json", "/docs", "/docs/", "/docs/swagger"),
    ],
)
def test_probes_and_the_document_need_no_key(path: str, app: flask.Flask) -> None:
    assert app.test_client().get(path).status_code in (200, 302)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/v1/messages", "/livez/", "/livezzz", "//livez", "/livez/../v1/messages", "/health/", "/health/dlq"),
        *("/health/whatsapp/", "/health/whatsapp/detailed", "/health/whatsapp/dlq", "/v1/admin/health"),
        *("/docsx", "/docs/../v1/messages", "/docs/nothing", "/openapi.json/", "/static/x", "/%6civez/x"),
    ],
)
def test_any_other_path_without_a_key_is_refused_before_it_is_looked_for(path: str, app: flask.Flask) -> None:
    answer = app.test_client().get(path)
    assert (answer.status_code, answer.content_type) == (401, CONTENT_TYPE)


def test_the_page_of_the_document_is_found_whatever_the_host_is_called(app: flask.Flask) -> None:
    answer = app.test_client().get("/docs", headers={"Host": "c4n4ry.example.com"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/docs/swagger")
    page = app.test_client().get("/docs/swagger")
    assert page.status_code == 200
    assert not [word for word in page.text.split('"') if word.startswith(("http:", "https:", "//"))]
    assert app.test_client().get("/docs/openapi.json").json == app.test_client().get("/openapi.json").json


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT"])
def test_no_method_is_answered_that_no_route_names(method: str, app: flask.Flask) -> None:
    assert app.test_client().open("/livez", method=method).status_code in (401, 405)


def test_a_body_beyond_a_megabyte_is_refused_after_the_key(app: flask.Flask) -> None:
    assert app.test_client().post("/v1/messages", data=b"x" * (1024 * 1024 + 1)).status_code == 401


@pytest.mark.parametrize("status", [*STATUS.values(), HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR])
def test_what_is_no_http_is_refused_with_a_problem_document(status: HTTPStatus) -> None:
    head, _, body = ApiWorker.refused(status).partition(b"\r\n\r\n")
    code, expected = ("UNEXPECTED", 500) if status == 500 else ("INVALID_REQUEST", 400)
    assert head.startswith(f"HTTP/1.1 {expected} ".encode())
    assert f"Content-Type: {CONTENT_TYPE}".encode() in head
    document = json.loads(body)
    assert (document["code"], document["status"], document["type"]) == (code, expected, "about:blank")


def test_the_routes_have_the_parts_and_the_time_scale_of_the_settings(tmp_path: Path) -> None:
    parts = build_api({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "TIME_SCALE": "20"})
    service = Api.of(parts)
    assert (service.store, service.queue, service.config) == (parts.store, parts.queue, parts.config)
    assert (service.callers.keys, service.callers.limits._monotonic) == (parts.keys, parts.clock.monotonic)
    health = service.health.health
    assert (health.store, health.registry, health.tenants) == (parts.store, parts.registry, parts.tenants)
    assert (health.limits, health.clock) == (parts.config.limits, parts.clock)
    routes = service.messages
    assert (routes.store, routes.accept, routes.cancel) == (parts.store, parts.accept, parts.cancel)
    assert routes.explain("meta", 190, "refused") is not None
    replay, discard = service.dead_letters.replay, service.dead_letters.discard
    assert (replay.store, replay.queue, replay.tenants) == (parts.store, parts.queue, parts.tenants)
    assert (replay.limits, replay.clock) == (discard.limits, discard.clock) == (parts.config.limits, parts.clock)
    new = routes.new_messages
    assert (new.tenants, new.channels, new.clock, new.time_scale) == (parts.tenants, parts.channels, parts.clock, 20)
    assert new.max_age == parts.config.limits.message_max_age == timedelta(hours=24) / 20


def test_the_service_is_served_with_its_threads_and_its_own_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(server._Server, "run", lambda it: served.append(it))
    monkeypatch.setattr("shared.logs.take_standard_output", lambda: None)
    environ = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "THREADS": "7", "PORT": "9"}
    server.serve(lambda: build_api(environ), program.make_app, default_port=1, worker=ApiWorker)
    (it,) = served
    assert (it.cfg.threads, it.cfg.worker_class, it.cfg.bind) == (7, ApiWorker, ["127.0.0.1:9"])
    assert "/v1/messages" in map(str, it.load().url_map.iter_rules())


def test_program_serves_its_parts_at_the_port_of_the_local_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda *given, **more: served.append((given[0], more)))
    runpy.run_path(str(program.__file__), run_name="__main__")
    port = Options(Path()).first_port + PORTS["api"]
    assert served == [(bootstrap.parts, {"default_port": port, "worker": ApiWorker})]
