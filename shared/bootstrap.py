"""Bootstrap: builds every provider, store and queue. It is the only module that knows all adapters."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from shared import config, logs
from shared.channels.meta.channel import MetaChannel
from shared.config import Config
from shared.domain.errors import ItemUnparsable, StoreUnavailable
from shared.domain.limits import Limits
from shared.domain.messages import Message
from shared.domain.record import Delivery, Kind
from shared.handlers.loader import HandlerNotFound, TeamFunction, load_handler
from shared.handlers.runner import HandlerRunner
from shared.net.egress_policy import ANYWHERE
from shared.pipeline.accept import Accept
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock, SystemClock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Channel, Queue, Sender, Store, Tenants
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.sender_health import Senders
from shared.pipeline.sweep import Sweep
from shared.pipeline.webhook_store import WebhookStore
from shared.queues.cloud_tasks import CloudTasksQueue, QueueSettings
from shared.tenants.environment import EnvironmentTenants

P = TypeVar("P")


class Shutdown:
    """Whether this process is shutting down. The server's signal handler sets it once."""

    def __init__(self) -> None:
        self._begun = threading.Event()

    def begin(self) -> None:
        self._begun.set()

    def __call__(self) -> bool:
        return self._begun.is_set()


@dataclass(frozen=True, slots=True)
class Webhook:
    """What the public service needs."""

    config: Config
    accept: Accept
    channels: Channels
    store: WebhookStore
    queue: Queue
    shutdown: Shutdown


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


@dataclass(frozen=True, slots=True)
class ChannelMaker:
    """How to create a provider's channel, each time with only the secrets that its user needs."""

    receiving: Callable[[Config], Channel]
    """For the webhook service."""
    sending: Callable[[Config], Channel]
    """For the internal service, which also reads what is stored."""
    reading: Callable[[], Channel]
    """Without a secret, for a command that reads what is stored."""


def _meta_receiving(settings: Config) -> Channel:
    return MetaChannel(app_secrets=settings["META_APP_SECRET"], verify_tokens=settings["META_VERIFY_TOKEN"])


def _meta_sending(settings: Config) -> Channel:
    return MetaChannel(
        credentials={settings["WHATSAPP_PHONE_NUMBER_ID"]: settings["WHATSAPP_ACCESS_TOKEN"]},
        base_url=settings["WHATSAPP_API_BASE_URL"],
        version=settings["WHATSAPP_API_VERSION"],
        post=settings.limits.post,
        reach=ANYWHERE,
    )


CHANNELS: Sequence[ChannelMaker] = (ChannelMaker(_meta_receiving, _meta_sending, MetaChannel),)
"""The makers of all providers. Both services and the command line use this list, so that none lacks a provider."""


@cache
def webhook() -> Webhook:
    """This process's webhook service. It opens no connection except SQLite's, to check that the file is ours."""
    return build_webhook(os.environ)


@cache
def internal() -> Internal:
    """This process's internal service. It opens no connection except SQLite's, to check that the file is ours."""
    return build_internal(os.environ)


def build_webhook(environ: Mapping[str, str]) -> Webhook:
    """Raises ConfigError."""
    settings = config.load(environ, config.WEBHOOK)
    logs.configure(settings["LOG_LEVEL"])
    store, queue, clock = build_store(settings), build_queue(settings), _clock(settings)
    channels = Channels.of(*(_port(settings, "channel", each.receiving(settings)) for each in CHANNELS))
    accept = Accept(
        store=store,
        queue=queue,
        tenants=_tenants(settings),
        channels=channels,
        limits=settings.limits,
        clock=clock,
    )
    return Webhook(settings, accept, channels, store, queue, Shutdown())


def build_internal(environ: Mapping[str, str]) -> Internal:
    """Raises ConfigError, also if the handler cannot be found."""
    try:
        settings = config.load(environ, config.INTERNAL)
    except config.ConfigError as error:
        raise config.ConfigError([*error.faults, *_faults_of_handler(environ)]) from None
    logs.configure(settings["LOG_LEVEL"])
    limits, clock, shutdown = settings.limits, _clock(settings), Shutdown()
    handler = _port(settings, "handler", _handler(settings, shutdown))
    store, queue = build_store(settings), build_queue(settings)
    channels = Channels.of(*(_port(settings, "channel", each.sending(settings)) for each in CHANNELS))
    dispatch = TaskDispatch(queue, clock, limits, channels)
    tenants = _tenants(settings)
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


