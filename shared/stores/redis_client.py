"""One Redis server as the store calls it: its connections, its scripts, its patience, and what its refusals mean."""

import hashlib
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")
Value = str | int

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 1.8
"""A server that is frozen or gone is told from a slow one by then. A look-up of its name in the DNS is not bounded by
this: give REDIS_URL an address, or a name that the machine itself resolves.
"""

_MORE_THAN_THREADS = 10_000
"""A thread holds at most one connection, and a service bounds its threads; redis-py's own 100 would refuse the rest."""


class RedisClient:
    """The server at `url`, for all threads of a process. Connects when first used, and anew in a process that was
    forked since: a child never touches the connections or the locks of its parent.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: tuple[int, Redis | None] = (0, None)
        self._closed = False

    def run(self, script: str, *arguments: Value) -> Any:
        """What the script returns. Raises StoreUnavailable."""

        def work(redis: "Redis") -> Any:
            from redis.exceptions import NoScriptError

            try:
                return redis.evalsha(_sha(script), 0, *arguments)
            except NoScriptError:  # a server that was started anew; EVAL loads it too
                return redis.eval(script, 0, *arguments)

        return self._call(work)

    def command(self, *words: Value) -> Any:
        """What one command returns. Raises StoreUnavailable."""
        return self._call(lambda redis: redis.execute_command(*words))  # type: ignore[no-untyped-call]  # it has none

    def check(self) -> None:
        """Raise StoreUnavailable where the server cannot be written to, or may throw away what it was given."""
        self.command("SET", "pombo:ping", "1")
        self._call(_must_keep)

    def close(self) -> None:
        """Close every connection, for good."""
        self._closed = True
        pid, redis = self._made
        if redis is not None and pid == os.getpid():
            redis.connection_pool.disconnect()

    def _call(self, work: Callable[["Redis"], T]) -> T:
        from redis.exceptions import RedisError

        if self._closed:
            raise StoreUnavailable("The store is closed.")
        try:
            return work(self._redis())
        except (RedisError, OSError) as error:
            raise StoreUnavailable(_sentence(error)) from error

    def _redis(self) -> "Redis":
        pid, redis = self._made
        if redis is None or pid != os.getpid():
            redis = self._connect()
            _must_keep(redis)
            self._made = (os.getpid(), redis)  # of two threads that come here at once, one pool is dropped again
        return redis

    def _connect(self) -> "Redis":
        from redis import ConnectionPool, Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError
        from redis.retry import Retry

        try:
            pool = ConnectionPool.from_url(
                self._url,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                # Once more where a connection broke, at once: an idle one that a firewall or a failover had cut. What
                # was sent may have been carried out. Sent again it does no harm: a commit finds its own version and
                # says so, a receipt and a mark are blind, and one that lost to a later write is refused and decided
                # anew, where the token tells. Not after a timeout: the next one would only take as long.
                retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
                # An idle connection is looked at before it is used, and kept alive by TCP: a PING could only fail
                # where the command itself fails, at the price of a round trip.
                health_check_interval=0,
                max_connections=_MORE_THAN_THREADS,
                decode_responses=True,
                protocol=2,  # 3 brings a handshake, and messages that the server pushes: nothing here needs them
                driver_info=None,  # two round trips for each connection, to say which library this is
            )
        except (ValueError, TypeError):  # from None: it quotes the address, which may hold the password
            raise StoreUnavailable("REDIS_URL is no address like rediss://:password@10.0.0.3:6379/0.") from None
        return Redis(connection_pool=pool)


def _sha(script: str) -> str:
    """What Redis knows a script by."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _must_keep(redis: "Redis") -> None:
    """Raise StoreUnavailable where the server evicts records, or is a part of a cluster."""
    from redis.exceptions import NoPermissionError

    try:
        # Not CONFIG, which managed Redis does not allow.
        told = redis.info()
    except NoPermissionError:  # it will not say: docs/stores.md says what it must be
        return
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnavailable(f"Redis may throw records away: set its maxmemory-policy to noeviction, not {policy}.")
    if told.get("cluster_enabled"):
        raise StoreUnavailable("REDIS_URL names a node of a Redis Cluster; the store needs a server of its own.")


def _sentence(error: Exception) -> str:
    """What is wrong, from the error's type and Redis's own word for it: never its text, which may hold anything."""
    from redis import exceptions

    match error:
        case exceptions.BusyLoadingError():
            return "Redis is still loading its data."
        case exceptions.AuthenticationError() | exceptions.NoPermissionError():
            return "Redis refused the user or the password in REDIS_URL."
        case exceptions.OutOfMemoryError():
            return "Redis is out of memory."
        case exceptions.ReadOnlyError():
            return "REDIS_URL names a replica, which takes no writes."
        case exceptions.TimeoutError():
            return "Redis did not answer in time."
        case exceptions.ConnectionError() | OSError():
            return "Redis cannot be reached."
    word = re.match(r"[A-Z]+\b", str(error))  # MISCONF, BUSY, NOREPLICAS, ...
    return f"Redis refused: {word[0] if word else type(error).__name__}."
