"""Lists: what every list takes and answers, and its cursor, which is opaque to callers."""

import base64
import binascii
import json
import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from services.api.problems import INVALID_REQUEST, Problem
from shared.pipeline.ports import Cursor

MOST = 100
TenantId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]

_ID = re.compile(r"[a-z0-9-]{1,64}")


class Query(BaseModel):
    """Parameters of a route. Another one is a fault: it is misspelled, and the list would be another one."""

    model_config = ConfigDict(extra="forbid")


class ListQuery(Query):
    """What every list takes."""

    tenant: TenantId | None = Field(None, description="Whose: for an operator's key, which may name any tenant.")
    cursor: str | None = Field(None, max_length=400, description="next of the page before.")
    limit: int = Field(50, ge=1, le=MOST, description="Items on a page.")


class Listed(BaseModel):
    """A page of a list."""

    items: list[Any]
    next: str | None = Field(description="The cursor of the next page; null if this is the last.")


def encoded(cursor: Cursor | None) -> str | None:
    """A cursor as callers get it."""
    return base64.urlsafe_b64encode(json.dumps(cursor).encode()).decode().rstrip("=") if cursor else None


def time_and_key(cursor: str | None) -> Cursor | None:
    """The cursor of a list that is sorted by time. Raises Problem."""
    if cursor is None:
        return None
    match _decoded(cursor):
        case [str(time), str(key)] if _is_time(time) and _ID.fullmatch(key):
            return time, key
    raise _invalid()


def only_id(cursor: str | None) -> str | None:
    """The cursor of a list that is sorted by id. Raises Problem."""
    if cursor is None:
        return None
    match _decoded(cursor):
        case [str(id)] if _ID.fullmatch(id):
            return id
    raise _invalid()


def _decoded(cursor: str) -> Any:
    try:
        return json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None


def _invalid() -> Problem:
    return Problem(INVALID_REQUEST, "cursor is not one that a list gave as next.", "cursor")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() is not None and text.endswith("+00:00")
    except ValueError:
        return False
