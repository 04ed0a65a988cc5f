"""The calls on tasks, as in the CloudTasks reference: one method per call, request in, response out."""

from collections.abc import Callable
from dataclasses import dataclass

from google.cloud import tasks_v2 as v2

from local.faults import FaultBook
from local.grpc_methods import Methods, ProtoMessage
from local.tasks import names, new_task, paging
from local.tasks.attempt import take_fault
from local.tasks.dispatcher import Dispatcher
from local.tasks.protobuf import Empty, View, seconds, task_message
from local.tasks.queue_table import QueueTable
from local.tasks.refusals import NameUsed, invalid
from local.tasks.task_table import StoredTask, TaskTable

LARGEST_PAGE = 1000
"""ListTasksRequest.page_size."""
LARGEST_PAGE_WITH_BODIES = 30
"""Possibly fewer than requested, as the reference allows: more tasks of 100 KB would pass gRPC's 4 MB per message."""


@dataclass(frozen=True, slots=True)
class TaskCalls:
    queues: QueueTable
    tasks: TaskTable
    dispatcher: Dispatcher
    faults: FaultBook
    clock: Callable[[], float]

    def methods(self) -> Methods:
        return {
            "CreateTask": (v2.CreateTaskRequest.pb(), self.create),
            "GetTask": (v2.GetTaskRequest.pb(), self.get),
            "ListTasks": (v2.ListTasksRequest.pb(), self.list),
            "DeleteTask": (v2.DeleteTaskRequest.pb(), self.delete),
            "RunTask": (v2.RunTaskRequest.pb(), self.run),
        }

    def create(self, request: ProtoMessage) -> ProtoMessage:
        names.check_queue(request.parent)
        now = self.clock()
        task = new_task.prepared(request.task, request.parent, now)
        try:
            stored = self._store(request.parent, task, now)
        except NameUsed:
            if take_fault(self.faults, task, "free_name") is None:
                raise
            self.tasks.free_name(task.name)
            stored = self._store(request.parent, task, now)
        self.dispatcher.wake(request.parent, stored.schedule_at)
        return task_message(stored, request.response_view)

    def get(self, request: ProtoMessage) -> ProtoMessage:
        names.check_task(request.name)
        return task_message(self.tasks.get(request.name, self.clock()), request.response_view)

    def list(self, request: ProtoMessage) -> ProtoMessage:
        names.check_queue(request.parent)
        self.queues.get(request.parent)
        with_bodies = request.response_view == View.FULL
        size = paging.size(request.page_size, LARGEST_PAGE_WITH_BODIES if with_bodies else LARGEST_PAGE)
        after = paging.place(request.page_token) or "0"
        if not after.isdecimal():
            raise invalid("The page token is invalid: this service did not issue it.")
        found = self.tasks.page(request.parent, int(after), size + 1)
        shown = [task_message(stored, request.response_view) for stored in found[:size]]
        response = v2.ListTasksResponse.pb()(tasks=shown)
        if len(found) > size:
            response.next_page_token = paging.token(str(found[size - 1].id))
        return response

    def delete(self, request: ProtoMessage) -> ProtoMessage:
        names.check_task(request.name)
        self.tasks.delete(request.name, self.clock())
        return Empty()

    def run(self, request: ProtoMessage) -> ProtoMessage:
        """Dispatch now, and return the task as it is after the dispatch and before the target receives it."""
        names.check_task(request.name)
        stored = self.tasks.take_up(request.name, self.clock())
        self.dispatcher.run_now(stored)
        return task_message(stored, request.response_view)

    def _store(self, queue: str, task: ProtoMessage, now: float) -> StoredTask:
        """A schedule_time that is missing or in the past becomes now (CreateTaskRequest)."""
        return self.tasks.create(queue, task.name, task.SerializeToString(), max(now, seconds(task.schedule_time)), now)
