"""The canary: a customer and secrets that are easily recognised go through every path there is, and nothing that
anybody but the customer and the handler can see may hold them: no log line, no task, no error answer. A second business
has secrets of its own, which go the same ways.
"""

import base64
import json
import os
import re
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.doctor.command import as_text, examine
from cli.running import Described
from local.services import SERVICES
from services.internal.main import create_app
from services.webhook.__main__ import make_app
from shared import config
from shared.bootstrap.backends import build_store
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.lifecycle import end
from shared.domain.identity import Echo, credential_fingerprint
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.tasks import task_body
from shared.domain.tenants import Scope, Sender, Tenant, TenantHandler
from shared.operations import registry, senders
from shared.operations.keys import add_key
from shared.pipeline.channels import Channels
from shared.pipeline.clock import SystemClock
from shared.pipeline.registry import EntryWrite
from shared.secrets.file_secrets import FILE, FileSecrets
from shared.tenants.entries import sender_name
from tests.support import parts
from tests.support.asgi_client import AsgiClient
from tests.support.parts import LIMITS, NOW, SENDER, STRANGER, a_reply, an_event, changes, key_of, receipt, signed
from tests.support.stack import server_of

PHONE, USER_ID = "15557770123", "US.77712345678901234567"
CANARIES: Mapping[str, str] = {
    "phone": "5557770123",
    "user id": USER_ID,
    "name": "Vogelsang",
    "text": "c4n4ry",
    "wamid": "C4N4RY",
    "app secret": "app-secret-k4n4r1",
    "verify token": "verify-token-k4n4r1",
    "access token": "access-token-k4n4r1",
    "internal token": "internal-token-k4n4r1",
    "id key": "id-key-k4n4r1",
    "tenant's token": "tenants-token-k4n4r1",
    "tenant's handler secret": "whsec_" + base64.b64encode(b"handler-secret-k4n4r1-24-bytes").decode(),
    "tenant's number": "15557770999",
    "tenant's account": "300000000077099",
    "API key": "pombo_k4n4r1k4n4r1k4n4_api-key-k4n4r1",
}
NAME, TEXT, WAMID = "Canaria Vogelsang", "a c4n4ry text", "wamid.C4N4RY"
SECRETS = {
    "META_APP_SECRET": CANARIES["app secret"],
    "META_VERIFY_TOKEN": CANARIES["verify token"],
    "WHATSAPP_ACCESS_TOKEN": CANARIES["access token"],
    "INTERNAL_TASK_TOKEN": CANARIES["internal token"],
    "ID_KEY": CANARIES["id key"],
}
EVERYTHING = f"{PHONE} {USER_ID} {NAME} {TEXT} {WAMID} {' '.join(CANARIES.values())}"

TEAM = f"""
import asyncio, logging, threading, warnings
from shared.handlers import Drop, handles

EVERYTHING = {EVERYTHING!r}

@handles("text")
def handle(message):
    if "asks to raise" in message.text:
        raise LookupError(message.contact.phone, message.contact.name, EVERYTHING) from KeyError(EVERYTHING)
    if "asks to drop" in message.text:
        raise Drop(f"{{message.contact}} {{message.id}} {{EVERYTHING}}")
    if "asks to answer badly" in message.text:
        return {{message.text: EVERYTHING}}
    if "asks to answer in a coroutine" in message.text:
        return failing(EVERYTHING)
    if "asks to take long" in message.text:
        threading.Event().wait(1)
    if "asks to log" in message.text:
        logging.getLogger("team").error("%s", EVERYTHING)
        logging.getLogger("team").warning("%s", EVERYTHING)
        thread = threading.Thread(target=explode, args=(EVERYTHING,))
        thread.start()
        thread.join()
    if "asks to exit" in message.text:
        raise SystemExit(EVERYTHING)
    return f"{{message.text}} for {{message.contact.name}}, {{message.contact.phone}}"

async def failing(said):
    raise RuntimeError(said)

def explode(said):
    raise RuntimeError(said)
"""


def leaks(seen: str | bytes, *, but: tuple[str, ...] = ()) -> list[str]:
    """Which of the canaries can be seen here."""
    text = seen.decode("utf-8", "replace") if isinstance(seen, bytes) else seen
    return [name for name, canary in CANARIES.items() if canary in text and name not in but]


# ---- what comes in


