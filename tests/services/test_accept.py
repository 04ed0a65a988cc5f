"""Accept: every row of the webhook table with a real store, and what becomes of a POST when a part fails."""

import itertools
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared import logs
from shared.domain.deadline import FAILURE_SECONDS, HEALTHY_SECONDS, Deadline
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import QueueUnavailable, RegistryUnavailable, SignatureInvalid, StoreUnavailable
from shared.domain.events import Parsed
from shared.domain.identity import Echo, change_event_id
from shared.domain.listings import Listing
from shared.domain.record import Delivery, State, Task
from shared.domain.retention import UNKNOWN_SENDER_PAYLOAD_BYTES
from shared.domain.tasks import own_task
from shared.domain.tenants import Tenant
from shared.pipeline.accept import Mark, New, Seen, SeenUnqueued
from shared.pipeline.intake import Addressee, Incoming
from shared.queues.cloud_tasks_intake import TaskRefused
from tests.support import event_loop, parts
from tests.support.parts import NOW, SENDER, STRANGER, WebhookParts, changes, key_of, post, receipt, text


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    with parts.logged():
        yield


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[WebhookParts]:
    webhook = parts.webhook_parts(tmp_path, queue=parts.NoQueue())
    yield webhook
    webhook.close()


def accept(webhook: WebhookParts, body: bytes) -> None:
    webhook.accept(parts.incoming(body))


def record_of(webhook: WebhookParts, message_id: str, to: str = SENDER) -> Delivery:
    record = webhook.store.port.get(key_of(message_id, to))
    assert record is not None
    return record


def put(webhook: WebhookParts, record: Delivery) -> None:
    webhook.store.port.change(record.key, lambda _: Step(Answer(TaskResult.ACK, ""), write=record))


def ensured(webhook: WebhookParts) -> list[Task]:
    """All tasks that the queue was asked for, in order."""
    return [task for due, _ in webhook.queue.asked("ensure_all") for task, _ in due]


# ---- the table, row by row


def test_a_new_message_is_stored_with_its_payload_and_gets_its_task(webhook: WebhookParts) -> None:
    accept(webhook, post(text("wamid.1", "good day")))
    record = record_of(webhook, "wamid.1")
    assert (record.state, record.generation, record.attempt) == (State.PENDING, 0, 0)
    assert (record.tenant, record.sender, record.contact) == ("default", SENDER, parts.PERSON)
    assert record.payload["item"]["text"] == {"body": "good day"}
    assert (record.due_at, record.sweep_at) == (NOW, NOW + timedelta(seconds=30))
    assert ensured(webhook) == [own_task(record, None)[0]]


def test_a_task_is_made_after_the_record_and_for_at_once(webhook: WebhookParts) -> None:
    order: list[str] = []
    webhook.store.before = lambda name, *_: order.append(name)
    webhook.queue.before = lambda name, *_: order.append(name)
    accept(webhook, post(text("wamid.1")))
    assert order == ["create_all", "ensure_all"]
    (((_, due_at),), _) = webhook.queue.asked("ensure_all")[0]
    assert due_at == NOW


@pytest.mark.parametrize("times", [2, 3])
def test_redelivery_before_processing_ensures_the_same_task(webhook: WebhookParts, times: int) -> None:
    for _ in range(times):
        accept(webhook, post(text("wamid.1")))
    assert ensured(webhook) == [own_task(record_of(webhook, "wamid.1"), None)[0]] * times


def test_a_record_that_was_swept_gets_the_task_of_its_generation_when_it_is_due(webhook: WebhookParts) -> None:
    accept(webhook, post(text("wamid.1")))
    swept = replace(record_of(webhook, "wamid.1"), generation=3, due_at=NOW + timedelta(seconds=7))
    put(webhook, swept)
    accept(webhook, post(text("wamid.1")))
    assert webhook.queue.asked("ensure_all")[-1][0] == [own_task(swept, None)]


def test_a_create_that_reports_its_own_write_as_there_already_still_makes_the_task(webhook: WebhookParts) -> None:
    """A client library sends a commit again by itself, and finds what it has written."""

    def write_first(name: str, *given: Any) -> None:
        if name == "create_all":
            webhook.store.port.create_all(*given)

    webhook.store.before = write_first
    accept(webhook, post(text("wamid.1")))
    assert ensured(webhook) == [own_task(record_of(webhook, "wamid.1"), None)[0]]


