"""One POST with events of several tenants: each event gets its owner's tenant, and none delays another."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.domain.errors import RegistryUnreadable
from shared.domain.events import CHANGED_AT
from shared.domain.record import Delivery, State, Task
from shared.domain.tenants import Sender, Tenant, TenantState
from tests.support import parts
from tests.support.fake_tenants import FakeTenants
from tests.support.parts import STRANGER, WebhookParts, key_of, receipt, text

ACME = Sender("acme", "meta", "100000000000011", account="300000000000031")
GLOBEX = Sender("globex", "meta", "100000000000012", account="300000000000032")
SUSPENDED = Sender("initech", "meta", "100000000000013", account="300000000000033")


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[WebhookParts]:
    with parts.logged():
        webhook = parts.webhook_parts(tmp_path, queue=parts.NoQueue())
        tenants = FakeTenants(
            {
                "acme": Tenant("acme", queue=0),
                "globex": Tenant("globex", queue=1),
                "initech": Tenant("initech", state=TenantState.SUSPENDED),
            },
            [ACME, GLOBEX, SUSPENDED],
        )
        accept = replace(webhook.parts.accept, tenants=tenants)
        yield replace(webhook, parts=replace(webhook.parts, accept=accept))
        webhook.close()


def one_post(*entries: tuple[str, str, Any]) -> bytes:
    """A POST with an entry for each: the account's id, the field and the value."""
    found = [
        {"id": account, "time": 1772366400, "changes": [{"field": field, "value": value}]}
        for account, field, value in entries
    ]
    return json.dumps({"object": "whatsapp_business_account", "entry": found}).encode()


def message_to(number: str, message_id: str) -> tuple[str, str, Any]:
    return "300000000000003", "messages", value_to(number, messages=[text(message_id)])


def value_to(number: str, **given: Any) -> dict[str, Any]:
    return {"messaging_product": "whatsapp", "metadata": {"phone_number_id": number}, **given}


def record_of(webhook: WebhookParts, message_id: str, number: str) -> Delivery:
    found = webhook.store.port.get(key_of(message_id, number))
    assert found is not None
    return found


def tasks(webhook: WebhookParts) -> list[Task]:
    return [task for due, _ in webhook.queue.asked("ensure_all") for task, _ in due]


def test_events_of_one_post_get_the_tenants_of_their_senders(webhook: WebhookParts) -> None:
    """Also the event of a suspended tenant: only its sends wait. One of a stranger is kept apart."""
    numbers = (ACME.provider_id, GLOBEX.provider_id, SUSPENDED.provider_id, STRANGER)
    posted = [message_to(number, f"wamid.{place}") for place, number in enumerate(numbers)]
    webhook.accept(parts.incoming(one_post(*posted)))
    found = [record_of(webhook, f"wamid.{place}", number) for place, number in enumerate(numbers)]
    assert [(record.tenant, record.state) for record in found] == [
        ("acme", State.PENDING),
        ("globex", State.PENDING),
        ("initech", State.PENDING),
        ("", State.DROPPED),
    ]
    assert {task.key for task in tasks(webhook)} == {record.key for record in found[:3]}


def test_unreadable_tenant_keeps_nothing_of_the_others_from_being_stored(webhook: WebhookParts) -> None:
    """Neither an event nor the block that a receipt reports."""
    failed = receipt("wamid.out", "failed", errors=[{"code": 131042}])
    blocks = [("300000000000003", "messages", value_to(one.provider_id, statuses=[failed])) for one in (ACME, GLOBEX)]
    messages = [message_to(ACME.provider_id, "wamid.1"), message_to(GLOBEX.provider_id, "wamid.2")]
    webhook.parts.accept.tenants.unreadable.add("acme")
    for posted in (messages, blocks):
        with pytest.raises(RegistryUnreadable):
            webhook.accept(parts.incoming(one_post(*posted)))
    assert webhook.store.port.get(key_of("wamid.1", ACME.provider_id)) is None
    assert [task.key for task in tasks(webhook)] == [key_of("wamid.2", GLOBEX.provider_id)]
    assert [id for id, _ in webhook.store.asked("note_receipt_block")] == [GLOBEX.id]


def test_one_message_id_at_two_tenants_is_two_events(webhook: WebhookParts) -> None:
    webhook.accept(
        parts.incoming(one_post(message_to(ACME.provider_id, "wamid.1"), message_to(GLOBEX.provider_id, "wamid.1")))
    )
    found = [record_of(webhook, "wamid.1", sender.provider_id) for sender in (ACME, GLOBEX)]
    assert [record.tenant for record in found] == ["acme", "globex"]
    assert found[0].key != found[1].key


def test_news_of_accounts_get_the_tenants_of_the_accounts(webhook: WebhookParts) -> None:
    accounts = (ACME.account, GLOBEX.account, "300000000000039")
    news = [(account, "account_update", {"event": "PARTNER_REMOVED"}) for account in accounts]
    webhook.accept(parts.incoming(one_post(*news)))
    created = [record for records, _ in webhook.store.asked("create_all") for record in records]
    assert [(record.sender, record.tenant, record.state) for record in created] == [
        (ACME.account, "acme", State.PENDING),
        (GLOBEX.account, "globex", State.PENDING),
        ("300000000000039", "", State.DROPPED),
    ]
    assert [record.payload[CHANGED_AT] for record in created] == [1772366400] * 3
