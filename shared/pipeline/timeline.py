"""The timeline: what became of one message, in plain words, from its records and what the logs add.

Authorised eyes only: it shows texts. Waiting and duplicates leave no write; they come from the log lines.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.domain.record import Attempt, Delivery, Kind, State

_ATTEMPT_SENTENCES: Mapping[str, str] = {
    "replied": "The handler answered.",
    "dropped": "The handler wants nothing more done with it.",
    "handler_failed": "The handler failed (try {attempt}).",
    "unparsable": "It was read again and still makes no sense.",
    "unknown_sender": "The number it was sent to is still unknown.",
    "accepted": "WhatsApp took it.",
    "lost": "It was handed to WhatsApp and the answer was lost; a receipt will tell, or the doubt window will end.",
    "provider_down": "WhatsApp takes no messages at the moment (try {attempt}).",
    "retry": "WhatsApp could not take it this time (try {attempt}).",
    "limited": "WhatsApp allows no more for the moment; it waits and goes again.",
    "credential_refused": "WhatsApp refuses the access token: reconnect the number.",
    "blocked": "WhatsApp has blocked the business number for now.",
    "refused": "WhatsApp refused it for good.",
}

_DEAD_SENTENCES: Mapping[str, str] = {
    "unparsable": "It could not be read. It is kept as it came.",
    "attempts": "All tries were used up.",
    "error": "The handler failed at the last try.",
    "permanent": "It will not be sent.",
    "in_doubt": "No receipt came. WhatsApp may or may not have it; a person has to decide.",
    "waited": "It waited too long to be sent.",
    "window": "More than 24 hours have passed since the person wrote last; only a template may be sent.",
}

_WAITING_SENTENCES: Mapping[str, str] = {
    "predecessor": "It waits for the reply before it.",
    "blocked": "It waits: the business number is blocked.",
    "WHATSAPP_REAUTH_REQUIRED": "It waits: the number has to be reconnected.",
}

_RECEIPT_SENTENCES: Mapping[str, str] = {
    "sent": "WhatsApp confirms that it was sent.",
    "delivered": "It reached the phone.",
    "read": "It was read.",
    "played": "It was played.",
    "failed": "WhatsApp could not deliver it.",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened to one delivery."""

    at: datetime
    what: str
    sentence: str
    delivery: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as the outside sees it."""

    key: str
    type: str
    text: str | None
    shown: str
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of one event and its replies."""

    correlation_id: str
    events: tuple[Moment, ...]
    shown: str
    replies: tuple[Reply, ...]
    settled: bool
    """Whether nothing more will happen of itself, receipts aside."""

    @property
    def answered(self) -> bool:
        """Whether all went well: the event was handled, and every reply to it was sent."""
        handled = self.shown in ("processed", "ignored")
        return self.settled and handled and all(reply.shown == "sent" for reply in self.replies)


def build(records: Sequence[Delivery], log_lines: Iterable[Mapping[str, Any]] = ()) -> Timeline:
    """The timeline of an event's records (the event first, then its replies in order)."""
    moments = [moment for record in records for moment in _moments(record, records)]
    moments += [moment for line in log_lines if (moment := _from_log(line)) is not None]
    first = records[0]
    replies = tuple(_reply(record) for record in records if record.kind is Kind.OUTBOUND)
    return Timeline(
        correlation_id=first.correlation_id,
        events=tuple(sorted(moments, key=lambda moment: moment.at)),
        shown=shown(first)[0],
        replies=replies,
        settled=all(record.final for record in records),
    )


def shown(record: Delivery) -> tuple[str, str | None]:
    """The outside's word for a record's state, and why it waits if it does."""
    if record.kind is Kind.INBOUND:
        return _INBOUND_SHOWN[record.state], None
    word = record.word
    if word.reached:
        return "sent", None
    if word.failed:
        return "failed", None
    if record.state is State.DONE or word.sent:
        return "sent", None
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
        return "in_doubt"
    last = record.attempts_log[-1].answer if record.attempts_log else ""
    return {
        "limited": "limited",
        "blocked": "blocked",
        "credential_refused": "WHATSAPP_REAUTH_REQUIRED",
    }.get(last, "waiting")


