"""Whose entry of contacts[] belongs to a message: a name, and an id, are never another person's."""

from collections.abc import Sequence
from typing import Any

import pytest

from shared.channels.meta.webhook import parse
from shared.domain.events import MessageReceived
from shared.domain.messages import Contact
from shared.domain.phone_numbers import without_variant
from tests.unit.test_meta_parse import envelope, message_of, text_message, value_of

VARIANTS = {
    "Mexico": ("525550002222", "5215550002222"),
    "Argentina": ("541155502222", "5491155502222"),
    "Brazil": ("551185502222", "5511985502222"),
}
PAIRS = [pytest.param(*pair, id=country) for country, pair in VARIANTS.items()]
PAIRS += [pytest.param(*pair[::-1], id=f"{country}, the other way round") for country, pair in VARIANTS.items()]


def written(from_: str, number: int = 1, **more: Any) -> dict[str, Any]:
    return text_message(id=f"wamid.{number}", **{"from": from_}, **more)


def entry(wa_id: str | None, name: str, **more: Any) -> dict[str, Any]:
    return {"profile": {"name": name}, **({"wa_id": wa_id} if wa_id else {}), **more}


def contacts_of(messages: Sequence[Any], entries: Sequence[Any]) -> list[Contact]:
    events = parse(envelope(value_of(*messages, contacts=list(entries)))).events
    return [message_of(event).contact for event in events]


def names_of(messages: Sequence[Any], entries: Sequence[Any]) -> list[str | None]:
    return [contact.name for contact in contacts_of(messages, entries)]


# ---- one line in two forms


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_single_message_gets_the_name_of_its_number_variant(wa_id: str, from_: str) -> None:
    assert contacts_of([written(from_)], [entry(wa_id, "Ana")]) == [Contact(from_, from_, name="Ana")]


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_each_message_of_a_batch_gets_the_name_of_its_own_sender(wa_id: str, from_: str) -> None:
    messages = [written("15550100001", 1), written(from_, 2), written("15550100002", 3), written(from_, 4)]
    entries = [entry("15550100002", "Caio"), entry(wa_id, "Ana"), entry("15550100001", "Rui")]
    assert names_of(messages, entries) == ["Rui", "Ana", "Caio", "Ana"]


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_user_id_of_the_number_variant_is_used(wa_id: str, from_: str) -> None:
    (contact,) = contacts_of([written(from_)], [entry(wa_id, "Ana", user_id="BR.1")])
    assert contact == Contact("BR.1", from_, "BR.1", "Ana")


def test_number_variants_of_three_countries_are_distinguished() -> None:
    messages = [written(long, place) for place, (_, long) in enumerate(VARIANTS.values())]
    entries = [entry(short, country) for country, (short, _) in VARIANTS.items()]
    assert names_of(messages, entries[::-1]) == list(VARIANTS)


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_entry_of_the_exact_number_wins_over_its_variant(wa_id: str, from_: str) -> None:
    entries = [entry(wa_id, "Other"), entry(from_, "Ana")]
    for order in (entries, entries[::-1]):
        assert names_of([written(from_)], order) == ["Ana"]


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_entry_matched_exactly_by_another_message_is_not_shared(wa_id: str, from_: str) -> None:
    messages = [written(from_, 1), written(wa_id, 2)]
    assert names_of(messages, [entry(wa_id, "Ana")]) == [None, "Ana"]


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_two_conflicting_entries_of_one_number_are_not_used(wa_id: str, from_: str) -> None:
    two = [entry(wa_id, "Ana", user_id="MX.1"), entry(wa_id, "Eva", user_id="MX.2")]
    for from_number in (from_, wa_id):
        for order in (two, two[::-1]):
            assert contacts_of([written(from_number)], order) == [Contact(from_number, from_number)]


