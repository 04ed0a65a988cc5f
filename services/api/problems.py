"""Problem documents (RFC 9457): what every refusal of the API looks like, and the one place that makes them.

`code` is stable and for programs; `detail` is for people, and repeats no value of the request.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import Response, jsonify
from pydantic import BaseModel, Field, ValidationError
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from services.bounded_worker import Malformed
from shared import logs
from shared.domain.delivery.answers import NotAllowed
from shared.domain.errors import PomboError, SecretsUnavailable, UnknownState
from shared.domain.guards import REAUTH_REQUIRED, SENDER_BLOCKED
from shared.domain.onboarding import OnboardingUnavailable
from shared.operations.registry import Invalid, NotFound, Refused
from shared.pipeline.accept_message import IdempotencyConflict, SenderUnusable
from shared.tenants.api_keys import TooManyLooks

CONTENT_TYPE = "application/problem+json"
RETRY_SECONDS = 5
"""How long a caller waits while the store, the queue or the registry is away."""

INVALID_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = "INVALID_REQUEST", "UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND"
NOT_CANCELLABLE, TOO_LARGE, IDEMPOTENCY_CONFLICT = "NOT_CANCELLABLE", "TOO_LARGE", "IDEMPOTENCY_CONFLICT"
RATE_LIMITED, UNAVAILABLE, METHOD_NOT_ALLOWED = "RATE_LIMITED", "UNAVAILABLE", "METHOD_NOT_ALLOWED"
UNSUPPORTED_MEDIA_TYPE, UNEXPECTED = "UNSUPPORTED_MEDIA_TYPE", "UNEXPECTED"

STATUS = {
    INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
    FORBIDDEN: HTTPStatus.FORBIDDEN,
    NOT_FOUND: HTTPStatus.NOT_FOUND,
    METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    NOT_CANCELLABLE: HTTPStatus.CONFLICT,
    REAUTH_REQUIRED: HTTPStatus.CONFLICT,
    SENDER_BLOCKED: HTTPStatus.CONFLICT,
    TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    IDEMPOTENCY_CONFLICT: HTTPStatus.UNPROCESSABLE_ENTITY,
    RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    UNEXPECTED: HTTPStatus.INTERNAL_SERVER_ERROR,
    UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status of each code."""

OF_EVERY_ROUTE = (INVALID_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, RATE_LIMITED, UNAVAILABLE)
OF_A_BODY = (TOO_LARGE, UNSUPPORTED_MEDIA_TYPE)
"""What a route refuses besides if it takes a body."""

SENTENCES = {
    UNAUTHORIZED: "The request needs a valid API key in the header Authorization: Bearer.",
    NOT_FOUND: "There is no such thing, or the API key is not for it.",
    METHOD_NOT_ALLOWED: "This path does not take the method.",
    TOO_LARGE: "The body is too large.",
    UNSUPPORTED_MEDIA_TYPE: "The body must be JSON, with the header Content-Type: application/json.",
    IDEMPOTENCY_CONFLICT: "The Idempotency-Key was used before with another body: use a new key for another message.",
    REAUTH_REQUIRED: "WhatsApp rejects the number's access token: reconnect the number, then repeat the request.",
    SENDER_BLOCKED: "WhatsApp has blocked the number for now: repeat the request later.",
    RATE_LIMITED: "Too many requests with this API key: wait as long as Retry-After says.",
    UNAVAILABLE: "Pombo cannot reach its store or its queue: repeat the request, a send with the same Idempotency-Key.",
    UNEXPECTED: "Something went wrong in Pombo. The logs have the details.",
}

AWAY = {
    OnboardingUnavailable: "WhatsApp does not answer, so the access token was not checked: repeat the request later.",
    SecretsUnavailable: "Pombo cannot read or write its secrets: repeat the request later.",
}
"""What is away if it is neither the store nor the queue."""


