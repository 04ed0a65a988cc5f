"""What follows a write: the tasks of a plan, and the line that tells how many were made."""

from dataclasses import replace
from datetime import datetime

import pytest

from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Hop, Step, TaskResult
from shared.domain.errors import QueueUnavailable, RegistryUnavailable, RegistryUnreadable
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.tasks import wake_tasks
from shared.domain.tenants import Tenant
from shared.pipeline.channels import Channels
from shared.pipeline.dispatch import TaskDispatch
from shared.tenants.environment import EnvironmentTenants
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


ONE = EnvironmentTenants.of()


class Registry(EnvironmentTenants):
    """Tenant acme has the pair of queues 7; tenant bare has none."""

    def __init__(self) -> None:
        super().__init__(())

    def tenant(self, id: str) -> Tenant | None:
        return {"acme": Tenant("acme", queue=7), "bare": Tenant("bare")}.get(id)


class Down(EnvironmentTenants):
    """A registry that cannot be reached, or read."""

    error: Exception = RegistryUnavailable()

    def tenant(self, id: str) -> Tenant | None:  # noqa: ARG002 — it fails for each
        raise self.error


def dispatch_of(queue: Queue, tenants: EnvironmentTenants = ONE) -> TaskDispatch:
    return TaskDispatch(queue, Clock(), LIMITS, Channels({"meta": Channel()}), tenants)


def dispatch(queue: Queue, record: Delivery = PLAN) -> int:
    return dispatch_of(queue).ensure_replies(record)


def test_the_tasks_of_a_plan_are_counted_in_the_log(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    assert dispatch(Queue()) == 3
    (line,) = lines("outbound_enqueued")
    assert (line["outbound_planned"], line["outbound_enqueued"]) == (3, 3)
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_hop_of_a_task_of_version_1_names_the_tenant_of_the_record() -> None:
    record, queue = pending(Kind.OUTBOUND, tenant="acme"), Queue()
    before = replace(Task.of(record), tenant="")
    step = Step(Answer(TaskResult.ACK, "waiting"), next=Hop(record, at(9)))
    dispatch_of(queue)(step, before)
    assert queue.made == [(replace(before, hop=1, tenant="acme"), at(9))]


PAIRS = [("acme", 7), ("bare", None), ("removed", None), ("", None)]
each_pair = pytest.mark.parametrize(("tenant", "pair"), PAIRS, ids=["numbered", "shared", "removed", "nobody's"])


@each_pair
@pytest.mark.parametrize("kind", list(Kind))
def test_own_task_goes_to_the_pair_of_its_tenant(kind: Kind, tenant: str, pair: int | None) -> None:
    record, queue = pending(kind, tenant=tenant), Queue()
    dispatch_of(queue, Registry()).ensure(record)
    assert queue.made == [(Task.of(record, pair), record.due_at)]


@each_pair
def test_hop_goes_to_the_pair_of_its_tenant(tenant: str, pair: int | None) -> None:
    """Also if its task came from another queue, as after the tenant got its own."""
    record, queue = pending(Kind.OUTBOUND, tenant=tenant), Queue()
    step = Step(Answer(TaskResult.ACK, "waiting"), next=Hop(record, at(9)))
    dispatch_of(queue, Registry())(step, Task.of(record, pair=3))
    assert queue.made == [(replace(Task.of(record, pair), hop=1), at(9))]


@each_pair
def test_replies_go_to_the_pair_of_their_tenant(lines: Lines, tenant: str, pair: int | None) -> None:
    queue = Queue()
    dispatch_of(queue, Registry()).ensure_replies(replace(PLAN, tenant=tenant))
    assert [(task.tenant, task.pair) for task, _ in queue.made] == [(tenant, pair)] * 3


def ending(tenant: str) -> Step:
    """The step that has ended a message for which another one waits."""
    record = pending(Kind.OUTBOUND, tenant=tenant, state=State.DONE, bell=frozenset({f"{'0e' * 20}.correlation-2"}))
    return Step(Answer(TaskResult.ACK, "done"), rings=record)


@each_pair
def test_wake_task_goes_to_the_pair_of_its_tenant_and_runs_at_once(tenant: str, pair: int | None) -> None:
    step, queue = ending(tenant), Queue()
    assert step.rings is not None
    dispatch_of(queue, Registry())(step, Task.of(step.rings, pair=3))
    assert queue.made == [(task, None) for task in wake_tasks(step.rings, pair)]


def test_registry_outage_wakes_nobody_and_retries_no_task(lines: Lines) -> None:
    """Who waits hops by itself."""
    step, queue = ending("acme"), Queue()
    assert step.rings is not None
    assert dispatch_of(queue, Down(()))(step, Task.of(step.rings)) == step.answer
    assert queue.made == []
    (line,) = lines("unexpected_error")
    assert (line["reason"], line["stage"]) == ("registry_unavailable", "wake")


@pytest.mark.parametrize("next_step", ["own task", "replies", "hop"])
def test_a_registry_outage_makes_no_task_and_retries_the_running_one(lines: Lines, next_step: str) -> None:
    record, queue = replace(PLAN, state=State.PENDING), Queue()
    steps = {"own task": Ensure(record), "replies": EnsureReplies(record, ()), "hop": Hop(record, at(9))}
    step = Step(Answer(TaskResult.ACK, "done"), next=steps[next_step])
    answer = dispatch_of(queue, Down(()))(step, Task.of(record))
    assert (answer, queue.made) == (Answer(TaskResult.NACK, "done"), [])
    (line,) = lines("unexpected_error")
    assert (line["reason"], line["stage"]) == ("registry_unavailable", "enqueue")


def test_tenant_that_cannot_be_read_retries_its_task_and_slows_no_queue(lines: Lines) -> None:
    record, registry = replace(PLAN, state=State.PENDING), Down(())
    registry.error = RegistryUnreadable()
    step = Step(Answer(TaskResult.ACK, "done"), next=Ensure(record))
    assert dispatch_of(Queue(), registry)(step, Task.of(record)) == Answer(TaskResult.CONFLICT, "done")
    (line,) = lines("unexpected_error")
    assert line["reason"] == "registry_unreadable"


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