TOUCHED = [
    {"state": State.PENDING, "attempt": 1},
    {"state": State.LEASED, "attempt": 1, "token": "another", "lease_until": NOW},
    {"state": State.DONE, "plan_size": 0},
    {"state": State.DROPPED, "reason": "spam"},
    {"state": State.DEAD, "reason": "error"},
]


@pytest.mark.parametrize("touched", TOUCHED, ids=lambda fields: str(fields["state"]))
def test_redelivery_after_processing_is_counted_and_changes_nothing(
    webhook: WebhookParts, touched: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    accept(webhook, post(text("wamid.1")))
    before = replace(record_of(webhook, "wamid.1"), **touched)
    put(webhook, before)
    capfd.readouterr()
    accept(webhook, post(text("wamid.1")))
    assert record_of(webhook, "wamid.1") == before
    assert len(ensured(webhook)) == 1
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "inbound_duplicate"]
    assert line["inbound_event_id"] == before.key


def test_a_record_of_a_state_that_a_newer_version_wrote_is_a_duplicate(webhook: WebhookParts, tmp_path: Path) -> None:
    accept(webhook, post(text("wamid.1")))
    with sqlite3.connect(tmp_path / "pombo.sqlite") as db:
        db.execute("UPDATE records SET body = json_set(body, '$.state', 'resting'), state = 'resting'")
    db.close()
    accept(webhook, post(text("wamid.1")))
    assert len(ensured(webhook)) == 1


def test_marker_distinguishes_new_seen_and_seen_unqueued(webhook: WebhookParts) -> None:
    events = webhook.parts.channels["meta"].parse(parts.incoming(post(text("wamid.1")))).events

    def mark() -> Mark | Exception:
        deadline = Deadline.of_webhook(webhook.clock.monotonic)
        (mark,) = event_loop.run(webhook.parts.accept.mark_if_new(events, deadline))
        return mark

    new = mark()
    assert isinstance(new, New)
    assert mark() == SeenUnqueued(record_of(webhook, "wamid.1"))
    put(webhook, replace(new.record, attempt=1))
    assert mark() == Seen(record_of(webhook, "wamid.1"))


def test_message_for_an_unknown_sender_is_stored_and_dropped(webhook: WebhookParts) -> None:
    accept(webhook, post(text("wamid.1", "hello"), to=STRANGER))
    record = record_of(webhook, "wamid.1", STRANGER)
    assert (record.state, record.reason, record.tenant) == (State.DROPPED, "unknown_sender", "")
    assert record.payload["item"]["text"] == {"body": "hello"}
    assert (record.expire_at, record.sweep_at) == (NOW + timedelta(days=8), None)
    assert ensured(webhook) == []


@pytest.mark.parametrize("body", ["x" * 20_000, '"' * 20_000, "\\" * 20_000, "é" * 20_000, "\n" * 20_000])
def test_stored_payload_of_an_unknown_sender_is_bounded(webhook: WebhookParts, body: str) -> None:
    accept(webhook, post(text("wamid.1", body), to=STRANGER))
    kept = record_of(webhook, "wamid.1", STRANGER).payload
    assert len(json.dumps(kept, ensure_ascii=False).encode()) <= UNKNOWN_SENDER_PAYLOAD_BYTES
    assert kept["truncated"].startswith('{"field": "messages"')


@pytest.mark.parametrize(
    "item",
    [
        {"id": "wamid.1", "type": "text", "text": {"body": "from nobody"}},
        {"id": "wamid.1", "from": parts.PERSON},
        {"id": "wamid.1", "from": 5, "type": ["text"]},
        text("wamid.1", "x" * 300_000),
    ],
    ids=["no sender", "no type", "wrong types", "too large"],
)
def test_unreadable_item_is_stored_raw_and_dead(
    webhook: WebhookParts, item: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    value = {"metadata": {"phone_number_id": SENDER}, "messages": [item]}
    accept(webhook, changes(("messages", value)))
    record = record_of(webhook, "wamid.1")
    assert (record.state, record.reason, record.expire_at) == (State.DEAD, "unparsable", None)
    assert "unparsable" in record.payload
    assert len(json.dumps(record.payload)) <= 256 * 1024
    assert ensured(webhook) == []
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "dead_lettered"]
    assert (line["severity"], line["reason"]) == ("ERROR", "unparsable")


def test_item_without_an_id_is_stored_once_by_its_content(webhook: WebhookParts) -> None:
    value = {"metadata": {"phone_number_id": SENDER}, "messages": [{"type": "text", "from": parts.PERSON}]}
    for _ in range(2):
        accept(webhook, changes(("messages", value)))
    assert len({record.key for records, _ in webhook.store.asked("create_all") for record in records}) == 1


