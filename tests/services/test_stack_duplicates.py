"""The same message again, in every way in which Meta sends it again: one handler call, one reply."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import pytest

from tests.support.payloads import envelope, of_texts, text, value, wire
from tests.support.stack import Stack


def test_a_webhook_that_comes_three_times_is_answered_once(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.thrice", "hello"))

    assert [stack.post(body).status_code for _ in range(3)] == [200, 200, 200]

    stack.wait_texts(contact, ["hello"])
    assert stack.post(body).status_code == 200
    stack.wait_settled(["wamid.thrice"])
    assert stack.texts(contact) == ["hello"]
    assert stack.calls("wamid.thrice") == 1


def test_twenty_copies_at_the_same_moment_are_answered_once(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.twenty", "hello"))

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: stack.post(body).status_code, range(20)))

    assert answers == [200] * 20
    stack.wait_settled(["wamid.twenty"])
    assert stack.texts(contact) == ["hello"]
    assert stack.calls("wamid.twenty") == 1


def test_message_delivered_ten_times_is_answered_once(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "hello", times=10)

    stack.wait_until(lambda: stack.control("GET", "webhooks")["pending"] == 0, "all ten are delivered")
    stack.wait_settled([message_id])
    assert stack.texts(contact) == ["hello"]
    assert stack.calls(message_id) == 1
    assert stack.post(of_texts(text(contact, message_id, "hello"))).status_code == 200
    assert "duplicate" in stack.what(message_id)


def test_the_same_messages_batched_differently_are_answered_once_each(stack: Stack, contact: str) -> None:
    items = [text(contact, f"wamid.batch.{number}", f"text {number}") for number in range(4)]
    bodies = [of_texts(*some) for order in permutations(items, 4) for some in (order[:3], order[3:])][:24]
    bodies += [wire(envelope(*[value([item]) for item in items])), of_texts(*items, *items)]

    with ThreadPoolExecutor(8) as pool:
        assert {r.status_code for r in pool.map(stack.post, bodies)} == {200}

    ids = [item["id"] for item in items]
    stack.wait_settled(ids)
    assert sorted(stack.texts(contact)) == [f"text {number}" for number in range(4)]
    assert [stack.calls(one) for one in ids] == [1] * 4


def test_a_redelivery_that_is_cut_at_other_places_is_answered_once_each(stack: Stack, contact: str) -> None:
    ids = stack.inbound(**{"from": contact, "type": "text", "content": {"body": "x"}}, batch=6, times=5, rebatch=True)

    stack.wait_until(lambda: stack.control("GET", "webhooks")["pending"] == 0, "all of them are delivered")
    stack.wait_settled(ids)
    assert stack.texts(contact) == ["x"] * 6
    assert [stack.calls(one) for one in ids] == [1] * 6


def test_a_message_is_not_answered_again_after_a_restart_of_everything(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.restart", "hello"))
    assert stack.post(body).status_code == 200
    stack.wait_quiet(contact, ["hello"])

    stack.restart()

    assert stack.post(body).status_code == 200
    stack.wait_until(lambda: "duplicate" in stack.what("wamid.restart"), "the duplicate is noted")
    assert stack.calls("wamid.restart") == 1
    assert stack.texts(contact) == ["hello"]


def test_message_id_shared_with_an_unknown_number_is_answered_once(stack: Stack, contact: str) -> None:
    item = text(contact, "wamid.elsewhere", "hello")

    assert stack.post(wire(envelope(value([item], sender="200000000000008"), value([item])))).status_code == 200

    stack.wait_texts(contact, ["hello"])
    assert stack.calls("wamid.elsewhere") == 1


@pytest.mark.parametrize("fault", ["duplicate", "reorder"])
def test_tasks_that_come_twice_send_once(stack: Stack, contacts: Callable[[], str], fault: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "duplicate": {"on": "task", "kind": "duplicate", "times": 12},
        "reorder": {"on": "task", "kind": "early", "times": 6},
    }
    people = [contacts() for _ in range(4)]
    stack.fault(**kinds[fault])
    try:
        ids = [stack.say(one, "!list 3") for one in people]
        stack.wait_settled(ids)
    finally:
        stack.control("DELETE", "faults")

    assert [stack.texts(one) for one in people] == [["1", "2", "3"]] * 4
    assert [stack.calls(one) for one in ids] == [1] * 4
