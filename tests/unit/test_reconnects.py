"""Reconnects that the sweep finds, and the report on many senders: bounded, in rotation, without a send."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from shared.domain.errors import CredentialsUnavailable, QueueUnavailable
from shared.domain.identity import sender_id
from shared.domain.marks import Block, Credential, Disconnected, Marks, RefusedCredential
from shared.domain.tenants import Sender, Tenant
from shared.pipeline.reconnects import CHECK_SECONDS, CHECKED_AT_MOST, LOOKED_AT, troubled
from tests.support.builders import NOW, at
from tests.support.outbound_world import ID, USED, World
from tests.support.pipelines import IN_USE, SENDER, Channel, Clock, Queue, Store, lines_of

REFUSED = RefusedCredential(IN_USE, 190, at(-60))


@dataclass
class RandomClock(Clock):
    """Its tokens are given."""

    begins: list[str] = field(default_factory=list)

    def token(self) -> str:
        return self.begins.pop(0) if self.begins else "0" * 32


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = RandomClock()
    return World(Store(tmp_path, clock), Channel(), clock, Queue(), lines_of(caplog))


def add_senders(world: World, count: int, marks: Marks) -> list[Sender]:
    """This many further senders, each with these marks, in the order of their ids."""
    senders = [Sender("acme", "meta", f"2{number:014}") for number in range(count)]
    world.tenants.known["acme"] = Tenant("acme")
    world.tenants.senders += senders
    for sender in senders:
        world.store.change_marks(sender.id, lambda _: marks)
    return sorted(senders, key=lambda sender: sender.id)


def drained(world: World) -> list[str]:
    return [drain.sender for drain in world.queue.drains]


# ---- the sweep's check


def test_replaced_secret_lifts_the_refusal_and_starts_one_drain(world: World) -> None:
    world.mark(refused=REFUSED)
    world.credentials.used = "newer"
    for _ in range(2):
        world.reconnects()
    assert world.marks == Marks(credential=Credential("newer", NOW, IN_USE))
    assert drained(world) == [ID]


def test_refused_credential_that_is_still_in_use_stays_refused(world: World) -> None:
    before = world.mark(refused=REFUSED)
    world.reconnects()
    assert (world.marks, drained(world)) == (before, [])


def test_refusal_that_came_after_the_new_token_is_lifted_too(world: World) -> None:
    world.mark(refused=REFUSED, credential=Credential("newer", NOW, IN_USE))
    world.credentials.used = "newer"
    world.reconnects()
    assert (world.marks.refused, drained(world)) == (None, [ID])


def test_previous_token_of_an_older_revision_lifts_nothing(world: World) -> None:
    before = world.mark(refused=replace(REFUSED, fingerprint="newer"), credential=Credential("newer", NOW, IN_USE))
    world.reconnects()
    assert (world.marks, drained(world)) == (before, [])


@pytest.mark.parametrize(
    ("secret", "cached", "is_lifted"),
    [("its-own", None, True), ("its-own", IN_USE, False), ("", None, False)],
    ids=["put back", "only in this cache", "the environment's"],
)
def test_token_that_was_put_back_is_a_reconnect(world: World, secret: str, cached: str | None, is_lifted: bool) -> None:
    """As when an operator disables a wrong version. The environment's may be that of an older revision."""
    world.tenants.senders[:] = [Sender("default", "meta", SENDER, credential=secret)]
    world.mark(refused=replace(REFUSED, fingerprint="newer"), credential=Credential("newer", at(-9), IN_USE))
    world.credentials.cached, world.credentials.used = cached, "newer" if cached else IN_USE
    world.reconnects()
    assert (world.marks.refused is None) is is_lifted
    assert drained(world) == ([ID] if is_lifted else [])
    assert world.health().report() is None
    assert world.lines("sender_checked")[-1]["connected"] == (secret == "" or is_lifted)


@pytest.mark.parametrize("marks", [{"block": Block(at(60), timedelta(seconds=600), 368)}, {}], ids=["blocked", "sound"])
def test_credential_of_a_sender_that_was_not_refused_is_not_read(world: World, marks: dict[str, Block]) -> None:
    world.mark(**marks)
    world.reconnects()
    assert world.credentials.asked == {}


def test_token_that_cannot_be_read_leaves_the_refusal_and_the_other_senders(world: World) -> None:
    before = world.mark(refused=REFUSED)
    world.credentials.down = True
    world.reconnects()
    assert world.marks == before
    (line,) = world.lines("unexpected_error")
    assert (line["reason"], line["sender"]) == ("credentials_unavailable", ID)


