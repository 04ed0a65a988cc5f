"""Group commit: while one call is in flight, the next one collects what came in meanwhile.

It never waits on purpose: an item that finds no call in flight goes out at once. Under load one call carries many
items, which share its round trip and its processor time.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeGuard, TypeVar

from shared.domain.deadline import Deadline
from shared.domain.errors import PomboError

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

FEW = 10
"""A caller with at most so many items goes before one with more, so that a large POST does not delay a small one.
Callers with more take turns, each with so many items.
"""

SMALL_IN_A_ROW = 4
"""After so many items of small callers, one of a large caller goes, if both wait: small POSTs without a gap must not
stop a large one.
"""

Write = Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]]
"""One call for several items: the result of each, in order. It raises only what concerns all of them. A cancelled call
counts as an outage.
"""


@dataclass(frozen=True, slots=True)
class Portion:
    """How much one call may carry."""

    items: int
    bytes: int | None = None
    """As `size_of` counts them; None for any number."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """How many calls there may be at once."""

    most: int = 1
    prompt: int | None = None
    """Of these, the calls that are not late: one that takes long does not hold up the others. None for all."""
    late: float = 0.1
    """Seconds after which a call is late."""


ONE_IN_FLIGHT = InFlight()


class GroupCommit(Generic[I, R]):
    """Items in, results out. It serves one event loop at a time, and on a new one it starts without calls."""

    def __init__(
        self,
        write: Write[I, R],
        portion: Portion,
        too_slow: Callable[[], PomboError],
        size_of: Callable[[I], int] = lambda _: 0,
        in_flight: InFlight = ONE_IN_FLIGHT,
        longest: float = math.inf,
    ) -> None:
        """`longest`: seconds within which `write` ends by itself. A caller with one item and at least so much time
        makes its call itself if it finds no other item: the task and the timer that it saves cost as much processor
        time as the call.
        """
        self._write = write
        self._portion = portion
        self._too_slow = too_slow
        self._size_of = size_of
        self._in_flight = in_flight
        self._longest = longest
        self._last = 0
        self._start_on(None)

    def _start_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._free = self._in_flight.most
        self._prompt: dict[int, asyncio.TimerHandle] = {}
        """The calls that are not late, each by its number, with the timer that makes it late."""
        self._few: deque[_Waiting[I, R]] = deque()
        self._many: deque[deque[_Waiting[I, R]]] = deque()
        self._few_in_a_row = 0
        self._taken = 0
        """From the foremost large caller in its turn."""
        self._calls: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[I], deadline: Deadline) -> Sequence[R | Exception]:
        """The result of each item, or what was raised. Raises nothing.

        After an outage (a retryable PomboError) the items that wait get the same error: a call for them would end as
        late as the caller's own retry. Items without a result at the deadline get `too_slow`: those that are in flight
        may be written, and those that wait are not sent.
        """
        if not items:
            return []
        left = deadline.left()
        if left <= 0:
            return [self._too_slow() for _ in items]
        if (loop := asyncio.get_running_loop()) is not self._loop:
            self._start_on(loop)
        if left >= self._longest and len(items) == 1 and self._may_begin and not (self._few or self._many):
            return await self._made(items, self._take_place())
        caller: _Caller[R] = _Caller(len(items), deadline, left, self._too_slow)
        waiting = [_Waiting(item, caller, place) for place, item in enumerate(items)]
        if len(items) <= FEW:
            self._few.extend(waiting)
        else:
            self._many.append(deque(waiting))
        self._begin()
        return await caller.results()

    @property
    def _may_begin(self) -> bool:
        prompt = self._in_flight.prompt
        return self._free > 0 and (prompt is None or len(self._prompt) < prompt)

    def _take_place(self) -> int:
        """The number of a call that begins now."""
        self._free -= 1
        self._last += 1
        if self._in_flight.prompt is not None:
            timer = asyncio.get_running_loop().call_later(self._in_flight.late, self._become_late, self._last)
            self._prompt[self._last] = timer
        return self._last

    def _become_late(self, number: int) -> None:
        if self._prompt.pop(number, None) is not None:  # else it is of an earlier event loop
            self._begin()

    def _begin(self) -> None:
        while self._may_begin and (portion := self._next()):
            call = asyncio.get_running_loop().create_task(self._call(portion, self._take_place()))
            self._calls.add(call)  # the loop itself keeps only a weak reference
            call.add_done_callback(self._calls.discard)

    def _next(self) -> "list[_Waiting[I, R]]":
        """The items of the next call: at least one, however large, if any waits."""
        portion: list[_Waiting[I, R]] = []
        size = 0
        while len(portion) < self._portion.items and (queue := self._foremost()):
            if queue[0].caller.has_left:
                queue.popleft()
                continue
            size += self._size_of(queue[0].item)
            if portion and self._portion.bytes is not None and size > self._portion.bytes:
                break
            portion.append(queue.popleft())
            self._count(is_few=queue is self._few)
        return portion

    def _count(self, is_few: bool) -> None:
        if is_few:
            self._few_in_a_row += 1
        else:
            self._few_in_a_row = 0
            self._taken += 1

    def _foremost(self) -> "deque[_Waiting[I, R]] | None":
        """The queue that the next item is taken from."""
        large = self._foremost_large() if self._many else None
        if self._few and (large is None or self._few_in_a_row < SMALL_IN_A_ROW):
            return self._few
        return large

    def _foremost_large(self) -> "deque[_Waiting[I, R]] | None":
        while self._many and not self._many[0]:
            self._many.popleft()
            self._taken = 0
        if self._taken >= FEW:
            self._many.rotate(-1)
            self._taken = 0
        return self._many[0] if self._many else None

    async def _call(self, portion: "list[_Waiting[I, R]]", number: int) -> None:
        results: Sequence[R | Exception] | None = None
        try:
            results = await self._made([one.item for one in portion], number)
        finally:
            for one, result in zip(portion, results or [self._too_slow()] * len(portion), strict=True):
                one.caller.learn(one.place, result)

    async def _made(self, items: Sequence[I], number: int) -> Sequence[R | Exception]:
        """The results of one call. When it has ended, the next ones begin."""
        loop = asyncio.get_running_loop()
        results: Sequence[R | Exception] | None = None
        try:
            results = _complete(await self._write(items), len(items))
        except Exception as error:  # noqa: BLE001 - it is the result of each item
            results = [error] * len(items)
        finally:
            if loop is self._loop and not loop.is_closed():
                self._end(number, self._too_slow() if results is None else _outage_in(results))
        return results

    def _end(self, number: int, outage: Exception | None) -> None:
        if outage is not None:
            self._refuse_waiting(outage)
        self._free += 1
        if number in self._prompt:
            self._prompt.pop(number).cancel()
        self._begin()

    def _refuse_waiting(self, outage: Exception) -> None:
        for waiting in (self._few, *self._many):
            while waiting:
                one = waiting.popleft()
                one.caller.learn(one.place, outage)


@dataclass(slots=True)
class _Waiting(Generic[I, R]):
    item: I
    caller: "_Caller[R]"
    place: int


class _Caller(Generic[R]):
    """One caller's results. Until an item has one, its result is `too_slow`."""

    def __init__(self, count: int, deadline: Deadline, left: float, too_slow: Callable[[], PomboError]) -> None:
        self._results: list[R | Exception | None] = [None] * count
        self._has_result = [False] * count
        self._missing = count
        self._deadline = deadline
        self._too_slow = too_slow
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends = self._end_after(left)

    @property
    def has_left(self) -> bool:
        """Whether it no longer waits."""
        return self._done.done()

    async def results(self) -> list[R | Exception]:
        try:
            await self._done
        finally:
            self._ends.cancel()
        if self._missing == 0:
            return self._results  # type: ignore[return-value] # not None if there
        missing = self._too_slow()
        pairs = zip(self._results, self._has_result, strict=True)
        return [result if there else missing for result, there in pairs]  # type: ignore[misc] # as above

    def learn(self, place: int, result: R | Exception) -> None:
        """The result of one item. After an outage the deadline is the earlier one."""
        if self.has_left:
            return
        self._results[place], self._has_result[place] = result, True
        self._missing -= 1
        if self._missing == 0:
            self._end()
        elif _is_outage(result):
            self._ends.cancel()
            self._ends = self._end_after(self._deadline.left(has_failed=True))

    def _end_after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, seconds), self._end)

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


def _is_outage(result: object) -> TypeGuard[PomboError]:
    return isinstance(result, PomboError) and result.retryable


def _outage_in(results: Sequence[object]) -> PomboError | None:
    return next((result for result in results if _is_outage(result)), None)


def _complete(results: Sequence[R], count: int) -> Sequence[R]:
    if len(results) != count:
        raise RuntimeError(f"A call for {count} items returned {len(results)} results.")
    return results
