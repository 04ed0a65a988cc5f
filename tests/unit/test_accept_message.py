"""accept_message: a caller's message is stored once, with its task, however often it is asked for."""

import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.errors import ConversationChanged, QueueUnavailable, StoreUnavailable, UnknownState
from shared.domain.marks import Block, Credential, Disconnected, RefusedCredential
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.outbound.recipient import Recipient
from shared.domain.record import Delivery, Retries, State
from shared.domain.tenants import Sender
from shared.pipeline.accept_message import AcceptMessage, IdempotencyConflict, MessageRequest, SenderUnusable
from shared.pipeline.conversations import Conversations, Party
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.recent_marks import RecentMarks
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, at
from tests.support.parts import Clock, NoQueue, Tapped, held, step
from tests.support.pipelines import Channel, Tenants

SENDER = Sender("default", "meta", "100000000000001")
PERSON = Recipient("15550002222", {"to": "+15550002222"})
REQUEST = MessageRequest(SENDER, PERSON, OutboundMessage.text("Your appointment is at nine."), "0a" * 20)
KEYED = replace(REQUEST, idempotency_key="order-17")
IN_USE = Credential("fingerprint", at(-60))


@dataclass
class World:
    store: Tapped
    queue: Tapped
    clock: Clock
    accept: AcceptMessage

    def stored(self, record: Delivery) -> Delivery:
        found: Delivery | None = self.store.port.get(record.key)
        assert found is not None
        return found

    def mark(self, **marks: Any) -> None:
        self.store.port.change_marks(SENDER.id, lambda before: replace(before, **marks))

    def fail(self, port: Tapped, method: str, error: Exception, after: bool = False) -> None:
        """From now on this method fails, before or after its effect."""

        def fault(name: str, *_: Any) -> Exception | None:
            return error if name == method else None

        if after:
            port.after = fault
        else:
            port.before = fault

    def heal(self) -> None:
        for port in (self.store, self.queue):
            port.before = port.after = lambda *_: None


@pytest.fixture
def world(tmp_path: Path) -> World:
    clock = Clock(at=at(0))
    store, queue = Tapped(SqliteStore(tmp_path / "pombo.sqlite", LIMITS, clock.now)), Tapped(NoQueue())
    store.ping()  # as the service does at its start: 64 first connections would wait for one another
    dispatch = TaskDispatch(queue, clock, LIMITS, Channel, Tenants())  # type: ignore[arg-type] # no channel is asked
    marks, conversations = RecentMarks(store, LIMITS.marks_age, clock), Conversations(store, clock, b"a key")
    return World(store, queue, clock, AcceptMessage(store, dispatch, LIMITS, clock, marks, conversations))


# ---- one message


def test_message_is_stored_with_its_content_and_its_task_is_made(world: World) -> None:
    asked = replace(KEYED, correlation_id="order-17-reminder", metadata={"order": 17})

    record = world.accept(asked)

    stored = world.stored(record)
    assert (stored.state, stored.tenant, stored.sender, stored.contact) == (
        State.PENDING,
        "default",
        "100000000000001",
        "15550002222",
    )
    assert stored.payload == {
        "type": "text",
        "content": {"body": "Your appointment is at nine."},
        "to": "+15550002222",
    }
    assert (stored.correlation_id, stored.metadata) == ("order-17-reminder", {"caller": {"order": 17}})
    (task, due), *more = world.queue.asked("ensure")
    assert (task.key, task.tenant, due, more) == (record.key, "default", at(0), [])


def test_new_message_costs_a_read_of_its_conversation_one_commit_and_one_task(world: World) -> None:
    world.accept(REQUEST)
    world.store.calls.clear()
    world.queue.calls.clear()
    world.accept(KEYED)
    assert [call[0] for call in world.store.calls] == ["conversation_entries", "create"]
    assert len(world.queue.calls) == 1


