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

RECONNECTED = "reconnected"
"""Why a drain was begun: the sender can send again, with another credential or because its account is connected again.
Only such a drain says that the sender is connected.
"""

LIMIT_OVER = "limit_over"
"""Why: the provider's limit on the sender's messages a second is over."""

RESUMED = "resumed"
"""Why: its tenant is not suspended any more."""

SENDER_CHANGED = "sender_changed"
"""Why: an operator changed its pace or named another secret; what waits has its place by the former one."""

ACCOUNT_NEWS = "account_news"
"""Why: the provider's news of its account ended a block, or a disconnection beside which a refusal still counts."""

_SENDER = re.compile(r"[0-9a-f]{40}")
_REASON = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True)
class DrainTask:
    """One page of a drain. `sender` is the sender's id, a hash. `since` is when all services know that the sender may
    send again, and the drain runs: another reconnect begins another drain. `cursor` is where the page begins, "" for
    the first; `page` counts from 0. `reason` is why it was begun. Only the log uses it, so it may be a word of a newer
    version.
    """

    sender: str
    since: datetime
    correlation_id: str
    cursor: str = ""
    page: int = 0
    reason: str = RECONNECTED

    @property
    def name(self) -> str:
        """Its name in the queue. It makes task creation idempotent."""
        return stable_hash("drain", self.sender, _text(self.since), self.page)


def drain_body(drain: DrainTask) -> dict[str, str | int]:
    """The JSON body of the task. Earlier versions know no `reason`: for them a drain is begun by a reconnection, unless
    it has `after_limit`.
    """
    return {
        "v": VERSION,
        "sender": drain.sender,
        "since": _text(drain.since),
        "cursor": drain.cursor,
        "page": drain.page,
        "correlation_id": drain.correlation_id,
        "reason": drain.reason,
        **({"after_limit": True} if drain.reason == LIMIT_OVER else {}),
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
    return DrainTask(sender, since, correlation_id, cursor, page, _reason_in(body))


def _reason_in(body: Mapping[str, Any]) -> str:
    """Why the drain was begun, also if an earlier version made the task. Raises TaskInvalid."""
    reason = body.get("reason", LIMIT_OVER if body.get("after_limit") is True else RECONNECTED)
    if not (isinstance(reason, str) and _REASON.fullmatch(reason)):
        raise TaskInvalid("The task needs a reason of a-z and _, if it has one.")
    return reason


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
