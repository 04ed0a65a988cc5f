"""The order of the replies to one message, whatever becomes of one in their midst."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from tests.support.dead_desk import Desk
from tests.support.stack import Stack

ALL = ["1", "2", "3", "4"]
WITHOUT_IT = ["1", "3", "4"]


@dataclass(frozen=True)
class Trouble:
    """What WhatsApp answers to the second reply, and what of the four it takes then."""

    fault: Mapping[str, Any]
    taken: list[str]
    answers: list[str]
    dead: str | None = None


TROUBLES = {
    "limited": Trouble({"kind": "error", "code": 131056, "times": 2}, ALL, ["limited", "limited", "accepted"]),
    "tried again": Trouble(
        {"kind": "error", "code": 999999, "status": 400, "transient": True}, ALL, ["retry", "accepted"]
    ),
    "nobody takes any": Trouble(
        {"kind": "error", "code": 131016, "times": 2}, ALL, ["provider_down"] * 2 + ["accepted"]
    ),
    "the answer is lost and a receipt comes": Trouble({"kind": "accept_then_drop"}, ALL, ["lost"]),
    "the answer is lost and nothing comes": Trouble({"kind": "drop"}, ALL, ["lost", "accepted"]),
    "every answer is lost": Trouble({"kind": "drop", "times": 0}, WITHOUT_IT, ["lost", "lost"], "in_doubt"),
    "refused for good": Trouble({"kind": "error", "code": 131026, "times": 0}, WITHOUT_IT, ["refused"], "permanent"),
}


@pytest.fixture(scope="module")
def ordered(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """The doubt window is as short as it may be: 120 s, which is 6 here."""
    with make_stack(IN_DOUBT_SECONDS="120", MAX_ATTEMPTS="8") as stack:
        yield stack


@pytest.fixture(scope="module")
def told(ordered: Stack) -> dict[str, tuple[str, str]]:
    """Each trouble begins before any of it is waited for: who wrote, and the id of what."""
    people = {name: f"1555400{number:04}" for number, name in enumerate(TROUBLES)}
    for name, person in people.items():
        ordered.fault("send", **TROUBLES[name].fault, match={"to": person, "type": "location"})
    return {name: (person, ordered.say(person, "!around wamid.1")) for name, person in people.items()}


def taken(stack: Stack, contact: str) -> list[str]:
    """The words of texts and the names of places, in the order in which WhatsApp took them."""
    return [entry["body"].get("body") or entry["body"]["name"] for entry in stack.ledger(contact)]


@pytest.mark.parametrize("name", TROUBLES)
def test_replies_after_a_failing_one_wait_for_its_end_and_no_longer(
    ordered: Stack, told: dict[str, tuple[str, str]], name: str
) -> None:
    trouble, (person, message_id) = TROUBLES[name], told[name]

    ordered.wait_settled([message_id], 90)

    assert taken(ordered, person) == trouble.taken
    second, third = ordered.reply(message_id, 1), ordered.reply(message_id, 2)
    assert second is not None
    assert third is not None
    assert [attempt.answer for attempt in second.attempts_log] == trouble.answers
    assert second.reason == trouble.dead
    assert [attempt.answer for attempt in third.attempts_log] == ["accepted"], "waiting spends no attempt"


@pytest.mark.parametrize("name", [name for name, trouble in TROUBLES.items() if trouble.dead])
def test_dead_reply_releases_the_next_and_the_timeline_shows_it(
    ordered: Stack, told: dict[str, tuple[str, str]], name: str
) -> None:
    message_id = told[name][1]
    ordered.wait_settled([message_id], 90)

    story = story_of_the_third(ordered, message_id)
    of_others = ("Waited while WhatsApp was down or unreachable", "Waited for a probe of WhatsApp")
    own = [(what, said) for what, said in story if not said.startswith(of_others)]  # their outages are the sender's too
    words = list(dict.fromkeys(what for what, _ in own))
    assert words in [["waiting", "released", "accepted"], ["released", "accepted"]]
    assert dict(own).get("waiting", "Waited for the message before it").startswith("Waited for the message before it")
    assert dict(own)["released"] == "The message before it ended without being sent. This one no longer waits for it."
    if TROUBLES[name].dead == "in_doubt":  # a refusal may come before the third reply's first look
        assert story[0][0] == "waiting"


def story_of_the_third(stack: Stack, message_id: str) -> list[tuple[str, str]]:
    """How it waited, was let go and went: the word and the sentence of each, in order."""
    third = stack.reply(message_id, 2)
    assert third is not None
    moments = [one for one in stack.timeline(message_id)["events"] if one["delivery"] == third.key]
    words = ("waiting", "released", "accepted")
    return [(one["what"], one["sentence"]) for one in moments if one["what"] in words]


def test_release_is_shown_after_the_dead_reply_is_discarded_or_replayed(
    ordered: Stack, contacts: Callable[[], str]
) -> None:
    """The replayed one comes last: those after it had gone."""
    discarded, replayed = contacts(), contacts()
    for person in (discarded, replayed):
        ordered.fault("send", "error", code=131026, match={"to": person, "type": "location"})
    ids = {person: ordered.say(person, "!around wamid.1") for person in (discarded, replayed)}
    ordered.wait_settled(list(ids.values()), 90)

    for person, decision in ((discarded, ["discard", "--reason", "a wrong place"]), (replayed, ["replay"])):
        second = ordered.reply(ids[person], 1)
        assert second is not None
        said = Desk(ordered).run(*decision, second.key, "--yes")
        assert said.returncode == 0, said.stderr

    ordered.wait_until(lambda: taken(ordered, replayed) == [*WITHOUT_IT, "2"], "the replayed one comes after them")
    assert taken(ordered, discarded) == WITHOUT_IT
    for message_id in ids.values():
        assert [what for what, _ in story_of_the_third(ordered, message_id)][-2:] == ["released", "accepted"]


def test_the_replies_after_one_whose_worker_was_killed_wait_for_its_receipt(ordered: Stack, contact: str) -> None:
    """WhatsApp has it, and the one that sent it is dead: its lease has to run out, and its receipt to be believed."""
    ordered.fault("send", "slow", seconds=20, match={"to": contact, "type": "location"})
    message_id = ordered.say(contact, "!around wamid.1")
    ordered.wait_until(lambda: taken(ordered, contact)[:2] == ["1", "2"], "it is being sent")

    ordered.wait_back(ordered.kill("internal"))

    ordered.wait_settled([message_id], 90)
    assert taken(ordered, contact) == ALL


def test_ten_replies_are_sent_in_order_without_long_pauses(make_stack: Callable[..., Stack], contact: str) -> None:
    """In real time: the worker that ends a reply wakes the next one, whose own first task comes a second later."""
    with make_stack(TIME_SCALE="1") as stack:
        stack.fault("send", "slow", seconds=0.3, times=0, match={"to": contact})

        stack.wait_settled([stack.say(contact, "!list 10")], 60)

        assert stack.texts(contact) == [str(number) for number in range(1, 11)]
        begun = [datetime.fromisoformat(entry["accepted_at"]) for entry in stack.ledger(contact)]
        assert median((later - earlier).total_seconds() for earlier, later in pairwise(begun)) < 0.6
