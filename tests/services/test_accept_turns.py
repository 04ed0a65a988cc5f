"""Turns in the webhook service: each message of a contact is stored with its turn and its position in it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.deadline import Deadline
from shared.domain.events import MessageReceived
from shared.domain.record import Delivery
from shared.domain.tenants import DEFAULT_TENANT, Sender, Tenant
from shared.domain.turns import turn_id
from shared.pipeline.accept import New
from tests.support import event_loop, parts
from tests.support.fake_tenants import FakeTenants
from tests.support.parts import NOW, PERSON, SENDER, STRANGER, WebhookParts, key_of, post, text

OTHER = "15550003333"


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[WebhookParts]:
    with parts.logged():
        webhook = parts.webhook_parts(tmp_path, queue=parts.NoQueue(), ID_KEY="a key of this test")
        yield webhook
        webhook.close()


def accepted(webhook: WebhookParts, *messages: Any, to: str = SENDER) -> list[Delivery]:
    """The records of one POST with these messages."""
    webhook.accept(parts.incoming(post(*messages, to=to)))
    return [record_of(webhook, message["id"], to) for message in messages]


def record_of(webhook: WebhookParts, message_id: str, to: str = SENDER) -> Delivery:
    record = webhook.store.port.get(key_of(message_id, to))
    assert record is not None
    return record


def in_order(*records: Delivery) -> bool:
    positions = [record.position or "" for record in records]
    return positions == sorted(positions) and len(set(positions)) == len(positions)


def sent(message_id: str, second: int) -> dict[str, Any]:
    return text(message_id) | {"timestamp": str(1772366400 + second)}


def test_turn_is_of_the_contact_and_of_the_number_that_they_wrote_to(webhook: WebhookParts) -> None:
    one, again, other = accepted(webhook, text("wamid.1"), text("wamid.2"), text("wamid.3", sender=OTHER))
    assert one.turn_id == again.turn_id == turn_id(b"a key of this test", DEFAULT_TENANT, "meta", SENDER, PERSON)
    assert other.turn_id == turn_id(b"a key of this test", DEFAULT_TENANT, "meta", SENDER, OTHER)


def test_turn_is_of_the_tenant_that_has_the_number_now(webhook: WebhookParts) -> None:
    """Else the new tenant of a number would wait for what the former one has not handled."""
    (before,) = accepted(webhook, text("wamid.1"))
    tenants = FakeTenants({"acme": Tenant("acme")}, [Sender("acme", "meta", SENDER)])
    accept = replace(webhook.parts.accept, tenants=tenants)
    (after,) = accepted(replace(webhook, parts=replace(webhook.parts, accept=accept)), text("wamid.2"))
    assert (before.tenant, after.tenant) == ("default", "acme")
    assert after.turn_id == turn_id(b"a key of this test", "acme", "meta", SENDER, PERSON) != before.turn_id


def test_messages_of_one_second_are_in_the_order_of_their_post(webhook: WebhookParts) -> None:
    assert in_order(*accepted(webhook, *(text(f"wamid.{number}") for number in range(20))))


def test_posts_of_one_second_are_in_the_order_in_which_they_came(webhook: WebhookParts) -> None:
    (first,) = accepted(webhook, text("wamid.9"))
    webhook.clock.go(0.001)
    assert in_order(first, *accepted(webhook, text("wamid.1")))


def test_message_that_was_sent_earlier_and_comes_later_is_earlier_in_its_turn(webhook: WebhookParts) -> None:
    (late,) = accepted(webhook, sent("wamid.2", second=8))
    webhook.clock.at = NOW + timedelta(minutes=5)
    (early,) = accepted(webhook, sent("wamid.1", second=7))
    assert in_order(early, late)


def test_redelivered_message_keeps_its_position(webhook: WebhookParts) -> None:
    (before,) = accepted(webhook, text("wamid.1"))
    webhook.clock.at = NOW + timedelta(minutes=5)
    assert accepted(webhook, text("wamid.0"), text("wamid.1"))[1] == before


def test_message_without_a_readable_time_is_in_its_turn_by_when_it_came(webhook: WebhookParts) -> None:
    (first,) = accepted(webhook, text("wamid.1") | {"timestamp": "soon"})
    webhook.clock.at = NOW + timedelta(seconds=1)
    assert in_order(first, *accepted(webhook, text("wamid.0") | {"timestamp": "soon"}))


def test_message_to_an_unknown_number_takes_no_turn(webhook: WebhookParts) -> None:
    (dropped,) = accepted(webhook, text("wamid.1"), to=STRANGER)
    assert (dropped.turn_id, dropped.position) == (None, None)


def test_message_of_nobody_takes_no_turn(webhook: WebhookParts) -> None:
    """Messages that name no contact are no one person's, and must not wait for each other."""
    nobodys = MessageReceived("meta", SENDER, "wamid.1", "", {"item": text("wamid.1")}, NOW)
    deadline = Deadline.of_webhook(webhook.clock.monotonic)
    (made,) = event_loop.run(webhook.parts.accept.mark_if_new([nobodys], deadline))
    assert isinstance(made, New)
    assert (made.record.turn_id, made.record.position) == (None, None)


def test_without_turns_no_message_has_one(tmp_path: Path) -> None:
    webhook = parts.webhook_parts(tmp_path, queue=parts.NoQueue(), TURNS="none")
    (record,) = accepted(webhook, text("wamid.1"))
    webhook.close()
    assert (record.turn_id, record.position) == (None, None)


def test_number_of_a_contact_is_not_in_the_id_of_the_turn(webhook: WebhookParts) -> None:
    (record,) = accepted(webhook, text("wamid.1"))
    assert PERSON not in json.dumps([record.turn_id, record.position])
