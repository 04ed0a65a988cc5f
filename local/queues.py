"""The queues of the stack, as Terraform creates them in a project: each defines where its tasks go, and as whom."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from local.http_call import NO_ANSWER, call
from shared.config import SETTINGS
from shared.domain.drains import DRAIN_PATH
from shared.domain.record import Kind
from shared.domain.tasks import task_path

READY_SECONDS = 30
CALL_SECONDS = 2

Document = dict[str, Any]
"""A resource of the REST API (https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues)."""

Rate = tuple[float, int]
"""Dispatches a second, and how many at once."""

RATES: Mapping[str, Rate] = {
    "INBOUND_TASK_QUEUE_NAME": (100, 80),
    "OUTBOUND_TASK_QUEUE_NAME": (20, 10),
    "DRAIN_TASK_QUEUE_NAME": (1, 1),
}
"""Of each shared queue, by the variable that names it. A drain wakes 200 messages a second, which is enough."""

MAX_CONCURRENCY_PER_TENANT = 2
"""Messages of a tenant that are sent at once: with half a second each, 4 a second, like four busy agents."""

TENANT_RATES: Mapping[str, Rate] = {
    "INBOUND_TENANT_QUEUE_PATTERN": (80, 4),
    "TENANT_QUEUE_PATTERN": (80, MAX_CONCURRENCY_PER_TENANT),
}
"""Of each numbered queue, by the variable with its pattern. 80 a second is what Meta accepts of a number by default
(https://developers.facebook.com/docs/whatsapp/cloud-api/overview#throughput, 2026-11). Events: a handler takes longer
than a send, and four are a quarter of an instance's 16 threads, as many as a tenant's handler may hold.
"""

PATHS: Mapping[str, str] = {
    "INBOUND_TASK_QUEUE_NAME": task_path(Kind.INBOUND),
    "OUTBOUND_TASK_QUEUE_NAME": task_path(Kind.OUTBOUND),
    "DRAIN_TASK_QUEUE_NAME": DRAIN_PATH,
    "INBOUND_TENANT_QUEUE_PATTERN": task_path(Kind.INBOUND),
    "TENANT_QUEUE_PATTERN": task_path(Kind.OUTBOUND),
}
"""The only path to which the queues of each variable lead."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How a queue tries a task again."""

    max_attempts: int
    min_backoff: timedelta
    max_backoff: timedelta
    max_doublings: int


RETRY = Retry(max_attempts=100, min_backoff=timedelta(seconds=5), max_backoff=timedelta(seconds=600), max_doublings=5)


class CannotCreate(Exception):
    """The emulator does not answer, or refuses a queue."""


def ensure_queues(
    address: str, project: str, location: str, settings: Mapping[str, str], look: Callable[[], None]
) -> None:
    """Create all queues once the emulator answers. Existing queues keep their settings, except for their target. Calls
    `look` before every attempt, and raises what it raises, or CannotCreate.
    """
    parent = f"projects/{project}/locations/{location}"
    deadline = time.monotonic() + READY_SECONDS
    for queue in queues_of(settings, parent):
        _ensure(f"http://{address}/v2/", parent, queue, deadline, look)


def queues_of(settings: Mapping[str, str], parent: str) -> Sequence[Document]:
    """The shared queues, then the numbered ones."""
    base_url, account = settings["INTERNAL_TASK_BASE_URL"], settings.get("TASKS_SERVICE_ACCOUNT")
    return [
        {
            "name": f"{parent}/queues/{name}",
            "rateLimits": {"maxDispatchesPerSecond": rate[0], "maxConcurrentDispatches": rate[1]},
            "retryConfig": {
                "maxAttempts": RETRY.max_attempts,
                "minBackoff": f"{RETRY.min_backoff.total_seconds():g}s",
                "maxBackoff": f"{RETRY.max_backoff.total_seconds():g}s",
                "maxDoublings": RETRY.max_doublings,
            },
            "httpTarget": target_of(base_url, PATHS[variable], account),
        }
        for name, variable, rate in _named(settings)
    ]


def names_of(settings: Mapping[str, str]) -> Sequence[str]:
    """The names of the same queues."""
    return [name for name, _, _ in _named(settings)]


def _named(settings: Mapping[str, str]) -> Sequence[tuple[str, str, Rate]]:
    """Each queue: its name, its variable, its rate. A variable that `settings` lacks has its default."""
    read = {name: settings.get(name) or _default_of(name) for name in (*RATES, *TENANT_RATES, "TENANT_QUEUES")}
    shared = [(read[variable], variable, rate) for variable, rate in RATES.items()]
    numbered = [
        (read[variable].format(n=number), variable, rate)
        for number in range(int(read["TENANT_QUEUES"]))
        for variable, rate in TENANT_RATES.items()
    ]
    return shared + numbered


def _default_of(name: str) -> str:
    (setting,) = (setting for setting in SETTINGS if setting.name == name)
    return setting.local or setting.always or ""


def _ensure(api: str, parent: str, queue: Document, deadline: float, look: Callable[[], None]) -> None:
    while True:
        look()
        try:
            status = _created_or_changed(api, parent, queue)
        except NO_ANSWER:
            status = "UNAVAILABLE"
        if status in ("OK", "FAILED_PRECONDITION"):  # deleted within the last 7 days: the shared queue takes its tasks
            return
        if status not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            raise CannotCreate(f"The Cloud Tasks emulator refused the queue {queue['name']}: {status}.")
        if time.monotonic() > deadline:
            raise CannotCreate("The Cloud Tasks emulator does not answer.")
        time.sleep(0.05)


def _created_or_changed(api: str, parent: str, queue: Document) -> str:
    """The status of the answer, as gRPC names it. Raises NO_ANSWER."""
    status = _status(*call("POST", f"{api}{parent}/queues", document=queue, timeout=CALL_SECONDS))
    if status != "ALREADY_EXISTS":
        return status
    target = {"httpTarget": queue["httpTarget"]}
    url = f"{api}{queue['name']}?updateMask=httpTarget"
    return _status(*call("PATCH", url, document=target, timeout=CALL_SECONDS))


def _status(code: int, body: bytes) -> str:
    return "OK" if code == 200 else str(json.loads(body)["error"]["status"])


def target_of(base_url: str, path: str, account: str | None) -> Document:
    """Where a queue sends each of its tasks, whatever their own address, and the identity that the call carries."""
    parts = urlsplit(base_url)
    override = {
        "scheme": "HTTPS" if parts.scheme == "https" else "HTTP",
        "host": parts.hostname,
        **({"port": parts.port} if parts.port else {}),
        "pathOverride": {"path": parts.path.rstrip("/") + path},
        "uriOverrideEnforceMode": "ALWAYS",
    }
    token = {"serviceAccountEmail": account, "audience": base_url.rstrip("/")}
    return {"httpMethod": "POST", "uriOverride": override, **({"oidcToken": token} if account else {})}
