"""Progress of a long command on a terminal. Written only if standard error is a terminal."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

import click

T = TypeVar("T")

EVERY_SECONDS = 0.2


class Counting:
    """A counter on one line of standard error, removed at the end; only on a terminal."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._is_watched = sys.stderr.isatty()
        self._next = time.monotonic() + EVERY_SECONDS
        self._width = 0
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """Yield the same things and count them."""
        for thing in things:
            yield thing
            self.one_more()

    def one_more(self) -> None:
        self.count += 1
        if self._is_watched and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECONDS
            of_all = f" of {self._total:,}" if self._total else ""
            line = f"{self._what}: {self.count:,}{of_all}"
            click.echo("\r" + line.ljust(self._width), nl=False, err=True)
            self._width = len(line)
