"""A queue's configuration: the service's defaults, what it refuses, and how an update changes it.

Sources: Queue, RateLimits, RetryConfig and UpdateQueueRequest of google-cloud-tasks 2.26; the defaults are those that
https://cloud.google.com/tasks/docs/configuring-queues shows for a queue created without settings.
"""

from dataclasses import dataclass

from local.grpc_methods import ProtoMessage
from local.tasks import names, queue_routing
from local.tasks.protobuf import FieldMask, Queue, seconds
from local.tasks.refusals import invalid, not_imitated
from local.tasks.retry_and_rate import UNLIMITED, RetryPolicy, burst_size

MAX_RATE = 500.0
MAX_CONCURRENT = 5000
PAUSED = 2
RUNNING = 1

_UPDATABLE = {
    "rate_limits": ("max_dispatches_per_second", "max_concurrent_dispatches"),
    "retry_config": ("max_attempts", "max_retry_duration", "min_backoff", "max_backoff", "max_doublings"),
    "stackdriver_logging_config": ("sampling_ratio",),
    "http_target": ("uri_override", "http_method", "oidc_token"),
}
_OUTPUT_ONLY = {"state", "purge_time", "rate_limits.max_burst_size"}
_SECTIONS_REFUSED = {"app_engine_routing_override": "App Engine targets"}
_OPTIONAL = ("stackdriver_logging_config", "http_target")


@dataclass(frozen=True, slots=True)
class Pace:
    """A queue's limits on its rate."""

    rate: float
    burst: int
    concurrent: int
    is_paused: bool


def pace(queue: ProtoMessage, scale: float) -> Pace:
    limits = queue.rate_limits
    return Pace(
        limits.max_dispatches_per_second * scale,
        limits.max_burst_size,
        limits.max_concurrent_dispatches,
        queue.state == PAUSED,
    )


def retry_policy(queue_config: ProtoMessage, task: ProtoMessage) -> RetryPolicy:
    """The queue's policy, overridden by what the task's own retry_config sets (Task.retry_config)."""
    merged = type(queue_config)()
    merged.CopyFrom(queue_config)
    for duration in ("max_retry_duration", "min_backoff", "max_backoff"):
        if task.retry_config.HasField(duration):
            merged.ClearField(duration)
    merged.MergeFrom(task.retry_config)
    return RetryPolicy(
        merged.max_attempts,
        seconds(merged.max_retry_duration),
        seconds(merged.min_backoff),
        seconds(merged.max_backoff),
        merged.max_doublings,
    )


def created(requested: ProtoMessage) -> ProtoMessage:
    """The queue that a create request makes."""
    names.check_queue(requested.name)
    for section, what in _SECTIONS_REFUSED.items():
        if requested.HasField(section):
            raise not_imitated(what)
    queue = Queue(name=requested.name, state=RUNNING)
    for section in _UPDATABLE:
        getattr(queue, section).CopyFrom(getattr(requested, section))
    for section in _OPTIONAL:
        if not requested.HasField(section):
            queue.ClearField(section)
    _fill_in(queue)
    return _checked(queue)


def updated(current: ProtoMessage, requested: ProtoMessage, paths: list[str]) -> ProtoMessage:
    """The queue after an update: the masked fields, or all of them if the mask is empty."""
    queue = Queue()
    queue.CopyFrom(current)
    filled = created(requested)
    for path in paths or _UPDATABLE:
        section, _, field = path.partition(".")
        if path in _OUTPUT_ONLY:
            continue
        if section not in _UPDATABLE or (field and field not in _UPDATABLE[section]):
            raise invalid(f"The update mask names {path}, which cannot be updated.")
        # A single field is taken as given (0 doublings are a setting); what a section omits gets our default.
        source = requested if field else filled
        FieldMask(paths=[path]).MergeMessage(source, queue, True, True)
    return _checked(queue)


def _fill_in(queue: ProtoMessage) -> None:
    limits, retry = queue.rate_limits, queue.retry_config
    limits.max_dispatches_per_second = limits.max_dispatches_per_second or MAX_RATE
    limits.max_concurrent_dispatches = limits.max_concurrent_dispatches or 1000
    retry.max_attempts = retry.max_attempts or 100
    retry.max_doublings = retry.max_doublings or 16
    if not retry.HasField("min_backoff"):
        retry.min_backoff.FromMilliseconds(100)
    if not retry.HasField("max_backoff"):
        retry.max_backoff.FromSeconds(3600)


def _checked(queue: ProtoMessage) -> ProtoMessage:
    limits = queue.rate_limits
    if not 0 < limits.max_dispatches_per_second <= MAX_RATE:
        raise invalid(f"Queue.rate_limits.max_dispatches_per_second must be over 0 and at most {MAX_RATE:.0f}.")
    if not 0 < limits.max_concurrent_dispatches <= MAX_CONCURRENT:
        raise invalid(f"Queue.rate_limits.max_concurrent_dispatches must be from 1 to {MAX_CONCURRENT}.")
    limits.max_burst_size = burst_size(limits.max_dispatches_per_second)  # output only: ignores the request
    check_retry_config(queue.retry_config)
    queue_routing.check(queue.http_target)
    return queue


def check_retry_config(retry: ProtoMessage) -> None:
    """Refuse an invalid retry_config, of a queue or of a task (where 0 leaves a value to the queue)."""
    if retry.max_attempts < UNLIMITED:
        raise invalid("RetryConfig.max_attempts must be greater than or equal to -1.")
    if retry.max_doublings < 0:
        raise invalid("RetryConfig.max_doublings must not be negative.")
    durations = [seconds(span) for span in (retry.max_retry_duration, retry.min_backoff, retry.max_backoff)]
    if min(durations) < 0:
        raise invalid("The durations of a RetryConfig must not be negative.")
    if retry.HasField("max_backoff") and durations[1] > durations[2]:
        raise invalid("RetryConfig.min_backoff must not be longer than RetryConfig.max_backoff.")
