"""Sentences: what a person reads of each thing that can happen to a delivery. Words alone; records.py and
logs.py know when each is said.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from shared.domain.guards import REAUTH_REQUIRED
from shared.domain.record import Delivery

Explain = Callable[[str, int, str], str | None]
"""What a provider's error code means to a person: provider and code in, a sentence out, None where nothing is known."""

Remark = Callable[[Delivery], str | None]
"""What an operator has to know of a stored event beside what became of it: a sentence, or None."""

RECEIVED = "It came in, genuine and new, and was stored."
CREATED = "Accepted for sending."
DOCTOR = "pombo doctor made it, to see a task go to process_inbound and come back."
WITHOUT_REPLY = "The handler gave no reply, or is not called for such a message."
NO_MESSAGE = "It was read; no handler is called for it."
RESENT = "The doubt window passed without a receipt: it is sent once more, and only once."
REPLAYED = "A person had it tried anew (round {round})."
RELEASED = "The reply before it came to its end unsent: this one waits for it no longer."
REPLAYABLE = "A person may have it tried again."
REPLAYABLE_AS_DOUBLE = "A copy may have arrived all the same; a person may have it tried again."
CONFIRMED = "A receipt shows that WhatsApp has it; it is not sent again."

TRIES: Mapping[str, str] = {
    # of an event
    "replied": "The handler answered.",
    "dropped": "The handler dropped it.",
    "handler_failed": "The handler failed.",
    "backend_down": "The handler's backend did not answer. This try does not count.",
    "unparsable": "It was read again and still makes no sense.",
    "unknown_sender": "The number it was sent to is still unknown.",
    # of a message
    "accepted": "WhatsApp took it.",
    "lost": "It was handed to WhatsApp and the answer was lost: WhatsApp may or may not have it.",
    "provider_down": "WhatsApp did not take it: WhatsApp is down or cannot be reached. This try does not count.",
    "retry": "WhatsApp could not take it this time.",
    "limited": "WhatsApp allows no more for the moment; the try does not count.",
    "credential_refused": "WhatsApp refuses the access token: reconnect the number.",
    "blocked": "WhatsApp has blocked the business number for now.",
    "refused": "WhatsApp refused it for good.",
}
"""By the verdict's word."""

NUMBERED = frozenset({"handler_failed", "lost", "retry"})
"""Where the number of the try matters: those that count and are not the last."""

RETRIED = frozenset(
    {"handler_failed", "backend_down", "provider_down", "retry", "limited", "credential_refused", "blocked"}
)
"""After these it is tried again, unless it has come to its end."""

UNSETTLED: Mapping[tuple[str, str], str] = {
    ("inbound", "started"): "The handler is at work on it.",
    ("inbound", "cut_off"): "The handler was cut off: its process ended, or it was not heard of again.",
    ("inbound", "put_back"): "Its process was told to end before the handler was done: it was put back.",
    ("outbound", "started"): "It is being handed to WhatsApp.",
    ("outbound", "in_doubt"): "The one that was sending it was not heard of again: WhatsApp may or may not have it.",
    ("outbound", "cut_off"): "The one that was sending it was not heard of again.",
    ("outbound", "put_back"): "It was put back before the sending began.",
}
"""By kind: a try that has left no verdict."""

DEAD: Mapping[str, str] = {
    "unparsable": "It could not be read. It is kept as it came.",
    "attempts": "All tries were used up. It is dead: a person may have it tried again.",
    "error": "The handler failed at the last try. It is dead: a person may have it tried again.",
    "permanent": "It will not be sent. It is dead: a person may change what was wrong and have it tried again.",
    "in_doubt": "No receipt came. WhatsApp may or may not have it; a person has to decide.",
    "waited": "It waited longer than MESSAGE_MAX_AGE. Moved to dead letters; `pombo dead replay` retries it.",
    "window": "More than 24 hours have passed since the person wrote last; only a template may be sent.",
    "invalid": "Moved to dead letters. Correct the handler; `pombo dead discard` removes the letter.",
}

