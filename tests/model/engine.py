"""Exploration: breadth first, so that a trace is a shortest one; and from every state an end that needs no luck."""

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Move(NamedTuple, Generic[S]):
    """One step of anybody's. `ordinary`: nothing went wrong and nobody helped. `broken`: the invariant it breaks."""

    label: str
    state: S
    ordinary: bool = True
    broken: str | None = None


@dataclass(frozen=True)
class Explored(Generic[S]):
    """What an exploration found. Where nothing is broken, `trace` and `last` are empty and None."""

    states: int
    ends: int
    seconds: float
    broken: str | None = None
    trace: Sequence[str] = ()
    last: S | None = None


class TooLarge(Exception):
    """There are more states than were allowed."""


class Exploration(Generic[S]):
    """The states that were met, how they were first reached, and which lead to which by ordinary moves alone."""

    def __init__(self, start: S, at_most: int) -> None:
        self._began = time.process_time()
        self._at_most = at_most
        self._came_from: dict[S, tuple[S, str] | None] = {start: None}
        self._before: dict[S, list[S]] = {start: []}
        self._order = [start]

    def run(
        self, moves: Callable[[S], Iterable[Move[S]]], broken: Callable[[S], str | None], final: Callable[[S], bool]
    ) -> Explored[S]:
        """Meet every state that can be reached. Raises TooLarge."""
        for state in self._order:
            if fault := broken(state):
                return self._found(fault, state)
            for move in moves(state):
                if move.broken:
                    return self._found(move.broken, state, move)
                self._meet(state, move)
        ends = [state for state in self._order if final(state)]
        stuck = self._stuck(ends)
        if stuck is not None:
            return self._found("I2: stuck, no end can be reached", stuck)
        return Explored(len(self._order), len(ends), self._seconds)

    def _meet(self, state: S, move: Move[S]) -> None:
        if move.state not in self._came_from:
            if len(self._order) >= self._at_most:
                raise TooLarge(f"There are more than {self._at_most:,} states.")
            self._came_from[move.state] = (state, move.label)
            self._before[move.state] = []
            self._order.append(move.state)
        if move.ordinary:
            self._before[move.state].append(state)

    def _stuck(self, ends: Collection[S]) -> S | None:
        """The first state from which no end can be reached; better one where nothing moves any more."""
        good = self._reaching(ends)
        stuck = [state for state in self._order if state not in good]
        moving = {earlier for state in stuck for earlier in self._before[state] if earlier != state}
        return next((state for state in stuck if state not in moving), stuck[0] if stuck else None)

    def _reaching(self, ends: Collection[S]) -> set[S]:
        good, todo = set(ends), list(ends)
        while todo:
            for state in self._before[todo.pop()]:
                if state not in good:
                    good.add(state)
                    todo.append(state)
        return good

    def _found(self, fault: str, state: S, move: Move[S] | None = None) -> Explored[S]:
        last, labels = (move.state, [move.label]) if move else (state, [])
        while (step := self._came_from[state]) is not None:
            state, label = step
            labels.append(label)
        return Explored(len(self._order), 0, self._seconds, fault, labels[::-1], last)

    @property
    def _seconds(self) -> float:
        return time.process_time() - self._began


def explore(
    start: S,
    moves: Callable[[S], Iterable[Move[S]]],
    broken: Callable[[S], str | None],
    final: Callable[[S], bool],
    at_most: int,
) -> Explored[S]:
    """Every state that can be reached from the start. Raises TooLarge."""
    return Exploration(start, at_most).run(moves, broken, final)
