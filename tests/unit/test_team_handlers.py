"""The handlers to start from: an echo that has an answer to everything, a menu that leads somewhere, and appointments
that are kept.
"""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from handlers import appointments, echo, menu
from shared.domain.message_kinds import DEFAULT_KINDS
from shared.domain.message_parts import Button, ContactCard, Interactive, Location, Media, Order, OrderItem
from shared.domain.messages import Contact, Drop, Message
from shared.domain.outbound.messages import OutboundMessage
from shared.handlers import message as a_message
from shared.handlers.loader import TeamFunction
from shared.pipeline.ports import HandlerCall
from tests.support.builders import NOW


def message(kind: str = "text", text: str | None = None, **more: Any) -> Message:
    return Message(kind, text, "wamid.1", Contact("15550002222"), "1", "default", NOW, **more)


def tapped(id: str, type: str = "button_reply") -> Message:
    return message("interactive", id.title(), interactive=Interactive(type, id=id, title=id.title()))


SAID: dict[str, tuple[Message, str]] = {
    "a text": (message(text="hello"), "hello"),
    "a text of blanks": (message(text=" \n"), "I do not know what to say to that."),
    "a text longer than a business may write": (message(text="é" * 5000), "é" * 4096),
    "a file": (message("media", media=Media("audio", id="9")), "Thank you for the audio."),
    "a file with words": (
        message("media", "look", media=Media("image", id="9")),
        "Thank you for the image. You wrote: look",
    ),
    "contacts": (message("contacts", contacts=(ContactCard("Ana"), ContactCard())), "Thank you for the contacts: 2."),
    "an order": (
        message("order", "quickly", order=Order("1", (OrderItem("9", 2.0),))),
        "Thank you for the order: 1 to pack.",
    ),
    "a tapped button": (tapped("yes"), "You chose: Yes"),
    "a form": (message("interactive", interactive=Interactive("nfm_reply")), "Thank you for the answer."),
    "a template's button": (message("button", "Yes", button=Button("y", "Yes")), "You chose: Yes"),
}
PLACE = message("location", location=Location(1.5, -2.5, "Here"))


@pytest.mark.parametrize(("told", "said"), SAID.values(), ids=SAID)
def test_echo_answers_every_kind(told: Message, said: str) -> None:
    assert echo.handle(told) == OutboundMessage.text(said, reply_to="wamid.1")


def test_echo_returns_a_location() -> None:
    assert echo.handle(PLACE) == OutboundMessage.location(1.5, -2.5, reply_to="wamid.1")


def test_the_echo_is_tested_with_every_kind_it_is_called_for() -> None:
    assert {told.kind for told, _ in SAID.values()} | {PLACE.kind} == DEFAULT_KINDS


def served(told: Message) -> list[OutboundMessage]:
    """What the menu answers, by way of the loader."""
    return TeamFunction(menu.handle, 30)(HandlerCall("e", "c", 1, told))


TYPING = OutboundMessage.typing("wamid.1")


@pytest.mark.parametrize("told", [message(text="hello"), PLACE, tapped("unknown"), message("media")], ids=str)
def test_menu_answers_any_message_with_its_buttons(told: Message) -> None:
    typing, buttons = served(told)
    assert typing == TYPING
    assert isinstance(buttons.content, dict)
    assert [one["reply"]["id"] for one in buttons.content["action"]["buttons"]] == ["drinks", "where", "bye"]


def test_a_tapped_button_leads_to_the_list_and_a_row_to_a_drink() -> None:
    typing, drinks = served(tapped("drinks"))
    assert typing == TYPING
    assert isinstance(drinks.content, dict)
    (section,) = drinks.content["action"]["sections"]
    for row in section["rows"]:
        assert served(tapped(row["id"], "list_reply")) == [
            TYPING,
            OutboundMessage.reaction("wamid.1", "☕"),
            OutboundMessage.text(f"One {row['title']}, coming right up."),
        ]


def test_typed_text_is_understood_like_a_tap() -> None:
    assert served(message(text=" WHERE ")) == served(tapped("where"))
    assert [reply.type for reply in served(tapped("where"))] == ["typing", "location"]


def test_bye_drops_the_message() -> None:
    with pytest.raises(Drop, match=r"They want nothing more\."):
        served(tapped("bye"))


# ---- appointments: state


@pytest.fixture
def booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[str, str, str]]]:
    """What the handler's database holds: each slot, the message that took it, and the person."""
    file = tmp_path / "deeper" / "appointments.sqlite"
    monkeypatch.setenv("APPOINTMENTS_FILE", str(file))

    def read() -> list[tuple[str, str, str]]:
        with closing(sqlite3.connect(file)) as database:
            return list(database.execute("SELECT slot, message, contact FROM appointments ORDER BY slot"))

    return read


def test_appointments_are_stored_in_the_data_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APPOINTMENTS_FILE", raising=False)
    assert appointments.handle(a_message("hello")) == "Free are 9:00, 10:00, 11:00. Which one?"
    assert (tmp_path / ".pombo" / "appointments.sqlite").exists()


def test_a_slot_is_booked_and_no_longer_free(booked: Callable[[], Any]) -> None:
    told = a_message(" 10:00 ", contact="15550003333")
    assert appointments.handle(told) == "See you at 10:00."
    assert booked() == [("10:00", told.id, "15550003333")]
    assert appointments.handle(a_message("which?")) == "Free are 9:00, 11:00. Which one?"
    assert appointments.handle(a_message("10:00")) == "10:00 has just been taken."


def test_a_call_that_is_repeated_for_a_message_changes_nothing_and_answers_the_same(booked: Callable[[], Any]) -> None:
    told = a_message("9:00")
    assert [appointments.handle(told) for _ in range(3)] == ["See you at 9:00."] * 3
    assert len(booked()) == 1


def test_full_day_is_reported(booked: Callable[[], Any]) -> None:
    for slot in appointments.SLOTS:
        appointments.handle(a_message(slot))
    assert len(booked()) == len(appointments.SLOTS)
    assert appointments.handle(a_message("hello")) == "Nothing is free today."


def test_one_of_many_threads_gets_the_slot(booked: Callable[[], Any]) -> None:
    together = threading.Barrier(16)
    code = TeamFunction(appointments.handle, 30)

    def ask(number: int) -> str:
        together.wait(30)
        (reply,) = code(HandlerCall("e", "c", 1, a_message("11:00", contact=f"1555000{number:04}")))
        return str(reply.content["body"])

    with ThreadPoolExecutor(16) as threads:
        answers = sorted(threads.map(ask, range(16)))
    assert answers == ["11:00 has just been taken."] * 15 + ["See you at 11:00."]
    assert len(booked()) == 1
