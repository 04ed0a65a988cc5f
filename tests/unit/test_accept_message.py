"""accept_message: a caller's message is stored once, with its task, however often it is asked for."""

import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.errors import QueueUnavailable, StoreUnavailable
from shared.domain.marks import Block, Credential, Disconnected, RefusedCredential
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.outbound.recipient import Recipient
from shared.domain.record import Delivery, Retries, State
from shared.domain.tenants import Sender
from shared.pipeline.accept_message import AcceptMessage, IdempotencyConflict, MessageRequest, SenderUnusable
from shared.pipeline.dispatch import TaskDispatch
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
    dispatch = TaskDispatch(queue, clock, LIMITS, Channel, Tenants())  # type: ignore[arg-type] # no channel is asked
    return World(store, queue, clock, AcceptMessage(store, dispatch, LIMITS, clock))


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


def test_new_message_costs_one_read_one_commit_and_one_task(world: World) -> None:
    world.accept(KEYED)
    assert [call[0] for call in world.store.calls] == ["marks", "create"]
    assert len(world.queue.calls) == 1


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
