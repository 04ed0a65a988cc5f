"""The timeline: what happened to one message, in sentences, from its records and the log lines.

It shows texts: for authorised operators only. Waits and duplicates write no record; they come from the log lines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from shared.domain.guards import (
    CREDENTIALS_UNAVAILABLE,
    PREDECESSOR,
    PROVIDER_DOWN,
    REAUTH_REQUIRED,
    SENDER_REMOVED,
    SUSPENDED,
    TURN,
)
from shared.domain.messages import Message
from shared.domain.rate_limit import LIMITED
from shared.domain.record import CANCELLED, Delivery, Kind, State, Task, is_cancelled
from shared.operations.timeline import logs
from shared.operations.timeline import records as timeline_records
from shared.operations.timeline import sentences as say
from shared.operations.timeline.ahead import Ahead
from shared.operations.timeline.records import Moment, Try
from shared.operations.timeline.sentences import Explain, Remark

__all__ = ["Moment", "ReceivedContent", "Reply", "Timeline", "build", "from_log_lines", "shown", "tried"]

GONE = "gone"
"""Shown if the record no longer exists."""

WAITING, IN_DOUBT = "waiting", "in_doubt"
"""Why a message is pending: a backoff, another message or its number's pace; and an attempt whose answer was lost."""

SHOWN_WAITS = ("blocked", LIMITED, REAUTH_REQUIRED, PROVIDER_DOWN, SUSPENDED, SENDER_REMOVED, CREDENTIALS_UNAVAILABLE)
"""What a task waits for that is shown by its own name. Anything else is `waiting`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as shown to an operator."""

    key: str
    type: str
    text: str | None
    shown: str
    why: str | None = None
    waits_for: str | None = None
    """The key of the message that it waits for in its lane."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is ahead of the deliveries that wait, by their keys, as of `now`, and how long each waits for that alone."""

    ahead: Mapping[str, Ahead]
    patience: timedelta
    now: datetime


@dataclass(frozen=True, slots=True)
class ReceivedContent:
    """What a customer sent. `type` is the provider's type if the kind has several, such as image for `media`."""

    kind: str
    type: str | None
    text: str | None
    """What the customer sees: the text, the caption, the title of the tapped button, the emoji of a reaction."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of one event and its replies. `came` is None if it is not a customer's message or cannot be read."""

    correlation_id: str
    events: tuple[Moment, ...]
    shown: str
    replies: tuple[Reply, ...]
    settled: bool
    """Whether Pombo will do nothing more on its own. Receipts may still arrive."""
    came: ReceivedContent | None = None
    has_event: bool = True
    """Whether there is an event that `replies` answer. Otherwise they answer none, or their event was deleted."""
    tenant: str | None = None
    """Whose it is ("": no tenant's), and `sender` the provider's id of the number; None if only log lines are left."""
    sender: str | None = None

    @property
    def answered(self) -> bool:
        """Whether the event, if there is one, was handled and every message was sent."""
        handled = self.shown in ("processed", "ignored", "sent")
        return self.settled and handled and all(reply.shown == "sent" for reply in self.replies)


def _unexplained(_provider: str, _code: int, _answer: str) -> None:
    return None


def _unremarked(_record: Delivery) -> None:
    return None


def _unread(_record: Delivery) -> None:
    return None


def build(
    records: Sequence[Delivery],
    log_lines: Iterable[Mapping[str, Any]] = (),
    explain: Explain = _unexplained,
    remark: Remark = _unremarked,
    read: Callable[[Delivery], Message | None] = _unread,
    waiting: Waiting | None = None,
) -> Timeline:
    """The timeline of an event's records (the event first, then its replies in order), or of a message that answers no
    event. `read` returns the message in a stored event, or None. `waiting`: what is ahead of those that wait, if that
    was looked for.
    """
    lines = logs.read(log_lines)
    invalid = sum(timeline_records.cannot_be_sent(record) for record in records)
    moments = [
        moment
        for record in records
        for moment in timeline_records.moments(
            record,
            _beginning(record, records, remark),
            explain,
            logs.cut_offs(lines, record.key),
            logs.replays(lines, record.key),
            logs.enqueued(lines, record.key),
            invalid,
        )
    ]
    known = {record.key: record for record in records}
    moments += logs.moments(lines, records, partial(_said_of, waiting, known))
    moments += [
        moment
        for record in records
        for moment in timeline_records.release(record, records, logs.deaths(lines, record.after))
    ]
    first = records[0]
    message = read(first) if first.kind is Kind.INBOUND else None
    return Timeline(
        correlation_id=first.correlation_id,
        events=_sorted(moments),
        shown=shown(first)[0],
        replies=tuple(
            _reply(record, logs.waits_for(lines, record), waiting) for record in records if record.kind is Kind.OUTBOUND
        ),
        settled=all(record.final for record in records),
        came=_received_content(message) if message else None,
        has_event=first.kind is Kind.INBOUND,
        tenant=first.tenant,
        sender=first.sender,
    )


def tried(record: Delivery, explain: Explain = _unexplained) -> Iterator[tuple[Try, str]]:
    """Every attempt that the record keeps, with its sentence."""
    for one in timeline_records.tries(record):
        yield one, timeline_records.sentence_of_try(record, one, explain)


