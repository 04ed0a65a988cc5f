"""The webhook service, built from its settings."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from shared import config, logs
from shared.bootstrap.adapters import Shutdown, build_clock, build_queue, build_store, build_tenants
from shared.bootstrap.channels import receiving
from shared.config import Config
from shared.pipeline.accept import Accept
from shared.pipeline.channels import Channels
from shared.pipeline.intake import IntakeQueue, IntakeStore
from shared.queues.threaded_intake import ThreadedQueue
from shared.stores.threaded_intake import ThreadedIntake


@dataclass(frozen=True, slots=True)
class Webhook:
    """What the public service needs."""

    config: Config
    accept: Accept
    channels: Channels
    store: IntakeStore
    queue: IntakeQueue
    shutdown: Shutdown


@cache
def parts() -> Webhook:
    """This process's webhook service. It opens no connection except SQLite's, to check that the file is ours."""
    return build_webhook(os.environ)


def build_webhook(environ: Mapping[str, str]) -> Webhook:
    """Raises ConfigError."""
    settings = config.load(environ, config.WEBHOOK)
    logs.configure(settings["LOG_LEVEL"])
    store, queue, clock = (
        ThreadedIntake(build_store(settings)),
        ThreadedQueue(build_queue(settings)),
        build_clock(settings),
    )
    channels = receiving(settings)
    accept = Accept(
        store=store,
        queue=queue,
        tenants=build_tenants(settings),
        channels=channels,
        limits=settings.limits,
        clock=clock,
    )
    return Webhook(settings, accept, channels, store, queue, Shutdown())