def item(number: int, text: str = TEXT, **changes: Any) -> dict[str, Any]:
    fields = {"from": PHONE, "from_user_id": USER_ID, "id": f"{WAMID}.{number}", "timestamp": "1772366400"}
    return {**fields, "type": "text", "text": {"body": f"{text} {TEXT}"}} | changes


def webhook(*items: Any, statuses: tuple[Any, ...] = (), to: str = SENDER) -> bytes:
    contact = {"wa_id": PHONE, "user_id": USER_ID, "profile": {"name": NAME}}
    value: dict[str, Any] = {"metadata": {"phone_number_id": to}, "contacts": [contact]}
    value |= {"messages": list(items)} if items else {}
    value |= {"statuses": list(statuses)} if statuses else {}
    return changes(("messages", value))


def failed_receipt(number: int, echo: str | None = None) -> dict[str, Any]:
    errors = [{"code": 131026, "title": EVERYTHING, "message": EVERYTHING, "error_data": {"details": EVERYTHING}}]
    named = {} if echo is None else {"biz_opaque_callback_data": echo}
    return receipt(f"{WAMID}.out.{number}", "failed", errors=errors, recipient_id=PHONE, **named)


ODD_WEBHOOKS: Mapping[str, bytes] = {
    "a stranger's": webhook(item(1), to=STRANGER),
    "a stranger's, large": webhook(item(2, TEXT * 2000), to=STRANGER),
    "without a sender": webhook({"id": f"{WAMID}.3", "type": "text", "text": {"body": EVERYTHING}}),
    "without a type": webhook({"id": f"{WAMID}.4", "from": PHONE, "text": {"body": EVERYTHING}}),
    "of wrong types": webhook({"id": [WAMID], "from": {"phone": PHONE}, "type": EVERYTHING}),
    "no item": webhook(EVERYTHING),
    "of an unknown kind": webhook(item(5, type=EVERYTHING)),
    "an account change": changes(("account_update", {"event": EVERYTHING, "phone_number": PHONE})),
    "an unknown field": changes((EVERYTHING, {"phone": PHONE}), ("odd", EVERYTHING)),
    "errors": changes(("messages", {"metadata": {"phone_number_id": SENDER}, "errors": [{"message": EVERYTHING}]})),
    "an unknown object": json.dumps({"object": EVERYTHING, "entry": [EVERYTHING]}).encode(),
    "no JSON": EVERYTHING.encode(),
    "a receipt of nobody's": webhook(statuses=(failed_receipt(1),)),
    "a receipt with another's echo": webhook(statuses=(failed_receipt(2, EVERYTHING),)),
    "a receipt that names nothing": webhook(statuses=(failed_receipt(3, str(Echo("0" * 40, 0, "corr_0001"))),)),
    "a receipt of an unknown kind": webhook(statuses=({**failed_receipt(4), "status": EVERYTHING},)),
    "a receipt that makes no sense": webhook(statuses=({"id": 5, "status": EVERYTHING}, EVERYTHING)),
}

ASKED = (
    "asks to raise",
    "asks to drop",
    "asks to answer badly",
    "asks to answer in a coroutine",
    "asks to take long",
    "asks to log",
    "asks to exit",
)

QUOTING = {"message": f"(#1) {EVERYTHING}", "error_data": {"details": EVERYTHING}, "fbtrace_id": EVERYTHING}
ANSWERS: Mapping[str, tuple[int, Any]] = {
    "gets refused": (400, {"error": {**QUOTING, "code": 131026}}),
    "gets limited": (429, {"error": {**QUOTING, "code": 130429}}),
    "gets told to wait": (400, {"error": {**QUOTING, "code": 999999, "is_transient": True}}),
    "gets an outage": (503, {"error": {**QUOTING, "code": 2}}),
    "gets lost": (500, f"<html>{EVERYTHING}</html>".encode()),
    "gets no answer": (0, b""),
    "gets an unreadable yes": (200, f"<html>{EVERYTHING}</html>".encode()),
}
LAST_ANSWERS: Mapping[str, tuple[int, Any]] = {
    "gets blocked": (403, {"error": {**QUOTING, "code": 131031}}),
    "gets a refused credential": (401, {"error": {**QUOTING, "code": 190}}),
}
"""After each of these nothing is sent for a while."""
TENANTS_ANSWER = {"gets its token refused": (401, {"error": {**QUOTING, "code": 190}})}