def test_an_account_change_is_a_record_with_a_task(webhook: WebhookParts) -> None:
    value = {"event": "PHONE_NUMBER_ADDED"}
    accept(webhook, changes(("account_update", value)))
    record = webhook.store.port.get(change_event_id("meta", "300000000000003", "account_update", value, None))
    assert (record.state, record.tenant, record.payload) == (
        State.PENDING,
        "default",
        {"field": "account_update", "value": value},
    )
    assert ensured(webhook) == [own_task(record, None)[0]]


def test_unknown_field_creates_no_event_and_is_counted(
    webhook: WebhookParts, capfd: pytest.CaptureFixture[str]
) -> None:
    accept(webhook, changes(("something_new", {"a": 1}), ("something_newer", {})))
    assert webhook.store.calls == []
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "webhook_ignored"]
    assert (line["reason"], line["count"]) == ("unknown_field", 2)


@pytest.mark.parametrize(("text_bytes", "beside"), [(10, False), (100_000, True)], ids=["small", "large"])
def test_large_body_is_parsed_beside_the_event_loop(webhook: WebhookParts, text_bytes: int, beside: bool) -> None:
    """A body of 3 MB takes long enough to delay the others."""
    real, parsed_in = webhook.parts.channels["meta"], list[threading.Thread]()

    class Watched:
        provider, has_public_sender_ids = real.provider, True

        def verify(self, incoming: Incoming) -> None:
            real.verify(incoming)

        def parse(self, incoming: Incoming) -> Parsed:
            parsed_in.append(threading.current_thread())
            return real.parse(incoming)

    webhook.parts.channels["meta"] = Watched()  # type: ignore[assignment]
    accept(webhook, post(text("wamid.1", "x" * text_bytes)))
    (thread,) = parsed_in
    assert (thread.name != event_loop.THREAD) is beside
    with pytest.raises(SignatureInvalid):
        webhook.accept(parts.incoming(post(text("wamid.2", "x" * text_bytes)), "sha256=" + "0" * 64))
    assert len(parsed_in) == 1


# ---- receipts


def an_outbound_record(webhook: WebhookParts) -> Delivery:
    accept(webhook, post(text("wamid.1")))
    return record_of(webhook, "wamid.1")


def test_a_receipt_with_our_echo_is_one_write_into_the_record_it_names(webhook: WebhookParts) -> None:
    record = an_outbound_record(webhook)
    webhook.store.calls.clear()
    echo = str(Echo(record.key, 0, record.correlation_id))
    accept(webhook, post(statuses=(receipt("wamid.out", "failed", biz_opaque_callback_data=echo),)))
    assert [name for name, *_ in webhook.store.calls] == ["note_receipts"]
    assert len(ensured(webhook)) == 1
    after = record_of(webhook, "wamid.1")
    assert after.current_receipts.failed is not None
    assert replace(after, receipts={}) == record


def test_a_receipt_of_another_round_does_not_count_for_this_one(webhook: WebhookParts) -> None:
    record = an_outbound_record(webhook)
    echo = str(Echo(record.key, 4, record.correlation_id))
    accept(webhook, post(statuses=(receipt("wamid.out", biz_opaque_callback_data=echo),)))
    assert set(record_of(webhook, "wamid.1").receipts) == {4}
    assert not record_of(webhook, "wamid.1").current_receipts.any


@pytest.mark.parametrize("echo", [None, "somebody else's", "pombo1.short.0.corr_0001"])
def test_a_receipt_without_our_echo_is_found_by_the_providers_id(webhook: WebhookParts, echo: str | None) -> None:
    record = replace(an_outbound_record(webhook), provider_id="wamid.out")
    put(webhook, record)
    extra = {} if echo is None else {"biz_opaque_callback_data": echo}
    accept(webhook, post(statuses=(receipt("wamid.out", "read", **extra),)))
    assert record_of(webhook, "wamid.1").current_receipts.read is not None


def test_a_receipt_that_comes_before_the_id_is_known_is_found_later(webhook: WebhookParts) -> None:
    record = an_outbound_record(webhook)
    accept(webhook, post(statuses=(receipt("wamid.out", "delivered"),)))
    put(webhook, replace(record, provider_id="wamid.out"))
    assert record_of(webhook, "wamid.1").current_receipts.delivered is not None