def _reply(record: Delivery) -> Reply:
    word, why = shown(record)
    content = record.payload.get("content") or {}
    text = content.get("body") if isinstance(content, Mapping) else None
    return Reply(record.key, str(record.payload.get("type", "")), text, word, why)


def _moments(record: Delivery, records: Sequence[Delivery]) -> list[Moment]:
    moments = [Moment(record.received_at, *_beginning(record, records), record.key)]
    moments += [_from_attempt(record, attempt) for attempt in record.attempts_log]
    for round_, receipts in record.receipts.items():
        for kind, sentence in _RECEIPT_SENTENCES.items():
            at = getattr(receipts, kind)
            if at is not None:
                at = max(at, _handed_over(record))
                again = f" (round {round_})" if round_ else ""
                code = f" Code {receipts.failed_code}." if kind == "failed" and receipts.failed_code else ""
                moments.append(Moment(at, f"receipt_{kind}", f"{sentence}{again}{code}", record.key))
    ending = _ending(record)
    if ending is not None and record.finished_at is not None:
        moments.append(Moment(record.finished_at, *ending, record.key))
    return moments


def _handed_over(record: Delivery) -> datetime:
    """The earliest moment a receipt can be shown at: the provider's clock counts whole seconds, ours does not."""
    accepted = (attempt.at for attempt in record.attempts_log if attempt.answer == "accepted")
    return next(accepted, record.started_at or record.received_at)


def _beginning(record: Delivery, records: Sequence[Delivery]) -> tuple[str, str]:
    if record.kind is Kind.INBOUND:
        return "received", "It came in, genuine and new, and was stored."
    replies = [other.key for other in records if other.kind is Kind.OUTBOUND]
    return "planned", f"Reply {replies.index(record.key) + 1} of {len(replies)} was planned."


def _from_attempt(record: Delivery, attempt: Attempt) -> Moment:
    sentence = _ATTEMPT_SENTENCES.get(attempt.answer, attempt.answer).format(attempt=attempt.attempt)
    if attempt.code is not None:
        sentence += f" Code {attempt.code}."
    if attempt.answer == "handler_failed" and record.last_error and attempt is record.attempts_log[-1]:
        sentence += f" {record.last_error}"
    return Moment(attempt.at, attempt.answer, sentence, record.key)


def _ending(record: Delivery) -> tuple[str, str] | None:
    match record.state:
        case State.DEAD:
            return "dead", _DEAD_SENTENCES.get(record.reason or "", record.reason or "It is dead.")
        case State.DROPPED:
            if record.reason == "unknown_sender":
                return "dropped", "It was sent to a number that is nobody's here."
            return "dropped", f"Nothing more is done with it: {record.reason}."
        case State.DONE if record.kind is Kind.INBOUND:
            size = record.plan_size or 0
            return (
                "done",
                "It was handled; there is nothing to answer." if size == 0 else f"It was handled: {size} to send.",
            )
        case State.DONE if not any(attempt.answer == "accepted" for attempt in record.attempts_log):
            return "done", "A receipt shows that WhatsApp has it; it is not sent again."
        case _:
            return None


def _from_log(line: Mapping[str, Any]) -> Moment | None:
    at = datetime.fromisoformat(str(line["time"]))
    match line.get("event"):
        case "inbound_duplicate":
            sentence = "It came again; nothing was done twice."
            return Moment(at, "duplicate", sentence, str(line.get("inbound_event_id", "")))
        case "outbound_waiting":
            sentence = _WAITING_SENTENCES.get(str(line.get("reason")), "It waits.")
            return Moment(at, "waiting", sentence, str(line.get("delivery", "")))
        case _:
            return None
