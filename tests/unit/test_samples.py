"""Samples: the messages that a handler's tests are made of, complete as Pombo's own."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.domain.message_kinds import KINDS
from shared.domain.message_parts import Product, System, Unsupported
from shared.handlers import (
    Button,
    Contact,
    ContactCard,
    Interactive,
    Location,
    Media,
    Message,
    Order,
    OrderItem,
    Reaction,
    message,
)
from shared.handlers.loader import TeamFunction
from shared.pipeline.ports import HandlerCall

PAGE = Path(__file__).parents[2] / "docs" / "handlers.md"
PARTS: dict[str, dict[str, Any]] = {
    "media": {"media": Media("image", id="1")},
    "location": {"location": Location(1.5, -2.5)},
    "contacts": {"contacts": (ContactCard("Ana"),)},
    "interactive": {"interactive": Interactive("button_reply", id="yes", title="Yes")},
    "button": {"button": Button("yes", "Yes")},
    "order": {"order": Order("1", (OrderItem("9", 2.0),))},
    "reaction": {"reaction": Reaction("wamid.1", "☕")},
    "system": {"system": System("user_changed_number")},
    "unsupported": {"unsupported": Unsupported("poll")},
}


def test_text_alone_makes_a_message() -> None:
    told = message("hello")
    assert told == Message(
        kind="text",
        text="hello",
        id=told.id,
        contact=Contact("15550002222", phone="15550002222"),
        sender="100000000000001",
        tenant="default",
        received_at=told.received_at,
    )
    assert told.id.startswith("wamid.")
    assert abs((datetime.now(UTC) - told.received_at).total_seconds()) < 60


def test_each_message_has_its_own_id_unless_one_is_given() -> None:
    assert message("hello").id != message("hello").id
    assert message("hello", id="wamid.1").id == "wamid.1"


def test_given_fields_are_in_the_message() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    ana = Contact("US.1", user_id="US.1", name="Ana")
    given: dict[str, Any] = {
        "contact": ana, "sender": "1", "tenant": "clinic", "received_at": noon, "reply_to": "wamid.0",
        "product": Product("1", "2"), "forwarded": True, "raw": {"a": 1},
    }  # fmt: skip
    told = message("hello", **given)
    assert {name: getattr(told, name) for name in given} == given
    assert message("hello", contact="15550003333").contact == Contact("15550003333", phone="15550003333")


@pytest.mark.parametrize("kind", PARTS)
def test_the_kind_follows_from_the_part(kind: str) -> None:
    told = message(**PARTS[kind])
    assert told.kind == kind
    assert getattr(told, kind) == PARTS[kind][kind]
    assert message(kind=kind, **PARTS[kind]).kind == kind


@pytest.mark.parametrize("kind", ["interactive", "button"])
def test_title_of_a_tap_is_the_text_unless_one_is_given(kind: str) -> None:
    assert message(**PARTS[kind]).text == "Yes"
    assert message("other", **PARTS[kind]).text == "other"


@pytest.mark.parametrize("kind", sorted(KINDS - {"request_welcome"}))
def test_message_without_the_part_of_its_kind_is_refused(kind: str) -> None:
    part = "original_id" if kind in ("edit", "revoke") else kind
    with pytest.raises(ValueError, match=f"^A message of kind {kind} needs {part}.$"):
        message(kind=kind)


def test_empty_list_of_contacts_is_refused() -> None:
    with pytest.raises(ValueError, match="needs contacts"):
        message(kind="contacts", contacts=())


def test_kinds_without_their_own_part_can_be_made() -> None:
    assert message(kind="request_welcome").kind == "request_welcome"
    assert message(kind="revoke", original_id="wamid.1").original_id == "wamid.1"


@pytest.mark.parametrize("kind", ["txt", "*", "Text"])
def test_unknown_kind_is_refused_with_the_list_of_kinds(kind: str) -> None:
    with pytest.raises(ValueError, match=f"^The kind of a message must be one of {', '.join(sorted(KINDS))}.$"):
        message("hello", kind=kind)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="medai"):
        message("hello", medai=Media("image", id="1"))


# ---- the page


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)


def test_handler_of_the_page_passes_its_own_test() -> None:
    handler, test = examples()
    said: dict[str, Any] = {}
    exec(compile(handler, "handlers/mine.py", "exec"), said)
    tested = {**said}
    exec(compile(test.replace("from handlers.mine import handle\n", ""), "test_mine.py", "exec"), tested)
    tests = {name: value for name, value in tested.items() if name.startswith("test_")}
    assert len(tests) == 3
    for run in tests.values():
        run()
    (reply,) = TeamFunction(said["handle"], 30)(HandlerCall("e", "c", 1, message("open?")))
    assert reply.content == {"body": "We are open until six."}


def test_the_test_of_the_page_fails_where_the_handler_is_wrong() -> None:
    _, test = examples()
    tested: dict[str, Any] = {"handle": lambda _: "wrong"}
    exec(compile(test.replace("from handlers.mine import handle\n", ""), "test_mine.py", "exec"), tested)
    with pytest.raises(AssertionError):
        tested["test_question_is_answered"]()
