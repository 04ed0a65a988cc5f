"""The load generator sends the plan's messages, each in its webhook and at its time."""

import threading
import time
from collections.abc import Sequence

from cli.chaos.backpressure import Backpressure
from cli.chaos.plan import WebhookBatch
from cli.chaos.simulator_control import SimulatorControl

WAITING_AT_MOST = 500
"""Webhooks that wait in the simulator before the load generator pauses: this machine is slower than the plan."""

LOOK_EVERY = 0.5
"""Seconds between two looks at what waits there."""


class LoadGenerator:
    """Runs in a thread of its own; `sent` counts messages, each once."""

    def __init__(self, batches: Sequence[WebhookBatch], control: SimulatorControl, backpressure: Backpressure) -> None:
        self._batches = batches
        self._control = control
        self._backpressure = backpressure
        self.sent = 0

    def run(self, over: threading.Event) -> None:
        """Until all are sent, or until it is over."""
        began = time.monotonic()
        looked = 0.0
        for batch in self._batches:
            if over.wait(max(0.0, began + batch.at - time.monotonic())):
                return
            while not self._backpressure.wait(LOOK_EVERY):
                if over.is_set():
                    return
            if time.monotonic() - looked > LOOK_EVERY:
                self._wait_for_room(over)
                looked = time.monotonic()
            self._send(batch)

    def _wait_for_room(self, over: threading.Event) -> None:
        while self._control.get("webhooks")["pending"] > WAITING_AT_MOST and not over.wait(LOOK_EVERY):
            pass

    def _send(self, batch: WebhookBatch) -> None:
        order = {
            "from": batch.messages[0].contact,
            "type": "text",
            "contents": [{"body": message.script.text} for message in batch.messages],
            "id": batch.id,
            "times": batch.times,
            "rebatch": batch.rebatch,
        }
        self._control.post("inbound", order)
        self.sent += len(batch.messages)
