"""The message of pombo send: its options, as the API's request."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from cli.api_access import ApiAccess
from pombo.client import NewMessage
from shared.domain.outbound.messages import OutboundMessage

LANGUAGE = "en"
FIELDS = {
    "text": "TEXT",
    "to": "'--to'",
    "from": "'--from'",
    "content": "'--template'",
    "send_at": "'--at'",
    "delay": "'--at'",
    "Idempotency-Key": "'--key'",
}
"""The option that each field of the request comes from."""

_LATER = re.compile(r"[0-9]{1,7}[smhd]")
NO_TIME = "give how much later, like 15s, 2h or 3d, or a time with its offset, like 2026-12-01T09:00:00+01:00."


def _when(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | datetime | None:
    """A duration as it is, or a time."""
    if value is None or _LATER.fullmatch(value):
        return value
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise click.BadParameter(NO_TIME)
    return at


_OPTIONS = (
    click.argument("text", required=False),
    click.option("--to", required=True, metavar="NUMBER", help="The customer's number with +, or a user id."),
    click.option(
        "--from",
        "from_",
        metavar="SENDER",
        help="The business number: its id in Pombo or at WhatsApp, or as the registry shows it, with +.  [default: the "
        "number of the Pombo on this machine, or the only one of the key's tenant]",
    ),
    click.option(
        "--at", callback=_when, metavar="TIME", help="Later: 15s, 2h, 3d, or a time with its offset; 30 days at most."
    ),
    click.option("--template", metavar="NAME", help="Send an approved template instead of TEXT."),
    click.option("--language", metavar="CODE", help=f"The template's language.  [default: {LANGUAGE}]"),
    click.option(
        "--parameter", "parameters", multiple=True, metavar="VALUE", help="Fills the template's body; repeat in order."
    ),
)


def message_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command TEXT and the options that say what is sent, to whom and when."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class SendContent:
    """What is sent, to whom and when, as it was typed."""

    to: str
    text: str | None = None
    from_: str | None = None
    at: str | datetime | None = None
    template: str | None = None
    language: str | None = None
    parameters: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UsageError unless it is a text or a template."""
        if (self.text is None) == (self.template is None):
            raise click.UsageError("Give either TEXT or --template.")
        if self.template is None and (self.language is not None or self.parameters):
            raise click.UsageError("--language and --parameter are of a --template.")

    def message(self, access: ApiAccess) -> NewMessage:
        """The request. Raises BadParameter, and the client's errors if a number has to be looked up."""
        content: dict[str, Any] = {"text": self.text} if self.template is None else self._template(self.template)
        content |= {"delay": self.at} if isinstance(self.at, str) else {"send_at": self.at}
        return NewMessage(self.to, from_=self._sender(access), **content)

    def _template(self, name: str) -> dict[str, Any]:
        try:
            made = OutboundMessage.template(name, self.language or LANGUAGE, self.parameters)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint=FIELDS["content"]) from error
        return {"type": made.type, "content": made.content}

    def _sender(self, access: ApiAccess) -> str | None:
        if self.from_ is None or not self.from_.startswith("+"):
            return self.from_ or access.number
        digits = _digits(self.from_)
        found = [each.id for each in access.client.senders() if digits and _digits(each.display) == digits]
        return _only(found)


def _digits(number: str) -> str:
    return re.sub(r"[^0-9]", "", number)


def _only(found: Iterable[str]) -> str:
    ids = list(found)
    if len(ids) != 1:
        many = "No number" if not ids else "More than one number"
        sentence = f"{many} is shown like this by pombo senders list: give an id from there."
        raise click.BadParameter(sentence, param_hint=FIELDS["from"])
    return ids[0]
