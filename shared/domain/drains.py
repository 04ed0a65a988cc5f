"""Drains: tasks that wake the waiting messages of a sender in order, a page at a time. Each makes the next.

A drain is a hint: without it, waiting messages look again by themselves.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared.domain.errors import TaskInvalid, TokenCheck, UnknownState
from shared.domain.identity import is_correlation_id, stable_hash
from shared.domain.tasks import CHECK_BODY, is_count, moment_in

DRAIN_PATH = "/internal/drain"
"""The internal service's path for these tasks, and the only path to which their queue leads."""

VERSION = 1
LONGEST_CURSOR = 2048
"""Characters. Cloud Tasks takes 100 KB; a cursor is a few keys."""

_SENDER = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class DrainTask:
    """One page of a drain. `sender` is the sender's id, a hash. `since` is when all services know that the sender may
    send again, and the drain runs: another reconnect begins another drain. `cursor` is where the page begins, "" for
    the first; `page` counts from 0. `after_limit`: it runs because a rate limit is over, and not after a reconnect; the
    log says so.
    """

    sender: str
    since: datetime
    correlation_id: str
    cursor: str = ""
    page: int = 0
    after_limit: bool = False

    @property
    def name(self) -> str:
        """Its name in the queue. It makes task creation idempotent."""
        return stable_hash("drain", self.sender, _text(self.since), self.page)


def drain_body(drain: DrainTask) -> dict[str, str | int]:
    """The JSON body of the task."""
    return {
        "v": VERSION,
        "sender": drain.sender,
        "since": _text(drain.since),
        "cursor": drain.cursor,
        "page": drain.page,
        "correlation_id": drain.correlation_id,
        **({"after_limit": True} if drain.after_limit else {}),
    }


def parse_drain(body: Any) -> DrainTask:
    """The drain in a body; other fields are ignored. Raises TaskInvalid for an invalid one, UnknownState for one of a
    newer version, and TokenCheck for a call that only checks the token.
    """
    if not isinstance(body, Mapping):
        raise TaskInvalid("The task must be a JSON object.")
    if body == CHECK_BODY:
        raise TokenCheck("The call only checks the token; it carries no task.")
    version = body.get("v")
    if not is_count(version):
        raise TaskInvalid("The task needs a version in the field v.")
    if version > VERSION:
        raise UnknownState("A newer version of Pombo created this task.")
    sender, cursor, page = body.get("sender"), body.get("cursor"), body.get("page")
    if not (isinstance(sender, str) and _SENDER.fullmatch(sender)):
        raise TaskInvalid("The task needs a sender of 40 hex digits.")
    if not (isinstance(cursor, str) and len(cursor) <= LONGEST_CURSOR and is_count(page)):
        raise TaskInvalid("The task needs a cursor and a page, a whole number from 0.")
    correlation_id, since = body.get("correlation_id"), moment_in(body.get("since"), "since")
    if not (isinstance(correlation_id, str) and is_correlation_id(correlation_id)):
        raise TaskInvalid("The task needs a correlation_id.")
    if since is None:
        raise TaskInvalid("The task needs the moment since.")
    return DrainTask(sender, since, correlation_id, cursor, page, body.get("after_limit") is True)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
