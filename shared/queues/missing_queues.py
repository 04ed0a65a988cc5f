"""Missing queues: the numbered ones that Cloud Tasks last said are not there, for whose tasks the shared ones stand in.

The number of a tenant's pair is in the registry and the queues are Terraform's, so either may be ahead of the other for
a while: after a smaller TENANT_QUEUES, before an apply, or until a new permission is in force.
"""

import threading
import time
from collections.abc import Callable

from shared import logs

REMEMBERED_SECONDS = 60.0
"""Until then a task costs one call, not two. Then the queue is asked again, so that it is used soon after an apply."""

LOGGED_SECONDS = 3600.0
"""One line an hour for each queue: enough for an operator, whatever the traffic."""

REFUSALS = frozenset({"NOT_FOUND", "FAILED_PRECONDITION", "PERMISSION_DENIED"})
"""How Cloud Tasks refuses a task for a queue that is not there. FAILED_PRECONDITION: there is none, or it was deleted
recently (https://github.com/GoogleCloudPlatform/python-docs-samples/issues/4034). PERMISSION_DENIED: our permissions
are bindings of each queue, and end with it; those of a new queue take minutes to apply.
"""


class MissingQueues:
    """Which queues are missing. Every method may be called from any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._logged: dict[str, float] = {}

    def __contains__(self, queue: str) -> bool:
        until = self._until.get(queue)
        return until is not None and self._monotonic() < until

    def add(self, queue: str, code: str, instead: str) -> None:
        """Note that the queue is missing, and log it unless that happened within the last hour. `code` is Google's
        name of the error.
        """
        now = self._monotonic()
        with self._lock:
            self._until[queue] = now + REMEMBERED_SECONDS
            last = self._logged.get(queue)
            if last is not None and now < last + LOGGED_SECONDS:
                return
            self._logged[queue] = now
        logs.event("queue_missing", severity="WARNING", queue=queue, reason=code, instead=instead)
