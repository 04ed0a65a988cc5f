"""Drain: wait until nothing is open, neither a record nor a webhook nor a task in a queue."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.cloud.tasks_v2 import CloudTasksClient, ListTasksRequest
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from cli.chaos.simulator_control import SimulatorControl
from local.faults import FaultBook
from local.queues import RATES
from shared.domain.errors import StoreUnavailable
from shared.domain.record import OPEN_STATES
from shared.pipeline.ports import Store

PAGE = 1000
LOOK_EVERY = 0.5

STANDSTILL_SECONDS = 2400.0
"""In which nothing changed and no fault was met, before TIME_SCALE divides it: then it will never be quiet. It is twice
as long as a queue's longest backoff, or as an outage and the longest wait that follows it. A fault that is met changes
no record, and may be followed by such a wait again.
"""

TASKS_SECONDS = 900.0
"""Likewise, for tasks of records that are final: they change nothing, and may wait out a queue's backoff."""

HURRY_EVERY = 5.0
"""Seconds. WhatsApp delivers again after ever longer waits, days in the end. Nothing is proven by sitting them out, and
whatever is to come with them, a receipt above all, would come after every doubt."""

SECONDS_LEAST = 90.0
"""Of the machine's time, for both: starting anew does not scale."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What is still open. None: the store could not be asked just now."""

    records: int | None
    webhooks: int

    def __str__(self) -> str:
        records = "an unknown number of" if self.records is None else self.records
        return f"{records} records and {self.webhooks} webhooks open"

    @property
    def sum(self) -> int | None:
        return None if self.records is None else self.records + self.webhooks

    @property
    def is_over(self) -> bool:
        return self.records == 0 and self.webhooks == 0


class DrainWatch:
    """Looks at what is open. `environment` is the stack's."""

    def __init__(
        self,
        store: Store,
        control: SimulatorControl,
        faults: FaultBook,
        environment: Mapping[str, str],
        time_scale: float,
    ) -> None:
        self.store, self.control, self.faults = store, control, faults
        self.environment, self.time_scale = environment, time_scale
        self._hurried = 0.0

    def look(self) -> OpenWork:
        """What is open now. What failed is not left to wait for long."""
        if time.monotonic() - self._hurried > HURRY_EVERY:
            self.control.post("webhooks", {})
            self._hurried = time.monotonic()
        try:
            counts = self.store.backlog().counts
        except StoreUnavailable:
            return OpenWork(None, self.control.get("webhooks")["pending"])
        return OpenWork(sum(counts.get(state, 0) for state in OPEN_STATES), self.control.get("webhooks")["pending"])

    def wait(self, tell: Callable[[str], None]) -> tuple[bool, int | None]:
        """Whether it became quiet, and how many tasks are left then, None where the emulator does not answer."""
        last, changed = None, time.monotonic()
        while not (backlog := self.look()).is_over:
            seen = (backlog, self.faults.owed())
            if seen != last:
                last, changed = seen, time.monotonic()
            elif time.monotonic() - changed > self._scaled(STANDSTILL_SECONDS):
                return False, self.tasks()
            tell(f"{backlog}")
            time.sleep(LOOK_EVERY)
        deadline = time.monotonic() + self._scaled(TASKS_SECONDS)
        while (left := self.tasks()) != 0 and time.monotonic() < deadline:
            tell(f"{left} tasks left in the queues")
            time.sleep(LOOK_EVERY)
        return self.look().is_over, left

    def _scaled(self, seconds: float) -> float:
        return max(SECONDS_LEAST, seconds / self.time_scale)

    def tasks(self) -> int | None:
        """How many there are in all queues; None where the emulator does not answer, as one that was just killed."""
        environment = self.environment
        parent = f"projects/{environment['GOOGLE_CLOUD_PROJECT']}/locations/{environment['CLOUD_TASKS_LOCATION']}"
        address = environment["CLOUD_TASKS_EMULATOR_HOST"]
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
            client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
            requests = [
                ListTasksRequest(parent=f"{parent}/queues/{environment[name]}", page_size=PAGE) for name in RATES
            ]
            try:
                return sum(1 for request in requests for _ in client.list_tasks(request, timeout=10, retry=None))
            except GoogleAPICallError:
                return None
