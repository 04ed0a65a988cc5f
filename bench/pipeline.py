"""python -m bench.pipeline: what turns, conversations and lanes cost the pipeline, beside the same without them.

The production code handles messages of many contacts in one process, with an instant handler and an instant provider:
first all of them in threads, then one message after another. Both forms run in turn in each round, so the ratio holds
on a machine that is busy.
"""

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from shared.channels.meta.messages import read
from shared.domain.delivery.create import create
from shared.domain.identity import message_event_id
from shared.domain.limits import Limits
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Delivery, Kind, Task
from shared.domain.tasks import own_task
from shared.domain.turns import position, turn_id
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.clock import SystemClock
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.tenant_handlers import TenantCode
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.environment import EnvironmentTenants

SENDER, KEY = "100000000000001", b"a key"
THREADS = 4
WITH, WITHOUT = "turns, conversations, lanes", "none of them"


@dataclass
class Instant:
    """The queue, the handler and the provider of the pipeline: each answers at once."""

    tasks: deque[Task] = field(default_factory=deque)
    provider = "meta"
    has_public_sender_ids = True
    backend = None

    def ensure(self, task: Task, at: datetime | None) -> None:  # noqa: ARG002 - every task runs at once
        self.tasks.append(task)

    def queue_of(self, task: Task) -> str:
        return task.kind

    def handles(self, _: str, kind: str = "") -> bool:  # noqa: ARG002 - the port's
        return True

    def __call__(self, _: Any) -> list[OutboundMessage]:
        return [OutboundMessage.text("hello to you")]

    def read(self, record: Delivery) -> Any:
        return read(record)

    def address(self, _: Any) -> dict[str, str]:
        return {"to": "+15550002222"}

    def fingerprint(self, credential: str) -> str:
        return credential

    def send(self, record: Delivery, *_: Any) -> str:
        return f"wamid.{record.key}"


class _Credentials:
    def of(self, _: Any) -> str:
        return "token"

    newest = of


@dataclass(frozen=True)
class _OneHandler:
    code: TenantCode

    def handles(self, _: str, kind: str) -> bool:  # noqa: ARG002 - the port's
        return True

    def of(self, _: str) -> TenantCode:
        return self.code


class Pipeline:
    """The internal service's pipeline on a new file, with or without turns and conversations."""

    def __init__(self, directory: Path, has_turns: bool) -> None:
        self.limits, self.clock, self.has_turns = Limits(), SystemClock(), has_turns
        self.store = SqliteStore(directory / "pombo.sqlite", self.limits, self.clock.now)
        self.instant = Instant()
        instant: Any = self.instant
        tenants, channels = EnvironmentTenants.of(("meta", SENDER)), Channels({"meta": instant})
        dispatch = TaskDispatch(instant, self.clock, self.limits, channels, tenants)
        conversations = Conversations(self.store, self.clock, KEY) if has_turns else None
        handlers: Any = _OneHandler(TenantCode(instant, BackendMarks(None, self.store, self.limits, self.clock)))
        rest = (dispatch, self.limits, self.clock, lambda: False, conversations)
        self.inbound = ProcessInbound(self.store, tenants, channels, handlers, HandlerPlaces(THREADS), *rest)
        self.outbound = ProcessOutbound(self.store, tenants, _Credentials(), channels, *rest)  # type: ignore[arg-type]

    def received(self, number: int, contact: int) -> Task:
        """A message that the webhook service has stored; the task of its event."""
        number_of, now = f"1555{contact:07}", self.clock.now()
        key = message_event_id("meta", SENDER, f"wamid.{number}")
        item = {"id": f"wamid.{number}", "from": number_of, "type": "text", "text": {"body": "hello"}}
        record = create(
            Kind.INBOUND,
            key,
            provider="meta",
            tenant="default",
            sender=SENDER,
            contact=number_of,
            correlation_id=f"correlation-{number}",
            payload={"field": "messages", "phone_number_id": SENDER, "item": item, "contact": {}},
            limits=self.limits,
            now=now,
            turn_id=turn_id(KEY, "default", "meta", SENDER, number_of) if self.has_turns else None,
            position=position(now, now, 0, key) if self.has_turns else None,
        )
        self.store.create(record)
        return own_task(record, None)[0]

    def work(self, tasks: Sequence[Task]) -> None:
        """Run these tasks, and those that they lead to, in threads until none is left."""
        queue = self.instant.tasks
        queue.extend(tasks)

        def run(_: int) -> None:
            with suppress(IndexError):
                while True:
                    self.handle(queue.popleft())

        with ThreadPoolExecutor(THREADS) as pool:
            while queue:
                list(pool.map(run, range(THREADS)))

    def handle(self, task: Task) -> None:
        (self.inbound if task.kind is Kind.INBOUND else self.outbound)(task)

    def one(self, task: Task) -> float:
        """Seconds from the task of a message to the provider's answer to its reply."""
        began = time.perf_counter()
        self.handle(task)
        while self.instant.tasks:
            self.handle(self.instant.tasks.popleft())
        return time.perf_counter() - began


def measure(has_turns: bool, contacts: int, messages: int, single: int) -> tuple[float, float]:
    """Messages a second in threads, and the median milliseconds of a contact's only message."""
    with tempfile.TemporaryDirectory(prefix="pombo-bench-") as directory:
        pipeline = Pipeline(Path(directory), has_turns)
        tasks = [pipeline.received(number, number % contacts) for number in range(messages)]
        began = time.perf_counter()
        pipeline.work(tasks)
        rate = messages / (time.perf_counter() - began)
        alone = [pipeline.received(messages + n, contacts + n) for n in range(single)]
        median = statistics.median(pipeline.one(task) for task in alone) * 1000
        pipeline.store.close()
    return rate, median


def lines(rounds: int, contacts: int, messages: int, single: int) -> Iterator[str]:
    """The table, as Markdown."""
    samples: dict[str, list[tuple[float, float]]] = {WITH: [], WITHOUT: []}
    for number in range(rounds):
        for name in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            samples[name].append(measure(name == WITH, contacts, messages, single))
    rates, medians = (
        {name: statistics.median(one[figure] for one in found) for name, found in samples.items()} for figure in (0, 1)
    )
    yield "| pipeline on SQLite | messages/s | a contact's only message, median ms |"
    yield "|---|---|---|"
    for name in (WITHOUT, WITH):
        yield f"| {name} | {rates[name]:.0f} | {medians[name]:.2f} |"
    yield f"| ratio | {rates[WITH] / rates[WITHOUT]:.2f} | {medians[WITH] / medians[WITHOUT]:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contacts", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--single", type=int, default=200, help="Messages that are handled one after another.")
    given = parser.parse_args()
    print("\n".join(lines(given.rounds, given.contacts, given.messages, given.single)))


if __name__ == "__main__":
    main()
