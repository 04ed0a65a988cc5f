"""Messages of one contact in the running stack: handled one at a time, in order, however they come."""

from collections.abc import Callable, Iterator

import pytest

from shared.config import STORES
from tests.support.stack import Stack
from tests.support.turns import WAYS, at_once, in_one_post, messages, one_at_a_time, spans


@pytest.mark.parametrize("way", WAYS)
def test_ten_messages_are_handled_one_at_a_time_in_order(stack: Stack, contact: str, way: str) -> None:
    """The first one is handled while the others come: they are stored in any order."""
    first, *others = messages(contact, 11)
    in_one_post(stack, [first | {"text": {"body": "!slow 1"}}])
    stack.wait_until(lambda: stack.calls(first["id"]), "the first one is handled")

    WAYS[way](stack, others)

    calls = spans(stack, [first, *others], 60)
    assert one_at_a_time(calls)
    assert calls == sorted(calls)
    assert len(stack.ledger(contact)) == 11
    assert {stack.calls(item["id"]) for item in (first, *others)} == {1}


def test_contacts_do_not_wait_for_one_another(stack: Stack, contacts: Callable[[], str]) -> None:
    people = [messages(contacts(), 1, seconds=0.5)[0] for _ in range(4)]
    at_once(stack, people)
    assert not one_at_a_time(spans(stack, people, 30))


def test_replies_to_a_contacts_messages_are_sent_in_the_order_of_those_messages(stack: Stack, contact: str) -> None:
    """The first reply is limited at first; the second message is handled meanwhile, and its reply waits."""
    stack.fault("send", "error", code=131056, times=2, match={"to": contact})
    ids = [stack.say(contact, "!list 2"), stack.say(contact, "again")]
    stack.wait_settled(ids, 60)
    assert stack.texts(contact) == ["1", "2", "again"]
    first, second = stack.reply(ids[0], 1), stack.reply(ids[1])
    assert first is not None
    assert second is not None
    assert (second.after, second.conversation) == (first.key, first.conversation)


def test_message_waiting_for_its_turn_says_so_in_its_timeline(stack: Stack, contact: str) -> None:
    first, second = messages(contact, 2, seconds=0.4)
    in_one_post(stack, [first, second])
    spans(stack, [first, second], 30)
    told = " ".join(moment["sentence"] for moment in stack.timeline(second["id"])["events"])
    assert "Waited for another message of this customer to be handled" in told


def test_without_turns_messages_of_one_contact_are_handled_at_once(
    make_stack: Callable[..., Stack], contact: str
) -> None:
    with make_stack(TURNS="none") as stack:
        items = messages(contact, 4, seconds=0.5)
        in_one_post(stack, items)
        assert not one_at_a_time(spans(stack, items, 30))


@pytest.fixture(scope="module", params=STORES)
def killable(make_stack: Callable[..., Stack], request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A lease is 5 s long: the handler's timeout and 30 s, divided by twenty."""
    with make_stack(store=request.param, HANDLER_TIMEOUT="70s") as stack:
        yield stack


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_no_two_messages_of_a_contact_overlap_while_services_are_killed(
    killable: Stack, contact: str, way: str
) -> None:
    first, *others = messages(contact, 11, seconds=0.2)
    in_one_post(killable, [first | {"text": {"body": "!slow 1"}}])
    killable.wait_until(lambda: killable.calls(first["id"]), "the first one is handled")
    WAYS[way](killable, others)
    for seen in (3, 6):
        killable.wait_until(
            lambda seen=seen: sum(killable.calls(item["id"]) > 0 for item in others) >= seen, "some are handled", 60
        )
        killable.wait_back(killable.kill("internal"))

    calls = spans(killable, [first, *others], 120)
    assert one_at_a_time(calls)
    uncut = [call for item, call in zip(others, calls[1:], strict=True) if killable.calls(item["id"]) == 1]
    assert len(uncut) >= 8, "a kill cuts off one call"
    assert uncut == sorted(uncut)
    assert len(killable.ledger(contact)) == 11
