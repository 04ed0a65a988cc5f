"""Meta's refusals: from an answer that is no 2xx to the error that carries its verdict."""

# Throttles and expired tokens come with HTTP 400 as well as 429 and 401: the code decides, the status does not.

from dataclasses import dataclass
from datetime import timedelta

from shared.channels.meta_codes import UNKNOWN, Meaning, meaning_of, number
from shared.domain.errors import (
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    OutageInSuccess,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.wire import bounded_json


@dataclass(frozen=True, slots=True)
class GraphError:
    """Meta's own word on a request that failed."""

    code: int
    subcode: int | None = None
    transient: bool = False


WAITING = (CredentialInvalid, LimitReached, ProviderUnavailable, SenderBlocked, TryLater)
"""After these the message is tried again, no sooner than the provider asks."""


def graph_error(body: bytes | None) -> GraphError | None:
    """The error in an answer, or None where there is none that can be read: without a code it says nothing."""
    try:
        answer = bounded_json.loads(body or b"")
    except bounded_json.NotJson:
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    code = number(error.get("code")) if isinstance(error, dict) else None
    if not isinstance(error, dict) or code is None:
        return None
    return GraphError(code, number(error.get("error_subcode")), error.get("is_transient") is True)


def error_for(
    status: int, error: GraphError | None, retry_after: timedelta | None, minute: timedelta = timedelta(minutes=1)
) -> SendError:
    """What an answer that is no 2xx means. Its code decides; its status only where the code is unknown or unread.

    `minute` is how long a minute of Meta's least waits takes here: TIME_SCALE shortens those as it does ours.
    """
    if error is None:
        kind, least = _unreadable(status), timedelta()
    else:
        meaning = _meaning(status, error)
        kind, least = meaning.error, meaning.minutes * minute
    wait = max(retry_after or timedelta(), least) or retry_after
    waits = wait if issubclass(kind, WAITING) else None
    return kind(error.code if error else None, status=status, retry_after=waits)


def error_in_success(
    status: int, error: GraphError, retry_after: timedelta | None, minute: timedelta = timedelta(minutes=1)
) -> SendError:
    """What a 2xx means that holds an error all the same. Whatever would be tried again may have been taken."""
    found = error_for(status, error, retry_after, minute)
    match found:
        case ProviderUnavailable():
            return OutageInSuccess(error.code, status=status)
        case TryLater():
            return AnswerLost(error.code, status=status)
        case _:
            return found


def _meaning(status: int, error: GraphError) -> Meaning:
    known = meaning_of(error.code, error.subcode)
    if known:
        return known
    if error.transient:
        return UNKNOWN[TryLater]
    return UNKNOWN[SendRefused if 400 <= status < 500 else AnswerLost]


def _unreadable(status: int) -> type[SendError]:
    """A bare 429 is certainly not accepted; anything else may come from something between Meta and us."""
    return ProviderUnavailable if status == 429 else AnswerLost
