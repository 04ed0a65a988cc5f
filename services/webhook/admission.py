"""Admission: how many POSTs are in work at once, and how many large bodies are in memory. The others wait in order."""

import asyncio
from collections import deque
from functools import cache

from services.error_responses import Busy

SMALL = 64 * 1024
"""Bytes of a body that are read before its turn. A POST with a thousand events is larger."""

LARGE_AT_ONCE = 4
"""Larger bodies in memory, each with what is parsed of it: several times its length."""

TURN_SECONDS = 10.0
"""For a turn. Then the provider's redelivery is the better chance."""


class Turns:
    """`async with` waits for one of the places, in order. Raises Busy."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._give_back()  # it came at the same moment
            if isinstance(error, TimeoutError):
                raise Busy from None
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


LARGE = Turns(LARGE_AT_ONCE)


@cache
def turns(most: int) -> Turns:
    """The places of this process for POSTs in work."""
    return Turns(most)
