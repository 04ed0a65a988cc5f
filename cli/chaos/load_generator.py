"""The load generator: send the plan's messages, each in its webhook and at its time."""

import threading
import time
from collections.abc import Sequence

from cli.chaos.backpressure import Backpressure
from cli.chaos.businesses import Business
from cli.chaos.plan import WebhookBatch
from cli.chaos.simulator_control import SimulatorControl

WAITING_AT_MOST = 500
"""If more webhooks wait in the simulator, the load generator pauses: this machine is slower than the plan."""

LOOK_EVERY = 0.5
"""Seconds between two checks of how many wait there."""


class LoadGenerator:
    """Runs in a separate thread; `sent` counts each message once."""

    def __init__(
        self,
        batches: Sequence[WebhookBatch],
        control: SimulatorControl,
        backpressure: Backpressure,
        businesses: Sequence[Business],
    ) -> None:
        self._batches = batches
        self._businesses = businesses
        self._control = control
        self._backpressure = backpressure
        self.sent = 0

    def run(self, over: threading.Event) -> None:
        """Send until all messages are sent, or until `over` is set."""
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
            "phone_number_id": self._businesses[batch.messages[0].tenant].sender,
            "type": "text",
            "contents": [{"body": message.script.text} for message in batch.messages],
            "id": batch.id,
            "times": batch.times,
            "rebatch": batch.rebatch,
        }
        self._control.post("inbound", order)
        self.sent += len(batch.messages)
