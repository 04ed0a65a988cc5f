"""Conversations: a contact has one, whichever of its names is used, and its messages are sent in one lane."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.domain.conversations import (
    Alias,
    Conversation,
    ConversationState,
    LaneEnd,
    SenderLane,
    Thread,
    conversation_id,
    created_in,
    joining,
    merged,
)
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.conversation import with_conversation
from shared.domain.identity import sender_id
from shared.domain.message_parts import System
from shared.domain.messages import Contact, Message
from shared.domain.record import Delivery, Kind, State
from shared.domain.tenants import Order
from shared.pipeline.conversations import Conversations, Party, name_lost, names_of
from shared.stores.conversation_codec import decode, encode
from shared.stores.firestore.conversations import contended_id
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, NOW, at, pending
from tests.support.pipelines import Clock

KEY, SENDER = b"a key", "100000000000001"
USER, NUMBER, NEW_NUMBER = "US.13491208655302741918", "15550002222", "15550003333"
MEXICAN, BRAZILIAN = ("525550002222", "5215550002222"), ("551185502222", "5511985502222")


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "pombo.sqlite", LIMITS, Clock().now)


@pytest.fixture
def conversations(store: SqliteStore) -> Conversations:
    return Conversations(store, Clock(), KEY)


def party(*names: str, order: Order = Order.CONTACT, lost: str | None = None, tenant: str = "default") -> Party:
    return Party(tenant, "meta", SENDER, order, names, lost)


def a_message(number: int) -> Delivery:
    return pending(key=f"{number:040}", generation=0)


def write(
    conversations: Conversations,
    message: Delivery,
    *names: str,
    order: Order = Order.CONTACT,
    lost: str | None = None,
) -> Delivery:
    """The message as it is stored at the end of its contact's lane. `lost`: the name that the contact has lost."""
    placed, entries = created_in(message, conversations.thread(party(*names, order=order, lost=lost)), NOW)
    conversations.store.create(placed, entries)
    return placed


def id_of(name: str) -> str:
    return conversation_id(KEY, "default", "meta", SENDER, name)


def kept(conversations: Conversations, name: str) -> object:
    return conversations.store.conversation_entries([id_of(name)]).get(id_of(name))


# ---- one person, however they write


def test_conversation_has_the_id_of_the_user_id_and_an_alias_for_the_number(conversations: Conversations) -> None:
    first = write(conversations, a_message(1), USER, NUMBER)
    assert first.conversation == id_of(USER)
    assert kept(conversations, NUMBER) == Alias(id_of(NUMBER), id_of(USER))
    of = conversations.thread(party(NUMBER)).conversation
    assert (of.id, of.contact, of.aliases, of.tenant) == (id_of(USER), USER, frozenset({NUMBER}), "default")


def test_id_depends_on_the_key_the_sender_and_the_name() -> None:
    ids = {
        conversation_id(key, tenant, provider, sender, name)
        for key in (KEY, b"another key")
        for tenant in ("default", "acme", "globex")
        for provider in ("meta", "acme")
        for sender in (SENDER, "200000000000002")
        for name in (USER, NUMBER)
    }
    assert len(ids) == 48


@pytest.mark.parametrize("order", Order)
def test_number_that_moves_to_another_tenant_takes_no_conversation_along(
    conversations: Conversations, order: Order
) -> None:
    """Neither tenant may see what the other one's customers wrote, nor wait for its messages."""
    write(conversations, a_message(1), USER, NUMBER, order=order)
    for number, tenant in ((2, "acme"), (3, "globex")):
        begun = conversations.thread(party(USER, NUMBER, order=order, tenant=tenant))
        assert begun.before(NOW) is None, "it waits for no message of the former tenant"
        assert (begun.conversation.tenant, begun.conversation.version) == (tenant, None)
        placed, entries = created_in(a_message(number), begun, NOW)
        conversations.store.create(placed, entries)
        found = conversations.thread_of(placed.conversation or "", tenant, "meta", SENDER, order)
        assert found is not None
        assert found.before(NOW) == placed.key


