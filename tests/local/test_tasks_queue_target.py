"""A queue's own HTTP target. The rules are those of HttpTarget, UriOverride and OidcToken of google-cloud-tasks 2.26
(types/target.py), and of https://cloud.google.com/tasks/docs/configuring-queues.
"""

import json
from urllib.parse import urlsplit

import pytest
from google.api_core import exceptions
from google.auth import jwt
from google.cloud import tasks_v2
from google.protobuf.field_mask_pb2 import FieldMask

from local.tasks.queue_routing import request_of
from tests.support.tasks_harness import LOCATION, Emulator, a_target, wait_until

OF_QUEUE, OF_TASK = "queue@pombo-local.iam.gserviceaccount.com", "task@pombo-local.iam.gserviceaccount.com"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture
def target():
    with a_target() as target:
        yield target


def led_to(url, **more):
    """The target that leads every task to this address, whatever its own is."""
    parts = urlsplit(url)
    uri = {
        "scheme": parts.scheme.upper(),
        "host": parts.hostname,
        "port": parts.port,
        "path_override": {"path": parts.path},
        "uri_override_enforce_mode": "ALWAYS",
    }
    return {"uri_override": uri, **more}


def a_queue(emulator, target):
    name = emulator.queue()
    queue = tasks_v2.Queue(name=name, http_target=target)
    emulator.client.update_queue(queue=queue, update_mask=FieldMask(paths=["http_target"]))
    return name


def identity_in(emulator, request):
    (header,) = request.headers.get_all("Authorization")
    certificates = json.loads((emulator.data_dir / "oidc-certs.json").read_text())
    return jwt.decode(header.removeprefix("Bearer "), certs=certificates)


def test_every_task_goes_where_its_queue_leads(emulator, target):
    """ALWAYS: "queue-level configuration overrides all task-level configuration"."""
    queue = a_queue(emulator, led_to(f"{target.url}/internal/process_inbound", http_method="POST"))
    emulator.create(queue, "https://elsewhere.example.com:8443/mine?all=yes", http_method="DELETE")
    (request,) = wait_until(lambda: target.received)
    assert (request.method, request.path) == ("POST", "/internal/process_inbound?all=yes"), (
        "the query is the task's own"
    )
    assert request.headers["Host"] == target.url.removeprefix("http://")


def test_parts_without_a_queue_override_come_from_the_task(emulator, target):
    queue = a_queue(emulator, {"uri_override": {"path_override": {"path": "/of-the-queue"}}})
    emulator.create(queue, f"{target.url}/of-the-task?q=1", http_method="PUT", body=b"x")
    (request,) = wait_until(lambda: target.received)
    assert (request.method, request.path, request.body) == ("PUT", "/of-the-queue?q=1", b"x")


def test_a_queue_s_query_takes_the_place_of_the_task_s(emulator, target):
    queue = a_queue(emulator, {"uri_override": {"query_override": {"query_params": "q=2"}}})
    emulator.create(queue, f"{target.url}/p?q=1")
    (request,) = wait_until(lambda: target.received)
    assert request.path == "/p?q=2"


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ({}, "https://task.example.com:8443/own?q=1"),
        ({"port": 0}, "https://task.example.com/own?q=1"),
        ({"port": 81}, "https://task.example.com:81/own?q=1"),
        ({"scheme": "HTTP"}, "http://task.example.com:8443/own?q=1"),
        ({"host": "queue.example.com"}, "https://queue.example.com:8443/own?q=1"),
        ({"host": "::1", "port": 9081}, "https://[::1]:9081/own?q=1"),
        ({"path_override": {"path": ""}}, "https://task.example.com:8443?q=1"),
        ({"query_override": {"query_params": ""}}, "https://task.example.com:8443/own"),
    ],
    ids=str,
)
def test_each_part_of_an_address_is_replaced_by_itself(uri, url):
    """UriOverride.port: "Setting the port to 0 (Zero) clears the URI port"; of path and query: an empty string does."""
    own = tasks_v2.HttpRequest(url="https://task.example.com:8443/own?q=1", http_method="POST")
    target = tasks_v2.HttpTarget(uri_override=uri)
    assert request_of(tasks_v2.HttpTarget.pb(target), tasks_v2.HttpRequest.pb(own)).url == url


