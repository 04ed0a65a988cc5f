"""The webhook, and all that follows from it, against what nobody sends: mutated documents, bytes and requests.

A signed POST is answered 200 and stored, whatever it holds; what stands beside the mutated part is stored as if nothing
were wrong; whatever is stored can be handled, answered and sent; and no log line says more than it may.
"""

import itertools
import json
import logging
import os
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote_plus

import pytest
from flask.testing import FlaskClient
from hypothesis import strategies as st
from werkzeug.test import create_environ, run_wsgi_app

from services.internal.main import create_app
from services.webhook.__main__ import make_app
from shared.channels.meta import webhook as meta_webhook
from shared.channels.meta.other_fields import OTHER_FIELDS
from shared.domain.events import ReceiptReceived
from shared.domain.identity import is_correlation_id, outbound_key, sender_id
from shared.domain.marks import unblocked
from shared.domain.message_kinds import KINDS
from shared.domain.messages import Message, to_json
from shared.domain.outbound.types import TYPES as MESSAGE_TYPES
from shared.domain.record import Delivery, Kind, ReceiptKind, State, Task
from shared.domain.tasks import task_body
from shared.handlers import OutboundMessage, handles
from shared.net import bounded_json
from shared.net.bounded_http import HttpResponse
from shared.pipeline import receipts
from tests.fuzz import corpus, mutation
from tests.fuzz.hunt import Hunt
from tests.support import parts
from tests.support.asgi_client import AsgiClient
from tests.support.parts import key_of, signed, text

PATH = "/webhooks/whatsapp"
CAP = 1024 * 1024
TRIES = 5
FOLLOWED = 12
"""Events of one POST that are followed to their end; a list may have been made a thousand."""

EVENTS = {
    "webhook_received", "webhook_refused", "webhook_ignored", "inbound_new", "inbound_enqueued", "inbound_duplicate",
    "receipt_applied", "receipt_failed", "receipt_unknown", "inbound_processing_started",
    "inbound_processing_finished", "dead_lettered",
    "outbound_enqueued", "outbound_sent", "task_refused", "task_gone", "state_unknown", "swept", "sender_checked",
    "tenant_needs_reauth",  # news of an account
}  # fmt: skip
"""All that may be said of any webhook, while store, queue and provider are well."""


@handles(*KINDS)
def answer(message: Message) -> OutboundMessage:
    """Uses all there is of a message, and says it back."""
    everything = bounded_json.dumps(to_json(message))
    assert everything.encode()
    said = (message.text or "").strip()[:4096] or f"{len(everything)} characters"
    return OutboundMessage.text(said, reply_to=message.id)


@dataclass
class Provider:
    """Stands for the connection to Graph, which is hunted elsewhere: takes every message there is."""

    sent: list[Any] = field(default_factory=list)

    def post(self, _url: str, _headers: Mapping[str, str], body: bytes) -> HttpResponse:
        self.sent.append(json.loads(body))
        return HttpResponse(200, {}, b'{"messages":[{"id":"wamid.accepted"}]}')


@dataclass
class Pombo:
    """Both services on one store, in this process, with a provider beside them."""

    webhook: parts.WebhookParts
    internal: parts.InternalParts
    provider: Provider
    client: AsgiClient
    tasks: FlaskClient
    log: int
    read: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def logged(self) -> list[str]:
        """The log lines since the last look."""
        written = os.pread(self.log, 64 * CAP, self.read)
        self.read += len(written)
        return written.decode().splitlines()

    def records(self) -> int:
        store: Any = self.webhook.store.port
        return int(store._file.read(lambda db: db.execute("SELECT count(*) FROM records").fetchone())[0])

    def forget_what_waits(self) -> None:
        """What was not followed is in the way of the same person's next messages."""
        store: Any = self.webhook.store.port
        store._file.write(lambda db: db.execute("DELETE FROM records WHERE state = 'pending'"))

    def place(self, key: str) -> str:
        """Where it stands among its person's messages."""
        record = self.get(key)
        return (record and record.position) or ""

    def get(self, key: str) -> Delivery | None:
        found: Delivery | None = self.webhook.store.port.get(key)
        return found

    def post(self, body: bytes) -> int:
        """Again where the store was too slow, as Meta does: a busy machine may hold it up for seconds."""
        headers = {"X-Hub-Signature-256": signed(body)}
        statuses = (self.client.post(PATH, data=body, headers=headers).status_code for _ in range(TRIES))
        return next((status for status in statuses if status != 500), 500)

    def run(self, record: Delivery) -> tuple[int, Any]:
        """The record's task arrives; again where the store was too slow, as the queue does."""
        path, headers = f"/internal/process_{record.kind}", {"X-Internal-Token": parts.TOKEN}
        answers = (self.tasks.post(path, json=task_body(Task.of(record)), headers=headers) for _ in range(TRIES))
        answered = next((answer for answer in answers if answer.status_code != 503), None)
        return (answered.status_code, answered.json) if answered else (503, None)


