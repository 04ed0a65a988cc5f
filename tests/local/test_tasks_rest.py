"""The REST API, on the emulator's one port: by raw HTTP, and by the unmodified client with its REST transport.

Sources: https://cloud.google.com/tasks/docs/reference/rest (read 2026-11); for the rest see local/tasks/rest.py."""

import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksRestTransport
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import given
from hypothesis import strategies as st

from local.grpc_methods import CallRefused
from local.tasks.http_connection import BODY_LIMIT, REQUEST_SECONDS
from local.tasks.rest import HTTP_STATUSES, RULES, RestApi
from tests.support.tasks_harness import LOCATION, Emulator, a_target, wait_until

View = tasks_v2.Task.View
URL = "http://127.0.0.1:9/path?query=1"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def rest(emulator):
    """The client library over REST."""
    with rest_client(emulator.port) as client:
        yield client


@contextmanager
def rest_client(port: int) -> Iterator[tasks_v2.CloudTasksClient]:
    transport = CloudTasksRestTransport(host=f"127.0.0.1:{port}", url_scheme="http", credentials=AnonymousCredentials())
    transport._session.trust_env = False  # no proxy of the environment
    with closing(transport):
        yield tasks_v2.CloudTasksClient(transport=transport)


def ask(emulator: Emulator, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and the document of one request, on a connection of its own."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    with closing(http.client.HTTPConnection("127.0.0.1", emulator.port, timeout=20)) as connection:
        connection.request(method, path, content, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def refused(emulator: Emulator, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, str]:
    """The HTTP status, the code and the sentence of a refusal."""
    status, document = ask(emulator, method, path, body, **headers)
    error = document["error"]
    assert error["code"] == status
    return status, error["status"], error["message"]


def task(name: str = "", **fields: Any) -> dict[str, Any]:
    return {"task": {**({"name": name} if name else {}), "httpRequest": {"url": URL}, **fields}}


# --- each method, as under gRPC


def test_every_grpc_method_has_a_rest_rule(emulator):
    """The rules are those of the library's own REST transport."""
    rules = {rule.method for each in RULES.values() for rule in each}
    base = CloudTasksRestTransport.__mro__[1]
    for verb, each in RULES.items():
        for rule in each:
            option = getattr(base, f"_Base{rule.method}")._get_http_options()[0]
            template = option["uri"].replace("{" + rule.variable + "=", "").replace("}", "")
            assert (option["method"], option.get("body", "")) == (verb.lower(), rule.body)
            assert rule.pattern.fullmatch(template)
    assert len(rules) == sum(map(len, RULES.values())) == 13


def test_queue_created_by_rest_is_read_by_grpc_and_the_other_way(emulator, rest):
    name = f"{LOCATION}/queues/by-rest"
    status, made = ask(emulator, "POST", f"/v2/{LOCATION}/queues", {"name": name, "retryConfig": {"minBackoff": "5s"}})
    assert (status, made["state"], made["retryConfig"]["minBackoff"]) == (200, "RUNNING", "5s")
    assert emulator.client.get_queue(name=name).retry_config.min_backoff.total_seconds() == 5
    other = emulator.queue({"max_dispatches_per_second": 7})
    status, shown = ask(emulator, "GET", f"/v2/{other}")
    assert (status, shown["name"], shown["rateLimits"]["maxDispatchesPerSecond"]) == (200, other, 7)
    assert rest.get_queue(name=other) == emulator.client.get_queue(name=other)


def test_queues_are_listed_page_by_page(emulator, rest):
    parent = "projects/p/locations/paged"
    names = [f"{parent}/queues/q{number}" for number in range(3)]
    for name in names:
        rest.create_queue(parent=parent, queue=tasks_v2.Queue(name=name))
    status, first = ask(emulator, "GET", f"/v2/{parent}/queues?pageSize=2")
    assert (status, [queue["name"] for queue in first["queues"]]) == (200, names[:2])
    _, second = ask(emulator, "GET", f"/v2/{parent}/queues?pageSize=2&pageToken={first['nextPageToken']}")
    assert [queue["name"] for queue in second["queues"]] == names[2:]
    assert "nextPageToken" not in second
    assert [queue.name for queue in rest.list_queues(parent=parent)] == names


def test_update_changes_only_the_fields_of_its_mask(emulator, rest):
    queue = emulator.queue({"max_dispatches_per_second": 7}, {"max_attempts": 3})
    body = {"rateLimits": {"maxDispatchesPerSecond": 9}, "retryConfig": {"maxAttempts": 9}}
    status, shown = ask(emulator, "PATCH", f"/v2/{queue}?updateMask=rateLimits.maxDispatchesPerSecond", body)
    assert (status, shown["rateLimits"]["maxDispatchesPerSecond"], shown["retryConfig"]["maxAttempts"]) == (200, 9, 3)
    changed = tasks_v2.Queue(name=queue, retry_config=tasks_v2.RetryConfig(max_attempts=5))
    rest.update_queue(queue=changed, update_mask=FieldMask(paths=["retry_config.max_attempts"]))
    assert emulator.client.get_queue(name=queue).retry_config.max_attempts == 5


def test_pause_and_resume_set_the_state_of_a_queue(emulator):
    queue = emulator.queue()
    assert ask(emulator, "POST", f"/v2/{queue}:pause", {})[1]["state"] == "PAUSED"
    assert emulator.client.get_queue(name=queue).state == tasks_v2.Queue.State.PAUSED
    assert ask(emulator, "POST", f"/v2/{queue}:resume")[1]["state"] == "RUNNING"  # an empty body is an empty object


def test_purge_deletes_all_tasks(emulator):
    queue = emulator.paused_queue()
    emulator.create(queue)
    status, shown = ask(emulator, "POST", f"/v2/{queue}:purge", {})
    assert (status, "purgeTime" in shown) == (200, True)
    assert list(emulator.client.list_tasks(parent=queue)) == []


def test_deleted_queue_is_not_found(emulator):
    queue = emulator.queue()
    assert ask(emulator, "DELETE", f"/v2/{queue}") == (200, {})
    with pytest.raises(exceptions.NotFound):
        emulator.client.get_queue(name=queue)
    assert refused(emulator, "GET", f"/v2/{queue}")[:2] == (404, "NOT_FOUND")


def test_task_created_by_rest_is_read_by_grpc(emulator):
    queue = emulator.paused_queue()
    status, made = ask(emulator, "POST", f"/v2/{queue}/tasks", task(f"{queue}/tasks/t"))
    assert (status, made["name"], made["view"]) == (200, f"{queue}/tasks/t", "BASIC")
    assert emulator.client.get_task(name=f"{queue}/tasks/t").http_request.url == URL


def test_task_created_by_grpc_is_read_by_rest(emulator, rest):
    queue = emulator.paused_queue()
    name = emulator.create(queue, URL, body=b"secret", task_id="t").name
    status, basic = ask(emulator, "GET", f"/v2/{name}")
    assert (status, basic["name"], "body" in basic["httpRequest"]) == (200, name, False)
    full = ask(emulator, "GET", f"/v2/{name}?responseView=FULL")[1]
    assert (full["view"], base64.b64decode(full["httpRequest"]["body"])) == ("FULL", b"secret")
    request = {"name": name, "response_view": View.FULL}
    assert rest.get_task(request=request) == emulator.client.get_task(request=request)


def test_tasks_are_listed_page_by_page(emulator, rest):
    queue = emulator.paused_queue()
    names = [emulator.create(queue, body=b"x", task_id=f"t{number}").name for number in range(5)]
    path = f"/v2/{queue}/tasks?responseView=FULL&pageSize=3"
    status, first = ask(emulator, "GET", path)
    assert (status, [each["httpRequest"]["body"] for each in first["tasks"]]) == (200, ["eA=="] * 3)
    second = ask(emulator, "GET", f"{path}&pageToken={first['nextPageToken']}")[1]
    assert [each["name"] for each in first["tasks"] + second["tasks"]] == names
    assert [each.name for each in rest.list_tasks(request={"parent": queue, "page_size": 2})] == names


def test_deleted_task_is_gone(emulator):
    name = emulator.create(emulator.paused_queue()).name
    assert ask(emulator, "DELETE", f"/v2/{name}") == (200, {})
    assert emulator.is_gone(name)


def test_run_delivers_a_task_from_a_paused_queue(emulator):
    with a_target() as target:
        name = emulator.create(emulator.paused_queue(), target.url, body=b"x").name
        status, shown = ask(emulator, "POST", f"/v2/{name}:run", {"responseView": "FULL"})
        assert (status, shown["dispatchCount"], shown["httpRequest"]["body"]) == (200, 1, "eA==")
        wait_until(lambda: target.received)


def test_task_created_by_rest_is_delivered(emulator):
    queue = emulator.queue()
    with a_target() as target:
        request = {"url": f"{target.url}/x", "body": base64.b64encode(b"hi").decode(), "headers": {"X-Mine": "1"}}
        assert ask(emulator, "POST", f"/v2/{queue}/tasks", {"task": {"httpRequest": request}})[0] == 200
        received = wait_until(lambda: target.received)[0]
    assert (received.method, received.path, received.body) == ("POST", "/x", b"hi")
    assert received.headers["X-Mine"] == "1"


# --- JSON


def test_task_with_every_field_makes_the_round_trip(emulator):
    """JSON writes bytes in base64, a Timestamp as RFC 3339, a Duration as seconds with an s."""
    queue = emulator.paused_queue()
    asked = {
        "name": f"{queue}/tasks/t",
        "httpRequest": {
            "url": URL,
            "httpMethod": "PUT",
            "headers": {"Content-Type": "application/json", "X-Ä": "ü"},
            "body": base64.b64encode(bytes(range(256))).decode(),
            "oidcToken": {"serviceAccountEmail": "tasks@p.iam.gserviceaccount.com", "audience": "https://internal"},
        },
        "scheduleTime": time.strftime("%Y-%m-%dT%H:%M:%S.123456Z", time.gmtime(time.time() + 3600)),
        "dispatchDeadline": "135s",
        "retryConfig": {"maxAttempts": 3, "minBackoff": "1.500s"},
    }
    status, made = ask(emulator, "POST", f"/v2/{queue}/tasks", {"task": asked, "responseView": "FULL"})
    assert status == 200
    assert made.pop("createTime").endswith("Z")
    assert made.pop("view") == "FULL"
    asked["httpRequest"]["headers"]["User-Agent"] = "Google-Cloud-Tasks"
    assert made == asked
    assert ask(emulator, "GET", f"/v2/{queue}/tasks/t?responseView=FULL")[1]["httpRequest"] == asked["httpRequest"]


def test_both_spellings_of_a_field_are_read(emulator):
    """https://protobuf.dev/programming-guides/json: a parser accepts lowerCamelCase and the field's own name."""
    queue = emulator.paused_queue()
    body = {"task": {"http_request": {"url": URL, "http_method": "PUT"}}, "response_view": "FULL"}
    status, made = ask(emulator, "POST", f"/v2/{queue}/tasks", body)
    assert (status, made["httpRequest"]["httpMethod"], made["view"]) == (200, "PUT", "FULL")


def test_path_decides_over_the_body(emulator):
    queue, other = emulator.paused_queue(), emulator.paused_queue()
    status, made = ask(emulator, "POST", f"/v2/{queue}/tasks", {**task(), "parent": other})
    assert (status, made["name"].startswith(f"{queue}/tasks/")) == (200, True)


def test_percent_encoded_path_names_the_same_task(emulator):
    name = emulator.create(emulator.paused_queue(), task_id="a-b").name
    assert ask(emulator, "GET", f"/v2/{name.replace('a-b', 'a%2Db')}")[1]["name"] == name


def test_system_parameters_are_accepted(emulator):
    """https://cloud.google.com/apis/docs/system-parameters; the client library asks for enums as numbers."""
    queue = emulator.paused_queue()
    assert ask(emulator, "GET", f"/v2/{queue}?alt=json&$prettyPrint=false&key=k&quotaUser=u")[1]["state"] == "PAUSED"
    assert ask(emulator, "GET", f"/v2/{queue}?$alt=json;enum-encoding%3Dint")[1]["state"] == 2


# --- refusals


def test_each_grpc_code_has_googles_http_status():
    """google/rpc/code.proto, whose comments name the HTTP status of each code."""
    assert set(HTTP_STATUSES) == set(grpc.StatusCode) - {grpc.StatusCode.OK}
    assert {code.name: status for code, status in HTTP_STATUSES.items() if status != 500} == {
        "CANCELLED": 499,
        "INVALID_ARGUMENT": 400,
        "DEADLINE_EXCEEDED": 504,
        "NOT_FOUND": 404,
        "ALREADY_EXISTS": 409,
        "PERMISSION_DENIED": 403,
        "UNAUTHENTICATED": 401,
        "RESOURCE_EXHAUSTED": 429,
        "FAILED_PRECONDITION": 400,
        "ABORTED": 409,
        "OUT_OF_RANGE": 400,
        "UNIMPLEMENTED": 501,
        "UNAVAILABLE": 503,
    }


@pytest.mark.parametrize("code", HTTP_STATUSES, ids=lambda code: code.name)
def test_refusal_becomes_googles_error_body(code):
    def refuse(_: object) -> object:
        raise CallRefused(code, "Because.")

    api = RestApi({"GetTask": (tasks_v2.GetTaskRequest.pb(), refuse)})
    status, body = api.answer("GET", "/v2/projects/p/locations/l/queues/q/tasks/t", b"")
    assert status == HTTP_STATUSES[code]
    assert json.loads(body) == {"error": {"code": status, "message": "Because.", "status": code.name}}


def test_unexpected_exception_is_500_and_prints_its_traceback(capfd):
    api = RestApi({"GetTask": (tasks_v2.GetTaskRequest.pb(), lambda _: 1 / 0)})
    status, body = api.answer("GET", "/v2/projects/p/locations/l/queues/q/tasks/t", b"")
    assert (status, json.loads(body)["error"]["status"]) == (500, "UNKNOWN")
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_used_name_is_409_as_under_grpc(emulator, rest):
    queue = emulator.paused_queue()
    body = task(f"{queue}/tasks/t")
    assert ask(emulator, "POST", f"/v2/{queue}/tasks", body)[0] == 200
    found = refused(emulator, "POST", f"/v2/{queue}/tasks", body)
    assert found == (409, "ALREADY_EXISTS", "Requested entity already exists")
    with pytest.raises(exceptions.AlreadyExists):
        emulator.create(queue, task_id="t")
    with pytest.raises(exceptions.Conflict):
        rest.create_task(parent=queue, task=tasks_v2.Task(name=f"{queue}/tasks/t", http_request={"url": URL}))
    ask(emulator, "DELETE", f"/v2/{queue}/tasks/t")
    assert "existed too recently" in refused(emulator, "POST", f"/v2/{queue}/tasks", body)[2]


def test_refused_calls_have_googles_status(emulator):
    queue = emulator.paused_queue()
    emulator.client.delete_queue(name=(deleted := emulator.queue()))
    for method, path, body, status, code in [
        ("GET", f"/v2/{queue}/tasks/never-was", None, 404, "NOT_FOUND"),
        ("POST", f"/v2/{LOCATION}/queues/never-was/tasks", task(), 404, "NOT_FOUND"),
        ("POST", f"/v2/{LOCATION}/queues", {"name": queue}, 409, "ALREADY_EXISTS"),
        ("POST", f"/v2/{LOCATION}/queues", {"name": deleted}, 400, "FAILED_PRECONDITION"),
        ("POST", f"/v2/{queue}/tasks", task(dispatchDeadline="14s"), 400, "INVALID_ARGUMENT"),
        ("POST", f"/v2/{queue}/tasks", {"task": {"appEngineHttpRequest": {}}}, 501, "UNIMPLEMENTED"),
        ("POST", f"/v2/{queue}/tasks?fields=name", task(), 501, "UNIMPLEMENTED"),
        ("GET", f"/v2/{queue}?alt=proto", None, 501, "UNIMPLEMENTED"),
        ("GET", f"/v2/{queue}/tasks?pageToken=!", None, 400, "INVALID_ARGUMENT"),
    ]:
        assert refused(emulator, method, path, body)[:2] == (status, code), (method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v2"),
        ("GET", "/v2beta3/{queue}"),
        ("PUT", "/v2/{queue}"),
        ("OPTIONS", "/v2/{queue}"),
        ("POST", "/v2/{queue}"),
        ("POST", "/v2/{queue}:explode"),
        ("POST", "/v2/{queue}/tasks:batchCreate"),
        ("POST", "/v2/{queue}/tasks/"),
        ("GET", "//v2/{queue}"),
    ],
)
def test_unknown_path_or_method_is_404(emulator, method, path):
    assert refused(emulator, method, path.format(queue=emulator.queue()))[:2] == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff",
        b"[" * 100_000,
        b'{"task": ' * 1000,
        b'{"tsak": {}}',
        b'{"task": {"httpRequest": {"url": "http://x/", "bdy": ""}}}',
        b'{"task": {"httpRequest": {"url": 1}}}',
        b'{"task": {"httpRequest": {"url": "http://x/", "body": "@"}}}',
        b'{"task": {"httpRequest": {"url": "http://x/", "httpMethod": "FETCH"}}}',
        b'{"task": {"httpRequest": {"url": "http://x/", "headers": {"a": null}}}}',
        b'{"task": {"httpRequest": {"url": "http://x/"}, "scheduleTime": "tomorrow"}}',
        b'{"task": {"httpRequest": {"url": "http://x/"}, "dispatchDeadline": 15}}',
        b'{"task": {"httpRequest": {"url": "http://x/"}, "dispatchCount": ' + b"9" * 5000 + b"}}",
        b'{"task": {"httpRequest": {"url": "http://x/"}, "name": "\\ud800"}}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_invalid_json_is_an_invalid_argument(emulator, body):
    queue = emulator.paused_queue()
    status, code, sentence = refused(emulator, "POST", f"/v2/{queue}/tasks", body)
    assert (status, code) == (400, "INVALID_ARGUMENT")
    assert sentence.startswith("Invalid JSON payload received.")
    assert list(emulator.client.list_tasks(parent=queue)) == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v2/{queue}/tasks?pageSise=1", None),
        ("GET", "/v2/{queue}/tasks?pageSize=many", None),
        ("GET", "/v2/{queue}/tasks?responseView=ALL", None),
        ("PATCH", "/v2/{queue}?updateMask=colour", {}),
        ("POST", "/v2/{queue}/tasks?responseView=FULL", {"task": {"httpRequest": {"url": URL}}}),
        ("GET", "/v2/{queue}", {}),
    ],
)
def test_wrong_parameter_is_an_invalid_argument(emulator, method, path, body):
    found = refused(emulator, method, path.format(queue=emulator.queue()), body)
    assert found[:2] == (400, "INVALID_ARGUMENT")


