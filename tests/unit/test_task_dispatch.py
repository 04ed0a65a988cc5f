"""What follows a write: the tasks of a plan, and the line that tells how many were made."""

from dataclasses import replace
from datetime import datetime

import pytest

from shared.domain.delivery.answers import Answer, Hop, Step, TaskResult
from shared.domain.errors import QueueUnavailable
from shared.domain.record import Delivery, Kind, State, Task
from shared.pipeline.channels import Channels
from shared.pipeline.dispatch import TaskDispatch
from tests.support.builders import LIMITS, at, pending
from tests.support.pipelines import Channel, Clock, Lines, Queue, lines_of

PLAN = replace(pending(Kind.INBOUND), state=State.DONE, plan_size=3)


class Failing(Queue):
    """Cannot be reached for the tasks of these positions (from 0)."""

    def __init__(self, *fails: int) -> None:
        super().__init__()
        self.fails = fails
        self.asked = 0

    def ensure(self, task: Task, at: datetime | None) -> None:
        self.asked += 1
        if self.asked - 1 in self.fails:
            raise QueueUnavailable
        super().ensure(task, at)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return lines_of(caplog)


def dispatch(queue: Queue, record: Delivery = PLAN) -> int:
    return TaskDispatch(queue, Clock(), LIMITS, Channels({"meta": Channel()})).ensure_replies(record)


def test_the_tasks_of_a_plan_are_counted_in_the_log(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    assert dispatch(Queue()) == 3
    (line,) = lines("outbound_enqueued")
    assert (line["outbound_planned"], line["outbound_enqueued"]) == (3, 3)
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_hop_of_a_task_of_version_1_names_the_tenant_of_the_record() -> None:
    record, queue = pending(Kind.OUTBOUND, tenant="acme"), Queue()
    before = replace(Task.of(record), tenant="")
    step = Step(Answer(TaskResult.ACK, "waiting"), next=Hop(record, at(9)))
    TaskDispatch(queue, Clock(), LIMITS, Channels())(step, before)
    assert queue.made == [(replace(before, hop=1, tenant="acme"), at(9))]


@pytest.mark.parametrize("fails", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_a_task_that_cannot_be_made_stops_no_other_and_is_not_counted(
    lines: Lines, caplog: pytest.LogCaptureFixture, fails: tuple[int, ...]
) -> None:
    queue = Failing(*fails)
    with pytest.raises(QueueUnavailable):
        dispatch(queue)
    assert (queue.asked, len(queue.made)) == (3, 3 - len(fails))
    (line,) = lines("outbound_enqueued")
    assert (line["outbound_planned"], line["outbound_enqueued"]) == (3, 3 - len(fails))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_plan_of_nothing_leaves_no_line(lines: Lines) -> None:
    assert dispatch(Queue(), replace(PLAN, plan_size=0)) == 0
    assert lines("outbound_enqueued") == []
