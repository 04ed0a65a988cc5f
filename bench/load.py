"""python -m bench.load: the load. It reads what to send as JSON, prints "ready", waits for "go" and prints the result.

Closed loop: each of N connections sends its next request once the last is answered. Open loop: requests are sent at
times fixed beforehand, in gaps that are random with a fixed seed, and a latency counts from that time, so that a slow
answer delays no later request unnoticed. It opens a connection when no other is idle, as Cloud Run's front end does:
a silent connection would occupy a thread of gunicorn.
"""

import asyncio
import json
import random
import selectors
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import httptools
import uvloop

from bench import payloads

ANSWER_SECONDS = 30.0
"""How long an answer may take before it counts as missing."""
LARGE_SECONDS = 60.0
"""After which a large POST is not delivered once more."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to send."""

    port: int
    kind: str
    tag: int
    connections: int
    seconds: float
    most: int
    """No more requests than this, whatever the time."""
    rate: float = 0.0
    """Requests a second of an open loop; 0 for a closed loop."""
    large: int = 0
    """If not 0: a single POST of so many messages, repeated as Meta does until it is answered 200."""
    keys: Sequence[str] = ()
    """If there are any: messages for the API, with these API keys in turn."""
    status: int = 200
    """Of an answer that counts."""


@dataclass(slots=True)
class Result:
    """What came of it. Latencies are in seconds."""

    sent: int = 0
    ok: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """Of the other answers, and of missing ones."""
    seconds: float = 0.0
    own_cpu: float = 0.0
    resent: int = 0
    """Requests whose connection the server had closed as idle, sent again on another."""
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    late_p99: float = 0.0
    """How late this program itself sent a request of an open loop."""


