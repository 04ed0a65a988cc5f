"""What a customer does: the options of pombo say, as an order for the WhatsApp simulator."""

import hashlib
import math
import mimetypes
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli import ids, simulator
from cli.running import Running
from cli.simulator import Choice, Entry
from local import terminal
from shared.domain.outbound.fields import one_emoji
from shared.domain.record import Kind

CALLER = "15550002222"
_NUMBER = re.compile(r"\+?[0-9]{5,15}")
"""As in E.164, without separators. https://www.itu.int/rec/T-REC-E.164"""

_PROVIDERS_ID = re.compile(r"[0-9]{1,32}")
"""Of a business number, or of a file: Meta's ids are digits."""

WAMID = "wamid."
"""The prefix of every WhatsApp message id."""

NO_PLACE = "give a location as LAT,LON in degrees, like 38.7139,-9.1334."


def _number(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _NUMBER.fullmatch(value):
        raise click.BadParameter("give a phone number: 5 to 15 digits, with or without a leading +.")
    return value


def _user_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("the user id is empty; omit the option for a customer with a phone number.")
    return value


def _sender(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _PROVIDERS_ID.fullmatch(value):
        raise click.BadParameter("give the business number's phone number id: 1 to 32 digits.")
    return value


def _emoji(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            one_emoji({"emoji": value}, "emoji", "a reaction")
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return value


def _place(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Mapping[str, float] | None:
    if value is None:
        return None
    try:
        latitude, longitude = (float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(NO_PLACE) from None
    if not (math.isfinite(latitude) and abs(latitude) <= 90 and math.isfinite(longitude) and abs(longitude) <= 180):
        raise click.BadParameter(NO_PLACE)
    return {"latitude": latitude, "longitude": longitude}


def _image(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Mapping[str, Any] | None:
    """An image as Meta describes it in a webhook. The simulator keeps no files: a handler gets only the description."""
    if value is None:
        return None
    path = Path(terminal.native(value))
    if not path.is_file():
        if _PROVIDERS_ID.fullmatch(value):
            return {"id": value, "mime_type": "image/jpeg", "sha256": _sha256(value.encode())}
        raise click.BadParameter(
            "the file does not exist. Give a file, or the media id of a file at WhatsApp: 1 to 32 digits."
        )
    mime_type = mimetypes.guess_type(path.name)[0] or ""
    if not mime_type.startswith("image/"):
        raise click.BadParameter("the file's name must end like an image's: photo.jpg or photo.png.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"cannot read the file: {error.strerror}.") from error
    id = str(int(hashlib.sha256(content).hexdigest()[:12], 16))
    return {"id": id, "mime_type": mime_type, "sha256": _sha256(content)}


def _sha256(content: bytes) -> str:
    return b64encode(hashlib.sha256(content).digest()).decode()


_OPTIONS = (
    click.argument("text", required=False),
    click.option("--tap", metavar="ID", help="Tap this button or list row; pombo ledger shows their ids."),
    click.option(
        "--reaction",
        metavar="EMOJI",
        callback=_emoji,
        help="React to the business's last message; '' removes the reaction.",
    ),
    click.option(
        "--image", metavar="FILE", callback=_image, help="Send an image: a file or a media id; TEXT is its caption."
    ),
    click.option("--location", metavar="LAT,LON", callback=_place, help="Send a location; TEXT is its name."),
    click.option(
        "--reply-to", metavar="ID", help="Answer or react to this message: an id that pombo trace takes, or a wamid."
    ),
    click.option("--from", "phone", callback=_number, help=f"The customer's number.  [default: {CALLER}]"),
    click.option(
        "--user-id",
        callback=_user_id,
        help="The business-scoped user id of a customer with a username and no number.",
    ),
    click.option(
        "--to",
        "sender",
        metavar="SENDER",
        callback=_sender,
        help="Send to another business number: its phone number id.",
    ),
)


def content_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command TEXT and the options that say what a customer does."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class SayContent:
    """What a customer does, who the customer is, and which business number it goes to."""

    text: str | None = None
    tap: str | None = None
    reaction: str | None = None
    image: Mapping[str, Any] | None = None
    location: Mapping[str, float] | None = None
    reply_to: str | None = None
    phone: str | None = None
    user_id: str | None = None
    sender: str | None = None

    def check(self) -> None:
        """Raises UsageError unless it is exactly one action."""
        kinds = {name: getattr(self, name) for name in ("tap", "reaction", "image", "location")}
        given = [f"--{name}" for name, value in kinds.items() if value is not None]
        if len(given) > 1:
            raise click.UsageError(f"{given[0]} and {given[1]} are two messages: send one at a time.")
        if not given and self.text is None:
            raise click.UsageError("Give TEXT, or --tap, --reaction, --image or --location.")
        if self.text is not None and given and given[0] in ("--tap", "--reaction"):
            raise click.UsageError(f"{given[0]} takes no TEXT.")

    def order(self, running: Running) -> dict[str, Any]:
        """The order for the simulator. Raises ClickException if it refers to a message that does not exist."""
        return {**self._person(), **({"phone_number_id": self.sender} if self.sender else {}), **self._message(running)}

    def _person(self) -> dict[str, str]:
        person = {"user_id": self.user_id} if self.user_id else {}
        return person | ({"from": self.phone or CALLER} if self.phone or not self.user_id else {})

    def _message(self, running: Running) -> dict[str, Any]:
        answered = _message_id(running, self.reply_to) if self.reply_to else None
        if self.tap is not None:
            choice, wamid = self._choice(running, answered)
            return {"type": "interactive", "content": {"type": choice.kind, choice.kind: choice.content}} | _in(wamid)
        if self.reaction is not None:
            reacted = answered or self._last(running)
            emoji = {"emoji": self.reaction} if self.reaction else {}
            return {"type": "reaction", "content": {"message_id": reacted, **emoji}}
        if self.image is not None:
            content = {**self.image, **({"caption": self.text} if self.text else {})}
            return {"type": "image", "content": content} | _in(answered)
        if self.location is not None:
            content = {**self.location, **({"name": self.text} if self.text else {})}
            return {"type": "location", "content": content} | _in(answered)
        return {"type": "text", "content": {"body": self.text}} | _in(answered)

    def _choice(self, running: Running, answered: str | None) -> tuple[Choice, str]:
        """The choice that is tapped, and its message: the newest that has it."""
        there: dict[str, None] = {}
        for entry in self._received(running):
            for choice in simulator.choices(entry) if answered in (None, entry["wamid"]) else ():
                if choice.id == self.tap:
                    return choice, entry["wamid"]
                there[choice.id] = None
        known = f"they have: {', '.join(terminal.plain(id) for id in there)}" if there else "they have none"
        raise click.ClickException(f"This customer has received no button or row with this id; {known}.")

    def _last(self, running: Running) -> str:
        for entry in self._received(running):
            return str(entry["wamid"])
        raise click.ClickException("This customer has received no message to react to. Name one with --reply-to.")

    def _received(self, running: Running) -> Iterator[Entry]:
        """The messages that the customer received, newest first."""
        person = self._person()
        mine = {f"+{person.get('from', '').removeprefix('+')}", person.get("user_id")} - {"+", None}
        for entry in simulator.ledger(running):
            if mine & {entry["to"], entry["recipient"]}:
                yield entry


def _in(wamid: str | None) -> dict[str, Any]:
    """The part that says which message it replies to."""
    if wamid is None:
        return {}
    from local.whatsapp.webhook_payloads import DISPLAY_PHONE_NUMBER

    return {"fields": {"context": {"from": DISPLAY_PHONE_NUMBER, "id": wamid}}}


def _message_id(running: Running, id: str) -> str:
    """WhatsApp's id of the message that an operator means: a wamid itself, a reply's own wamid, or for an event that of
    its last reply. Raises ClickException.
    """
    if id.startswith(WAMID):
        return id
    found = ids.find(running, id)
    if found is None:
        raise click.ClickException(ids.NOTHING_KNOWN)
    named = [record for record in found.records if found.id in (record.key, record.provider_id)]
    replies = named if named and named[0].kind is Kind.OUTBOUND else found.records
    taken = [record.provider_id for record in replies if record.provider_id]
    if not taken:
        raise click.ClickException(
            "WhatsApp has not accepted this message or a reply to it, so there is nothing to answer."
        )
    return taken[-1]
