"""A real redis-server for the contract suite: one for all tests, on a free port, with an empty database for each."""

import atexit
import shutil
import subprocess
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError

from local.faulty_proxy import FaultyProxy
from shared.domain.limits import Limits
from shared.pipeline.registry import EntryName
from shared.stores.redis.store import RedisStore
from tests.support.backends import Backend, Clock
from tests.support.machine import missing
from tests.support.real_servers import free_port, frozen, until

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass
class RedisServer:
    """A redis-server process that keeps its port and directory through every kill and start. A context manager."""

    directory: Path
    options: tuple[str, ...] = ()
    password: str = ""
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    clients: list["Redis"] = field(default_factory=list)

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}/0"

    @property
    def raw(self) -> Any:
        """A client without Pombo's code."""
        if not self.clients:
            self.clients.append(Redis.from_url(self.url, decode_responses=True, protocol=2))
        return self.clients[0]

    def start(self, *options: str, ready: bool = True) -> None:
        self.port = self.port or free_port()
        command = [_redis_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        command += ["--save", "", "--logfile", "redis.log", *DURABLE, *self.options, *options]
        command += ["--requirepass", self.password] if self.password else []
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if ready:
            until(self._answers)

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        if self.process:
            self.kill()

    def frozen(self) -> AbstractContextManager[None]:
        assert self.process
        return frozen(self.process.pid)

    def _answers(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.directory / "redis.log").read_text()
        try:
            return bool(self.raw.ping())
        except ConnectionError:
            return False


def backend(tmp_path: Path) -> Backend:
    server, proxy = _shared_server()
    server.raw.flushdb()

    def expire(store: RedisStore, then: datetime) -> None:
        """A test cannot move Redis's clock, so records that would have expired by then expire now."""
        life = (then - clock.now).total_seconds() * 1000
        for name in server.raw.scan_iter(count=1000):
            if 0 <= server.raw.pttl(name) <= life:
                server.raw.pexpire(name, 0)

    def spoil(name: EntryName, text: str) -> None:
        server.raw.hset(f"pombo:entry:{name.kind}:{name.id}", "fields", text)

    clock = Clock()
    url = f"redis://127.0.0.1:{proxy.port}/0"
    return Backend(lambda clock: RedisStore(url, Limits(), clock), proxy.silent, expire, spoil, clock, proxy=proxy)


@cache
def _shared_server() -> tuple[RedisServer, FaultyProxy]:
    directory = Path(tempfile.mkdtemp(prefix="pombo-redis-"))
    server = RedisServer(directory)
    server.start()
    proxy = FaultyProxy("127.0.0.1", server.port)
    atexit.register(lambda: (proxy.cut(), server.stop(), shutil.rmtree(directory, ignore_errors=True)))
    return server, proxy


def _redis_server() -> str:
    found = shutil.which("redis-server")
    if found is None:
        missing("redis-server is not installed: the tests of the Redis store need it (apt-get install redis-server).")
    return found
