"""The registry checks of pombo doctor: counts of the pairs of queues, and senders that cannot send."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.doctor import registry_checks
from cli.doctor.checks import StoreFailed, Wrong
from cli.doctor.command import examine
from cli.running import Described
from shared.domain.errors import StoreUnavailable
from shared.domain.marks import Block, Credential, RefusedCredential
from shared.domain.tenants import QueueUse, Sender, Tenant, TenantHandler
from shared.operations import registry, senders
from shared.pipeline.registry import EntryWrite
from shared.secrets.file_secrets import FileSecrets
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.entries import (
    QUEUE_USE,
    account_name,
    removal,
    sender_name,
    tenant_name,
    unchanged,
    write_queue_use,
)
from tests.support.parts import LIMITS, NOW, Clock

OURS = Sender("default", "meta", "100")
BLOCKED = {"block": Block(NOW, timedelta(hours=1), 368)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "pombo.sqlite", LIMITS, lambda: NOW)
    yield store
    store.close()


def add(store: SqliteStore, count: int, pairs: int = 20) -> list[Sender]:
    """Tenants with one sender each."""
    added = []
    for number in range(count):
        registry.add_tenant(store, Clock(), Tenant(f"t{number}"), pairs)
        sender = Sender(f"t{number}", "meta", f"20{number}", f"30{number}")
        added.append(senders.add_sender(store, store, Clock(), [OURS], sender))
    return added


def mark(store: SqliteStore, sender: Sender, **marks: Any) -> None:
    store.change_marks(sender.id, lambda before: replace(before, **marks))


def test_empty_registry_is_well(store: SqliteStore) -> None:
    assert registry_checks.registry(store, 20) == "0 tenants beside default (0 active), 0 senders."
    assert registry_checks.senders(store, store, [OURS], None) == "Nothing is known against 1 sender."


def test_tenants_senders_and_the_busiest_pair_are_counted(store: SqliteStore) -> None:
    add(store, 3, pairs=2)
    registry.suspend(store, Clock(), "t1")
    found = registry_checks.registry(store, 2)
    assert found == "3 tenants beside default (2 active), 3 senders, at most 2 on one of 2 pairs of queues."


@pytest.mark.parametrize("wrong", [QueueUse({0: 1, 1: 2}, 2), QueueUse({0: 1, 1: 1}, 1), QueueUse({}, 2)], ids=str)
def test_counts_that_differ_from_a_recount_are_reported(store: SqliteStore, wrong: QueueUse) -> None:
    add(store, 2)
    (found,) = store.entries([QUEUE_USE])
    store.commit_entries([write_queue_use(wrong, found)])
    with pytest.raises(Wrong, match="differ from their tenants"):
        registry_checks.registry(store, 20)


def test_tenant_on_a_pair_that_does_not_exist_is_reported(store: SqliteStore) -> None:
    add(store, 3)
    with pytest.raises(Wrong, match=r"1 tenant of 3 have a pair of queues beyond TENANT_QUEUES \(2\)"):
        registry_checks.registry(store, 2)


def test_doctor_counts_the_pairs_and_senders_of_the_settings(store: SqliteStore, tmp_path: Path) -> None:
    add(store, 3)
    mark(store, OURS, **BLOCKED)
    number = {"TENANT_QUEUES": "2", "WHATSAPP_PHONE_NUMBER_ID": OURS.provider_id}
    environ = {"STORE": "sqlite", "SQLITE_PATH": str(tmp_path / "pombo.sqlite"), **number}
    found = {one.check: one for one in examine(Described(environ, tmp_path / "logs.jsonl", runs=False))}
    assert not found["registry"].ok
    assert "beyond TENANT_QUEUES (2)" in found["registry"].sentence
    assert f"{OURS.id[:8]} of default is blocked" in found["senders"].sentence


def test_entries_that_cannot_be_read_are_named(store: SqliteStore) -> None:
    """Also a sender's: a message to it waits, and nothing else says why."""
    (sender,) = add(store, 1)
    names = [tenant_name("t0"), sender_name(sender.id), account_name("meta", sender.account)]
    for name, found in zip(names, store.entries(names), strict=True):
        assert found
        newer = {"state": "archived", "provider": "meta"}
        assert store.commit_entries([EntryWrite(name, found.tenant, newer, found.version)])
    with pytest.raises(Wrong, match="cannot be read") as wrong:
        registry_checks.registry(store, 20)
    assert all("/".join(name) in str(wrong.value) for name in names)


def test_removal_that_was_interrupted_is_reported(store: SqliteStore) -> None:
    (sender,) = add(store, 1)
    (found,) = store.entries([sender_name(sender.id)])
    assert found
    store.commit_entries([removal(unchanged(found), NOW)])
    with pytest.raises(Wrong, match=f"The removal of 1 sender has not ended: {sender.id[:8]}"):
        registry_checks.registry(store, 20)
    senders.remove_sender(store, store, Clock(), sender.id)
    assert registry_checks.registry(store, 20).startswith("1 tenant beside default (1 active), 0 senders")