def test_disconnected_account_is_reconnected_by_another_token_alone(world: World) -> None:
    before = world.mark(disconnected=Disconnected("PARTNER_REMOVED", at(-9)))
    world.reconnects()
    assert world.marks == before
    world.credentials.used = "newer"
    world.reconnects()
    assert (world.marks.disconnected, drained(world)) == (None, [ID])


def test_queue_that_is_down_does_not_stop_the_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_: object) -> None:
        raise QueueUnavailable

    monkeypatch.setattr(world.queue, "ensure_drain", down)
    world.mark(refused=REFUSED)
    world.credentials.used = "newer"
    world.reconnects()
    assert world.marks.refused is None
    assert [line["stage"] for line in world.lines("unexpected_error")] == ["drain"]


def test_run_reads_at_most_twenty_credentials(world: World) -> None:
    add_senders(world, 50, Marks(credential=USED, refused=REFUSED))
    world.reconnects()
    assert world.credentials.asked["of"] == CHECKED_AT_MOST == 20


def test_run_ends_early_while_secrets_are_slow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add_senders(world, 50, Marks(credential=USED, refused=REFUSED))

    def slow(_: Sender) -> str:
        world.clock.go(2)
        raise CredentialsUnavailable

    monkeypatch.setattr(world.credentials, "of", slow)
    world.reconnects()
    assert world.clock.seconds == CHECK_SECONDS == 10


def test_runs_that_begin_elsewhere_check_the_other_senders(world: World) -> None:
    senders = add_senders(world, 300, Marks(credential=USED, refused=REFUSED))
    assert isinstance(world.clock, RandomClock)
    world.clock.begins = [sender.id for sender in senders[19::20]]
    for _ in range(15):
        world.reconnects()
    assert world.credentials.asked["of"] == 300


@pytest.mark.parametrize("begins", ["0" * 32, "f" * 32, "8" * 32], ids=["before all", "after all", "between"])
def test_each_troubled_sender_is_found_once_wherever_a_look_begins(world: World, begins: str) -> None:
    senders = add_senders(world, 30, Marks(refused=REFUSED))
    assert isinstance(world.clock, RandomClock)
    world.clock.begins = [begins]
    found = troubled(world.store, world.clock, LOOKED_AT)
    assert sorted(found) == [sender.id for sender in senders]
    assert len(found) == 30


# ---- the report


def test_report_names_the_environments_sender_and_those_in_trouble(world: World) -> None:
    refused, *_ = add_senders(world, 4, Marks(credential=USED))
    world.store.change_marks(refused.id, lambda marks: replace(marks, refused=REFUSED))
    world.health(Sender("default", "meta", SENDER)).report()
    said = [
        (line["sender"], line["tenant"], line["connected"], line.get("reason"))
        for line in world.lines("sender_checked")
    ]
    assert said == [(ID, "default", 1, None), (refused.id, "acme", 0, "needs_reauth")]


def test_troubled_sender_of_the_environment_is_reported_once(world: World) -> None:
    world.mark(refused=REFUSED)
    world.health().report()
    assert [line["sender"] for line in world.lines("sender_checked")] == [ID]


def test_report_on_many_senders_is_bounded(world: World) -> None:
    add_senders(world, 230, Marks(block=Block(at(60), timedelta(seconds=600), 368)))
    world.health(Sender("default", "meta", SENDER)).report()
    assert len(world.lines("sender_checked")) == 201
    assert world.credentials.asked == {}


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        (Marks(disconnected=Disconnected("ACCOUNT_DELETED", NOW)), "disconnected"),
        (Marks(refused=REFUSED), "needs_reauth"),
    ],
    ids=["disconnected", "secrets out of reach"],
)
def test_reason_of_a_sender_is_told_without_its_secret(world: World, marks: Marks, reason: str) -> None:
    add_senders(world, 1, marks)
    world.credentials.down = True
    world.tenants.senders[:] = [replace(sender, credential="secret") for sender in world.tenants.senders]
    world.health(Sender("default", "meta", SENDER)).report()
    assert world.lines("sender_checked")[-1]["reason"] == reason
    assert world.credentials.asked == {}


def test_sender_id_is_a_hash(world: World) -> None:
    world.health().report()
    assert world.lines("sender_checked")[-1]["sender"] == sender_id("meta", SENDER)
