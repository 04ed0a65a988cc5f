"""A sender that may not send: by an answer or by a failed receipt, until when, and which message tries it again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.events import ReceiptBlock
from shared.domain.identity import Echo, sender_id
from shared.domain.listings import Listing
from shared.domain.marks import Block
from shared.domain.record import Delivery, State, Task
from tests.support import parts
from tests.support.internal_service import Make, Service, at_once, meet, told
from tests.support.parts import NOW, SENDER, WebhookParts, a_reply, error, post, receipt

TEN_MINUTES, TWO_HOURS = timedelta(minutes=10), timedelta(hours=2)


# ---- who probes


def test_end_of_a_block_elects_one_probe_among_ten_tasks(service: Service, provider: parts.Provider) -> None:
    service.use_credential()
    parts.put_marks(service.internal.store.port, block=Block(NOW, TEN_MINUTES, 131048))
    records = [service.put(a_reply(number)) for number in range(10)]
    provider.answers.append(error(131048, 403))
    meet(service.internal, "marks", 10)

    at_once([lambda record=record: service.internal.parts.process_outbound(Task.of(record)) for record in records])

    assert len(provider.requests) == 1, "a retry makes this block worse"
    block = service.marks.block
    assert block == Block(NOW + 2 * TEN_MINUTES, 2 * TEN_MINUTES, 131048), "no probe shortens the wait"
    waits = [at for task, at in service.made if task.hop == 1]
    assert waits == [NOW + timedelta(seconds=15)] * 9, "they look again while the probe is on its way"


def test_accepted_probe_lifts_a_block_for_all(service: Service, provider: parts.Provider) -> None:
    parts.put_marks(service.internal.store.port, block=Block(NOW, TEN_MINUTES, 368))
    for number in range(3):
        assert service.arrive(service.put(a_reply(number))) == (200, {"state": "done"})
    assert service.marks.block is None
    assert service.asked_of(provider) == ["text"] * 3, "the message itself is the probe"


@pytest.mark.parametrize("code", [3, 10, 200, 299, 131005])
def test_denied_access_is_retried_after_two_hours_by_one_message(
    service: Service, provider: parts.Provider, code: int
) -> None:
    provider.answers += [error(code, 403), error(code, 403)]
    records = [service.put(a_reply(number)) for number in range(4)]
    service.arrive(records[0])
    service.internal.clock.go(TWO_HOURS.total_seconds() - 1)
    assert service.arrive(records[1]) == (200, {"state": "waiting"})
    assert service.made[-1][1] == NOW + TWO_HOURS, "no hop goes past the end"
    service.internal.clock.go(1)
    meet(service.internal, "marks", 3)

    at_once([lambda one=one: service.internal.parts.process_outbound(Task.of(one)) for one in records[1:]])

    assert len(provider.requests) == 2
    refused = service.marks.refused
    assert refused is not None
    assert (refused.code, refused.since, refused.until) == (code, NOW + TWO_HOURS, NOW + 2 * TWO_HOURS)
    service.internal.store.after = lambda *_: None
    service.internal.clock.go(TWO_HOURS.total_seconds())
    assert service.arrive(service.put(a_reply(5))) == (200, {"state": "done"}), "the permission was granted"
    assert service.marks.refused is None
    assert service.internal.store.port.backlog().counts.get(State.DEAD, 0) == 0


@pytest.mark.parametrize("code", [0, 102, 190, 467])
def test_revoked_credential_is_never_retried(service: Service, provider: parts.Provider, code: int) -> None:
    provider.answers.append(error(code, 401))
    service.arrive(service.put(a_reply(1)))
    other = service.put(a_reply(2, give_up_at=NOW + timedelta(days=30)))
    for _ in range(5):
        service.internal.clock.go(TWO_HOURS.total_seconds())
        assert service.arrive(other) == (200, {"state": "waiting"})
    assert len(provider.requests) == 1


def test_first_send_with_a_credential_notes_it_once_and_ends_a_block(make: Make, provider: parts.Provider) -> None:
    service = make()
    service.arrive(service.put(a_reply(1)))
    service.arrive(service.put(a_reply(2)))
    before = service.marks.credential
    assert before is not None
    assert before.since == NOW
    assert len(service.internal.store.asked("change_marks")) == 1
    parts.put_marks(service.internal.store.port, block=Block(NOW + TWO_HOURS, TWO_HOURS, 368))

    reconnected = make(WHATSAPP_ACCESS_TOKEN="another-token")
    reconnected.internal.clock.go(60)

    assert reconnected.arrive(reconnected.put(a_reply(3))) == (200, {"state": "done"})
    after = reconnected.marks
    assert after.block is None
    assert after.credential is not None
    assert (after.credential.since, after.credential.previous) == (NOW + timedelta(minutes=1), before.fingerprint)
    service.arrive(service.put(a_reply(4)))
    assert service.marks.credential == after.credential, "an instance of the revision before changes nothing"


# ---- what a failed receipt says


@contextmanager
def a_webhook(directory: Path) -> Iterator[WebhookParts]:
    webhook = parts.webhook_parts(directory, queue=parts.NoQueue())
    yield webhook
    webhook.close()


def failed(record: Delivery, code: int, at: datetime = NOW, **fields: Any) -> dict[str, Any]:
    """The item of a failed receipt."""
    echo = str(Echo(record.key, record.round, record.correlation_id))
    errors = [{"code": code, "title": "refused"}]
    moment = {"timestamp": str(int(at.timestamp())), "biz_opaque_callback_data": echo}
    return receipt(f"wamid.sent.{record.key}", "failed", errors=errors, **moment, **fields)


def deliver(webhook: WebhookParts, *items: dict[str, Any]) -> None:
    body = post(statuses=items)
    webhook.accept(parts.incoming(body))


def sent(service: Service, count: int, first: int = 0) -> list[Delivery]:
    records = [service.put(a_reply(number)) for number in range(first, first + count)]
    assert {service.arrive(record)[1]["state"] for record in records} == {"done"}
    return [service.get(record) for record in records]


@pytest.mark.parametrize(("code", "per_post"), [(131042, 20), (131042, 5), (190, 20)])
def test_failed_receipts_about_the_sender_block_it(
    service: Service, provider: parts.Provider, tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int,
    per_post: int,
) -> None:  # fmt: skip
    """20 messages that were accepted: never needs_reauth, not even by code 190."""
    records = sent(service, 20)
    later = NOW + timedelta(seconds=30)
    with a_webhook(tmp_path) as webhook:
        for first in range(0, 20, per_post):
            deliver(webhook, *(failed(record, code, later) for record in records[first : first + per_post]))
        noted = webhook.store.asked("note_receipt_block")
    assert len(noted) == 20 // per_post, "one write per sender and POST"
    assert {id for id, _ in noted} == {sender_id("meta", SENDER)}
    assert service.marks.receipt_block == replace(noted[-1][1], key=service.marks.receipt_block.key)
    lines = told(capfd, "receipt_failed", "receipt_applied")
    assert [(line["event"], line["code"], line["severity"]) for line in lines] == [
        ("receipt_failed", code, "WARNING")
    ] * 20
    swept = service.internal.parts.sweep()
    assert (swept.receipts_failed, swept.dead) == (20, 0)
    (checked,) = told(capfd, "sender_checked")
    assert (checked["connected"], checked["reason"], checked["severity"]) == (0, "blocked", "WARNING")

    service.internal.clock.go(60)
    waiting = service.put(a_reply(21))
    assert service.arrive(waiting) == (200, {"state": "waiting"})

    assert len(provider.requests) == 20
    block = service.marks.block
    until = NOW + timedelta(seconds=60) + TEN_MINUTES
    assert block == Block(until, TEN_MINUTES, code, by_receipt=True)
    assert (service.marks.receipt_block, service.marks.refused) == (None, None)
    blocked, waits = told(capfd, "sender_blocked", "outbound_waiting", "tenant_needs_reauth")
    assert (blocked["severity"], blocked["code"], blocked["by"], blocked["phone_number_id"]) == (
        *("ERROR", code, "receipt"),
        SENDER,
    )
    assert waits["reason"] == "blocked"
    service.internal.parts.sweep()
    (checked,) = told(capfd, "sender_checked")
    assert (checked["connected"], checked["reason"]) == (0, "blocked")


def test_only_the_first_send_accepted_after_the_confirmation_lifts_a_receipts_block(
    service: Service, provider: parts.Provider, tmp_path: Path
) -> None:
    """131042 comes after a 200: an accepted send alone proves little."""
    service.use_credential()
    parts.put_marks(service.internal.store.port, block=Block(NOW, TEN_MINUTES, 131042, by_receipt=True))
    (probe,) = sent(service, 1)
    confirms = NOW + timedelta(seconds=60)
    assert service.marks.block == Block(confirms, TEN_MINUTES, 131042, by_receipt=True, confirming=True)
    waiting = service.put(a_reply(2))
    assert service.arrive(waiting) == (200, {"state": "waiting"})
    assert service.made[-1][1] == confirms

    with a_webhook(tmp_path) as webhook:
        deliver(webhook, failed(probe, 131042, NOW + timedelta(seconds=5)))
    service.internal.clock.go(60)
    assert service.arrive(waiting) == (200, {"state": "waiting"})
    wait = 2 * TEN_MINUTES
    assert service.marks.block == Block(confirms + wait, wait, 131042, by_receipt=True), "the probe failed after all"

    service.internal.clock.go(wait.total_seconds())
    assert service.arrive(waiting) == (200, {"state": "done"})
    assert service.marks.block is not None
    service.internal.clock.go(60)
    sent(service, 1, first=3)
    assert service.marks.block is None
    assert len(provider.requests) == 3


def test_receipt_of_a_message_sent_before_the_credential_in_use_blocks_nothing(
    service: Service, make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = sent(service, 1)[0], None
    reconnected = make(WHATSAPP_ACCESS_TOKEN="another-token")
    reconnected.internal.clock.go(60)
    (new,) = sent(reconnected, 1, first=1)
    with a_webhook(tmp_path) as webhook:
        deliver(webhook, failed(old, 131042, NOW + timedelta(seconds=90)))
        sent(reconnected, 1, first=2)
        assert (reconnected.marks.block, reconnected.marks.receipt_block) == (None, None)
        deliver(webhook, failed(new, 131042, NOW + timedelta(seconds=90)))
    assert reconnected.arrive(reconnected.put(a_reply(3))) == (200, {"state": "waiting"})
    assert len(told(capfd, "sender_blocked")) == 1


@pytest.mark.parametrize("code", [131026, 131047, 131049])
def test_failed_receipt_about_one_message_blocks_no_sender(
    service: Service, tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    (record,) = sent(service, 1)
    with a_webhook(tmp_path) as webhook:
        deliver(webhook, failed(record, code))
        assert webhook.store.asked("note_receipt_block") == []
    assert [line["code"] for line in told(capfd, "receipt_failed")] == [code]
    assert (service.marks.receipt_block, service.marks.block) == (None, None)
    assert service.internal.parts.sweep().receipts_failed == 1


def test_redelivered_failed_receipts_block_no_longer(service: Service, tmp_path: Path) -> None:
    (record,) = sent(service, 1)
    with a_webhook(tmp_path) as webhook:
        deliver(webhook, failed(record, 131042))
        service.arrive(service.put(a_reply(1)))
        before = service.marks.block
        deliver(webhook, failed(record, 131042))
    service.arrive(service.put(a_reply(2)))
    assert service.marks.block == before == Block(NOW + TEN_MINUTES, TEN_MINUTES, 131042, by_receipt=True)
    assert service.marks.receipt_block is None


def test_block_of_a_receipt_is_lost_to_no_other_write(service: Service) -> None:
    """It is written blindly, while a send that knows nothing of it corrects the other marks."""
    service.use_credential()
    parts.put_marks(service.internal.store.port, block=Block(NOW, TEN_MINUTES, 368))
    noted = ReceiptBlock(131042, NOW, None)

    def note_meanwhile(name: str, *_: Any) -> None:
        if name == "change_marks":
            service.internal.store.before = lambda *_: None
            service.internal.store.port.note_receipt_block(sender_id("meta", SENDER), noted)

    service.internal.store.before = note_meanwhile
    service.arrive(service.put(a_reply()))
    assert service.marks.receipt_block == noted


@pytest.mark.parametrize("kind", ["payment", "call", "of_tomorrow"])
@pytest.mark.parametrize("status", ["failed", "delivered", "captured"])
def test_status_of_another_kind_changes_nothing_about_a_message(
    service: Service, tmp_path: Path, kind: str, status: str
) -> None:
    """A payment that failed is no message that failed: its replay would send a second invoice."""
    (record,) = sent(service, 1)
    with a_webhook(tmp_path) as webhook:
        deliver(webhook, {**failed(record, 131042), "type": kind, "status": status, "id": record.provider_id})
        ((created, _),) = webhook.store.asked("create_all")
    assert service.get(record) == record
    assert service.internal.store.port.by_provider_id("meta", "wamid.accepted") == record
    assert list(service.internal.store.port.listed(Listing.REFUSED, None, None, 10).records) == []
    assert service.marks.receipt_block is None
    assert service.internal.parts.sweep().receipts_failed == 0
    news = created[0]
    assert (news.payload["field"], news.payload["value"]["statuses"][0]["type"]) == ("messages", kind)
    assert service.arrive(news) == (200, {"state": "done"})
    assert service.handler.called == []


def test_status_of_type_message_is_a_receipt(service: Service, tmp_path: Path) -> None:
    (record,) = sent(service, 1)
    with a_webhook(tmp_path) as webhook:
        deliver(webhook, {**failed(record, 131026), "type": "message"})
    assert service.get(record).current_receipts.failed_code == 131026
    assert service.get(record).state is State.DONE
