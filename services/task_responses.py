"""Answers: the one place that maps the result of a task to an HTTP status and a body that callers rely on."""

from collections.abc import Mapping
from typing import Any

from shared.domain.delivery.answers import Answer, TaskResult

Body = tuple[dict[str, Any], int]

STATUS: Mapping[TaskResult, int] = {
    TaskResult.ACK: 200,
    TaskResult.CONFLICT: 409,
    TaskResult.NACK: 503,
    TaskResult.REFUSED: 400,
    TaskResult.REFUSED_ON_FAULT: 502,
}
"""Cloud Tasks retries a task until the answer is 2xx. A rejection must not count as a success on a dashboard, so it is
another status; the retried task finds a final record and is answered 200.
"""

PERMANENT_ERROR = "whatsapp_permanent_error"


def of_task(answer: Answer) -> Body:
    """The answer to a task: `{"state": …}`; for a permanent rejection also the error and the provider's code."""
    body: dict[str, Any] = {"state": answer.state}
    if answer.result in (TaskResult.REFUSED, TaskResult.REFUSED_ON_FAULT):
        body |= {"error": PERMANENT_ERROR, "code": answer.code}
    return body, STATUS[answer.result]
