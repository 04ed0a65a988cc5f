"""Entries of the registry: what is written is read again, and what a newer version added is kept."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.domain.errors import UnknownState
from shared.domain.limits import DoubtPolicy
from shared.domain.tenants import (
    ApiKey,
    Order,
    Pace,
    QueueUse,
    Scope,
    Sender,
    Tenant,
    TenantHandler,
    TenantState,
)
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite
from shared.tenants import entries
from shared.tenants.entries import Account

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HANDLER = TenantHandler("https://b.example/hook", "pombo-handler-bakery")
TENANTS = {
    "plain": Tenant("bakery"),
    "full": Tenant("bakery", "Ana's", TenantState.SUSPENDED, 0, DoubtPolicy.HOLD, HANDLER, NOW),
}
SENDERS = {
    "plain": Sender("bakery", "meta", "200"),
    "full": Sender("bakery", "meta", "200", "300", "+1 555", "a-secret", Order.SENDER, Pace(0.5, 3), NOW),
}
KEYS = {
    "operator's": ApiKey("k1", None, "ab" * 32, frozenset(Scope), NOW),
    "revoked": ApiKey("k2", "bakery", "ab" * 32, frozenset({Scope.READ_DEAD}), NOW, NOW),
}
WAYS: dict[str, tuple[Any, Any, Any]] = {
    **{f"tenant {name}": (entries.write_tenant, entries.read_tenant, it) for name, it in TENANTS.items()},
    **{f"sender {name}": (entries.write_sender, entries.read_sender, it) for name, it in SENDERS.items()},
    **{f"key {name}": (entries.write_key, entries.read_key, it) for name, it in KEYS.items()},
    "account": (entries.write_account, entries.read_account, Account("meta", "300", "bakery", ("a", "b"))),
    "queue use": (entries.write_queue_use, entries.read_queue_use, QueueUse({0: 2, 19: 1}, 2)),
}
each_value = pytest.mark.parametrize(("write", "read", "value"), WAYS.values(), ids=WAYS.keys())


def stored(write: EntryWrite, version: int = 7) -> Entry:
    assert write.fields is not None
    return Entry(write.name, write.tenant, write.fields, version)


@each_value
def test_value_is_read_as_it_was_written(write: Any, read: Any, value: Any) -> None:
    new = write(value, None)
    assert new.expected is None
    assert read(stored(new)) == value


STORED: dict[str, dict[str, Any]] = {
    "tenant full": {
        "name": "Ana's",
        "state": "suspended",
        "queue": 0,
        "in_doubt": "hold",
        "handler": {"url": "https://b.example/hook", "secret": "pombo-handler-bakery"},
        "created_at": "2026-03-01T12:00:00+00:00",
    },
    "sender full": {
        "provider": "meta",
        "provider_id": "200",
        "account": "300",
        "display": "+1 555",
        "credential": "a-secret",
        "order": "sender",
        "pace": {"per_second": 0.5, "burst": 3},
        "created_at": "2026-03-01T12:00:00+00:00",
    },
    "key revoked": {
        "digest": "ab" * 32,
        "scopes": ["dead:read"],
        "created_at": "2026-03-01T12:00:00+00:00",
        "revoked_at": "2026-03-01T12:00:00+00:00",
    },
    "account": {"provider": "meta", "account": "300", "senders": ["a", "b"]},
    "queue use": {"tenants": {"0": 2, "19": 1}, "active": 2},
}
"""What is in the stores of deployments: a change here loses tenants, numbers and keys."""


@pytest.mark.parametrize("name", STORED)
def test_names_of_stored_fields_are_stable(name: str) -> None:
    write, _, value = WAYS[name]
    assert write(value, None).fields == STORED[name]


@each_value
def test_fields_of_a_newer_version_are_ignored_and_kept(write: Any, read: Any, value: Any) -> None:
    found = stored(write(value, None))
    newer = Entry(found.name, found.tenant, {**found.fields, "newer": {"a": 1}}, 9)
    assert read(newer) == value
    again = write(value, newer)
    assert (again.expected, again.fields["newer"]) == (9, {"a": 1})
    assert {**again.fields, "newer": None} == {**found.fields, "newer": None}


def test_fields_of_a_newer_version_inside_a_handler_are_kept_too() -> None:
    found = stored(entries.write_tenant(TENANTS["full"], None))
    fields = {**found.fields, "handler": {**found.fields["handler"], "newer": 1}}
    again = entries.write_tenant(TENANTS["full"], Entry(found.name, found.tenant, fields, 1))
    assert again.fields is not None
    assert again.fields["handler"]["newer"] == 1


def test_a_value_that_was_removed_leaves_the_entry() -> None:
    found = stored(entries.write_tenant(TENANTS["full"], None))
    again = entries.write_tenant(Tenant("bakery"), found)
    assert entries.read_tenant(stored(again)) == Tenant("bakery")


def test_a_pair_without_tenants_leaves_the_queue_use() -> None:
    found = stored(entries.write_queue_use(QueueUse({0: 1, 1: 1}, 2), None))
    again = entries.write_queue_use(QueueUse({0: 0, 1: 1}, 1), found)
    assert entries.read_queue_use(stored(again)) == QueueUse({1: 1}, 1)


def test_no_queue_use_means_that_no_tenant_was_added() -> None:
    assert entries.read_queue_use(None) == QueueUse()


UNREADABLE: dict[str, tuple[EntryKind, Any]] = {
    "a state of a newer version": (EntryKind.TENANT, {"state": "archived"}),
    "no state": (EntryKind.TENANT, {}),
    "a policy of a newer version": (EntryKind.TENANT, {"state": "active", "in_doubt": "ask"}),
    "a queue that is no number": (EntryKind.TENANT, {"state": "active", "queue": "0"}),
    "a negative queue": (EntryKind.TENANT, {"state": "active", "queue": -1}),
    "a handler that is no object": (EntryKind.TENANT, {"state": "active", "handler": "https://b.example"}),
    "a time without a zone": (EntryKind.TENANT, {"state": "active", "created_at": "2026-03-01T12:00:00"}),
    "a sender without its id": (EntryKind.SENDER, {"provider": "meta"}),
    "an order of a newer version": (EntryKind.SENDER, {"provider": "meta", "provider_id": "2", "order": "account"}),
    "a pace of nothing": (EntryKind.SENDER, {"provider": "meta", "provider_id": "2", "pace": {"per_second": 0}}),
    "a pace without end": (
        EntryKind.SENDER,
        {"provider": "meta", "provider_id": "2", "pace": {"per_second": float("inf")}},
    ),
    "senders that are no list": (EntryKind.ACCOUNT, {"provider": "meta", "account": "3", "senders": "ab"}),
    "a scope of a newer version": (
        EntryKind.KEY,
        {"digest": "ab", "scopes": ["all"], "created_at": "2026-03-01T12:00:00+00:00"},
    ),
    "a key without its time": (EntryKind.KEY, {"digest": "ab", "scopes": [], "created_at": None}),
    "counts below zero": (EntryKind.QUEUE_USE, {"tenants": {"0": -1}, "active": 0}),
    "counts that are no numbers": (EntryKind.QUEUE_USE, {"tenants": {"0": True}, "active": 0}),
}


@pytest.mark.parametrize(("kind", "fields"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_entry_raises_unknown_state(kind: EntryKind, fields: Any) -> None:
    ids = {EntryKind.SENDER: Sender("", "meta", "2").id, EntryKind.ACCOUNT: entries.account_name("meta", "3").id}
    with pytest.raises(UnknownState):
        entries.READERS[kind](Entry(EntryName(kind, ids.get(kind, "x")), "bakery", fields, 1))


@each_value
def test_damaged_entry_raises_unknown_state_and_is_not_written_over(write: Any, read: Any, value: Any) -> None:
    """A store gives it without fields."""
    damaged = Entry(write(value, None).name, "bakery", {}, 1)
    for use in (read, entries.unchanged):
        with pytest.raises(UnknownState):
            use(damaged)


@pytest.mark.parametrize("name", ["sender full", "account"])
def test_entry_under_anothers_name_or_of_nobody_raises_unknown_state(name: str) -> None:
    write, read, value = WAYS[name]
    found = stored(write(value, None))
    for wrong in (replace(found, tenant=""), replace(found, name=EntryName(found.name.kind, "a" * 40))):
        with pytest.raises(UnknownState):
            read(wrong)


def test_names_of_entries_are_the_ids_of_what_they_hold() -> None:
    sender, account = SENDERS["full"], Account("meta", "300", "bakery")
    assert entries.write_tenant(TENANTS["full"], None).name == (EntryKind.TENANT, "bakery")
    assert entries.write_sender(sender, None).name == (EntryKind.SENDER, sender.id)
    assert entries.owned_name(Addressee("meta", "200")) == entries.sender_name(sender.id)
    assert entries.owned_name(Addressee("meta", "300", is_account=True)) == entries.write_account(account, None).name
    assert entries.write_key(KEYS["revoked"], None).name == (EntryKind.KEY, "k2")
    assert entries.QUEUE_USE == (EntryKind.QUEUE_USE, "all")


def test_entries_name_their_owner_for_the_listings() -> None:
    owners = [entries.write_sender(SENDERS["full"], None), entries.write_key(KEYS["revoked"], None)]
    owners += [entries.write_account(Account("meta", "300", "bakery"), None)]
    owners += [entries.write_tenant(TENANTS["full"], None)]
    assert {one.tenant for one in owners} == {"bakery"}
    assert entries.write_key(KEYS["operator's"], None).tenant == ""
