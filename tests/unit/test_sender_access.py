"""Access of a message to its sender: suspended tenants, removed senders, secrets out of reach, refused tokens."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, TaskResult
from shared.domain.errors import RegistryUnavailable
from shared.domain.guards import withheld
from shared.domain.identity import Echo
from shared.domain.limits import DoubtPolicy
from shared.domain.marks import Block, Credential, Disconnected, Marks, Outage, RefusedCredential
from shared.domain.record import ReceiptKind, State
from shared.domain.send_errors import AccessDenied, CredentialInvalid
from shared.domain.tenants import Sender, Tenant, TenantState
from tests.support.builders import LIMITS, NOW, at, past_doubt, pending
from tests.support.outbound_world import ID, USED, World
from tests.support.parts import a_receipt
from tests.support.pipelines import IN_USE, SENDER, Channel, Clock, Queue, Store, lines_of
from tests.support.receipts import note_receipt

WAITING, DONE, IN_DOUBT = (Answer(TaskResult.ACK, word) for word in ("waiting", "done", "in_doubt"))
DEAD = Answer(TaskResult.ACK, "dead")
SUSPENDED = Tenant("default", state=TenantState.SUSPENDED)
OURS, OF_ANOTHER = Sender("default", "meta", SENDER), Sender("another", "meta", SENDER)


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    world = World(Store(tmp_path, clock), Channel(), clock, Queue(), lines_of(caplog))
    world.mark()
    return world


def suspended(world: World) -> None:
    world.tenants.known["default"] = SUSPENDED


def removed(world: World) -> None:
    world.tenants.senders.clear()


def given_to_another(world: World) -> None:
    world.tenants.known["another"] = Tenant("another")
    world.tenants.senders[:] = [OF_ANOTHER]


def tenant_removed(world: World) -> None:
    world.tenants.known.clear()


def secrets_down(world: World) -> None:
    world.credentials.down = True


def account_disconnected(world: World) -> None:
    world.mark(disconnected=Disconnected("PARTNER_REMOVED", at(-9)))


WITHHOLDING: dict[str, tuple[Callable[[World], None], str, float]] = {
    "suspended": (suspended, "suspended", 600),
    "sender removed": (removed, "sender_removed", 600),
    "sender given to another tenant": (given_to_another, "sender_removed", 600),
    "tenant removed": (tenant_removed, "sender_removed", 600),
    "secrets out of reach": (secrets_down, "credentials_unavailable", 60),
    "account disconnected": (account_disconnected, "WHATSAPP_REAUTH_REQUIRED", 600),
}
each_reason = pytest.mark.parametrize(("befall", "why", "wait"), WITHHOLDING.values(), ids=WITHHOLDING)


@each_reason
def test_message_waits_without_an_attempt_until_the_reason_is_gone(
    world: World, befall: Callable[[World], None], why: str, wait: float
) -> None:
    record = world.add("a")
    befall(world)
    assert world.process(record) == WAITING
    assert (world.read(record), world.channel.calls) == (record, [])
    assert world.hops() == [(1, at(wait))]
    assert [(line["reason"], line["until"]) for line in world.lines("outbound_waiting")] == [
        (why, at(wait).isoformat())
    ]


@each_reason
def test_doubt_that_may_be_resent_waits_instead_of_ending(
    world: World, befall: Callable[[World], None], why: str, wait: float
) -> None:
    record = world.add("a", past_doubt)
    befall(world)
    assert world.process(record) == IN_DOUBT
    assert (world.read(record).state, world.hops()) == (State.IN_DOUBT, [(1, at(wait))])
    assert why


@each_reason
def test_give_up_at_ends_what_waits_for_too_long(
    world: World, befall: Callable[[World], None], why: str, wait: float
) -> None:
    befall(world)
    for key, make, reason in (("a", pending, "waited"), ("b", past_doubt, "in_doubt")):
        record = world.add(key, make, give_up_at=NOW)
        assert world.process(record) == DEAD
        assert world.read(record).reason == reason
    assert why
    assert wait


@each_reason
def test_receipt_settles_a_message_that_must_wait(
    world: World, befall: Callable[[World], None], why: str, wait: float
) -> None:
    record = world.add("a", past_doubt)
    note_receipt(world.store, Echo(record.key, 0, record.correlation_id), a_receipt("wamid.1", ReceiptKind.DELIVERED))
    befall(world)
    assert world.process(record) == DONE
    assert why
    assert wait


def test_doubt_of_a_suspended_tenant_that_cannot_be_resent_ends(world: World) -> None:
    """Its receipts come in all the same; no wait would tell more."""
    suspended(world)
    record = world.add("a", past_doubt, doubts=2)
    assert world.process(record) == DEAD
    assert world.read(record).reason == "in_doubt"


def test_doubt_of_a_suspended_tenant_waits_while_the_provider_is_down(world: World) -> None:
    suspended(world)
    world.mark(down=Outage(at(40), LIMITS.waits.outage.first))
    record = world.add("a", past_doubt, doubts=2)
    assert world.process(record) == IN_DOUBT
    assert world.hops() == [(1, at(600))]


ORDER: tuple[tuple[str, Callable[[World], None]], ...] = (
    ("suspended", suspended),
    ("sender_removed", removed),
    ("credentials_unavailable", secrets_down),
)


@pytest.mark.parametrize("first", range(len(ORDER)), ids=[why for why, _ in ORDER])
def test_earlier_guards_win(world: World, first: int) -> None:
    for _, befall in ORDER[first:]:
        befall(world)
    world.mark(refused=RefusedCredential(IN_USE, 190, NOW), block=Block(at(9), LIMITS.waits.outage.first, 368))
    world.process(world.add("a"))
    assert world.lines("outbound_waiting")[-1]["reason"] == ORDER[first][0]


def test_suspended_tenant_reads_no_secret(world: World) -> None:
    suspended(world)
    world.process(world.add("a"))
    assert world.credentials.asked == {}


def test_registry_that_is_down_leaves_the_message_to_the_queue(world: World) -> None:
    world.tenants.down = True
    record = world.add("a", give_up_at=NOW)
    with pytest.raises(RegistryUnavailable):
        world.process(record)
    assert (world.read(record), world.queue.made) == (record, [])


def test_final_message_asks_neither_registry_nor_secrets(world: World) -> None:
    record = world.add("a")
    world.process(record)
    world.tenants.down = world.credentials.down = True
    assert world.process(record) == DONE


@pytest.mark.parametrize(
    ("tenant", "sender", "why"),
    [
        (Tenant("default"), OURS, None),
        (SUSPENDED, OURS, "suspended"),
        (SUSPENDED, None, "suspended"),
        (Tenant("default"), None, "sender_removed"),
        (Tenant("default"), OF_ANOTHER, "sender_removed"),
        (None, OURS, "sender_removed"),
        (Tenant("another"), OF_ANOTHER, "sender_removed"),
    ],
    ids=["its own", "suspended", "suspended and removed", "removed", "of another", "no tenant", "not the record's"],
)
def test_only_its_own_sender_may_send_a_message(tenant: Tenant | None, sender: Sender | None, why: str | None) -> None:
    assert withheld(pending(), tenant, sender) == why


@pytest.mark.parametrize(
    ("of_tenant", "of_all", "answer"),
    [
        (None, DoubtPolicy.RESEND, DONE),
        (None, DoubtPolicy.HOLD, DEAD),
        (DoubtPolicy.HOLD, DoubtPolicy.RESEND, DEAD),
        (DoubtPolicy.RESEND, DoubtPolicy.HOLD, DONE),
    ],
    ids=["deployment resends", "deployment holds", "tenant holds", "tenant resends"],
)
def test_policy_of_a_tenant_decides_its_doubts(
    world: World, of_tenant: DoubtPolicy | None, of_all: DoubtPolicy, answer: Answer
) -> None:
    world.tenants.known["default"] = Tenant("default", in_doubt=of_tenant)
    world.limits = replace(LIMITS, doubt_policy=of_all)
    assert world.process(world.add("a", past_doubt)) == answer


# ---- the credential


def test_credential_that_was_judged_is_the_one_that_is_sent(world: World) -> None:
    world.mark(down=Outage(NOW, LIMITS.waits.outage.first))

    def replaced(_: str) -> None:
        world.credentials.used = "newer"

    world.channel.during = replaced
    world.process(world.add("a"))
    assert (world.channel.calls, world.channel.credentials) == (["probe", "send"], [IN_USE, IN_USE])
    assert world.credentials.asked == {"of": 1}


def test_each_sender_sends_with_its_own_credential(world: World) -> None:
    class Two(dict[str, str]):
        def of(self, sender: Sender) -> str:
            return self[sender.provider_id]

    other = Sender("default", "meta", "200000000000002")
    world.tenants.senders.append(other)
    world.credentials = Two({SENDER: "one", other.provider_id: "two"})  # type: ignore[assignment]
    world.process(world.add("a"))
    world.process(world.add("b", sender=other.provider_id))
    assert world.channel.credentials == ["one", "two"]


REFUSALS: dict[str, Any] = {"190": CredentialInvalid(190, status=401), "10": AccessDenied(10, status=403)}
each_refusal = pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)


@each_refusal
def test_late_refusal_of_the_former_token_blocks_nothing(world: World, error: Any) -> None:
    """The process had it in its cache still: the message goes again with the newer one in a second."""
    world.credentials.cached, world.credentials.used = IN_USE, "newer"
    world.channel.sends = [error, "wamid.1"]
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.ACK, "rescheduled")
    assert world.marks == Marks(credential=USED)
    assert world.lines("tenant_needs_reauth") == []
    after = world.read(record)
    assert (after.state, after.attempt, after.due_at) == (State.PENDING, 0, at(1))
    assert after.attempts_log[-1].answer == "credential_replaced"
    world.clock.go(1)
    assert world.process(record) == DONE
    assert world.channel.credentials == [IN_USE, "newer"]
    assert world.credentials.asked["newest"] == 1


@each_refusal
@pytest.mark.parametrize("down", [False, True], ids=["read again", "not to be read again"])
def test_refused_token_that_is_still_in_use_makes_the_sender_wait(world: World, error: Any, down: bool) -> None:
    def during(_: str) -> None:
        world.credentials.down = down

    world.channel.sends, world.channel.during = [error], during
    record = world.add("a")
    world.process(record)
    assert world.marks.refused is not None
    assert world.marks.refused.fingerprint == IN_USE
    assert world.read(record).due_at == at(600)
    assert len(world.lines("tenant_needs_reauth")) == 1


def test_probe_of_a_refused_token_that_was_replaced_gives_its_claim_back(world: World) -> None:
    refused = RefusedCredential(IN_USE, 10, at(-9000), at(-1))
    world.mark(refused=refused)
    world.credentials.cached, world.credentials.used = IN_USE, "newer"
    world.channel.sends = [AccessDenied(10, status=403)]
    world.process(world.add("a"))
    assert world.marks.refused == replace(refused, until=NOW)


def test_other_refusals_read_no_secret_again(world: World) -> None:
    world.process(world.add("a"))
    assert world.credentials.asked == {"of": 1}


# ---- reconnects


def test_accepted_probe_of_a_refused_token_starts_a_drain(world: World) -> None:
    """A missing permission may be granted to the same token."""
    world.mark(refused=RefusedCredential(IN_USE, 10, at(-9000), at(-1)))
    world.process(world.add("a"))
    assert world.marks.refused is None
    assert [drain.sender for drain in world.queue.drains] == [ID]


def test_new_token_ends_a_disconnection_and_starts_a_drain(world: World) -> None:
    account_disconnected(world)
    record = world.add("a")
    assert world.process(record) == WAITING
    world.credentials.used = "newer"
    assert world.process(record) == DONE
    assert world.marks == Marks(credential=Credential("newer", NOW, IN_USE))
    assert [drain.sender for drain in world.queue.drains] == [ID]


def test_sound_sender_starts_no_drain(world: World) -> None:
    world.process(world.add("a"))
    world.credentials.used = "newer"
    world.process(world.add("b"))
    assert world.queue.drains == []