def test_key_of_the_ids_is_in_no_description(conversations: Conversations) -> None:
    assert KEY.decode() not in repr(conversations)


def test_conversation_of_a_number_goes_on_under_the_user_id(conversations: Conversations) -> None:
    sent = write(conversations, a_message(1), NUMBER)
    answered = write(conversations, a_message(2), USER, NUMBER)
    assert (answered.conversation, answered.after) == (id_of(USER), sent.key)
    assert kept(conversations, NUMBER) == Alias(id_of(NUMBER), id_of(USER))
    of = kept(conversations, USER)
    assert isinstance(of, Conversation)
    assert (of.formerly, of.aliases) == ((id_of(NUMBER),), frozenset({NUMBER}))
    assert write(conversations, a_message(3), NUMBER).after == answered.key


@pytest.mark.parametrize(
    ("names", "reads"), [((USER, NUMBER), 1), ((USER,), 1), ((NUMBER,), 2), ((USER, NUMBER, NEW_NUMBER), 2)]
)
def test_known_name_costs_one_read_and_an_alias_one_more(
    conversations: Conversations, monkeypatch: pytest.MonkeyPatch, names: Sequence[str], reads: int
) -> None:
    write(conversations, a_message(1), USER, NUMBER)
    asked: list[Sequence[str]] = []
    found = conversations.store.conversation_entries
    monkeypatch.setattr(
        conversations.store, "conversation_entries", lambda ids: (asked.append(ids), found(ids))[1], raising=True
    )
    conversations.thread(party(*names))
    assert [len(ids) for ids in asked] == [1] * reads


def test_new_number_leads_to_the_same_conversation(conversations: Conversations) -> None:
    before = write(conversations, a_message(1), NUMBER)
    write(conversations, a_message(2), NUMBER, NEW_NUMBER)
    after = write(conversations, a_message(3), NEW_NUMBER)
    assert after.conversation == before.conversation == id_of(NUMBER)


def test_number_that_another_person_has_now_leads_to_theirs(conversations: Conversations) -> None:
    former = write(conversations, a_message(1), USER, NUMBER)
    other = write(conversations, a_message(2), "US.2", NUMBER)
    assert other.after is None
    assert write(conversations, a_message(3), NUMBER).conversation == other.conversation
    assert write(conversations, a_message(4), USER).after == former.key


def test_two_conversations_that_turn_out_to_be_one_persons_are_one(conversations: Conversations) -> None:
    write(conversations, a_message(1), USER)
    of_number = replace(a_message(2), give_up_at=at(48 * 3600))
    write(conversations, of_number, NUMBER)
    both = write(conversations, a_message(3), USER, NUMBER)
    assert (both.conversation, both.after) == (id_of(USER), of_number.key), "the lane that ends later"


def test_conversation_has_all_that_the_one_it_continues_had() -> None:
    other = Conversation(
        id_of(NUMBER),
        *("default", "meta", SENDER, NUMBER),
        aliases=frozenset({NEW_NUMBER}),
        lost=frozenset({NEW_NUMBER}),
        formerly=("f" * 40,),
        last_inbound_at=at(-9),
        last_message_at=at(-8),
        last_outbound=LaneEnd("9" * 40, at(60)),
        unread=2,
        assignee="Ana",
        newer={"color": "red", "size": 1},
    )
    ours = Conversation(id_of(USER), "default", "meta", SENDER, USER, unread=1, newer={"size": 2})
    into = replace(ours, aliases=frozenset({"US.0"}), lost=frozenset({"US.0"}))
    assert merged(into, other) == replace(
        other,
        id=into.id,
        contact=USER,
        aliases=frozenset({"US.0", NUMBER, NEW_NUMBER}),
        lost=frozenset({"US.0", NEW_NUMBER}),
        formerly=(other.id, "f" * 40),
        unread=3,
        newer={"color": "red", "size": 2},
    )


