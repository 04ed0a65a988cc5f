"""A run over many dead letters: several at once, counted, and honest about where it stopped."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import click

from local import terminal
from shared.operations.dead_letters import Decision, Done

AT_ONCE = 16
"""Letters. Each is two or three round trips to the store, and one to the queue."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(act: Callable[[T], R], things: Iterable[T], take: Callable[[R], None]) -> None:
    """Act on each, AT_ONCE at the same time, and take what became of it, one by one. The first that raises stops the
    rest, and so does Ctrl-C; what is under way then comes to its end, and is taken.
    """
    at_work = _AtWork()

    def one(thing: T) -> None:
        if not at_work.begin():
            return
        try:
            became = act(thing)
            with at_work.lock:  # here and not where it is awaited: Ctrl-C may come at any moment there
                take(became)
        except BaseException:
            at_work.stop()
            raise
        finally:
            at_work.end()

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="pombo-dead") as pool:
        under_way: deque[Future[None]] = deque()
        try:
            for thing in things:
                under_way.append(pool.submit(one, thing))
                if len(under_way) > 2 * AT_ONCE:
                    under_way.popleft().result()
            while under_way:
                under_way.popleft().result()
        finally:
            at_work.stop()
            at_work.wait()


class _AtWork:
    """How many are at work. The pool itself does not know of a thread in whose start Ctrl-C came."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._ended = threading.Condition(self.lock)
        self._count, self._is_over = 0, False

    def begin(self) -> bool:
        """Whether there is still work to begin."""
        with self.lock:
            self._count += not self._is_over
            return not self._is_over

    def end(self) -> None:
        with self.lock:
            self._count -= 1
            self._ended.notify_all()

    def stop(self) -> None:
        with self.lock:
            self._is_over = True

    def wait(self) -> None:
        """Until no thread is at work."""
        with self.lock:
            self._ended.wait_for(lambda: self._count == 0)


class Tally:
    """What became of them."""

    def __init__(self, meant: Done) -> None:
        self._meant = meant
        self._done: Counter[Done] = Counter()
        self._whys: Counter[str] = Counter()
        self.ensured = 0
        """Replayed by an earlier run and not tried since: their tasks were made sure of."""

    def add(self, outcome: Decision) -> None:
        self._done[outcome.done] += 1
        if outcome.why is not None:
            self._whys[outcome.why] += 1

    @contextmanager
    def said(self, as_json: bool) -> Iterator[Self]:
        """Says the sums at the end, also where it ends early."""
        try:
            yield self
        except BaseException:
            self._say(as_json, is_whole=False)
            raise
        self._say(as_json, is_whole=True)

    def _say(self, as_json: bool, is_whole: bool) -> None:
        click.echo(terminal.as_json(self.as_dict(is_whole)) if as_json else "\n".join(self.as_lines(is_whole)))

    def as_dict(self, is_whole: bool) -> dict[str, Any]:
        skipped = [{"why": why, "count": count} for why, count in self._whys.most_common()]
        sums: dict[str, Any] = {self._meant.value: self._done[self._meant]}
        if self._meant is Done.REPLAYED:
            sums |= {"done": self._done[Done.DONE], "ensured": self.ensured}
        return {**sums, "skipped": skipped, "whole": is_whole}

    def as_lines(self, is_whole: bool) -> Iterator[str]:
        if not is_whole:
            yield "Interrupted. Run the command again for the rest. So far:"
        if self.ensured:
            yield f"{self.ensured:,} replayed earlier, with no attempt since: their tasks exist."
        yield f"{self._done[self._meant]:,} {self._meant}."
        if self._done[Done.DONE]:
            yield f"{self._done[Done.DONE]:,} became done: a receipt confirms that WhatsApp has them."
        for why, count in self._whys.most_common():
            yield f"{count:,} skipped: {why}"