def test_an_echo_that_names_nothing_is_counted(webhook: WebhookParts, capfd: pytest.CaptureFixture[str]) -> None:
    echo = str(Echo("0" * 40, 0, "corr_0001"))
    accept(webhook, post(statuses=(receipt("wamid.out", biz_opaque_callback_data=echo),)))
    assert "receipt_unknown" in parts.events(capfd.readouterr().out)
    assert webhook.store.port.get("0" * 40) is None


def test_a_receipt_of_a_record_that_has_expired_is_counted_and_brings_nothing_back(
    webhook: WebhookParts, capfd: pytest.CaptureFixture[str]
) -> None:
    record = an_outbound_record(webhook)
    put(webhook, replace(record, state=State.DONE, sweep_at=None, expire_at=NOW))
    webhook.store.port.purge(NOW, 10)
    capfd.readouterr()
    echo = str(Echo(record.key, 0, record.correlation_id))
    accept(webhook, post(statuses=(receipt("wamid.out", biz_opaque_callback_data=echo),)))
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "receipt_unknown"]
    assert (line["delivery"], line["severity"]) == (record.key, "WARNING")
    assert webhook.store.port.get(record.key) is None


def test_receipt_to_an_unknown_number_is_stored_with_the_record_of_its_echo(webhook: WebhookParts) -> None:
    """Nobody is asked whose the number is: it may have been taken away since the message went."""
    record = an_outbound_record(webhook)
    echo = str(Echo(record.key, 0, record.correlation_id))
    statuses = (receipt("wamid.out", biz_opaque_callback_data=echo), receipt("wamid.foreign"))
    webhook.store.calls.clear()
    webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=None))
    accept(webhook, post(statuses=statuses, to=STRANGER))
    assert [name for name, *_ in webhook.store.calls] == ["note_receipts"]
    assert record_of(webhook, "wamid.1").current_receipts.delivered is not None


def test_messages_of_several_numbers_in_one_post_are_distinguished(webhook: WebhookParts) -> None:
    ours, theirs = json.loads(post(text("wamid.1"))), json.loads(post(text("wamid.1"), to=STRANGER))
    ours["entry"] += theirs["entry"]
    accept(webhook, json.dumps(ours).encode())
    assert record_of(webhook, "wamid.1").state is State.PENDING
    assert record_of(webhook, "wamid.1", STRANGER).state is State.DROPPED


# ---- nothing but the signature comes first


@pytest.mark.parametrize("signature", [None, "", "sha256=", "sha256=" + "0" * 64, "sha1=0", "x"])
def test_without_a_signature_nothing_is_read(webhook: WebhookParts, signature: str | None) -> None:
    with pytest.raises(SignatureInvalid):
        webhook.accept(parts.incoming(b"not even json", signature or ""))
    assert webhook.store.calls == webhook.queue.calls == []


# ---- when a part fails

MANY = 40


def many(count: int = MANY) -> bytes:
    return post(*(text(f"wamid.{number}") for number in range(count)))


def keys(count: int = MANY) -> list[str]:
    return [key_of(f"wamid.{number}") for number in range(count)]


def stored(webhook: WebhookParts, among: list[str]) -> set[str]:
    return {key for key in among if webhook.store.port.get(key)}


def assert_all_accepted(webhook: WebhookParts, among: list[str]) -> None:
    assert stored(webhook, among) == set(among)
    assert {task.key for task in ensured(webhook)} >= set(among)


def on_call(method: str, number: int, error: Exception) -> Callable[..., Exception | None]:
    """The error at the n-th call of this method."""
    calls = itertools.count(1)
    return lambda name, *_: error if name == method and next(calls) == number else None


class FailsInTheMiddle:
    """A port whose plural calls go wrong after so many items: the rest of a call fails with the error."""

    def __init__(self, port: Any, after: int, error: Exception) -> None:
        self._port, self._after, self._error = port, after, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def create_all(self, records: Any, deadline: Any) -> list[Any]:
        return self._cut(self._port.create_all, records, deadline)

    def note_receipts(self, receipts: Any, deadline: Any) -> list[Any]:
        return self._cut(self._port.note_receipts, receipts, deadline)

    def ensure_all(self, tasks: Any, deadline: Any) -> list[Any]:
        return self._cut(self._port.ensure_all, tasks, deadline)

    def _cut(self, call: Any, items: Any, deadline: Any) -> list[Any]:
        return [*call(items[: self._after], deadline), *[self._error] * len(items[self._after :])]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("port", "method", "error"),
    [("store", "create_all", StoreUnavailable()), ("queue", "ensure_all", QueueUnavailable())],
    ids=["store", "queue"],
)
def test_single_event_is_refused_in_an_outage_and_accepted_on_redelivery(
    webhook: WebhookParts, port: str, method: str, error: Exception, when: str
) -> None:
    setattr(getattr(webhook, port), when, on_call(method, 1, error))
    with pytest.raises(type(error)):
        accept(webhook, many(1))
    accept(webhook, many(1))
    assert_all_accepted(webhook, keys(1))