BAKERY, FLORIST, BUTCHER, DAMAGED = "100000000000071", "100000000000072", "100000000000073", "100000000000074"
"""Numbers: of a tenant with its own backend, of one whose backend has no usable secret, of one whose token cannot be
read, and one whose entry cannot be read.
"""
TENANT_OF = {SENDER: "default", BAKERY: "bakery", FLORIST: "florist", BUTCHER: "butcher"}
BACKEND_ANSWERS: Mapping[str, tuple[int, Any]] = {
    "finds a fault": (500, EVERYTHING.encode()),
    "finds a gateway": (502, EVERYTHING.encode()),
    "finds nobody": (0, b""),
    "finds no JSON": (200, EVERYTHING.encode()),
    "finds bad replies": (200, {"replies": [{EVERYTHING: EVERYTHING}, {"type": EVERYTHING, "content": EVERYTHING}]}),
    "finds a reason": (410, {"reason": EVERYTHING}),
    "finds it down": (503, EVERYTHING.encode()),
}
"""Of the tenant's backend, each once, by what the message says. The last one makes it count as down."""

EXPECTED_EVENTS = {
    "started", "webhook_received", "webhook_refused", "webhook_ignored", "inbound_new", "inbound_duplicate",
    "inbound_enqueued", "inbound_processing_started", "inbound_processing_finished", "inbound_rescheduled",
    "inbound_waiting", "backend_down", "backend_up", "state_unknown",
    "outbound_enqueued", "outbound_waiting", "outbound_sent", "outbound_rescheduled", "outbound_in_doubt",
    "outbound_failed", "receipt_applied", "receipt_failed", "receipt_unknown", "dead_lettered", "provider_down",
    "provider_up", "swept", "task_refused", "task_gone", "api_answered",
    "tenant_needs_reauth", "sender_blocked", "sender_checked", "unexpected_error",
}  # fmt: skip


# ---- the world


@dataclass
class World:
    """The four programs, and all that they have answered."""

    directory: Path
    emulator: parts.Emulator
    programs: Mapping[str, parts.Program]
    urls: Mapping[str, str]
    server: int | None
    """The store's, where it has one."""
    environ: Mapping[str, str]
    store: Any
    graph: "Graph"
    backend: "OwnBackend"
    client: httpx.Client
    answers: list[tuple[str, int, str]] = field(default_factory=list)

    def ask(self, method: str, service: str, path: str, **fields: Any) -> int:
        """A request whose answer is kept."""
        answer = self.client.request(method, self.urls[service] + path, **fields)
        self.answers.append((path, answer.status_code, f"{answer.headers} {answer.text}"))
        return answer.status_code

    def deliver(self, body: bytes, **headers: str) -> int:
        given = {"X-Hub-Signature-256": signed(body, CANARIES["app secret"]), **headers}
        return self.ask("POST", "webhook", "/webhooks/whatsapp", content=body, headers=given)

    def task(self, route: str, body: bytes, **headers: str) -> int:
        given = {"X-Internal-Token": CANARIES["internal token"], **headers}
        return self.ask("POST", "internal", f"/internal/{route}", content=body, headers=given)

    def record(self, number: int, to: str = SENDER) -> Delivery:
        record = self.store.get(key_of(f"{WAMID}.{number}", to))
        assert record is not None
        return record

    def until(self, number: int, condition: Callable[[list[Delivery]], bool], to: str = SENDER) -> None:
        """Wait until it is so of this event and its replies."""
        correlation_id = self.record(number, to).correlation_id
        parts.until(lambda: condition(list(self.store.by_correlation(correlation_id))))

    def end(self, number: int) -> None:
        """End the reply to this event: the next one to the same customer waits for it otherwise."""
        _, reply = self.store.by_correlation(self.record(number).correlation_id)

        def ended(found: Delivery | None) -> Step:
            assert found is not None
            if found.final:
                return Step(Answer(TaskResult.ACK, found.state))
            return Step(Answer(TaskResult.ACK, found.state), write=end(found, State.DROPPED, LIMITS, NOW))

        self.store.change(reply.key, ended)


class Graph(parts.Provider):
    """Graph, which answers some texts itself and hands the others on to the simulator."""

    def __init__(self, simulator: str) -> None:
        super().__init__()
        self._simulator = simulator
        self.answered: set[str] = set()

    def __call__(self, body: bytes) -> tuple[int, bytes]:
        request = json.loads(body)
        if "text" not in request:  # a probe
            return 400, json.dumps({"error": {**QUOTING, "code": 131009}}).encode()
        said = request["text"]["body"]
        for asked, (status, document) in {**ANSWERS, **LAST_ANSWERS, **TENANTS_ANSWER}.items():
            if asked in said and asked not in self.answered:
                self.answered.add(asked)
                return status, document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {CANARIES['access token']}"}
        answer = httpx.post(f"{self._simulator}/v25.0/{SENDER}/messages", content=body, headers=headers)
        return answer.status_code, answer.content


