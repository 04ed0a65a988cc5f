"""What a call to Firestore raises, and how long one may take."""

from shared.domain.errors import StoreUnavailable

CONTENTION = 10.0
"""Seconds that one operation may take while the database answers, even if each answer is a lost race."""

QUICK = 10
"""A call with up to this many documents takes only milliseconds."""


class LostRace(Exception):
    """A write's precondition failed: another write came first, or this same write was applied before. The latter only
    if it was sent again (`is_repeated`).
    """

    def __init__(self, is_repeated: bool = True) -> None:
        super().__init__()
        self.is_repeated = is_repeated


class InvalidWrite(StoreUnavailable):
    """The store refuses a write as invalid."""


def unavailable(cause: BaseException | None) -> StoreUnavailable:
    """Names only the error's class: a library's message may hold a document's name or content."""
    return StoreUnavailable(f"The store cannot be reached: {type(cause).__name__}.")