class Client(asyncio.Protocol):
    """A connection, with one request at a time."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self.due = 0.0
        self.request = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes, due: float) -> None:
        self.due, self.request = due, request
        if self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.answers += 1
        status = self._parser.get_status_code()
        keeps = self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        self._load.answered(self, status, keeps)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._load.lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Load:
    """One load, closed or open."""

    def __init__(self, spec: Spec, requests: list[bytes]) -> None:
        self._spec = spec
        self._requests = iter(requests)
        self._idle: list[Client] = []
        self._due: deque[tuple[float, bytes]] = deque()
        self._busy: set[Client] = set()
        self._latencies: list[float] = []
        self._late: list[float] = []
        self._until = 0.0
        self._finished = asyncio.Event()
        self._sends_all = False
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.result = Result()

    async def connect(self) -> None:
        """Open all connections of a closed loop; they are used at once."""
        for _ in range(0 if self._spec.rate else self._spec.connections):
            self._idle.append(await self._connected())

    async def _connected(self) -> Client:
        loop = asyncio.get_running_loop()
        self._opening += 1
        try:
            _, client = await loop.create_connection(lambda: Client(self), "127.0.0.1", self._spec.port)
        finally:
            self._opening -= 1
        return client

    async def run(self) -> Result:
        began, cpu = time.perf_counter(), time.process_time()
        self._until = began + self._spec.seconds
        if self._spec.rate:
            await self._send_open(began)
            self._sends_all = True
            self._finish_if_done()
        else:
            for client in list(self._idle):
                self._next(client)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._finished.wait(), self._spec.seconds + ANSWER_SECONDS)
        result = self.result
        result.seconds = time.perf_counter() - began
        result.own_cpu = time.process_time() - cpu
        if missing := len(self._busy) + len(self._due):
            result.statuses["no answer"] += missing
        self._summarise()
        for client in [*self._idle, *self._busy]:
            client.close()
        return result

    def answered(self, client: Client, status: int, keeps: bool) -> None:
        self._latencies.append(time.perf_counter() - client.due)
        self._busy.discard(client)
        if status == self._spec.status:
            self.result.ok += 1
        else:
            self.result.statuses[str(status)] += 1
        if keeps:
            self._next(client)
        else:
            client.close()
            self._open_another()

    def lost(self, client: Client) -> None:
        """The server closed the connection. If it had answered on it before, it closed it as idle."""
        if client in self._idle:
            self._idle.remove(client)
        if client not in self._busy:
            return
        self._busy.discard(client)
        if client.answers:
            self.result.resent += 1
            self.result.sent -= 1
            self._due.appendleft((client.due, client.request))
            self._open_another()
        else:
            self.result.statuses["connection lost"] += 1
            self._finish_if_done()

    def _open_another(self) -> None:
        task = asyncio.get_running_loop().create_task(self._replace())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _replace(self) -> None:
        self._next(await self._connected())

    def _next(self, client: Client) -> None:
        if self._due:
            self._send(client, *self._due.popleft())
            return
        if self._spec.rate:
            self._idle.append(client)
            self._finish_if_done()
            return
        now = time.perf_counter()
        request = next(self._requests, None) if now < self._until else None
        if request is None:
            self._idle.append(client)
            self._finish_if_done()
        else:
            self._send(client, now, request)

    def _send(self, client: Client, due: float, request: bytes) -> None:
        if client in self._idle:
            self._idle.remove(client)
        self._busy.add(client)
        self.result.sent += 1
        client.send(request, due)

    async def _send_open(self, began: float) -> None:
        gaps = random.Random(1)
        due = began
        for request in self._requests:
            due += gaps.expovariate(self._spec.rate)
            if due >= self._until:
                return
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            self._late.append(time.perf_counter() - due)
            if self._idle:
                self._send(self._idle[-1], due, request)
                continue
            self._due.append((due, request))
            if len(self._busy) + self._opening < self._spec.connections:
                self._open_another()

    def _finish_if_done(self) -> None:
        sends_no_more = self._sends_all if self._spec.rate else True
        if sends_no_more and not self._busy and not self._due:
            self._finished.set()

    def _summarise(self) -> None:
        ordered = sorted(self._latencies) or [0.0]
        result = self.result
        result.p50, result.p95, result.p99 = (percentile(ordered, share) for share in (0.50, 0.95, 0.99))
        result.late_p99 = percentile(sorted(self._late) or [0.0], 0.99)


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


async def send_large(spec: Spec) -> Result:
    """One POST of many messages until it is answered 200; `sent` is the number of its deliveries."""
    request = payloads.large_request(spec.tag, spec.large)
    announce()
    result, began, cpu = Result(), time.perf_counter(), time.process_time()
    while result.ok == 0 and result.sent < spec.most and time.perf_counter() < began + LARGE_SECONDS:
        load = Load(Spec(spec.port, spec.kind, spec.tag, 1, ANSWER_SECONDS, 1), [request])
        await load.connect()
        one = await load.run()
        result.sent += 1
        result.ok += one.ok
        result.statuses.update(one.statuses)
    result.seconds, result.own_cpu = time.perf_counter() - began, time.process_time() - cpu
    return result


async def send_many(spec: Spec) -> Result:
    prepared: Iterator[bytes] = payloads.requests(spec.kind, spec.tag, spec.most)
    if spec.keys:
        prepared = payloads.api_requests(spec.tag, spec.most, spec.keys)
    load = Load(spec, list(prepared))
    await load.connect()
    announce()
    return await load.run()


def announce() -> None:
    """Tell that all is prepared, and wait for the word."""
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit(1)


def main() -> None:
    spec = Spec(**json.loads(sys.stdin.readline()))
    work = send_large(spec) if spec.large else send_many(spec)
    if spec.rate:
        # uvloop's timers count milliseconds, and so does epoll: select() counts microseconds.
        loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        result = loop.run_until_complete(work)
        loop.close()
    else:
        result = uvloop.run(work)
    print(json.dumps({**asdict(replace(result, statuses=Counter())), "statuses": dict(result.statuses)}), flush=True)


if __name__ == "__main__":
    main()
