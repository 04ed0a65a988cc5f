"""Every parser of what comes from outside, by itself: it raises what it promises to raise and nothing else, and what it
gives can be held by every store, shown, and sent on.
"""

import json
import math
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud.firestore_v1 import types
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from werkzeug.datastructures import Headers

from services.internal.callers import ISSUERS, Callers
from shared import config, logs
from shared.channels.meta import webhook
from shared.channels.meta.channel import MetaChannel
from shared.channels.meta.requests import request_body
from shared.domain.deadline import Deadline
from shared.domain.errors import Forbidden, ItemUnparsable, TaskInvalid, UnknownState
from shared.domain.events import Parsed, ReceiptReceived
from shared.domain.identity import Echo, parse_echo
from shared.domain.limits import Limits, PostTimes
from shared.domain.messages import Contact, Drop, Message, to_json
from shared.domain.outbound.messages import InvalidReply, OutboundMessage, PlanItem
from shared.domain.record import Delivery, Kind, Task
from shared.domain.send_errors import SendError
from shared.domain.tasks import VERSION, parse_task, task_body
from shared.handlers.url import Backend
from shared.net import bounded_json
from shared.net.bounded_http import HttpResponse, Unread
from shared.net.retry_after import LONGEST
from shared.pipeline.accept import Accept
from shared.pipeline.channels import Channels
from shared.pipeline.clock import SystemClock
from shared.pipeline.intake import Created, Exists, Incoming, NotedReceipt
from shared.pipeline.ports import HandlerCall, HandlerFault
from shared.stores.codec import decode, encode, from_json
from shared.stores.codec import to_json as stored_text
from shared.stores.firestore import records as documents
from shared.stores.records import id_hash_of
from shared.stores.redis import records as redis_records
from shared.tenants.environment import EnvironmentTenants
from tests.fuzz import corpus, mutation
from tests.fuzz.hunt import Hunt
from tests.services.test_callers import AUDIENCE, GOOGLE, TASKS
from tests.services.test_callers import TOKEN as CALLERS_TOKEN
from tests.support import event_loop, parts
from tests.support.builders import leased
from tests.support.event_loop import Asynchronous

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
DOCUMENT_BYTES = 1024 * 1024
"""Of a document in Firestore: https://cloud.google.com/firestore/quotas (seen November 2026)."""

MESSAGE = Message("text", "hello", "wamid.1", Contact("15550002222", "15550002222"), "1", "default", NOW)
CALL = HandlerCall("e" * 40, "corr_0001", 1, MESSAGE)


@st.composite
def mutants(draw: st.DrawFn, seeds: Callable[[], tuple[Any, ...]]) -> bytes:
    """The text of one of the seeds, mutated as a document or as bytes."""
    random = draw(mutation.randoms)
    seed = random.choice(seeds())
    if random.random() < 0.25:
        return mutation.corrupted(mutation.dumped(seed, random), random)
    return mutation.dumped(mutation.mutated(seed, random, seeds()), random)


def check_storable(value: Any, depth: int = 0) -> None:
    """Of JSON, and no more than any store can hold."""
    assert depth <= bounded_json.DEEPEST
    match value:
        case str():
            assert "\x00" not in value
            value.encode()
        case bool() | None | float():
            assert value is None or math.isfinite(value)
        case int():
            assert -(2**63) <= value < 2**63
        case list():
            for held in value:
                check_storable(held, depth + 1)
        case _:
            assert isinstance(value, dict)
            for key, held in value.items():
                check_storable(key)
                check_storable(held, depth + 1)


# ---- JSON


def check_json(body: bytes) -> None:
    try:
        value = bounded_json.loads(body)
    except bounded_json.NotJson:
        return
    check_storable(value)
    text = bounded_json.dumps(value).encode()
    assert len(text) == bounded_json.size(value)
    assert bounded_json.loads(text) == value


def test_any_text_is_storable_json_or_none(hunt: Hunt) -> None:
    hunt(check_json, mutants(corpus.webhooks) | st.binary(max_size=200), quick=300)


# ---- webhooks


@dataclass
class Kept:
    """A store that keeps what it is given."""

    records: dict[str, Delivery] = field(default_factory=dict)
    echoed: list[tuple[Echo, ReceiptReceived]] = field(default_factory=list)
    unechoed: list[ReceiptReceived] = field(default_factory=list)

    def create(self, record: Delivery) -> Created | Exists:
        before = self.records.setdefault(record.key, record)
        return Created() if before is record else Exists(before)

    def create_all(self, records: Sequence[Delivery], _: Deadline) -> list[Created | Exists]:
        return [self.create(record) for record in records]

    def note_receipts(self, receipts: Sequence[NotedReceipt], _: Deadline) -> list[bool]:
        for echo, receipt in receipts:
            if echo:
                self.echoed.append((echo, receipt))
            else:
                self.unechoed.append(receipt)
        return [True] * len(receipts)