def from_log_lines(log_lines: Iterable[Mapping[str, Any]], explain: Explain = _unexplained) -> Timeline | None:
    """The timeline from the logs alone, for a message whose record was deleted; None if they have nothing."""
    lines = logs.read(log_lines)
    if not lines:
        return None
    correlation_id = next((line.correlation_id for line in lines if line.correlation_id), "")
    return Timeline(correlation_id, _sorted(logs.alone(lines, explain)), GONE, (), settled=True)


def shown(record: Delivery) -> tuple[str, str | None]:
    """The displayed status of a record, and why it waits if it does."""
    if record.kind is Kind.INBOUND:
        return _INBOUND_SHOWN[record.state], None
    word = record.current_receipts
    if word.reached:
        return "sent", None
    if word.failed:
        return "failed", None
    if record.state is State.DONE or word.sent:
        return "sent", None
    if is_cancelled(record):
        return CANCELLED, None
    if record.final:
        return "failed", None
    return "pending", _why(record)


_INBOUND_SHOWN: Mapping[State, str] = {
    State.PENDING: "received",
    State.LEASED: "processing",
    State.IN_DOUBT: "processing",
    State.DONE: "processed",
    State.DROPPED: "ignored",
    State.DEAD: "failed",
}


def _why(record: Delivery) -> str:
    if record.state is State.IN_DOUBT:
        return IN_DOUBT
    last = record.attempts_log[-1].answer if record.attempts_log else ""
    return {
        "limited": "limited",
        "blocked": "blocked",
        "credential_refused": REAUTH_REQUIRED,
        "provider_down": PROVIDER_DOWN,
    }.get(last, WAITING)


def _said_of(waiting: Waiting | None, known: Mapping[str, Delivery], key: str, reason: str, since: datetime) -> str:
    """What a delivery waits for that has another one ahead of it, and until when."""
    ahead = waiting.ahead.get(key) if waiting else None
    if waiting is None or ahead is None or reason not in (PREDECESSOR, TURN):
        return ""
    record = known[key]
    patient_since = ahead.patient_since(replace(Task.of(record), alone_since=since), waiting.now)
    latest = max(patient_since + waiting.patience, ahead.leased_until or since) if patient_since else None
    return say.ahead(ahead.key, record.kind, latest, waiting.now, since)


def _reply(record: Delivery, waits_for: str, waiting: Waiting | None) -> Reply:
    """`waits_for`: what its last task waited for since its last attempt. That counts more than the attempt, all that
    the record knows: a tenant may have been suspended after its number was refused.
    """
    word, why = shown(record)
    if waits_for and why not in (None, IN_DOUBT):
        why = waits_for if waits_for in SHOWN_WAITS else WAITING
    is_behind = why == WAITING and waits_for in ("", PREDECESSOR)
    ahead = waiting.ahead.get(record.key) if waiting and is_behind else None
    content = _text(record.payload.get("content"))
    return Reply(record.key, str(record.payload.get("type", "")), content, word, why, ahead.key if ahead else None)


def _received_content(message: Message) -> ReceivedContent:
    part = message.media or message.interactive or message.system or message.unsupported
    return ReceivedContent(message.kind, part.type if part else None, _words(message))


def _words(message: Message) -> str | None:
    """The text of a received message."""
    place, interactive = message.location, message.interactive
    named = [card.name for card in message.contacts if card.name]
    words = [
        message.text,
        message.reaction.emoji if message.reaction else None,
        interactive.title or interactive.name or interactive.permission if interactive else None,
        place.name or place.address or f"{place.latitude}, {place.longitude}" if place else None,
        ", ".join(named),
        message.media.filename if message.media else None,
        message.system.body if message.system else None,
    ]
    return next((word for word in words if word), None)


def _text(content: Any) -> str | None:
    """What the customer reads of it: a text, the words over buttons, the caption of a file, the emoji of a reaction."""
    if not isinstance(content, Mapping):
        return None
    body = content.get("body")
    found = body.get("text") if isinstance(body, Mapping) else body
    words = [found, content.get("caption"), content.get("emoji")]
    return next((word for word in words if isinstance(word, str)), None)


def _beginning(record: Delivery, records: Sequence[Delivery], remark: Remark) -> str:
    if record.kind is Kind.INBOUND:
        beginning, more = timeline_records.beginning_of_event(record), remark(record)
        return f"{beginning} {more}" if more else beginning
    if records[0].kind is Kind.OUTBOUND:
        return say.created(record.received_at, record.send_at)  # it answers no event
    replies = [other.key for other in records if other.kind is Kind.OUTBOUND]
    type_ = record.payload.get("type")
    kind = "" if type_ in ("text", None) else f" ({type_})"
    return f"Planned as reply {replies.index(record.key) + 1} of {len(replies)}{kind}."


def _sorted(moments: Iterable[Moment]) -> tuple[Moment, ...]:
    """By time. Moments of the same instant keep their order, which is that of cause and effect."""
    return tuple(sorted(moments, key=lambda moment: moment.at))