DROPPED: Mapping[str, str] = {
    "unknown_sender": "It was sent to a number that is nobody's here.",
    "opt_out": "The person wants no more messages; it is not sent.",
    "discarded": "A person gave it up.",
}

WAITS: Mapping[str, tuple[str, str]] = {
    "predecessor": ("It waits for the reply before it", "It waited for the reply before it"),
    "blocked": (
        "It waits: the business number is blocked",
        "It waited while the business number was blocked",
    ),
    REAUTH_REQUIRED: (
        "It waits: the number has to be reconnected",
        "It waited for the number to be reconnected",
    ),
    "provider_down": (
        "WhatsApp is down or cannot be reached. The message waits; nothing is lost",
        "WhatsApp was down or could not be reached. The message waited",
    ),
    "backend_down": (
        "The handler's backend does not answer. The event waits; nothing is lost",
        "The handler's backend did not answer. The event waited",
    ),
    "provider_probe": (
        "WhatsApp's answer to an earlier request was lost. The message waits until Pombo knows that WhatsApp answers",
        "WhatsApp's answer to an earlier request was lost. The message waited until Pombo knew that WhatsApp answers",
    ),
    "backend_probe": (
        "The backend's answer to an earlier event was lost. The event waits until Pombo knows that the backend answers",
        "The backend's answer to an earlier event was lost. The event waited until Pombo knew that the backend answers",
    ),
    "in_doubt": ("It waits for a receipt", "It waited for a receipt"),
    "": ("It waits", "It waited"),
}
"""By the reason in the log: while it lasts, and when it is over."""

RECEIPTS: Mapping[str, str] = {
    "sent": "WhatsApp confirms that it was sent.",
    "delivered": "It reached the phone.",
    "read": "It was read.",
    "played": "It was played.",
    "failed": "WhatsApp took it, and could not deliver it after all.",
}


def clock(at: datetime, beside: datetime) -> str:
    """A moment as it is read in a sentence about another one: the date only where it is another day."""
    return f"{at:%H:%M:%S} UTC" if at.date() == beside.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def dead(reason: str | None) -> str:
    return DEAD.get(reason or "", f"It is dead: {reason or 'nobody knows why'}.")


def invalid(why: str | None) -> str:
    """`why`: the sentence that it was refused with."""
    return f"{unsendable(why)} {DEAD['invalid']}"


def unsendable(why: str | None) -> str:
    return f"It cannot be sent: {(why or 'no reason was kept').rstrip('.')}."


def dropped(reason: str | None) -> str:
    return DROPPED.get(reason or "", f"Nothing more is done with it: {(reason or 'no reason was given').rstrip('.')}.")


def dropped_by_handler(said: str | None) -> str:
    words = (said or "").rstrip(". ")
    return f"The handler dropped it: {words}." if words else TRIES["dropped"]


def discarded(because: str | None) -> str:
    return f"A person gave it up: {because.rstrip('.')}." if because else DROPPED["discarded"]


def handled(size: int, invalid: int) -> str:
    """`size`: how many replies the handler gave; `invalid`: how many of them cannot be sent."""
    if size == 0:
        return "It was handled; there is nothing to answer."
    if invalid == 0:
        return f"It was handled: {size} to send."
    return f"It was handled: {size - invalid} of {size} replies to send; {invalid} cannot be sent."


def came_again(times: int, last: datetime, first: datetime) -> str:
    often = "" if times == 1 else f" {times} times, the last at {clock(last, first)}"
    return f"It came again{often}; nothing was done twice."


def waited(reason: str, times: int, first: datetime, last: datetime, until: datetime | None, over: bool) -> str:
    """One wait, however many looks it took. `until`: when it is looked at again."""
    now, then = WAITS.get(reason, WAITS[""])
    looks = "" if times == 1 else f"; looked {times} times, the last at {clock(last, first)}"
    again = "" if over or until is None else f"; the next look is at {clock(until, first)}"
    return f"{then if over else now}{looks}{again}."


def with_details(sentence: str, **details: int | None) -> str:
    """The numbers behind a sentence, in brackets after it."""
    given = ", ".join(f"{name} {number}" for name, number in details.items() if number is not None)
    return f"{sentence} ({given})" if given else sentence