@dataclass(frozen=True)
class Unsigned:
    """The Meta channel without its first look."""

    provider = "meta"
    has_public_sender_ids = True

    def verify(self, incoming: Incoming) -> None:
        pass

    def parse(self, incoming: Incoming) -> Parsed:
        return webhook.parse(incoming.body)


META = MetaChannel(app_secrets=(), base_url="", version="v25.0", post=PostTimes())


def check_records(body: bytes) -> None:
    kept: Any = Kept()
    unsigned: Any = Unsigned()
    accept = Accept(
        store=Asynchronous(kept),
        queue=Asynchronous(parts.NoQueue()),
        tenants=EnvironmentTenants.of(("meta", parts.SENDER)),
        channels=Channels({"meta": unsigned}),
        limits=LIMITS,
        clock=SystemClock(),
    )
    event_loop.run(accept(parts.incoming(body, "")))
    for record in kept.records.values():
        check_stores_agree(record)
        check_reading(record)
    for echo, receipt in kept.echoed:
        assert parse_echo(str(echo)) == echo
        check_receipt(receipt, echo)
    for receipt in kept.unechoed:
        check_receipt(receipt, None)


def check_stores_agree(record: Delivery) -> None:
    """What each back end writes down is what it reads again."""
    assert decode(from_json(stored_text(encode(record)))) == record
    key, _, version, _, _, *row = redis_records.creation(record, 1, NOW)
    assert all(isinstance(value, str | int) for value in (key, *row))
    flat = ["body", str(row[1]), "version", str(version)]
    found = redis_records.as_stored([flat, []])
    assert found is not None
    assert found.record == record
    update = documents.creating(record)["update"]
    document = types.Document.pb(types.Document(update | {"update_time": Timestamp(seconds=1)}))
    assert document.ByteSize() < DOCUMENT_BYTES
    assert documents.record_of(documents.document_of(document)) == record


def check_receipt(receipt: ReceiptReceived, echo: Echo | None) -> None:
    id_hash = id_hash_of(receipt)
    if echo is None:
        redis_records.noted_unechoed(receipt, id_hash, LIMITS.receipt_retention)
        documents.noting_unechoed(receipt.kind, receipt.at, receipt.code, id_hash, NOW)
        return
    _, name, text, *_ = redis_records.noted(echo, receipt, id_hash)
    (round_, noted) = redis_records._echoed(str(name), str(text))
    assert (round_, getattr(noted, receipt.kind), noted.failed_code) == (echo.round, receipt.at, receipt.code)
    documents.noting(echo.key, echo.round, receipt.kind, receipt.at, receipt.code, id_hash)


def check_reading(record: Delivery) -> None:
    try:
        message = META.read(record)
    except ItemUnparsable:
        assert record.final, "what was taken for a message is none"
        return
    META.changes(record)
    if message is None:
        return
    check_storable(to_json(message), depth=-10)
    address = META.address(message)
    assert re.fullmatch(r"\+[0-9]{1,20}", address["to"]) if "to" in address else address["recipient"]


def test_any_webhook_is_stored_by_every_store_and_readable(hunt: Hunt) -> None:
    hunt(check_records, mutants(corpus.webhooks), quick=400)


# ---- what Graph answers


@dataclass
class Stub:
    """Stands for the connections: gives this answer."""

    answer: HttpResponse

    def post(self, *_: object) -> HttpResponse:
        return self.answer

    def close(self) -> None:
        pass


def graph_answers() -> tuple[Any, ...]:
    error = {
        "message": "(#131026) Message undeliverable",
        "type": "OAuthException",
        "code": 131026,
        "error_subcode": 33,
        "is_transient": True,
        "error_data": {"messaging_product": "whatsapp", "details": "1555 000 2222"},
        "fbtrace_id": "A",
    }
    contacts = [{"input": "+15550002222", "wa_id": "15550002222"}]
    taken = {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": "wamid.1"}]}
    return (
        taken,
        {"success": True},
        {"error": error},
        {"error": error | {"code": 4}},
        {"error": error | {"code": 190}},
    )


headers = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(mutation.TEXTS)
        | st.text(st.characters(max_codepoint=255), max_size=20)
        | st.sampled_from(
            [
                "120",
                "Wed, 21 Oct 2026 07:28:00 GMT",
                "Mon, 1 Jan 0001 00:00:00 +1400",
                "Fri, 31 Dec 9999 23:59:59 -1400",
            ]
        )
        for name in ("retry-after", "date", "content-encoding")
    },
)


