"""The proof of the door: a second provider beside the first, in services that know of neither.

Both services run in this process, put together here, over HTTP; the Cloud Tasks emulator carries their tasks. The
second provider is second_channel.py and the lines that put it together below, and nothing else.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import flask
import httpx
import pytest
from werkzeug.serving import make_server

from services.internal.main import create_app
from services.webhook.__main__ import make_app
from shared import config, logs
from shared.bootstrap.adapters import Shutdown
from shared.bootstrap.internal import Internal
from shared.bootstrap.webhook import Webhook
from shared.channels.meta.channel import MetaChannel
from shared.domain.identity import message_event_id, outbound_key, sender_id
from shared.domain.limits import Backoff, Limits, Waits
from shared.domain.messages import Message
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Delivery, Kind, State
from shared.domain.tenants import DEFAULT_TENANT, Order, Sender
from shared.handlers.hung_threads import HungThreads
from shared.handlers.loader import TeamFunction
from shared.handlers.runner import HandlerRunner
from shared.net.egress_policy import ANYWHERE
from shared.net.google_token import GoogleToken
from shared.operations.timeline.build import build
from shared.pipeline.accept import Accept
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.clock import SystemClock
from shared.pipeline.conversations import Conversations
from shared.pipeline.counting import Counters, IntakeCounting
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.drain import Drain
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.ports import Store
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.reconnects import Reconnects
from shared.pipeline.send_counting import OutboundCounting
from shared.pipeline.sender_health import Senders
from shared.pipeline.sweep import Sweep
from shared.queues.cloud_tasks import CloudTasksQueue
from shared.queues.cloud_tasks_intake import CloudTasksIntake
from shared.queues.task_content import QueueSettings
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.environment import EnvironmentTenants
from tests.support import parts
from tests.support.asgi_client import AsgiClient
from tests.support.event_loop import Asynchronous
from tests.support.fake_tenants import EnvironmentCredentials
from tests.support.one_handler import OneHandler
from tests.support.second_channel import NOT_EXPRESSIBLE, AcmeChannel, signature

SECRET, PUBLIC_URL, OURS = "acme-secret", "https://pombo.example.com", "+15550001111"
HALF = timedelta(seconds=0.5)
QUICKLY = Limits(
    doubt_window=2 * HALF,
    waits=replace(
        Waits(),
        doubt=Backoff(HALF, 1, HALF),
        outage=Backoff(HALF, 1, HALF),
        throughput=Backoff(HALF / 5, 1, HALF / 5),
        doubtful_trial=timedelta(),
    ),
)


@dataclass
class Acme:
    """Acme's API: gives the next of its answers, status and document; (0, …) is no answer at all."""

    url: str = ""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    sent: list[dict[str, str]] = field(default_factory=list)
    probes: int = 0

    def __call__(self, form: dict[str, str]) -> tuple[int, bytes]:
        if "To" not in form:
            self.probes += 1
            return 400, b'{"code": 21604}'
        status, document = self.answers.pop(0) if self.answers else (201, {"sid": f"SM{len(self.sent)}"})
        self.sent.append(form)
        return status, json.dumps(document).encode()


