"""Admission: how many POSTs are in work at once, and how many large bodies are in memory. The others wait in order."""

import asyncio
from collections import deque
from dataclasses import dataclass

from services.error_responses import Busy
from shared.domain.deadline import Deadline

SMALL = 64 * 1024
"""Bytes of a body that are read before its turn. A POST with a thousand events is larger."""

LARGE_AT_ONCE = 4
"""Larger bodies in memory, each with what is parsed of it: several times its length."""


class Turns:
    """Places for POSTs. Those that find none wait in order."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, deadline: Deadline) -> None:
        """Take a place, for `give_back`. Raises Busy if none is free before the deadline or before an outage: then the
        provider's redelivery is the better chance.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(deadline)

    def give_back(self) -> None:
        """Give the place to the POST that waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def refuse_waiting(self) -> None:
        """Raise Busy in all that wait now."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(Busy())

    async def _wait(self, deadline: Deadline) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(deadline.left()):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # it came at the same moment
            if isinstance(error, TimeoutError):
                raise Busy from None
            raise


@dataclass(frozen=True, slots=True)
class Admission:
    """The places of one webhook service."""

    posts: Turns
    """For POSTs in work."""
    large: Turns
    """For large bodies in memory."""

    @classmethod
    def of(cls, most: int) -> "Admission":
        """With places for so many POSTs in work."""
        return cls(Turns(most), Turns(LARGE_AT_ONCE))

    def refuse_waiting(self) -> None:
        """Raise Busy in all that wait now."""
        self.large.refuse_waiting()
        self.posts.refuse_waiting()
