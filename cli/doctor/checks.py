"""The checks of doctor: each returns a sentence about what it found, or raises what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import httpx

from shared.bootstrap.channels import CHANNELS
from shared.config import Config
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.create import create
from shared.domain.errors import PomboError, QueueUnavailable, StoreUnavailable, UnknownState
from shared.domain.identity import DOCTOR_KEY
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.tasks import CHECK_BODY
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Queue, Store

TASK_SECONDS = 30
"""A task usually comes back within a second; a cold start may take ten, a queue's backoff some more."""

LOOK_SECONDS = 0.1

CLOCK_TOLERANCE = timedelta(seconds=2)
"""One machine's clock writes a lease's end, another's decides that it is over. An outbound lease of 60 s has 4 s to
spare (30 until the send begins, 26 for the send). If each of two clocks is at most 2 s off the store's, they differ by
at most 4 s, and no send outlives its lease by another worker's clock.
"""

CALL_SECONDS = 10

_T = TypeVar("_T")
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)

_QUEUE_ADVICE = {
    "PermissionDenied": "this account may not create tasks there (it needs roles/cloudtasks.enqueuer)",
    "NotFound": "the queue does not exist: check INBOUND_TASK_QUEUE_NAME, CLOUD_TASKS_LOCATION, GOOGLE_CLOUD_PROJECT",
    "DefaultCredentialsError": "this machine has no Google credentials: run gcloud auth application-default login",
    "RefreshError": "this machine's Google credentials have expired: run gcloud auth application-default login",
}


class Wrong(Exception):
    """The check failed; the message says why, and what to do."""


class StoreFailed(Wrong):
    """The store failed the check."""


def store(store: Store, limits: Limits, clock: Clock) -> str:
    """Write a record and read it back."""
    began = clock.monotonic()
    written = _of_store(partial(_write, store, limits, clock))
    found = _of_store(partial(store.get, DOCTOR_KEY))
    if found is None or found.generation < written.generation:
        raise Wrong("The record read back from the store is not the one that was written.")
    return f"Wrote a record and read it back in {(clock.monotonic() - began) * 1000:.0f} ms."


def task(store: Store, queue: Queue, limits: Limits, clock: Clock, patience: float = TASK_SECONDS) -> str:
    """Send an event of doctor's own the usual way: record, task, process_inbound, done."""
    try:
        written = _of_store(partial(_write, store, limits, clock))
        began = clock.monotonic()
        queue.ensure(Task.of(written), None)
        found = written
        while clock.monotonic() - began < patience:
            found = _of_store(partial(store.get, DOCTOR_KEY)) or written
            if found.final and found.generation >= written.generation:
                return _ended(found, clock.monotonic() - began)
            clock.sleep(LOOK_SECONDS)
    except StoreFailed as error:
        raise Wrong(f"Cannot be checked without the store: {error}") from error
    except QueueUnavailable as error:
        raise Wrong(f"Cannot create a task: {_reason(error)}.") from error
    raise Wrong(_not_back(found, patience))


def drain(ping: Callable[[], None], name: str) -> str:
    """Ask for the queue of drains, which `ping` does. Only an account that may see queues gets an answer."""
    try:
        ping()
    except QueueUnavailable as error:
        cause = type(error.__cause__).__name__
        if cause == "PermissionDenied":
            return f"The queue {name} was not looked for: this account may not see queues (roles/cloudtasks.viewer)."
        if cause == "NotFound":
            raise Wrong(
                f"The queue {name} does not exist, so after a reconnect or a resume waiting messages go within 10 "
                "minutes, and not at once. Check DRAIN_TASK_QUEUE_NAME; terraform apply makes the queue, as does a "
                "start of pombo up."
            ) from error
        raise Wrong(f"The queue {name} cannot be looked for: {_reason(error)}.") from error
    return f"The queue {name}, which wakes waiting messages, exists."


def token(settings: Config, has_task_come_back: bool) -> str:
    """Call the internal service with a body that is not a task. It answers 400 if it accepts the token, 403 if not."""
    url = settings["INTERNAL_TASK_BASE_URL"]
    try:
        answer = _knock(settings)
    except httpx.HTTPError as error:
        raise Wrong(f"The internal service does not answer at {url}: check INTERNAL_TASK_BASE_URL.") from error
    if answer.status_code == 400 and _error_in(answer) == "task_invalid":
        return "The internal service accepts the token."
    if _is_refused(answer, settings):
        raise Wrong(
            "The internal service rejects the token: the first value of INTERNAL_TASK_TOKEN must be one that the "
            "service accepts."
        )
    if answer.status_code in (401, 403):
        return _told_by_the_task(has_task_come_back)
    raise Wrong(
        f"{url} answered {answer.status_code}: INTERNAL_TASK_BASE_URL is not the address of the internal service."
    )