@pytest.mark.parametrize("after", [0, 1, MANY // 2, MANY - 1])
@pytest.mark.parametrize(
    ("port", "error"), [("store", StoreUnavailable()), ("queue", QueueUnavailable())], ids=["store", "queue"]
)
def test_failure_at_any_event_refuses_the_post_and_redelivery_completes_it(
    webhook: WebhookParts, port: str, error: Exception, after: int
) -> None:
    whole = getattr(webhook, port).port
    getattr(webhook, port).port = FailsInTheMiddle(whole, after, error)
    with pytest.raises(type(error)):
        accept(webhook, many())
    assert len(stored(webhook, keys())) == (after if port == "store" else MANY)
    getattr(webhook, port).port = whole
    webhook.queue.calls.clear()
    accept(webhook, many())
    assert_all_accepted(webhook, keys())


def test_no_task_is_created_once_the_store_is_unavailable(webhook: WebhookParts) -> None:
    webhook.store.port = FailsInTheMiddle(webhook.store.port, 3, StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        accept(webhook, many())
    assert ensured(webhook) == []


def test_new_events_get_their_tasks_before_those_of_an_earlier_delivery(webhook: WebhookParts) -> None:
    accept(webhook, many(3))
    webhook.queue.calls.clear()
    accept(webhook, many(5))
    assert [task.key for task in ensured(webhook)] == [*keys(5)[3:], *keys(3)]


def test_event_twice_in_a_post_is_stored_and_enqueued_once(
    webhook: WebhookParts, capfd: pytest.CaptureFixture[str]
) -> None:
    accept(webhook, post(text("wamid.1"), text("wamid.2"), text("wamid.1")))
    assert sorted(task.key for task in ensured(webhook)) == sorted([key_of("wamid.1"), key_of("wamid.2")])
    assert parts.events(capfd.readouterr().out).count("inbound_duplicate") == 1


def test_a_duplicate_is_logged_with_the_queue_of_its_tenant(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """That of its first task, whether the event stands twice in a POST, was stored before, or cannot be read here."""

    class Queues(parts.NoQueue):
        def queue_of(self, task: Task) -> str:
            return f"{task.kind}-{task.tenant}"

    webhook = parts.webhook_parts(tmp_path, queue=Queues())
    accept(webhook, post(text("wamid.1"), text("wamid.1")))
    put(webhook, replace(record_of(webhook, "wamid.1"), attempt=1))
    accept(webhook, post(text("wamid.1")))
    with sqlite3.connect(tmp_path / "pombo.sqlite") as db:
        db.execute("UPDATE records SET body = json_set(body, '$.state', 'resting'), state = 'resting'")
    db.close()
    accept(webhook, post(text("wamid.1")))
    webhook.close()
    again = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "inbound_duplicate"]
    assert [line["queue"] for line in again] == ["inbound-default"] * 3


def test_a_receipt_that_cannot_be_written_refuses_the_post(webhook: WebhookParts) -> None:
    webhook.store.before = lambda name, *_: StoreUnavailable() if name.startswith("note") else None
    with pytest.raises(StoreUnavailable):
        accept(webhook, post(statuses=(receipt("wamid.out"),)))


@pytest.mark.parametrize("after", [0, 2])
def test_receipts_that_cannot_be_written_refuse_the_post(webhook: WebhookParts, after: int) -> None:
    webhook.store.port = FailsInTheMiddle(webhook.store.port, after, StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        accept(webhook, post(statuses=tuple(receipt(f"wamid.out.{number}") for number in range(3))))


def test_receipt_that_the_store_cannot_hold_refuses_the_post_after_the_rest(webhook: WebhookParts) -> None:
    """Answered 200, it would be lost: the POST comes again, and the log names the error."""
    note_receipts = webhook.store.port.note_receipts

    def refuse_the_first(receipts: Any, deadline: Any) -> Any:
        return [ValueError("c4n4ry"), *note_receipts(receipts[1:], deadline)]

    webhook.store.port.note_receipts = refuse_the_first
    with pytest.raises(ValueError, match="c4n4ry"):
        accept(webhook, post(text("wamid.1"), statuses=(receipt("wamid.a"), receipt("wamid.b"))))
    assert ensured(webhook) == [own_task(record_of(webhook, "wamid.1"), None)[0]]


def test_receipts_are_stored_even_when_the_queue_is_unavailable(webhook: WebhookParts) -> None:
    record = an_outbound_record(webhook)
    webhook.queue.before = lambda *_: QueueUnavailable()
    echo = str(Echo(record.key, 0, record.correlation_id))
    with pytest.raises(QueueUnavailable):
        accept(webhook, post(text("wamid.2"), statuses=(receipt("wamid.out", biz_opaque_callback_data=echo),)))
    assert record_of(webhook, "wamid.1").current_receipts.delivered is not None


def test_sender_blocks_from_receipts_are_noted_for_our_senders_in_time(
    webhook: WebhookParts,
) -> None:
    """Of a hundred strangers' numbers each would be a write, one after another."""
    failed = {"errors": [{"code": 131042}]}
    both = json.loads(post(statuses=(receipt("wamid.1", "failed", **failed),)))
    for number in range(20):
        strangers = post(statuses=(receipt(f"wamid.{number}", "failed", **failed),), to=f"9000{number:011d}")
        both["entry"] += json.loads(strangers)["entry"]
    body = json.dumps(both).encode()
    accept(webhook, body)
    assert len(webhook.store.asked("note_receipt_block")) == 1
    webhook.queue.before = webhook.store.before = lambda *_: None
    webhook.store.after = lambda name, *_: (
        webhook.clock.go(HEALTHY_SECONDS - FAILURE_SECONDS) if name == "note_receipts" else None
    )
    with pytest.raises(StoreUnavailable, match="too slow"):
        accept(webhook, body)
    assert len(webhook.store.asked("note_receipt_block")) == 1


def test_unreadable_item_belongs_to_the_owner_of_its_account_or_number(webhook: WebhookParts) -> None:
    class Registry:
        async def owners_of(self, addressees: Sequence[Addressee], _: Deadline) -> Sequence[Tenant]:
            return [Tenant("of-the-account" if one.is_account else "of-the-number") for one in addressees]

    webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=Registry()))
    accept(webhook, changes(("messages", [])))
    accept(webhook, post({"type": "text"}))
    listed = webhook.store.port.listed(Listing.DEAD, None, None, 10).records
    owners = {bool(webhook.store.port.get(record.key).payload.get("of_account")): record.tenant for record in listed}
    assert owners == {True: "of-the-account", False: "of-the-number"}


class Owner:
    """A registry in which all numbers belong to one tenant, with this pair of queues."""

    def __init__(self, tenant: str, pair: int | None) -> None:
        self.tenant = Tenant(tenant, queue=pair)

    async def owners_of(self, addressees: Sequence[Addressee], _: Deadline) -> Sequence[Tenant]:
        return [self.tenant] * len(addressees)

    def owns(self, webhook: WebhookParts) -> None:
        webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=self))


