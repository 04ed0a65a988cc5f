"""A name: the full path of a location, a queue or a task, in the syntax of the Queue and Task references.

https://cloud.google.com/tasks/docs/reference/rpc/google.cloud.tasks.v2#task (`name`), google-cloud-tasks 2.26.
"""

import re
import secrets

from local.tasks.refusals import invalid

_LOCATION = re.compile(r"projects/[A-Za-z0-9:.-]+/locations/[A-Za-z0-9-]+")
_QUEUE = re.compile(_LOCATION.pattern + r"/queues/[A-Za-z0-9-]{1,100}")
_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,500}")


def check_location(name: str) -> None:
    if not _LOCATION.fullmatch(name):
        raise invalid('Location name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>".')


def check_queue(name: str) -> None:
    if not _QUEUE.fullmatch(name):
        raise invalid(
            'Queue name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>".'
        )


def check_task(name: str) -> None:
    queue, separator, task_id = name.partition("/tasks/")
    if not separator or not _QUEUE.fullmatch(queue):
        raise invalid(
            "Task name must be formatted: "
            '"projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>/tasks/<TASK_ID>".'
        )
    if not _TASK_ID.fullmatch(task_id):
        raise invalid(
            f'Task ID "{task_id}" can contain only letters ([A-Za-z]), numbers ([0-9]), hyphens (-), '
            "or underscores (_). Task ID must between 1 and 500 characters."
        )


def check_task_in_queue(name: str, queue: str) -> None:
    check_task(name)
    named_queue = queue_of(name)
    if named_queue != queue:
        raise invalid(
            f"The queue name from request ('{queue}') must be the same as the queue name "
            f"in the named task ('{named_queue}')."
        )


def queue_of(task_name: str) -> str:
    return task_name.partition("/tasks/")[0]


def short(name: str) -> str:
    """The last part of a name: the id of a queue or a task."""
    return name.rpartition("/")[2]


def invented(queue: str) -> str:
    """A name for a task whose creator gave none: random, so that ids are spread evenly, as the reference asks for."""
    return f"{queue}/tasks/{secrets.randbelow(10**20):020d}"
