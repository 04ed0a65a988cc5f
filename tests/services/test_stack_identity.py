"""The whole stack with an identity for its queues: what they send is believed, and what anybody else sends is not."""

from collections.abc import Callable, Iterator

import pytest

from shared.domain.record import Kind, Task
from shared.domain.tasks import task_body
from tests.support.stack import Stack

ACCOUNT = "tasks@pombo-local.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def guarded(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    with make_stack(TASKS_SERVICE_ACCOUNT=ACCOUNT) as stack:
        yield stack


def test_tasks_carry_the_identity_that_their_queues_give_them(guarded: Stack, contact: str) -> None:
    guarded.wait_settled([guarded.say(contact, "hello")])
    assert guarded.texts(contact) == ["hello"]
    (said,) = [line for line in guarded.logs() if line["event"] == "caller_verified"]
    assert (said["caller"], said["signature"]) == ("tasks", "verified")


@pytest.mark.parametrize("kind", list(Kind))
def test_the_internal_token_alone_is_not_enough(guarded: Stack, kind: Kind) -> None:
    answer = guarded.task(kind, task_body(Task("0" * 40, kind, "corr_0001", 0)))
    assert answer.status_code == 403
    guarded.wait_logs("task_refused", cause="no_identity")
