"""The internal service, built from its settings."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from shared import config, logs
from shared.bootstrap.adapters import Shutdown, build_clock, build_conversations, build_tenants
from shared.bootstrap.backends import build_queue, build_registry, build_store
from shared.bootstrap.channels import sending
from shared.bootstrap.handlers import build_handler, maker_of_handlers
from shared.bootstrap.secrets import build_credentials, build_secret_cache
from shared.config import Config
from shared.handlers.hung_threads import HungThreads
from shared.handlers.loader import HandlerNotFound, load_handler
from shared.handlers.runner import HandlerRunner
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.clock import SystemClock
from shared.pipeline.counting import Counters
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.drain import Drain
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.ports import Queue, Store
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.reconnects import Reconnects
from shared.pipeline.send_counting import OutboundCounting
from shared.pipeline.sender_health import Senders
from shared.pipeline.sweep import Sweep
from shared.pipeline.tenant_handlers import TenantCode, TenantHandlers


@dataclass(frozen=True, slots=True)
class Internal:
    """What the private service needs."""

    config: Config
    process_inbound: ProcessInbound
    process_outbound: ProcessOutbound
    sweep: Sweep
    drain: Drain
    senders: Senders
    handler: HandlerRunner
    store: Store
    queue: Queue
    shutdown: Shutdown
    counting: OutboundCounting


@cache
def parts() -> Internal:
    """This process's internal service. It opens no connection except SQLite's, to check that the file is ours."""
    return build_internal(os.environ)


def build_internal(environ: Mapping[str, str]) -> Internal:
    """Raises ConfigError, also if the handler cannot be found."""
    try:
        settings = config.load(environ, config.INTERNAL)
    except config.ConfigError as error:
        raise config.ConfigError([*error.faults, *_faults_of_handler(environ)]) from None
    logs.configure(settings["LOG_LEVEL"])
    limits, clock, shutdown = settings.limits, build_clock(settings), Shutdown()
    hung = HungThreads(settings["THREADS"])
    handler = build_handler(settings, hung, shutdown)
    store, queue = build_store(settings), build_queue(settings)
    channels = sending(settings)
    tenants = build_tenants(settings, build_registry(settings, store))
    dispatch = TaskDispatch(queue, clock, limits, channels, tenants)
    secrets = build_secret_cache(settings)
    credentials = build_credentials(settings, secrets)
    senders = Senders(tenants, credentials, store, channels, limits, clock, handler.backend)
    reconnects = Reconnects(tenants, credentials, store, channels, dispatch, clock)
    deployment = TenantCode(handler, BackendMarks(handler.backend, store, limits, clock))
    make = maker_of_handlers(settings, hung, shutdown, store, clock)
    handlers = TenantHandlers(deployment, tenants, secrets.value, make, settings["HANDLER_KINDS"])
    places = HandlerPlaces(settings["THREADS"], hung.of)
    conversations = build_conversations(settings, store, clock)
    counting = OutboundCounting(Counters(SystemClock(), limits.counters_flush), store, clock)
    shutdown.at_end(counting.finish)
    return Internal(
        config=settings,
        process_inbound=ProcessInbound(
            store, tenants, channels, handlers, places, dispatch, limits, clock, shutdown, conversations
        ),
        process_outbound=ProcessOutbound(
            store, tenants, credentials, channels, dispatch, limits, clock, shutdown, conversations, counting
        ),
        sweep=Sweep(store, senders, reconnects, dispatch, limits, clock),
        drain=Drain(store, tenants, channels, dispatch, limits),
        senders=senders,
        handler=handler,
        store=store,
        queue=queue,
        shutdown=shutdown,
        counting=counting,
    )


def _faults_of_handler(environ: Mapping[str, str]) -> list[str]:
    """Why the code that HANDLER names cannot run, reported together with other faults."""
    try:
        named = config.load(environ, config.INTERNAL, only=("HANDLER", "HANDLER_URL")).get("HANDLER")
        if named:
            load_handler(named)
    except config.ConfigError:
        return []  # the fault of its setting is reported already
    except HandlerNotFound as error:
        return [str(error)]
    return []