class ProblemDocument(BaseModel):
    """A refusal, as RFC 9457 describes it."""

    type: str = Field("about:blank", description="Always about:blank: `code` says what is wrong.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    code: str = Field(description="What is wrong, for programs: one of a fixed list.")
    detail: str = Field(description="What is wrong and what to do, for people.")
    field: str | None = Field(None, description="The part of the request that is wrong, if it is one.")


@dataclass(eq=False)  # not frozen: Python sets the traceback of an exception
class Problem(Exception):
    """A request that is refused. `field` is the part of it that is wrong; `retry_after` is in seconds; `allow` names
    the methods of a path.
    """

    code: str
    detail: str = ""
    field: str | None = None
    retry_after: int | None = None
    allow: str | None = None


def responses(*codes: str) -> dict[str, Any]:
    """How the OpenAPI document describes these refusals of a route, and those that every route has."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    return {
        str(STATUS[code].value): {
            "description": STATUS[code].phrase,
            "content": {CONTENT_TYPE: {"schema": schema}},
        }
        for code in (*OF_EVERY_ROUTE, *codes)
    }


def document(problem: Problem) -> dict[str, Any]:
    """The document of a problem."""
    status = STATUS[problem.code]
    made = ProblemDocument(
        type="about:blank",
        title=status.phrase,
        status=status.value,
        code=problem.code,
        detail=problem.detail or SENTENCES[problem.code],
        field=problem.field,
    )
    return made.model_dump(exclude_none=True)


def response(problem: Problem) -> Response:
    """The HTTP response of a problem."""
    made = jsonify(document(problem))
    made.status_code, made.content_type = STATUS[problem.code].value, CONTENT_TYPE
    if problem.retry_after is not None:
        made.headers["Retry-After"] = str(problem.retry_after)
    if problem.allow is not None:
        made.headers["Allow"] = problem.allow
    if problem.code == UNAUTHORIZED:
        made.headers["WWW-Authenticate"] = "Bearer"
    return made


def problem_of(error: Exception) -> Problem:
    """The problem that an error is to a caller."""
    match error:
        case Problem():
            return error
        case SenderUnusable(code=code):
            return Problem(code)
        case IdempotencyConflict():
            return Problem(IDEMPOTENCY_CONFLICT)
        case NotAllowed():
            return Problem(NOT_CANCELLABLE, str(error))
        case Invalid(field=field):
            return Problem(INVALID_REQUEST, error.sentence, field)
        case NotFound():
            return Problem(NOT_FOUND)
        case Refused():
            return Problem(INVALID_REQUEST, error.sentence)
        case TooManyLooks():
            return Problem(UNAVAILABLE, error.sentence, retry_after=1)
        case HTTPException():
            return _of_http(error)
        case Malformed():
            return Problem(INVALID_REQUEST, "The request is not valid HTTP.")
        case UnknownState() | PomboError(retryable=True):
            cause = type(error.__cause__).__name__ if error.__cause__ else None
            logs.event("unexpected_error", severity="WARNING", reason=error.code, cause=cause)
            return Problem(UNAVAILABLE, AWAY.get(type(error), ""), retry_after=RETRY_SECONDS)
        case _:
            logs.event("unexpected_error", severity="ERROR", error=error)
            return Problem(UNEXPECTED)


_FIELD = re.compile(r"[A-Za-z_-]{1,40}(\.([A-Za-z_-]{1,40}|[0-9]{1,3}))*")

_OF_HTTP = (NOT_FOUND, METHOD_NOT_ALLOWED, TOO_LARGE, UNSUPPORTED_MEDIA_TYPE)


def _of_http(error: HTTPException) -> Problem:
    code = next((code for code in _OF_HTTP if STATUS[code] == error.code), None)
    if code is None:
        return Problem(INVALID_REQUEST, "The request is not valid HTTP for this API.")
    allow = ", ".join(sorted(error.valid_methods or ())) if isinstance(error, MethodNotAllowed) else None
    return Problem(code, allow=allow)


def field_name(text: str) -> str:
    """The name of a member as a refusal shows it. One that no route has may be called anything: a name that does not
    look like ours is not repeated.
    """
    return text if _FIELD.fullmatch(text) else "request"


_SAID = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "extra_forbidden": "There is no such field here",
}
"""Where pydantic's sentence is one for programmers in Python."""


def of_validation(error: ValidationError) -> Problem:
    """The first fault of a request, by its field. pydantic's sentences name what is allowed and no value."""
    first: dict[str, Any] = dict(error.errors(include_url=False, include_context=False, include_input=False)[0])
    field = field_name(".".join(str(part) for part in first["loc"]) or "body")
    return Problem(INVALID_REQUEST, f"{field}: {_SAID.get(first['type'], first['msg'])}.", field)
