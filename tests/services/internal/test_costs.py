"""What an inbound message and its reply cost where all is well: calls of the store, the queue and the provider."""

from collections import Counter
from pathlib import Path

from shared.domain.identity import outbound_key
from shared.domain.record import Delivery
from shared.domain.tasks import own_task
from tests.support import parts
from tests.support.internal_service import Make, Service
from tests.support.parts import key_of, post, text

WEBHOOK = ["create_all"]
EVENT = ["in_turn", "change", "in_turn", "conversation_entries", "change"]
"""The record and what is in its way, the lease, what was leased at the same time, its conversation, and the end with
the reply.
"""

WITHOUT_TURN = ["get", "change", "conversation_entries", "change"]
"""The record, the lease, its conversation, and the end."""

FIRST_REPLY = ["get", "marks", "change_marks", "change", "change"]
"""The first send with a credential notes it."""

REPLY = ["get", "marks", "get", "change", "change"]
"""The record, the marks of its sender, the message before it to the same contact, the lease and the end."""


def answer_one(service: Service, directory: Path, number: int) -> tuple[list[str], list[str], list[str]]:
    """An inbound message is received, handled and answered: the calls of the store in each of the three."""
    webhook = parts.webhook_parts(directory, queue=parts.NoQueue())
    body = post(text(f"wamid.{number}"))
    webhook.accept(parts.incoming(body))
    webhook.close()
    received = [name for name, *_ in webhook.store.calls]
    event = service.internal.store.port.get(key_of(f"wamid.{number}"))
    handled = calls_of(service, event)
    reply = service.internal.store.port.get(outbound_key(event.key, 0))
    return received, handled, calls_of(service, reply)


def calls_of(service: Service, record: Delivery) -> list[str]:
    service.internal.store.calls.clear()
    assert service.process(own_task(record, None)[0]) == (200, {"state": "done"})
    return [name for name, *_ in service.internal.store.calls]


def test_message_and_reply_cost_no_more_calls_than_without_marks_of_outages(
    service: Service, provider: parts.Provider, tmp_path: Path
) -> None:
    service.handler.answer = lambda _: "hello to you"
    assert answer_one(service, tmp_path, 1) == (
        WEBHOOK,
        EVENT,
        FIRST_REPLY,
    )
    for number in (2, 3):
        service.internal.clock.go(3600)
        assert answer_one(service, tmp_path, number) == (WEBHOOK, EVENT, REPLY)
    assert service.asked_of(provider) == ["text"] * 3, "no probe"
    assert Counter(task.kind for task, _ in service.made) == {"outbound": 3}


def test_mark_of_a_backend_is_read_once_in_five_seconds(make: Make, tmp_path: Path) -> None:
    with parts.a_provider() as backend:
        backend.accepted = (200, {"replies": []})
        secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
        service = make(is_asking=True, HANDLER="", HANDLER_URL=backend.url, HANDLER_URL_SECRET=secret)
        costs = []
        for number in range(4):
            costs.append(calls_of(service, service.put(parts.an_event(number))))
            service.internal.clock.go(2)
        service.internal.parts.handler._code.close()
    with_mark = ["get", "marks", "change", "conversation_entries", "change"]
    assert costs == [with_mark, WITHOUT_TURN, WITHOUT_TURN, with_mark]
    assert len(backend.requests) == 4


def test_receipts_of_a_post_cost_one_call_and_none_for_the_sender(tmp_path: Path) -> None:
    """Delivered or failed for the one message: only what speaks of the sender is a write more."""
    webhook = parts.webhook_parts(tmp_path, queue=parts.NoQueue())
    items = [parts.receipt(f"wamid.{number}") for number in range(3)]
    items.append(parts.receipt("wamid.4", "failed", errors=[{"code": 131026}]))
    items.append(parts.receipt("wamid.5", "failed", errors=[{"code": 131042}]))
    body = post(statuses=tuple(items))
    with parts.logged():
        webhook.accept(parts.incoming(body))
    webhook.close()
    assert Counter(name for name, *_ in webhook.store.calls) == {"note_receipts": 1, "note_receipt_block": 1}
