"""The public service over HTTP: in this process, by functions-framework, and as `python -m` serves it."""

import asyncio
import json
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import functions_framework.aio
import pytest

from services.webhook.__main__ import make_app
from shared import config
from shared.bootstrap import webhook as bootstrap
from shared.bootstrap.backends import build_store
from shared.domain.errors import QueueUnavailable, RegistryUnavailable, StoreUnavailable
from shared.domain.record import State, Task
from shared.domain.tasks import own_task
from shared.stores.sqlite.store import SqliteStore
from tests.support import event_loop, parts
from tests.support.asgi_client import AsgiClient
from tests.support.parts import ROOT, WORD, WebhookParts, key_of, post, signed, text

PATH = "/webhooks/whatsapp"
CAP = 4096
WITHIN = 5.0
"""Seconds in which an unavailable store or queue is answered."""


def of_framework() -> Any:
    return functions_framework.aio.create_asgi_app("webhook", str(ROOT / "services" / "webhook" / "main.py"))


@pytest.fixture(scope="module")
def shared_webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookParts]:
    with parts.logged():
        webhook = parts.webhook_parts(
            tmp_path_factory.mktemp("webhook"),
            queue=parts.NoQueue(),
            WEBHOOK_MAX_BYTES=str(CAP),
            META_APP_SECRET=f"{parts.SECRET},an-older-secret",
            META_VERIFY_TOKEN=f"{WORD},an-older-word",
        )
    yield webhook
    webhook.close()


@pytest.fixture(scope="module")
def app(shared_webhook: WebhookParts) -> AsgiClient:
    return AsgiClient(make_app(shared_webhook.parts))


@pytest.fixture
def webhook(shared_webhook: WebhookParts) -> Iterator[WebhookParts]:
    with parts.logged():
        yield shared_webhook
    for port in (shared_webhook.store, shared_webhook.queue):
        port.calls.clear()
        port.before = port.after = lambda *_: None


@pytest.fixture
def client(app: AsgiClient, webhook: WebhookParts) -> AsgiClient:
    """Of the webhook service of this test, on clean ports."""
    return app


def deliver(client: AsgiClient, body: bytes, **headers: str) -> Any:
    return client.post(PATH, data=body, headers={"X-Hub-Signature-256": signed(body), **headers})


# ---- the handshake


def shake(client: AsgiClient, **changes: str) -> Any:
    query = {"hub.mode": "subscribe", "hub.verify_token": WORD, "hub.challenge": "1158201444"}
    query |= {f"hub.{name}": value for name, value in changes.items()}
    return client.get(PATH, query_string={name: value for name, value in query.items() if value != "absent"})


def test_valid_verify_token_echoes_challenge(client: AsgiClient) -> None:
    answer = shake(client)
    assert (answer.status_code, answer.data) == (200, b"1158201444")
    assert answer.content_type == "text/plain; charset=utf-8"


def test_older_verify_token_of_the_list_is_accepted(client: AsgiClient) -> None:
    assert shake(client, verify_token="an-older-word").status_code == 200


@pytest.mark.parametrize("challenge", ["0", "a b+c&d", "é\n🙂", "<script>", ""])
def test_any_challenge_is_echoed_unchanged(client: AsgiClient, challenge: str) -> None:
    answer = shake(client, challenge=challenge)
    assert (answer.status_code, answer.data.decode(), answer.mimetype) == (200, challenge, "text/plain")


@pytest.mark.parametrize(
    "changes",
    [
        {"verify_token": "wrong"},
        {"verify_token": ""},
        {"verify_token": "absent"},
        {"verify_token": f"{WORD},an-older-word"},
        {"verify_token": WORD.upper()},
        {"verify_token": "wört"},
        {"mode": "unsubscribe"},
        {"mode": "absent"},
    ],
    ids=str,
)
def test_any_other_verify_token_or_mode_is_forbidden(client: AsgiClient, changes: dict[str, str]) -> None:
    answer = shake(client, **changes)
    assert (answer.status_code, answer.json) == (403, {"error": "forbidden"})


