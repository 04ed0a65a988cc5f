"""What the routes of dead letters take and answer."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from services.api.lists import Listed, ListQuery
from services.api.message_types import MessageId
from services.api.types import Rfc3339, Strict
from shared.domain.dead_letters import ERRORS, Replays
from shared.operations.dead_letters import Done

LONGEST_REASON = 500
"""Characters. The reason is stored in the record's metadata, which hold 4 KB at most."""

CODE = r"-?[0-9]{1,9}"


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
    """A page of dead letters, the newest first."""

    items: list[Letter]


class LetterPath(BaseModel):
    """The dead letter of a route."""

    id: MessageId


class ReplayLetter(Strict):
    """How to replay it."""

    dry_run: bool = Field(False, description="Change nothing: the answer has what would be done.")
    may_double: bool = Field(False, description="Also if a copy may have arrived: the customer may get it twice.")


class DiscardLetter(Strict):
    """Why to discard it."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_REASON, pattern=r"\S")] = Field(
        description="Kept with the message, never logged."
    )
    dry_run: bool = Field(False, description="Change nothing: the answer has what would be done.")


class LetterDecided(BaseModel):
    """What became of a dead letter, or would become of it."""

    id: MessageId
    outcome: Done = Field(description="done: nothing was sent, for a receipt shows that the provider has the message.")
    why: str | None = Field(None, description="Why it was left as it is.")
    dry_run: bool
    letter: Letter | None = Field(None, description="As it was before.")