def answers(seeds: Callable[[], tuple[Any, ...]]) -> st.SearchStrategy[HttpResponse]:
    body = mutants(seeds) | st.binary(max_size=50) | st.none()
    status = st.sampled_from([200, 204, 400, 401, 403, 410, 429, 500, 503]) | st.integers(100, 999)
    return st.builds(HttpResponse, status, headers, body, st.sampled_from(Unread))


def check_send(answer: HttpResponse) -> None:
    channel = MetaChannel(app_secrets=(), base_url="http://graph", version="v25.0", post=PostTimes())
    channel._poster = Stub(answer)  # type: ignore[assignment]
    payload = {"type": "text", "content": {"body": "hello"}, "to": "+15550002222"}
    try:
        check_storable(channel.send(leased(payload=payload), Echo("0" * 40, 0, "corr_0001"), "token"))
        assert 200 <= answer.status < 300
        return
    except SendError as raised:
        error = raised
    assert error.verdict.label
    assert error.provider_code is None or abs(error.provider_code) < 10**9
    assert error.retry_after is None or timedelta() <= error.retry_after <= LONGEST


def test_any_answer_of_graphs_has_a_verdict(hunt: Hunt) -> None:
    hunt(check_send, answers(graph_answers), quick=300)


# ---- what a backend answers


def backend_answers() -> tuple[Any, ...]:
    made = [
        OutboundMessage.text("hello", preview_url=True, reply_to="wamid.1"),
        OutboundMessage.image("https://example.com/a.jpg", caption="a"),
        OutboundMessage.document(id="1", filename="a.pdf"),
        OutboundMessage.location(1.5, -1.5, name="here"),
        OutboundMessage.contacts({"Ana Exemplo": "+15550002222"}),
        OutboundMessage.buttons("which?", {"a": "A", "b": "B"}, header="h", footer="f"),
        OutboundMessage.list("which?", "open", {"one": [("a", "A", "aa")], "two": ["B"]}),
        OutboundMessage.cta_url("see", "open", "https://example.com/"),
        OutboundMessage.template("t", "en", {"name": "Ana"}),
        OutboundMessage.reaction("wamid.1", "👍"),
        OutboundMessage.typing("wamid.1"),
    ]
    replies = [{"type": one.type, "content": one.content, "reply_to": one.reply_to} for one in made]
    return (*({"replies": [reply]} for reply in replies), {"replies": ["hello", *replies]}, {"reason": "not for us"})


def check_sentence(said: str) -> None:
    """It is stored, and shown."""
    check_storable(said)
    assert 0 < len(said) < 500


def check_backend(answer: HttpResponse) -> None:
    backend = Backend(
        "http://backend",
        secrets=("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",),
        timeout=timedelta(seconds=1),
        connect=timedelta(seconds=1),
        connections=1,
        max_replies=30,
        now=lambda: NOW,
    )
    backend._poster = Stub(answer)  # type: ignore[assignment]
    replies: list[PlanItem] = []
    try:
        replies = backend(CALL)
    except Drop as drop:
        check_storable(drop.reason)
    except HandlerFault as fault:
        check_sentence(str(fault))
    assert len(replies) <= 30
    for reply in replies:
        if isinstance(reply, InvalidReply):
            check_sentence(reply.sentence)
            check_storable(reply.given, depth=-10)
            continue
        payload = {"type": reply.type, "content": reply.content, "reply_to": reply.reply_to, "to": "+15550002222"}
        check_storable(payload, depth=-10)
        assert isinstance(json.loads(request_body(payload, Echo("0" * 40, 0, "corr_0001"))), dict)


def test_any_answer_of_a_backend_is_sendable_replies_or_a_sentence(hunt: Hunt) -> None:
    hunt(check_backend, answers(backend_answers), quick=300)


# ---- tasks, echoes, traces


def tasks() -> tuple[Any, ...]:
    task = Task("0e" * 20, Kind.INBOUND, "corr_0001", 2, 3)
    two = (task_body(task), task_body(replace(task, kind=Kind.OUTBOUND)))
    return (*two, *({**body, "v": 1} for body in two))


