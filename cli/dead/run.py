"""A run over many dead letters, several at once. It counts the outcomes and says where it stopped."""

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
"""Letters. Each takes two or three round trips to the store and one to the queue."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(act: Callable[[T], R], things: Iterable[T], take: Callable[[R], None]) -> None:
    """Act on up to AT_ONCE things at the same time, and pass each outcome to `take`, one at a time. The first exception
    stops the rest, and so does Ctrl-C; acts under way then finish, and `take` gets their outcome.
    """
    at_work = _AtWork()

    def one(thing: T) -> None:
        if not at_work.begin():
            return
        try:
            became = act(thing)
            with at_work.lock:  # here and not where it is awaited: there Ctrl-C may come at any moment
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
    """How many acts are under way. The pool does not count a thread that Ctrl-C interrupted while it started."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._ended = threading.Condition(self.lock)
        self._count, self._is_over = 0, False

    def begin(self) -> bool:
        """Whether another act may begin."""
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
        """Wait until no act is under way."""
        with self.lock:
            self._ended.wait_for(lambda: self._count == 0)


class Tally:
    """The outcomes, counted."""

    def __init__(self, meant: Done) -> None:
        self._meant = meant
        self._done: Counter[Done] = Counter()
        self._whys: Counter[str] = Counter()
        self.ensured = 0
        """Replayed by an earlier run, with no attempt since; this run made sure that their tasks exist."""

    def add(self, outcome: Decision) -> None:
        self._done[outcome.done] += 1
        if outcome.why is not None:
            self._whys[outcome.why] += 1

    @contextmanager
    def said(self, as_json: bool) -> Iterator[Self]:
        """Print the counts at the end, also if the run ends early."""
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