TASK = ["name", "httpRequest", "scheduleTime", "dispatchDeadline", "retryConfig", "dispatchCount", "lastAttempt"]
REQUEST = ["url", "headers", "body", "httpMethod", "oidcToken", "minBackoff", "maxAttempts", "unknown"]
LEAF = st.sampled_from([None, True, -1, 1e300, float("nan"), "", "@", "x", "1s", "1e999s", [], {}]) | st.integers()
INNER = LEAF | st.dictionaries(st.sampled_from(REQUEST), LEAF, max_size=3)
BODY = st.dictionaries(st.sampled_from(TASK), INNER, max_size=3).map(lambda task: json.dumps({"task": task}).encode())


@given(BODY | st.binary(max_size=20))
def test_any_body_is_a_task_or_an_invalid_argument(body):
    made = tasks_v2.Task.pb()()
    api = RestApi({"CreateTask": (tasks_v2.CreateTaskRequest.pb(), lambda _: made)})
    status, answer = api.answer("POST", f"/v2/{LOCATION}/queues/q/tasks", body)
    assert status == 200 or json.loads(answer)["error"]["status"] == "INVALID_ARGUMENT"


# --- who may ask


@pytest.mark.parametrize("path", ["/v2/{queue}:purge", "/google.cloud.tasks.v2.CloudTasks/PurgeQueue"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Host": "attacker.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
def test_foreign_host_or_origin_is_403_and_changes_nothing(emulator, path, headers):
    queue = emulator.paused_queue()
    name = emulator.create(queue).name
    given = {key: value.format(port=emulator.port) for key, value in headers.items()}
    assert refused(emulator, "POST", path.format(queue=queue), {}, **given)[:2] == (403, "PERMISSION_DENIED")
    assert not emulator.is_gone(name)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_own_names_are_served_with_and_without_an_origin(emulator, name):
    path = f"/v2/{LOCATION}/queues"
    for origin in ({}, {"Origin": f"http://{name}:{emulator.port}"}):
        assert ask(emulator, "GET", path, Host=f"{name}:{emulator.port}", **origin)[0] == 200


# --- connections


@contextmanager
def connected(emulator: Emulator) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", emulator.port), timeout=20) as connection:
        yield connection


def all_of(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def head(emulator: Emulator, method: str = "GET", path: str = f"/v2/{LOCATION}/queues", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{emulator.port}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


def test_one_connection_answers_many_requests(emulator):
    queue = emulator.paused_queue()
    with closing(http.client.HTTPConnection("127.0.0.1", emulator.port, timeout=20)) as connection:
        connection.connect()
        opened = connection.sock
        for number in range(100):
            bad = number % 10 == 9
            connection.request("POST", f"/v2/{queue}/tasks", b"{" if bad else json.dumps(task()))
            response = connection.getresponse()
            response.read()
            assert response.status == (400 if bad else 200)
        assert connection.sock is opened
    assert len(list(emulator.client.list_tasks(parent=queue))) == 90


def test_connection_close_is_honoured(emulator):
    with connected(emulator) as connection:
        connection.sendall(head(emulator, Connection="close"))
        assert b"\r\nConnection: close\r\n" in all_of(connection)


def test_half_sent_request_blocks_no_other_and_is_closed_in_time(emulator):
    half = [head(emulator)[:-2], head(emulator, "POST", **{"Content-Length": "9"}), b"PRI *"]
    started = time.monotonic()
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(emulator)) for _ in half]
        for connection, sent in zip(connections, half, strict=True):
            connection.sendall(sent)
        assert ask(emulator, "GET", f"/v2/{LOCATION}/queues")[0] == 200
        emulator.client.list_queues(parent=LOCATION)
        assert time.monotonic() - started < REQUEST_SECONDS
        assert [all_of(connection) for connection in connections] == [b"", b"", b""]
    assert REQUEST_SECONDS - 0.5 < time.monotonic() - started < REQUEST_SECONDS + 5


def test_bytes_that_trickle_are_read_as_one_request(emulator):
    with connected(emulator) as connection:
        for byte in head(emulator, Connection="close"):
            connection.sendall(bytes([byte]))
        assert all_of(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_body_above_2_mib_is_413_and_the_client_reads_it(emulator):
    status, code, _ = refused(emulator, "POST", f"/v2/{emulator.queue()}/tasks", b" " * (BODY_LIMIT + 1))
    assert (status, code) == (413, "INVALID_ARGUMENT")


def test_task_above_the_limit_of_cloud_tasks_is_400(emulator):
    body = {"task": {"httpRequest": {"url": URL, "body": "A" * (BODY_LIMIT - 200)}}}
    found = refused(emulator, "POST", f"/v2/{emulator.queue()}/tasks", body)
    assert found[:2] == (400, "INVALID_ARGUMENT")
    assert "Task size too large" in found[2]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"PRI * HTTP/1.1\r\n\r\n", 403),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 65_536 + b"\r\n\r\n", 431),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bytes_that_are_no_request_are_refused(emulator, request_bytes, status):
    with connected(emulator) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection).startswith(f"HTTP/1.1 {status} ".encode())


