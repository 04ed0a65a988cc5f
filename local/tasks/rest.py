"""The REST API: a request in JSON in, the answer of the same method that gRPC calls out, by Google's transcoding rules.

Sources, read 2026-11: the google.api.http rules of each method in https://cloud.google.com/tasks/docs/reference/rest
and in the REST transport of google-cloud-tasks 2.26; https://github.com/googleapis/googleapis, google/api/http.proto
(path, query and body), google/rpc/code.proto (HTTP statuses); https://google.aip.dev/193 (the body of an error);
https://protobuf.dev/programming-guides/json; https://cloud.google.com/apis/docs/system-parameters.

Not imitated: `fields` and any `alt` but json answer 501; batch calls, IAM, locations and operations answer 404.
"""

import json
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

import grpc
from google.protobuf import json_format  # type: ignore[import-untyped]

from local.grpc_methods import CallRefused, Methods, ProtoMessage
from local.tasks.refusals import invalid, not_imitated

_Code = grpc.StatusCode
HTTP_STATUSES: Mapping[grpc.StatusCode, int] = {
    _Code.CANCELLED: 499,
    _Code.UNKNOWN: 500,
    _Code.INVALID_ARGUMENT: 400,
    _Code.DEADLINE_EXCEEDED: 504,
    _Code.NOT_FOUND: 404,
    _Code.ALREADY_EXISTS: 409,
    _Code.PERMISSION_DENIED: 403,
    _Code.UNAUTHENTICATED: 401,
    _Code.RESOURCE_EXHAUSTED: 429,
    _Code.FAILED_PRECONDITION: 400,
    _Code.ABORTED: 409,
    _Code.OUT_OF_RANGE: 400,
    _Code.UNIMPLEMENTED: 501,
    _Code.INTERNAL: 500,
    _Code.UNAVAILABLE: 503,
    _Code.DATA_LOSS: 500,
}

_IGNORED = {"key", "prettyPrint", "quotaUser", "access_token", "oauth_token"}
"""System parameters that change nothing here: the emulator refuses no caller, and has no quota."""

_INVALID = "Invalid JSON payload received."
_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")


@dataclass(frozen=True, slots=True)
class Rule:
    """How one HTTP request becomes the request of a method: google.api.http, with one variable in the path.

    `body` is the field that the body becomes, "*" for the whole request, "" if there is none. `variable` is the field
    that the path sets, possibly inside another.
    """

    method: str
    pattern: re.Pattern[str]
    variable: str
    body: str


def _rule(method: str, template: str, body: str = "") -> Rule:
    before, variable, shape, after = re.split("[{=}]", template)
    pattern = re.escape(before) + "(" + shape.replace("*", "[^/]+") + ")" + re.escape(after)
    return Rule(method, re.compile(pattern), variable, body)


_LOCATION = "projects/*/locations/*"
_QUEUE = f"{_LOCATION}/queues/*"
_TASK = f"{_QUEUE}/tasks/*"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "POST": (
        _rule("CreateTask", f"/v2/{{parent={_QUEUE}}}/tasks", "*"),
        _rule("RunTask", f"/v2/{{name={_TASK}}}:run", "*"),
        _rule("CreateQueue", f"/v2/{{parent={_LOCATION}}}/queues", "queue"),
        _rule("PurgeQueue", f"/v2/{{name={_QUEUE}}}:purge", "*"),
        _rule("PauseQueue", f"/v2/{{name={_QUEUE}}}:pause", "*"),
        _rule("ResumeQueue", f"/v2/{{name={_QUEUE}}}:resume", "*"),
    ),
    "GET": (
        _rule("GetTask", f"/v2/{{name={_TASK}}}"),
        _rule("ListTasks", f"/v2/{{parent={_QUEUE}}}/tasks"),
        _rule("GetQueue", f"/v2/{{name={_QUEUE}}}"),
        _rule("ListQueues", f"/v2/{{parent={_LOCATION}}}/queues"),
    ),
    "PATCH": (_rule("UpdateQueue", f"/v2/{{queue.name={_QUEUE}}}", "queue"),),
    "DELETE": (
        _rule("DeleteTask", f"/v2/{{name={_TASK}}}"),
        _rule("DeleteQueue", f"/v2/{{name={_QUEUE}}}"),
    ),
}