@pytest.mark.parametrize("pair", [7, None], ids=["numbered", "shared"])
def test_tasks_of_a_post_go_to_the_pair_of_the_owner(webhook: WebhookParts, pair: int | None) -> None:
    Owner("acme", pair).owns(webhook)
    for _ in ("new", "stored and without a task"):
        accept(webhook, many(2))
    record = record_of(webhook, "wamid.0")
    assert own_task(record, pair)[0] in ensured(webhook)
    assert [(task.tenant, task.pair) for task in ensured(webhook)] == [("acme", pair)] * 4


def test_a_record_of_an_earlier_owner_goes_to_the_shared_queues(webhook: WebhookParts) -> None:
    """Its tenant's pair is not known here, and no other tenant's queue is used for it."""
    Owner("acme", 7).owns(webhook)
    accept(webhook, post(text("wamid.1")))
    Owner("another", 8).owns(webhook)
    accept(webhook, post(text("wamid.1")))
    assert [(task.tenant, task.pair) for task in ensured(webhook)] == [("acme", 7), ("acme", None)]


def test_lines_of_a_post_name_the_queue_of_its_owner(webhook: WebhookParts, capfd: pytest.CaptureFixture[str]) -> None:
    webhook.queue.port.queue_of = lambda task: f"{task.kind}-{task.pair}"  # type: ignore[method-assign]
    Owner("acme", 7).owns(webhook)
    accept(webhook, post(text("wamid.1"), text("wamid.1")))
    put(webhook, replace(record_of(webhook, "wamid.1"), attempt=1))
    accept(webhook, post(text("wamid.1")))
    lines = [line for line in parts.lines(capfd.readouterr().out) if "queue" in line]
    assert [line["event"] for line in lines] == [
        "inbound_new",
        "inbound_duplicate",
        "inbound_enqueued",
        "inbound_duplicate",
    ]
    assert {line["queue"] for line in lines} == {"inbound-7"}


