"""Dead letters: records that wait for an operator, what may be shown of them without their content, and how to select
them.

A dead letter is a record in state `dead`. A message that WhatsApp accepted and a receipt refused later is listed with
them. An event of an unknown sender is listed only on request.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.domain.identity import sender_id
from shared.domain.listings import UNKNOWN_SENDER, Listing, is_dropped_by_handler, is_of_unknown_sender
from shared.domain.record import INVALID, Delivery, Kind, State, is_invalid

REFUSED = "refused"
ERRORS = (
    "unparsable",
    "attempts",
    "error",
    "permanent",
    "in_doubt",
    "waited",
    "window",
    INVALID,
    REFUSED,
    UNKNOWN_SENDER,
)
"""Why a record is a dead letter: the reasons of state dead, a later receipt, or a sender without a tenant."""

_CODED = frozenset({"permanent", "attempts", "in_doubt", "waited"})
"""Reasons for which the code of the round's last attempt adds detail: what refused it, or what it waited for."""

DISCARDED = "discarded"
DISCARDED_BECAUSE = "discarded_because"
"""The metadata field with the operator's reason for a discard. Like all metadata it is never logged."""

HANDLER = "handler"
"""The reason of a drop by the handler. The handler's text is kept apart from our reasons, so it cannot pass for one."""

HANDLER_SAID = "handler_said"
"""The metadata field with the handler's text. Never logged."""


def handler_said(record: Delivery) -> str | None:
    """The handler's reason for dropping it."""
    return record.metadata.get(HANDLER_SAID, record.reason) if is_dropped_by_handler(record) else None


def is_discarded(record: Delivery) -> bool:
    """Whether an operator discarded it, and not a handler dropped it with that reason."""
    return record.state is State.DROPPED and record.reason == DISCARDED and not is_dropped_by_handler(record)


def is_refused_later(record: Delivery) -> bool:
    """Whether the provider accepted it and then could not deliver it."""
    return (
        record.state is State.DONE
        and record.current_receipts.failed is not None
        and not record.current_receipts.reached
    )


def why_never(record: Delivery) -> str:
    """Why Pombo refuses to replay an invalid reply."""
    return f"The message is invalid and cannot be sent: {record.last_error or 'no reason was recorded.'}"


def is_letter(record: Delivery) -> bool:
    """Whether an operator may replay or discard it."""
    return record.state is State.DEAD or is_refused_later(record) or is_of_unknown_sender(record)


def is_confirmed(record: Delivery) -> bool:
    """Whether it is dead although a receipt of its round shows that the provider has it."""
    return record.state is State.DEAD and record.current_receipts.positive


class Replays(StrEnum):
    """What a replay would do with a dead letter."""

    AGAIN = "again"  # it is retried
    DONE = "done"  # nothing: a receipt shows that the provider has it
    MAY_DOUBLE = "may_double"  # it is retried, and may arrive twice
    NEVER = "never"  # nothing: it cannot be sent as it is


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What is shown of a dead letter: no content and no phone number."""

    key: str
    kind: Kind
    tenant: str
    correlation_id: str
    error: str
    code: int | None
    at: datetime
    """When it became a dead letter."""
    tries: int
    round: int
    replays: Replays
    error_type: str | None = None
    """The type of the exception, for an `error` that the handler raised in the last attempt."""
    sender: str = ""
    """The sender's id: a hash, because the provider's own id may be a phone number."""

    @property
    def listing(self) -> Listing:
        """The listing that it is in."""
        named = {REFUSED: Listing.REFUSED, UNKNOWN_SENDER: Listing.UNKNOWN_SENDER}
        return named.get(self.error, Listing.DEAD)


def dead_letter(record: Delivery) -> DeadLetter | None:
    """The dead letter in a record, or None if the record is not one."""
    if not is_letter(record):
        return None
    error, code = _error(record)
    ended = record.finished_at or record.received_at
    return DeadLetter(
        key=record.key,
        kind=record.kind,
        tenant=record.tenant,
        correlation_id=record.correlation_id,
        error=error,
        code=code,
        at=max(ended, record.current_receipts.failed) if error == REFUSED and record.current_receipts.failed else ended,
        tries=record.attempt,
        round=record.round,
        replays=_replays(record),
        error_type=_error_type(record),
        sender=sender_id(record.provider, record.sender),
    )


def _error(record: Delivery) -> tuple[str, int | None]:
    if record.state is State.DONE:
        return REFUSED, record.current_receipts.failed_code
    reason = record.reason or ""
    last = record.attempts_log[-1] if record.attempts_log else None
    tells = last is not None and last.round == record.round and reason in _CODED
    return reason, last.code if last and tells else None


def _error_type(record: Delivery) -> str | None:
    last = record.attempts_log[-1] if record.attempts_log else None
    return last.error_type if last and record.state is State.DEAD and record.reason == "error" else None


def _replays(record: Delivery) -> Replays:
    if is_invalid(record):
        return Replays.NEVER
    if is_confirmed(record):
        return Replays.DONE
    return Replays.MAY_DOUBLE if record.doubts else Replays.AGAIN


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters; a field that is not given does not restrict."""

    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    errors: frozenset[str | int] = frozenset()
    """Reasons and provider's codes; any of them matches."""
    kind: Kind | None = None
    sender: str | None = None
    """The sender's id (`Sender.id`)."""

    @property
    def restricts(self) -> bool:
        return self != DeadLetterFilter()

    def matches(self, letter: DeadLetter) -> bool:
        return (
            self.tenant in (None, letter.tenant)
            and self.sender in (None, letter.sender)
            and (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at <= self.until)
            and (not self.errors or bool(self.errors & {letter.error, letter.code}))
            and self.kind in (None, letter.kind)
        )

    @property
    def listings(self) -> tuple[Listing, ...]:
        """The listings to search. Unknown senders only on request."""
        has_codes = any(isinstance(error, int) for error in self.errors)
        is_any = not self.errors or has_codes
        found = {
            Listing.DEAD: is_any or bool(self.errors - {REFUSED, UNKNOWN_SENDER}),
            Listing.REFUSED: (is_any or REFUSED in self.errors) and self.kind is not Kind.INBOUND,
            Listing.UNKNOWN_SENDER: UNKNOWN_SENDER in self.errors and self.kind is not Kind.OUTBOUND,
        }
        return tuple(listing for listing, is_looked_at in found.items() if is_looked_at)