@pytest.mark.parametrize("query", ["", "hub.verify_token=\xff\xfe", "%", "hub.verify_token=%ff%00", "a;b&&=&hub.mode"])
def test_invalid_handshake_query_is_forbidden(client: AsgiClient, query: str) -> None:
    assert client.get(PATH, query_string=query).status_code == 403


# ---- a webhook


def test_a_durable_webhook_is_answered_200(client: AsgiClient, webhook: WebhookParts) -> None:
    answer = deliver(client, post(text("wamid.durable")))
    assert (answer.status_code, answer.data, answer.content_type) == (200, b'{"status":"ok"}\n', "application/json")
    record = webhook.store.port.get(key_of("wamid.durable"))
    assert record.state is State.PENDING
    assert [tasks for tasks, _ in webhook.queue.asked("ensure_all")] == [[own_task(record, None)]]


@pytest.mark.parametrize("secret", [parts.SECRET, "an-older-secret"])
def test_every_secret_of_the_list_signs(client: AsgiClient, secret: str) -> None:
    body = post(text(f"wamid.{secret}"))
    assert deliver(client, body, **{"X-Hub-Signature-256": signed(body, secret)}).status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded", "odd", ""])
def test_the_content_type_is_ignored(client: AsgiClient, webhook: WebhookParts, kind: str) -> None:
    body = post(text(f"wamid.type.{kind}"))
    assert deliver(client, body, **{"Content-Type": kind}).status_code == 200
    assert webhook.store.port.get(key_of(f"wamid.type.{kind}"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"object":"page","entry":[]}',
        b'{"object":"whatsapp_business_account"}',
        b'{"object":"whatsapp_business_account","entry":[]}',
        b'{"object":"whatsapp_business_account","entry":5}',
    ],
)
def test_signed_body_without_events_is_accepted_counted_and_never_quoted(
    client: AsgiClient, webhook: WebhookParts, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert deliver(client, body).status_code == 200
    assert webhook.store.calls == []
    said = capfd.readouterr().out
    assert "webhook_ignored" in parts.events(said)
    assert len(body) < 10 or body.decode("latin-1") not in said


SIGNATURES: dict[str, Callable[[bytes], str | None]] = {
    "none": lambda _: None,
    "empty": lambda _: "",
    "of another secret": lambda body: signed(body, "another"),
    "of another body": lambda body: signed(body + b" "),
    "without its prefix": lambda body: signed(body).removeprefix("sha256="),
    "of another algorithm": lambda body: signed(body).replace("sha256", "sha1"),
    "in upper case": lambda body: "sha256=" + signed(body)[7:].upper(),
    "cut": lambda body: signed(body)[:-1],
    "too long": lambda body: signed(body) + "0",
    "twice": lambda body: f"{signed(body)}, {signed(body)}",
    "not even ascii": lambda _: "sha256=" + "é" * 64,
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_an_unsigned_or_wrongly_signed_webhook_is_forbidden_and_not_read(
    client: AsgiClient, webhook: WebhookParts, name: str
) -> None:
    body = post(text("wamid.unsigned"))
    signature = SIGNATURES[name](body)
    headers = {} if signature is None else {"X-Hub-Signature-256": signature}
    answer = client.post(PATH, data=body, headers=headers)
    assert (answer.status_code, answer.json) == (403, {"error": "forbidden"})
    assert webhook.store.calls == []


def test_signature_that_comes_in_two_headers_is_forbidden(client: AsgiClient) -> None:
    body = post(text("wamid.twice"))
    twice = {"X-Hub-Signature-256": signed(body), "x-hub-signature-256": signed(body)}
    assert client.post(PATH, data=body, headers=twice).status_code == 403
    other = {"X-Hub-Signature-256": signed(body), "X-Other": "1", "x-other": "2"}
    assert client.post(PATH, data=body, headers=other).status_code == 200


def padded(size: int, message_id: str) -> bytes:
    body = post(text(message_id))
    return body + b" " * (size - len(body))


def test_body_at_the_cap_is_accepted_and_one_byte_more_is_refused(client: AsgiClient, webhook: WebhookParts) -> None:
    assert deliver(client, padded(CAP, "wamid.cap")).status_code == 200
    assert webhook.store.port.get(key_of("wamid.cap"))
    answer = deliver(client, padded(CAP + 1, "wamid.over"))
    assert (answer.status_code, answer.json) == (413, {"error": "too_large"})
    assert webhook.store.port.get(key_of("wamid.over")) is None


def test_no_more_of_an_endless_body_is_read_than_cloud_run_takes(webhook: WebhookParts) -> None:
    megabyte, sent = 1024 * 1024, []
    read = 0

    async def receive() -> Any:
        nonlocal read
        read += megabyte
        assert read <= 64 * megabyte
        return {"type": "http.request", "body": bytes(megabyte), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "headers": []}
    event_loop.run(make_app(webhook.parts)(scope, receive, send))
    assert (sent[0]["status"], read) == (413, 32 * megabyte)


@pytest.mark.parametrize(
    ("port", "error", "code"),
    [
        ("store", StoreUnavailable(), "store_unavailable"),
        ("queue", QueueUnavailable(), "queue_unavailable"),
        ("store", RegistryUnavailable(), "registry_unavailable"),
        ("store", ValueError("c4n4ry"), "unexpected"),
        ("store", KeyError("c4n4ry"), "unexpected"),
    ],
    ids=str,
)
def test_failed_store_or_queue_is_answered_500(
    client: AsgiClient, webhook: WebhookParts, port: str, error: Exception, code: str
) -> None:
    getattr(webhook, port).before = lambda *_: error
    answer = deliver(client, post(text(f"wamid.{port}.{code}")))
    assert (answer.status_code, answer.json) == (500, {"error": code})


def test_locked_store_is_answered_in_time(tmp_path: Path) -> None:
    with parts.logged():
        webhook = parts.webhook_parts(tmp_path, queue=parts.NoQueue())
        client = AsgiClient(make_app(webhook.parts))
        webhook.store.port.ping()
        holder = sqlite3.connect(tmp_path / "pombo.sqlite", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        answer = deliver(client, post(*(text(f"wamid.{number}") for number in range(40))))
        assert time.monotonic() - began < WITHIN
        holder.close()
        assert (answer.status_code, answer.json) == (500, {"error": "store_unavailable"})
        assert deliver(client, post(text("wamid.1"))).status_code == 200
    webhook.close()


def test_missing_queue_is_answered_in_time(tmp_path: Path) -> None:
    with parts.logged():
        webhook = parts.webhook_parts(tmp_path)
        began = time.monotonic()
        answer = deliver(AsgiClient(make_app(webhook.parts)), post(*(text(f"wamid.{n}") for n in range(40))))
        assert time.monotonic() - began < WITHIN
        assert (answer.status_code, answer.json) == (500, {"error": "queue_unavailable"})
        assert webhook.store.port.get(key_of("wamid.0")).state is State.PENDING
    webhook.close()


# ---- by functions-framework


def test_functions_framework_serves_the_function_alike(webhook: WebhookParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "parts", lambda: webhook.parts)
    client = AsgiClient(of_framework())
    assert deliver(client, post(text("wamid.framework"))).data == b'{"status":"ok"}\n'
    assert shake(client).data == b"1158201444"
    assert client.post(PATH, data=b"{}").status_code == 403
    assert client.get("/livez").json == {"status": "ok"}


# ---- the other routes


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"])
def test_other_methods_are_not_allowed(client: AsgiClient, method: str) -> None:
    answer = client.open(PATH, method=method)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
    assert client.open("/livez", method=method).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/webhooks", "/webhooks/", f"{PATH}/", f"{PATH}/x", "/webhooks/WhatsApp", "/internal/sweep", "/v1"),
        *("/webhooks/meta", "/webhooks/twilio", "/webhooks/twilio/status", "/%ff", "/a%00b", "/a/../b"),
    ],
)
def test_any_other_path_is_not_found(client: AsgiClient, path: str) -> None:
    for method in ("GET", "POST"):
        assert client.open(path, method=method).status_code == 404


def test_livez_answers_ok_without_store_or_queue(client: AsgiClient, webhook: WebhookParts) -> None:
    answer = client.get("/livez")
    assert (answer.status_code, answer.json) == (200, {"status": "ok"})
    assert webhook.store.calls == webhook.queue.calls == []


READINESS = [
    ((), "ok", {"store": "connected", "queue": "connected"}, 200),
    (("store",), "degraded", {"store": "unavailable", "queue": "connected"}, 503),
    (("queue",), "degraded", {"store": "connected", "queue": "unavailable"}, 503),
    (("store", "queue"), "degraded", {"store": "unavailable", "queue": "unavailable"}, 503),
]


@pytest.mark.parametrize(("gone", "status", "services", "code"), READINESS)
def test_service_is_ready_while_store_and_queue_answer(
    client: AsgiClient, webhook: WebhookParts, gone: tuple[str, ...], status: str, services: dict[str, str], code: int
) -> None:
    for port in gone:
        getattr(webhook, port).before = lambda *_: StoreUnavailable()
    for path, expected in (("/readyz", code), ("/health", 200)):
        answer = client.get(path)
        assert answer.status_code == expected
        body = answer.json
        assert datetime.fromisoformat(body.pop("timestamp")).utcoffset().total_seconds() == 0
        assert body == {"status": status, "services": services}


def test_concurrent_health_requests_share_one_ping(client: AsgiClient, webhook: WebhookParts) -> None:
    """Anyone may send them, and they must not queue before the webhooks. The next one pings again."""

    async def ping() -> None:
        pings.append(0)
        await asyncio.sleep(0.1)

    async def ask_all() -> list[Any]:
        return await asyncio.gather(*(client.ask(path) for path in ("/readyz", "/startz", "/health") * 100))

    pings: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhook.store, "port", SimpleNamespace(ping=ping))
        assert {answer.status_code for answer in event_loop.run(ask_all())} == {200}
        assert len(pings) == 1
        assert client.get("/readyz").status_code == 200
        assert len(pings) == 2