class OwnBackend(parts.Provider):
    """The tenant's own backend, which repeats what the customer writes, unless it is in trouble."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: set[str] = set()

    def __call__(self, body: bytes) -> tuple[int, bytes]:
        said = json.loads(body)["message"]["text"]
        for asked, (status, document) in BACKEND_ANSWERS.items():
            if asked in said and asked not in self.answered:
                self.answered.add(asked)
                return status, document if isinstance(document, bytes) else json.dumps(document).encode()
        return 200, json.dumps({"replies": [f"{said} for {NAME}"]}).encode()


IN_CI = [pytest.param(store, marks=[pytest.mark.slow] if store == "redis" else []) for store in config.STORES]


@pytest.fixture(scope="module", params=IN_CI)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as ending:
        directory = tmp_path_factory.mktemp("canary")
        settings = dict(ending.enter_context(server_of(request.param, directory)))
        server = int(settings.pop("PID", 0)) or None
        yield from a_world(directory, server, {"STORE": request.param, **settings})


def a_world(directory: Path, server: int | None, settings: Mapping[str, str]) -> Iterator[World]:
    """The programs on one store, until it is over."""
    (directory / "team.py").write_text(TEAM)
    emulator = parts.Emulator(directory)
    ports = {name: parts.free_port() for name in SERVICES}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    arguments = ["--port", "0", "--data-dir", str(directory), "--webhook-url", f"{urls['webhook']}/webhooks/whatsapp"]
    simulator = parts.run(directory, "local.whatsapp", SECRETS, *arguments)
    graph = Graph(parts.lines(simulator.out.read_text())[0]["address"])
    backend = OwnBackend()
    with (
        parts.a_provider(graph),
        parts.a_provider(backend),
        httpx.Client(timeout=20, headers={"Connection": "close"}) as client,
    ):
        environ = parts.environment(
            directory,
            **SECRETS,
            **settings,
            CLOUD_TASKS_EMULATOR_HOST=emulator.address,
            INTERNAL_TASK_BASE_URL=urls["internal"],
            WHATSAPP_API_BASE_URL=graph.url,
            HANDLER="team:handle",
            HANDLER_TIMEOUT="1",
            HANDLER_TRACEBACK="false",  # as in staging and prod, where standard error is a log
            MAX_ATTEMPTS="2",
            TIME_SCALE="20",
            PYTHONPATH=str(directory),
            LOG_LEVEL="DEBUG",
        )
        programs = {
            name: parts.run(directory, f"services.{name}", {**environ, "PORT": str(port)})
            for name, port in ports.items()
        }
        programs |= {"simulator": simulator, "emulator": emulator.program}
        store = build_store(config.load(environ, config.INTERNAL))
        yield World(directory, emulator, programs, urls, server, environ, store, graph, backend, client)
        for program in programs.values():
            program.process.kill()
            program.process.wait()
        emulator.close()
        store.close()


def test_no_customer_data_or_secret_appears_anywhere(world: World) -> None:
    tell_the_webhook_odd_things(world)
    look_at_the_tasks_of_a_message_that_goes_through(world)
    ask_the_handler_for_trouble(world)
    let_the_provider_quote_what_it_was_sent(world)
    serve_a_second_business(world)
    tell_the_internal_service_odd_things(world)
    tell_the_api_odd_things(world)
    take_the_store_away(world)
    take_the_queue_away(world)
    assert_that_nothing_was_seen(world)


def tell_the_webhook_odd_things(world: World) -> None:
    for body in ODD_WEBHOOKS.values():
        assert world.deliver(body) == 200
        assert world.deliver(body, **{"User-Agent": EVERYTHING, "X-Cloud-Trace-Context": f"{PHONE}/1"}) == 200
        assert world.deliver(body, **{"X-Hub-Signature-256": EVERYTHING}) == 403
        assert world.deliver(body, **{"X-Hub-Signature-256": "sha256=" + signed(body, "another")[7:]}) == 403
    large = EVERYTHING.encode() * 40_000
    assert world.deliver(large) == 413
    get = {"hub.mode": "subscribe", "hub.challenge": "1"}
    for word, status in ((EVERYTHING, 403), (CANARIES["verify token"], 200)):
        assert world.ask("GET", "webhook", "/webhooks/whatsapp", params={**get, "hub.verify_token": word}) == status
    assert world.ask("GET", "webhook", f"/webhooks/whatsapp/{PHONE}", params={"name": NAME}) == 404
    assert world.ask("DELETE", "webhook", "/webhooks/whatsapp", params={"name": NAME}) == 405
    for garbage in (f"{EVERYTHING}\r\n\r\n", f"POST /{PHONE} HTTP/1.1\r\n{EVERYTHING}: 1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", int(world.urls["webhook"].rpartition(":")[2]))) as connection:
            connection.sendall(garbage.encode())
            connection.recv(
                1024
            )  # the server of the server quotes its caller's own request line to it, and to nobody else


def look_at_the_tasks_of_a_message_that_goes_through(world: World) -> None:
    assert world.deliver(webhook(item(100, "echo"), item(101, "echo"))) == 200
    seen = look_at_the_tasks(world, "inbound", 2)
    world.emulator.resume("inbound")
    world.until(100, lambda records: len(records) == 2)
    world.until(101, lambda records: len(records) == 2)
    seen += look_at_the_tasks(world, "outbound", 2)
    world.emulator.resume("outbound")
    for number in (100, 101):
        world.until(
            number, lambda records: all(record.final and record.current_receipts.read for record in records[1:])
        )
    assert world.deliver(webhook(item(100, "echo"))) == 200
    assert len(seen) >= 4
    reply = world.store.by_correlation(world.record(100).correlation_id)[1]
    assert {"phone", "name", "text"} <= set(leaks(json.dumps(dict(reply.payload)))), "the canary was not sent at all"


def look_at_the_tasks(world: World, queue: str, least: int) -> list[Any]:
    """What the queue holds of each task. The internal token has its place among the headers."""
    tasks: list[Any] = parts.until(lambda: len(found := world.emulator.tasks(queue)) >= least and found)
    for task in tasks:
        request = task.http_request
        headers = {name: value for name, value in request.headers.items() if name != "X-Internal-Token"}
        assert leaks(f"{task.name} {request.url} {request.body!r} {headers}") == []
        assert set(request.headers) == {"Content-Type", "X-Internal-Token", "X-Correlation-Id", "User-Agent"}
    return tasks


def ask_the_handler_for_trouble(world: World) -> None:
    numbers = range(200, 200 + len(ASKED))
    items = [item(number, asked) for number, asked in zip(numbers, ASKED, strict=True)]
    assert world.deliver(webhook(*items)) == 200
    for number in numbers:
        world.until(number, lambda records: records[0].final)
    ends = {world.record(number).state for number in numbers}
    assert ends == {State.DONE, State.DROPPED, State.DEAD}


def let_the_provider_quote_what_it_was_sent(world: World) -> None:
    outage = "gets an outage"  # it ends by itself, so that this is seen too
    assert world.deliver(webhook(item(300, outage))) == 200
    world.until(300, lambda records: len(records) == 2 and records[1].final)
    for number, asked in enumerate((one for one in ANSWERS if one != outage), start=310):
        assert world.deliver(webhook(item(number, asked))) == 200
        world.until(number, lambda records: len(records) == 2 and bool(records[1].attempts_log))
        world.end(number)
        parts.put_marks(world.store, down=None)  # or the next one waits for it, up to five minutes
    for number, asked in enumerate(LAST_ANSWERS, start=400):
        assert world.deliver(webhook(item(number, asked))) == 200
        world.until(number, lambda records: len(records) == 2 and bool(records[1].attempts_log))
        assert world.deliver(webhook(item(number + 50, "waits"))) == 200
        parts.until(lambda: '"outbound_waiting"' in world.programs["internal"].out.read_text())
        world.end(number)
        parts.put_marks(world.store, block=None, refused=None)
    assert world.graph.answered == {*ANSWERS, *LAST_ANSWERS}


def serve_a_second_business(world: World) -> None:
    secrets = FileSecrets(world.directory / FILE)
    secrets.add("pombo-credential-bakery", CANARIES["tenant's token"])
    secrets.add("pombo-handler-bakery", CANARIES["tenant's handler secret"])
    secrets.add("pombo-handler-florist", EVERYTHING)
    add_tenant(world, BAKERY, TenantHandler(world.backend.url, "pombo-handler-bakery"))
    add_tenant(world, FLORIST, TenantHandler(world.backend.url, "pombo-handler-florist"))
    add_tenant(world, BUTCHER)
    name = sender_name(Sender("", "meta", DAMAGED).id)
    assert world.store.commit_entries([EntryWrite(name, EVERYTHING, {"provider": EVERYTHING}, None)])

    key = {"Authorization": f"Bearer {CANARIES['API key']}"}
    said = dict(enumerate(["echo", *BACKEND_ANSWERS], start=700))
    echo, *others, down = said
    # The first before any fault; the last alone, for answers to the others would show at once that it is up.
    for numbers in ([echo], others, [down]):
        items = [item(number, said[number]) for number in numbers]
        assert world.deliver(webhook(*items, to=BAKERY), **key) == 200
        for number in numbers:
            world.until(number, lambda records: all(record.final for record in records), BAKERY)
    assert world.backend.answered == {*BACKEND_ANSWERS}
    assert world.record(echo, BAKERY).plan_size == 1, "its own backend answers"
    assert world.deliver(webhook(item(710), to=FLORIST), **key) == 200
    parts.until(lambda: "florist" in waiting_for_secrets(world))
    assert world.deliver(webhook(item(720, "gets its token refused"), to=BAKERY)) == 200
    refused = parts.until(lambda: world.store.marks(Sender("", "meta", BAKERY).id).refused)
    assert refused.fingerprint == credential_fingerprint(CANARIES["tenant's token"]), "it was sent with its own token"
    removed = json.loads(changes(("account_update", {"event": "PARTNER_REMOVED", "phone_number": PHONE})))
    removed["entry"][0]["id"] = CANARIES["tenant's account"]
    assert world.deliver(json.dumps(removed).encode()) == 200
    parts.until(lambda: world.store.marks(Sender("", "meta", BAKERY).id).disconnected)

    (world.directory / FILE).write_text(EVERYTHING)
    assert world.deliver(webhook(item(730), to=BUTCHER), **key) == 200
    parts.until(lambda: "butcher" in waiting_for_secrets(world))
    assert world.deliver(webhook(item(740), to=DAMAGED)) == 500
    doctor = as_text([*examine(Described(world.environ, world.programs["internal"].out, runs=False))], True)
    assert "is disconnected (PARTNER_REMOVED)" in doctor
    assert f"senders/{name.id}" in doctor
    assert leaks(doctor) == []


def add_tenant(world: World, number: str, handler: TenantHandler | None = None) -> None:
    id, clock = TENANT_OF[number], SystemClock()
    registry.add_tenant(world.store, clock, Tenant(id, NAME, handler=handler), pairs=0)
    account = CANARIES["tenant's account"] if number == BAKERY else ""
    sender = Sender(id, "meta", number, account, CANARIES["tenant's number"], f"pombo-credential-{id}")
    senders.add_sender(world.store, world.store, clock, [], sender)


def waiting_for_secrets(world: World) -> set[str]:
    lines = parts.lines(world.programs["internal"].out.read_text())
    return {line["tenant"] for line in lines if line.get("reason") == "credentials_unavailable"}


def tell_the_internal_service_odd_things(world: World) -> None:
    good = task_body(Task("0" * 40, Kind.INBOUND, "corr_0001", 0))
    for route in ("process_inbound", "process_outbound"):
        for body in (
            EVERYTHING.encode(),
            json.dumps(EVERYTHING).encode(),
            json.dumps({EVERYTHING: EVERYTHING}).encode(),
            *(json.dumps({**good, name: EVERYTHING}).encode() for name in good),
            EVERYTHING.encode() * 1000,
        ):
            assert 400 <= world.task(route, body, **{"X-CloudTasks-TaskRetryCount": PHONE, "traceparent": NAME}) < 500
        assert world.task(route, b"{}", **{"X-Internal-Token": EVERYTHING}) == 403
        assert world.ask("GET", "internal", f"/internal/{route}", params={"name": NAME}) == 405
    assert world.task("process_inbound", json.dumps(good).encode()) == 200
    assert world.task("sweep", b"") == 200
    assert world.task("sweep", b"", **{"X-Internal-Token": EVERYTHING, "Authorization": f"Bearer {EVERYTHING}"}) == 403
    assert world.ask("POST", "internal", f"/internal/{PHONE}", params={"name": NAME}) == 404


def tell_the_api_odd_things(world: World) -> None:
    _, key = add_key(world.store, SystemClock(), None, frozenset(Scope))
    odd = {"User-Agent": PHONE, "Referer": NAME, "X-Correlation-Id": "corr_0001", "traceparent": NAME}
    given = {"Authorization": f"Bearer {key}", **odd}
    good = {"from": SENDER, "to": f"+{PHONE}", "text": TEXT, "delay": "1h", "metadata": {NAME: EVERYTHING}}
    keyed = {**given, "Idempotency-Key": CANARIES["internal token"]}
    assert world.ask("POST", "api", "/v1/messages", json=good, headers=keyed) == 202
    assert world.ask("POST", "api", "/v1/messages", json={**good, "text": NAME}, headers=keyed) == 422
    assert world.ask("POST", "api", "/v1/messages/batch", json={"messages": [good, EVERYTHING]}, headers=given) == 200
    for body in (EVERYTHING, {EVERYTHING: EVERYTHING}, *({**good, name: EVERYTHING} for name in {*good} - {"text"})):
        assert world.ask("POST", "api", "/v1/messages", json=body, headers=given) == 400
    for path in (f"/v1/messages/{PHONE}", f"/v1/messages?to={PHONE}", f"/{NAME}?name={TEXT}", f"/docs/{PHONE}"):
        assert 400 <= world.ask("GET", "api", path, headers=given) < 500
    for wrong in ("", f"Bearer {EVERYTHING}", f"Bearer pombo_{'0' * 16}_{'0' * 64}"):
        assert world.ask("GET", "api", f"/v1/messages/{WAMID}", headers={"Authorization": wrong, **odd}) == 401
    assert world.ask("GET", "api", f"/v1/messages?token={key}", headers=given) == 400
    for method, path in routes_with_a_key(world):
        body = {} if method == "GET" else {"json": {EVERYTHING: EVERYTHING}}
        status = world.ask(method, "api", path, params={"tenant": NAME, "limit": EVERYTHING}, headers=given, **body)
        assert 400 <= status < 500, (method, path)


def routes_with_a_key(world: World) -> list[tuple[str, str]]:
    """Each method and path of the API, about an id that is the customer's number."""
    paths = world.client.get(f"{world.urls['api']}/openapi.json").json()["paths"]
    found = [(method.upper(), re.sub(r"{\w+}", PHONE, path)) for path, methods in paths.items() for method in methods]
    assert len(found) > 20
    return [(method, path) for method, path in found if path != "/health/whatsapp"]


