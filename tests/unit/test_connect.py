"""Connecting a sender: the order of the steps, what a failure between them leaves, and what is known afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared.domain import marks
from shared.domain.errors import QueueUnavailable, SecretsUnavailable
from shared.domain.identity import credential_fingerprint, stable_hash
from shared.domain.limits import Limits
from shared.domain.marks import Block, Credential, Disconnected, Marks, Outage, RefusedCredential
from shared.domain.onboarding import Checked, OnboardingRefused, OnboardingUnavailable
from shared.domain.tenants import Sender
from shared.operations.connect import Connect, credential_name
from shared.secrets.file_secrets import FILE, FileSecrets
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.credentials import RegisteredCredentials, SecretCache

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SENDER = Sender("acme", "meta", "100000000000002", account="300000000000002")
NAMED = replace(SENDER, credential=credential_name(SENDER))
OLD, NEW = "old-token", "new-token"


@dataclass
class FakeOnboarding:
    steps: list[str]
    refusal: Exception | None = None
    subscription: Exception | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def check(self, provider_id: str, account: str, token: str) -> Checked:
        self.steps.append("check")
        self.asked.append((provider_id, account, token))
        if self.refusal:
            raise self.refusal
        return Checked("+1 555-000-1111", NOW)

    def subscribe(self, account: str, token: str) -> None:
        self.steps.append("subscribe")
        self.asked.append((account, token))
        if self.subscription:
            raise self.subscription


class Store(SqliteStore):
    def time(self) -> datetime:
        return NOW


@dataclass
class World:
    secrets: FileSecrets
    store: SqliteStore
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.onboarding = FakeOnboarding(self.steps)
        self.connect = Connect(self.onboarding, self.secrets, self.store)

    def drain(self, sender_id: str) -> None:
        self.steps.append(f"drain {sender_id}")

    def marks(self, change: Callable[[Marks], Marks] = lambda current: current) -> Marks:
        return self.store.change_marks(SENDER.id, change)[1]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(FileSecrets(tmp_path / FILE), Store(tmp_path / "pombo.sqlite", Limits(), lambda: NOW))


# ---- a new sender


def test_new_sender_is_checked_kept_and_subscribed_in_this_order(world: World) -> None:
    connected = world.connect.connect(SENDER, NEW)
    assert world.steps == ["check", "subscribe"]
    assert world.onboarding.asked == [(SENDER.provider_id, SENDER.account, NEW), (SENDER.account, NEW)]
    assert world.secrets.newest(f"pombo-credential-acme-{SENDER.id}") == NEW
    assert connected.sender == replace(NAMED, display="+1 555-000-1111")
    assert connected.checked.expires_at == NOW
    assert NEW not in repr(connected)


def test_given_name_of_a_sender_is_kept(world: World) -> None:
    assert world.connect.connect(replace(SENDER, display="Shop"), NEW).sender.display == "Shop"


def test_secret_that_a_sender_names_is_the_one_that_gets_its_token(world: World) -> None:
    named = world.connect.connect(replace(SENDER, credential="of-an-operator"), NEW).sender
    assert named.credential == "of-an-operator"


def test_name_of_its_secret_holds_no_number_of_the_provider() -> None:
    assert credential_name(SENDER) == f"pombo-credential-acme-{SENDER.id}"
    assert SENDER.provider_id not in credential_name(SENDER)


def test_process_that_knows_a_former_owner_finds_no_token_of_the_new_one(world: World) -> None:
    """A process keeps an entry of the registry for 5 s."""
    connected = world.connect.connect(replace(SENDER, tenant="globex"), NEW).sender
    credentials = RegisteredCredentials(SecretCache(world.secrets), {})
    assert (credentials.of(connected), credentials.of(NAMED)) == (NEW, "")


@pytest.mark.parametrize("failure", [OnboardingRefused("no"), OnboardingUnavailable("down")], ids=["refused", "down"])
def test_token_that_the_provider_does_not_accept_is_not_kept(world: World, failure: Exception) -> None:
    world.onboarding.refusal = failure
    for call in (
        lambda: world.connect.connect(SENDER, NEW),
        lambda: world.connect.reconnect(NAMED, NEW, world.drain),
    ):
        with pytest.raises(type(failure)):
            call()
    assert world.secrets.newest(NAMED.credential) is None
    assert world.marks() == Marks()
    assert world.steps == ["check", "check"]


# ---- a reconnect


def refused_and_disconnected(current: Marks) -> Marks:
    old = credential_fingerprint(OLD)
    return replace(
        current,
        credential=Credential(old, NOW - timedelta(days=9)),
        refused=RefusedCredential(old, 190, NOW - timedelta(hours=1)),
        disconnected=Disconnected("PARTNER_REMOVED", NOW - timedelta(hours=1)),
    )


def test_reconnect_lifts_the_marks_and_then_drains(world: World) -> None:
    world.secrets.add(NAMED.credential, OLD)
    world.marks(refused_and_disconnected)
    connected = world.connect.reconnect(NAMED, NEW, world.drain)
    assert (connected.sender, connected.checked.expires_at) == (NAMED, NOW)
    assert world.steps == ["check", "subscribe", f"drain {SENDER.id}"]
    assert world.secrets.newest(NAMED.credential) == NEW
    new, old = credential_fingerprint(NEW), credential_fingerprint(OLD)
    assert world.marks() == Marks(credential=Credential(new, NOW, previous=old))
    assert world.store.marks(SENDER.id).credential == Credential(new, NOW, previous=old)


def test_fingerprint_is_the_one_that_the_channel_computes() -> None:
    assert credential_fingerprint(NEW) == stable_hash("credential", NEW)


def test_failed_subscription_leaves_the_marks_and_drains_nothing(world: World) -> None:
    world.marks(refused_and_disconnected)
    before = world.marks()
    world.onboarding.subscription = OnboardingUnavailable("down")
    with pytest.raises(OnboardingUnavailable):
        world.connect.reconnect(NAMED, NEW, world.drain)
    assert world.marks() == before
    assert world.steps == ["check", "subscribe"]
    world.onboarding.subscription = None
    world.connect.reconnect(NAMED, NEW, world.drain)
    assert world.marks().refused is None


def test_secrets_that_are_down_stop_it_before_the_subscription(world: World, tmp_path: Path) -> None:
    world.secrets.add("other", "value")
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(SecretsUnavailable):
        world.connect.reconnect(NAMED, NEW, world.drain)
    assert world.steps == ["check"]


def test_queue_that_is_down_leaves_the_sender_connected(world: World) -> None:
    world.marks(refused_and_disconnected)

    def down(_: str) -> None:
        raise QueueUnavailable

    with pytest.raises(QueueUnavailable):
        world.connect.reconnect(NAMED, NEW, down)
    assert world.marks().refused is None


def test_sender_with_the_environments_token_is_not_reconnected_here(world: World) -> None:
    with pytest.raises(OnboardingRefused, match="from their environment"):
        world.connect.reconnect(SENDER, NEW, world.drain)
    assert world.steps == []


# ---- the marks of a reconnect

FINGERPRINT = credential_fingerprint(NEW)


def test_same_token_given_again_keeps_the_one_before_it() -> None:
    known = Marks(credential=Credential(FINGERPRINT, NOW - timedelta(days=1), previous="before"))
    assert marks.reconnected(known, FINGERPRINT, NOW).credential == Credential(FINGERPRINT, NOW, previous="before")


def test_first_connection_has_no_previous_token() -> None:
    assert marks.reconnected(Marks(), FINGERPRINT, NOW) == Marks(credential=Credential(FINGERPRINT, NOW))


def test_reconnect_lets_the_next_send_probe_a_block() -> None:
    minute = timedelta(minutes=1)
    held = Block(NOW + minute, minute, 131031, claim="someone", by_receipt=True)
    assert marks.reconnected(Marks(block=held), FINGERPRINT, NOW).block == replace(held, until=NOW, claim=None)
    over = replace(held, until=NOW - minute)
    assert marks.reconnected(Marks(block=over), FINGERPRINT, NOW).block == over


def test_reconnect_says_nothing_of_an_outage_and_keeps_the_version() -> None:
    known = Marks(down=Outage(NOW + timedelta(minutes=1)), version=7)
    after = marks.reconnected(known, FINGERPRINT, NOW)
    assert (after.down, after.version) == (known.down, 7)


def test_send_with_the_new_token_changes_nothing_after_a_reconnect() -> None:
    after = marks.reconnected(refused_and_disconnected(Marks()), FINGERPRINT, NOW)
    later = NOW + timedelta(minutes=1)
    assert marks.of_credential_in_use(after, FINGERPRINT, later) is after
    assert marks.of_credential_in_use(after, credential_fingerprint(OLD), later) is after
