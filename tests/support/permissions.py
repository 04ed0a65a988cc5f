"""Permissions: what each call to Google requires of its caller, and so what each service's account may do.

Firestore: https://cloud.google.com/firestore/docs/security/iam, "Required permissions for API methods"; Cloud Tasks:
https://cloud.google.com/tasks/docs/reference-access-control (both 2026-11).
"""

from collections.abc import Iterator, Mapping
from typing import Any

GET, LIST, CREATE, UPDATE = (f"datastore.entities.{word}" for word in ("get", "list", "create", "update"))
MAKE_TASKS, SEE_QUEUES = "cloudtasks.tasks.create", "cloudtasks.queues.get"

CALLS: Mapping[str, frozenset[str]] = {
    "batch_get_documents": frozenset({GET}),
    "run_query": frozenset({GET, LIST}),
    "run_aggregation_query": frozenset({GET, LIST}),  # not in the table; it counts what run_query would give
    "commit: absent": frozenset({CREATE}),
    "commit: present": frozenset({UPDATE}),
    "commit: any": frozenset({CREATE, UPDATE}),
    "batch_write: absent": frozenset({CREATE}),
    "batch_write: present": frozenset({CREATE, UPDATE}),  # the table says create, for commit update
    "batch_write: any": frozenset({CREATE, UPDATE}),
    "create_task": frozenset({MAKE_TASKS}),
    "get_queue": frozenset({SEE_QUEUES}),
}
"""Every call that a service may make, a write with its precondition. No call deletes, and none begins a transaction
(datastore.databases.get).
"""

STORE: Mapping[str, frozenset[str]] = {
    "webhook": frozenset({GET, CREATE, UPDATE}),
    "internal": frozenset({GET, LIST, CREATE, UPDATE}),
}
"""What each service's account may do in the database."""

METHODS = frozenset(name.partition(":")[0] for name in CALLS)


def calls_of(method: str, request: Mapping[str, Any]) -> Iterator[str]:
    """The calls of CALLS that one request makes. Raises ValueError for a write that is not in CALLS."""
    if method not in ("commit", "batch_write"):
        yield method
    elif request.get("transaction") or any("update" not in write for write in request["writes"]):
        raise ValueError(f"{method} deletes, or is part of a transaction.")
    else:
        yield from (f"{method}: {_expects(write.get('current_document', {}))}" for write in request["writes"])


def _expects(precondition: Mapping[str, Any]) -> str:
    if precondition.get("exists") is False:
        return "absent"
    return "present" if precondition else "any"