def test_number_leads_to_a_contact_whose_user_id_changed_three_times(conversations: Conversations) -> None:
    write(conversations, a_message(1), USER, NUMBER)
    for number, (former, id) in enumerate([(USER, "US.2"), ("US.2", "US.3"), ("US.3", "US.4")], 2):
        write(conversations, a_message(number), id, former)
    assert conversations.thread(party(NUMBER)).id == id_of("US.4")


def test_alias_of_a_deleted_conversation_begins_a_new_one(conversations: Conversations, store: SqliteStore) -> None:
    write(conversations, a_message(1), USER, NUMBER)
    store._file.write(lambda db: db.execute("DELETE FROM conversations WHERE id = ?", (id_of(USER),)))
    assert write(conversations, a_message(2), NUMBER).conversation == id_of(NUMBER)
    assert isinstance(kept(conversations, NUMBER), Conversation)


def test_aliases_that_lead_in_a_circle_lead_nowhere(conversations: Conversations, store: SqliteStore) -> None:
    write(conversations, a_message(1), USER, NUMBER)
    circle = (replace(one, of=id_of(NUMBER)) for one in [Alias(id_of("a"), ""), Alias(id_of("b"), "")])
    store.create(a_message(2), tuple(circle))
    found = store.conversation_entries([id_of(NUMBER)])[id_of(NUMBER)]
    assert isinstance(found, Alias)
    store.create(a_message(3), (replace(found, of=id_of("a")),))
    assert conversations.thread(party(NUMBER)).conversation.contact == NUMBER


@pytest.mark.parametrize(
    ("contact", "system", "names"),
    [
        (Contact(USER, phone=NUMBER, user_id=USER), None, [USER, NUMBER]),
        (Contact(NUMBER, phone=NUMBER), None, [NUMBER]),
        (Contact(NUMBER, phone=NUMBER), System(wa_id=NEW_NUMBER), [NUMBER, NEW_NUMBER]),
        (Contact(USER, user_id=USER), System(user_id="US.2", wa_id=NEW_NUMBER), [USER, "US.2", NEW_NUMBER]),
        (Contact("US.2", user_id="US.2"), System(previous_user_id=USER, user_id="US.2"), [USER, "US.2"]),
        (Contact(USER, phone="", user_id=USER), System(user_id="", wa_id=None), [USER]),
        (Contact(MEXICAN[1], phone=MEXICAN[1]), None, [MEXICAN[0]]),
        (Contact(MEXICAN[1], phone=MEXICAN[1]), System(wa_id=BRAZILIAN[1]), [MEXICAN[0], BRAZILIAN[0]]),
        (Contact(MEXICAN[1], phone=NUMBER, user_id=MEXICAN[1]), None, [MEXICAN[1], NUMBER]),
    ],
)
def test_message_names_its_contact_by_all_that_it_says(
    contact: Contact, system: System | None, names: Sequence[str]
) -> None:
    assert names_of(a_text(contact, system)) == names


def a_text(contact: Contact, system: System | None = None) -> Message:
    return Message("text", "hello", "wamid.1", contact, SENDER, "default", NOW, system=system)


def other_forms(number: str) -> set[str]:
    """The numbers of the same phone line, in words: Mexico, Argentina, and the mobiles of Brazil have two."""
    size, country = len(number), number[:2]
    if (country, size) in (("52", 12), ("54", 12)):
        return {country + {"52": "1", "54": "9"}[country] + number[2:]}
    if (number[:3], size) in (("521", 13), ("549", 13)):
        return {country + number[3:]}
    if country == "55" and size == 12 and number[4] in "6789":
        return {f"{number[:4]}9{number[4:]}"}
    if country == "55" and size == 13 and number[4] == "9" and number[5] in "6789":
        return {number[:4] + number[5:]}
    return set()