def test_senders_that_cannot_send_are_named(store: SqliteStore) -> None:
    first, second, third = add(store, 3)
    mark(store, OURS, **BLOCKED)
    mark(store, first, refused=RefusedCredential("a", 190, NOW))
    mark(store, second, refused=RefusedCredential("a", 190, NOW), credential=Credential("b", NOW))
    mark(store, third, credential=Credential("b", NOW))
    with pytest.raises(Wrong) as wrong:
        registry_checks.senders(store, store, [OURS], None)
    assert str(wrong.value).startswith("2 senders cannot send: ")
    assert f"{OURS.id[:8]} of default is blocked (code 368)" in str(wrong.value)
    assert f"{first.id[:8]} of t0 is needs_reauth (code 190)" in str(wrong.value)
    assert second.id[:8] not in str(wrong.value), "its credential was replaced"


def test_five_of_many_troubled_senders_are_named(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "PAGE", 2)
    for sender in add(store, 7):
        mark(store, sender, **BLOCKED)
    with pytest.raises(Wrong, match=r"^7 senders cannot send: .* and 2 more\. See pombo senders list") as wrong:
        registry_checks.senders(store, store, [OURS], None)
    assert str(wrong.value).count("is blocked") == 5


def test_sender_whose_secret_is_missing_is_named(store: SqliteStore, tmp_path: Path) -> None:
    first, second, third = add(store, 3)
    for sender in (first, second):
        senders.set_sender(
            store, Clock(), sender.id, lambda it: replace(it, credential=f"pombo-credential-{it.tenant}")
        )
    mark(store, second, refused=RefusedCredential("a", 0, NOW))
    mark(store, third, **BLOCKED)
    secrets = FileSecrets(tmp_path / "secrets.json")
    secrets.add("pombo-credential-t0", "token")
    with pytest.raises(Wrong, match=r"^2 senders cannot send: ") as wrong:
        registry_checks.senders(store, store, [OURS], secrets)
    assert f"{second.id[:8]} of t1 has no secret pombo-credential-t1" in str(wrong.value)
    (tmp_path / "secrets.json").chmod(0o644)
    with pytest.raises(Wrong, match="holds secrets, and others may read it"):
        registry_checks.senders(store, store, [OURS], secrets)


def with_handlers(store: SqliteStore, *tenants: str) -> None:
    for tenant in tenants:
        own = TenantHandler(f"https://{tenant}.example/pombo", f"pombo-handler-{tenant}")
        registry.set_tenant(store, Clock(), tenant, lambda it, own=own: replace(it, handler=own))


def test_tenant_whose_handlers_secret_is_missing_is_named(store: SqliteStore, tmp_path: Path) -> None:
    """Its customers' events wait, and only the services' logs say why."""
    add(store, 3)
    with_handlers(store, "t0", "t1")
    secrets = FileSecrets(tmp_path / "secrets.json")
    secrets.add("pombo-handler-t0", "whsec_" + "A" * 32)
    with pytest.raises(Wrong, match=r"^The handlers of 1 tenant cannot be called: ") as wrong:
        registry_checks.registry(store, 20, secrets)
    assert "t1 has no secret pombo-handler-t1" in str(wrong.value)
    assert "pombo tenants set ID --handler-secret -" in str(wrong.value)
    secrets.add("pombo-handler-t1", "whsec_" + "A" * 32)
    assert registry_checks.registry(store, 20, secrets).startswith("3 tenants")
    (tmp_path / "secrets.json").chmod(0o644)
    with pytest.raises(Wrong, match="holds secrets, and others may read it"):
        registry_checks.registry(store, 20, secrets)


def test_doctor_looks_for_the_handlers_secrets_of_a_stack_here(store: SqliteStore, tmp_path: Path) -> None:
    """Elsewhere its user may not be allowed to read them."""
    add(store, 1)
    with_handlers(store, "t0")
    environ = {"STORE": "sqlite", "SQLITE_PATH": str(tmp_path / "pombo.sqlite")}
    for is_local in (True, False):
        there = Described(environ, tmp_path / "logs.jsonl", runs=False, is_local=is_local)
        found = {one.check: one for one in examine(there)}
        assert found["registry"].ok is not is_local


def test_marks_of_what_is_no_sender_are_left_out(store: SqliteStore) -> None:
    mark(store, Sender("", "meta", "999"), **BLOCKED)
    assert registry_checks.senders(store, store, [OURS], None).startswith("Nothing is known")


def test_store_that_is_down_is_a_failed_check() -> None:
    class Down:
        def __getattr__(self, name: str) -> Any:
            raise StoreUnavailable

    down: Any = Down()
    with pytest.raises(StoreFailed):
        registry_checks.registry(down, 20)
    with pytest.raises(StoreFailed):
        registry_checks.senders(down, down, [OURS], None)
