"""Sentences: what an operator reads about everything that can happen to a delivery. records.py and logs.py decide when
each is shown.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from shared.domain.guards import CREDENTIALS_UNAVAILABLE, PACED, REAUTH_REQUIRED, SENDER_REMOVED, SUSPENDED
from shared.domain.identity import LEAST_PREFIX
from shared.domain.rate_limit import LIMITED
from shared.domain.record import Delivery, Kind

Explain = Callable[[str, int, str], str | None]
"""Explains a provider's error code: provider and code in, a sentence out, None if nothing is known."""

Remark = Callable[[Delivery], str | None]
"""What an operator must know about a stored event besides its outcome: a sentence, or None."""

RECEIVED = "Received and stored (signature valid, first delivery)."
CREATED = "Accepted for sending."
DOCTOR = "`pombo doctor` created it to check that a task reaches process_inbound and completes."
WITHOUT_REPLY = "No reply: the handler returned none, or it is not called for this kind of message."
NO_MESSAGE = "Parsed. No handler is called for this kind of event."
RESENT = "No receipt arrived within the doubt window. Pombo resends the message, at most once."
REPLAYED = "An operator replayed it (round {round})."
RELEASED = "The message before it ended without being sent. This one no longer waits for it."
OVERTOOK = "The message before it did not end in time. This one no longer waits for it."
OVERTOOK_IN_TURN = "An earlier message of this customer was not handled in time. This one no longer waits for it."
REPLAYABLE = "`pombo dead replay` retries it."
REPLAYABLE_AS_DOUBLE = "A copy may have arrived; `pombo dead replay --may-double` resends it."
CONFIRMED = "A receipt confirms that WhatsApp has it. Pombo does not resend it."

TRIES: Mapping[str, str] = {
    # of an event
    "replied": "The handler answered.",
    "dropped": "The handler dropped it.",
    "handler_failed": "The handler failed.",
    "backend_down": "The handler's backend did not answer. This attempt does not count.",
    "unparsable": "Parsing failed again.",
    "unknown_sender": "Still no tenant owns this phone number ID.",
    # of a message
    "accepted": "Accepted by WhatsApp.",
    "lost": "Sent, but WhatsApp's response was lost.",
    "provider_down": "WhatsApp did not accept it: WhatsApp is down or unreachable. This attempt does not count.",
    "retry": "WhatsApp did not accept it this time.",
    "limited": "WhatsApp reports that a limit is reached. This attempt does not count.",
    "credential_refused": "WhatsApp rejected the access token. Messages wait. Reconnect the number to send them.",
    "credential_replaced": "WhatsApp rejected an access token that was just replaced. This attempt does not count.",
    "blocked": "WhatsApp has blocked the business number for now.",
    "refused": "WhatsApp rejected it permanently.",
}
"""The result of an attempt, by the verdict's name."""

NUMBERED = frozenset({"handler_failed", "lost", "retry"})
"""Verdicts whose attempt number is shown: the attempt counts and is not the last."""

RETRIED = frozenset(
    {
        "handler_failed",
        "backend_down",
        "provider_down",
        "retry",
        "limited",
        "credential_refused",
        "credential_replaced",
        "blocked",
    }
)
"""After these Pombo retries, unless the record is final."""

UNSETTLED: Mapping[tuple[str, str], str] = {
    ("inbound", "started"): "The handler is running.",
    ("inbound", "cut_off"): "The handler was interrupted: the worker ended or stopped responding.",
    ("inbound", "put_back"): "The worker shut down before the handler finished, and released its lease.",
    ("outbound", "started"): "Sending to WhatsApp.",
    ("outbound", "in_doubt"): "The worker stopped responding while sending: WhatsApp may or may not have the message.",
    ("outbound", "cut_off"): "The worker stopped responding while sending.",
    ("outbound", "put_back"): "The worker released its lease before it began to send.",
}
"""An attempt without a verdict, by kind."""

DEAD: Mapping[str, str] = {
    "unparsable": "Parsing failed. Moved to dead letters as received; `pombo dead replay` parses it again.",
    "attempts": "Failed after {attempts}. Moved to dead letters; `pombo dead replay` retries it.",
    "error": "The handler failed on the last attempt. Moved to dead letters; `pombo dead replay` retries it.",
    "permanent": "Moved to dead letters unsent. Correct the cause; `pombo dead replay` then retries it.",
    "in_doubt": "No receipt arrived: WhatsApp may or may not have the message. Moved to dead letters; "
    "`pombo dead replay --may-double` resends it.",
    "waited": "Waited longer than MESSAGE_MAX_AGE. Moved to dead letters; `pombo dead replay` retries it.",
    "window": "Not sent: the customer's last message is more than 24 hours old, and only a template may be sent. "
    "Moved to dead letters.",
    "invalid": "Moved to dead letters. Correct the handler; `pombo dead discard` discards this reply.",
}

DROPPED: Mapping[str, str] = {
    "unknown_sender": "Dropped: no tenant owns this phone number ID.",
    "opt_out": "Not sent: the customer opted out.",
    "discarded": "An operator discarded it.",
    "cancelled": "Cancelled before it was sent. It will not be sent.",
}