def test_unreadable_entry_of_one_tenant_delays_no_other_tenants_messages(webhook: WebhookParts) -> None:
    class PartlyUnreadable:
        async def owners_of(self, addressees: Sequence[Addressee], _: Deadline) -> Sequence[Tenant | Exception]:
            return [RegistryUnavailable(), *([Tenant("acme", queue=7)] * (len(addressees) - 1))]

    webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=PartlyUnreadable()))
    with pytest.raises(RegistryUnavailable):
        accept(webhook, many(3))
    assert webhook.store.port.get(keys(3)[0]) is None
    assert [(task.tenant, task.pair) for task in ensured(webhook)] == [("acme", 7)] * 2


@pytest.mark.parametrize("count", [1, 5])
def test_unavailable_registry_refuses_the_post_and_stores_nothing(webhook: WebhookParts, count: int) -> None:
    class Away:
        async def owners_of(self, addressees: Sequence[Addressee], _: Deadline) -> Sequence[Exception]:
            return [RegistryUnavailable()] * len(addressees)

    webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=Away()))
    for body in (many(count), changes(*(("account_update", {"a": number}) for number in range(count)))):
        with pytest.raises(RegistryUnavailable):
            accept(webhook, body)
    assert webhook.store.calls == []


def test_unavailable_registry_notes_no_block_and_has_the_receipt_delivered_again(webhook: WebhookParts) -> None:
    class Away:
        async def owners_of(self, addressees: Sequence[Addressee], _: Deadline) -> Sequence[Exception]:
            return [RegistryUnavailable()] * len(addressees)

    webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=Away()))
    with pytest.raises(RegistryUnavailable):
        accept(webhook, post(statuses=(receipt("wamid.1", "failed", errors=[{"code": 131042}]),)))
    assert webhook.store.asked("note_receipt_block") == []


@pytest.mark.parametrize("position", [0, 7, MANY - 1])
def test_an_event_that_the_store_cannot_hold_does_not_stop_the_others(webhook: WebhookParts, position: int) -> None:
    class Refuses(FailsInTheMiddle):
        def _cut(self, call: Any, items: Any, deadline: Any) -> list[Any]:
            made = call([*items[:position], *items[position + 1 :]], deadline)
            return [*made[:position], ValueError("c4n4ry"), *made[position:]]

    webhook.store.port = Refuses(webhook.store.port, 0, ValueError())
    with pytest.raises(ValueError, match="c4n4ry"):
        accept(webhook, many())
    assert_all_accepted(webhook, [key for number, key in enumerate(keys()) if number != position])


def test_an_event_that_cannot_be_made_a_record_does_not_stop_the_others(webhook: WebhookParts) -> None:
    tenants = webhook.parts.accept.tenants

    class Faulty:
        async def owners_of(
            self, addressees: Sequence[Addressee], deadline: Deadline
        ) -> Sequence[Tenant | Exception | None]:
            known = await tenants.owners_of(addressees, deadline)
            canary = ValueError("c4n4ry")
            return [canary if one.id == STRANGER else owner for one, owner in zip(addressees, known, strict=True)]

    webhook.parts = replace(webhook.parts, accept=replace(webhook.parts.accept, tenants=Faulty()))
    both = json.loads(many(3))
    both["entry"] = [*json.loads(post(text("wamid.9"), to=STRANGER))["entry"], *both["entry"]]
    with pytest.raises(ValueError, match="c4n4ry"):
        accept(webhook, json.dumps(both).encode())
    assert_all_accepted(webhook, keys(3))


def test_outage_is_reported_even_beside_an_invalid_event(webhook: WebhookParts) -> None:
    """What can be mended by itself is said: the POST comes again."""
    webhook.store.port = FailsInTheMiddle(webhook.store.port, 3, ValueError())
    webhook.queue.port = FailsInTheMiddle(webhook.queue.port, 1, QueueUnavailable())
    with pytest.raises(QueueUnavailable):
        accept(webhook, many())


