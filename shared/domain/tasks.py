"""Tasks: how each is made, and its body. The body refers to a record and never holds its content, so a queue holds
nothing private.

A record's own task runs when the record is due; if that time has passed, the queue runs it at once. The five functions
here make all tasks of records. `pair` is the number of the tenant's pair of queues; None: the shared queues.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeGuard

from shared.domain.errors import TaskInvalid, TokenCheck, UnknownState
from shared.domain.identity import DOCTOR_KEY, is_correlation_id, outbound_key, wake_name
from shared.domain.record import WAKE, Delivery, Kind, Task
from shared.domain.turns import untried_place

DueTask = tuple[Task, datetime | None]
"""A task and when it runs; None or a past time means now."""

VERSION = 2
READABLE = (1, VERSION)
"""Version 1 has no tenant."""

KEY_FIELD = {Kind.INBOUND: "inbound_event_id", Kind.OUTBOUND: "outbound_key"}
_KEY = {Kind.INBOUND: re.compile(rf"[0-9a-f]{{40}}|{DOCTOR_KEY}"), Kind.OUTBOUND: re.compile(r"[0-9a-f]{40}")}
_PLACE = re.compile(r"[0-9a-f]{40}/1/[0-9a-zA-Z:.+ -]{1,200}")
_TENANT = re.compile(r"[A-Za-z0-9._-]{0,64}")


# ---- making


def own_task(record: Delivery, pair: int | None) -> DueTask:
    """The record's own task: its generation, hop 0, when it is due."""
    return Task.of(record, pair, untried_place(record)), record.due_at


def next_hop(
    record: Delivery,
    task: Task,
    until: datetime,
    pair: int | None,
    slot: datetime | None = None,
    alone_since: datetime | None = None,
) -> DueTask:
    """The task that the running one makes if its record has to wait. The tenant is the record's: a task of version 1
    has none, and the sender's owner may have become known since the task was made. `slot` is the task's own: one that
    waits for another reason than its pace has lost its slot, and one that waits for another reason than the record
    before it begins its patience anew.
    """
    hop = replace(task, hop=task.hop + 1, tenant=record.tenant, pair=pair, slot=slot, alone_since=alone_since)
    return hop, until


def first_task(key: str, tenant: str, pair: int | None) -> Task:
    """The first task of an event's record, to get its name without reading the record. It lacks the correlation id,
    which only the record has.
    """
    return Task(key, Kind.INBOUND, correlation_id="", generation=0, tenant=tenant, pair=pair)


def reply_task(event: Delivery, index: int, due_at: datetime | None, pair: int | None) -> DueTask:
    """The own task of reply `index` (from 0) to an event as it was created, without reading the reply's record."""
    key = outbound_key(event.key, index)
    return Task(key, Kind.OUTBOUND, event.correlation_id, generation=0, tenant=event.tenant, pair=pair), due_at


def wake_tasks(finished: Delivery, pair: int | None) -> list[Task]:
    """A task for each record in the bell of one that has ended, as it was written. They run now."""
    return [
        Task(
            key,
            finished.kind,
            correlation_id,
            WAKE,
            tenant=finished.tenant,
            pair=pair,
            wake=wake_name(key, finished.key, finished.round, finished.generation, finished.state),
        )
        for key, _, correlation_id in (entry.partition(".") for entry in sorted(finished.bell))
    ]


# ---- the body


def task_path(kind: Kind) -> str:
    """The internal service's path for tasks of this kind, and the only path to which their queue may lead."""
    return f"/internal/process_{kind}"


CHECK_BODY: Mapping[str, int | bool] = {"v": VERSION, "check": True}
"""Marks a call that asks whether its token is accepted. Every version of the service refuses it as not a task."""


def task_body(task: Task) -> dict[str, str | int]:
    """The JSON body of a task. It has a slot only if the sender's pace gave it one, and so on."""
    moments = {"slot": task.slot, "alone_since": task.alone_since}
    place = {"place": task.place} if task.place else {}
    return {
        "v": VERSION,
        KEY_FIELD[task.kind]: task.key,
        "tenant": task.tenant,
        "correlation_id": task.correlation_id,
        "generation": task.generation,
        "hop": task.hop,
        **place,
        **{name: at.astimezone(UTC).isoformat() for name, at in moments.items() if at},
    }


def parse_task(kind: Kind, body: Any) -> Task:
    """The task in a body; other fields are ignored. Raises TaskInvalid for an invalid task, UnknownState for one of a
    newer version.
    """
    if not isinstance(body, Mapping):
        raise TaskInvalid("The task must be a JSON object.")
    if body == CHECK_BODY:
        raise TokenCheck("The call only checks the token; it carries no task.")
    version = body.get("v")
    if not is_count(version):
        raise TaskInvalid("The task needs a version in the field v.")
    if version not in READABLE:
        raise UnknownState("A newer version of Pombo created this task.")
    key, correlation_id = body.get(KEY_FIELD[kind]), body.get("correlation_id")
    if not (isinstance(key, str) and _KEY[kind].fullmatch(key)):
        raise TaskInvalid(f"The task needs an {KEY_FIELD[kind]} of 40 hex digits.")
    if not (isinstance(correlation_id, str) and is_correlation_id(correlation_id)):
        raise TaskInvalid("The task needs a correlation_id.")
    tenant = body.get("tenant") if version > 1 else ""
    if not (isinstance(tenant, str) and _TENANT.fullmatch(tenant)):
        raise TaskInvalid("The task needs a tenant.")
    generation, hop = body.get("generation"), body.get("hop")
    if not (_is_generation(generation) and is_count(hop)):
        raise TaskInvalid("The task needs a generation and a hop, whole numbers from 0.")
    place = body.get("place")
    if not (place is None or (isinstance(place, str) and _PLACE.fullmatch(place))):
        raise TaskInvalid("The task's place must be that of an event in its turn.")
    slot, alone_since = (moment_in(body.get(name), name) for name in ("slot", "alone_since"))
    return Task(key, kind, correlation_id, generation, hop, tenant, slot=slot, alone_since=alone_since, place=place)


def moment_in(value: Any, name: str) -> datetime | None:
    """A moment in a body, as RFC 3339 text with its offset; None if absent. Raises TaskInvalid."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TaskInvalid(f"The task's {name} must be a time with its offset, like 2026-11-29T12:00:00+00:00.")


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_generation(value: Any) -> TypeGuard[int]:
    return is_count(value) or (isinstance(value, int) and value == WAKE)
