"""The internal service, built from its settings."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from shared import config, logs
from shared.bootstrap.adapters import Shutdown, build_clock, build_tenants, port
from shared.bootstrap.backends import build_queue, build_store
from shared.bootstrap.channels import sending
from shared.config import Config
from shared.handlers.loader import HandlerNotFound, TeamFunction, load_handler
from shared.handlers.runner import HandlerRunner
from shared.net.egress_policy import ANYWHERE
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.clock import SystemClock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Queue, Store
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.sender_health import Senders
from shared.pipeline.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Internal:
    """What the private service needs."""

    config: Config
    process_inbound: ProcessInbound
    process_outbound: ProcessOutbound
    sweep: Sweep
    senders: Senders
    handler: HandlerRunner
    store: Store
    queue: Queue
    shutdown: Shutdown


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
    handler = port(settings, "handler", _handler(settings, shutdown))
    store, queue = build_store(settings), build_queue(settings)
    channels = sending(settings)
    dispatch = TaskDispatch(queue, clock, limits, channels)
    tenants = build_tenants(settings)
    backend = BackendMarks(handler.backend, store, limits, clock)
    senders = Senders(tenants, store, channels, limits, clock, handler.backend)
    return Internal(
        config=settings,
        process_inbound=ProcessInbound(store, tenants, channels, handler, backend, dispatch, limits, clock, shutdown),
        process_outbound=ProcessOutbound(store, channels, dispatch, limits, clock, shutdown),
        sweep=Sweep(store, senders, dispatch, limits, clock),
        senders=senders,
        handler=handler,
        store=store,
        queue=queue,
        shutdown=shutdown,
    )


def _handler(settings: Config, stopping: Callable[[], bool]) -> HandlerRunner:
    """The team's code, in this process or behind HANDLER_URL."""
    limits, threads, all_or_nothing = settings.limits, settings["THREADS"], settings["PLAN_ALL_OR_NOTHING"]
    if settings.get("HANDLER_URL"):
        from shared.handlers.url import GRACE, Backend

        backend = Backend(
            settings["HANDLER_URL"],
            secrets=settings["HANDLER_URL_SECRET"],
            timeout=limits.handler_timeout,
            connect=limits.post.connect,
            connections=threads,
            max_replies=limits.max_replies,
            now=SystemClock().now,
            kinds=settings["HANDLER_KINDS"],
            reach=ANYWHERE,
        )
        return HandlerRunner(
            backend,
            timeout=limits.handler_timeout + GRACE,
            threads=threads,
            stopping=stopping,
            all_or_nothing=all_or_nothing,
        )
    try:
        function = TeamFunction(load_handler(settings["HANDLER"]), limits.max_replies)
    except HandlerNotFound as error:
        raise config.ConfigError([str(error)]) from error
    return HandlerRunner(
        function,
        timeout=limits.handler_timeout,
        threads=threads,
        stopping=stopping,
        all_or_nothing=all_or_nothing,
        show_traceback=settings["HANDLER_TRACEBACK"],
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
