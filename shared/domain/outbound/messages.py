"""Outbound messages: what a handler returns, checked against the provider's limits on creation."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from shared.domain.outbound import choices
from shared.domain.outbound.checks import check
from shared.domain.outbound.limits import MESSAGE_BYTES

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL in JSON, after an even number of backslashes: after an odd number its backslash is an escaped one."""

Content = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """One message to a customer, created by a maker method or by hand: `content` is Meta's object for its `type`.

    `reply_to` is the id of the message that it quotes. An invalid message raises a TypeError or a ValueError with one
    sentence on creation.
    """

    type: str
    content: Content
    reply_to: str | None = None

    def __post_init__(self) -> None:
        """Reject what could not be stored or sent here, not after the handler has run."""
        if not isinstance(self.type, str) or not isinstance(self.content, Mapping | list | tuple):
            raise TypeError("An OutboundMessage has a type, a str, and a content, a mapping.")
        if self.reply_to is not None and not isinstance(self.reply_to, str):
            raise TypeError(f"reply_to is the id of a message, a str, not {type(self.reply_to).__name__}.")
        check(self.type, self.content, self.reply_to)
        content = dict(self.content) if isinstance(self.content, Mapping) else self.content
        _, copy, _ = _storable([self.type, content, self.reply_to])
        object.__setattr__(self, "content", copy)  # what was checked is what is sent

    # ---- makers

    @classmethod
    def text(cls, body: str, *, preview_url: bool = False, reply_to: str | None = None) -> Self:
        """A text of 1 to 4096 characters. `preview_url`: show what its first link leads to."""
        return cls("text", {"body": body, **_optional(preview_url=preview_url or None)}, reply_to)

    @classmethod
    def image(
        cls,
        link: str | None = None,
        *,
        id: str | None = None,
        caption: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """A JPEG or PNG of at most 5 MB, by a link that Meta fetches or by the id of a file uploaded to Meta."""
        return cls("image", _optional(link=link, id=id, caption=caption), reply_to)

    @classmethod
    def video(
        cls,
        link: str | None = None,
        *,
        id: str | None = None,
        caption: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """An MP4 or 3GP of at most 16 MB, by link or id."""
        return cls("video", _optional(link=link, id=id, caption=caption), reply_to)

    @classmethod
    def audio(
        cls, link: str | None = None, *, id: str | None = None, voice: bool = False, reply_to: str | None = None
    ) -> Self:
        """An audio file of at most 16 MB, by link or id. `voice`: shown as a voice note; it must be OGG/OPUS."""
        return cls("audio", _optional(link=link, id=id, voice=voice or None), reply_to)

    @classmethod
    def document(
        cls,
        link: str | None = None,
        *,
        id: str | None = None,
        caption: str | None = None,
        filename: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """A file of at most 100 MB, by link or id. The extension of `filename` decides how it is shown."""
        return cls("document", _optional(link=link, id=id, caption=caption, filename=filename), reply_to)

    @classmethod
    def sticker(cls, link: str | None = None, *, id: str | None = None, reply_to: str | None = None) -> Self:
        """A WebP of at most 100 KB (500 KB animated), by link or id."""
        return cls("sticker", _optional(link=link, id=id), reply_to)

    @classmethod
    def location(
        cls,
        latitude: float | str,
        longitude: float | str,
        *,
        name: str | None = None,
        address: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """A place, in degrees: numbers, or decimal digits as a str."""
        place = {"latitude": latitude, "longitude": longitude}
        return cls("location", {**place, **_optional(name=name, address=address)}, reply_to)

    @classmethod
    def contacts(
        cls, contacts: Mapping[str, str] | Iterable[Mapping[str, Any]], *, reply_to: str | None = None
    ) -> Self:
        """1 to 257 contact cards: {"Ana Lima": "+15550002222"}, or Meta's objects."""
        return cls("contacts", choices.cards(contacts), reply_to)

    @classmethod
    def buttons(
        cls,
        body: str,
        buttons: choices.Choices,
        *,
        header: str | Mapping[str, Any] | None = None,
        footer: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """A text with 1 to 3 buttons: ["Yes", "No"], {"yes": "Yes", "no": "No"} or [("yes", "Yes"), ("no", "No")].

        A tap on a button comes back as an interactive message, with its id and title.
        """
        action = {"buttons": choices.buttons(buttons)}
        return cls("interactive", _interactive("button", body, action, header, footer), reply_to)

    @classmethod
    def list(
        cls,
        body: str,
        button: str,
        sections: Any,
        *,
        header: str | None = None,
        footer: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """A text with a button that opens a list of 1 to 10 rows, written like buttons: title, pair or triple
        (id, title, description). Several sections are a mapping from title to rows: {"Today": ["9:00", "9:30"]}.
        """
        action = {"button": button, "sections": choices.sections(sections)}
        return cls("interactive", _interactive("list", body, action, header, footer), reply_to)

    @classmethod
    def cta_url(
        cls,
        body: str,
        button: str,
        url: str,
        *,
        header: str | Mapping[str, Any] | None = None,
        footer: str | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """A text with a button that opens a link."""
        action = {"name": "cta_url", "parameters": {"display_text": button, "url": url}}
        return cls("interactive", _interactive("cta_url", body, action, header, footer), reply_to)

    @classmethod
    def template(
        cls,
        name: str,
        language: str,
        parameters: Mapping[str, Any] | Iterable[Any] | None = None,
        *,
        components: Sequence[Mapping[str, Any]] | None = None,
        reply_to: str | None = None,
    ) -> Self:
        """An approved template, the only message that WhatsApp takes after 24 hours. `parameters` fill its body, in
        order or by name; for more than the body give Meta's `components` instead.
        """
        if parameters is not None and components is not None:
            raise ValueError("A template takes parameters for its body or whole components, not both.")
        if parameters is not None and (filled := choices.parameters(parameters)):
            components = [{"type": "body", "parameters": filled}]
        named = {"name": name, "language": {"code": language}}
        return cls("template", {**named, **_optional(components=components)}, reply_to)

    @classmethod
    def reaction(cls, message_id: str, emoji: str) -> Self:
        """One emoji on a message of theirs; an empty one removes it."""
        return cls("reaction", {"message_id": message_id, "emoji": emoji})

    @classmethod
    def read(cls, message_id: str) -> Self:
        """Mark a message, and all before it, as read. It may run twice, and no message waits for it."""
        return cls("read", {"message_id": message_id})

    @classmethod
    def typing(cls, message_id: str) -> Self:
        """As `read`, and show "typing…" until the next message, at most 25 s."""
        return cls("typing", {"message_id": message_id})


@dataclass(frozen=True, slots=True)
class InvalidReply:
    """An item of a plan that cannot be sent, in place of a message. It ends dead(invalid); the others are sent.

    `sentence` says why. `given` is a copy of the item, None if no store could hold it.
    """

    sentence: str
    given: Any = None

    @classmethod
    def of(cls, item: object, error: Exception) -> Self:
        """From an item and the error that refused it."""
        try:
            given = _storable(item)
        except (TypeError, ValueError):
            given = None
        return cls(str(error)[:SENTENCE_CHARACTERS], given)


SENTENCE_CHARACTERS = 500
"""The length of a stored sentence. Ours are shorter, unless they hold the name of a type, which may have any length."""

PlanItem = OutboundMessage | InvalidReply
"""One reply of a plan."""


def from_json(reply: object) -> OutboundMessage:
    """One reply from its wire form: a str is a text, an object is {"type", "content", "reply_to"?}.

    Raises ValueError with a sentence that says what is wrong.
    """
    try:
        if isinstance(reply, str):
            return OutboundMessage.text(reply)
        if not isinstance(reply, Mapping):
            raise TypeError(f"A reply is a string or an object with type and content, not {type(reply).__name__}.")
        if reply.keys() - {"type", "content", "reply_to"} or not {"type", "content"} <= reply.keys():
            raise ValueError("A reply has a type and a content, perhaps a reply_to, and nothing else.")
        return OutboundMessage(reply["type"], reply["content"], reply.get("reply_to"))
    except TypeError as error:
        raise ValueError(str(error)) from error


def _storable(value: object) -> Any:
    """A copy of a value as JSON values, if a record can hold it. Raises TypeError or ValueError with a sentence."""
    try:
        plain = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(plain.encode())
    except UnicodeEncodeError as error:
        raise ValueError("The message has a lone surrogate (half a character).") from error
    except RecursionError as error:
        raise ValueError("The content of the message is nested too deeply.") from error
    if _NUL.search(plain):
        raise ValueError("The message holds a NUL (U+0000); no text may have one.")
    if size > MESSAGE_BYTES:
        raise ValueError(f"The message has {size} bytes as JSON; at most {MESSAGE_BYTES} are allowed.")
    return json.loads(plain)


def _interactive(
    kind: str, body: str, action: Mapping[str, Any], header: str | Mapping[str, Any] | None, footer: str | None
) -> Mapping[str, Any]:
    ending = {} if footer is None else {"footer": {"text": footer}}
    return {"type": kind, **choices.header(header), "body": {"text": body}, **ending, "action": action}


def _optional(**fields: Any) -> dict[str, Any]:
    """The given fields, without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
