"""Log events: every event that a service logs, what it means, and which fields its lines have.

The page docs/logs.md is written from these tables, and every line of a real run is held to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of line: the sentence in its `message`, the fields that it always has, and those that it may have."""

    sentence: str
    always: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


EVERY_LINE = LogEvent(
    "",
    always=("time", "severity", "message", "event"),
    may=("logging.googleapis.com/labels", "logging.googleapis.com/trace"),
)
"""What any line has, whatever its event."""

FIELDS: Mapping[str, str] = {
    "time": "when the line was written, RFC 3339, UTC",
    "severity": "`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`",
    "message": "the event's sentence",
    "event": "the event's name",
    "logging.googleapis.com/labels": "`correlation_id`, `inbound_event_id`, `delivery`, `tenant` and `stage`, "
    "which Cloud Logging indexes",
    "logging.googleapis.com/trace": "the trace of the request, if it has one",
    "correlation_id": "one for an event, its replies and their receipts",
    "inbound_event_id": "the key of an event's record",
    "delivery": "the key of a message's record; of `dead_lettered`, `replayed` and `discarded` also of an event's",
    "tenant": "who owns the sender; absent if nobody does",
    "provider": "whose webhook it was, or whose sender it is: `meta`",
    "phone_number_id": "the business number, by WhatsApp's id; absent on news of an account, and where the "
    "provider's id is itself a phone number",
    "stage": "`inbound` or `outbound`; of `started` and `stopping` the service; of some `unexpected_error` the step",
    "event_type": "of an event `message` or the webhook's field, `account_update` for instance; of a message its type, "
    "`text` for instance; of a receipt its kind; `other` where the name is not one that Pombo knows",
    "task_name": "the task that runs, by its name in the queue; of `inbound_new`, `inbound_enqueued` and "
    "`inbound_duplicate` the event's first task, of `outbound_enqueued` that of the first reply",
    "queue": "the queue of that task, as `INBOUND_TASK_QUEUE_NAME` or `OUTBOUND_TASK_QUEUE_NAME` names it",
    "generation": "of that task: 0 for the first, one more after each retry that Pombo schedules",
    "hop": "of that task: how many tasks of this generation have found that the record has to wait",
    "retry_count": "how often Cloud Tasks has retried this very task; absent if it does not say",
    "message_hash": "a hash in place of WhatsApp's message id, the same on `outbound_sent` and on the message's "
    "receipts; absent where WhatsApp named no id",
    "attempt": "the number of the attempt, from 1",
    "state": "the record's state after it",
    "verdict": "what the handler's or WhatsApp's answer means",
    "status": "`success` or `failed`, on lines that end an event or a message",
    "reply": "which one of its event's replies it is, from 1, where it cannot be sent",
    "reason": "why, in a word or in a sentence of ours",
    "cause": "what lies behind the reason, in a word or in a sentence of ours",
    "code": "WhatsApp's error code",
    "scope": "what WhatsApp has blocked: `sender` or `account`; absent where a receipt said so",
    "by": "`receipt` where a failed receipt said so",
    "until": "when it is looked at again, or probed again",
    "wait_seconds": "how long the outage is waited out, until the next probe",
    "outbound_planned": "how many replies the handler gave",
    "outbound_invalid": "how many of them cannot be sent; absent if none",
    "outbound_enqueued": "how many of them have their task; those that cannot be sent have one too, which finds that",
    "duration_ms": "how long the request took, up to this line",
    "latency_seconds": "how long ago the record was created",
    "count": "how many",
    "connected": "1 or 0",
    "round": "how often an operator has replayed it",
    "selected": "records that were overdue",
    "enqueued": "records that got another task",
    "pending": "records in this state now",
    "leased": "records in this state now",
    "in_doubt": "records in this state now",
    "dead": "records in this state now",
    "receipts_failed": "messages that a receipt reported as failed and that no operator has replayed",
    "oldest_pending_seconds": "the age of the oldest pending record",
    "oldest_dead_seconds": "the age of the oldest dead letter, from when its event or message was received",
    "provider_down": "senders for which the provider is down now",
    "backend_down": "backends that are down now",
    "missed": "tasks that could not be created",
    "caller": "`tasks` or `scheduler`",
    "signature": "`verified`: here, against Google's certificates; `removed`: Cloud Run's IAM verified and removed it",
    "pid": "the process",
    "error": "the exception's type",
    "error_type": "the type of the exception that the handler raised",
    "place": "the line of the team's code that raised it, as file:line, or that was still running at the timeout",
    "function": "the function with that line",
    "stack_trace": "the places that the exception passed, without messages and values",
    "logger": "the library that reports an error",
}
"""Every field there is, and what it means."""

