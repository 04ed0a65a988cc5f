"""What every store promises of conversations: written in the commit of a message or not at all, and read in pages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from shared.domain.conversations import (
    Alias,
    Conversation,
    ConversationEntry,
    ConversationState,
    LaneEnd,
    SenderLane,
    Thread,
    created_in,
)
from shared.domain.delivery.answers import Run, Step
from shared.domain.errors import ConversationChanged, UnknownState
from shared.domain.record import Delivery, Kind, ReceiptKind, State
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import Cursor
from tests.support.receipts import note_receipt
from tests.support.store_cases import NOW, OK, at, echo_of, lease_with, of_unknown_state, receipt, writing
from tests.support.together import together

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40
THREADS = 32
NEWER = {"window": {"until": "2026-03-02", "of": ["a", 1]}, "muted": True, "level": 7}
"""What a newer version of Pombo may keep in a conversation."""


def a_conversation(id: str = ONE, **changes: Any) -> Conversation:
    fields = {"tenant": "default", "provider": "meta", "sender": "100000000000001", "contact": "15550002222"}
    return Conversation(id, **{**fields, "last_message_at": NOW, **changes})


WHOLE = a_conversation(
    aliases=frozenset({"15550002222", "user.1"}),
    lost=frozenset({"user.1"}),
    formerly=(THREE, TWO),
    last_inbound_at=at(-0.000001),
    last_message_at=at(0.999999),
    last_outbound=LaneEnd("k" * 40, at(3600.5)),
    unread=3,
    state=ConversationState.CLOSED,
    assignee="Jo 漢",
)
LEAST = a_conversation(last_message_at=None)
ENTRIES: Mapping[str, ConversationEntry] = {
    "whole conversation": WHOLE,
    "least conversation": LEAST,
    "alias": Alias(ONE, TWO),
    "lane": SenderLane(ONE, LaneEnd("k" * 40, at(1.000001))),
    "empty lane": SenderLane(ONE),
}


@pytest.fixture
def a_message(a_record: Callable[..., Delivery]) -> Callable[..., Delivery]:
    """Makes messages that have an end."""
    return lambda **changes: a_record(**{"give_up_at": at(3600)} | changes)


@pytest.fixture
def keep(store: Any, a_message: Callable[..., Delivery]) -> Callable[..., Sequence[Any]]:
    """Stores entries, with a message of no conversation, and returns them as they are read."""

    def keep(*entries: ConversationEntry) -> Sequence[ConversationEntry]:
        assert store.create(a_message(), entries) == Created()
        found = store.conversation_entries([entry.id for entry in entries])
        return [found[entry.id] for entry in entries]

    return keep


def the(store: Any, id: str = ONE) -> Any:
    return store.conversation_entries([id]).get(id)


# ---- what is stored is what is read


@pytest.mark.parametrize("name", ENTRIES)
def test_each_kind_of_entry_survives_a_round_trip(keep, name):
    (found,) = keep(ENTRIES[name])
    assert found == ENTRIES[name]
    assert found.version is not None


@pytest.mark.parametrize("after", ENTRIES)
@pytest.mark.parametrize("before", ["whole conversation", "alias", "lane"])
def test_each_kind_of_entry_can_replace_each_other(store, keep, before, after):
    """The last message has left the conversation's page with it."""
    (found,) = keep(ENTRIES[before])
    (now,) = keep(replace(ENTRIES[after], version=found.version))
    assert now == ENTRIES[after]
    assert now.version is not None
    listed = store.conversations("default", None, 10).conversations
    assert listed == ([WHOLE] if after == "whole conversation" else [])


def test_ids_that_do_not_exist_are_left_out(store, keep):
    keep(a_conversation(ONE), Alias(TWO, ONE))
    assert store.conversation_entries([ONE, THREE, TWO]) == {ONE: a_conversation(ONE), TWO: Alias(TWO, ONE)}
    assert store.conversation_entries([THREE]) == store.conversation_entries([]) == {}


def test_fields_of_a_newer_version_are_kept_in_a_conversation(store, keep):
    keep(replace(WHOLE, newer=NEWER))
    (found,) = keep(replace(the(store), unread=4))
    assert (found.newer, found.unread) == (NEWER, 4)
    assert store.conversations("default", None, 10).conversations[0].newer == NEWER


def test_what_another_conversation_had_is_merged_and_kept(store, keep):
    first, second = keep(a_conversation(ONE, newer={"muted": True}), a_conversation(TWO, newer={"level": 7}))
    keep(replace(first, newer=first.newer | second.newer))
    assert the(store).newer == {"muted": True, "level": 7}


