"""What all services and the command line use: the registry, the clock, the queues' settings, the crash points."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from shared import config
from shared.channels.meta.webhook import PROVIDER
from shared.config import Config
from shared.domain.errors import StoreUnavailable
from shared.domain.limits import Limits
from shared.domain.record import Kind
from shared.domain.tenants import Sender
from shared.pipeline.clock import Clock, SystemClock
from shared.pipeline.intake import IntakeTenants
from shared.queues.task_content import QueueSettings
from shared.tenants.environment import EnvironmentTenants

if TYPE_CHECKING:
    from shared.pipeline.conversations import Conversations
    from shared.pipeline.ports import Store, Tenants
    from shared.pipeline.registry import IntakeRegistry, Registry
    from shared.stores.sqlite.intake import SqliteIntake

P = TypeVar("P")
S = TypeVar("S", bound="SqliteIntake")


class Shutdown:
    """Whether this process is shutting down. The server's signal handler sets it once."""

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._last: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Have this called when the last request has its response. It may take 2 s, and raises nothing."""
        self._last.append(call)

    def end(self) -> None:
        """Make those calls. The server does, once."""
        for call in self._last:
            call()

    def begin(self) -> None:
        self._begun.set()

    def __call__(self) -> bool:
        return self._begun.is_set()


def crash_points() -> tuple[str, ...]:
    """All values of CRASH_AT."""
    from shared import crash

    return crash.points()


def with_readable_file(store: S) -> S:
    """The same SQLite store. Raises ConfigError if its file is not one of this version's."""
    from shared.stores.sqlite.schema import UnknownVersion

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


def queue_settings(settings: Config) -> QueueSettings:
    """Where the queues are, and what their tasks carry."""
    limits: Limits = settings.limits
    return QueueSettings(
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
        drain=settings["DRAIN_TASK_QUEUE_NAME"],
        pairs=settings["TENANT_QUEUES"],
        patterns={
            Kind.INBOUND: settings["INBOUND_TENANT_QUEUE_PATTERN"],
            Kind.OUTBOUND: settings["TENANT_QUEUE_PATTERN"],
        },
    )


def senders_of(phone_number_id: str) -> Sequence[Sender]:
    """The senders of an environment with this WHATSAPP_PHONE_NUMBER_ID."""
    return EnvironmentTenants.of((PROVIDER, phone_number_id)).senders_of_environment()


def build_tenants(settings: Config, registry: "Registry") -> "Tenants":
    """The tenants of the environment and of the registry, for the internal service and the command line."""
    from shared.tenants.registered import RegisteredTenants

    tenants: Tenants = RegisteredTenants(_environment(settings), registry, SystemClock.monotonic)
    return port(settings, "tenants", tenants)


def build_intake_tenants(settings: Config, registry: "IntakeRegistry") -> IntakeTenants:
    """The same, for the webhook service."""
    from shared.tenants.registered_intake import RegisteredIntakeTenants

    tenants: IntakeTenants = RegisteredIntakeTenants(_environment(settings), registry, SystemClock.monotonic)
    return port(settings, "tenants", tenants)


def _environment(settings: Config) -> EnvironmentTenants:
    return EnvironmentTenants(tuple(senders_of(settings["WHATSAPP_PHONE_NUMBER_ID"])))


def build_conversations(settings: Config, store: "Store", clock: Clock) -> "Conversations":
    """The conversations, whose ids are made under ID_KEY."""
    from shared.pipeline.conversations import Conversations

    return Conversations(store, clock, settings["ID_KEY"].encode(), is_ordered=settings["TURNS"] == "contact")


def build_clock(settings: Config) -> Clock:
    """The machine's clock."""
    return port(settings, "clock", SystemClock())


def port(settings: Config, name: str, adapter: P) -> P:
    """The adapter of the port `name`, with the crash that CRASH_AT asks for, if any. Raises ConfigError for an unknown
    crash point.
    """
    crash_at = settings.get("CRASH_AT")
    if crash_at is None:
        return adapter
    from shared import crash

    return crash.wrap(name, adapter, crash_at, crash.mark_of(settings["SQLITE_PATH"].parent, crash_at))