def test_cancelled_health_request_leaves_the_ping_to_the_others(client: AsgiClient, webhook: WebhookParts) -> None:
    async def ask_twice() -> int:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def ping() -> None:
            begun.set()
            await may_end.wait()

        patch.setattr(webhook.store, "port", SimpleNamespace(ping=ping))
        first, second = (asyncio.create_task(client.ask("/startz")) for _ in range(2))
        await begun.wait()
        first.cancel()
        await asyncio.wait([first])
        may_end.set()
        return (await second).status_code

    with pytest.MonkeyPatch.context() as patch:
        assert event_loop.run(ask_twice()) == 200


def test_two_services_in_one_process_share_no_ping(webhook: WebhookParts) -> None:
    async def ask_both() -> list[Any]:
        clients = [AsgiClient(make_app(webhook.parts)) for _ in range(2)]
        return await asyncio.gather(*(client.ask("/readyz") for client in clients * 3))

    assert {answer.status_code for answer in event_loop.run(ask_both())} == {200}
    assert len(webhook.store.asked("ping")) == len(webhook.queue.asked("ping")) == 2


@pytest.mark.parametrize(
    ("gone", "store", "code"),
    [((), "connected", 200), (("queue",), "connected", 200), (("store",), "unavailable", 503)],
)
def test_service_starts_once_the_store_answers_with_any_queue_state(
    client: AsgiClient, webhook: WebhookParts, gone: tuple[str, ...], store: str, code: int
) -> None:
    for port in gone:
        getattr(webhook, port).before = lambda *_: StoreUnavailable()
    answer = client.get("/startz")
    body = answer.json
    assert (answer.status_code, body["services"]) == (code, {"store": store})
    assert body["status"] == ("ok" if code == 200 else "degraded")
    assert datetime.fromisoformat(body["timestamp"]).utcoffset().total_seconds() == 0
    assert client.post("/startz").status_code == 405


