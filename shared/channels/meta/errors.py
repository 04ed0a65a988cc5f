"""Meta's refusals: converts an answer that is not a 2xx to the error that carries its verdict."""

# Throttling and expired tokens come with HTTP 400 as well as 429 and 401, so the code decides, not the status.

from dataclasses import dataclass
from datetime import timedelta

from shared.channels.meta.codes import UNKNOWN, Meaning, meaning_of
from shared.channels.meta.fields import code_number
from shared.domain.send_errors import AnswerLost, OutageInSuccess, ProviderUnavailable, SendError, SendRefused, TryLater
from shared.net import bounded_json


@dataclass(frozen=True, slots=True)
class GraphError:
    """Meta's error object for a failed request."""

    code: int
    subcode: int | None = None
    transient: bool = False


def graph_error(body: bytes | None) -> GraphError | None:
    """The error in an answer, or None if there is no readable one: without a code it says nothing."""
    try:
        answer = bounded_json.loads(body or b"")
    except bounded_json.NotJson:
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    code = code_number(error.get("code")) if isinstance(error, dict) else None
    if not isinstance(error, dict) or code is None:
        return None
    return GraphError(code, code_number(error.get("error_subcode")), error.get("is_transient") is True)


def error_for(status: int, error: GraphError | None, retry_after: timedelta | None) -> SendError:
    """The error of an answer that is not a 2xx. Its code decides; its status only if the code is unknown or unread."""
    if error is None:
        return _unreadable(status, retry_after)
    return _meaning(status, error).raised(error.code, status, retry_after)


def error_in_success(status: int, error: GraphError, retry_after: timedelta | None) -> SendError:
    """The error of a 2xx that reports one. For an error that would be retried, Meta may have taken the message."""
    found = error_for(status, error, retry_after)
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


def _unreadable(status: int, retry_after: timedelta | None) -> SendError:
    """A bare 429 is certainly not accepted; any other status may come from a proxy between Meta and us."""
    if status == 429:
        return ProviderUnavailable(status=status, retry_after=retry_after)
    return AnswerLost(status=status)
