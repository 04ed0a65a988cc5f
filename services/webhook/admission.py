"""Admission: how many POSTs are in work at once, and how many large bodies are in memory. The others wait in order.

Nothing is known of a client before its body has arrived and its signature is checked. So a place for a large body that
arrives is another than one for the work on it, and a client that stalls loses its place if others wait for one.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from services.error_responses import Busy
from shared.domain.deadline import Deadline

SMALL = 64 * 1024
"""Bytes of a body that are read before its turn. A POST with a thousand events is larger."""

ARRIVING_AT_ONCE = 16
"""Larger bodies in memory, arriving or complete."""

LARGE_AT_ONCE = 4
"""Of these, the bodies in work, each with what is parsed of it: several times its length."""

ARRIVAL_SECONDS = 3.0
"""How long a larger body may take to arrive while others wait for its place. Meta's takes less than a second."""

LEAST_SECONDS = 0.5
"""A POST that has waited for its turn and has less time left is refused: the store could not be fast enough."""


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
            return
        await self._wait(deadline)
        if deadline.left() < LEAST_SECONDS:
            self.give_back()
            raise Busy

    @property
    def are_awaited(self) -> bool:
        """Whether a POST waits for a place."""
        return any(not turn.done() for turn in self._waiting)

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
    arriving: Turns
    """For large bodies in memory."""
    large: Turns
    """For large bodies in work."""

    @classmethod
    def of(cls, most: int) -> "Admission":
        """With places for so many POSTs in work."""
        return cls(Turns(most), Turns(ARRIVING_AT_ONCE), Turns(LARGE_AT_ONCE))

    def refuse_waiting(self) -> None:
        """Raise Busy in all that wait now."""
        self.arriving.refuse_waiting()
        self.large.refuse_waiting()
        self.posts.refuse_waiting()