def test_grpc_and_rest_work_on_the_port_at_the_same_time(emulator, rest):
    queue = emulator.paused_queue()
    failed: list[BaseException] = []

    def create(client: tasks_v2.CloudTasksClient, label: str) -> None:
        try:
            for number in range(50):
                each = tasks_v2.Task(name=f"{queue}/tasks/{label}-{number}", http_request={"url": URL})
                client.create_task(parent=queue, task=each)
        except BaseException as error:
            failed.append(error)

    with rest_client(emulator.port) as other:
        clients = {"grpc": emulator.client, "grpc-too": emulator.client, "rest": rest, "rest-too": other}
        threads = [threading.Thread(target=create, args=(client, label)) for label, client in clients.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(list(rest.list_tasks(parent=queue))) == 200


def test_large_list_passes_through_both_protocols(emulator, rest):
    queue = emulator.paused_queue()
    for _ in range(35):
        emulator.create(queue, body=b"x" * 100_000)
    request = {"parent": queue, "response_view": View.FULL}
    by_rest, by_grpc = list(rest.list_tasks(request=request)), list(emulator.client.list_tasks(request=request))
    assert by_rest == by_grpc
    assert {len(each.http_request.body) for each in by_rest} == {100_000}


# --- life and faults


def test_restart_after_a_kill_serves_both_on_the_same_port(tmp_path):
    with Emulator(tmp_path) as emulator:
        queue, port = emulator.paused_queue(), emulator.port
        with connected(emulator) as connection:
            connection.sendall(head(emulator)[:-2])
            assert ask(emulator, "POST", f"/v2/{queue}/tasks", task(f"{queue}/tasks/t"))[0] == 200
            emulator.kill()
            emulator.start()
        assert emulator.port == port
        assert ask(emulator, "GET", f"/v2/{queue}/tasks/t")[0] == 200
        assert emulator.client.get_task(name=f"{queue}/tasks/t").name == f"{queue}/tasks/t"


def test_sigterm_ends_idle_connections_and_both_protocols(tmp_path):
    with Emulator(tmp_path) as emulator, connected(emulator) as idle, connected(emulator) as silent:
        idle.sendall(head(emulator))
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 OK")
        emulator.client.list_queues(parent=LOCATION)
        started = time.monotonic()
        assert emulator.stop() == 0
        assert time.monotonic() - started < 2
        assert all_of(idle) == all_of(silent) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", emulator.port), timeout=5)


def test_freed_name_fault_applies_to_a_task_created_by_rest(emulator):
    queue = emulator.paused_queue()
    body = task(f"{queue}/tasks/t")
    ask(emulator, "POST", f"/v2/{queue}/tasks", body)
    ask(emulator, "DELETE", f"/v2/{queue}/tasks/t")
    assert refused(emulator, "POST", f"/v2/{queue}/tasks", body)[0] == 409
    emulator.add_fault("free_name", queue)
    assert ask(emulator, "POST", f"/v2/{queue}/tasks", body)[0] == 200


def test_drop_fault_applies_to_a_task_created_by_rest(emulator):
    queue = emulator.queue()
    emulator.add_fault("drop", queue)
    with a_target() as target:
        body = {"task": {"name": f"{queue}/tasks/t", "httpRequest": {"url": target.url}}}
        assert ask(emulator, "POST", f"/v2/{queue}/tasks", body)[0] == 200
        wait_until(lambda: emulator.is_gone(f"{queue}/tasks/t"))
        assert target.received == []
    assert emulator.logged("fault_made", queue)["kind"] == "drop"