def test_invalid_address_is_left_unchanged():
    own = tasks_v2.HttpRequest(url="http://[::1", http_method="POST")
    target = tasks_v2.HttpTarget(uri_override={"path_override": {"path": "/p"}})
    assert request_of(tasks_v2.HttpTarget.pb(target), tasks_v2.HttpRequest.pb(own)).url == "http://[::1"


def test_task_carries_the_queues_identity_instead_of_the_tasks(emulator, target):
    token = {"service_account_email": OF_QUEUE, "audience": "https://svc"}
    queue = a_queue(emulator, led_to(f"{target.url}/p", oidc_token=token))
    emulator.create(
        queue,
        NOBODY,
        headers={"authorization": "mine"},
        oidc_token={"service_account_email": OF_TASK, "audience": "https://other"},
    )
    (request,) = wait_until(lambda: target.received)
    claims = identity_in(emulator, request)
    assert (claims["email"], claims["aud"]) == (OF_QUEUE, "https://svc")


def test_without_one_of_its_queue_a_task_carries_its_own_identity(emulator, target):
    queue = a_queue(emulator, led_to(f"{target.url}/p"))
    emulator.create(queue, NOBODY, oidc_token={"service_account_email": OF_TASK})
    (request,) = wait_until(lambda: target.received)
    claims = identity_in(emulator, request)
    assert (claims["email"], claims["aud"]) == (OF_TASK, f"{target.url}/p")


def test_a_target_applies_to_the_tasks_that_are_there_already(emulator, target):
    """ "Tasks that are in the queue"; and a removal gives them their own address back."""
    queue = emulator.paused_queue()
    emulator.create(queue, NOBODY, task_id="one")
    emulator.client.update_queue(
        queue=tasks_v2.Queue(name=queue, http_target=led_to(f"{target.url}/new")),
        update_mask=FieldMask(paths=["http_target"]),
    )
    emulator.client.resume_queue(name=queue)
    wait_until(lambda: target.at("/new"))
    updated = emulator.client.update_queue(
        queue=tasks_v2.Queue(name=queue), update_mask=FieldMask(paths=["http_target"])
    )
    assert "http_target" not in updated
    emulator.create(queue, f"{target.url}/own")
    wait_until(lambda: target.at("/own"))


def test_a_target_survives_a_kill_and_another_update(tmp_path, target):
    with Emulator(tmp_path) as emulator:
        queue = a_queue(emulator, led_to(f"{target.url}/kept"))
        emulator.client.update_queue(
            queue=tasks_v2.Queue(name=queue, retry_config={"max_attempts": 3}),
            update_mask=FieldMask(paths=["retry_config.max_attempts"]),
        )
        emulator.kill()
        emulator.start()
        assert emulator.client.get_queue(name=queue).http_target.uri_override.path_override.path == "/kept"
        emulator.create(queue, NOBODY)
        wait_until(lambda: target.at("/kept"))


def test_a_queue_is_created_with_its_target(emulator, target):
    name = emulator.queue().replace("q-", "t-")
    made = emulator.client.create_queue(
        parent=LOCATION, queue=tasks_v2.Queue(name=name, http_target=led_to(f"{target.url}/created"))
    )
    assert made.http_target.uri_override.path_override.path == "/created"
    emulator.create(name, NOBODY)
    wait_until(lambda: target.at("/created"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"oidc_token": {"service_account_email": OF_QUEUE}},
        {"oidc_token": {"audience": "https://svc"}},
        {"uri_override": {"host": ""}},
        {"uri_override": {"port": -1}},
        {"uri_override": {"port": 65536}},
    ],
    ids=str,
)
def test_invalid_target_is_an_invalid_argument(emulator, wrong):
    """ "both the service account email and the audience MUST be specified"; "Host value cannot be an empty string"."""
    with pytest.raises(exceptions.InvalidArgument):
        a_queue(emulator, wrong)


@pytest.mark.parametrize(
    "other",
    [
        {"oauth_token": {"service_account_email": OF_QUEUE}},
        {"header_overrides": [{"header": {"key": "X-A", "value": "b"}}]},
        {"uri_override": {"uri_override_enforce_mode": "IF_NOT_EXISTS"}},
    ],
    ids=str,
)
def test_unsupported_override_is_refused(emulator, other):
    with pytest.raises(exceptions.MethodNotImplemented):
        a_queue(emulator, other)
