"""A new task: what CreateTask refuses, and the defaults that it fills in before it stores a task.

Sources: Task, HttpRequest and CreateTaskRequest of google-cloud-tasks 2.26; the stored headers as recorded from the
real service in https://github.com/aertje/cloud-tasks-emulator/blob/main/conformance/golden/headers.json.
"""

from local.grpc_methods import ProtoMessage
from local.tasks import names
from local.tasks.protobuf import Task, seconds
from local.tasks.queue_config import check_retry_config
from local.tasks.refusals import invalid, not_imitated

MAX_TASK_BYTES = 100 * 1024
"""CreateTask's reference: "The maximum task size is 100KB". The quotas page says 1 MiB; code that keeps to the smaller
limit is right under both.
"""
MAX_HEADER_BYTES = 80 * 1024
MAX_URL = 2083
MAX_AHEAD = 30 * 24 * 3600.0
"""How far ahead schedule_time may lie: https://cloud.google.com/tasks/docs/quotas."""
DEADLINES = (15.0, 1800.0)
DEFAULT_DEADLINE = 600
USER_AGENT = "Google-Cloud-Tasks"

POST = 1
_METHODS = range(1, 8)
_METHODS_WITH_BODY = {POST, 4, 6}  # POST, PUT, PATCH
_REPLACED = {"host", "content-length", "user-agent"}
_RESERVED = ("x-cloudtasks-", "x-google-", "x-appengine-")


def prepared(requested: ProtoMessage, queue: str, now: float) -> ProtoMessage:
    """The task to store: named, with the service's defaults, its output-only fields empty."""
    task = Task()
    task.CopyFrom(requested)
    for output_only in ("create_time", "dispatch_count", "response_count", "first_attempt", "last_attempt", "view"):
        task.ClearField(output_only)
    if task.name:
        names.check_task_in_queue(task.name, queue)
    else:
        task.name = names.invented(queue)
    _check_request(task)
    _settle_times(task, now)
    if task.HasField("retry_config"):
        check_retry_config(task.retry_config)
    task.http_request.http_method = task.http_request.http_method or POST
    _clean_headers(task.http_request.headers)
    return task


def _check_request(task: ProtoMessage) -> None:
    if task.HasField("app_engine_http_request"):
        raise not_imitated("App Engine targets")
    if task.ByteSize() > MAX_TASK_BYTES:
        raise invalid(f"Task size too large: at most {MAX_TASK_BYTES} bytes.")
    request = task.http_request
    if request.HasField("oauth_token"):
        raise not_imitated("OAuth tokens")
    if not request.url:
        raise invalid("HttpRequest.url is required.")
    if not request.url.startswith(("http://", "https://")):
        raise invalid("HttpTarget.url must start with 'http://' or 'https://'.")
    if len(request.url) > MAX_URL:
        raise invalid(f"HttpRequest.url must be at most {MAX_URL} characters.")
    if request.http_method and request.http_method not in _METHODS:
        raise invalid("HttpRequest.http_method is unknown.")
    if request.body and (request.http_method or POST) not in _METHODS_WITH_BODY:
        raise invalid("HttpRequest.body is allowed only if the method is POST, PUT or PATCH.")
    if request.HasField("oidc_token") and not request.oidc_token.service_account_email:
        raise invalid("OidcToken.service_account_email is required.")
    if sum(len(name) + len(value) for name, value in request.headers.items()) >= MAX_HEADER_BYTES:
        raise invalid("The size of HttpRequest.headers must be less than 80KB.")


def _settle_times(task: ProtoMessage, now: float) -> None:
    if seconds(task.schedule_time) > now + MAX_AHEAD:
        raise invalid("Task.schedule_time must be at most 30 days in the future.")
    if not task.HasField("dispatch_deadline"):
        task.dispatch_deadline.FromSeconds(DEFAULT_DEADLINE)
    least, most = DEADLINES
    if not least <= seconds(task.dispatch_deadline) <= most:
        raise invalid("Task.dispatch_deadline must be from 15 seconds to 30 minutes.")


def _clean_headers(headers: ProtoMessage) -> None:
    """Remove what the service ignores or replaces; names keep their case (recorded)."""
    for name in list(headers):
        if name.lower() in _REPLACED or name.lower().startswith(_RESERVED):
            del headers[name]
    headers["User-Agent"] = USER_AGENT
