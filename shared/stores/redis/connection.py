"""The client of one Redis server: connections, scripts, timeouts and retries, and the meaning of its errors."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import StoreUnavailable
from shared.stores.redis.tls import connection_class

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")
Value = str | int

CONNECT_SECONDS = 1.0
PATIENCE = 2.0
"""Seconds after which a server counts as down rather than slow. A DNS look-up of its name is not bounded by this: give
REDIS_URL an address, or a name that the machine itself resolves.
"""

FIRST_TRY = 0.7
"""Timeout of a first try, which normally takes milliseconds. The connection may be dead without notice: the instance
slept for an hour, or a firewall or a failover dropped it. The rest of the patience is for a new connection. Once the
server missed this timeout, each call gets all of the patience, until the server answers quickly again.
"""

QUICK = 10
"""Up to this many scripts in one round trip take only milliseconds."""

_MORE_THAN_THREADS = 10_000
"""A thread holds at most one connection, and a service bounds its threads. redis-py's default of 100 could refuse some
of them.
"""


class NotStored(ValueError):
    """The server refuses this call permanently."""


class RedisClient:
    """The server at `url`, for all threads of a process. It connects on first use, and again in a forked process: a
    child never touches the connections or the locks of its parent. `ca_certs` is, in PEM, an authority that signs only
    for this server.
    """

    def __init__(self, url: str, ca_certs: str | None = None) -> None:
        self._url = url
        self._ca_certs = ca_certs
        self._made: dict[tuple[int, float], Redis] = {}
        self._is_quick_in = 0
        """The process in which the last answer came within FIRST_TRY."""
        self._closed = False

    def run(self, script: str, *arguments: Value) -> Any:
        """What the script returns. Raises StoreUnavailable."""

        def work(redis: "Redis") -> Any:
            from redis.exceptions import NoScriptError

            try:
                return redis.evalsha(_sha(script), 0, *arguments)
            except NoScriptError:  # the server was restarted; EVAL loads the script too
                return redis.eval(script, 0, *arguments)

        return self._quickly(work)

    def run_each(self, script: str, calls: Sequence[Sequence[Value]]) -> list[Any]:
        """What the script returns for each list of arguments, in one round trip: the error in its place if the server
        refuses one, which stops no other. Raises StoreUnavailable if there is no answer.
        """

        def work(redis: "Redis") -> list[Any]:
            from redis.exceptions import NoScriptError, RedisError

            answers = _piped(redis, script, calls)
            if any(isinstance(answer, NoScriptError) for answer in answers):  # the server was restarted: none ran
                redis.script_load(script)
                answers = _piped(redis, script, calls)
            return [_refusal(answer) if isinstance(answer, RedisError) else answer for answer in answers]

        return self._quickly(work) if len(calls) <= QUICK else self._call(work, PATIENCE)

    def command(self, *words: Value) -> Any:
        """What one command returns. Raises StoreUnavailable."""
        return self._quickly(lambda redis: redis.execute_command(*words))  # type: ignore[no-untyped-call]

    def check(self) -> None:
        """Raise StoreUnavailable if the server takes no writes or may evict records."""
        self.command("SET", "pombo:ping", "1")
        self._quickly(_must_keep)

    def close(self) -> None:
        """Close every connection, for good."""
        self._closed = True
        for (pid, _), redis in list(self._made.items()):
            if pid == os.getpid():
                redis.connection_pool.disconnect()

    def _quickly(self, work: Callable[["Redis"], T]) -> T:
        """Run `work`. After FIRST_TRY without an answer, retry once on a new connection, with the rest of the patience.
        The first try may have been carried out; a second one does no harm (see `retry` below).
        """
        from redis.exceptions import TimeoutError

        if self._is_quick_in != os.getpid():  # also in a process's first call, which includes connecting
            return self._call(work, PATIENCE)
        try:
            return self._call(work, FIRST_TRY)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
        return self._call(work, PATIENCE - FIRST_TRY)

    def _forget_idle(self) -> None:
        """Drop the idle connections: what broke one has broken the others too."""
        for (pid, _), redis in list(self._made.items()):
            if pid == os.getpid():
                redis.connection_pool.disconnect(inuse_connections=False)

    def _call(self, work: Callable[["Redis"], T], seconds: float) -> T:
        from redis.exceptions import RedisError, TimeoutError

        if self._closed:
            raise StoreUnavailable("The store is closed.")
        began = time.monotonic()
        try:
            result = work(self._redis(seconds))
        except (RedisError, OSError) as error:
            if isinstance(error, TimeoutError):
                self._is_quick_in = 0
                self._forget_idle()
            raise StoreUnavailable(_sentence(error)) from error
        self._is_quick_in = os.getpid() if time.monotonic() - began < FIRST_TRY else 0
        return result

    def _redis(self, seconds: float) -> "Redis":
        """The pool with this timeout: redis-py keeps a timeout per connection."""
        known = (os.getpid(), seconds)
        redis = self._made.get(known)
        if redis is None:
            redis = self._connect(seconds)
            _must_keep(redis)
            self._made[known] = redis  # of two threads that come here at once, one pool is dropped again
        return redis

    def _connect(self, seconds: float) -> "Redis":
        from redis import ConnectionPool, Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError
        from redis.retry import Retry

        try:
            pool = ConnectionPool.from_url(
                self._url,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=seconds,
                # If a connection broke (a firewall or a failover cut an idle one), retry once, at once. The first try
                # may have been carried out. A second does no harm: a commit finds its own version and reports success,
                # receipts and marks are blind writes, and a commit that lost to a later write is refused and decided
                # again by the token. Timeouts are not retried here but by `_quickly` and the callers.
                retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
                # redis-py checks an idle connection before use, and TCP keeps it alive. A PING would only fail when
                # the command itself fails, and cost a round trip.
                health_check_interval=0,
                max_connections=_MORE_THAN_THREADS,
                decode_responses=True,
                protocol=2,  # 3 adds a handshake and pushed messages, which nothing here needs
                driver_info=None,  # it costs two round trips per connection, to name this library
            )
        except (ValueError, TypeError):  # from None: it quotes the address, which may hold the password
            raise StoreUnavailable("REDIS_URL must be an address like rediss://:password@10.0.0.3:6379/0.") from None
        if self._ca_certs is not None:
            pool.connection_class = connection_class(self._ca_certs)
        return Redis(connection_pool=pool)


def _piped(redis: "Redis", script: str, calls: Sequence[Sequence[Value]]) -> list[Any]:
    """The answers, the server's errors among them."""
    with redis.pipeline(transaction=False) as pipeline:
        for arguments in calls:
            pipeline.evalsha(_sha(script), 0, *arguments)
        return pipeline.execute(raise_on_error=False)