def check_task(body: bytes) -> None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    for kind in Kind:
        try:
            task = parse_task(kind, document)
        except (TaskInvalid, UnknownState) as error:
            check_sentence(error.sentence)
            continue
        told = task_body(task)
        if document["v"] == 1:  # which says the same, and names no tenant
            assert (told.pop("tenant"), told.pop("v")) == ("", VERSION)
        assert told.items() <= document.items()
        assert re.fullmatch(r"[0-9a-f]{40}", task.name)


def test_any_body_is_a_valid_task_or_none(hunt: Hunt) -> None:
    hunt(check_task, mutants(tasks), quick=200)


def check_words(text: str) -> None:
    echo = parse_echo(text)
    assert echo is None or str(echo) == text
    for name in ("traceparent", "x-cloud-trace-context"):
        given = {name: text}
        trace = logs.trace_of(lambda header, default, given=given: given.get(header, default), "p")
        assert trace is None or re.fullmatch(r"projects/p/traces/[0-9a-f]{32}", trace)


def test_any_text_is_a_valid_echo_and_trace_or_none(hunt: Hunt) -> None:
    seeds = (f"pombo1.{'0f' * 20}.12.corr_0001", f"00-{'0f' * 16}-b7ad6b7169203331-01", f"{'0f' * 16}/1;o=1")
    near = st.builds(
        lambda seed, random: mutation.corrupted(seed.encode(), random).decode("latin-1"),
        st.sampled_from(seeds),
        mutation.randoms,
    )
    hunt(check_words, near | st.text(), quick=200)


# ---- bearer tokens

CLAIMS = {"iss": "https://accounts.google.com", "aud": AUDIENCE, "email": TASKS, "email_verified": True, "sub": "1"}


def part_of_token(text: bytes) -> bytes:
    return urlsafe_b64encode(text).rstrip(b"=")


@st.composite
def tokens(draw: st.DrawFn) -> bytes:
    """A token whose header or claims are mutated before Google signs them, or whose text is broken after it."""
    random = draw(mutation.randoms)
    head: Any = {"typ": "JWT", "alg": "RS256", "kid": "one"}
    claims: Any = CLAIMS | {"iat": int(time.time()), "exp": int(time.time()) + 600}
    donors = (head, claims, *mutation.OTHERS)
    match random.randrange(4):
        case 0:
            head = mutation.mutated(head, random, donors)
        case 1 | 2:
            claims = mutation.mutated(claims, random, donors)
    signed = b".".join(part_of_token(mutation.dumped(part, random)) for part in (head, claims))
    token = signed + b"." + part_of_token(GOOGLE.signer.sign(signed))
    return mutation.corrupted(token, random, most=1) if random.random() < 0.3 else token


def check_token(callers: Callers, token: bytes) -> None:
    given = {"X-Internal-Token": CALLERS_TOKEN, "Authorization": f"Bearer {token.decode('latin-1')}"}
    try:
        callers.check_task(Headers({name: re.sub(r"[\r\n]", "", value) for name, value in given.items()}))
    except Forbidden:
        return
    claims = json.loads(urlsafe_b64decode(token.split(b".")[1] + b"=="))
    assert claims.items() >= (CLAIMS.items() - {("iss", CLAIMS["iss"]), ("sub", "1")})
    assert claims["iss"] in ISSUERS
    assert claims["exp"] > time.time() - 60


def test_only_a_google_token_for_our_own_account_is_accepted(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "INTERNAL_TASK_TOKEN": CALLERS_TOKEN,
        "INTERNAL_TASK_BASE_URL": AUDIENCE,
        "TASKS_SERVICE_ACCOUNT": TASKS,
    }
    callers = Callers(config.load(given, config.INTERNAL))
    monkeypatch.setattr(callers._certificates, "holding", lambda _: GOOGLE.certificate)
    hunt(lambda token: check_token(callers, token), tokens(), quick=200)


def test_only_our_own_account_is_accepted_behind_iam(hunt: Hunt) -> None:
    given = {
        "INTERNAL_TASK_TOKEN": CALLERS_TOKEN,
        "INTERNAL_TASK_BASE_URL": AUDIENCE,
        "TASKS_SERVICE_ACCOUNT": TASKS,
    }
    told = config.load(given, config.INTERNAL)
    callers = Callers(replace(told, values={**told.values, "TRUST_CLOUD_RUN_IAM": True}))
    unsigned = tokens().map(lambda token: token.rpartition(b".")[0] + b".SIGNATURE_REMOVED_BY_GOOGLE")
    hunt(lambda token: check_token(callers, token), unsigned, quick=200)