# ---- what is logged


TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_every_line_names_the_trace_of_its_request(client: AsgiClient, capfd: pytest.CaptureFixture[str]) -> None:
    deliver(client, post(text("wamid.traced")), traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    found = parts.lines(capfd.readouterr().out)
    assert [line["event"] for line in found] == ["inbound_new", "inbound_enqueued", "webhook_received"]
    assert {line["logging.googleapis.com/trace"] for line in found} == {f"projects/pombo-local/traces/{TRACE}"}


def test_outage_is_logged_by_its_code_and_the_class_of_its_cause(
    client: AsgiClient, webhook: WebhookParts, capfd: pytest.CaptureFixture[str]
) -> None:
    away = StoreUnavailable("c4n4ry")
    away.__cause__ = TimeoutError("c4n4ry")
    webhook.store.before = lambda *_: away
    deliver(client, post(text("wamid.away")))
    (line,) = parts.lines(capfd.readouterr().out)
    assert (line["event"], line["severity"]) == ("unexpected_error", "WARNING")
    assert (line["reason"], line["cause"], line["provider"]) == ("store_unavailable", "TimeoutError", "meta")
    assert "c4n4ry" not in json.dumps(line)


@pytest.mark.parametrize(
    ("reason", "request_"),
    [
        ("signature", {"method": "POST", "data": b"{}"}),
        ("too_large", {"method": "POST", "data": b" " * (CAP + 1)}),
        ("verify_token", {"method": "GET"}),
    ],
)
def test_a_refusal_is_logged_by_its_reason_alone(
    client: AsgiClient, capfd: pytest.CaptureFixture[str], reason: str, request_: dict[str, Any]
) -> None:
    client.open(PATH, **request_)
    (line,) = parts.lines(capfd.readouterr().out)
    assert set(line) == {"time", "severity", "message", "event", "provider", "reason"}
    assert (line["event"], line["severity"], line["reason"]) == ("webhook_refused", "WARNING", reason)
    assert line["provider"] == "meta"


# ---- the real server


@dataclass
class Served:
    """`python -m services.webhook` on a port of its own, with a real store and a real queue."""

    program: parts.Program
    port: int
    store: SqliteStore
    emulator: parts.Emulator

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=20)

    def raw(self, *pieces: bytes) -> bytes:
        """The whole answer to these bytes, sent one piece after the other."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            for piece in pieces:
                connection.sendall(piece)
            answer = b""
            while more := connection.recv(65536):
                answer += more
            return answer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("served")
    emulator = parts.Emulator(directory)
    port = parts.free_port()
    environ = parts.environment(
        directory, CLOUD_TASKS_EMULATOR_HOST=emulator.address, PORT=str(port), WEBHOOK_MAX_BYTES=str(CAP)
    )
    program = parts.run(directory, "services.webhook", environ)
    store = build_store(config.load(environ, config.WEBHOOK))
    yield Served(program, port, store, emulator)
    program.end()
    emulator.close()
    store.close()


def send(connection: HTTPConnection, body: bytes, *, chunked: bool = False) -> HTTPResponse:
    headers = {"X-Hub-Signature-256": signed(body)}
    pieces = (body[start : start + 700] for start in range(0, len(body), 700))
    connection.request("POST", PATH, pieces if chunked else body, headers, encode_chunked=chunked)
    return connection.getresponse()


def test_server_serves_the_handshake(served: Served) -> None:
    connection = served.connect()
    connection.request("GET", f"{PATH}?hub.mode=subscribe&hub.verify_token={WORD}&hub.challenge=7")
    answer = connection.getresponse()
    assert (answer.status, answer.read(), answer.headers.get_content_type()) == (200, b"7", "text/plain")
    connection.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_server_takes_a_webhook_to_the_store_and_to_the_queue(served: Served, chunked: bool) -> None:
    message_id = f"wamid.served.{chunked}"
    connection = served.connect()
    answer = send(connection, padded(3000, message_id), chunked=chunked)
    assert (answer.status, answer.read()) == (200, b'{"status":"ok"}\n')
    connection.close()
    record = served.store.get(key_of(message_id))
    assert record.state is State.PENDING
    assert Task.of(record).name in served.emulator.names("inbound")


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_server_drains_a_body_over_the_cap_so_that_the_client_gets_413(served: Served, chunked: bool) -> None:
    """And the next request of the connection is read from its own beginning."""
    connection = served.connect()
    assert send(connection, padded(CAP, f"wamid.cap.{chunked}"), chunked=chunked).read() == b'{"status":"ok"}\n'
    answer = send(connection, b" " * (4 * 1024 * 1024), chunked=chunked)
    assert (answer.status, json.loads(answer.read())) == (413, {"error": "too_large"})
    assert send(connection, padded(CAP + 1, "wamid.over"), chunked=chunked).status == 413
    connection.close()
    assert served.store.get(key_of("wamid.over")) is None


def request(*headers: bytes, line: bytes = b"POST /webhooks/whatsapp HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"Host: x", b"Connection: close", *headers, b"", b""])


def test_server_waits_for_a_body_that_comes_in_pieces(served: Served) -> None:
    body = post(text("wamid.pieces"))
    head = request(b"X-Hub-Signature-256: " + signed(body).encode(), b"Content-Length: " + str(len(body)).encode())
    answer = served.raw(head, *(body[start : start + 50] for start in range(0, len(body), 50)))
    assert answer.startswith(b"HTTP/1.1 200 ")


BROKEN = {
    "a chunk without a size": request(b"Transfer-Encoding: chunked") + b"what\r\nis this\r\n",
    "a chunk without an end": request(b"Transfer-Encoding: chunked") + b"2\r\nabcdef\r\n0\r\n\r\n",
    "a negative chunk": request(b"Transfer-Encoding: chunked") + b"-1\r\n\r\n",
    "two lengths": request(b"Content-Length: 1", b"Content-Length: 2") + b"ab",
    "a length that is none": request(b"Content-Length: many") + b"ab",
    "no length": request(),
    "raw bytes in the query": request(line=b"GET /webhooks/whatsapp?hub.verify_token=\xff\xfe HTTP/1.1"),
    "raw bytes in the path": request(line=b"GET /\xff\xfe HTTP/1.1"),
    "raw bytes in the signature": request(b"X-Hub-Signature-256: sha256=\xff\xfe", b"Content-Length: 0"),
    "no HTTP": b"hello\r\n\r\n",
    "a long line": request(line=b"GET /" + b"x" * 9000 + b" HTTP/1.1"),
    "too many headers": request(*(b"X-H%d: 1" % number for number in range(200))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_server_answers_a_broken_request_as_the_clients_fault(served: Served, name: str) -> None:
    status = int(served.raw(BROKEN[name]).split(b" ")[1])
    assert 400 <= status < 500


def test_incomplete_webhook_is_not_stored(served: Served) -> None:
    body = post(text("wamid.broken.off"))
    head = request(b"X-Hub-Signature-256: " + signed(body).encode(), b"Content-Length: " + str(len(body)).encode())
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(head + body[:-1])
    connection = served.connect()
    assert send(connection, post(text("wamid.after"))).status == 200
    connection.close()
    assert served.store.get(key_of("wamid.broken.off")) is None


def test_stalled_clients_delay_others_no_longer_than_the_request_timeout(served: Served) -> None:
    """Half of them in the head and half in the body."""
    head = b"POST /webhooks/whatsapp HTTP/1.1\r\nHost: here\r\n"
    stalled = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(16)]
    for number, connection in enumerate(stalled):
        connection.sendall(head if number % 2 else head + b"Content-Length: 5000\r\n\r\n{")
    try:
        behind = served.connect()
        assert send(behind, padded(600, "wamid.behind")).status == 200
        behind.close()
        answers = [connection.recv(65536) for connection in stalled]
    finally:
        for connection in stalled:
            connection.close()
    assert {answer[:12] for answer in answers} == {b"", b"HTTP/1.1 400"}


def test_server_ends_on_sigterm_having_printed_only_log_lines(served: Served) -> None:
    """The last of these tests: there is no server after it."""
    assert served.program.end() == 0
    assert served.program.err.read_text() == ""
    assert set(parts.events(served.program.out.read_text())) <= {
        "started", "webhook_received", "webhook_refused", "webhook_ignored", "inbound_new", "inbound_enqueued",
        "stopping",
    }  # fmt: skip
