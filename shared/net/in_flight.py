"""Calls in flight: many concurrent calls to one service, bounded by threads, a deadline and the first outage.

Batches share the threads of a process fairly: a thread takes one item and then moves on to the next batch, so a batch
of twenty does not wait behind a batch of two thousand.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from shared.domain.deadline import Deadline
from shared.domain.errors import PomboError

T = TypeVar("T")
R = TypeVar("R")


class CallsInFlight:
    """At most `most` concurrent calls. It starts its threads on first use, and again in a forked process."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        self._closed = False
        self._last = _LastOutage()

    def each(
        self, call: Callable[[T], R], items: Sequence[T], deadline: Deadline, too_slow: PomboError
    ) -> list[R | Exception]:
        """The outcome of each item, in order: the result of `call`, or what it raised.

        After an outage (a retryable PomboError) no further call begins, and the remaining items get the same error. So
        do the items of other batches that were waiting at that time, unless a call has succeeded since. Once the
        deadline has passed, the items without a result get `too_slow`. Calls still in flight go on, and their results
        are discarded.
        """
        batch = _Batch(call, items, deadline, too_slow, self._last)
        for _ in range(min(self._most, len(items))):
            self._executor().submit(self._help, batch)
        return batch.results()

    def close(self) -> None:
        """End the threads once their calls are over."""
        with self._lock:
            pool, self._pool, self._closed = self._pool, None, True
        if pool is not None and self._pid == os.getpid():
            pool.shutdown(wait=False)

    def _help(self, batch: "_Batch[T, R]") -> None:
        if self._closed:
            batch.stop()
        elif batch.take():
            self._executor().submit(self._help, batch)

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pool = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
                self._pid = os.getpid()
            return self._pool


class _LastOutage:
    """The last outage of any batch, and when; cleared once a call succeeds."""

    def __init__(self) -> None:
        self._met: tuple[float, Exception] | None = None

    def learn(self, result: object) -> None:
        if isinstance(result, PomboError) and result.retryable:
            self._met = (time.monotonic(), result)
        elif not isinstance(result, Exception):
            self._met = None

    def since(self, moment: float) -> Exception | None:
        met = self._met
        return met[1] if met and met[0] >= moment else None


class _Batch(Generic[T, R]):
    """The items of one `each`, handed out one by one."""

    def __init__(
        self,
        call: Callable[[T], R],
        items: Sequence[T],
        deadline: Deadline,
        too_slow: PomboError,
        last: _LastOutage,
    ) -> None:
        self._last = last
        self._began = time.monotonic()
        self._call = call
        self._deadline = deadline
        self._too_slow = too_slow
        self._waiting = deque(enumerate(items))
        self._results: list[R | Exception | None] = [None] * len(items)
        self._has_result = [False] * len(items)
        self._open = 0
        self._outage: Exception | None = None
        self._changed = threading.Condition()

    def take(self) -> bool:
        """Make the next call. Returns whether there was one."""
        with self._changed:
            if self._outage is None:
                self._outage = self._last.since(self._began) or (self._too_slow if self._deadline.has_passed else None)
                self._changed.notify_all()
            if self._outage is not None or not self._waiting:
                return False
            place, item = self._waiting.popleft()
            self._open += 1
        try:
            result: R | Exception = self._call(item)
        except Exception as error:  # noqa: BLE001 - it is the item's result; the caller raises it
            result = error
        self._last.learn(result)
        with self._changed:
            self._open -= 1
            self._results[place], self._has_result[place] = result, True
            if isinstance(result, PomboError) and result.retryable and self._outage is None:
                self._outage = result
            self._changed.notify_all()
        return True

    def stop(self) -> None:
        """Begin no further call."""
        with self._changed:
            self._outage = self._outage or self._too_slow
            self._changed.notify_all()

    def results(self) -> list[R | Exception]:
        """The results, once all calls are over or the deadline has passed. After that no call begins."""
        with self._changed:
            while self._open or (self._waiting and self._outage is None):
                left = self._deadline.left(has_failed=self._outage is not None)
                if left <= 0:
                    break
                self._changed.wait(left)
            self._outage = missing = self._outage or self._too_slow
            pairs = zip(self._results, self._has_result, strict=True)
            return [result if there else missing for result, there in pairs]  # type: ignore[misc] # not None if there
