"""What a task is answered: the statuses and words that the queue, and whoever else calls, rely on."""

import ast
from pathlib import Path

import pytest

from services import task_responses
from shared.domain.delivery.answers import Answer, TaskResult

SHARED = Path(__file__).parents[2] / "shared"


@pytest.mark.parametrize(
    ("answer", "body", "status"),
    [
        (Answer(TaskResult.ACK, "done"), {"state": "done"}, 200),
        (Answer(TaskResult.CONFLICT, "leased"), {"state": "leased"}, 409),
        (Answer(TaskResult.NACK, "in_doubt"), {"state": "in_doubt"}, 503),
        (
            Answer(TaskResult.REFUSED, "dead", 131026),
            {"state": "dead", "error": "whatsapp_permanent_error", "code": 131026},
            400,
        ),
        (
            Answer(TaskResult.REFUSED_ON_FAULT, "dead", None),
            {"state": "dead", "error": "whatsapp_permanent_error", "code": None},
            502,
        ),
    ],
)
def test_task_result_has_the_status_and_body_of_the_contract(answer: Answer, body: object, status: int) -> None:
    assert task_responses.of_task(answer) == (body, status)


def test_every_result_of_a_task_has_a_status() -> None:
    assert task_responses.STATUS.keys() == set(TaskResult)


def test_neither_domain_nor_pipeline_knows_a_status_of_http() -> None:
    statuses = set(task_responses.STATUS.values()) - {200}
    found = [
        f"{path.name}:{node.lineno}"
        for room in ("domain", "pipeline")
        for path in (SHARED / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in statuses
    ]
    assert found == []
