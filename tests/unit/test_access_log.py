"""The access log of the API service: one line for each request, and nothing private in it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from services.api.main import Api, create_app
from shared.bootstrap.api import ApiParts, build_api
from shared.domain.tenants import DEFAULT_TENANT, Scope, Tenant
from shared.operations.keys import add_key
from shared.operations.registry import add_tenant
from tests.support import log_table
from tests.support.parts import NoQueue, lines, logged

NUMBER, SENDER = "+15550002222", "100000000000001"
MESSAGE = {"to": NUMBER, "text": "Your appointment is at nine.", "from": SENDER}


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[ApiParts]:
    with logged():
        made = build_api({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "GOOGLE_CLOUD_PROJECT": "a-project"})
        queue: Any = NoQueue()
        dispatch = replace(made.dispatch, queue=queue)
        yield replace(made, queue=queue, dispatch=dispatch, accept=replace(made.accept, dispatch=dispatch))


@pytest.fixture
def app(parts: ApiParts) -> Flask:
    return create_app(Api.of(parts))


def key_of(parts: ApiParts, tenant: str | None = DEFAULT_TENANT) -> str:
    return add_key(parts.registry, parts.clock, tenant, frozenset(Scope))[1]


def call(app: Flask, method: str, path: str, key: str = "", **more: Any) -> Any:
    headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **more.pop("headers", {})}
    return app.test_client().open(path, method=method, headers=headers, **more)


def line_of(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one line of the access log since the last look."""
    (line,) = [line for line in lines(capfd.readouterr().out) if line["event"] == "api_answered"]
    assert log_table.faults(line) == []
    return line


def test_a_sent_message_is_logged_with_its_route_key_tenant_and_ids(
    app: Flask, parts: ApiParts, capfd: pytest.CaptureFixture[str]
) -> None:
    key = key_of(parts)
    answer = call(app, "POST", "/v1/messages", key, json=MESSAGE)
    line = line_of(capfd)
    assert (line["route"], line["http_status"], line["severity"]) == ("POST /v1/messages", 202, "INFO")
    assert (line["key"], line["tenant"]) == (key.split("_")[1], "default")
    assert (line["delivery"], line["correlation_id"]) == (answer.json["id"], answer.json["correlation_id"])
    assert 0 < line["duration_ms"] < 60_000
    assert "problem" not in line


def test_line_of_an_operators_request_names_the_tenant_of_the_message(
    app: Flask, parts: ApiParts, capfd: pytest.CaptureFixture[str]
) -> None:
    key = key_of(parts, None)
    id = call(app, "POST", "/v1/messages", key, json=MESSAGE).json["id"]
    assert line_of(capfd)["tenant"] == "default"
    call(app, "GET", f"/v1/messages/{id}", key)
    line = line_of(capfd)
    assert (line["tenant"], line["delivery"], line["route"]) == ("default", id, "GET /v1/messages/<id>")


def test_line_of_a_batch_counts_its_messages_and_names_none(
    app: Flask, parts: ApiParts, capfd: pytest.CaptureFixture[str]
) -> None:
    batch = {"messages": [MESSAGE, {"to": "nobody"}, MESSAGE]}
    call(app, "POST", "/v1/messages/batch", key_of(parts), json=batch)
    line = line_of(capfd)
    assert (line["count"], line["tenant"], line["http_status"]) == (2, "default", 200)
    assert not {"delivery", "correlation_id"} & line.keys()


PRIVATE = "c4n4ry"


@pytest.mark.parametrize(
    ("method", "path", "more", "expected"),
    [
        ("GET", f"/v1/messages/{PRIVATE}", {}, ("GET /v1/messages/<id>", 400, "INVALID_REQUEST")),
        ("GET", f"/v1/{PRIVATE}?{PRIVATE}={PRIVATE}", {}, (None, 404, "NOT_FOUND")),
        ("GET", f"/v1/messages?token={PRIVATE}", {}, ("GET /v1/messages", 400, "INVALID_REQUEST")),
        (PRIVATE.upper(), "/v1/messages", {}, (None, 405, "METHOD_NOT_ALLOWED")),
        ("POST", "/v1/messages", {"json": {"to": PRIVATE, "text": PRIVATE}}, ("POST /v1/messages", 202, None)),
        ("POST", "/v1/messages", {"data": PRIVATE * 300_000}, ("POST /v1/messages", None, None)),
    ],
)
def test_no_line_of_a_request_repeats_what_a_caller_wrote(
    app: Flask,
    parts: ApiParts,
    capfd: pytest.CaptureFixture[str],
    method: str,
    path: str,
    more: dict[str, Any],
    expected: tuple[str | None, int | None, str | None],
) -> None:
    headers = {"User-Agent": PRIVATE, "Idempotency-Key": PRIVATE, "Referer": PRIVATE}
    call(app, method, path, key_of(parts), headers=headers, **more)
    said = capfd.readouterr().out
    (line,) = [line for line in lines(said) if line["event"] == "api_answered"]
    route, status, code = expected
    assert line.get("route") == route
    assert status in (None, line["http_status"])
    assert code == line.get("problem") or route
    assert PRIVATE not in said.lower()


def test_a_request_without_a_valid_key_is_logged_without_the_key(
    app: Flask, parts: ApiParts, capfd: pytest.CaptureFixture[str]
) -> None:
    id, secret = key_of(parts).split("_")[1:]
    for wrong in ("", "c4n4ry", f"pombo_{id}_{'0' * 64}", f"pombo_{'0' * 16}_{secret}"):
        assert call(app, "GET", f"/v1/messages/{'0' * 40}", wrong).status_code == 401
        line = line_of(capfd)
        assert (line["http_status"], line["problem"]) == (401, "UNAUTHORIZED")
        assert not {"key", "tenant"} & line.keys()
        assert secret not in json.dumps(line)


def test_anothers_message_is_logged_without_a_word_about_it(
    app: Flask, parts: ApiParts, capfd: pytest.CaptureFixture[str]
) -> None:
    id = call(app, "POST", "/v1/messages", key_of(parts), json=MESSAGE).json["id"]
    capfd.readouterr()
    add_tenant(parts.registry, parts.clock, Tenant("bakery"), 20)
    call(app, "GET", f"/v1/messages/{id}", key_of(parts, "bakery"))
    line = line_of(capfd)
    assert (line["tenant"], line["problem"]) == ("bakery", "NOT_FOUND")
    assert not {"delivery", "correlation_id"} & line.keys()


def test_probes_are_not_logged_and_the_document_is(app: Flask, capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("/livez", "/startz", "/readyz", "/health"):
        assert call(app, "GET", path).status_code == 200
    assert lines(capfd.readouterr().out) == []
    call(app, "GET", "/openapi.json")
    assert line_of(capfd)["route"] == "GET /openapi.json"


def test_each_line_of_a_request_names_its_trace(
    parts: ApiParts, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("c4n4ry")

    service = Api.of(parts)
    app = create_app(replace(service, messages=replace(service.messages, accept=broken)))
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert call(app, "POST", "/v1/messages", key_of(parts), json=MESSAGE, headers=headers).status_code == 500
    said = lines(capfd.readouterr().out)
    assert [line["event"] for line in said] == ["unexpected_error", "api_answered"]
    assert {line["logging.googleapis.com/trace"] for line in said} == {f"projects/a-project/traces/{trace}"}
    assert "c4n4ry" not in json.dumps(said)
