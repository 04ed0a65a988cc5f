"""The webhook service, built from its settings."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from shared import config, logs
from shared.bootstrap.adapters import build_clock, build_intake_tenants, port, queue_settings
from shared.bootstrap.intake_store import build_intake_registry, build_intake_store
from shared.bootstrap.receiving import receiving
from shared.config import Config
from shared.net.google_token import GoogleToken
from shared.pipeline.accept import Accept
from shared.pipeline.channels import Channels
from shared.pipeline.clock import SystemClock
from shared.pipeline.counting import Counters, IntakeCounting
from shared.pipeline.intake import IntakeChannel, IntakeQueue, IntakeStore
from shared.queues.cloud_tasks_intake import CloudTasksIntake


@dataclass(frozen=True, slots=True)
class Webhook:
    """What the public service needs."""

    config: Config
    accept: Accept
    channels: Channels[IntakeChannel]
    store: IntakeStore
    queue: IntakeQueue
    token: GoogleToken
    counting: IntakeCounting

    def begin(self) -> None:
        """Get the access token in the background, so that the first POST does not wait for it. Emulators take none."""
        if not self.config.get("CLOUD_TASKS_EMULATOR_HOST"):
            self.token.begin()

    async def finish(self) -> None:
        """Write the counters. Called once, before `close`."""
        await self.counting.finish()

    def close(self) -> None:
        """End the connections and the renewal of the access token, on the event loop that served the requests."""
        self.store.close()
        self.queue.close()
        self.token.close()


@cache
def parts() -> Webhook:
    """This process's webhook service, which has begun to get its access token. Beside that it opens no connection
    except SQLite's, to check that the file is ours.
    """
    webhook = build_webhook(os.environ)
    webhook.begin()
    return webhook


def build_webhook(environ: Mapping[str, str]) -> Webhook:
    """Raises ConfigError."""
    settings = config.load(environ, config.WEBHOOK)
    logs.configure(settings["LOG_LEVEL"])
    token, clock, channels = GoogleToken(), build_clock(settings), receiving(settings)
    store = build_intake_store(settings, token)
    queue: IntakeQueue = port(settings, "queue", CloudTasksIntake(queue_settings(settings), token))
    counting = IntakeCounting(Counters(SystemClock(), settings.limits.counters_flush), store)
    accept = Accept(
        store=store,
        queue=queue,
        tenants=build_intake_tenants(settings, build_intake_registry(settings, store)),
        channels=channels,
        limits=settings.limits,
        clock=clock,
        id_key=settings["ID_KEY"].encode() if settings["TURNS"] == "contact" else None,
        counting=counting,
    )
    return Webhook(settings, accept, channels, store, queue, token, counting)