@pytest.fixture(scope="module")
def pombo(quick_directory: Path) -> Iterator[Pombo]:
    directory = quick_directory / "webhook"
    directory.mkdir()
    log = os.open(directory / "log", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    with parts.logged(), pytest.MonkeyPatch.context() as patch:
        webhook = parts.webhook_parts(directory, queue=parts.NoQueue(), WEBHOOK_MAX_BYTES=str(CAP))
        internal, provider = parts.internal_parts(directory, handle=answer, queue=parts.NoQueue()), Provider()
        patch.setattr(internal.parts.process_outbound.channels["meta"], "_poster", provider)
        patch.setattr(logging.getLogger().handlers[0], "descriptor", log)
        patch.setattr(logging.getLogger("pombo"), "handlers", logging.getLogger().handlers[:])
        patch.setattr(logging.getLogger("pombo"), "propagate", False)  # pytest would keep every line of a long hunt
        tasks = create_app(internal.parts).test_client()
        yield Pombo(webhook, internal, provider, AsgiClient(make_app(webhook.parts)), tasks, log)
        webhook.close()
    os.close(log)


# ---- webhooks


@dataclass(frozen=True)
class Webhook:
    """A body to be signed. `siblings`: ids of messages in it that nothing was done to. In the body every wamid is to be
    made its own: what is seen again is not read again.
    """

    body: bytes
    siblings: tuple[str, ...] = ()

    def numbered(self, number: int) -> "Webhook":
        def made_new(said: str) -> str:
            return said.replace("wamid.", f"wamid.{number}.")

        return Webhook(
            self.body.replace(b"wamid.", f"wamid.{number}.".encode()), tuple(made_new(one) for one in self.siblings)
        )


def whole(document: Any, random: Random) -> Webhook:
    """Mutated anywhere."""
    return Webhook(mutation.dumped(mutation.mutated(document, random, corpus.webhooks()), random))


def of_bytes(document: Any, random: Random) -> Webhook:
    """Its text broken."""
    return Webhook(mutation.corrupted(mutation.dumped(document, random), random))


def beside(document: Any, random: Random) -> Webhook:
    """Its entries mutated, between two that are well."""
    first, last = (parts.post(text(f"wamid.sibling.{name}")) for name in ("first", "last"))
    entries = document.get("entry") if isinstance(document, dict) else None
    changed = mutation.mutated(entries, random, corpus.webhooks())
    entry = json.loads(first)["entry"] + [mutation.Raw("MUTATED")] + json.loads(last)["entry"]
    body = mutation.dumped({"object": meta_webhook.OBJECT, "entry": entry})
    held = mutation.quoted(mutation.dumped(changed, random))
    return Webhook(body.replace(b"MUTATED", held), ("wamid.sibling.first", "wamid.sibling.last"))


def among(document: Any, random: Random) -> Webhook:
    """One message or receipt mutated, among others of the same change."""
    of_messages = random.random() < 0.7
    item = random.choice(corpus.messages() if of_messages else corpus.receipts())
    held = mutation.quoted(mutation.dumped(mutation.mutated(item, random, corpus.messages()), random))
    first, last = (text(f"wamid.sibling.{name}") for name in ("first", "last"))
    mark: Any = "MUTATED"
    body = parts.post(first, mark, last) if of_messages else parts.post(first, last, statuses=(mark,))
    return Webhook(body.replace(b'"MUTATED"', held), (first["id"], last["id"]))


@st.composite
def webhooks(draw: st.DrawFn) -> Webhook:
    random = draw(mutation.randoms)
    return random.choice((whole, of_bytes, beside, among))(random.choice(corpus.webhooks()), random)


REASONS = {
    "not_json", "unknown_object", "no_entry", "malformed_entry", "malformed_change", "unknown_field", "no_items",
    "unknown_receipt", "too_many", "unparsable", "unknown_sender", "no_echo", "too_large", "signature", "verify_token",
    "forbidden", "store_unavailable",
}  # fmt: skip
SENTENCE = re.compile(r"(The task|A newer version) [A-Za-z_, ]+(40 hex digits|from 0|)\.")
HEX = re.compile(r"[0-9a-f]{32,40}")
TYPES = {"message", "other", meta_webhook.MESSAGES, *OTHER_FIELDS, *ReceiptKind, *MESSAGE_TYPES}
SAID: Mapping[str, Callable[[Any], object]] = {
    "inbound_event_id": lambda said: HEX.fullmatch(said),
    "delivery": lambda said: HEX.fullmatch(said),
    "task_name": lambda said: HEX.fullmatch(said),
    "message_hash": lambda said: HEX.fullmatch(said),
    "sender": lambda said: HEX.fullmatch(said),
    "queue": lambda said: said in set(Kind),
    "correlation_id": lambda said: is_correlation_id(said),
    "phone_number_id": lambda said: re.fullmatch(r"[A-Za-z0-9._-]{1,64}", said),
    "tenant": lambda said: said in ("", "default"),
    "provider": lambda said: said == "meta",
    "stage": lambda said: said in set(Kind),
    "state": lambda said: said in set(State),
    "event_type": lambda said: said in TYPES,
    "reason": lambda said: said in REASONS or SENTENCE.fullmatch(said),
    "verdict": lambda said: said in ("replied", "accepted"),
    "status": lambda said: said in ("success", "failed"),
    "cause": lambda said: re.fullmatch(r"token|(no|another|unsigned|invalid)_identity", said),
}
"""Each text in a log line, and all that it may say: none has room for what a person wrote. A number has none anyway, if
it is shorter than that of a phone.
"""

OURS = {"time", "severity", "message", "event", "logging.googleapis.com/labels", "logging.googleapis.com/trace"}


def check_log(lines: list[str]) -> None:
    for line in lines:
        said = json.loads(line)
        assert said["event"] in EVENTS or said["reason"] == "store_unavailable", line
        for name in said.keys() - OURS:
            value = said[name]
            assert abs(value) < 10**9 if isinstance(value, int | float) else SAID[name](value), line


def check_webhook(pombo: Pombo, given: Webhook) -> None:
    webhook = given.numbered(next(pombo.numbers))
    if len(webhook.body) > CAP:
        assert pombo.post(webhook.body) == 413
        pombo.logged()
        return
    pombo.webhook.store.calls.clear()
    assert pombo.post(webhook.body) == 200
    parsed = meta_webhook.parse(webhook.body)
    assert parsed.events or parsed.ignored, "neither stored nor counted"
    noted = sum(len(receipts) for receipts, _ in pombo.webhook.store.asked("note_receipts"))
    assert noted == sum(isinstance(event, ReceiptReceived) for event in parsed.events)
    keys = list(dict.fromkeys(event.key for event in parsed.events if not isinstance(event, ReceiptReceived)))
    assert all(pombo.get(key) for key in keys), "answered 200 and not stored"
    for sibling in webhook.siblings:
        record = pombo.get(key_of(sibling))
        assert record is not None
        assert record.state is State.PENDING
        assert record.payload["item"]["text"] == {"body": "hello"}
    stored = pombo.records()
    assert pombo.post(webhook.body) == 200
    assert pombo.records() == stored, "the same again was stored twice"
    reports = [event for event in parsed.events if isinstance(event, ReceiptReceived)]
    for blocked in receipts.blocks(reports):  # a receipt may block the number, and the replies would wait
        pombo.webhook.store.port.change_marks(sender_id(*blocked), unblocked)
    for key in sorted(keys, key=pombo.place)[:FOLLOWED]:
        follow(pombo, key)
    pombo.forget_what_waits()
    check_log(pombo.logged())


def follow(pombo: Pombo, key: str) -> None:
    """To the end of it: the handler is asked, and what it answers reaches the provider."""
    record = pombo.get(key)
    assert record is not None
    if record.final:
        return
    status, said = pombo.run(record)
    assert status == 200, said
    handled = pombo.get(record.key)
    assert handled is not None
    assert handled.final, said
    for index in range(handled.plan_size or 0):
        reply = pombo.get(outbound_key(record.key, index))
        assert reply is not None
        assert pombo.run(reply) == (200, {"state": "done"})
        sent = pombo.provider.sent.pop()
        assert sent["type"] == "text"
        assert sent.get("to") or sent.get("recipient")


def test_any_signed_webhook_is_stored_handled_and_answered(pombo: Pombo, hunt: Hunt) -> None:
    hunt(lambda webhook: check_webhook(pombo, webhook), webhooks(), quick=200)


@pytest.mark.parametrize("name", corpus.found("webhook"))
def test_webhook_that_once_failed_succeeds(pombo: Pombo, name: str) -> None:
    check_webhook(pombo, Webhook(corpus.found("webhook")[name]))


# ---- requests


@dataclass(frozen=True)
class Request:
    """As the server hands it on: header names are those of WSGI, values any byte there is. The text of a path is what
    its bytes are in Latin-1.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        return NOT_IN_A_HEADER.sub("", self.headers.get(name, ""))

    def ask(self, client: AsgiClient) -> tuple[int, bytes]:
        """Of an app on an event loop."""
        answer = client.open(
            quote(self.path, encoding="latin-1"),
            method=NOT_IN_A_METHOD.sub("", self.method) or "GET",
            data=self.body,
            headers={name.replace("_", "-"): self.header(name) for name in self.headers},
            query_string=quote(self.query, safe=printable, encoding="latin-1"),
        )
        return answer.status_code, answer.data

    def send(self, client: FlaskClient) -> tuple[int, bytes]:
        environ = create_environ(method="POST", data=self.body)
        given = {f"HTTP_{name}": self.header(name) for name in self.headers}
        line = {
            "REQUEST_METHOD": NOT_IN_A_METHOD.sub("", self.method) or "GET",
            "PATH_INFO": self.path,
            "QUERY_STRING": quote(self.query, safe=printable, encoding="latin-1"),
        }
        body, status, _ = run_wsgi_app(client.application, environ | line | given, buffered=True)
        return int(status.partition(" ")[0]), b"".join(body)


NOT_IN_A_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
NOT_IN_A_METHOD = re.compile(r"[^A-Z0-9!$%&'*+.^_`|~-]")
printable = string.ascii_letters + string.digits + string.punctuation
HEADERS = (
    "X_HUB_SIGNATURE_256", "X_HUB_SIGNATURE", "TRACEPARENT", "X_CLOUD_TRACE_CONTEXT", "COOKIE", "HOST", "RANGE",
    "EXPECT", "FUNCTION_EXECUTION_ID", "AUTHORIZATION", "CE_TYPE", "X_FORWARDED_FOR", "X_CLOUDTASKS_TASKRETRYCOUNT",
    "X_INTERNAL_TOKEN", "TRANSFER_ENCODING", "ACCEPT", "CONTENT_ENCODING", "X_HTTP_METHOD_OVERRIDE",
)  # fmt: skip
latin = st.text(st.characters(max_codepoint=255), max_size=30)
words = latin | st.sampled_from([text.encode("utf-8", "replace").decode("latin-1") for text in mutation.TEXTS])
methods = (
    st.sampled_from(["POST"] * 4 + ["GET", "PUT", "HEAD", "OPTIONS", "TRACE", "PATCH", "DELETE", "CONNECT"]) | words
)
headers = st.dictionaries(st.sampled_from(HEADERS), words, max_size=4)


def near(*seeds: str) -> st.SearchStrategy[str]:
    """One of these, and what is nearly one."""

    def corrupt(seed: str, random: Random) -> str:
        return mutation.corrupted(seed.encode(), random, most=1).decode("latin-1")

    return st.sampled_from(seeds) | st.builds(corrupt, st.sampled_from(seeds), mutation.randoms)


SHAKE = f"hub.mode=subscribe&hub.verify_token={parts.WORD}&hub.challenge=115"
DOCUMENT = json.dumps({"object": "page"}).encode()
requests = st.builds(
    Request,
    methods,
    near(PATH, "/livez", "/startz", "/readyz", "/health", "/robots.txt", "/") | words,
    near(SHAKE) | words,
    st.builds(
        lambda one, other: one | other, st.just({}) | near(signed(DOCUMENT)).map(lambda s: {HEADERS[0]: s}), headers
    ),
    st.just(DOCUMENT) | st.binary(max_size=50),
)


def check_request(pombo: Pombo, request: Request) -> None:
    pombo.webhook.store.calls.clear()
    status, _ = request.ask(pombo.client)
    assert status < 500 or request.path in ("/startz", "/readyz")
    assert {name for name, *_ in pombo.webhook.store.calls} <= {"ping"}
    is_signed = request.header(HEADERS[0]) == signed(request.body)
    if (request.path, request.method) == (PATH, "POST") and status != 400:
        assert (status == 200) is is_signed
    if (request.path, request.method, status) == (PATH, "GET", 200):
        assert f"hub.verify_token={parts.WORD}" in unquote_plus(request.query)
        assert "hub.mode=subscribe" in unquote_plus(request.query)
    check_log(pombo.logged())


def test_only_a_signed_request_is_accepted(pombo: Pombo, hunt: Hunt) -> None:
    hunt(lambda request: check_request(pombo, request), requests, quick=300)


# ---- tasks


def bodies_of_tasks() -> tuple[Any, ...]:
    known = Task(key_of("wamid.of.a.task"), Kind.INBOUND, "correlation-1", 0)
    reply = replace(known, key=outbound_key(known.key, 0), kind=Kind.OUTBOUND)
    return tuple(task_body(replace(task, hop=hop)) for task in (known, reply) for hop in (0, 7))


@st.composite
def mutated_tasks(draw: st.DrawFn) -> bytes:
    random = draw(mutation.randoms)
    seeds = bodies_of_tasks()
    document = mutation.mutated(random.choice(seeds), random, seeds, most=2)
    text = mutation.dumped(document, random)
    return mutation.corrupted(text, random) if random.random() < 0.2 else text


tasks = st.builds(
    Request,
    st.sampled_from(["POST"] * 8 + ["GET", "OPTIONS"]),
    st.sampled_from(["/internal/process_inbound", "/internal/process_outbound"]) | near("/internal/sweep"),
    st.just(""),
    st.builds(
        lambda one, other: other | one, near(parts.TOKEN).map(lambda token: {"X_INTERNAL_TOKEN": token}), headers
    ),
    mutated_tasks(),
)


def check_task(pombo: Pombo, request: Request) -> None:
    pombo.internal.store.calls.clear()
    status, body = request.send(pombo.tasks)
    assert status < 500 or json.loads(body) == {"error": "store_unavailable"}
    assert isinstance(json.loads(body), dict) or request.method == "HEAD"
    if request.header("X_INTERNAL_TOKEN") != parts.TOKEN:
        assert status in (400, 403, 404, 405)
        assert pombo.internal.store.calls == []
    pombo.provider.sent.clear()
    check_log(pombo.logged())


def test_only_a_valid_task_is_run(pombo: Pombo, hunt: Hunt) -> None:
    assert pombo.post(parts.post(text("wamid.of.a.task"))) == 200
    hunt(lambda request: check_task(pombo, request), tasks, quick=200)