def test_marks_of_a_sender_count_for_five_seconds_from_when_they_were_asked_for(world: World) -> None:
    world.store.after = lambda name, *_: world.clock.go(1) if name == "marks" else None
    for wait, reads in ((0, 1), (3.9, 0), (0.1, 1)):
        world.clock.go(wait)
        world.store.calls.clear()
        world.accept(REQUEST)
        assert len(world.store.asked("marks")) == reads, wait


def test_only_the_marks_that_were_read_last_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.pipeline.recent_marks.MOST", 2)
    marks = world.accept.marks
    for id in ("a", "b"):
        marks(id)
    marks.newest("a")
    for id in ("c", "a", "c", "b"):
        marks(id)
    assert [id for (id,) in world.store.asked("marks")] == ["a", "b", "a", "c", "b"]


def test_message_is_accepted_though_its_conversation_is_unreadable(world: World) -> None:
    world.fail(world.store, "conversation_entries", UnknownState())
    record = world.accept(KEYED)
    assert (world.stored(record).conversation, len(world.queue.asked("ensure"))) == (None, 1)


def test_message_waits_for_the_one_before_it_to_the_same_contact(world: World) -> None:
    first, second = world.accept(REQUEST), world.accept(REQUEST)
    assert (world.stored(first).after, world.stored(second).after) == (None, first.key)
    assert world.stored(first).conversation == world.stored(second).conversation is not None
    other = replace(REQUEST, recipient=Recipient("15550003333", {"to": "+15550003333"}))
    assert world.stored(world.accept(other)).after is None


def test_message_is_in_the_conversation_that_the_contacts_own_messages_are_in(world: World) -> None:
    party = Party("default", "meta", SENDER.provider_id, SENDER.order, ["15550002222"])
    own = Conversations(world.store.port, world.clock, b"a key").thread(party).conversation
    stored = world.stored(world.accept(REQUEST))
    kept = world.store.port.conversation_entries([own.id])[own.id]
    assert (stored.conversation, kept.tenant, kept.provider) == (own.id, "default", "meta")


def test_messages_to_both_forms_of_a_number_share_a_lane_and_go_as_given(world: World) -> None:
    forms = ("5215550002222", "525550002222")
    asked = [replace(REQUEST, recipient=Recipient(form, {"to": f"+{form}"})) for form in forms]
    first, second = (world.stored(world.accept(request)) for request in asked)
    assert (second.conversation, second.after) == (first.conversation, first.key)
    assert [(one.contact, one.payload["to"]) for one in (first, second)] == [(form, f"+{form}") for form in forms]


def test_message_for_later_takes_no_place_among_those_of_now(world: World) -> None:
    later = world.accept(replace(REQUEST, send_at=at(60)))
    now = world.accept(REQUEST)
    assert (world.stored(later).joins_lane_later, world.stored(later).after) == (True, None)
    assert (world.stored(now).joins_lane_later, world.stored(now).after) == (False, None)
    assert world.stored(later).conversation == world.stored(now).conversation


def test_repeated_message_takes_no_second_place(world: World) -> None:
    first = world.accept(KEYED)
    between = world.accept(REQUEST)
    assert world.accept(KEYED) == first
    assert world.stored(world.accept(REQUEST)).after == between.key


def test_two_messages_at_once_follow_each_other(world: World) -> None:
    """The second one reads the conversation before the first one is stored, and reads it again."""

    def store_another(name: str, *_: Any) -> None:
        if name == "create":
            world.store.before = lambda *_: None
            world.accept(REQUEST)

    world.store.before = store_another
    second = world.accept(KEYED)
    assert world.stored(second).after is not None


def test_message_is_found_whose_commit_was_reported_as_refused(world: World) -> None:
    """It is looked for first: it never waits for itself."""
    original = world.store.port.create

    def create(record: Delivery, entries: Any) -> Any:
        original(record, entries)
        return original(record, entries)

    world.store.port.create = create
    record = world.accept(KEYED)
    assert (world.stored(record).after, len(world.queue.calls)) == (None, 1)


