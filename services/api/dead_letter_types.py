"""What the routes of dead letters take and answer."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from services.api.lists import MOST, Listed, ListQuery
from services.api.message_types import MessageId
from services.api.types import Rfc3339, Strict
from shared.domain.dead_letters import ERRORS, Replays
from shared.operations.dead_letters import Done
from shared.operations.letters_page import MOST_READ

LONGEST_REASON = 500
"""Characters. The reason is stored in the record's metadata, which hold 4 KB at most."""

CODE = r"-?[0-9]{1,9}"
COMPLETE = f"false: more than {MOST_READ} match, and others are newer perhaps: choose a tenant."


Error = Annotated[str, StringConstraints(pattern=rf"^({'|'.join(ERRORS)}|{CODE})$")]
SenderId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class LettersQuery(ListQuery):
    """Which dead letters to list."""

    since: Rfc3339 | None = Field(None, description="Only those dead since this time.")
    until: Rfc3339 | None = Field(None, description="Only those dead by this time.")
    error: list[Error] | None = Field(None, description="Only this reason or provider's code; may be repeated.")
    direction: Literal["inbound", "outbound"] | None = None
    sender: SenderId | None = Field(None, description="Only this sender's, by its id.")


class Preview(BaseModel):
    """The content of a dead letter, for keys with the scope dead:read."""

    contact: str = Field(description="The customer's number or user id.")
    type: str
    text: str | None = Field(None, description="The first 200 characters of its text, if it has one.")


class Letter(BaseModel):
    """A delivery that failed, and waits until someone replays or discards it."""

    id: MessageId
    direction: Literal["inbound", "outbound"]
    tenant: str
    sender: str
    correlation_id: str
    error: str = Field(description="Why it is dead: a reason of Pombo's.")
    code: int | None = Field(None, description="The provider's error code.")
    error_type: str | None = Field(None, description="The type of the handler's exception.")
    at: datetime = Field(description="When it became a dead letter.")
    attempts: int
    round: int = Field(description="How often it was replayed.")
    replay: Replays = Field(description="What a replay would do.")
    preview: Preview | None = None


class Letters(Listed):
    """A page of dead letters, the newest first. Behind the first page, one that was decided about within the last
    minute may still be listed.
    """

    items: list[Letter]
    complete: bool = Field(description=COMPLETE)


class LetterPath(BaseModel):
    """The dead letter of a route."""

    id: MessageId


class ReplayLetter(Strict):
    """How to replay."""

    dry_run: bool = Field(False, description="Change nothing: the answer has what would be done.")
    may_double: bool = Field(False, description="Also if a copy may have arrived: the customer may get it twice.")


class DiscardLetter(Strict):
    """Why to discard."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_REASON, pattern=r"\S")] = Field(
        description="Kept with the message, never logged."
    )
    dry_run: bool = Field(False, description="Change nothing: the answer has what would be done.")


class LettersSelection(LettersQuery, Strict):
    """Which dead letters to decide about: a filter, or all."""

    all: bool = Field(False, description="Every dead letter, without a filter.")
    limit: int = Field(MOST, ge=1, le=MOST, description="At most this many in one request.")


class ReplayLetters(LettersSelection, ReplayLetter):
    """Which dead letters to replay, and how."""


class DiscardLetters(LettersSelection, DiscardLetter):
    """Which dead letters to discard, and why."""


class LetterDecided(BaseModel):
    """What became of a dead letter, or would become of it."""

    id: MessageId
    outcome: Done = Field(description="done: nothing was sent, for a receipt shows that the provider has the message.")
    why: str | None = Field(None, description="Why it was left as it is.")
    dry_run: bool
    letter: Letter | None = Field(None, description="As it was before.")


class LettersDecided(Listed):
    """What became of the dead letters of a page, or would become of them, the newest first. A fault ends the request
    with a problem: repeat it, each letter is decided about once. A replayed letter whose task could not be made gets it
    within minutes.
    """

    items: list[LetterDecided]
    complete: bool = Field(description=COMPLETE)