def test_outage_is_reported_even_beside_a_refused_task(webhook: WebhookParts) -> None:
    class Refuses(FailsInTheMiddle):
        def _cut(self, *_: Any) -> list[Any]:
            return [TaskRefused(), self._error]

    webhook.queue.port = Refuses(webhook.queue.port, 0, QueueUnavailable())
    with pytest.raises(QueueUnavailable) as raised:
        accept(webhook, many(2))
    assert raised.value.retryable


def test_refused_task_stops_no_block_of_a_sender(webhook: WebhookParts) -> None:
    webhook.queue.port = FailsInTheMiddle(webhook.queue.port, 0, TaskRefused())
    blocked = receipt("wamid.out", "failed", errors=[{"code": 131042}])
    with pytest.raises(TaskRefused):
        accept(webhook, post(text("wamid.1"), statuses=(blocked,)))
    assert len(webhook.store.asked("note_receipt_block")) == 1


def test_slow_post_is_refused_in_time_and_continues_on_redelivery(webhook: WebhookParts) -> None:
    """The first portion of the store's work takes all the time there is."""
    create_all = webhook.store.port.create_all

    def slow(records: Any, deadline: Any) -> Any:
        made = create_all(records[:10], deadline)
        webhook.clock.go(HEALTHY_SECONDS)
        return [*made, *create_all(records[10:], deadline)]

    webhook.store.port.create_all = slow
    with pytest.raises(StoreUnavailable, match="too slow"):
        accept(webhook, many())
    assert stored(webhook, keys()) == set(keys()[:10])
    webhook.store.port.create_all = create_all
    accept(webhook, many())
    assert_all_accepted(webhook, keys())


# ---- many, and at once


def test_three_hundred_events_are_all_stored_and_queued(webhook: WebhookParts) -> None:
    accept(webhook, many(300))
    assert_all_accepted(webhook, keys(300))
    assert len(ensured(webhook)) == 300


def test_the_same_post_many_times_at_once_is_stored_once(webhook: WebhookParts) -> None:
    body, failures = many(10), []

    def deliver() -> None:
        try:
            accept(webhook, body)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=deliver) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {task.name for task in ensured(webhook)} == {
        Task.of(record_of(webhook, f"wamid.{n}")).name for n in range(10)
    }


# ---- what the log says


def test_every_line_of_a_post_belongs_to_its_request(webhook: WebhookParts, capfd: pytest.CaptureFixture[str]) -> None:
    """Whichever thread wrote it."""
    with logs.context(**{"logging.googleapis.com/trace": "projects/p/traces/t"}):
        accept(webhook, many(60))
    found = parts.lines(capfd.readouterr().out)
    assert len(found) == 121
    assert {line.get("logging.googleapis.com/trace") for line in found} == {"projects/p/traces/t"}


def test_a_post_is_logged_with_its_number_of_events_and_its_time(
    webhook: WebhookParts, capfd: pytest.CaptureFixture[str]
) -> None:
    webhook.store.after = lambda *_: webhook.clock.go(0.25)
    accept(webhook, post(text("wamid.1"), text("wamid.2")))
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "webhook_received"]
    assert (line["count"], line["duration_ms"]) == (2, 250.0)


def test_new_event_is_logged_with_its_state_and_reason(
    webhook: WebhookParts, capfd: pytest.CaptureFixture[str]
) -> None:
    accept(webhook, post(text("wamid.1")))
    accept(webhook, post(text("wamid.2"), to=STRANGER))
    found = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "inbound_new"]
    assert [(line["state"], line.get("reason")) for line in found] == [("pending", None), ("dropped", "unknown_sender")]


def test_receipt_without_our_echo_is_logged_as_such(webhook: WebhookParts, capfd: pytest.CaptureFixture[str]) -> None:
    record = an_outbound_record(webhook)
    ours = {"biz_opaque_callback_data": str(Echo(record.key, 0, record.correlation_id))}
    failed = {"errors": [{"code": 131026}]}
    accept(
        webhook,
        post(
            statuses=(
                receipt("wamid.out", **ours),
                receipt("wamid.out", "failed", **ours, **failed),
                receipt("wamid.other"),
                receipt("wamid.other", "failed", **failed),
            )
        ),
    )
    found = [line for line in parts.lines(capfd.readouterr().out) if line["event"].startswith("receipt_")]
    assert [(line["event"], line.get("reason")) for line in found] == [
        ("receipt_applied", None),
        ("receipt_failed", None),
        ("receipt_applied", "no_echo"),
        ("receipt_failed", "no_echo"),
    ]
