"""News of an account: which senders it disconnects or connects again, and what is logged."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.events import CHANGED_AT
from shared.domain.marks import Block, Credential, Disconnected, Marks, RefusedCredential
from shared.domain.record import Delivery, Kind
from shared.domain.state_changes import (
    AccountBanned,
    AccountConnected,
    AccountDisconnected,
    AccountReinstated,
    AccountRestricted,
    StateChange,
)
from shared.domain.tenants import Sender, Tenant
from shared.pipeline.account_news import AccountNews, _happened_at
from tests.support.builders import at, pending
from tests.support.fake_tenants import FakeTenants
from tests.support.pipelines import Channel, Clock, Lines, Store, lines_of

ACCOUNT = "300000000000003"
FIRST = Sender("acme", "meta", "100000000000001", ACCOUNT)
SECOND = Sender("acme", "meta", "100000000000002", ACCOUNT)
ELSEWHERE = Sender("acme", "meta", "100000000000003", "300000000000004")
OF_ANOTHER_TENANT = Sender("globex", "meta", "100000000000004", ACCOUNT)
OF_ENVIRONMENT = Sender("default", "meta", "100000000000005")
ALL = (FIRST, SECOND, ELSEWHERE, OF_ANOTHER_TENANT, OF_ENVIRONMENT)
REMOVED = AccountDisconnected(ACCOUNT, "PARTNER_REMOVED")
ADDED, REINSTATED = AccountConnected(ACCOUNT, "PARTNER_ADDED"), AccountReinstated(ACCOUNT)
BLOCK = Block(at(600), timedelta(seconds=600), 368)


@dataclass
class World:
    store: Store
    lines: Lines
    caplog: pytest.LogCaptureFixture
    drained: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def severities(self) -> list[str]:
        return [record.levelname for record in self.caplog.records]

    first: Sender = FIRST

    def apply(
        self, change: StateChange, tenant: str = "acme", received: float = 0, happened: float | None = None
    ) -> None:
        known = {name: Tenant(name) for name in ("default", "acme", "globex")}
        tenants = FakeTenants(known, [self.first, SECOND, ELSEWHERE, OF_ANOTHER_TENANT], [OF_ENVIRONMENT])
        channel: Any = Channel(news=(change,))
        news = AccountNews(self.store, tenants, self.start_drain)
        news.apply(self.event(tenant, received, happened), channel)

    def start_drain(self, sender: str, reason: str) -> None:
        self.drained.append(sender)
        self.reasons.append(reason)

    def event(self, tenant: str, received: float, happened: float | None) -> Delivery:
        time = {} if happened is None else {CHANGED_AT: int(at(happened).timestamp())}
        event = pending(Kind.INBOUND, payload={"field": "account_update", "value": {}, **time})
        return replace(event, sender=ACCOUNT, tenant=tenant, received_at=at(received))

    def put(self, marks: Marks) -> None:
        for sender in ALL:
            self.store.change_marks(sender.id, lambda _: marks)

    def disconnected(self) -> list[Sender]:
        return [sender for sender in ALL if self.store.marks(sender.id).disconnected]

    def blocked(self) -> list[Sender]:
        return [sender for sender in ALL if self.store.marks(sender.id).block]


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    return World(Store(tmp_path, Clock()), lines_of(caplog), caplog)


def test_disconnection_marks_every_sender_of_the_tenant_in_that_account(world: World) -> None:
    world.apply(REMOVED, received=-3)
    assert world.disconnected() == [FIRST, SECOND]
    assert world.store.marks(FIRST.id).disconnected == Disconnected("PARTNER_REMOVED", at(-3))
    lines = world.lines("tenant_needs_reauth")
    assert [(line["tenant"], line["reason"]) for line in lines] == [("acme", "PARTNER_REMOVED")] * 2
    assert world.severities() == ["ERROR", "ERROR"]
    assert [line["phone_number_id"] for line in lines] == [FIRST.provider_id, SECOND.provider_id]


def test_repeated_disconnection_changes_nothing_and_logs_nothing(world: World) -> None:
    world.apply(REMOVED)
    before = world.store.marks(FIRST.id)
    world.apply(REMOVED, received=9)
    assert world.store.marks(FIRST.id) == before
    assert len(world.lines("tenant_needs_reauth")) == 2, "one for each sender, by the first news"


def test_late_news_about_an_earlier_connection_disconnects_nothing(world: World) -> None:
    world.put(Marks(credential=Credential("in-use", at(-1))))
    world.apply(REMOVED, received=-2)
    assert world.disconnected() == []
    assert world.lines("tenant_needs_reauth") == []


def test_news_that_comes_after_a_reconnect_counts_from_when_it_happened(world: World) -> None:
    """Meta delivers a webhook again for days; meanwhile an operator connected the sender."""
    world.put(Marks(credential=Credential("in-use", at(-1))))
    world.apply(REMOVED, received=60, happened=-3600)
    assert world.disconnected() == []
    world.apply(REMOVED, received=60, happened=30)
    assert world.disconnected() == [FIRST, SECOND]


def test_news_of_the_second_of_a_reconnect_counts(world: World) -> None:
    """The provider names whole seconds: in doubt the sender is disconnected."""
    world.put(Marks(credential=Credential("in-use", at(0.3))))
    world.apply(REMOVED, received=0.9, happened=0)
    assert world.store.marks(FIRST.id).disconnected == Disconnected("PARTNER_REMOVED", at(0.9))


@pytest.mark.parametrize("told", [0, -1, 10**30, "1772366400", None, 1.5], ids=str)
def test_news_without_a_usable_time_counts_from_when_it_came(world: World, told: Any) -> None:
    event = replace(world.event("acme", -3, None), payload={"field": "account_update", "value": {}, CHANGED_AT: told})
    assert _happened_at(event) == at(-3)


def test_news_from_before_a_sender_was_added_disconnects_nothing(world: World) -> None:
    """It had no credential of its own yet that could tell when it was connected."""
    world.first = replace(FIRST, created_at=at(-1))
    world.apply(REMOVED, received=60, happened=-3600)
    assert world.disconnected() == [SECOND]
    assert len(world.lines("tenant_needs_reauth")) == 1


def test_disconnection_that_is_reported_after_a_later_connection_changes_nothing(world: World) -> None:
    world.put(Marks(credential=Credential("in-use", at(-900))))
    world.apply(ADDED, received=5, happened=4)
    world.apply(REMOVED, received=9, happened=1)
    assert world.disconnected() == []


def test_news_of_another_account_leaves_the_environments_connection_as_it_was(world: World) -> None:
    before = Marks(credential=Credential("in-use", at(-900)))
    world.put(before)
    world.apply(ADDED, tenant="default", received=5)
    assert world.store.marks(OF_ENVIRONMENT.id) == before


def test_sender_of_the_environment_is_reported_and_stays_connected(world: World) -> None:
    """It names no account, so the news may be about another one."""
    world.apply(REMOVED, tenant="default")
    assert world.disconnected() == []
    (line,) = world.lines("tenant_needs_reauth")
    assert (line["tenant"], line["reason"], world.severities()) == ("default", "PARTNER_REMOVED", ["ERROR"])


@pytest.mark.parametrize("change", [ADDED, REINSTATED], ids=["connected", "reinstated"])
def test_connection_lifts_blocks_and_disconnection_of_the_account_only(world: World, change: StateChange) -> None:
    world.put(Marks(block=BLOCK, disconnected=Disconnected("ACCOUNT_DELETED", at(-9))))
    world.apply(change)
    world.apply(change)
    assert world.disconnected() == [ELSEWHERE, OF_ANOTHER_TENANT, OF_ENVIRONMENT]
    assert world.blocked() == [ELSEWHERE, OF_ANOTHER_TENANT, OF_ENVIRONMENT]
    assert world.drained == [FIRST.id, SECOND.id]
    assert set(world.reasons) == {"reconnected"}


@pytest.mark.parametrize(
    "marks",
    [
        Marks(block=BLOCK),
        Marks(disconnected=Disconnected("ACCOUNT_DELETED", at(-9)), refused=RefusedCredential("a", 190, at(-9))),
    ],
    ids=["only blocked", "also refused"],
)
def test_connected_account_says_nothing_of_a_number_that_may_not_send(world: World, marks: Marks) -> None:
    world.put(marks)
    world.apply(ADDED)
    assert world.drained == [FIRST.id, SECOND.id]
    assert set(world.reasons) == {"account_news"}


def test_connection_of_any_account_lifts_the_block_of_the_environments_sender(world: World) -> None:
    world.put(Marks(block=BLOCK))
    world.apply(ADDED, tenant="default")
    assert OF_ENVIRONMENT not in world.blocked()
    assert world.drained == [OF_ENVIRONMENT.id], "the message that was blocked last may be due in hours"


def test_connection_that_is_older_than_the_disconnection_does_not_lift_it(world: World) -> None:
    world.put(Marks(disconnected=Disconnected("PARTNER_REMOVED", at(5))))
    world.apply(ADDED, received=4)
    assert FIRST in world.disconnected()


@pytest.mark.parametrize(
    "change",
    [AccountBanned(ACCOUNT, False), AccountBanned(ACCOUNT, True), AccountRestricted(ACCOUNT, "ADD_PHONE")],
    ids=["banned", "to be banned", "restricted"],
)
def test_other_news_of_an_account_changes_no_marks(world: World, change: StateChange) -> None:
    world.put(Marks(block=BLOCK))
    before = [world.store.marks(sender.id) for sender in ALL]
    world.apply(change)
    assert [world.store.marks(sender.id) for sender in ALL] == before