def test_user_id_stays_when_two_entries_disagree_about_the_name() -> None:
    two = [entry("15550100001", "Ana", user_id="US.1"), entry("15550100001", "Ana Maria", user_id="US.1")]
    assert contacts_of([written("15550100001")], two) == [Contact("US.1", "15550100001", "US.1")]


def test_third_entry_in_variant_form_does_not_resolve_a_conflict() -> None:
    short, long = VARIANTS["Mexico"]
    entries = [entry(f"+{long}", "Ana"), entry(long, "Eva"), entry(short, "Rui")]
    assert names_of([written(long)], entries) == [None]


def test_an_entry_that_comes_twice_is_one() -> None:
    short, long = VARIANTS["Brazil"]
    assert names_of([written(long), written(long, 2)], [entry(short, "Ana")] * 2) == ["Ana", "Ana"]


@pytest.mark.parametrize(
    ("wa_id", "from_"),
    [
        ("525550002222", "5225550002222"),
        ("525550002222", "5215550002223"),
        ("541155502222", "5481155502222"),
        ("551185502222", "5511855502222"),
        ("551185502222", "5512955502222"),
        ("15550002222", "115550002222"),
        ("34155502222", "341955502222"),
        ("5255500022", "52155500022"),
        ("52555000222", "521555000222"),
        ("5255500022222", "52155500022222"),
        ("54115550222", "549115550222"),
        ("5411555022222", "54911555022222"),
        ("55115550222", "551195550222"),
        ("551185502222", "55119855022222"),
    ],
)
def test_number_that_is_not_a_variant_gets_no_name(wa_id: str, from_: str) -> None:
    assert names_of([written(from_)], [entry(wa_id, "Ana")]) == [None]
    assert names_of([written(wa_id)], [entry(from_, "Ana")]) == [None]


@pytest.mark.parametrize(
    ("own", "from_"),
    [("+52 1 55 1234 9999", "525512349999"), ("525512349999", "5215512349999"), ("5511932345678", "551132345678")],
)
def test_own_message_is_an_echo_in_either_form_of_the_number(own: str, from_: str) -> None:
    """To answer it would be to answer ourselves. (The last is a landline, of which no form has a ninth digit.)"""
    value = value_of(text_message("hello", **{"from": from_}))
    value["metadata"]["display_phone_number"] = own
    (event,) = parse(envelope(value)).events
    assert isinstance(event, MessageReceived)
    assert event.payload.get("echo", False) is (from_ != "551132345678")


def test_number_without_a_variant_is_unchanged() -> None:
    numbers = ["15550002222", "525550002222", "541155502222", "551185502222", "", "52"]
    assert [without_variant(number) for number in numbers] == numbers


# ---- an entry of somebody else


def test_an_entry_whose_user_id_is_another_than_the_messages_is_not_used() -> None:
    (contact,) = contacts_of(
        [written("15550100001", from_user_id="US.1")], [entry("15550100001", "Eva", user_id="US.2")]
    )
    assert contact == Contact("US.1", "15550100001", "US.1")


def test_in_a_batch_an_entry_of_the_number_with_another_user_id_is_not_used() -> None:
    """A number may have passed to another person between the message and the webhook."""
    messages = [written("15550100001", 1, from_user_id="US.1"), written("15550100002", 2, from_user_id="US.2")]
    entries = [entry("15550100001", "Eva", user_id="US.9"), entry("15550100002", "Rui", user_id="US.2")]
    assert contacts_of(messages, entries) == [
        Contact("US.1", "15550100001", "US.1"),
        Contact("US.2", "15550100002", "US.2", "Rui"),
    ]


@pytest.mark.parametrize(("wa_id", "from_"), PAIRS)
def test_the_other_form_of_a_number_with_another_user_id_is_not_used(wa_id: str, from_: str) -> None:
    messages = [written(from_, 1, from_user_id="BR.1"), written("15550100002", 2)]
    entries = [entry(wa_id, "Eva", user_id="BR.2"), entry("15550100002", "Rui")]
    assert names_of(messages, entries) == [None, "Rui"]