class Newer(StrEnum):
    """A state of a newer version."""

    PARKED = "parked"


DAMAGED: Mapping[str, ConversationEntry] = {
    "state": replace(WHOLE, state=Newer.PARKED),  # type: ignore[arg-type]
    "contact": replace(WHOLE, contact=17),  # type: ignore[arg-type]
    "lane end": replace(WHOLE, last_outbound=LaneEnd(17, NOW)),  # type: ignore[arg-type]
    "alias": Alias(ONE, 17),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_entry_is_an_unknown_state(store, a_message, name):
    store.create(a_message(), [DAMAGED[name]])
    with pytest.raises(UnknownState):
        store.conversation_entries([ONE])


def test_damaged_conversation_is_counted_in_a_page_and_hides_no_other(store, keep):
    keep(a_conversation(TWO), a_conversation(THREE))
    store.create(replace(a_message_of(store), key="d" * 40), [replace(WHOLE, state=Newer.PARKED)])
    page = store.conversations("default", None, 10)
    assert ([found.id for found in page.conversations], page.unread) == ([THREE, TWO], 1)


def a_message_of(store: Any) -> Delivery:
    """Any that is stored."""
    record: Delivery = store.history("default", None, None, None, 1).records[0]
    return replace(record, version=None)


def test_text_that_cannot_be_stored_leaves_no_trace(store, a_message):
    message = a_message()
    with pytest.raises((TypeError, ValueError)):
        store.create(message, [a_conversation(assignee="\ud800")])
    with pytest.raises((TypeError, ValueError)):
        store.create(message, [a_conversation(last_message_at=NOW.replace(tzinfo=None))])
    assert (store.get(message.key), the(store)) == (None, None)


# ---- all of a commit or nothing


def test_message_is_created_with_its_conversation_alias_and_lane(store, a_message):
    message, entries = a_message(conversation=ONE), [a_conversation(ONE), Alias(TWO, ONE), SenderLane(THREE)]
    assert store.create(message, entries) == Created()
    assert store.get(message.key) == message
    assert [*store.conversation_entries([ONE, TWO, THREE]).values()] == entries


def test_change_writes_its_record_the_others_and_the_entries(store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    event, reply = a_message(kind=Kind.INBOUND), a_message()
    store.create(event)
    entries = (replace(found, unread=1), Alias(TWO, ONE))
    step = store.change(event.key, lambda it: Step(OK, replace(it, plan_size=1), (reply,), entries=entries))
    assert store.get(event.key) == step.write == replace(event, plan_size=1)
    assert store.get(reply.key) == reply
    assert (the(store), the(store, TWO)) == entries
    assert store.change(event.key, writing(attempt=1), step.write).write.attempt == 1


STALE: Mapping[str, Callable[[Conversation], ConversationEntry]] = {
    "has moved": lambda found: found,
    "was created meanwhile": lambda found: replace(found, version=None),
    "does not exist any more": lambda _: a_conversation(TWO, version=1_700_000_000_000_000_000),
}
"""Entries that are not as they were read, made from the conversation as it was before its last change."""


@pytest.fixture(params=STALE)
def stale(request: pytest.FixtureRequest, keep: Callable[..., Any]) -> ConversationEntry:
    (found,) = keep(a_conversation(ONE))
    keep(replace(found, unread=5))
    return STALE[request.param](found)


@pytest.fixture
def unwritten(store: Any, stale: Any) -> Iterator[Sequence[ConversationEntry]]:
    """Entries of a commit, the stale one among them. In the end, none of them is written."""
    yield [a_conversation(THREE), replace(stale, unread=9), Alias("4" * 40, ONE)]
    assert store.conversation_entries([ONE, TWO, THREE, "4" * 40]) == {ONE: a_conversation(ONE, unread=5)}


def test_creation_with_a_stale_entry_writes_nothing(store, a_message, unwritten):
    message = a_message(conversation=ONE)
    with pytest.raises(ConversationChanged):
        store.create(message, unwritten)
    assert store.get(message.key) is None
    assert store.of_conversation(ONE, None, 10).records == []


@pytest.mark.parametrize("is_read", [True, False])
def test_change_with_a_stale_entry_writes_nothing(store, a_message, unwritten, is_read):
    event, reply = a_message(), a_message()
    store.create(event)
    seen = store.get(event.key) if is_read else None
    with pytest.raises(ConversationChanged):
        store.change(event.key, lambda it: Step(OK, replace(it, plan_size=1), (reply,), entries=(*unwritten,)), seen)
    assert (store.get(event.key), store.get(reply.key)) == (event, None)


def test_change_that_only_creates_writes_nothing_with_a_stale_entry(store, a_message, unwritten):
    event, reply = a_message(), a_message()
    store.create(event)
    with pytest.raises(ConversationChanged):
        store.change(event.key, lambda _: Step(OK, create=(reply,), entries=(*unwritten,)))
    assert (store.get(event.key), store.get(reply.key)) == (event, None)


def test_change_that_leaves_its_record_as_it_is_writes_no_stale_entry(store, a_message, unwritten):
    event = a_message()
    store.create(event)
    with pytest.raises(ConversationChanged):
        store.change(event.key, lambda it: Step(OK, it, entries=(*unwritten,)))


def test_change_that_makes_its_record_writes_nothing_with_a_stale_entry(store, a_message, unwritten):
    record = a_message()
    with pytest.raises(ConversationChanged):
        store.change(record.key, lambda _: Step(OK, record, entries=(*unwritten,)))
    assert store.get(record.key) is None


def test_existing_record_is_told_and_none_of_the_entries_is_written(store, a_message, unwritten):
    """Though one of them is stale: the caller may have sent the same before."""
    first = a_message(payload={"body": "first"})
    store.create(first)
    assert store.create(replace(first, payload={"body": "second"}), unwritten) == Exists(first)
    assert store.get(first.key) == first


def test_existing_record_leaves_entries_as_they_are(store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    message = a_message()
    store.create(message)
    assert store.create(message, [replace(found, unread=9), a_conversation(TWO)]) == Exists(message)
    assert store.conversation_entries([ONE, TWO]) == {ONE: found}
    assert the(store).version == found.version


def test_existing_reply_stays_as_it_is_and_the_entries_are_written(store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    event, reply = a_message(), a_message()
    store.create(event)
    store.create(reply)
    again = replace(reply, payload={"body": "second"})
    entries = (replace(found, unread=9),)
    store.change(event.key, lambda it: Step(OK, replace(it, plan_size=1), (again,), entries=entries))
    assert (store.get(reply.key), store.get(event.key).plan_size, the(store).unread) == (reply, 1, 9)


def test_change_is_decided_again_after_another_write_of_its_record(store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    event, attempts = a_message(), []
    store.create(event)

    def decide(it: Delivery) -> Step:
        attempts.append(it.attempt)
        if len(attempts) == 1:
            store.change(event.key, writing(attempt=10))
        return Step(OK, replace(it, attempt=it.attempt + 1), entries=(replace(found, unread=9),))

    store.change(event.key, decide)
    assert attempts == [0, 10]
    assert (store.get(event.key).attempt, the(store).unread) == (11, 9)


def test_change_that_finds_its_record_and_its_entry_changed_writes_nothing(store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    event, attempts = a_message(), []
    store.create(event)

    def decide(it: Delivery) -> Step:
        attempts.append(it.attempt)
        if len(attempts) == 1:
            store.change(event.key, lambda now: Step(OK, replace(now, attempt=10), entries=(replace(found, unread=5),)))
        return Step(OK, replace(it, attempt=it.attempt + 1), entries=(replace(found, unread=9),))

    with pytest.raises(ConversationChanged):
        store.change(event.key, decide)
    assert (store.get(event.key).attempt, the(store).unread) == (10, 5)


def test_decision_that_then_writes_nothing_does_not_mind_a_stale_entry(store, keep, a_message):
    """Another task has ended the event, with its conversation."""
    (found,) = keep(a_conversation(ONE))
    event = a_message()
    store.create(event)

    def end(it: Delivery, token: str) -> Step:
        if it.state is State.DONE:
            return Step(OK, entries=(found,))
        return Step(OK, replace(it, state=State.DONE, token=token), entries=(replace(found, unread=1),))

    def ended_by_another(it: Delivery) -> Step:
        if it.state is not State.DONE:
            store.change(event.key, lambda now: end(now, "other"))
        return end(it, "mine")

    assert store.change(event.key, ended_by_another).write is None
    assert (store.get(event.key).token, the(store).unread) == ("other", 1)


# ---- many at once


def test_messages_of_32_threads_in_one_conversation_are_one_chain(backend, a_message):
    clients = [backend.client(), backend.client()]

    def append(client: Any, message: Delivery) -> Delivery:
        while True:
            thread = Thread(client.conversation_entries([ONE]).get(ONE) or a_conversation(ONE))
            placed, entries = created_in(message, thread, NOW)
            try:
                assert client.create(placed, entries) == Created()
                return placed
            except ConversationChanged:
                continue

    messages = [a_message() for _ in range(THREADS)]
    placed = together([lambda m=it, c=clients[n % 2]: append(c, m) for n, it in enumerate(messages)])
    befores = [message.after for message in placed]
    assert len({*befores}) == THREADS, "no fork"
    assert befores.count(None) == 1, "one start"
    end = the(clients[0]).last_outbound.key
    assert {*befores, end} == {None, *(message.key for message in messages)}
    assert len(clients[0].of_conversation(ONE, None, 100).records) == THREADS


def test_ends_of_32_events_of_one_contact_are_all_counted(backend, a_message):
    clients, events = [backend.client(), backend.client()], [a_message(kind=Kind.INBOUND) for _ in range(THREADS)]
    for event in events:
        clients[0].create(event)

    def end(client: Any, event: Delivery) -> None:
        while True:
            entries = Thread(client.conversation_entries([ONE]).get(ONE) or a_conversation(ONE)).heard(NOW).entries
            try:
                client.change(event.key, lambda it, e=entries: Step(OK, replace(it, conversation=ONE), entries=e))
                return
            except ConversationChanged:
                continue

    assert together([lambda e=it, c=clients[n % 2]: end(c, e) for n, it in enumerate(events)]) == [None] * THREADS
    assert the(clients[0]).unread == THREADS


# ---- an answer that is lost


@contextmanager
def losing_an_answer(backend: Any, store: Any, message: Delivery) -> Iterator[None]:
    """The answer to the next call about this message is lost after it was carried out. A file loses no answers."""
    if backend.proxy is None:
        yield
        return
    store.create(replace(message, key="e" * 40))  # the server knows the script, and the client has a connection
    before = backend.proxy.swallowed
    backend.proxy.swallow_next_answer(holding=message.key.encode())
    yield
    assert backend.proxy.swallowed == before + 1


def test_creation_whose_answer_was_lost_writes_once(backend, store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    message = a_message(conversation=ONE)
    placed, entries = created_in(message, Thread(found), NOW)
    with losing_an_answer(backend, store, message):
        assert store.create(placed, entries) in (Created(), Exists(placed))
    assert store.get(message.key) == placed
    assert [the(store)] == [*entries]


def test_change_whose_answer_was_lost_writes_once(backend, store, keep, a_message):
    """Though the decision does not recognise what it wrote."""
    (found,) = keep(a_conversation(ONE))
    event, reply = a_message(), a_message()
    store.create(event)
    seen, decided = store.get(event.key), []

    def decide(it: Delivery) -> Step:
        decided.append(it)
        return Step(OK, replace(it, plan_size=1), (reply,), entries=(replace(found, unread=1),))

    with losing_an_answer(backend, store, event):
        step = store.change(event.key, decide, seen)
    assert len(decided) == 1
    assert (store.get(event.key), store.get(reply.key), the(store).unread) == (step.write, reply, 1)
    assert store.change(event.key, writing(attempt=1), step.write).write.attempt == 1


def test_creation_sent_again_is_told_though_its_conversation_went_on(store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    first, entries = created_in(a_message(), Thread(found), NOW)
    store.create(first, entries)
    second, then = created_in(a_message(), Thread(the(store)), NOW)
    store.create(second, then)
    assert store.create(first, entries) == Exists(first)
    assert the(store).last_outbound.key == second.key


def test_lease_sent_again_is_recognised_though_its_conversation_went_on(backend, store, keep, a_message):
    (found,) = keep(a_conversation(ONE))
    message = a_message()
    store.create(message)
    seen = store.get(message.key)

    def decide(it: Delivery) -> Step:
        return replace(lease_with("mine")(it), entries=(replace(found, unread=1),))

    applied = backend.client().change(message.key, decide, seen)
    keep(replace(the(store), unread=2))
    step = store.change(message.key, decide, seen)
    assert isinstance(step.next, Run)
    assert step.next.record == store.get(message.key) == applied.write
    assert the(store).unread == 2


# ---- pages of conversations


def pages_of(call: Callable[[Cursor | None, int], Any], of: str, limit: int) -> list[Any]:
    """All of it, page by page; no page holds more than was asked for."""
    found, after = [], None
    while True:
        page = call(after, limit)
        assert len(getattr(page, of)) <= limit
        found += getattr(page, of)
        assert len(found) < 1000, "the pages go on for ever"
        if page.ends_at is None:
            return found
        after = page.ends_at


def conversations_of(store: Any, tenant: str, limit: int = 100) -> list[Conversation]:
    return pages_of(lambda after, limit: store.conversations(tenant, after, limit), "conversations", limit)


def messages_of(store: Any, id: str, limit: int = 100) -> list[Delivery]:
    return pages_of(lambda after, limit: store.of_conversation(id, after, limit), "records", limit)


def ids(number: int) -> Sequence[str]:
    return [f"{n:040x}" for n in range(number)]


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_conversations_of_a_tenant_come_newest_first_without_other_entries(store, keep, limit):
    """Three of one moment are in the order of their ids, the greatest first."""
    mine = [a_conversation(id, tenant="one", last_message_at=at(-10 * min(n, 5))) for n, id in enumerate(ids(8))]
    others = [a_conversation(TWO, tenant="two"), a_conversation(THREE, tenant="one2"), LEAST]
    keep(*mine, *others, Alias("4" * 40, ONE), SenderLane("5" * 40))
    expected = sorted(mine, key=lambda it: (it.last_message_at, it.id), reverse=True)
    assert conversations_of(store, "one", limit) == expected
    assert conversations_of(store, "default", limit) == conversations_of(store, "three", limit) == []


def test_pages_of_conversations_give_each_that_stays_once_while_others_move(store, keep):
    found = keep(*(a_conversation(id, last_message_at=at(-n)) for n, id in enumerate(ids(6))))
    first = store.conversations("default", None, 3)
    keep(replace(found[4], last_message_at=at(10)), replace(found[1], last_message_at=at(11)))
    keep(a_conversation(TWO, last_message_at=at(12)), replace(found[3], unread=7))
    second = store.conversations("default", first.ends_at, 3)
    seen = [it.id for it in (*first.conversations, *second.conversations)]
    assert seen == [found[n].id for n in (0, 1, 2, 3, 5)]
    assert [it.id for it in conversations_of(store, "default", 2)][:3] == [TWO, found[1].id, found[4].id]


def test_listed_conversation_can_be_written_as_it_was_read(store, keep):
    keep(WHOLE)
    (listed,) = conversations_of(store, "default")
    keep(replace(listed, unread=8))
    assert the(store).unread == 8


def test_conversation_that_another_tenant_gets_is_listed_there_alone(store, keep):
    (found,) = keep(a_conversation(ONE, tenant="one"))
    keep(replace(found, tenant="two"))
    assert (conversations_of(store, "one"), [it.id for it in conversations_of(store, "two")]) == ([], [ONE])


# ---- pages of the messages of a conversation


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_messages_of_a_conversation_come_whole_newest_first(store, a_message, limit):
    mine = [a_message(received_at=at(-10 * min(n, 5)), conversation=ONE, tenant=f"{n}") for n in range(8)]
    for record in [*mine, a_message(conversation=TWO), a_message()]:
        store.create(record)
    expected = sorted(mine, key=lambda it: (it.received_at, it.key), reverse=True)
    assert messages_of(store, ONE, limit) == expected
    assert messages_of(store, THREE, limit) == []


def test_event_joins_its_conversation_when_it_has_ended(store, a_message):
    event, message = a_message(kind=Kind.INBOUND, received_at=at(-1)), a_message(conversation=ONE)
    store.create(event)
    store.create(message)
    assert messages_of(store, ONE) == [message]
    ended = store.change(event.key, writing(conversation=ONE, state=State.DONE)).write
    assert messages_of(store, ONE) == [message, ended]
    moved = store.change(event.key, writing(conversation=TWO)).write
    assert (messages_of(store, ONE), messages_of(store, TWO)) == ([message], [moved])


def test_messages_of_a_conversation_have_their_receipts(store, a_message):
    message = a_message(conversation=ONE)
    store.create(message)
    note_receipt(store, echo_of(message), receipt(ReceiptKind.SENT, 1))
    (found,) = messages_of(store, ONE)
    assert found == store.get(message.key)
    assert found.current_receipts.sent == at(1)


def test_pages_of_messages_give_each_that_stays_once_while_others_come(store, a_message):
    messages = [a_message(received_at=at(-n), conversation=ONE) for n in range(6)]
    for message in messages:
        store.create(message)
    first = store.of_conversation(ONE, None, 3)
    store.create(a_message(received_at=at(1), conversation=ONE))
    store.change(messages[4].key, writing(state=State.DEAD))
    second = store.of_conversation(ONE, first.ends_at, 3)
    assert [it.key for it in (*first.records, *second.records)] == [it.key for it in messages]


def test_unreadable_message_of_a_conversation_is_counted_and_hides_no_other(store, a_message):
    messages = [a_message(received_at=at(-n), conversation=ONE) for n in range(3)]
    for message in (messages[0], of_unknown_state(messages[1]), messages[2]):
        store.create(message)
    page = store.of_conversation(ONE, None, 10)
    assert ([it.key for it in page.records], page.unread) == ([messages[0].key, messages[2].key], 1)
