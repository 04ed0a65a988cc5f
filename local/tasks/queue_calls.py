"""The calls on queues, as in the CloudTasks reference: one method per call, request in, response out."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from google.cloud import tasks_v2 as v2

from local.grpc_methods import CallRefused, Methods, ProtoMessage
from local.tasks import names, paging, queue_config
from local.tasks.dispatcher import Dispatcher
from local.tasks.log import Log
from local.tasks.protobuf import Empty, Queue, set_moment
from local.tasks.queue_table import QueueTable
from local.tasks.refusals import invalid, not_imitated
from local.tasks.task_table import TaskTable

LARGEST_PAGE = 9800
"""ListQueuesRequest.page_size."""


@dataclass(frozen=True, slots=True)
class QueueCalls:
    queues: QueueTable
    tasks: TaskTable
    dispatcher: Dispatcher
    log: Log
    clock: Callable[[], float]
    _changing: threading.Lock = field(default_factory=threading.Lock)  # a change reads the queue and writes it back

    def methods(self) -> Methods:
        return {
            "CreateQueue": (v2.CreateQueueRequest.pb(), self.create),
            "GetQueue": (v2.GetQueueRequest.pb(), self.get),
            "ListQueues": (v2.ListQueuesRequest.pb(), self.list),
            "UpdateQueue": (v2.UpdateQueueRequest.pb(), self.update),
            "DeleteQueue": (v2.DeleteQueueRequest.pb(), self.delete),
            "PauseQueue": (v2.PauseQueueRequest.pb(), self.pause),
            "ResumeQueue": (v2.ResumeQueueRequest.pb(), self.resume),
            "PurgeQueue": (v2.PurgeQueueRequest.pb(), self.purge),
        }

    def create(self, request: ProtoMessage) -> ProtoMessage:
        names.check_location(request.parent)
        if not request.queue.name.startswith(f"{request.parent}/queues/"):
            names.check_queue(request.queue.name)
            raise invalid("The queue's name must be under the parent given in the request.")
        return self._add(queue_config.created(request.queue))

    def get(self, request: ProtoMessage) -> ProtoMessage:
        names.check_queue(request.name)
        return Queue.FromString(self.queues.get(request.name))

    def list(self, request: ProtoMessage) -> ProtoMessage:
        names.check_location(request.parent)
        if request.filter:
            raise not_imitated("filters on queues")
        size = paging.size(request.page_size, LARGEST_PAGE)
        after = paging.place(request.page_token)
        found = [Queue.FromString(m) for m in self.queues.page(f"{request.parent}/queues/", after, size + 1)]
        response = v2.ListQueuesResponse.pb()(queues=found[:size])
        if len(found) > size:
            response.next_page_token = paging.token(found[size - 1].name)
        return response

    def update(self, request: ProtoMessage) -> ProtoMessage:
        """Change a queue, or create it if there is none, as UpdateQueue does."""
        names.check_queue(request.queue.name)
        with self._changing:
            try:
                current = Queue.FromString(self.queues.get(request.queue.name))
            except CallRefused:
                return self._add(queue_config.created(request.queue))
            return self._replace(queue_config.updated(current, request.queue, list(request.update_mask.paths)))

    def delete(self, request: ProtoMessage) -> ProtoMessage:
        names.check_queue(request.name)
        self.queues.delete(request.name, self.clock())
        self.dispatcher.forget(request.name)
        self.log.write("queue_deleted", queue=names.short(request.name))
        return Empty()

    def pause(self, request: ProtoMessage) -> ProtoMessage:
        return self._set_state(request, queue_config.PAUSED)

    def resume(self, request: ProtoMessage) -> ProtoMessage:
        return self._set_state(request, queue_config.RUNNING)

    def purge(self, request: ProtoMessage) -> ProtoMessage:
        """Delete all tasks at once; the service may take a minute, and dispatch some meanwhile."""
        with self._changing:
            queue = self.get(request)
            now = self.clock()
            self.tasks.purge(queue.name, now)
            set_moment(queue.purge_time, now)
            self.log.write("queue_purged", queue=names.short(queue.name))
            return self._replace(queue)

    def _set_state(self, request: ProtoMessage, state: int) -> ProtoMessage:
        with self._changing:
            queue = self.get(request)
            queue.state = state
            return self._replace(queue)

    def _add(self, queue: ProtoMessage) -> ProtoMessage:
        self.queues.add(queue.name, queue.SerializeToString(), self.clock())
        self.dispatcher.configure(queue)
        self.log.write("queue_created", queue=names.short(queue.name))
        return queue

    def _replace(self, queue: ProtoMessage) -> ProtoMessage:
        self.queues.replace(queue.name, queue.SerializeToString())
        self.dispatcher.configure(queue)
        return queue
