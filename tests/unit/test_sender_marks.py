"""Marks of a sender around its sends: read, claimed and probed before, written after, by the outbound pipeline."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.errors import StoreUnavailable, UnknownState
from shared.domain.events import ReceiptBlock
from shared.domain.guards import Elect, Go, Wait
from shared.domain.limits import DoubtPolicy
from shared.domain.marks import Block, Credential, Marks, Outage, RefusedCredential
from shared.domain.record import Delivery, State, Task
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.verdicts import Accepted, Blocked, BlockScope, CredentialRefused, ProviderDown
from shared.logs import EVENTS
from shared.pipeline.channels import Channels
from shared.pipeline.sender_health import Outages
from shared.pipeline.sender_marks import SenderMarks, log_outage
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import LIMITS, MINE, NOW, OTHERS, at, past_doubt, pending
from tests.support.fake_tenants import EnvironmentCredentials
from tests.support.outbound_world import ID, USED, World
from tests.support.pipelines import (
    IN_USE,
    SENDER,
    Channel,
    Clock,
    Queue,
    Store,
    lines_of,
)

DOWN = Elect(frozenset({"down"}), "provider_down")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    return World(Store(tmp_path, clock), Channel(), clock, Queue(), lines_of(caplog))


# ---- before a send: the marks as they count now


def test_the_first_send_notes_its_credential_and_the_second_writes_nothing(world: World) -> None:
    for key in "ab":
        world.process(world.add(key))
    assert world.marks == Marks(credential=Credential(IN_USE, NOW))
    assert world.store.asked["change_marks"] == 1
    assert world.channel.calls == ["send", "send"], "where all is well nothing is probed"


def test_a_message_that_has_ended_reads_no_marks(world: World) -> None:
    record = world.add("a")
    world.process(record)
    before = world.store.asked["marks"]
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert world.store.asked["marks"] == before


@pytest.mark.parametrize(
    ("started", "blocks"), [(-901, False), (-899, True), (None, True)], ids=["before", "after", "unknown"]
)
def test_receipt_block_takes_effect_at_the_next_send(world: World, started: float | None, blocks: bool) -> None:
    """Unless the message that failed was last sent before the credential in use came."""
    failed = world.add("f", started_at=None if started is None else at(started))
    world.mark()
    world.store.note_receipt_block(ID, ReceiptBlock(131042, at(-5), failed.key))
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.ACK, "waiting" if blocks else "done")
    found = world.marks
    assert (found.receipt_block, found.refused) == (None, None)
    assert found.block == (Block(at(600), seconds(600), 131042, by_receipt=True) if blocks else None)
    said = [(line["phone_number_id"], line["code"], line["by"]) for line in world.lines("sender_blocked")]
    assert said == ([(SENDER, 131042, "receipt")] if blocks else [])
    assert world.hops() == ([(1, at(600))] if blocks else [])


def test_a_receipt_that_names_no_message_of_ours_counts_by_its_own_time(world: World) -> None:
    world.mark()
    world.store.note_receipt_block(ID, ReceiptBlock(368, at(-5), "9" * 40))
    assert world.senders.read(pending(), IN_USE).block is not None
    world.mark()
    world.store.note_receipt_block(ID, ReceiptBlock(368, at(-902)))
    assert world.senders.read(pending(), IN_USE).block is None


def test_a_receipt_that_comes_while_another_is_looked_at_waits_for_the_next_send(world: World) -> None:
    world.mark()
    first, second = ReceiptBlock(131042, at(-9)), ReceiptBlock(368, at(-5))
    world.store.note_receipt_block(ID, first)
    decide = world.store.change_marks

    def interrupted(*given: Any) -> Any:
        world.store.note_receipt_block(ID, second)
        return decide(*given)

    world.store.change_marks = interrupted  # type: ignore[method-assign]
    world.senders.read(pending(), IN_USE)
    del world.store.change_marks
    assert world.marks.receipt_block == second
    assert world.marks.block is None


# ---- the election


def test_the_claim_stands_before_the_provider_is_probed(world: World) -> None:
    seen = world.mark(down=Outage(NOW, seconds(40)))
    claims: list[Any] = []
    world.channel.during = lambda _: claims.append(world.marks.down)
    after, guard = world.senders.elect(pending(), seen, DOWN, MINE, IN_USE)
    assert guard == Go()
    assert claims == [Outage(at(90), seconds(40), MINE)] == [after.down]
    assert world.channel.calls == ["probe"]


def test_loser_of_an_election_probes_nothing_and_returns_in_15_s(world: World) -> None:
    seen = world.mark(down=Outage(NOW, seconds(40)))
    world.senders.elect(pending(), seen, DOWN, OTHERS, IN_USE)
    world.channel.calls.clear()
    for unclear in (False, True):
        after, guard = world.senders.elect(pending(), seen, replace(DOWN, unclear=unclear), MINE, IN_USE)
        assert guard == Wait("provider_down", at(15), unclear)
        assert after == world.marks
    assert world.channel.calls == []


@pytest.mark.parametrize("error", [ProviderUnavailable(2), ProviderUnavailable(), AnswerLost(), AnswerLost(status=502)])
def test_a_probe_that_fails_doubles_the_wait_and_gives_every_claim_back(world: World, error: SendError) -> None:
    seen = world.mark(down=Outage(NOW, seconds(40)), block=Block(NOW, seconds(600), 368))
    world.channel.probes = [error]
    election = Elect(frozenset({"down", "block"}), "blocked")
    after, guard = world.senders.elect(pending(), seen, election, MINE, IN_USE)
    assert guard == Wait("provider_down", at(80), unclear=True)
    assert after == world.marks
    assert (after.down, after.block) == (Outage(at(80), seconds(80)), Block(NOW, seconds(600), 368))
    (line,) = world.lines("provider_down")
    assert line == {
        "event": "provider_down", "until": at(80).isoformat(), "wait_seconds": 80.0, "phone_number_id": SENDER
    }  # fmt: skip


@pytest.mark.parametrize("error", [None, CredentialInvalid(), AnswerLost(131000, status=500)])
def test_any_answer_to_the_probe_starts_the_trial(world: World, error: SendError | None) -> None:
    world.channel.probes = [error]
    after, guard = world.senders.elect(pending(), world.mark(down=Outage(NOW, seconds(40))), DOWN, MINE, IN_USE)
    assert (guard, after.down) == (Go(), Outage(at(90), seconds(40), MINE))


@pytest.mark.parametrize(
    ("name", "mark"),
    [("block", Block(NOW, seconds(600), 368)), ("refused", RefusedCredential(IN_USE, 10, at(-7200), NOW))],
)
def test_the_probe_of_a_block_or_a_credential_is_the_message_itself(world: World, name: str, mark: Any) -> None:
    seen = world.mark(**{name: mark})
    after, guard = world.senders.elect(pending(), seen, Elect(frozenset({name}), "why"), MINE, IN_USE)
    assert (guard, world.channel.calls) == (Go(), [])
    assert getattr(after, name) == replace(mark, until=at(90), claim=MINE)


# ---- what an answer says, and its second write


@pytest.mark.parametrize(
    ("verdict", "seen", "until"),
    [
        (ProviderDown(2), Marks(), at(10)),
        (ProviderDown(2), Marks(down=Outage(at(90), seconds(40), MINE)), at(80)),
        (ProviderDown(2), Marks(down=Outage(at(33), seconds(40))), at(33)),
        (Blocked(BlockScope.SENDER, 368), Marks(), at(600)),
        (Blocked(BlockScope.SENDER, 368), Marks(block=Block(at(90), seconds(600), 368, MINE)), at(1200)),
    ],
)
def test_a_verdict_waits_for_the_end_of_its_mark(
    world: World, verdict: ProviderDown | Blocked, seen: Marks, until: datetime
) -> None:
    learned = world.senders.learned(pending(), seen, verdict, True, IN_USE, MINE)
    assert learned.verdict == replace(verdict, until=until)
    assert world.store.asked["change_marks"] == 0, "it says so before it writes"


def test_an_accepted_message_of_a_sound_sender_writes_no_marks(world: World) -> None:
    learned = world.senders.learned(pending(), Marks(credential=USED), Accepted("wamid.1"), True, IN_USE, MINE)
    assert learned.change is None
    world.senders.keep(pending(), learned)
    assert world.store.asked["change_marks"] == 0


@pytest.mark.parametrize("scope", BlockScope)
def test_log_shows_whether_the_number_or_its_account_is_blocked(world: World, scope: BlockScope) -> None:
    verdict = Blocked(scope, 368)
    world.senders.keep(pending(), world.senders.learned(pending(), Marks(), verdict, True, IN_USE, MINE))
    (line,) = world.lines("sender_blocked")
    assert (line["scope"], line["code"], line["phone_number_id"]) == (scope, 368, SENDER)


@pytest.mark.parametrize(
    ("verdict", "event"),
    [
        (CredentialRefused(190), "tenant_needs_reauth"),
        (Blocked(BlockScope.SENDER, 368), "sender_blocked"),
        (ProviderDown(2), "provider_down"),
    ],
)
def test_refusal_is_logged_once_and_stored_in_the_marks(world: World, verdict: Any, event: str) -> None:
    world.senders.keep(pending(), world.senders.learned(pending(), Marks(), verdict, True, IN_USE, MINE))
    assert len(world.lines(event)) == 1
    assert world.marks != Marks()


def test_lost_answer_becomes_an_outage_only_when_the_probe_fails(world: World) -> None:
    world.channel.sends = [AnswerLost()]
    world.process(world.add("a"))
    assert world.marks.down == Outage(NOW)
    assert world.lines("provider_down") == []
    world.channel.probes = [ProviderUnavailable(2)]
    world.process(world.add("b"))
    assert [line["wait_seconds"] for line in world.lines("provider_down")] == [10.0]


# ---- a message through an outage


def test_a_message_in_an_outage_spends_nothing_and_is_the_trial_in_the_end(world: World) -> None:
    world.channel.sends = [ProviderUnavailable(2), "wamid.1"]
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.NACK, "pending")
    waiting = world.read(record)
    assert (waiting.attempt, waiting.generation, waiting.throttled, waiting.due_at) == (0, 0, 1, at(10))
    assert world.marks.down == Outage(at(10), seconds(10))

    assert world.process(record) == Answer(TaskResult.ACK, "waiting"), "the queue brings the same task again, early"
    assert world.hops() == [(1, at(10))]
    assert world.channel.calls == ["send"]
    world.clock.go(10)
    assert world.process(record, hop=1) == Answer(TaskResult.ACK, "done")
    assert world.channel.calls == ["send", "probe", "send"]
    assert world.marks == Marks(credential=Credential(IN_USE, NOW))
    assert [line["event"] for line in world.lines("provider_down", "provider_up")] == ["provider_down", "provider_up"]
    assert world.read(record).attempt == 1


def test_message_waits_for_the_end_of_the_breaker_without_a_write(world: World) -> None:
    world.mark(down=Outage(at(40), seconds(40)))
    record = world.add("a")
    before = world.store.asked["change_marks"]
    assert world.process(record) == Answer(TaskResult.ACK, "waiting")
    assert world.hops() == [(1, at(40))]
    assert world.read(record) == record
    assert (world.channel.calls, world.store.asked["change_marks"]) == ([], before)
    (line,) = world.lines("outbound_waiting")
    assert (line["reason"], line["until"]) == ("provider_down", at(40).isoformat())


def test_a_probe_that_is_lost_takes_no_lease(world: World) -> None:
    world.mark(down=Outage(NOW, seconds(40)))
    world.channel.probes = [AnswerLost()]
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.ACK, "waiting")
    assert world.read(record) == record
    assert (world.channel.calls, world.hops()) == (["probe"], [(1, at(80))])


@pytest.mark.parametrize("error", [ProviderUnavailable(2), AnswerLost()])
def test_a_trial_that_fails_after_an_answered_probe_doubles_the_wait(world: World, error: SendError) -> None:
    world.mark(down=Outage(NOW, seconds(40)))
    world.channel.sends = [error]
    record = world.add("a")
    world.process(record)
    assert world.marks.down == Outage(at(80), seconds(80))
    after = world.read(record)
    assert after.state is (State.PENDING if isinstance(error, ProviderUnavailable) else State.IN_DOUBT)
    if after.state is State.PENDING:
        assert (after.due_at, after.attempt) == (at(80), 0)


@pytest.mark.parametrize(
    "error", [SendRefused(131026, status=400), LimitReached(130429, status=429), TryLater(133015, status=400)]
)
def test_a_refusal_of_the_trial_closes_the_breaker(world: World, error: SendError) -> None:
    world.mark(down=Outage(NOW, seconds(40)))
    world.channel.sends = [error]
    world.process(world.add("a"))
    assert world.marks.down is None


@pytest.mark.parametrize("fault", ["it makes no request", "no usable token", "the process ends", "it is too late"])
def test_a_trial_that_never_left_gives_the_claim_back(world: World, fault: str) -> None:
    world.mark(down=Outage(NOW, seconds(40)))
    match fault:
        case "it makes no request":
            world.channel.sends = [TryLater()]
        case "no usable token":
            world.channel.sends = [CredentialInvalid()]
        case "the process ends":
            world.channel.during = lambda _: setattr(world, "stops", True)
        case _:
            decide = world.store.change

            def slow(*given: Any, **named: Any) -> Any:
                step = decide(*given, **named)
                world.clock.go(30 if step.write and step.write.state is State.LEASED else 0)
                return step

            world.store.change = slow  # type: ignore[method-assign]
    world.process(world.add("a"))
    assert world.marks.down == Outage(world.clock.now(), seconds(40))


def test_an_elected_attempt_whose_lease_is_refused_gives_the_claim_back(world: World) -> None:
    """Another task of the same message was quicker."""
    world.mark(down=Outage(NOW, seconds(40)))
    record = world.add("a")

    def another(call: str) -> None:
        if call == "probe":
            world.store.change(record.key, lambda now: lease(now, Task.of(record), OTHERS, Go(), LIMITS, NOW))

    world.channel.during = another
    assert world.process(record) == Answer(TaskResult.CONFLICT, "leased")
    assert (world.channel.calls, world.marks.down) == (["probe"], Outage(NOW, seconds(40)))


# ---- messages that may have arrived


def test_a_message_in_doubt_probes_before_it_is_sent_again(world: World) -> None:
    world.mark()
    record = world.add("a", past_doubt)
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert (world.channel.calls, world.marks.down) == (["probe", "send"], None)
    assert world.lines("provider_down", "provider_up") == [], "there was no outage"


def test_a_probe_for_a_message_in_doubt_that_fails_opens_the_breaker(world: World) -> None:
    world.mark()
    world.channel.probes = [AnswerLost()]
    record = world.add("a", past_doubt)
    assert world.process(record) == Answer(TaskResult.ACK, "in_doubt")
    assert (world.read(record), world.channel.calls) == (record, ["probe"])
    assert (world.marks.down, world.hops()) == (Outage(at(10), seconds(10)), [(1, at(10))])


@pytest.mark.parametrize("ends", [{"attempt": LIMITS.max_attempts}, {"doubts": 2}])
def test_unsendable_message_is_dead_only_after_an_answered_probe(world: World, ends: dict[str, Any]) -> None:
    """While the provider is down its receipt may be kept back; nothing to send: the mark is deleted."""
    world.mark(down=Outage(at(-60), seconds(40)))
    record = world.add("a", past_doubt, **ends)
    world.channel.probes = [AnswerLost(), None]
    assert world.process(record) == Answer(TaskResult.ACK, "in_doubt")
    world.clock.go(80 + 60)
    assert world.process(record, hop=1) == Answer(TaskResult.ACK, "dead")
    assert world.read(record).reason == "in_doubt"
    assert (world.channel.calls, world.marks.down) == (["probe", "probe"], None)


def test_by_policy_hold_a_doubt_is_judged_once_the_provider_answers(world: World) -> None:
    world.limits = replace(LIMITS, doubt_policy=DoubtPolicy.HOLD)
    world.mark(down=Outage(at(40), seconds(40)))
    record = world.add("a", past_doubt)
    assert world.process(record) == Answer(TaskResult.ACK, "in_doubt")
    assert world.hops() == [(1, at(100))], "a minute after others"
    world.clock.go(100)
    assert world.process(record, hop=1) == Answer(TaskResult.ACK, "dead")
    assert (world.channel.calls, world.marks.down) == (["probe"], None)


# ---- blocks and credentials in the pipeline


def test_ten_messages_at_the_end_of_a_block_are_one_probe(world: World) -> None:
    world.mark(block=Block(NOW, seconds(600), 131048))
    records = [world.add(key) for key in "0123456789"]
    during: list[Answer] = []
    world.channel.during = lambda _: during.extend(world.process(record) for record in records[1:])
    world.channel.sends = [SenderBlocked(131048, status=400)]
    assert world.process(records[0]) == Answer(TaskResult.ACK, "rescheduled")
    assert (during, world.channel.calls) == ([Answer(TaskResult.ACK, "waiting")] * 9, ["send"])
    assert world.marks.block == Block(at(1200), seconds(1200), 131048)
    assert world.read(records[0]).due_at == at(1200)
    assert {at for _, at in world.hops()} == {at(15)} | {at(1200)}


def test_a_refused_credential_is_probed_after_two_hours_by_one_message(world: World) -> None:
    world.channel.sends = [AccessDenied(10, status=403), AccessDenied(131005, status=403), "wamid.1"]
    first, second = world.add("a"), world.add("b")
    world.process(first)
    assert world.process(second) == Answer(TaskResult.ACK, "waiting")
    for since, code in ((0, 10), (7200, 131005)):
        expected = RefusedCredential(IN_USE, code, at(since), at(since + 7200))
        assert world.marks.refused == expected
        world.clock.go(7200)
        world.process(second)
    assert world.marks.refused is None
    assert world.channel.calls == ["send"] * 3


def test_another_credential_sends_at_once_and_the_previous_one_changes_nothing(world: World) -> None:
    world.channel.sends = [CredentialInvalid(190, status=401), "wamid.1"]
    record = world.add("a")
    world.process(record)
    world.clock.go(86_000)
    assert world.process(record) == Answer(TaskResult.ACK, "waiting"), "190 is never probed"
    world.credentials.used = "another"
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    connected = Marks(credential=Credential("another", at(86_000), IN_USE))
    assert world.marks == connected
    world.credentials.used = IN_USE
    world.process(world.add("b"))
    assert world.marks == connected


# ---- what is told of senders


def test_a_sender_is_reported_with_its_reason(world: World) -> None:
    senders = world.health()
    said = []
    for given in ({}, {"block": Block(NOW, seconds(600), 368)}, {"refused": RefusedCredential(IN_USE, 190, NOW)}):
        world.mark(**given)
        senders.report()
        said.append((world.lines("sender_checked")[-1]["connected"], world.lines("sender_checked")[-1].get("reason")))
    assert said == [(1, None), (0, "blocked"), (0, "needs_reauth")]


def test_each_sender_is_judged_by_the_credential_of_its_provider(world: World) -> None:
    other = Channel(has_public_sender_ids=False)
    channels = Channels({"meta": world.channel, "other": other})  # type: ignore[dict-item]
    senders = EnvironmentTenants.of(("meta", SENDER), ("other", "+15550001111")).senders_of_environment()
    refused = RefusedCredential("another", 190, NOW)
    for sender in senders:
        world.store.change_marks(sender.id, lambda marks: replace(marks, refused=refused))
    tokens = EnvironmentCredentials({senders[0].id: IN_USE, senders[1].id: "another"})
    replace(world.health(*senders, channels=channels), credentials=tokens).report()
    of_meta, of_other = world.lines("sender_checked")
    assert (of_meta["provider"], of_meta["connected"], of_meta["phone_number_id"]) == ("meta", 1, SENDER)
    assert (of_other["provider"], of_other["connected"]) == ("other", 0)
    assert of_other.get("phone_number_id") is None


@pytest.mark.parametrize(
    ("mark", "down"),
    [(None, 0), (Outage(at(40), seconds(40)), 1), (Outage(at(-40), seconds(40)), 1), (Outage(NOW), 0)],
)
def test_outages_are_counted_by_sender_and_backend(world: World, mark: Outage | None, down: int) -> None:
    world.mark(down=mark)
    world.store.change_marks("b" * 40, lambda _: Marks(down=mark))
    assert world.health(backend="b" * 40).outages() == Outages(down, down)
    assert world.health().outages() == Outages(down, 0)


def test_senders_of_environment_belong_to_tenant_default() -> None:
    tenants = EnvironmentTenants.of(("meta", SENDER))
    (sender,) = tenants.senders_of_environment()
    assert (sender.tenant, sender.provider, sender.provider_id) == ("default", "meta", SENDER)
    assert tenants.sender("meta", SENDER) == sender
    assert tenants.sender("another", SENDER) is None
    assert list(tenants.senders_with([sender.id, "0" * 40])) == [sender]
    assert list(tenants.senders_of_account("meta", "1", "default")) == [sender]
    assert list(tenants.senders_of_account("meta", "1", "another")) == []


# ---- a call (read, typing)

TYPING = {"type": "typing", "content": {"message_id": "wamid.in"}, "to": "+15550002222"}


def test_answered_call_does_not_close_the_breaker(world: World) -> None:
    """Reads may be answered while sends fail: only a message is a trial."""
    world.mark(down=Outage(at(-16), seconds(40)))

    world.process(world.add("a", payload=TYPING))

    assert world.channel.calls == ["probe", "send"]
    assert world.marks.down == Outage(NOW, seconds(40)), "the claim goes back, and the next message is the trial"


def test_a_call_that_is_answered_lifts_no_block_and_clears_no_credential(world: World) -> None:
    block = Block(at(-1), seconds(600), 131042, by_receipt=True)
    refused = RefusedCredential(IN_USE, 10, at(-9000), at(-1))
    world.mark(block=block, refused=refused)

    world.process(world.add("a", payload=TYPING))

    assert world.marks.block == replace(block, until=NOW)
    assert world.marks.refused == replace(refused, until=NOW)


def test_a_call_that_meets_an_outage_makes_the_breaker_wait_longer(world: World) -> None:
    world.mark(down=Outage(at(-16), seconds(40)))
    world.channel.sends = [AnswerLost()]

    world.process(world.add("a", payload=TYPING))

    assert world.marks.down == Outage(at(80), seconds(80))


def test_new_credential_after_a_refusal_starts_one_drain(world: World) -> None:
    world.mark(refused=RefusedCredential(IN_USE, 190, at(-60)))
    world.credentials.used = "another-fingerprint"

    for key in "ab":
        world.process(world.add(key))

    assert [(drain.sender, drain.since, drain.page) for drain in world.queue.drains] == [(ID, NOW, 0)]
    assert world.marks.refused is None


# ---- a store that fails beside a send


class FailingMarks:
    """A store whose marks cannot be written, or read."""

    def __init__(self, store: Any, **failures: Exception) -> None:
        self._store, self._failures = store, failures

    def __getattr__(self, name: str) -> Any:
        if name in self._failures:
            return self._fail
        return getattr(self._store, name)

    def _fail(self, *_: Any) -> Any:
        raise next(iter(self._failures.values()))


def test_failed_mark_write_after_a_send_does_not_change_its_result(world: World) -> None:
    world.mark()
    record = world.add("a")
    world.channel.sends = [SenderBlocked(368, status=403)]
    world.store = FailingMarks(world.store, change_marks=StoreUnavailable())  # type: ignore[assignment]

    assert world.process(record) == Answer(TaskResult.ACK, "rescheduled")

    assert world.read(record).attempts_log[-1].answer == "blocked"
    assert len(world.queue.made) == 1, "its next task is made all the same"
    (line,) = world.lines("unexpected_error")
    assert (line["reason"], line["stage"]) == ("store_unavailable", "marks")


def test_a_failed_message_that_only_a_newer_version_can_read_stops_no_send(world: World) -> None:
    world.mark(receipt_block=ReceiptBlock(131042, at(-5), "f" * 40))
    record = world.add("a")
    plain = world.store

    class Unread(FailingMarks):
        def get(self, key: str, unechoed: bool = True) -> Delivery | None:  # noqa: ARG002 — the port's
            if key == "f" * 40:
                raise UnknownState
            return plain.get(key)

    world.store = Unread(plain)  # type: ignore[assignment]
    assert world.process(record) == Answer(TaskResult.ACK, "waiting")
    assert world.marks.block is not None
    assert world.marks.block.code == 131042


def test_marks_that_only_a_newer_version_can_read_hide_no_report(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store = FailingMarks(world.store, marks=UnknownState())
    senders = world.health(store=store, backend="b" * 40)
    senders.report()
    assert senders.outages() == Outages(0, 0)
    assert [line["connected"] for line in world.lines("sender_checked")] == [1]
    assert [line.levelname for line in caplog.records if line.message == EVENTS["state_unknown"]] == ["WARNING"] * 3


def test_a_sender_of_a_provider_without_a_channel_here_hides_no_other_sender(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tenants = EnvironmentTenants.of(("another", "+15550001111"), ("meta", SENDER))
    world.health(*tenants.senders_of_environment()).report()
    assert [line["provider"] for line in world.lines("sender_checked")] == ["meta"]
    (line,) = world.lines("state_unknown")
    assert (line["provider"], line["tenant"], line["reason"]) == ("another", "default", "provider")
    assert "phone_number_id" not in line
    assert [line.levelname for line in caplog.records if line.message == EVENTS["state_unknown"]] == ["WARNING"]


def test_a_wait_is_logged_in_whole_milliseconds(world: World) -> None:
    before, after = Marks(), Marks(down=Outage(at(1), seconds(0.123456)))
    log_outage("provider", before, after, NOW, SENDER)
    assert [line["wait_seconds"] for line in world.lines("provider_down")] == [0.123]


def test_reconnect_is_not_logged_as_a_block(world: World) -> None:
    """Though the receipt that was noted with it is taken away, and the block ends."""
    world.mark(block=Block(at(600), seconds(600), 368), receipt_block=ReceiptBlock(131042, at(-5)))
    world.credentials.used = "another-fingerprint"
    world.process(world.add("a"))
    assert world.lines("sender_blocked") == []


def test_returned_claim_is_not_logged_as_outage(world: World) -> None:
    world.mark(down=Outage(at(-16), seconds(40)))
    world.process(world.add("a", payload=TYPING))
    assert world.lines("provider_down", "provider_up") == []


def test_a_message_goes_before_a_call_when_the_breaker_is_over(world: World) -> None:
    """The call would close nothing, and the message would wait for its claim."""
    world.mark(down=Outage(NOW, seconds(40)))
    assert world.process(world.add("a", payload=TYPING)) == Answer(TaskResult.ACK, "waiting")
    assert world.hops() == [(1, at(15))]
    assert world.process(world.add("b")) == Answer(TaskResult.ACK, "done")
    assert world.marks.down is None


def test_hop_slightly_before_the_end_of_a_mark_does_not_hop_again(world: World) -> None:
    world.mark(down=Outage(at(0.1), seconds(40)))
    assert world.process(world.add("a")) == Answer(TaskResult.ACK, "done")
    world.mark(block=Block(at(0.1), seconds(600), 368))
    assert world.process(world.add("b")) == Answer(TaskResult.ACK, "done")


def test_the_wait_that_a_refusal_asks_for_is_the_least(world: World) -> None:
    for key, error in (("a", SenderBlocked(368, status=403)), ("b", AccessDenied(10, status=403))):
        world.mark()
        error.retry_after = seconds(3600)
        world.channel.sends = [error]
        record = world.add(key)
        world.process(record)
        assert world.read(record).due_at == at(3600)


# ---- the order of what follows a send: the record, then the marks, then the task


REFUSALS: dict[str, SendError] = {
    "credential": CredentialInvalid(190, status=401),
    "block": SenderBlocked(368, status=403),
}
each_refusal = pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)


def killed(*_: Any) -> Any:
    raise SystemExit


@each_refusal
def test_record_is_settled_before_marks_and_task_are_written(world: World, error: SendError) -> None:
    order: list[str] = []
    world.mark()
    record = world.add("a")
    world.channel.sends = [error]
    for port, name in ((world.store, "change"), (world.store, "change_marks"), (world.queue, "ensure")):
        call = getattr(port, name)

        def noted(*given: Any, name: str = name, call: Callable[..., Any] = call, **named: Any) -> Any:
            order.append(name)
            return call(*given, **named)

        setattr(port, name, noted)
    world.process(record)
    assert order == ["change", "change", "change_marks", "ensure"], "the lease, the outcome, what it says, the task"


@each_refusal
def test_worker_killed_before_task_creation_has_stored_the_marks(world: World, error: SendError) -> None:
    """Else every other message of the sender would be refused as well, until one attempt came to its end."""
    world.mark()
    record = world.add("a")
    world.channel.sends = [error]
    world.queue.ensure = killed  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        world.process(record)
    assert (world.marks.refused is not None, world.marks.block is not None) == (
        isinstance(error, CredentialInvalid),
        isinstance(error, SenderBlocked),
    )


@each_refusal
def test_worker_killed_before_marks_are_stored_has_settled_its_message(world: World, error: SendError) -> None:
    """Else it would be in doubt, though it certainly was not sent."""
    world.mark()
    record = world.add("a")
    world.channel.sends = [error]
    world.store.change_marks = killed  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        world.process(record)
    after = world.read(record)
    assert (after.state, after.attempt, after.generation) == (State.PENDING, 0, 1)


def test_duration_of_a_send_is_logged_in_milliseconds(world: World) -> None:
    world.channel.during = lambda _: world.clock.go(2.5)
    world.process(world.add("a"))
    (line,) = world.lines("outbound_sent")
    assert line["duration_ms"] == 2500.0


def test_failed_probe_without_a_mark_left_waits_for_the_length_of_a_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is gone: another attempt closed the breaker meanwhile."""
    monkeypatch.setattr(SenderMarks, "_change", lambda *_: Marks())
    _, guard = world.senders._probe_failed(world.add("a"), Marks(down=Outage(NOW)), ProviderDown(2), "token")
    assert isinstance(guard, Wait)
    assert guard.until == NOW + LIMITS.waits.claimed