@dataclass(frozen=True, slots=True)
class RestApi:
    """Answers requests in any number of threads."""

    methods: Methods

    def answer(self, verb: str, target: str, body: bytes) -> tuple[int, bytes]:
        """The HTTP status, and the JSON of the response or of the error."""
        path, _, query = target.partition("?")
        try:
            rule, name = _match(verb, path)
            parameters, enums_as_numbers = _parameters(query)
            request_type, method = self.methods[rule.method]
            response = method(_request(request_type, rule, name, parameters, body))
        except CallRefused as refused:
            return error(refused.code, refused.sentence)
        except Exception:  # noqa: BLE001 - a bug of ours is an answer, as under gRPC, which prints a traceback too
            traceback.print_exc()
            return error(_Code.UNKNOWN, "Unexpected error in the Cloud Tasks emulator. It printed a traceback.")
        document = json_format.MessageToDict(response, use_integers_for_enums=enums_as_numbers)
        return 200, json.dumps(document).encode()


def error(code: grpc.StatusCode, sentence: str, status: int = 0) -> tuple[int, bytes]:
    """Google's body of an error; `status` replaces the HTTP status that belongs to the code."""
    status = status or HTTP_STATUSES[code]
    return status, json.dumps({"error": {"code": status, "message": sentence, "status": code.name}}).encode()


def _match(verb: str, path: str) -> tuple[Rule, str]:
    for rule in RULES.get(verb, ()):
        if found := rule.pattern.fullmatch(path):
            return rule, unquote(found[1])
    raise CallRefused(_Code.NOT_FOUND, f"The local Cloud Tasks has no {verb} at this path.")


def _parameters(query: str) -> tuple[dict[str, Any], bool]:
    """The request's own parameters, and whether enums are wanted as numbers, as the client library does."""
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    system = {name.removeprefix("$"): parameters.pop(name) for name in ("alt", "$alt", "fields") if name in parameters}
    kind, _, encoding = system.get("alt", "json").partition(";")
    if kind != "json" or "fields" in system:
        raise not_imitated("partial responses and formats other than JSON")
    own = {name: value for name, value in parameters.items() if name.removeprefix("$") not in _IGNORED}
    return own, encoding == "enum-encoding=int"


def _request(
    request_type: ProtoMessage, rule: Rule, name: str, parameters: dict[str, Any], body: bytes
) -> ProtoMessage:
    if rule.body == "*" and parameters:
        raise invalid(f"Cannot bind the query parameter {next(iter(parameters))}: all fields are in the body.")
    if not rule.body and body:
        raise invalid(f"{rule.method} takes no body.")
    document = _object(body) if rule.body == "*" else parameters
    if rule.body not in ("", "*"):
        document[rule.body] = _object(body)
    holder, _, field = rule.variable.rpartition(".")
    (document[holder] if holder else document)[field] = name  # the path decides, whatever the body says
    try:
        request = json_format.ParseDict(document, request_type())
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as wrong:
        raise invalid(f"{_INVALID} {str(wrong).partition(chr(10))[0]}") from wrong
    if rule.method == "CreateTask":
        _check_base64(document.get("task") or {})
    return request


def _check_base64(task: dict[str, Any]) -> None:
    """Refuse a task's body that is not base64, as Google does; json_format skips what it cannot read."""
    http = task.get("httpRequest") or task.get("http_request") or {}
    if not _BASE64.fullmatch(http.get("body") or ""):
        raise invalid(f"{_INVALID} Base64 decoding failed for task.http_request.body.")


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body.decode()) if body else {}
    except (ValueError, RecursionError) as wrong:
        raise invalid(f"{_INVALID} {type(wrong).__name__}.") from wrong
    if not isinstance(document, dict):
        raise invalid(f"{_INVALID} The body must be an object.")
    return document
