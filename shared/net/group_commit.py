"""Group commit: while one call is in flight, the next one collects what came in meanwhile.

It never waits on purpose: an item that finds no call in flight goes out at once. Under load one call carries many items,
so a store's round trip, and the processor time of a call, are shared. https://en.wikipedia.org/wiki/Group_commit
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

FEW = 10
"""A caller with at most so many items goes before one with more, so that a large POST does not delay a small one."""

Write = Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]]
"""One call for several items: the result of each, in order. It raises only what concerns all of them."""


@dataclass(slots=True)
class _Waiting(Generic[I, R]):
    item: I
    size: int
    result: asyncio.Future[R | Exception] = field(repr=False)


class GroupCommit(Generic[I, R]):
    """Items in, results out; at most `in_flight` calls at once, each with at most `most` items and `most_bytes`."""

    def __init__(
        self,
        write: Write[I, R],
        most: int,
        most_bytes: int,
        size_of: Callable[[I], int],
        in_flight: int = 1,
    ) -> None:
        self._write = write
        self._most, self._most_bytes, self._size_of = most, most_bytes, size_of
        self._free = in_flight
        self._few: deque[_Waiting[I, R]] = deque()
        self._many: deque[_Waiting[I, R]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[I]) -> list[R | Exception]:
        """The result of each item. What concerned a whole call is the result of each of its items. A caller that is
        cancelled gives its items up: they may or may not be written.
        """
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(item, self._size_of(item), loop.create_future()) for item in items]
        (self._few if len(items) <= FEW else self._many).extend(waiting)
        self._begin()
        return [await one.result for one in waiting]

    def _begin(self) -> None:
        while self._free and (self._few or self._many):
            self._free -= 1
            task = asyncio.ensure_future(self._call(self._next()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self) -> list[_Waiting[I, R]]:
        """The items of the next call, those of small callers first: at least one, however large."""
        portion: list[_Waiting[I, R]] = []
        size = 0
        for waiting in (self._few, self._many):
            while waiting and len(portion) < self._most:
                size += waiting[0].size
                if portion and size > self._most_bytes:
                    return portion
                portion.append(waiting.popleft())
        return portion

    async def _call(self, portion: list[_Waiting[I, R]]) -> None:
        results: Sequence[R | Exception]
        try:
            results = await self._write([one.item for one in portion])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            results = [error] * len(portion)
        for one, result in zip(portion, results, strict=True):
            if not one.result.done():
                one.result.set_result(result)
        self._free += 1
        self._begin()