def test_conversation_that_changes_for_ever_is_an_outage(world: World) -> None:
    world.fail(world.store, "create", ConversationChanged())
    with pytest.raises(StoreUnavailable):
        world.accept(KEYED)


def test_message_that_quotes_another_keeps_whom_it_answers(world: World) -> None:
    asked = replace(REQUEST, message=OutboundMessage.text("Yes.", reply_to="wamid.1"))
    assert world.stored(world.accept(asked)).payload["reply_to"] == "wamid.1"


def test_message_for_later_is_due_then_with_its_callers_retries(world: World) -> None:
    asked = replace(REQUEST, send_at=at(15), retry=Retries(3, timedelta(seconds=15)))

    stored = world.stored(world.accept(asked))

    assert (stored.due_at, stored.send_at, stored.retry) == (at(15), at(15), Retries(3, timedelta(seconds=15)))
    assert world.queue.asked("ensure")[0][1] == at(15)


def test_requests_without_a_key_are_different_messages(world: World) -> None:
    assert world.accept(REQUEST).key != world.accept(REQUEST).key


# ---- the same request again


def test_same_key_and_body_gives_the_first_message_and_ensures_its_task(world: World) -> None:
    first = world.accept(replace(KEYED, correlation_id="first-correlation"))
    again = world.accept(replace(KEYED, correlation_id="second-correlation"))

    assert (again.key, again.correlation_id) == (first.key, "first-correlation")
    one, other = (task.name for task, _ in world.queue.asked("ensure"))
    assert one == other


def test_task_of_a_message_that_is_under_way_is_not_made_again(world: World) -> None:
    first = world.accept(KEYED)
    world.store.port.change(first.key, leased_step)
    world.accept(KEYED)
    assert len(world.queue.asked("ensure")) == 1


def leased_step(found: Delivery | None) -> Any:
    assert found is not None
    return step(replace(found, **held(60)))


def test_same_key_with_another_body_is_a_conflict_and_stores_nothing(world: World) -> None:
    first = world.accept(KEYED)
    with pytest.raises(IdempotencyConflict):
        world.accept(replace(KEYED, body_hash="0b" * 20, message=OutboundMessage.text("another")))
    assert world.stored(first).payload["content"] == {"body": "Your appointment is at nine."}


def test_same_key_of_another_tenant_is_another_message(world: World) -> None:
    theirs = replace(KEYED, sender=replace(SENDER, tenant="bakery"))
    assert world.accept(KEYED).key != world.accept(theirs).key


@pytest.mark.parametrize(("seconds", "is_in_lane"), [(-1, True), (0, True), (1, False)])
def test_only_a_message_for_later_takes_its_place_later(world: World, seconds: int, is_in_lane: bool) -> None:
    first = world.accept(REQUEST)
    second = world.stored(world.accept(replace(REQUEST, send_at=at(seconds))))
    assert (second.after == first.key, second.joins_lane_later) == (is_in_lane, not is_in_lane)


