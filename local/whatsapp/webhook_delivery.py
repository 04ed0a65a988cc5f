"""A delivery: one webhook on its way to the business, retried until the answer is HTTP 200.

Meta redelivers the whole POST at once and then less and less often for 7 days (its page "Create a webhook endpoint", a
copy of 2026). It publishes no schedule. The waits here are invented, short at first so that a killed webhook service
gets its webhooks again within seconds. Deliveries run in parallel and in no order, as Meta's do.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from local.faults import FaultBook
from local.whatsapp.http_transport import WebhookPoster
from local.whatsapp.log import log
from local.whatsapp.simulator_store import QueuedWebhook, SimulatorStore
from local.whatsapp.webhook_payloads import count_messages, cut, signature_headers

WAITS = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0)
"""Seconds before each redelivery; the last one is repeated."""

GIVEN_UP_AFTER = 7 * 86400.0

AT_ONCE = 80
"""As many as the webhook service works on at once (WEBHOOK_CONCURRENCY), and so as many as Cloud Run sends an instance:
more would wait there and look like its latency."""


@dataclass
class WebhookDeliveries:
    """Every waiting webhook, in memory by id and time only; the body stays in the store until it is due."""

    store: SimulatorStore
    poster: WebhookPoster
    faults: FaultBook
    secret: str
    time_scale: float
    _waiting: set[int] = field(default_factory=set)
    _again: dict[int, asyncio.TimerHandle] = field(default_factory=dict)  # failed webhooks that wait for a retry
    _spared: set[int] = field(default_factory=set)  # already met a fault: with another one each time, none would arrive
    _due: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def resume(self) -> None:
        """Resume what an earlier process left; call it once, before anything is added."""
        for row, due_at, attempts in self.store.waiting():
            self._schedule(row, due_at, again=attempts > 0)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_ONCE):
                workers.create_task(self._work())

    def add(self, webhooks: list[QueuedWebhook]) -> None:
        """Store them, then deliver each when it is due."""
        self.scheduled(self.store.add(webhooks), webhooks)

    def scheduled(self, rows: Iterable[int], webhooks: Iterable[QueuedWebhook]) -> None:
        """Deliver webhooks that are already stored."""
        for row, webhook in zip(rows, webhooks, strict=True):
            self._schedule(row, webhook.due_at)

    def forget(self) -> None:
        """Drop all waiting webhooks."""
        self.store.forget_webhooks()
        self._waiting.clear()
        self._again.clear()

    def hurry(self) -> int:
        """Redeliver now every webhook that failed and waits. Returns how many."""
        timers = list(self._again.items())
        for row, timer in timers:
            timer.cancel()
            self._is_due(row)
        return len(timers)

    def _schedule(self, row: int, due_at: float, again: bool = False) -> None:
        self._waiting.add(row)
        timer = asyncio.get_running_loop().call_later(max(0.0, due_at - time.time()), self._is_due, row)
        if again:
            self._again[row] = timer

    def _is_due(self, row: int) -> None:
        self._again.pop(row, None)
        self._due.put_nowait(row)

    async def _work(self) -> None:
        while True:
            row = await self._due.get()
            if row in self._waiting:
                await self._deliver(row)

    async def _deliver(self, row: int) -> None:
        webhook = self.store.webhook(row)
        fault = None if row in self._spared else self.faults.take("webhook", webhook.facts)
        self._spared.discard(row)
        if fault and fault.kind in ("slow", "reorder"):
            self._spared.add(row)
            self._schedule(row, time.time() + fault.delay)
        elif fault and fault.kind in ("withhold", "drop"):
            self._settle(row, webhook, None, "withheld")
        else:
            if fault and fault.kind == "duplicate":
                self._duplicate(webhook)
            status, said = await self.post(webhook.body)
            self._settle(row, webhook, status, said.decode() if status is None else None)

    def _duplicate(self, webhook: QueuedWebhook) -> None:
        copies = [replace(webhook, due_at=time.time())]
        rows = self.store.add(copies)
        self._spared.update(rows)
        self.scheduled(rows, copies)

    async def post(self, body: bytes) -> tuple[int | None, bytes]:
        """Sign and deliver once; return the status and body, or None and the error's name."""
        try:
            return await self.poster.post(body, signature_headers(self.secret, body))
        except (OSError, EOFError) as error:
            return None, type(error).__name__.encode()

    def _settle(self, row: int, webhook: QueuedWebhook, status: int | None, error: str | None) -> None:
        if row not in self._waiting:
            return  # dropped meanwhile
        now = time.time()
        if status == 200:
            self.store.delivered(row)
            self._waiting.discard(row)
        elif now - webhook.first_at > GIVEN_UP_AFTER / self.time_scale:
            self.store.given_up(row)
            self._waiting.discard(row)
            log(
                "webhook_given_up",
                "The last attempt to deliver the webhook failed. It was dropped.",
                "ERROR",
                status=status,
            )
        else:
            self._redeliver(row, webhook, now)
            attempt = webhook.attempts + 1
            log(
                "webhook_failed",
                "Delivering the webhook failed. It will be retried.",
                status=status,
                error=error,
                attempt=attempt,
            )

    def _redeliver(self, row: int, webhook: QueuedWebhook, now: float) -> None:
        due_at = now + WAITS[min(webhook.attempts, len(WAITS) - 1)] / self.time_scale
        if webhook.regroup and (messages := count_messages(webhook.body)) > 1:
            again = replace(webhook, attempts=webhook.attempts + 1, due_at=due_at)
            cuts = [replace(again, body=body) for body in cut(webhook.body, (messages + 1) // 2)]
            self._waiting.discard(row)
            for cut_row in self.store.failed_and_cut(row, cuts):
                self._schedule(cut_row, due_at, again=True)
        else:
            self.store.failed(row, due_at)
            self._schedule(row, due_at, again=True)