def token_is_refused(settings: Config) -> bool:
    """Whether the internal service would certainly reject a task made with these settings."""
    try:
        return _is_refused(_knock(settings), settings)
    except httpx.HTTPError:
        return False  # the service is down, and the queue retries


def _knock(settings: Config) -> httpx.Response:
    """Post a body that is not a task."""
    headers = {"X-Internal-Token": settings["INTERNAL_TASK_TOKEN"][0]}
    return httpx.post(
        f"{settings['INTERNAL_TASK_BASE_URL']}/internal/process_inbound",
        headers=headers,
        json=dict(CHECK_BODY),
        timeout=CALL_SECONDS,
        trust_env=not settings.get("CLOUD_TASKS_EMULATOR_HOST"),
    )


def _is_refused(answer: httpx.Response, settings: Config) -> bool:
    is_ours = answer.status_code == 403 and _error_in(answer) == "forbidden"
    return is_ours and not settings.get("TASKS_SERVICE_ACCOUNT")


def clock(store: Store, clock: Clock) -> str:
    """Compare this machine's clock with the store's, which all processes are compared with."""
    before = clock.now()
    theirs = _of_store(store.time)
    ahead = before + (clock.now() - before) / 2 - theirs
    seconds = abs(ahead.total_seconds())
    allowed = f"{CLOCK_TOLERANCE.total_seconds():g} s"
    if abs(ahead) > CLOCK_TOLERANCE:
        which = "ahead of" if ahead > timedelta() else "behind"
        raise Wrong(
            f"This machine's clock is {seconds:.1f} s {which} the store's. Beyond {allowed} another worker may treat a "
            "lease as expired while its send still runs: synchronise the clock with NTP."
        )
    return f"The clock differs from the store's by {seconds:.1f} s; up to {allowed} is safe."


def _write(store: Store, limits: Limits, clock: Clock) -> Delivery:
    """Write a new round of doctor's own event, pending. It is a change of a field that no code knows, so no handler
    runs and no reply is made. Its provider must be one that the services have a channel for: they leave other records
    alone.

    Its generation grows with time: its task has a new name even if the store forgot the last one and the queue did not.
    """
    now = clock.now()
    fresh = create(
        Kind.INBOUND,
        DOCTOR_KEY,
        provider=CHANNELS[0].reading().provider,
        tenant="default",
        sender=DOCTOR_KEY,
        contact="",
        correlation_id=clock.token(),
        payload={"field": DOCTOR_KEY, "value": {}},
        limits=limits,
        now=now,
    )

    def decide(old: Delivery | None) -> Step:
        least = int((now - _BEGINNING).total_seconds())
        generation = max(least, old.generation + 1) if old else least
        return Step(Answer(TaskResult.ACK, fresh.state), write=replace(fresh, generation=generation))

    step = store.change(DOCTOR_KEY, decide)
    return step.write or fresh


def _of_store(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except (StoreUnavailable, UnknownState) as error:
        raise StoreFailed(f"{error.sentence.rstrip('.')}{_because(error)}.") from error


def _ended(found: Delivery, seconds: float) -> str:
    if found.state is not State.DONE:
        raise Wrong(f"The task completed, but its event is {found.state} instead of done.")
    return f"A task reached process_inbound and completed in {seconds:.1f} s."


def _not_back(found: Delivery, patience: float) -> str:
    if found.state is State.LEASED:
        return f"The internal service started the task and did not complete it within {patience:g} s."
    return (
        f"The task did not complete within {patience:g} s. Check that the internal service is up, that it accepts the "
        "token (see token) and that the queue is not paused."
    )


def _told_by_the_task(has_come_back: bool) -> str:
    """What the completed task says about the token: only the queue has the identity that the service, or Cloud Run's
    front end, requires.
    """
    if has_come_back:
        return (
            "The internal service is private and accepts only the queue's identity; the completed task had the token."
        )
    raise Wrong(
        "The internal service is private and accepts only the queue's identity, so only a task can check the token: "
        "see task."
    )


def _error_in(answer: httpx.Response) -> str:
    try:
        body = answer.json()
    except ValueError:
        return ""
    return str(body.get("error", "")) if isinstance(body, dict) else ""


def _reason(error: QueueUnavailable) -> str:
    cause = type(error.__cause__).__name__
    return _QUEUE_ADVICE.get(cause, f"{error.sentence.rstrip('.')}{_because(error)}")


def _because(error: PomboError) -> str:
    return f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