_TASK = ("correlation_id", "stage", "task_name", "queue", "generation", "hop")
_RECORD = ("event_type",)
_OWNER = ("tenant", "provider", "phone_number_id")
_ATTEMPT = ("attempt", "state", "verdict", "duration_ms", "latency_seconds")
_FAILURE = ("error_type", "place", "function", "cause")
"""Of a handler that failed. What its exception said may be private: it is in the timeline alone."""
_RECEIPT = ("delivery", "correlation_id", "message_hash", "provider")


def _inbound(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line about an event, within a task of it."""
    return LogEvent(sentence, ("inbound_event_id", *_TASK, *_RECORD, *always), ("retry_count", *_OWNER, *may))


def _accepted(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line about an event, within the webhook that brought it."""
    required = tuple(name for name in ("inbound_event_id", *_TASK, *_RECORD) if name not in may)
    return LogEvent(sentence, (*required, *always), (*_OWNER, *may))


def _outbound(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line about a message, within a task of it."""
    return LogEvent(sentence, ("delivery", *_TASK, *_RECORD, *_OWNER, *always), ("retry_count", *may))


def _either(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line within a task of an event or of a message."""
    keys = ("inbound_event_id", "delivery")
    return LogEvent(sentence, (*_TASK, *always), ("retry_count", *keys, *may))


EVENTS: Mapping[str, LogEvent] = {
    "webhook_received": LogEvent("A webhook was stored.", ("count", "duration_ms"), ("provider",)),
    "webhook_refused": LogEvent("A webhook was refused.", ("reason",), ("provider",)),
    "webhook_ignored": LogEvent("Part of a webhook was not for us.", ("reason", "count"), ("provider",)),
    "inbound_new": _accepted("A new event was stored.", "state", may=("reason",)),
    "inbound_duplicate": _accepted("An event came again; nothing was done twice.", may=("correlation_id",)),
    "inbound_enqueued": _accepted("The event has its task."),
    "inbound_processing_started": _inbound("The event goes to the handler.", "attempt"),
    "inbound_processing_finished": _inbound(
        "The event was handled.",
        *_ATTEMPT,
        may=("status", "reason", "outbound_planned", "outbound_invalid", "outbound_enqueued"),
    ),
    "inbound_rescheduled": _inbound(
        "The event will be tried again.", *_ATTEMPT, may=("reason", *_FAILURE, "stack_trace")
    ),
    "inbound_waiting": _inbound("An event waits.", "reason", "until"),
    "inbound_failed": _inbound("The event could not be handled.", *_ATTEMPT, "reason", may=(*_FAILURE, "stack_trace")),
    "outbound_enqueued": _inbound("The replies have their tasks.", "outbound_planned", "outbound_enqueued"),
    "outbound_waiting": _outbound("A message waits.", "state", may=("reason", "until")),
    "outbound_attempt": _outbound(
        "A message was tried.",
        "state",
        may=("attempt", "verdict", "status", "reason", "duration_ms", "latency_seconds"),
    ),
    "outbound_sent": _outbound("The provider took a message.", *_ATTEMPT, "status", may=("message_hash",)),
    "outbound_rescheduled": _outbound("A message will be tried again.", *_ATTEMPT, may=("code",)),
    "outbound_in_doubt": _outbound(
        "The provider may or may not have a message.",
        "state",
        may=("attempt", "verdict", "code", "reason", "until", "duration_ms", "latency_seconds"),
    ),
    "outbound_failed": _outbound("A message could not be sent.", *_ATTEMPT, may=("code",)),
    "receipt_applied": LogEvent("A receipt was stored.", ("event_type", "stage"), (*_RECEIPT, "reason")),
    "receipt_failed": LogEvent(
        "The provider could not deliver a message that it had accepted.",
        ("event_type", "stage", "status"),
        (*_RECEIPT, "code", "reason"),
    ),
    "receipt_unknown": LogEvent(
        "A receipt names nothing we know.",
        ("delivery", "correlation_id", "event_type", "stage"),
        ("message_hash", "provider", "code"),
    ),
    "dead_lettered": LogEvent(
        "A delivery is dead; a person has to look.",
        ("delivery", "correlation_id", "stage", "event_type", "reason", "status", "attempt"),
        (
            *("inbound_event_id", "task_name", "queue", "generation", "hop", "retry_count"),
            *(*_OWNER, "reply", "code", *_FAILURE),
        ),
    ),
    "swept": LogEvent(
        "Overdue deliveries got new tasks.",
        (
            *("selected", "enqueued", "pending", "leased", "in_doubt", "dead", "receipts_failed"),
            *("oldest_pending_seconds", "oldest_dead_seconds", "provider_down", "backend_down"),
        ),
        ("missed",),
    ),
    "caller_verified": LogEvent(
        "The identity of the queues or of the scheduler was accepted; logged once per process and form of signature.",
        ("caller", "signature"),
    ),
    "task_refused": LogEvent("A task was refused.", ("reason",), ("cause",)),
    "task_gone": _either("A task came for a record that is no more."),
    "lease_lost": _either(
        "An attempt came too late; its result was thrown away.", *_RECORD, *_ATTEMPT, may=(*_OWNER, "code")
    ),
    "state_unknown": LogEvent(
        "A newer version wrote this; it is left alone.",
        (),
        ("inbound_event_id", "delivery", *_TASK, *_RECORD, *_OWNER, "retry_count", "reason"),
    ),
    "tenant_needs_reauth": _outbound("The provider refuses the credential; reconnect the number.", "code"),
    "tenant_reconnected": _outbound("Another credential is in use."),
    "sender_blocked": _outbound("The provider has blocked a sender.", "code", may=("by", "scope")),
    "provider_down": _outbound(
        "The provider does not take messages of a sender; messages wait, and one of them probes.",
        "until",
        "wait_seconds",
    ),
    "provider_up": _outbound("The provider takes messages of a sender again."),
    "backend_down": _inbound(
        "The handler's backend does not answer; events wait, and one of them probes.", "until", "wait_seconds"
    ),
    "backend_up": _inbound("The handler's backend answers again."),
    "sender_checked": LogEvent(
        "Whether a sender is connected, as far as is known.", (*_OWNER, "connected"), ("reason",)
    ),
    "replayed": LogEvent(
        "A dead letter is tried again.", ("delivery", "correlation_id", "stage", "state", "round"), ("tenant", "reason")
    ),
    "discarded": LogEvent(
        "A dead letter was given up.", ("delivery", "correlation_id", "stage", "state", "round"), ("tenant", "reason")
    ),
    "config_error": LogEvent("The configuration is not complete.", ("reason",)),
    "started": LogEvent("Ready.", ("stage", "pid")),
    "stopping": LogEvent("Ending.", ("stage", "pid")),
    "unexpected_error": LogEvent(
        "Something went wrong that should not.",
        (),
        (
            *("error", "stack_trace", "logger", "reason", "cause"),
            *("inbound_event_id", "delivery", *_TASK, *_RECORD, *_OWNER, "retry_count"),
        ),
    ),
}
"""Every event there is."""
