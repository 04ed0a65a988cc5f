"""Asynchronous code in tests that are not: ports that never wait, and one event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from inspect import isawaitable
from typing import Any, TypeVar

R = TypeVar("R")


THREAD = "tests-event-loop"


class Asynchronous:
    """A port of blocking calls as one of the intake. Its calls never wait."""

    def __init__(self, port: Any) -> None:
        self.port = port

    def queue_of(self, task: Any) -> str:
        queue: str = self.port.queue_of(task)
        return queue

    def close(self) -> None:
        self.port.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            result = getattr(self.port, name)(*given, **named)
            return await result if isawaitable(result) else result

        return call


def complete(call: Coroutine[Any, Any, R]) -> R:
    """The result of a call that never waits, without an event loop."""
    try:
        while call.send(None) is None:
            pass  # it only gave the others their turn
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError("The call waits for something.")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=THREAD, daemon=True).start()
    return loop


def run(call: Awaitable[R], seconds: float = 60) -> R:
    """The result of a call, on an event loop that lasts as long as the tests. Several threads may call at once."""

    async def awaited() -> R:
        return await call

    return asyncio.run_coroutine_threadsafe(awaited(), _loop()).result(seconds)
