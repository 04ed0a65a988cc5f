"""Fairness: a large POST lets other requests have their turn on the event loop."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

AT_A_TIME = 50
"""Items that are worked on before other requests get their turn: a few milliseconds."""


async def in_turns(items: Sequence[T]) -> AsyncIterator[T]:
    """The items, with a turn for other requests now and then."""
    for place, item in enumerate(items):
        if place and place % AT_A_TIME == 0:
            await asyncio.sleep(0)
        yield item
