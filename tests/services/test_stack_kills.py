"""Processes killed at any moment, with the sweep off: nothing is lost, nothing is sent twice."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from local.services import SERVICES
from tests.support.payloads import of_texts, text
from tests.support.stack import Stack, processes_of, wait_until

pytestmark = pytest.mark.slow  # the crash points and the end-to-end suite kill in CI, each at a moment that is known
PROCESSES = (*SERVICES, "tasks")
VICTIMS = [*((name,) for name in PROCESSES), PROCESSES]
LATEST = 0.15
"""Seconds after the first message came in: by then its reply has gone out."""


@pytest.fixture(scope="module")
def killable(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """The doubt window is the default, 300 s, which is 15 here: receipts come long before."""
    with make_stack() as stack:
        yield stack


def survive(stack: Stack, victims: tuple[str, ...], rounds: int, contacts: Callable[[], str]) -> None:
    """In each round four people write, the last of them to be answered in three parts; then the kill."""
    chance = random.Random("-".join(victims))
    said: dict[str, tuple[str, list[str]]] = {}
    with ThreadPoolExecutor(4) as pool:
        for _ in range(rounds):
            people = {contacts(): "hello" for _ in range(3)} | {contacts(): "!list 3"}
            asked = {one: pool.submit(stack.say, one, words) for one, words in people.items()}
            time.sleep(chance.uniform(0, LATEST))  # the moment is what is tried, not waited for
            killed = stack.kill(*victims)
            for one, words in people.items():
                said[one] = (asked[one].result(), ["1", "2", "3"] if words == "!list 3" else [words])
            stack.wait_back(killed)

    stack.wait_settled([message_id for message_id, _ in said.values()], 120)

    expected = {
        one: [words for index, words in enumerate(texts) if not is_left_to_a_person(stack, message_id, index)]
        for one, (message_id, texts) in said.items()
    }
    assert {one: stack.texts(one) for one in said} == expected
    if "internal" not in victims:
        assert {stack.calls(message_id) for message_id, _ in said.values()} == {1}


def is_left_to_a_person(stack: Stack, message_id: str, index: int) -> bool:
    """Killed twice between its lease and its POST: it is resent once and not twice, and then it is a dead letter."""
    reply = stack.reply(message_id, index)
    return reply is not None and (reply.state, reply.reason, reply.doubts) == ("dead", "in_doubt", 2)


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_reply_arrives_once_after_any_process_is_killed(
    killable: Stack, contacts: Callable[[], str], victims: tuple[str, ...]
) -> None:
    survive(killable, victims, 3, contacts)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_reply_arrives_once_after_any_number_of_kills(
    killable: Stack, contacts: Callable[[], str], victims: tuple[str, ...]
) -> None:
    survive(killable, victims, 20, contacts)


def test_post_cut_off_by_a_kill_is_completed_by_its_redelivery(killable: Stack, contact: str) -> None:
    """60 messages in one POST; the provider sends all of it again until the answer is 200."""
    ids = killable.inbound(**{"from": contact, "type": "text", "content": {"body": "hello"}}, batch=60)

    killable.wait_until(lambda: killable.event(ids[0]), "the first of them is stored")
    killable.wait_back(killable.kill("webhook"))

    killable.wait_settled(ids, 120)
    assert killable.texts(contact) == ["hello"] * 60
    assert {killable.calls(one) for one in ids} == {1}


def test_webhook_answered_200_survives_the_kill_of_every_process(killable: Stack, contacts: Callable[[], str]) -> None:
    people = {contacts(): f"wamid.acked.{number}" for number in range(5)}
    for one, message_id in people.items():
        assert killable.post(of_texts(text(one, message_id, "hello"))).status_code == 200

    killable.wait_back(killable.kill(*SERVICES, "tasks", "whatsapp"))

    killable.wait_settled(list(people.values()), 120)
    assert [killable.texts(one) for one in people] == [["hello"]] * 5


def test_webhook_answered_200_survives_the_kill_of_pombo(make_stack: Callable[..., Stack]) -> None:
    contact, message_id = "15554000001", "wamid.outlives"
    stack = make_stack()
    stack.start()
    assert stack.post(of_texts(text(contact, message_id, "hello"))).status_code == 200
    assert stack.end(9) == -9  # type: ignore[arg-type]

    wait_until(lambda: processes_of(stack.data_dir) == [], "all of it is gone")
    ports = stack.described["internal"], stack.described["tasks"]

    with stack:
        assert (stack.described["internal"], stack.described["tasks"]) == ports, "a task knows where its target was"
        stack.wait_settled([message_id], 120)
        assert stack.texts(contact) == ["hello"]