def take_the_store_away(world: World) -> None:
    with locked(world.directory / "pombo.sqlite") if world.server is None else frozen(world.server):
        assert world.deliver(webhook(item(500))) == 500
    parts.until(lambda: world.deliver(webhook(item(500))) == 200)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        holder.close()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def take_the_queue_away(world: World) -> None:
    world.emulator.program.process.kill()
    world.emulator.program.process.wait()
    assert world.deliver(webhook(item(600))) == 500
    for service in SERVICES:
        assert world.ask("GET", service, "/readyz") == 503
        assert world.ask("GET", service, "/health") == 200


def assert_that_nothing_was_seen(world: World) -> None:
    wamids = [entry["wamid"] for entry in world.client.get(f"{world.graph._simulator}/control/ledger").json()]
    running = [world.programs[name] for name in (*SERVICES, "simulator")]
    assert [program.end() for program in running] == [0] * len(running)
    seen = {program.out: program.out.read_text() for program in world.programs.values()}
    seen |= {program.err: program.err.read_text() for program in world.programs.values()}
    for path, text in seen.items():
        assert leaks(text) == [], path.name
        assert not [wamid for wamid in wamids if wamid in text], path.name
    assert wamids
    assert all(world.programs[name].err.read_text() == "" for name in world.programs)
    said_of = [line for name in SERVICES for line in parts.lines(world.programs[name].out.read_text())]
    owners = {(line["phone_number_id"], line["tenant"]) for line in said_of if {"phone_number_id", "tenant"} <= {*line}}
    assert owners == {*TENANT_OF.items()}, "no line about one tenant's number has another's name"
    said = {event for name in SERVICES for event in parts.events(world.programs[name].out.read_text())}
    assert EXPECTED_EVENTS - said == set(), "a path was not walked"
    failed = [line for line in parts.lines(world.programs["internal"].out.read_text()) if "error_type" in line]
    assert {"LookupError", "TypeError", "RuntimeError", "SystemExit"} <= {line["error_type"] for line in failed}
    assert all(line["place"].startswith("team:") for line in failed), "the line is told, and no directory"
    for path, status, answer in world.answers:
        assert leaks(answer) == [], (path, status)
    for path in world.directory.glob("server.log"):
        assert leaks(path.read_bytes()) == [], path.name
    for path in world.directory.glob("tasks.sqlite*"):
        assert leaks(path.read_bytes(), but=("internal token",)) == [], path.name


