"""Where a message's processor time goes: the webhook service in this process, without the kernel.

python -m bench.profile [--connections 16] [--messages 2000] [--rounds 8]

Its connections are objects: a client's gives the service one webhook after another, and those to Firestore and Cloud
Tasks answer at once. So a figure has no system calls in it but those of the log, and it varies by a few percent where
that of `make bench` varies by ten. It tells whether a change helps; `make bench` tells how much.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

import uvloop

from bench import payloads
from bench.environments import ROOT
from bench.servers import Addresses, settings
from services.bounded_protocol import BoundedProtocol
from services.exchange import App
from services.webhook.__main__ import make_app
from shared.bootstrap.webhook import build_webhook
from shared.net import async_http

SAMPLE_SECONDS = 0.001
"""Of processor time between two looks at what runs."""

AREAS = (
    ("services/", "server, routing, admission"),
    ("shared/channels/", "signature and parse"),
    ("shared/net/bounded_json.py", "signature and parse"),
    ("shared/net/", "clients and group commit"),
    ("shared/stores/", "the record as JSON, the store's results"),
    ("shared/queues/", "the task as JSON"),
    ("shared/logs.py", "log lines"),
    ("shared/pipeline/log_fields.py", "log lines"),
    ("shared/", "accept: events, records, tasks"),
)
"""What the time counts as, by the innermost frame of ours."""

TASK = b'{"name":"projects/p/locations/l/queues/inbound/tasks/0123456789012345678901234567890123456789"}'


class Upstream:
    """The transport of a connection to Firestore or Cloud Tasks. An answer takes a few turns of the event loop, as
    long as a network would give other requests theirs.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def write(self, request: bytes) -> None:
        turns = 2
        answer = TASK
        if b":batchWrite " in request[:200]:
            turns = 3
            count = request.count(b'{"update":')
            times = b",".join([b'{"updateTime":"2026-11-29T00:00:00Z"}'] * count)
            answer = b'{"writeResults":[%b],"status":[%b]}' % (times, b",".join([b"{}"] * count))
        self._after(turns, _http(answer))

    def _after(self, turns: int, answer: bytes) -> None:
        if turns:
            self._loop.call_soon(self._after, turns - 1, answer)
        else:
            self._connection.data_received(answer)

    def abort(self) -> None: ...


def _http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Client:
    """The transport of a provider's connection: the next webhook comes when the last is answered."""

    def __init__(self, connection: BoundedProtocol, requests: Iterator[bytes], ended: Callable[[], None]) -> None:
        self._connection = connection
        self._requests = requests
        self._ended = ended
        self._loop = asyncio.get_running_loop()

    def send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._ended()
            return
        self._connection.get_buffer(-1)[: len(request)] = request
        self._connection.buffer_updated(len(request))

    def write(self, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit("bench: the webhook service did not answer 200")
        self._loop.call_soon(self.send)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class _Config:
    def __init__(self, app: App) -> None:
        self.loaded_app = app


class _State:
    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[Any] = set()


async def _connect(client: Any, _ends: float) -> Any:
    connection = async_http._Connection()
    connection.connection_made(cast(Any, Upstream(connection)))
    client._all.add(connection)
    return connection


async def load(app: App, connections: int, requests: list[bytes]) -> float:
    """Processor time for each request, in microseconds."""
    loop = asyncio.get_running_loop()
    all_answered, open_ = loop.create_future(), connections

    def ended() -> None:
        nonlocal open_
        open_ -= 1
        if not open_:
            all_answered.set_result(None)

    waiting = iter(requests)
    began = time.process_time()
    for _ in range(connections):
        protocol = BoundedProtocol(cast(Any, _Config(app)), cast(Any, _State()), {}, loop)
        client = Client(protocol, waiting, ended)
        protocol.connection_made(cast(Any, client))
        client.send()
    await all_answered
    return (time.process_time() - began) / len(requests) * 1e6


def area_of(frame: FrameType | None) -> str:
    """The area of the innermost frame of ours."""
    while frame is not None:
        path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        for beginning, area in AREAS:
            if path.startswith(beginning):
                return area
        frame = frame.f_back
    return "event loop"


async def run(app: App, connections: int, messages: int, rounds: int) -> tuple[list[float], Counter[str]]:
    """The microseconds of each round, and how many samples of a further round were in each area."""
    found: Counter[str] = Counter()
    tags = iter(range(1, 1_000_000))

    def requests() -> list[bytes]:
        return list(payloads.requests("message", next(tags), messages))

    await load(app, connections, requests())
    times = [await load(app, connections, requests()) for _ in range(rounds)]
    signal.signal(signal.SIGPROF, lambda _number, frame: found.update([area_of(frame)]))
    for _ in range(rounds):
        ready = requests()
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
        await load(app, connections, ready)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return times, found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--connections", type=int, default=16, help="default 16")
    parser.add_argument("--messages", type=int, default=2000, help="of each round; default 2000")
    parser.add_argument("--rounds", type=int, default=8, help="default 8")
    options = parser.parse_args()
    if min(vars(options).values()) < 1:
        parser.error("each number must be at least 1")
    shown = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the log lines
    vars(async_http)["AsyncHttp"]._connect = _connect  # no connection leaves this process
    app = make_app(build_webhook(settings(Addresses(9, 9, 9))))
    try:
        times, found = uvloop.run(run(app, options.connections, options.messages, options.rounds))
    except KeyboardInterrupt:
        sys.exit(130)
    with os.fdopen(shown, "w") as out:
        print(f"{options.connections} connections, {options.messages:,} messages, {options.rounds} rounds", file=out)
        middle, least, most = statistics.median(times), min(times), max(times)
        print(f"{middle:.0f} µs of processor time for each message [{least:.0f}-{most:.0f}]\n", file=out)
        for area, count in found.most_common():
            share = count / found.total()
            print(f"{share:6.1%} {share * middle:6.1f} µs  {area}", file=out)


if __name__ == "__main__":
    main()