def test_one_of_64_callers_with_one_key_stores_the_message(world: World) -> None:
    barrier, keys = threading.Barrier(64), list[str]()

    def call() -> None:
        barrier.wait()
        keys.append(world.accept(KEYED).key)

    threads = [threading.Thread(target=call) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(keys) == 64
    assert len(set(keys)) == 1
    assert len({task.name for task, _ in world.queue.asked("ensure")}) == 1


# ---- a sender that cannot send

REAUTH_REQUIRED = "WHATSAPP_REAUTH_REQUIRED"
UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "refused": (
        {"refused": RefusedCredential("fingerprint", 190, at(-9)), "credential": IN_USE},
        REAUTH_REQUIRED,
    ),
    "disconnected": ({"disconnected": Disconnected("PARTNER_REMOVED", at(-9))}, REAUTH_REQUIRED),
    "blocked": ({"block": Block(at(60), timedelta(seconds=60), 131031)}, "SENDER_BLOCKED"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_message_of_a_sender_that_cannot_send_is_refused_and_not_stored(world: World, name: str) -> None:
    marks, code = UNUSABLE[name]
    world.mark(**marks)
    with pytest.raises(SenderUnusable) as refused:
        world.accept(KEYED)
    assert refused.value.code == code
    assert (world.store.asked("create"), world.queue.calls) == ([], [])


@pytest.mark.parametrize("name", UNUSABLE)
def test_sender_that_can_send_again_is_not_refused_for_what_was_read_before(world: World, name: str) -> None:
    world.mark(**UNUSABLE[name][0])
    with pytest.raises(SenderUnusable):
        world.accept(REQUEST)
    world.mark(refused=None, disconnected=None, block=None)
    assert world.stored(world.accept(REQUEST)).state is State.PENDING


USABLE: dict[str, dict[str, Any]] = {
    "another credential is in use": UNUSABLE["refused"][0] | {"credential": Credential("another", at(-5))},
    "the refusal may be cured at the provider": {
        "refused": RefusedCredential("fingerprint", 10, at(-9), until=at(3600)),
        "credential": IN_USE,
    },
    "the block's end has passed": {"block": Block(at(0), timedelta(seconds=60), 131031)},
}


@pytest.mark.parametrize("name", USABLE)
def test_message_that_may_be_the_probe_is_stored(world: World, name: str) -> None:
    world.mark(**USABLE[name])
    assert world.stored(world.accept(KEYED)).state is State.PENDING


@pytest.mark.parametrize("name", UNUSABLE)
def test_message_for_later_is_judged_when_it_is_due(world: World, name: str) -> None:
    world.mark(**UNUSABLE[name][0])
    assert world.stored(world.accept(replace(KEYED, send_at=at(1)))).state is State.PENDING


def test_request_stored_before_the_sender_was_cut_off_gets_its_answer_again(world: World) -> None:
    first = world.accept(KEYED)
    world.mark(**UNUSABLE["refused"][0])
    assert world.accept(KEYED).key == first.key


# ---- a store or a queue that is away


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_repeated_request_succeeds_once_the_store_is_back(world: World, after: bool) -> None:
    world.fail(world.store, "create", StoreUnavailable(), after)
    with pytest.raises(StoreUnavailable):
        world.accept(KEYED)
    world.heal()
    assert world.stored(world.accept(KEYED)).state is State.PENDING
    assert len({task.key for task, _ in world.queue.asked("ensure")}) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_repeated_request_makes_the_task_once_the_queue_is_back(world: World, after: bool) -> None:
    world.fail(world.queue, "ensure", QueueUnavailable(), after)
    with pytest.raises(QueueUnavailable):
        world.accept(KEYED)
    world.heal()
    record = world.accept(KEYED)
    assert world.stored(record).state is State.PENDING
    assert {task.name for task, _ in world.queue.asked("ensure")} == {world.queue.asked("ensure")[0][0].name}


def test_message_without_a_key_is_taken_back_if_its_task_cannot_be_made(world: World) -> None:
    """Its caller would repeat the request as another message, and the sweep would send this one too."""
    world.fail(world.queue, "ensure", QueueUnavailable())
    with pytest.raises(QueueUnavailable):
        world.accept(REQUEST)
    ((task, _),) = world.queue.asked("ensure")
    found = world.store.port.get(task.key)
    assert (found.state, found.reason) == (State.DROPPED, "cancelled")


def test_message_without_a_key_whose_task_runs_already_is_accepted(world: World) -> None:
    """The queue took the task, and its answer was lost."""

    def runs_at_once(name: str, task: Any = None, *_: Any) -> Exception | None:
        if name != "ensure":
            return None
        world.store.port.change(task.key, leased_step)
        return QueueUnavailable()

    world.queue.after = runs_at_once
    assert world.stored(world.accept(REQUEST)).state is State.LEASED


def test_store_that_goes_away_with_the_queue_is_no_other_error(world: World) -> None:
    world.fail(world.queue, "ensure", QueueUnavailable())
    world.fail(world.store, "change", StoreUnavailable())
    with pytest.raises(QueueUnavailable):
        world.accept(REQUEST)
