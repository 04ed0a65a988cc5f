"""Task bodies: a reference to a record, never its content, so that a queue holds nothing private."""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from shared.domain.errors import TaskInvalid, UnknownState
from shared.domain.identity import DOCTOR_KEY, is_correlation_id
from shared.domain.record import Kind, Task

VERSION = 1
KEY_FIELD = {Kind.INBOUND: "inbound_event_id", Kind.OUTBOUND: "outbound_key"}
_KEY = {Kind.INBOUND: re.compile(rf"[0-9a-f]{{40}}|{DOCTOR_KEY}"), Kind.OUTBOUND: re.compile(r"[0-9a-f]{40}")}


def task_path(kind: Kind) -> str:
    """Where the internal service takes the tasks of this kind, and the one path to which their queue may lead."""
    return f"/internal/process_{kind}"


def task_body(task: Task) -> dict[str, str | int]:
    """The JSON body of a task."""
    return {
        "v": VERSION,
        KEY_FIELD[task.kind]: task.key,
        "correlation_id": task.correlation_id,
        "generation": task.generation,
        "hop": task.hop,
    }


def parse_task(kind: Kind, body: Any) -> Task:
    """The task in a body. Raises TaskInvalid for what is none, UnknownState for one of a newer version."""
    if not isinstance(body, Mapping):
        raise TaskInvalid("A task is a JSON object.")
    version = body.get("v")
    if not _is_count(version):
        raise TaskInvalid("A task has a version, v.")
    if version != VERSION:
        raise UnknownState("A newer version of Pombo made this task.")
    key, correlation_id = body.get(KEY_FIELD[kind]), body.get("correlation_id")
    if not (isinstance(key, str) and _KEY[kind].fullmatch(key)):
        raise TaskInvalid(f"A task has an {KEY_FIELD[kind]} of 40 hex digits.")
    if not (isinstance(correlation_id, str) and is_correlation_id(correlation_id)):
        raise TaskInvalid("A task has a correlation_id.")
    generation, hop = body.get("generation"), body.get("hop")
    if not (_is_count(generation) and _is_count(hop)):
        raise TaskInvalid("A task has a generation and a hop, whole numbers from 0.")
    return Task(key, kind, correlation_id, generation, hop)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
