"""The store of the webhook service: only the part of it that receives."""

from typing import Protocol

from shared.bootstrap.adapters import port, with_readable_file
from shared.config import Config
from shared.net.google_token import GoogleToken
from shared.pipeline.clock import SystemClock
from shared.pipeline.intake import IntakeStore
from shared.pipeline.registry import IntakeRegistry


class IntakeRegistryStore(IntakeStore, IntakeRegistry, Protocol):
    """A store that keeps the registry too, as each does."""


def build_intake_store(settings: Config, token: GoogleToken) -> IntakeRegistryStore:
    """The store that STORE names. Firestore is called with `token`."""
    return port(
        settings, "store", _firestore(settings, token) if settings["STORE"] == "firestore" else _threaded(settings)
    )


def build_intake_registry(settings: Config, store: IntakeRegistryStore) -> IntakeRegistry:
    """The registry in this store."""
    return port(settings, "registry", store)


def _firestore(settings: Config, token: GoogleToken) -> IntakeRegistryStore:
    from shared.stores.firestore.intake import FirestoreIntake

    return FirestoreIntake(
        settings["GOOGLE_CLOUD_PROJECT"],
        settings["FIRESTORE_DATABASE"],
        settings.limits,
        SystemClock().now,
        token,
        emulator=settings.get("FIRESTORE_EMULATOR_HOST"),
    )


def _threaded(settings: Config) -> IntakeRegistryStore:
    from shared.stores.threaded_intake import ThreadedIntake

    if settings["STORE"] == "sqlite":
        from shared.stores.sqlite.intake import SqliteIntake

        file = with_readable_file(SqliteIntake(settings["SQLITE_PATH"], settings.limits, SystemClock().now))
        return ThreadedIntake(file)
    from shared.stores.redis.intake import RedisIntake

    certificates = settings.get("REDIS_CA_CERTS")
    return ThreadedIntake(RedisIntake(settings["REDIS_URL"], settings.limits, SystemClock().now, certificates))
