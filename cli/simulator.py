"""A client of the WhatsApp simulator, for commands: what a customer does, and what WhatsApp accepted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import httpx

from cli.running import Running

Entry = Mapping[str, Any]
"""A message in the ledger, as the simulator's control address returns it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A button or list row that a customer may tap: the kind of reply that a tap sends, and its content."""

    kind: str
    content: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.content["id"])


def order(running: Running, document: Mapping[str, Any]) -> Sequence[str]:
    """Carry out what a customer does; return the ids of the messages. Raises ClickException if there is no simulator,
    or if it refuses.
    """
    ids: Sequence[str] = _asked(running, "POST", "inbound", document)["message_ids"]
    return ids


def ledger(running: Running) -> Sequence[Entry]:
    """The messages that WhatsApp accepted, newest first. Raises ClickException, as `order`."""
    entries: list[Entry] = _asked(running, "GET", "ledger")
    return entries[::-1]


def text_of(entry: Entry) -> str:
    """The text that a customer reads; for a message without text, what best identifies it."""
    body = _object(entry, "body")
    inner = body.get("body")
    found = inner.get("text") if isinstance(inner, Mapping) else inner
    others = (body.get(name) for name in ("caption", "emoji", "name", "link", "id"))
    place = f"{body['latitude']}, {body['longitude']}" if {"latitude", "longitude"} <= body.keys() else ""
    return next((word for word in (found, *others) if isinstance(word, str)), place)


def choices(entry: Entry) -> Iterator[Choice]:
    """The buttons and rows that a customer may tap in a message."""
    action = _object(_object(entry, "body"), "action")
    for button in _objects(action, "buttons"):
        reply = _object(button, "reply")
        if "id" in reply:
            yield Choice("button_reply", {"id": reply["id"], "title": reply.get("title", "")})
    for section in _objects(action, "sections"):
        for row in _objects(section, "rows"):
            yield Choice("list_reply", {name: row[name] for name in ("id", "title", "description") if name in row})


def _asked(running: Running, method: str, what: str, document: Any = None) -> Any:
    if running.control is None:
        raise click.ClickException(
            "This command needs the WhatsApp simulator of a Pombo that runs on this machine. Start one with: "
            f"{running.start}."
        )
    url = f"{running.control}/control/{what}"
    try:
        response = httpx.request(method, url, json=document, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise click.ClickException(
            f"The WhatsApp simulator does not answer at {running.control}. Try again in a few seconds. If it still "
            f"does not answer, stop Pombo and start it again with: {running.start}."
        ) from error
    if response.status_code != 200:
        raise click.ClickException(_refusal(response))
    return response.json()


def _refusal(response: httpx.Response) -> str:
    try:
        said = response.json()
    except ValueError:
        return f"The WhatsApp simulator answered with status {response.status_code}."
    return str(said.get("error", said) if isinstance(said, dict) else said)


def _object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, Mapping) else {}


def _objects(holder: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    found = holder.get(name)
    yield from (item for item in found if isinstance(item, Mapping)) if isinstance(found, list) else ()