WAITS: Mapping[str, tuple[str, str]] = {
    "predecessor": ("Waiting for the message before it", "Waited for the message before it"),
    "turn": (
        "Waiting for another message of this customer to be handled",
        "Waited for another message of this customer to be handled",
    ),
    "blocked": (
        "Waiting: WhatsApp has blocked the business number",
        "Waited while the business number was blocked",
    ),
    REAUTH_REQUIRED: (
        "Waiting for the number to be reconnected: WhatsApp rejects its access token",
        "Waited for the number to be reconnected",
    ),
    SUSPENDED: (
        "Waiting: the tenant is suspended; `pombo tenants resume` resumes it",
        "Waited while the tenant was suspended",
    ),
    SENDER_REMOVED: (
        "Waiting: its business number was removed or belongs to another tenant; `pombo senders add` adds it again",
        "Waited while its business number was missing",
    ),
    CREDENTIALS_UNAVAILABLE: (
        "Waiting: a secret that it needs is missing or cannot be read",
        "Waited for a secret that was missing or could not be read",
    ),
    PACED: ("Waiting for its turn in the number's pace", "Waited for its turn in the number's pace"),
    LIMITED: (
        "Waiting: a limit of WhatsApp is reached; more messages are sent once it is over",
        "Waited while a limit of WhatsApp was reached",
    ),
    "provider_down": (
        "Waiting: WhatsApp is down or unreachable",
        "Waited while WhatsApp was down or unreachable",
    ),
    "backend_down": (
        "Waiting: the handler's backend does not answer",
        "Waited while the handler's backend did not answer",
    ),
    "provider_probe": (
        "Waiting for a probe of WhatsApp: its response to an earlier request was lost",
        "Waited for a probe of WhatsApp: its response to an earlier request was lost",
    ),
    "backend_probe": (
        "Waiting for a probe of the handler's backend: its response to an earlier event was lost",
        "Waited for a probe of the handler's backend: its response to an earlier event was lost",
    ),
    "busy": (
        "Waiting: the handler is busy with other messages of this tenant",
        "Waited while the handler was busy with other messages of this tenant",
    ),
    "in_doubt": ("Waiting for a delivery receipt", "Waited for a delivery receipt"),
    "": ("Waiting for the next attempt", "Waited for the next attempt"),
}
"""A wait by its reason in the log: while it lasts, and when it is over."""

RECEIPTS: Mapping[str, str] = {
    "sent": "WhatsApp confirmed that it was sent.",
    "delivered": "Delivered to the customer's phone.",
    "read": "Read by the customer.",
    "played": "Played by the customer.",
    "failed": "Accepted by WhatsApp, but not delivered.",
}


def clock(at: datetime, beside: datetime) -> str:
    """A time in a sentence about another time: with the date only if it is another day."""
    return f"{at:%H:%M:%S} UTC" if at.date() == beside.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def created(at: datetime, send_at: datetime | None) -> str:
    """How a message began that answers no event. `send_at`: when its caller wants it sent."""
    return CREATED if send_at is None else f"{CREATED} To be sent at {clock(send_at, at)}."


def dead(reason: str | None, attempts: int | None = None) -> str:
    """`attempts`: how many there were; None if unknown."""
    unknown = f"Moved to dead letters: {reason or 'no reason was recorded'}."
    return DEAD.get(reason or "", unknown).replace("{attempts}", _counted(attempts))


def _counted(attempts: int | None) -> str:
    if not attempts:
        return "all attempts"
    return f"{attempts} attempts" if attempts > 1 else "1 attempt"


def invalid(why: str | None) -> str:
    """`why`: the sentence that it was refused with."""
    return f"{unsendable(why)} {DEAD['invalid']}"


def unsendable(why: str | None) -> str:
    return f"Cannot be sent: {(why or 'no reason was recorded').rstrip('.')}."


def dropped(reason: str | None) -> str:
    return DROPPED.get(reason or "", f"Dropped: {(reason or 'no reason was given').rstrip('.')}.")


def dropped_by_handler(said: str | None) -> str:
    words = (said or "").rstrip(". ")
    return f"The handler dropped it: {words}." if words else TRIES["dropped"]


def discarded(because: str | None) -> str:
    return f"An operator discarded it: {because.rstrip('.')}." if because else DROPPED["discarded"]


def handled(size: int, invalid: int) -> str:
    """`size`: how many replies the handler gave; `invalid`: how many of them cannot be sent."""
    if size == 0:
        return "Handled: no reply to send."
    if invalid == 0:
        return f"Handled: {size} {'reply' if size == 1 else 'replies'} to send."
    return f"Handled: {size - invalid} of {size} replies to send; {invalid} cannot be sent."


def came_again(times: int, last: datetime, first: datetime) -> str:
    if times == 1:
        return "Duplicate received; not processed again."
    return f"{times} duplicates received, the last at {clock(last, first)}; not processed again."


def waited(reason: str, times: int, first: datetime, last: datetime, until: datetime | None, over: bool) -> str:
    """One wait, however many checks it took. `until`: when the next one is."""
    now, then = WAITS.get(reason, WAITS[""])
    looks = "" if times == 1 else f"; checked {times} times, the last at {clock(last, first)}"
    again = "" if over or until is None else f"; next check at {clock(until, first)}"
    return f"{then if over else now}{looks}{again}."


def ahead(key: str, kind: Kind, latest: datetime | None, now: datetime, since: datetime) -> str:
    """What a delivery waits for that has another one ahead of it. `latest`: when it goes whatever that one does; None:
    that is open, because that one waits itself.
    """
    goes, which = "handled" if kind is Kind.INBOUND else "sent", key[:LEAST_PREFIX]
    if latest is None:
        return f" It waits for {which}, which waits itself: once that one has ended, this one is {goes}."
    when = f"at {clock(latest, since)} at the latest" if now < latest else "at its next check in any case"
    return f" It waits for {which}: once that one has ended, this one is {goes}, {when}."


def with_details(sentence: str, **details: int | None) -> str:
    """The numbers behind a sentence, in brackets after it."""
    given = ", ".join(f"{name} {number}" for name, number in details.items() if number is not None)
    return f"{sentence} ({given})" if given else sentence
