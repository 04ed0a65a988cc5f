"""Log events: every event that a service logs, its message, and the fields of its lines.

docs/logs.md is generated from these tables, and a test checks every line of a real run against them.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event: the sentence in its `message`, the fields that it always has, and those that it may have."""

    sentence: str
    always: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


EVERY_LINE = LogEvent(
    "",
    always=("time", "severity", "message", "event"),
    may=("logging.googleapis.com/labels", "logging.googleapis.com/trace"),
)
"""The fields of every line, for any event."""

FIELDS: Mapping[str, str] = {
    "time": "when the line was written, RFC 3339, UTC",
    "severity": "`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`",
    "message": "the event's sentence, as on this page",
    "event": "the event's name",
    "logging.googleapis.com/labels": "`correlation_id`, `inbound_event_id`, `delivery`, `tenant` and `stage`, "
    "which Cloud Logging indexes",
    "logging.googleapis.com/trace": "the trace of the request, if it has one",
    "correlation_id": "the same for an event, its replies and their receipts",
    "inbound_event_id": "the key of an event's record",
    "delivery": "the key of a message's record; on `dead_lettered`, `replayed` and `discarded` it "
    "may be the key of an event's record",
    "tenant": "the tenant that owns the sender; absent if no tenant does",
    "entry": "an entry of the registry: its kind and its id",
    "provider": "the provider that sent the webhook, or that the sender belongs to: `meta`",
    "phone_number_id": "WhatsApp's id of the business number; absent on account events, and where the "
    "provider's id is itself a phone number",
    "sender": "the sender's id in the registry: a hash, which `pombo senders show` takes",
    "stage": "`inbound` or `outbound`; on `started` and `stopping` the service; on some "
    "`unexpected_error` lines the step",
    "event_type": "for an event `message` or the webhook's field, such as `account_update`; for a message its type, "
    "such as `text`; for a receipt its kind; `other` for a name that Pombo does not know",
    "task_name": "the name, in the queue, of the task that runs; on `inbound_new`, `inbound_enqueued` and "
    "`inbound_duplicate` the event's first task, on `outbound_enqueued` the task of the first reply",
    "queue": "the queue of that task: the value of `INBOUND_TASK_QUEUE_NAME` or `OUTBOUND_TASK_QUEUE_NAME`, or a "
    "numbered queue; on `queue_missing` the queue that is missing",
    "instead": "the shared queue that gets the tasks of a missing one",
    "generation": "the task's generation: 0 for the first, one more after each retry that Pombo schedules",
    "hop": "how many earlier tasks of this generation found that the record has to wait",
    "retry_count": "how often Cloud Tasks has retried this task; absent if Cloud Tasks does not report it",
    "message_hash": "a hash of WhatsApp's message id, the same on `outbound_sent` and on the message's "
    "receipts; absent where WhatsApp gave no id",
    "attempt": "the number of the attempt, from 1",
    "state": "the record's state after this event",
    "verdict": "how Pombo classified the result of the attempt",
    "status": "`success` or `failed`, on lines that report the end of an event or a message",
    "reply": "for a reply that cannot be sent, its position among the event's replies, from 1",
    "reason": "why: a code or a sentence, written by Pombo",
    "cause": "the cause behind the reason: a code or a sentence, written by Pombo",
    "code": "WhatsApp's error code",
    "scope": "what WhatsApp has blocked: `sender` or `account`; absent if a receipt reported the block",
    "by": "`receipt` if a failed receipt reported the block",
    "until": "when Pombo checks it or probes again",
    "alone_since": "since when it waits for the first of its contact's messages, and for nothing else",
    "wait_seconds": "how long Pombo waits until the next probe",
    "outbound_planned": "how many replies the handler returned",
    "outbound_invalid": "how many of them cannot be sent; absent if none",
    "outbound_enqueued": "how many of them have a task, including those that cannot be sent",
    "duration_ms": "how long the request took, up to this line",
    "latency_seconds": "how long ago the record was created",
    "count": "how many",
    "connected": "1 or 0",
    "round": "how often an operator has replayed the delivery",
    "selected": "overdue records that this sweep found",
    "enqueued": "records for which the sweep created another task",
    "pending": "records in this state now",
    "leased": "records in this state now",
    "in_doubt": "records in this state now",
    "dead": "records in this state now",
    "receipts_failed": "messages that a receipt reported as failed and no operator has replayed",
    "oldest_pending_seconds": "the age of the oldest pending record",
    "oldest_dead_seconds": "the age of the oldest dead letter, counted from when its event or message was received",
    "provider_down": "senders for which the provider is down now",
    "backend_down": "backends that are down now",
    "missed": "tasks that could not be created",
    "route": "the route of the API: its method, and its path with names in place of ids; absent if no route takes the "
    "request",
    "http_status": "the HTTP status of the response",
    "problem": "the `code` of the problem document; absent if the request succeeded",
    "key": "the id of the API key; absent if the request had no valid key",
    "caller": "`tasks` or `scheduler`",
    "signature": "`verified`: Pombo verified it against Google's certificates; `removed`: Cloud Run's IAM "
    "verified and removed it",
    "pid": "the process ID",
    "error": "the type of the exception",
    "error_type": "the type of the exception that the handler raised",
    "place": "the line of the team's code that raised the exception or was running at the timeout, as file:line",
    "function": "the function that contains that line",
    "stack_trace": "the exception's stack frames, without messages and values",
    "logger": "the library that logged the error",
}
"""Every field and its meaning."""

