"""Permissions: what each call to Google requires of its caller, and so what each service's account may do.

Firestore: https://cloud.google.com/firestore/docs/security/iam, "Required permissions for API methods"; Cloud Tasks:
https://cloud.google.com/tasks/docs/reference-access-control (both 2026-11).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.domain.tenants import CREDENTIAL_PREFIX, HANDLER_PREFIX

GET, LIST, CREATE, UPDATE, DELETE = (
    f"datastore.entities.{word}" for word in ("get", "list", "create", "update", "delete")
)
MAKE_TASKS, SEE_QUEUES = "cloudtasks.tasks.create", "cloudtasks.queues.get"

CALLS: Mapping[str, frozenset[str]] = {
    "batch_get_documents": frozenset({GET}),
    "run_query": frozenset({GET, LIST}),
    "run_aggregation_query": frozenset({GET, LIST}),  # not in the table; it counts what run_query would give
    "commit: absent": frozenset({CREATE}),
    "commit: present": frozenset({UPDATE}),
    "commit: any": frozenset({CREATE, UPDATE}),
    "commit: delete": frozenset({DELETE}),
    "batch_write: absent": frozenset({CREATE}),
    "batch_write: present": frozenset({CREATE, UPDATE}),  # the table says create, for commit update
    "batch_write: any": frozenset({CREATE, UPDATE}),
    "create_task": frozenset({MAKE_TASKS}),
    "get_queue": frozenset({SEE_QUEUES}),
}
"""Every call that the code makes, a write with its precondition. None begins a transaction (datastore.databases.get).
Only the removal of a tenant or a number deletes, by an operator, and only entries of the registry.
"""

STORE: Mapping[str, frozenset[str]] = {
    "webhook": frozenset({GET, CREATE, UPDATE}),
    "api": frozenset({GET, LIST, CREATE, UPDATE, DELETE}),
    "internal": frozenset({GET, LIST, CREATE, UPDATE}),
}
"""What each service's account may do in the database."""

ACCESS_VERSION, LIST_VERSIONS = "secretmanager.versions.access", "secretmanager.versions.list"
ADD_VERSION, CREATE_SECRET = "secretmanager.versions.add", "secretmanager.secrets.create"

SECRET_CALLS: Mapping[str, frozenset[str]] = {
    "access_secret_version": frozenset({ACCESS_VERSION}),
    "list_secret_versions": frozenset({LIST_VERSIONS}),
}
"""The calls of Secret Manager by which a service reads a secret:
https://cloud.google.com/secret-manager/docs/access-control (2026-11).
"""

ADDING_SECRET_CALLS: Mapping[str, str] = {
    "add_secret_version": ADD_VERSION,
    "create_secret": CREATE_SECRET,
}
"""Those by which the API service, or an operator's command, adds one."""

OPERATORS_SECRET_CALLS: Mapping[str, str] = {
    **ADDING_SECRET_CALLS,
    "delete_secret": "secretmanager.secrets.delete",
}
"""Those of an operator's command. The first is in roles/secretmanager.secretVersionManager, the others are not."""

TENANT_SECRETS: Mapping[str, tuple[str, ...]] = {"internal": (CREDENTIAL_PREFIX, HANDLER_PREFIX)}
"""With which beginnings of their names a service may read secrets of tenants."""

TENANT_SECRETS_ADDED: Mapping[str, tuple[str, ...]] = {"api": (CREDENTIAL_PREFIX,)}
"""The same for those that it may add values to."""

METHODS = frozenset(name.partition(":")[0] for name in CALLS)


def calls_of(method: str, request: Mapping[str, Any]) -> Iterator[str]:
    """The calls of CALLS that one request makes. Raises ValueError for a write that is not in CALLS."""
    if method not in ("commit", "batch_write"):
        yield method
    elif request.get("transaction") or not all(map(_is_known, request["writes"])):
        raise ValueError(f"{method} deletes what is no entry, or is part of a transaction.")
    else:
        yield from (f"{method}: {_kind(write)}" for write in request["writes"])


def _is_known(write: Mapping[str, Any]) -> bool:
    return "update" in write or "/registry_" in write.get("delete", "")


def _kind(write: Mapping[str, Any]) -> str:
    return "delete" if "delete" in write else _expects(write.get("current_document", {}))


def _expects(precondition: Mapping[str, Any]) -> str:
    if precondition.get("exists") is False:
        return "absent"
    return "present" if precondition else "any"
