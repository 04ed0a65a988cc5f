"""What bootstrap makes of the settings, up to the task that the queue holds: of both services, in a real emulator."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tasks_v2

from services.internal.main import create_app
from shared.bootstrap.internal import build_internal
from shared.bootstrap.webhook import build_webhook
from shared.domain.deadline import Deadline
from shared.domain.identity import message_event_id
from shared.domain.record import Kind, Task
from shared.pipeline.intake import Incoming
from tests.support import event_loop
from tests.support.tasks_harness import LOCATION, Emulator

SENDER = "100000000000001"
FIRST, SECOND = "token-of-today", "token-of-yesterday"
BASE_URL = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture
def environment(emulator: Emulator, tmp_path: Path) -> dict[str, str]:
    inbound, outbound = (emulator.paused_queue().rpartition("/")[2] for _ in range(2))
    return {
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
        "CLOUD_TASKS_EMULATOR_HOST": f"127.0.0.1:{emulator.port}",
        "INBOUND_TASK_QUEUE_NAME": inbound,
        "OUTBOUND_TASK_QUEUE_NAME": outbound,
        "INTERNAL_TASK_BASE_URL": BASE_URL,
        "INTERNAL_TASK_TOKEN": f"{FIRST}, {SECOND}",
        "META_APP_SECRET": "a-secret",
    }


def tasks(emulator: Emulator, queue: str) -> list[tasks_v2.Task]:
    request = {"parent": f"{LOCATION}/queues/{queue}", "response_view": tasks_v2.Task.View.FULL}
    return list(emulator.client.list_tasks(request=request))


def receive(environment: dict[str, str]) -> str:
    """A message comes in at the webhook service; the key of its event."""
    text = {"from": "15550002222", "id": "wamid.1", "timestamp": "1772366400", "type": "text", "text": {"body": "hi"}}
    value = {"messaging_product": "whatsapp", "metadata": {"phone_number_id": SENDER}, "messages": [text]}
    change = {"field": "messages", "value": value}
    document = {"object": "whatsapp_business_account", "entry": [{"id": "300000000000003", "changes": [change]}]}
    body = json.dumps(document).encode()
    signature = "sha256=" + hmac.new(b"a-secret", body, hashlib.sha256).hexdigest()
    incoming = Incoming("meta", "POST", "/webhooks/whatsapp", {"x-hub-signature-256": signature}, body)
    event_loop.run(build_webhook(environment).accept(incoming))
    return message_event_id("meta", SENDER, "wamid.1")


DEADLINES = [({}, 135), ({"HANDLER_TIMEOUT": "600s"}, 675), ({"HANDLER_TIMEOUT": "600s", "TIME_SCALE": "20"}, 33.75)]


@pytest.mark.parametrize(("settings", "deadline"), DEADLINES, ids=str)
def test_task_deadlines_of_both_services_cover_the_handler_timeout(
    emulator: Emulator, environment: dict[str, str], settings: dict[str, str], deadline: float
) -> None:
    """And each is sent where the settings say, with the first of the tokens."""
    environment = environment | settings
    key = receive(environment)
    internal = build_internal(environment)
    record = internal.store.get(key)
    assert record is not None
    assert internal.process_inbound(Task.of(record)).state == "done"
    for setting, path in (("INBOUND_TASK_QUEUE_NAME", "inbound"), ("OUTBOUND_TASK_QUEUE_NAME", "outbound")):
        (task,) = tasks(emulator, environment[setting])
        assert task.dispatch_deadline == timedelta(seconds=deadline)
        assert task.http_request.url == f"{BASE_URL}/internal/process_{path}"
        assert task.http_request.headers["X-Internal-Token"] == FIRST
        assert not task.http_request.oidc_token.service_account_email


@pytest.mark.parametrize("build", [build_webhook, build_internal], ids=["webhook", "internal"])
def test_task_requests_no_identity(
    emulator: Emulator, environment: dict[str, str], build: Callable[[dict[str, str]], Any]
) -> None:
    """Its queue gives it one, so neither service needs to be allowed to act as the account."""
    queue = build(environment | {"TASKS_SERVICE_ACCOUNT": "tasks@a-project.iam.gserviceaccount.com"}).queue
    task = Task("1" * 40, Kind.INBOUND, "corr_0001", 0)
    if build is build_webhook:
        assert event_loop.run(queue.ensure_all([(task, None)], Deadline.of_webhook(time.monotonic))) == [None]
    else:
        queue.ensure(task, None)
    (task,) = tasks(emulator, environment["INBOUND_TASK_QUEUE_NAME"])
    assert "oidc_token" not in task.http_request
    assert "oauth_token" not in task.http_request
    assert "Authorization" not in task.http_request.headers


@pytest.mark.parametrize(("token", "status"), [(FIRST, 400), (SECOND, 400), ("token-of-nobody", 403), ("", 403)])
def test_each_of_several_tokens_is_accepted_and_no_other(environment: dict[str, str], token: str, status: int) -> None:
    client = create_app(build_internal(environment)).test_client()
    for kind in Kind:
        answer = client.post(f"/internal/process_{kind}", json={}, headers={"X-Internal-Token": token})
        assert answer.status_code == status