_TASK = ("correlation_id", "stage", "task_name", "queue", "generation", "hop")
_RECORD = ("event_type",)
_OWNER = ("tenant", "provider", "phone_number_id")
_SENDER = (*_OWNER, "sender")
_ATTEMPT = ("attempt", "state", "verdict", "duration_ms", "latency_seconds")
_FAILURE = ("error_type", "place", "function", "cause")
"""Fields of a failed handler. The exception's text may be private, so only the timeline shows it."""
_RECEIPT = ("delivery", "correlation_id", "message_hash", "provider")


def _inbound(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line about an event, written while one of its tasks runs."""
    return LogEvent(sentence, ("inbound_event_id", *_TASK, *_RECORD, *always), ("retry_count", *_OWNER, *may))


def _accepted(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line about an event, written while its webhook is handled."""
    required = tuple(name for name in ("inbound_event_id", *_TASK, *_RECORD) if name not in may)
    return LogEvent(sentence, (*required, *always), (*_OWNER, *may))


def _outbound(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line about a message, written while one of its tasks runs."""
    return LogEvent(sentence, ("delivery", *_TASK, *_RECORD, *_OWNER, *always), ("retry_count", *may))


def _either(sentence: str, *always: str, may: tuple[str, ...] = ()) -> LogEvent:
    """A line written while a task of an event or of a message runs."""
    keys = ("inbound_event_id", "delivery")
    return LogEvent(sentence, (*_TASK, *always), ("retry_count", *keys, *may))


EVENTS: Mapping[str, LogEvent] = {
    "webhook_received": LogEvent("Webhook received; its events are stored.", ("count", "duration_ms"), ("provider",)),
    "webhook_refused": LogEvent("Webhook request rejected.", ("reason",), ("provider",)),
    "webhook_ignored": LogEvent("Part of a webhook was ignored.", ("reason", "count"), ("provider",)),
    "inbound_new": _accepted("New event stored.", "state", may=("reason",)),
    "inbound_duplicate": _accepted("Duplicate event received; not processed again.", may=("correlation_id",)),
    "inbound_enqueued": _accepted("The event's task is in the queue."),
    "inbound_processing_started": _inbound("Calling the handler for the event.", "attempt"),
    "inbound_processing_finished": _inbound(
        "Event processed.",
        *_ATTEMPT,
        may=("status", "reason", "outbound_planned", "outbound_invalid", "outbound_enqueued"),
    ),
    "inbound_rescheduled": _inbound(
        "The event was not processed; it will be retried.", *_ATTEMPT, may=("reason", *_FAILURE, "stack_trace")
    ),
    "inbound_waiting": _inbound("The event is waiting; no attempt was made.", "reason", "until", may=("alone_since",)),
    "inbound_failed": _inbound(
        "The event could not be processed; it is a dead letter now.",
        *_ATTEMPT,
        "reason",
        may=(*_FAILURE, "stack_trace"),
    ),
    "outbound_enqueued": _inbound(
        "The tasks of the event's replies are in the queue.", "outbound_planned", "outbound_enqueued"
    ),
    "outbound_waiting": _outbound("The message is waiting; no attempt was made.", "state", may=("reason", "until")),
    "outbound_attempt": _outbound(
        "The task ended without sending the message.",
        "state",
        may=("attempt", "verdict", "status", "reason", "duration_ms", "latency_seconds"),
    ),
    "outbound_sent": _outbound("The provider accepted the message.", *_ATTEMPT, "status", may=("message_hash",)),
    "outbound_rescheduled": _outbound(
        "Sending the message did not succeed; it will be retried.", *_ATTEMPT, may=("code",)
    ),
    "outbound_in_doubt": _outbound(
        "Send result unknown: the provider may or may not have accepted the message.",
        "state",
        may=("attempt", "verdict", "code", "reason", "until", "duration_ms", "latency_seconds"),
    ),
    "outbound_failed": _outbound("The message could not be sent; it is a dead letter now.", *_ATTEMPT, may=("code",)),
    "receipt_applied": LogEvent("Receipt stored.", ("event_type", "stage"), (*_RECEIPT, "reason")),
    "receipt_failed": LogEvent(
        "The provider failed to deliver a message that it had accepted.",
        ("event_type", "stage", "status"),
        (*_RECEIPT, "code", "reason"),
    ),
    "receipt_unknown": LogEvent(
        "Receipt received for an unknown message.",
        ("delivery", "correlation_id", "event_type", "stage"),
        ("message_hash", "provider", "code"),
    ),
    "dead_lettered": LogEvent(
        "The delivery is a dead letter now; an operator must replay or discard it.",
        ("delivery", "correlation_id", "stage", "event_type", "reason", "status", "attempt"),
        (
            *("inbound_event_id", "task_name", "queue", "generation", "hop", "retry_count"),
            *(*_OWNER, "reply", "code", *_FAILURE),
        ),
    ),
    "swept": LogEvent(
        "Sweep finished; overdue deliveries were enqueued again.",
        (
            *("selected", "enqueued", "pending", "leased", "in_doubt", "dead", "receipts_failed"),
            *("oldest_pending_seconds", "oldest_dead_seconds", "provider_down", "backend_down"),
        ),
        ("missed",),
    ),
    "caller_verified": LogEvent(
        "OIDC identity of Cloud Tasks or Cloud Scheduler accepted; logged once per process and form of signature.",
        ("caller", "signature"),
    ),
    "queue_missing": LogEvent(
        "Tasks of this queue go to the shared queue: Cloud Tasks has no such queue, or refuses permission.",
        ("queue", "reason", "instead"),
        (
            "inbound_event_id",
            "delivery",
            *(name for name in _TASK if name != "queue"),
            *_RECORD,
            *_OWNER,
            "retry_count",
        ),
    ),
    "task_refused": LogEvent("Task rejected.", ("reason",), ("cause",)),
    "task_gone": _either("Task ignored: its record no longer exists."),
    "lease_lost": _either(
        "The attempt lost its lease before its result was stored; the result was discarded.",
        *_RECORD,
        *_ATTEMPT,
        may=(*_OWNER, "code"),
    ),
    "state_unknown": LogEvent(
        "Record or entry left unchanged: a newer version of Pombo wrote it, or it was damaged.",
        (),
        ("entry", "inbound_event_id", "delivery", *_TASK, *_RECORD, *_OWNER, "retry_count", "reason"),
    ),
    "tenant_needs_reauth": _either(
        "The provider rejected the sender's credential or disconnected its account; an operator must reconnect it.",
        may=("code", "reason", *_RECORD, *_OWNER),
    ),
    "tenant_reconnected": LogEvent(
        "The sender is connected again; its waiting messages are sent, unless its tenant is suspended.",
        (*_SENDER,),
        ("correlation_id",),
    ),
    "sender_drained": LogEvent(
        "A page of the sender's waiting messages was woken.",
        ("sender", "count", "reason"),
        (*_OWNER, "correlation_id"),
    ),
    "sender_blocked": _outbound("The provider blocked the sender; its messages wait.", "code", may=("by", "scope")),
    "provider_down": _outbound(
        "The provider is down for a sender; its messages wait, and one of them probes.",
        "until",
        "wait_seconds",
    ),
    "provider_up": _outbound("The provider accepts a sender's messages again."),
    "backend_down": _inbound(
        "The handler's backend is down; its events wait, and one of them probes.", "until", "wait_seconds"
    ),
    "backend_up": _inbound("The handler's backend responds again."),
    "sender_checked": LogEvent("Last known connection status of a sender.", (*_SENDER, "connected"), ("reason",)),
    "replayed": LogEvent(
        "An operator replayed a delivery; it will be retried.",
        ("delivery", "correlation_id", "stage", "state", "round"),
        ("tenant", "reason"),
    ),
    "discarded": LogEvent(
        "An operator discarded a dead letter.",
        ("delivery", "correlation_id", "stage", "state", "round"),
        ("tenant", "reason"),
    ),
    "api_answered": LogEvent(
        "API request answered.",
        ("http_status", "duration_ms"),
        ("route", "problem", "key", "tenant", "delivery", "inbound_event_id", "correlation_id", "count"),
    ),
    "config_error": LogEvent("Invalid configuration; the service does not start.", ("reason",)),
    "started": LogEvent("Service ready.", ("stage", "pid")),
    "stopping": LogEvent("Service stopping.", ("stage", "pid")),
    "unexpected_error": LogEvent(
        "Unexpected error.",
        (),
        (
            *("error", "stack_trace", "logger", "reason", "cause"),
            *("inbound_event_id", "delivery", "sender", *_TASK, *_RECORD, *_OWNER, "retry_count"),
        ),
    ),
}
"""Every event, by name."""