def _refusal(error: Exception) -> Exception:
    """The server's answer to one of several calls as an error of ours. An error of a script, or of a key with a value
    of another type (WRONGTYPE), concerns this call alone; any other (OOM, READONLY, MISCONF) the server.
    """
    from redis.exceptions import ResponseError

    is_its_own = type(error) is ResponseError and _word(error) in (None, "WRONGTYPE")
    refusal: Exception = (NotStored if is_its_own else StoreUnavailable)(_sentence(error))
    refusal.__cause__ = error
    return refusal


def _sha(script: str) -> str:
    """The name by which Redis knows a script."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _must_keep(redis: "Redis") -> None:
    """Raise StoreUnavailable if the server evicts records or is part of a cluster."""
    from redis.exceptions import NoPermissionError

    try:
        # Not CONFIG, which managed Redis does not allow.
        told = redis.info()
    except NoPermissionError:  # INFO is forbidden: docs/stores.md says how the server must be configured
        return
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnavailable(f"Redis may evict records: set its maxmemory-policy to noeviction, not {policy}.")
    if told.get("cluster_enabled"):
        raise StoreUnavailable("REDIS_URL names a node of a Redis Cluster; the store needs a single server.")


def _sentence(error: Exception) -> str:
    """What is wrong, from the error's type and Redis's error code. Never its text, which may be private."""
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
    return f"Redis refused: {_word(error) or type(error).__name__}."


def _word(error: Exception) -> str | None:
    """Redis's error code (MISCONF, BUSY, NOREPLICAS, ...); None for ERR, which redis-py removes."""
    word = re.match(r"[A-Z]+\b", str(error))
    return word[0] if word else None
