"""An attempt: deliver one task once and settle it. A success deletes it; a failure reschedules it or gives it up."""

import json
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from local.faults import Fault, FaultBook
from local.grpc_methods import ProtoMessage
from local.tasks import names
from local.tasks.headers import attempt_headers
from local.tasks.http_target import NO_ANSWER_IN_TIME, UNREACHABLE, Call, HttpTarget
from local.tasks.log import Log
from local.tasks.oidc import TokenMinter
from local.tasks.protobuf import Task, seconds
from local.tasks.queue_config import retry_policy
from local.tasks.queue_routing import request_of
from local.tasks.retry_and_rate import RetryPolicy, backoff, is_given_up, least_wait
from local.tasks.task_table import StoredTask, TargetResponse, TaskTable
from shared.domain.identity import is_correlation_id


@dataclass(frozen=True, slots=True)
class Attempts:
    """Makes attempts, in any number of threads. `scale` divides the queues' waits, but not the waits that a target asks
    for.
    """

    tasks: TaskTable
    target: HttpTarget
    minter: TokenMinter
    faults: FaultBook
    log: Log
    clock: Callable[[], float]
    scale: float
    stopping: threading.Event

    def make(self, stored: StoredTask, queue: ProtoMessage, retried_from: float | None = None) -> float | None:
        """Deliver a task that was taken up, and settle it. Returns when it is due again, or None.

        A retry's backoff is counted from the failure, or from `retried_from` (RunTask); a Retry-After from the
        response.
        """
        task = Task.FromString(stored.message)
        try:
            answer = self._deliver(stored, task, queue.http_target)
        except Exception:  # noqa: BLE001 - a bug of ours is a failed attempt: the queue goes on and the task is retried
            self.log.write("unexpected_error", traceback=traceback.format_exc(), **labels(stored))
            answer = UNREACHABLE
        if answer is None:
            return None
        if not answer.is_success:
            policy = retry_policy(queue.retry_config, task).faster(self.scale)
            return self._settle_failure(stored, policy, answer, retried_from)
        self.tasks.finish(stored, self.clock())
        self._deliver_twice(stored, task, queue.http_target)
        return None

    def _deliver(self, stored: StoredTask, task: ProtoMessage, target: ProtoMessage) -> TargetResponse | None:
        """None for a task that a fault dropped, or that a fault still delayed when the emulator stopped."""
        fault = take_fault(self.faults, task, "drop", "slow")
        if fault is not None:
            self.log.write("fault_made", kind=fault.kind, **labels(stored))
        if fault is not None and fault.kind == "drop":
            self.tasks.finish(stored, self.clock())
            return None
        if fault is not None and self.stopping.wait(fault.seconds or 0.0):
            return None
        return self.target.call(self._call(stored, task, target))

    def _deliver_twice(self, stored: StoredTask, task: ProtoMessage, target: ProtoMessage) -> None:
        if take_fault(self.faults, task, "duplicate"):
            self.log.write("fault_made", kind="duplicate", **labels(stored))
            self.target.call(self._call(stored, task, target))

    def _call(self, stored: StoredTask, task: ProtoMessage, target: ProtoMessage) -> Call:
        own = task.http_request
        request = request_of(target, own)
        headers = dict(own.headers)
        if request.identity is not None:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = f"Bearer {self.minter.token(*request.identity)}"
        return Call(
            request.method,
            request.url,
            headers | attempt_headers(stored),
            own.body,
            seconds(task.dispatch_deadline),
        )

    def _settle_failure(
        self, stored: StoredTask, policy: RetryPolicy, answer: TargetResponse, retried_from: float | None
    ) -> float | None:
        now = self.clock()
        facts: dict[str, str | int] = {**labels(stored), "status": answer.status, "attempts": stored.dispatch_count}
        facts |= {"broken": True} if answer.broken else {}
        facts |= _of_body(stored) | {"reason": _why(answer)}
        if is_given_up(policy, stored.dispatch_count, now - (stored.first_dispatch_at or now)):
            self.log.write("task_given_up", **facts)
            self.tasks.finish(stored, now)
            return None
        backed_off = (retried_from or now) + backoff(policy, stored.dispatch_count)
        due = max(backed_off, now + least_wait(answer.status, answer.retry_after, now))
        # A service that answered has logged the reason itself; waiting for the previous reply is such an answer too.
        severity = "INFO" if answer.responded else "WARNING"
        self.log.write("attempt_failed", severity=severity, retry_in=round(due - now, 3), **facts)
        self.tasks.reschedule(stored, answer, due, now)
        return due


def take_fault(faults: FaultBook, task: ProtoMessage, *kinds: str) -> Fault | None:
    """Take one of these faults if one matches this task."""
    return faults.take("task", {**labels(task), "path": _path(task.http_request.url)}, frozenset(kinds))


def labels(task: ProtoMessage | StoredTask) -> dict[str, str]:
    """The facts about a task for log lines and for matching faults."""
    return {"queue": names.short(names.queue_of(task.name)), "name": names.short(task.name)}


def _of_body(stored: StoredTask) -> dict[str, str]:
    """The correlation id, if the task has one as Pombo's do: an operator finds the message by it."""
    try:
        body = json.loads(Task.FromString(stored.message).http_request.body)
    except (ValueError, RecursionError):
        return {}
    id = body.get("correlation_id") if isinstance(body, dict) else None
    return {"correlation_id": id} if isinstance(id, str) and is_correlation_id(id) else {}


def _why(answer: TargetResponse) -> str:
    if answer.responded:
        return f"The target answered {answer.status}."
    if answer.broken:
        return "The target broke off the connection."
    return "The target gave no answer in time." if answer == NO_ANSWER_IN_TIME else "The target does not answer."


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""  # the service accepts such a URL too, and every attempt fails
