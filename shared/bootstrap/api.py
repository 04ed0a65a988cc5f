"""The API service, built from its settings."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from shared import config, logs
from shared.bootstrap.adapters import Shutdown, build_clock, build_conversations, build_tenants
from shared.bootstrap.backends import build_queue, build_registry, build_store
from shared.bootstrap.channels import addressing
from shared.bootstrap.connect import build_connect
from shared.config import Config
from shared.operations.connect import Connect
from shared.operations.messages import Cancel
from shared.pipeline.accept_message import AcceptMessage
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Channel, Queue, Store, Tenants
from shared.pipeline.recent_marks import RecentMarks
from shared.pipeline.registry import Registry
from shared.tenants.api_keys import ApiKeys


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the API service needs. It has no access token, and calls no provider to send. All of it is made before the
    server forks: a crash point kills the process that made its port.
    """

    config: Config
    store: Store
    registry: Registry
    queue: Queue
    tenants: Tenants
    channels: Channels[Channel]
    keys: ApiKeys
    dispatch: TaskDispatch
    accept: AcceptMessage
    cancel: Cancel
    connect: Connect
    clock: Clock
    shutdown: Shutdown


@cache
def parts() -> ApiParts:
    """This process's API service. It opens no connection except SQLite's, to check that the file is ours."""
    return build_api(os.environ)


def build_api(environ: Mapping[str, str]) -> ApiParts:
    """Raises ConfigError."""
    settings = config.load(environ, config.API)
    logs.configure(settings["LOG_LEVEL"])
    limits, clock = settings.limits, build_clock(settings)
    store, queue, channels = build_store(settings), build_queue(settings), addressing(settings)
    registry = build_registry(settings, store)
    tenants = build_tenants(settings, registry)
    dispatch = TaskDispatch(queue, clock, limits, channels, tenants)
    return ApiParts(
        config=settings,
        store=store,
        registry=registry,
        queue=queue,
        tenants=tenants,
        channels=channels,
        keys=ApiKeys(registry, clock.monotonic),
        dispatch=dispatch,
        accept=AcceptMessage(
            store,
            dispatch,
            limits,
            clock,
            RecentMarks(store, limits.marks_age, clock),
            build_conversations(settings, store, clock),
        ),
        cancel=Cancel(store, dispatch, limits, clock),
        connect=build_connect(settings, store),
        clock=clock,
        shutdown=Shutdown(),
    )
