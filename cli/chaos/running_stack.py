"""The running stack of a chaos run, and access to its parts."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli import ids, trace
from cli.chaos.businesses import Business, businesses
from cli.chaos.fault_injection import Parts
from cli.chaos.fault_schedule import KILLED, STORE
from cli.chaos.run_settings import RunSettings
from cli.chaos.simulator_control import SimulatorControl
from cli.running import Running
from local.faults import BOOK, FaultBook
from local.faulty_proxy import FaultyProxy
from local.ports import LOOPBACK
from local.stack import Stack
from shared import config
from shared.bootstrap.backends import build_store
from shared.domain.errors import StoreUnavailable
from shared.domain.record import Delivery

BACK_SECONDS = 30
"""Seconds. Longer than a store takes to start."""


class StoreProxy:
    """The proxy between the services and the store's own server; none if the store has no server."""

    def __init__(self) -> None:
        self.proxy: FaultyProxy | None = None

    def before(self, port: int) -> int:
        """The port on which the services reach the server that listens on `port`."""
        self.proxy = FaultyProxy(LOOPBACK, port)
        return self.proxy.port

    def close(self) -> None:
        if self.proxy:
            self.proxy.close()


@dataclass(frozen=True, slots=True)
class RunningStack:
    """`environment` is the stack's own, `api` the address of its API."""

    running: Running
    control: SimulatorControl
    api: str
    environment: Mapping[str, str]
    parts: Parts
    data_dir: Path
    businesses: Sequence[Business]
    queue_pairs: int

    @classmethod
    def of(cls, stack: Stack, run_settings: RunSettings, proxy: FaultyProxy | None) -> "RunningStack":
        described = stack.describe()
        environment = json.loads((run_settings.data_dir / "stack.json").read_text())["environment"]
        settings = config.load(environment, config.CLI)
        control = SimulatorControl(described["control"])
        parts = Parts(
            pids=lambda: stack.describe()["pids"],
            ports=_ports(described) | ({STORE: proxy.target_port} if proxy else {}),
            control=control,
            faults=FaultBook(run_settings.data_dir / BOOK),
            proxy=proxy,
        )
        store = build_store(settings)
        running = Running(store, settings["WHATSAPP_PHONE_NUMBER_ID"], described["control"], stack.logs)
        known = businesses(run_settings.order.tenants, running.phone_number_id)
        pairs, api = settings["TENANT_QUEUES"], described["api"]
        return cls(running, control, api, environment, parts, run_settings.data_dir, known, pairs)

    def read(self, key: str) -> Delivery | None:
        """Read a record. If the store was just killed, wait until it is back."""
        deadline = time.monotonic() + BACK_SECONDS
        while True:
            try:
                return self.running.store.get(key)
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def timeline(self, key: str | None) -> str:
        """The output of `pombo trace` for it."""
        found = ids.find(self.running, key) if key else None
        timeline = trace.timeline_of(self.running, found.records) if found else trace.from_logs(self.running, key or "")
        return trace.as_text(timeline) if timeline else "No record and no log line has this key."


def _ports(described: Mapping[str, str]) -> dict[str, int]:
    return {name: int(described[name].rpartition(":")[2]) for name in KILLED}
