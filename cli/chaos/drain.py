"""Drain: wait until no record and no webhook is open and no task is in a queue."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.cloud.tasks_v2 import CloudTasksClient, ListTasksRequest
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from cli.chaos.simulator_control import SimulatorControl
from local.faults import FaultBook
from local.queues import names_of
from shared.domain.errors import StoreUnavailable
from shared.domain.record import OPEN_STATES
from shared.pipeline.ports import Store

PAGE = 1000
LOOK_EVERY = 0.5

STANDSTILL_SECONDS = 2400.0
"""Without a change or a fault that hit something; after that the run never becomes quiet. TIME_SCALE divides it. It is
twice as long as a queue's longest backoff, or as an outage and the longest wait after it. A fault that hits something
changes no record, but such a wait may follow it.
"""

TASKS_SECONDS = 900.0
"""The same for tasks of final records: they change nothing, and may wait for a queue's backoff."""

HURRY_EVERY = 5.0
"""Seconds. WhatsApp redelivers after ever longer waits, up to days. Waiting for those proves nothing, and a receipt
that came with them would come after every doubt has ended.
"""

SECONDS_LEAST = 90.0
"""Real seconds, the least for both: TIME_SCALE does not shorten a process's start."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What is still open. None: the store did not answer."""

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
    """Observes the open work. `environment` is the stack's."""

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
        """Count the open work. It also has the simulator redeliver failed webhooks, at most once per HURRY_EVERY."""
        if time.monotonic() - self._hurried > HURRY_EVERY:
            self.control.post("webhooks", {})
            self._hurried = time.monotonic()
        try:
            counts = self.store.backlog().counts
        except StoreUnavailable:
            return OpenWork(None, self.control.get("webhooks")["pending"])
        return OpenWork(sum(counts.get(state, 0) for state in OPEN_STATES), self.control.get("webhooks")["pending"])

    def wait(self, tell: Callable[[str], None]) -> tuple[bool, int | None]:
        """Whether it became quiet, and how many tasks are left; None if the emulator does not answer."""
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
        """How many tasks are in all queues; None if the emulator does not answer, for example just after a kill."""
        environment = self.environment
        parent = f"projects/{environment['GOOGLE_CLOUD_PROJECT']}/locations/{environment['CLOUD_TASKS_LOCATION']}"
        address = environment["CLOUD_TASKS_EMULATOR_HOST"]
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
            client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
            requests = [
                ListTasksRequest(parent=f"{parent}/queues/{name}", page_size=PAGE) for name in names_of(environment)
            ]
            try:
                return sum(1 for request in requests for _ in client.list_tasks(request, timeout=10, retry=None))
            except GoogleAPICallError:
                return None
