"""Messages: what a handler may give back, and what it is told when that is no message."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from shared.domain import errors, send_errors
from shared.domain.message_kinds import DEFAULT_KINDS
from shared.domain.messages import Contact, Drop, Message
from shared.domain.outbound.messages import OutboundMessage
from tests.support.builders import NOW

# ---- texts


@pytest.mark.parametrize("body", ["a", "a" * 4096, "🕊" * 4096, " a ", "line\nline"], ids=repr)
def test_text_is_sent_unchanged(body: str) -> None:
    assert OutboundMessage.text(body) == OutboundMessage("text", {"body": body}, None)


def test_text_can_quote_and_show_a_preview() -> None:
    message = OutboundMessage.text("see https://example.com", reply_to="wamid.A", preview_url=True)
    assert message.content == {"body": "see https://example.com", "preview_url": True}
    assert message.reply_to == "wamid.A"


@pytest.mark.parametrize("body", ["", " ", "\n\t "], ids=repr)
def test_a_text_is_not_empty(body: str) -> None:
    with pytest.raises(ValueError, match="is empty"):
        OutboundMessage.text(body)


def test_a_text_has_at_most_4096_characters() -> None:
    with pytest.raises(ValueError, match="4097 characters; WhatsApp takes 4096"):
        OutboundMessage.text("a" * 4097)


@pytest.mark.parametrize("body", [None, 7, b"hello", ["hello"], {"body": "hello"}], ids=repr)
def test_a_text_is_a_str(body: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"is a str, not {type(body).__name__}"):
        OutboundMessage.text(body)


@pytest.mark.parametrize("reply_to", [7, b"wamid.A", ["wamid.A"]], ids=repr)
def test_quoted_id_of_a_text_must_be_a_message_id(reply_to: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="reply_to is the id of a message"):
        OutboundMessage.text("hello", reply_to=reply_to)


def test_text_error_does_not_contain_the_text() -> None:
    secret = "the text of a private message "
    with pytest.raises(ValueError) as raised:
        OutboundMessage.text(secret * 200)
    assert "private" not in str(raised.value)


# ---- what a handler is given

MESSAGE = Message("text", "hello", "wamid.A", Contact("15550002222"), "1", "default", NOW)


def test_a_message_cannot_be_changed_under_the_pipeline() -> None:
    with pytest.raises(FrozenInstanceError):
        MESSAGE.text = "other"  # type: ignore[misc]


def test_a_message_needs_no_more_than_its_kind_has() -> None:
    assert (MESSAGE.reply_to, MESSAGE.media, MESSAGE.location, MESSAGE.interactive) == (None, None, None, None)
    assert MESSAGE.raw == {}


def test_contact_with_a_username_can_lack_a_phone_number() -> None:
    contact = Contact("user.17", user_id="user.17")
    assert (contact.id, contact.phone, contact.name) == ("user.17", None, None)


def test_default_kinds_are_what_customers_write() -> None:
    assert {"text", "media", "location", "contacts", "interactive", "button", "order"} == DEFAULT_KINDS


def test_drop_has_its_reason() -> None:
    with pytest.raises(Drop, match="spam") as raised:
        raise Drop("spam")
    assert raised.value.reason == "spam"


# ---- errors

SCOPES = {"message", "contact", "sender", "tenant", "provider", "us"}


def every_error(error: type[errors.PomboError] = errors.PomboError) -> list[type[errors.PomboError]]:
    return [error, *(deeper for child in error.__subclasses__() for deeper in every_error(child))]


OURS = [error for error in every_error() if error.__module__ in (errors.__name__, send_errors.__name__)]


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_every_error_has_a_sentence_and_a_scope(error: type[errors.PomboError]) -> None:
    assert error().sentence.endswith(".")
    assert error("Something else.").sentence if not issubclass(error, send_errors.SendError) else True
    assert error.scope in SCOPES


def test_no_two_errors_share_a_code() -> None:
    """One without a code of its own is a case of the error above it."""
    codes = [error.code for error in OURS if "code" in vars(error)]
    assert len(codes) == len(set(codes))
