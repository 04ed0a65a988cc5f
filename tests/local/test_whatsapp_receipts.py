"""What the simulator says about a message it accepted.

Shapes: developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages/status (21 May
2026).
"""

from collections.abc import Iterator

import pytest

from tests.support.whatsapp_harness import BSUID, CUSTOMER, SENDER, Simulator, Webhook, message, running, until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    data_dir = tmp_path_factory.mktemp("simulator")
    with running(data_dir, "--receipt-delays", "0.02,0.12,0.22") as started:
        yield started


@pytest.fixture
def simulator(world: tuple[Simulator, Webhook]) -> Simulator:
    simulator, webhook = world
    simulator.control("DELETE", "faults")
    simulator.quiet()
    webhook.posts.clear()
    return simulator


@pytest.fixture
def webhook(world: tuple[Simulator, Webhook]) -> Webhook:
    return world[1]


def statuses(webhook: Webhook) -> list[dict]:
    return [post.value["statuses"][0] for post in webhook.posts]


def test_an_accepted_message_is_sent_then_delivered_then_read(simulator: Simulator, webhook: Webhook) -> None:
    wamid = simulator.send().json()["messages"][0]["id"]
    simulator.quiet()
    assert webhook.receipts == ["sent", "delivered", "read"]
    assert {status["id"] for status in statuses(webhook)} == {wamid}


def test_every_receipt_is_a_signed_webhook_of_the_sender(simulator: Simulator, webhook: Webhook) -> None:
    simulator.send()
    simulator.quiet()
    assert all(post.is_signed for post in webhook.posts)
    assert {post.value["metadata"]["phone_number_id"] for post in webhook.posts} == {SENDER}
    assert {post.value["messaging_product"] for post in webhook.posts} == {"whatsapp"}


def test_every_receipt_echoes_the_callback_data(simulator: Simulator, webhook: Webhook) -> None:
    simulator.send(biz_opaque_callback_data="pombo1.aa.0.correlation")
    simulator.quiet()
    assert [status["biz_opaque_callback_data"] for status in statuses(webhook)] == ["pombo1.aa.0.correlation"] * 3


def test_without_callback_data_nothing_is_echoed(simulator: Simulator, webhook: Webhook) -> None:
    simulator.send()
    simulator.quiet()
    assert not any("biz_opaque_callback_data" in status for status in statuses(webhook))


def test_a_receipt_names_the_number_and_the_user_id_and_no_profile(simulator: Simulator, webhook: Webhook) -> None:
    """Since April 2026 receipts carry contacts without a profile."""
    simulator.send()
    simulator.quiet()
    (status, *_), (contact,) = statuses(webhook), webhook.posts[0].value["contacts"]
    assert status["recipient_id"] == contact["wa_id"] == CUSTOMER
    assert status["recipient_user_id"] == contact["user_id"]
    assert "profile" not in contact


def test_a_receipt_to_a_bsuid_names_no_number(simulator: Simulator, webhook: Webhook) -> None:
    simulator.send(to=None, recipient=BSUID)
    simulator.quiet()
    assert {status["recipient_user_id"] for status in statuses(webhook)} == {BSUID}
    assert not any("recipient_id" in status for status in statuses(webhook))


def test_a_reaction_is_only_ever_sent(simulator: Simulator, webhook: Webhook) -> None:
    simulator.call(message(reaction={"message_id": "wamid.A", "emoji": "👍"}))
    simulator.quiet()
    assert webhook.receipts == ["sent"]


def test_a_refused_message_has_no_receipt(simulator: Simulator, webhook: Webhook) -> None:
    simulator.call(message(text={}))
    assert simulator.quiet()["pending"] == 0
    assert webhook.posts == []


def test_withheld_receipts_never_come(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="receipt", kind="withhold", match={"to": CUSTOMER})
    simulator.send()
    assert simulator.control("GET", "webhooks")["pending"] == 0
    assert len(simulator.ledger()) >= 1


def test_a_fault_that_names_a_receipt_changes_that_one_alone(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="receipt", kind="withhold", match={"type": "delivered"})
    simulator.send()
    simulator.quiet()
    assert webhook.receipts == ["sent", "read"]


def test_one_receipt_fault_is_for_one_message(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="receipt", kind="withhold")
    simulator.send()
    simulator.send()
    simulator.quiet()
    assert sorted(webhook.receipts) == ["delivered", "read", "sent"]


def test_duplicated_receipts_come_twice(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="receipt", kind="duplicate")
    simulator.send()
    simulator.quiet()
    assert sorted(webhook.receipts) == ["delivered", "delivered", "read", "read", "sent", "sent"]


def test_reordered_receipts_come_backwards(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="receipt", kind="reorder")
    simulator.send()
    simulator.quiet()
    assert webhook.receipts == ["read", "delivered", "sent"]


def test_slow_receipts_come_later(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="receipt", kind="slow", seconds=0.4, match={"type": "sent"})
    simulator.send()
    simulator.quiet()
    assert webhook.receipts == ["delivered", "read", "sent"]


def test_a_message_that_fails_later_is_sent_and_then_failed(simulator: Simulator, webhook: Webhook) -> None:
    """A failed receipt to a number names neither contacts nor a user id (pywa#188, #227)."""
    simulator.fault(on="receipt", kind="error", code=131047)
    simulator.send(biz_opaque_callback_data="echo")
    simulator.quiet()
    assert webhook.receipts == ["sent", "failed"]
    failed = statuses(webhook)[1]
    assert failed["errors"][0]["code"] == 131047
    assert failed["biz_opaque_callback_data"] == "echo"
    assert "recipient_user_id" not in failed
    assert "contacts" not in webhook.posts[1].value


def test_receipts_can_come_before_the_answer(simulator: Simulator, webhook: Webhook) -> None:
    """Users see it happen (postmangovsg#2151)."""
    simulator.fault(on="send", kind="slow", seconds=0.4)
    simulator.send()
    assert "sent" in webhook.receipts
    until(lambda: len(webhook.receipts) == 3, "all three receipts")