# ---- what only a part that is made to fail does


class Explosion(Exception):
    """An exception that quotes everything, as those of libraries do."""

    def __init__(self) -> None:
        super().__init__(EVERYTHING)


def exploding(method: str) -> Callable[..., Exception | None]:
    return lambda name, *_: Explosion() if name == method else None


@pytest.fixture
def heard(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """All that this process has written to standard output and standard error."""
    with parts.logged():
        yield lambda: "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("port", "method", "messages", "receipts"),
    [
        ("store", "create_all", 2, 0),
        ("store", "note_receipts", 0, 2),
        ("queue", "ensure_all", 2, 0),
    ],
)
def test_an_exception_that_quotes_everything_is_not_quoted_by_the_webhook_service(
    tmp_path: Path, heard: Callable[[], str], port: str, method: str, messages: int, receipts: int
) -> None:
    given = parts.webhook_parts(tmp_path, queue=parts.NoQueue(), META_APP_SECRET=CANARIES["app secret"])
    getattr(given, port).before = exploding(method)
    failed = tuple(failed_receipt(number, str(Echo("0" * 40, 0, "corr_0001"))) for number in range(receipts))
    body = webhook(*(item(number) for number in range(messages)), statuses=failed)
    headers = {"X-Hub-Signature-256": signed(body, CANARIES["app secret"])}
    answer = AsgiClient(make_app(given.parts)).post("/webhooks/whatsapp", data=body, headers=headers)
    given.close()
    said = heard()
    assert answer.status_code == 500
    assert "Explosion" in said
    assert leaks(f"{said} {answer.headers} {answer.text}") == []


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
@pytest.mark.parametrize(
    ("port", "method"), [("store", "change"), ("queue", "ensure"), ("channel", "send"), ("channel", "read")]
)
def test_an_exception_that_quotes_everything_is_not_quoted_by_the_internal_service(
    tmp_path: Path, heard: Callable[[], str], record: Delivery, port: str, method: str
) -> None:
    given = parts.internal_parts(tmp_path, lambda _: TEXT, queue=parts.NoQueue(), **SECRETS)
    channel = parts.Tapped(given.parts.process_outbound.channels["meta"])
    channels = Channels({"meta": channel})  # type: ignore[dict-item]
    internal = replace(
        given.parts,
        process_inbound=replace(given.parts.process_inbound, channels=channels),
        process_outbound=replace(given.parts.process_outbound, channels=channels),
    )
    given.store.port.create(replace(record, contact=PHONE))
    {"store": given.store, "queue": given.queue, "channel": channel}[port].before = exploding(method)
    answer = (
        create_app(internal)
        .test_client()
        .post(
            f"/internal/process_{record.kind}",
            json=task_body(Task.of(record)),
            headers={"X-Internal-Token": CANARIES["internal token"]},
        )
    )
    given.store.port.close()
    said = heard()
    assert leaks(f"{said} {answer.headers} {answer.text}") == []
    assert (answer.status_code == 500) is ("Explosion" in said)
    assert (port, method, record.kind) not in REACHED or answer.status_code == 500


REACHED = {
    ("store", "change", Kind.INBOUND),
    ("store", "change", Kind.OUTBOUND),
    ("queue", "ensure", Kind.INBOUND),
    ("channel", "read", Kind.INBOUND),
    ("channel", "send", Kind.OUTBOUND),
}
"""Where the explosion is on the way of that record."""


def test_service_that_does_not_start_reveals_no_secret(tmp_path: Path) -> None:
    there = {"K_SERVICE": "pombo", "APP_ENV": "prod"}
    environ = {**SECRETS, **there, "PORT": PHONE, "WHATSAPP_API_BASE_URL": EVERYTHING, "STORE": EVERYTHING}
    for service in (config.WEBHOOK, config.INTERNAL):
        with pytest.raises(config.ConfigError) as caught:
            config.load(environ, service)
        assert leaks(str(caught.value)) == []


def test_canaries_are_detected() -> None:
    assert leaks(EVERYTHING) == leaks(EVERYTHING.encode()) == list(CANARIES)
    assert leaks("nothing of the kind") == []