def crash_points() -> tuple[str, ...]:
    """All values of CRASH_AT."""
    from shared import crash

    return crash.points()


def explain(provider: str, code: int, answer: str) -> str | None:
    """What a provider's error code means to an operator, given the verdict `answer`. None for an unknown code."""
    channel = _reading_channels().get(provider)
    return channel.explain(code, answer) if channel else None


def remark(record: Delivery) -> str | None:
    """What an operator must know of a stored event, as its provider's channel reads it; None if nothing."""
    channel = _reading_channels().get(record.provider)
    return channel.remark(record) if channel else None


def read_message(record: Delivery) -> Message | None:
    """The message in a stored event; None if the event is not a customer's message or cannot be read."""
    channel = _reading_channels().get(record.provider)
    try:
        return channel.read(record) if channel else None
    except ItemUnparsable:
        return None


@cache
def _reading_channels() -> Channels:
    """All channels without secrets, for reading stored records."""
    return Channels.of(*(each.reading() for each in CHANNELS))


def build_store(settings: Config) -> Store:
    """The store that STORE names."""
    makers: Mapping[str, Callable[[Config], Store]] = {"sqlite": _sqlite, "firestore": _firestore, "redis": _redis}
    return _port(settings, "store", makers[settings["STORE"]](settings))


def _sqlite(settings: Config) -> Store:
    from shared.stores.sqlite.schema import UnknownVersion
    from shared.stores.sqlite.store import SqliteStore

    store = SqliteStore(settings["SQLITE_PATH"], settings.limits, SystemClock().now)
    try:
        store.ping()
    except UnknownVersion as error:
        raise config.ConfigError([str(error)]) from error
    except StoreUnavailable as error:
        if getattr(error.__cause__, "sqlite_errorname", "") in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
            raise config.ConfigError(
                ["SQLITE_PATH names a file that is damaged or not a database; move it away."]
            ) from error
        # Perhaps it is only locked at this moment: /readyz reports it.
    return store


def _firestore(settings: Config) -> Store:
    from shared.stores.firestore.store import FirestoreStore

    return FirestoreStore(
        settings["GOOGLE_CLOUD_PROJECT"],
        settings["FIRESTORE_DATABASE"],
        settings.limits,
        SystemClock().now,
        emulator=settings.get("FIRESTORE_EMULATOR_HOST"),
    )


def _redis(settings: Config) -> Store:
    from shared.stores.redis.store import RedisStore

    return RedisStore(settings["REDIS_URL"], settings.limits, SystemClock().now, settings.get("REDIS_CA_CERTS"))


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


def build_queue(settings: Config) -> Queue:
    """The queues that the settings of either service name."""
    limits: Limits = settings.limits
    queue = CloudTasksQueue(
        QueueSettings(
            project=settings["GOOGLE_CLOUD_PROJECT"],
            location=settings["CLOUD_TASKS_LOCATION"],
            queues={
                Kind.INBOUND: settings["INBOUND_TASK_QUEUE_NAME"],
                Kind.OUTBOUND: settings["OUTBOUND_TASK_QUEUE_NAME"],
            },
            base_url=settings["INTERNAL_TASK_BASE_URL"],
            token=settings["INTERNAL_TASK_TOKEN"][0],
            dispatch_deadline=limits.dispatch_deadline,
            emulator=settings.get("CLOUD_TASKS_EMULATOR_HOST"),
        )
    )
    return _port(settings, "queue", queue)


def senders_of(phone_number_id: str) -> Sequence[Sender]:
    """The senders of an environment with this WHATSAPP_PHONE_NUMBER_ID."""
    return EnvironmentTenants.of((MetaChannel.provider, phone_number_id)).senders()


def _tenants(settings: Config) -> Tenants:
    return _port(settings, "tenants", EnvironmentTenants(tuple(senders_of(settings["WHATSAPP_PHONE_NUMBER_ID"]))))


def _clock(settings: Config) -> Clock:
    return _port(settings, "clock", SystemClock())


def _port(settings: Config, name: str, port: P) -> P:
    """The port, with the crash that CRASH_AT asks for, if any. Raises ConfigError for an unknown crash point."""
    crash_at = settings.get("CRASH_AT")
    if crash_at is None:
        return port
    from shared import crash

    return crash.wrap(name, port, crash_at, crash.mark_of(settings["SQLITE_PATH"].parent, crash_at))
