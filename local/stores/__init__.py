"""The store's own server, if it has one: the stack runs it unless the environment names another."""

from collections.abc import Mapping

from local.stores.firestore_emulator import FIRESTORE_EMULATOR
from local.stores.program import Program
from local.stores.redis_server import REDIS_SERVER

PROGRAMS: Mapping[str, Program] = {"firestore": FIRESTORE_EMULATOR, "redis": REDIS_SERVER}
"""By the store's name. SQLite is a file and has no server."""
