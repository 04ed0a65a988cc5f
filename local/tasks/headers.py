"""The headers that an attempt carries, with the meaning the service gives them.

https://cloud.google.com/tasks/docs/creating-http-target-tasks#handler;
https://firebase.google.com/docs/reference/functions/firebase-functions.tasks.taskcontext; the values on retries as
recorded from the real service in
https://github.com/aertje/cloud-tasks-emulator/blob/main/conformance/golden/dispatch.json.
"""

from local.tasks import names
from local.tasks.task_table import StoredTask


def attempt_headers(task: StoredTask) -> dict[str, str]:
    """Headers of the last attempt that `task.dispatch_count` counts.

    TaskRetryCount counts every earlier attempt; TaskExecutionCount only those that got a response other than 5xx.
    TaskRetryReason is present on retries but empty, as the real service sends it to HTTP targets.
    """
    headers = {
        "X-CloudTasks-QueueName": names.short(task.queue),
        "X-CloudTasks-TaskName": names.short(task.name),
        "X-CloudTasks-TaskRetryCount": str(task.dispatch_count - 1),
        "X-CloudTasks-TaskExecutionCount": str(task.execution_count),
        "X-CloudTasks-TaskETA": f"{task.schedule_at:.6f}",
    }
    if task.previous_response is not None:
        headers["X-CloudTasks-TaskPreviousResponse"] = str(task.previous_response)
        headers["X-CloudTasks-TaskRetryReason"] = ""
    return headers