@dataclass
class World:
    """Two services, two providers, one store and the queues between them."""

    webhook: str
    acme: Acme
    meta: parts.Provider
    store: Store
    channels: Channels
    handle: Callable[[Message], Any]

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Acme calls."""
        signed = signature(SECRET, f"{PUBLIC_URL}/webhooks/{path}", fields)
        return self.raw(path, urlencode(fields), {"X-Acme-Signature": signed})

    def raw(self, path: str, body: str | bytes, headers: dict[str, str]) -> httpx.Response:
        return httpx.post(f"{self.webhook}/webhooks/{path}", content=body, headers=headers, timeout=30)

    def writes(self, sid: str, words: str, person: str = "+15550002222") -> None:
        answer = self.post("acme", Sid=sid, From=person, To=OURS, Body=words)
        assert (answer.status_code, answer.text, answer.headers["Content-Type"]) == (200, "<Response/>", "text/xml")

    def reply(self, sid: str, *states: State) -> Delivery:
        """The reply to this message, once it is in one of these states."""
        key = outbound_key(message_event_id("acme", OURS, sid), 0)

        def there() -> Delivery | None:
            record = self.store.get(key)
            return record if record and record.state in states else None

        found: Delivery = parts.until(there)
        return found

    def answers_of(self, record: Delivery) -> list[str]:
        return [attempt.answer for attempt in record.attempts_log]

    def explain(self, provider: str, code: int, answer: str) -> str | None:
        return self.channels[provider].explain(code, answer)


@contextmanager
def serving(app: flask.Flask, port: int = 0) -> Iterator[str]:
    server = make_server("127.0.0.1", port, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def an_acme() -> Iterator[Acme]:
    acme = Acme()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = acme(dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))
            if status:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        acme.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield acme
        server.shutdown()
        thread.join()


def say_it_back(message: Message) -> OutboundMessage:
    if message.text == "a picture":
        return OutboundMessage.image("https://example.com/picture.png")
    if message.text == "read it":
        return OutboundMessage.read(message.id)
    return OutboundMessage.text(message.text or "")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[parts.Emulator]:
    emulator = parts.Emulator(tmp_path_factory.mktemp("tasks"))
    for queue in ("inbound", "outbound"):
        emulator.resume(queue)
    yield emulator
    emulator.close()


def passed_on(client: AsgiClient) -> flask.Response:
    """Its answer to the request that came over the wire."""
    given = flask.request
    answer = client.open(
        given.path,
        method=given.method,
        data=given.get_data(),
        headers=dict(given.headers),
        query_string=given.query_string.decode(),
    )
    return flask.Response(answer.data, answer.status_code, dict(answer.headers))


@pytest.fixture
def world(tmp_path: Path, emulator: parts.Emulator) -> Iterator[World]:
    with parts.logged(), an_acme() as acme, parts.a_provider() as meta:
        port = parts.free_port()
        clock, shutdown = SystemClock(), Shutdown()
        store = SqliteStore(tmp_path / "pombo.sqlite", QUICKLY, clock.now)
        queues = QueueSettings(
            project="pombo-local",
            location="local",
            queues={Kind.INBOUND: "inbound", Kind.OUTBOUND: "outbound"},
            base_url=f"http://127.0.0.1:{port}",
            token=parts.TOKEN,
            dispatch_deadline=timedelta(seconds=60),
            emulator=emulator.address,
        )
        queue, token = CloudTasksQueue(queues), GoogleToken()
        of_meta = MetaChannel(app_secrets=[parts.SECRET], base_url=meta.url, reach=ANYWHERE)
        channels = Channels.of(of_meta, AcmeChannel(SECRET, PUBLIC_URL, acme.url))
        gateway = Sender(DEFAULT_TENANT, "acme", OURS, order=Order.SENDER)
        tenants = EnvironmentTenants((Sender(DEFAULT_TENANT, "meta", parts.SENDER), gateway))
        intake, tasks = Asynchronous(store), CloudTasksIntake(queues, token)
        accept = Accept(intake, tasks, tenants, channels, QUICKLY, clock)
        settings = config.load(parts.environment(tmp_path), config.WEBHOOK)
        counters = Counters(clock, QUICKLY.counters_flush)
        public = Webhook(settings, accept, channels, intake, tasks, token, IntakeCounting(counters, intake))
        dispatch = TaskDispatch(queue, clock, QUICKLY, channels, tenants)
        handler = HandlerRunner(
            TeamFunction(say_it_back, QUICKLY.max_replies),
            timeout=timedelta(seconds=5),
            hung=HungThreads(2),
            stopping=shutdown,
        )
        backend = BackendMarks(None, store, QUICKLY, clock)
        credentials = EnvironmentCredentials(
            {sender_id("meta", parts.SENDER): "token", sender_id("acme", OURS): SECRET}
        )
        senders = Senders(tenants, credentials, store, channels, QUICKLY, clock)
        conversations = Conversations(store, clock, b"a key")
        reconnects = Reconnects(tenants, credentials, store, channels, dispatch, clock)
        private = Internal(
            config=config.load(parts.environment(tmp_path), config.INTERNAL),
            process_inbound=ProcessInbound(
                store,
                tenants,
                channels,
                OneHandler(handler, backend),
                HandlerPlaces(2),
                dispatch,
                QUICKLY,
                clock,
                shutdown,
                conversations,
            ),
            process_outbound=ProcessOutbound(
                store, tenants, credentials, channels, dispatch, QUICKLY, clock, shutdown, conversations
            ),
            sweep=Sweep(store, senders, reconnects, dispatch, QUICKLY, clock),
            drain=Drain(store, tenants, channels, dispatch, QUICKLY),
            senders=senders,
            handler=handler,
            store=store,
            queue=queue,
            shutdown=shutdown,
            counting=OutboundCounting(counters, store, clock),
        )
        front = flask.Flask("front")
        methods = ["GET", "POST", "PUT"]
        client = AsgiClient(make_app(public))
        front.add_url_rule("/<path:_>", "all", lambda _: passed_on(client), methods=methods)
        with serving(create_app(private), port), serving(front) as address:
            yield World(address, acme, meta, store, channels, say_it_back)
        of_meta.close()
        store.close()


def test_a_message_comes_in_by_the_second_provider_and_its_reply_goes_out_by_it(world: World) -> None:
    world.writes("IM1", "olá & good day")
    reply = world.reply("IM1", State.DONE)
    assert world.acme.sent == [{"From": OURS, "To": "acme:+15550002222", "Body": "olá & good day"}]
    assert (reply.provider, reply.sender, reply.provider_id) == ("acme", OURS, "SM0")
    assert world.meta.requests == []


def test_the_first_provider_goes_on_beside_the_second(world: World) -> None:
    body = parts.post(parts.text("wamid.1", "hello"))
    answer = world.raw("whatsapp", body, {"X-Hub-Signature-256": parts.signed(body)})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    parts.until(lambda: world.meta.requests)
    assert [sent["text"] for sent in world.meta.requests] == [{"body": "hello"}]
    assert world.acme.sent == []


def test_one_message_id_at_two_providers_is_two_messages(world: World) -> None:
    body = parts.post(parts.text("SAME", "by the first"))
    assert world.raw("whatsapp", body, {"X-Hub-Signature-256": parts.signed(body)}).status_code == 200
    world.writes("SAME", "by the second")
    world.reply("SAME", State.DONE)
    parts.until(lambda: world.meta.requests)
    assert [sent["Body"] for sent in world.acme.sent] == ["by the second"]


def test_a_webhook_that_comes_again_is_answered_and_done_once(world: World) -> None:
    for _ in range(2):
        world.writes("IM2", "once")
    world.reply("IM2", State.DONE)
    assert len(world.acme.sent) == 1


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("acme", {}, 403),
        ("acme", {"X-Acme-Signature": "0" * 40}, 403),
        ("acme", {"X-Hub-Signature-256": parts.signed(b"Sid=1")}, 403),
        ("acme/status", {"X-Acme-Signature": signature(SECRET, f"{PUBLIC_URL}/webhooks/acme", {"Sid": "1"})}, 403),
        ("acme/other", {}, 404),
        ("meta", {}, 404),
    ],
    ids=["unsigned", "wrong", "by the other's rule", "for another path", "no such path", "a provider's own name"],
)
def test_unsigned_request_of_the_second_provider_is_not_read(
    world: World, path: str, headers: dict[str, str], status: int
) -> None:
    assert world.raw(path, b"Sid=1", headers).status_code == status
    assert sum(world.store.backlog().counts.values()) == 0


def test_a_provider_without_a_handshake_is_not_asked_for_one(world: World) -> None:
    answer = httpx.get(f"{world.webhook}/webhooks/acme")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_a_receipt_without_an_echo_finds_its_message(world: World) -> None:
    world.writes("IM3", "hello")
    reply = world.reply("IM3", State.DONE)
    for status in ("delivered", "read"):
        assert world.post("acme/status", Sid="SM0", From=OURS, Status=status, At="1750000000").status_code == 200
    found = world.store.get(reply.key)
    assert found is not None
    assert found.current_receipts.delivered
    assert found.current_receipts.read
    assert build([found], explain=world.explain).shown == "sent"


def test_a_failed_receipt_is_explained_by_the_channel(world: World) -> None:
    world.writes("IM4", "hello")
    reply = world.reply("IM4", State.DONE)
    world.post("acme/status", Sid="SM0", From=OURS, Status="failed", Code="63024", At="1750000000")
    found = world.store.get(reply.key)
    assert found is not None
    timeline = build([found], explain=world.explain)
    assert timeline.shown == "failed"
    assert any("Acme refused it: the recipient is invalid." in moment.sentence for moment in timeline.events)


def test_an_answer_that_is_lost_is_a_doubt_which_is_resent_once(world: World) -> None:
    world.acme.answers.append((0, None))
    world.writes("IM5", "perhaps")
    assert world.reply("IM5", State.IN_DOUBT).doubts == 1
    reply = world.reply("IM5", State.DONE)
    assert world.answers_of(reply) == ["lost", "accepted"]
    assert len(world.acme.sent) == 2
    assert world.acme.probes >= 1, "a message in doubt probes before it is resent"


def test_a_limit_of_the_second_provider_is_waited_out_and_spends_no_attempt(world: World) -> None:
    world.acme.answers += [(429, {"code": 20429})] * 2
    world.writes("IM6", "slowly")
    reply = world.reply("IM6", State.DONE)
    assert (world.answers_of(reply), reply.attempt) == (["limited", "limited", "accepted"], 1)


def test_gateway_sends_to_all_contacts_in_the_order_of_its_messages(world: World) -> None:
    world.acme.answers += [(429, {"code": 20429})] * 3
    world.writes("IM11", "first")
    world.reply("IM11", State.PENDING, State.LEASED, State.DONE)
    world.writes("IM12", "second", person="+15550003333")
    first, second = world.reply("IM11", State.DONE), world.reply("IM12", State.DONE)
    assert (second.after, second.conversation != first.conversation) == (first.key, True)
    assert [sent["Body"] for sent in world.acme.sent] == ["first"] * 4 + ["second"]


def test_an_outage_of_the_second_provider_is_its_own(world: World) -> None:
    world.acme.answers += [(503, {"code": 20503})]
    world.writes("IM7", "later")
    parts.until(lambda: world.store.marks(sender_id("acme", OURS)).down)
    assert world.store.marks(sender_id("meta", parts.SENDER)).down is None
    reply = world.reply("IM7", State.DONE)
    assert (world.answers_of(reply), reply.attempt) == (["provider_down", "accepted"], 1)
    assert world.acme.probes == 1
    parts.until(lambda: world.store.marks(sender_id("acme", OURS)).down is None)  # written after the record


def test_message_the_second_provider_cannot_express_is_a_dead_letter(world: World) -> None:
    world.writes("IM8", "a picture")
    reply = world.reply("IM8", State.DEAD)
    assert (reply.reason, reply.attempts_log[-1].code) == ("permanent", NOT_EXPRESSIBLE)
    assert any("Acme sends texts alone." in one.sentence for one in build([reply], explain=world.explain).events)
    assert world.acme.sent == []


def test_call_the_second_provider_lacks_is_done_without_one(world: World) -> None:
    world.writes("IM10", "read it")
    assert world.reply("IM10", State.DONE).provider_id is None
    assert world.acme.sent == []


def test_no_line_holds_a_number_of_the_second_provider(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Its senders are phone numbers: what may be logged of the first provider's may not be of these."""
    world.acme.answers += [(503, {"code": 20503}), (403, {"code": 63018})]
    world.writes("IM9", "a secret")
    parts.until(lambda: world.store.marks(sender_id("acme", OURS)).block)
    world.post("acme/status", Sid="SM0", From=OURS, Status="delivered", At="1750000000")
    said = capfd.readouterr().out
    lines = parts.lines(said)
    assert {"inbound_new", "outbound_rescheduled", "sender_blocked", "receipt_applied", "provider_down"} <= {
        line["event"] for line in lines
    }
    for private in (OURS, OURS[1:], "15550002222", "a secret", "SM0"):
        assert private not in said
    assert {line["provider"] for line in lines} == {"acme"}
    assert logs.EVENTS.keys() >= {line["event"] for line in lines}
