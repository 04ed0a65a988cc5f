"""The whole store and the queue, for the internal service and the command line. intake_store.py has the webhook's."""

from collections.abc import Callable, Mapping
from typing import Protocol

from shared.bootstrap.adapters import port, queue_settings, with_readable_file
from shared.config import Config
from shared.pipeline.clock import SystemClock
from shared.pipeline.ports import Queue, Store
from shared.pipeline.registry import Registry


class RegistryStore(Store, Registry, Protocol):
    """A store that keeps the registry too, as each does."""

    def close(self) -> None:
        """End its connections. No other call may follow."""
        ...


def build_store(settings: Config) -> RegistryStore:
    """The store that STORE names."""
    makers: Mapping[str, Callable[[Config], RegistryStore]] = {
        "sqlite": sqlite_store,
        "firestore": firestore_store,
        "redis": redis_store,
    }
    return port(settings, "store", makers[settings["STORE"]](settings))


def build_registry(settings: Config, store: RegistryStore) -> Registry:
    """The registry in this store."""
    return port(settings, "registry", store)


def sqlite_store(settings: Config) -> RegistryStore:
    """A store in one file. Raises ConfigError."""
    from shared.stores.sqlite.store import SqliteStore

    return with_readable_file(SqliteStore(settings["SQLITE_PATH"], settings.limits, SystemClock().now))


def firestore_store(settings: Config) -> RegistryStore:
    """A store in a Firestore database."""
    from shared.stores.firestore.store import FirestoreStore

    return FirestoreStore(
        settings["GOOGLE_CLOUD_PROJECT"],
        settings["FIRESTORE_DATABASE"],
        emulator=settings.get("FIRESTORE_EMULATOR_HOST"),
    )


def redis_store(settings: Config) -> RegistryStore:
    """A store in a Redis database."""
    from shared.stores.redis.store import RedisStore

    return RedisStore(settings["REDIS_URL"], settings.limits, SystemClock().now, settings.get("REDIS_CA_CERTS"))


def build_queue(settings: Config) -> Queue:
    """The queues that the settings name."""
    from shared.queues.cloud_tasks import CloudTasksQueue

    return port(settings, "queue", CloudTasksQueue(queue_settings(settings)))


def ping_drain(settings: Config) -> None:
    """Raise QueueUnavailable unless the queue of drains answers. Only doctor asks."""
    from shared.queues.cloud_tasks import CloudTasksQueue

    CloudTasksQueue(queue_settings(settings)).ping_drain()
