"""Fairness: a large POST lets other requests have their turn on the event loop."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_A_TIME = 50
"""Items that are worked on before other requests get their turn: a few milliseconds."""


async def in_turns(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The result of `work` for each item, with a turn for other requests now and then."""
    results: list[R] = []
    for place, item in enumerate(items):
        if place and place % AT_A_TIME == 0:
            await asyncio.sleep(0)
        results.append(work(item))
    return results
