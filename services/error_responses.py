"""Errors as HTTP: the one place that maps an error to a status and a body. No body holds private data."""

from http import HTTPStatus
from typing import Any

from services import serving
from shared import logs
from shared.domain.errors import (
    Forbidden,
    PomboError,
    RegistryUnreadable,
    SignatureInvalid,
    TaskInvalid,
    TokenCheck,
    UnknownState,
)

Body = tuple[dict[str, Any], int]


class HttpError(Exception):
    """A request that a service refuses before its work begins."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status


class Busy(Exception):
    """Too many other requests are in work."""


def answer(error: Exception, unavailable: int) -> Body:
    """The answer to an error. `unavailable`: the status for a store or queue that cannot be reached."""
    match error:
        case Forbidden() | SignatureInvalid():
            return {"error": "forbidden"}, 403
        case TaskInvalid():
            severity = "INFO" if isinstance(error, TokenCheck) else "WARNING"
            logs.event("task_refused", severity=severity, reason=error.sentence)
            return {"error": error.code, "message": error.sentence}, 400
        case UnknownState():
            logs.event("state_unknown", severity="WARNING", reason=error.sentence)
            return {"state": "unknown"}, 409
        case PomboError(
            retryable=True
        ):  # an outage: the redelivery repairs it, and a stack trace a line would hide others
            cause = type(error.__cause__).__name__ if error.__cause__ else None
            logs.event("unexpected_error", severity="WARNING", reason=error.code, cause=cause)
            # After a 503 Cloud Tasks slows down the whole queue, and an unreadable entry is the trouble of one tenant.
            is_tenants = isinstance(error, RegistryUnreadable) and unavailable == 503
            return {"error": error.code}, 409 if is_tenants else unavailable
        case Busy():
            return {"error": "busy"}, unavailable
        case HttpError(status=status):
            return {"error": serving.code_of(status)}, status
        case _:
            logs.event("unexpected_error", severity="ERROR", error=error)
            return {"error": "unexpected"}, 500