COUNTRIES = ["1", "34", "49", "5", "52", "521", "54", "549", "5411", "54911", "5511", "55119", "551196", "55116"]
NUMBERS = st.builds(str.__add__, st.sampled_from(COUNTRIES), st.text("1569", min_size=6, max_size=11))
NEIGHBOURS = st.builds(
    lambda number, place, digit, cut: number[:place] + digit + number[place + cut :],
    NUMBERS,
    st.integers(0, 6),
    st.sampled_from(["", "1", "9"]),
    st.integers(0, 1),
)
PAIRS = st.one_of(
    st.tuples(NUMBERS, NUMBERS),
    st.tuples(NUMBERS, NEIGHBOURS),
    NUMBERS.map(lambda number: (number, *other_forms(number), number)[:2]),
    NUMBERS.map(lambda number: (number, f"{number[:2]}1{number[2:]}")),
    NUMBERS.map(lambda number: (number, f"{number[:2]}9{number[2:]}")),
    NUMBERS.map(lambda number: (number, f"{number[:4]}9{number[4:]}")),
)


@given(PAIRS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(("5511932345678", "551132345678"))  # a mobile, and a landline of the same area
@example(("5511952345678", "551152345678"))  # the last digit that a landline begins with
@example(("5511962345678", "551162345678"))  # the first one of a mobile
@example(("5511985502222", "551185502222"))
@example(("5215550002222", "525550002222"))
@example(("5491155502222", "541155502222"))
def test_two_numbers_have_one_name_exactly_if_they_are_forms_of_one_line(pair: tuple[str, str]) -> None:
    one, other = (names_of(a_text(Contact(number, phone=number))) for number in pair)
    assert len(one) == len(other) == 1
    assert (one == other) is (pair[0] == pair[1] or pair[1] in other_forms(pair[0]))


# ---- a number that another person has now


@pytest.mark.parametrize("known", [(USER, NUMBER), (NUMBER,), (USER,)], ids=["by both", "by number", "by user id"])
def test_number_that_a_contact_has_lost_leads_to_them_no_more(
    conversations: Conversations, known: Sequence[str]
) -> None:
    own = [write(conversations, a_message(1), *known)]
    who = tuple(dict.fromkeys([*known, NUMBER]))
    own.append(write(conversations, a_message(2), *who, NEW_NUMBER, lost=NUMBER))
    strangers = [write(conversations, a_message(number), NUMBER) for number in (3, 4)]
    own += [write(conversations, a_message(number), name) for number, name in enumerate((NEW_NUMBER, known[0]), 5)]
    if known == (NUMBER,):  # its own former number is then all that the last one has
        strangers.append(own.pop())
    assert len({message.conversation for message in own}) == len({message.conversation for message in strangers}) == 1
    assert own[0].conversation != strangers[0].conversation
    assert strangers[0].after is None
    assert strangers[1].after == strangers[0].key
    kept = conversations.store.of_conversation(strangers[0].conversation or "", None, 10).records
    assert {record.key for record in kept} == {message.key for message in strangers}


@pytest.mark.parametrize("known", [(USER, NUMBER), (NUMBER,)], ids=["by both", "by number"])
def test_change_of_a_number_that_is_read_again_changes_nothing(
    conversations: Conversations, known: Sequence[str]
) -> None:
    own = write(conversations, a_message(1), *known, NEW_NUMBER, lost=NUMBER)
    stranger = write(conversations, a_message(2), NUMBER)
    again = write(conversations, a_message(3), *known, NEW_NUMBER, lost=NUMBER)
    assert (again.conversation, again.after) == (own.conversation, own.key)
    assert write(conversations, a_message(4), NUMBER).after == stranger.key


def test_late_message_under_a_lost_number_is_still_the_contacts(conversations: Conversations) -> None:
    own = write(conversations, a_message(1), USER, NUMBER, NEW_NUMBER, lost=NUMBER)
    stranger = write(conversations, a_message(2), NUMBER)
    assert write(conversations, a_message(3), USER, NUMBER).after == own.key
    assert write(conversations, a_message(4), NUMBER).after == stranger.key


def test_stranger_with_a_lost_number_keeps_their_conversation_under_a_user_id(conversations: Conversations) -> None:
    own = write(conversations, a_message(1), NUMBER, NEW_NUMBER, lost=NUMBER)
    stranger = write(conversations, a_message(2), NUMBER)
    named = write(conversations, a_message(3), "US.9", NUMBER)
    assert (named.conversation, named.after) == (id_of("US.9"), stranger.key)
    assert write(conversations, a_message(4), NUMBER).after == named.key
    assert write(conversations, a_message(5), NEW_NUMBER).after == own.key


def test_conversation_is_not_merged_with_itself_by_the_name_of_its_id(conversations: Conversations) -> None:
    first = write(conversations, a_message(1), USER, NUMBER)
    second = write(conversations, a_message(2), NUMBER, USER)
    assert (second.conversation, second.after) == (first.conversation, first.key)
    kept = conversations.thread(party(USER)).conversation
    assert (kept.id, kept.formerly) == (id_of(USER), ())


def test_number_that_two_contacts_have_lost_leads_to_the_third(conversations: Conversations) -> None:
    ids = [
        write(conversations, a_message(number), NUMBER, f"1555000000{number}", lost=NUMBER).conversation
        for number in (1, 2, 3)
    ]
    ids.append(write(conversations, a_message(4), NUMBER).conversation)
    assert len(set(ids)) == 4
    assert write(conversations, a_message(5), "15550000002").conversation == ids[1]


def test_contact_who_has_their_number_again_is_found_by_it(conversations: Conversations) -> None:
    own = write(conversations, a_message(1), USER, NUMBER, NEW_NUMBER, lost=NUMBER)
    write(conversations, a_message(2), USER, NEW_NUMBER, NUMBER, lost=NEW_NUMBER)
    assert write(conversations, a_message(3), NUMBER).conversation == own.conversation
    assert write(conversations, a_message(4), NEW_NUMBER).conversation != own.conversation


def test_number_is_its_new_owners_though_the_change_is_heard_of_late(conversations: Conversations) -> None:
    own = write(conversations, a_message(1), USER)
    new = write(conversations, a_message(2), "US.9", NUMBER)
    assert write(conversations, a_message(3), USER, NUMBER, NEW_NUMBER, lost=NUMBER).after == own.key
    assert write(conversations, a_message(4), NUMBER).after == new.key


@pytest.mark.parametrize(
    ("phone", "system", "lost"),
    [
        (NUMBER, System(wa_id=NEW_NUMBER), NUMBER),
        (MEXICAN[1], System(wa_id=NEW_NUMBER), MEXICAN[0]),
        (MEXICAN[1], System(wa_id=MEXICAN[0]), None),
        (NUMBER, System(wa_id=NUMBER, user_id="US.2"), None),
        (NUMBER, System(user_id="US.2"), None),
        (NUMBER, None, None),
        (None, System(wa_id=NEW_NUMBER), None),
    ],
)
def test_number_is_lost_if_the_contact_has_another_one_now(
    phone: str | None, system: System | None, lost: str | None
) -> None:
    assert name_lost(a_text(Contact(USER, phone=phone, user_id=USER), system)) == lost


def test_conversation_of_an_earlier_version_has_lost_no_name() -> None:
    stored = encode(Conversation(id_of(USER), "default", "meta", SENDER, USER))
    del stored["lost"]
    read = decode(id_of(USER), stored, None)
    assert isinstance(read, Conversation)
    assert (read.contact, read.lost) == (USER, frozenset())


# ---- the lane


def test_message_waits_for_the_last_one_and_becomes_it(conversations: Conversations) -> None:
    first, second, third = (write(conversations, a_message(number), USER) for number in (1, 2, 3))
    assert (first.after, second.after, third.after) == (None, first.key, second.key)


def test_nobody_waits_for_a_message_that_is_given_up(conversations: Conversations) -> None:
    first = write(conversations, replace(a_message(1), give_up_at=at(0)), USER)
    assert write(conversations, a_message(2), USER).after is None
    assert first.give_up_at == NOW


def test_without_turns_no_message_waits_for_another_plan(conversations: Conversations) -> None:
    unordered = replace(conversations, is_ordered=False)
    for number in (1, 2):
        assert write(unordered, a_message(number), USER, order=Order.SENDER).after is None
    assert sender_id("meta", SENDER) not in conversations.store.conversation_entries([sender_id("meta", SENDER)])


def test_lane_of_a_sender_holds_its_messages_to_all_contacts(conversations: Conversations) -> None:
    first = write(conversations, a_message(1), USER, order=Order.SENDER)
    second = write(conversations, a_message(2), NEW_NUMBER, order=Order.SENDER)
    assert (second.after, second.conversation) == (first.key, id_of(NEW_NUMBER))
    lane = conversations.store.conversation_entries([sender_id("meta", SENDER)])[sender_id("meta", SENDER)]
    assert lane == SenderLane(sender_id("meta", SENDER), LaneEnd(second.key, second.give_up_at or NOW))
    assert write(conversations, a_message(3), USER, order=Order.SENDER).after == second.key


def test_message_for_later_takes_its_place_when_it_is_due(conversations: Conversations) -> None:
    later = write(conversations, replace(a_message(1), joins_lane_later=True, send_at=at(60)), USER)
    now = write(conversations, a_message(2), USER)
    assert (later.after, now.after, later.conversation) == (None, None, now.conversation)
    thread = conversations.thread_of(id_of(USER), "default", "meta", SENDER, Order.CONTACT)
    assert thread is not None
    due, entries = joining(later, thread, at(60))
    assert (due.after, due.joins_lane_later) == (now.key, False)
    (conversation,) = entries
    assert isinstance(conversation, Conversation)
    assert conversation.last_outbound == LaneEnd(later.key, later.give_up_at or NOW)


def test_message_for_later_begins_its_conversation(conversations: Conversations) -> None:
    write(conversations, replace(a_message(1), joins_lane_later=True, send_at=at(60)), USER)
    of = kept(conversations, USER)
    assert isinstance(of, Conversation)
    assert (of.last_message_at, of.last_outbound) == (NOW, None)


def test_message_that_is_due_waits_for_the_last_one_of_its_senders_lane(conversations: Conversations) -> None:
    write(conversations, a_message(1), USER, order=Order.SENDER)
    last = write(conversations, a_message(2), NEW_NUMBER, order=Order.SENDER)
    thread = conversations.thread_of(id_of(USER), "default", "meta", SENDER, Order.SENDER)
    assert thread is not None
    assert thread.before(NOW) == last.key


def test_without_turns_a_message_that_is_due_waits_for_none(conversations: Conversations) -> None:
    write(conversations, a_message(1), USER)
    thread = replace(conversations, is_ordered=False).thread_of(id_of(USER), "default", "meta", SENDER, Order.SENDER)
    assert thread is not None
    assert (thread.before(NOW), thread.lane) == (None, None)


def test_conversation_is_found_by_the_id_that_a_message_has_of_old(conversations: Conversations) -> None:
    sent = write(conversations, a_message(1), NUMBER)
    write(conversations, a_message(2), USER, NUMBER)
    thread = conversations.thread_of(sent.conversation or "", "default", "meta", SENDER, Order.CONTACT)
    assert thread is not None
    assert thread.id == id_of(USER)
    assert conversations.thread_of("f" * 40, "default", "meta", SENDER, Order.CONTACT) is None


def test_commits_of_one_conversation_take_turns_by_it_and_not_by_a_new_alias(conversations: Conversations) -> None:
    thread = conversations.thread(party(USER, NUMBER))
    assert [type(entry) for entry in thread.entries] == [Conversation, Alias]
    assert contended_id(thread.entries) == thread.id


def test_commits_of_a_senders_lane_take_turns_by_the_sender(conversations: Conversations) -> None:
    thread = conversations.thread(party(USER, order=Order.SENDER)).continued(a_message(1), NOW)
    assert contended_id(thread.entries) == sender_id("meta", SENDER)


# ---- the end of a contact's message


def a_thread(**changes: object) -> Thread:
    return Thread(replace(Conversation(id_of(USER), "default", "meta", SENDER, USER), **changes))  # type: ignore[arg-type]


def replies(*kinds: str) -> tuple[Delivery, ...]:
    return tuple(replace(a_message(number), payload={"type": kind}) for number, kind in enumerate(kinds, 1))


def ended(thread: Thread, *plan: Delivery, state: State = State.DONE, **changes: Any) -> Step:
    event = pending(Kind.INBOUND, state=state, **changes)
    return with_conversation(Step(Answer(TaskResult.ACK, state), event, plan), thread, at(-5), NOW)


def after_it(step: Step) -> Conversation:
    conversation, *_ = step.entries
    assert isinstance(conversation, Conversation)
    return conversation


def test_first_message_of_a_plan_waits_for_the_last_one_of_the_lane() -> None:
    step = ended(a_thread(last_outbound=LaneEnd("9" * 40, at(60))), *replies("typing", "text", "image", "read"))
    assert [reply.after for reply in step.create] == [None, "9" * 40, None, None], "the others keep the plan's order"
    assert {reply.conversation for reply in step.create} == {id_of(USER)}
    end = after_it(step).last_outbound
    assert end is not None
    assert end.key == step.create[2].key, "calls take no place"


def test_invalid_reply_takes_no_place() -> None:
    invalid = replace(replies("text")[0], state=State.DEAD)
    step = ended(a_thread(last_outbound=LaneEnd("9" * 40, at(60))), invalid)
    assert step.create[0].after is None
    assert after_it(step).last_outbound == LaneEnd("9" * 40, at(60))


def test_event_that_ends_is_in_its_conversation_and_counts_as_unread() -> None:
    step = ended(a_thread(unread=2, state=ConversationState.CLOSED, last_message_at=at(-60)))
    assert step.write is not None
    assert step.write.conversation == id_of(USER)
    found = after_it(step)
    assert (found.unread, found.state) == (3, ConversationState.OPEN)
    assert (found.last_inbound_at, found.last_message_at, found.last_outbound) == (at(-5), at(-5), None)


def test_event_that_ends_again_after_a_replay_is_unread_once() -> None:
    before = a_thread(unread=2, state=ConversationState.CLOSED)
    assert after_it(ended(before, conversation=id_of(USER))) == before.conversation


def test_times_of_a_conversation_never_go_back() -> None:
    step = ended(a_thread(last_inbound_at=at(-1), last_message_at=at(-1)))
    assert (after_it(step).last_inbound_at, after_it(step).last_message_at) == (at(-1), at(-1))


def test_reply_is_the_last_message_of_a_conversation() -> None:
    step = ended(a_thread(), *replies("text"))
    assert (after_it(step).last_inbound_at, after_it(step).last_message_at) == (at(-5), NOW)


def test_event_that_is_tried_again_leaves_its_conversation_alone() -> None:
    step = ended(a_thread(), state=State.PENDING)
    assert step.entries == ()
    assert step.write is not None
    assert step.write.conversation is None


def test_lane_of_a_sender_is_left_to_others_by_an_event_without_replies() -> None:
    lane = SenderLane("5" * 40, LaneEnd("9" * 40, at(60)))
    assert ended(replace(a_thread(), lane=lane)).entries[1:] == ()
    step = ended(replace(a_thread(), lane=lane), *replies("text"))
    assert step.create[0].after == "9" * 40
    assert step.entries[1:] == (replace(lane, last_outbound=LaneEnd(step.create[0].key, at(24 * 3600 - 60))),)


def test_lane_is_waited_for_until_the_moment_its_last_message_is_given_up() -> None:
    thread = a_thread(last_outbound=LaneEnd("9" * 40, NOW))
    assert thread.before(NOW - timedelta(microseconds=1)) == "9" * 40
    assert thread.before(NOW) is None
