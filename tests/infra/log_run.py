"""Two runs of the stack in which every kind of event occurs, for their log lines."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.cloud.tasks_v2 import CloudTasksClient
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from shared.config import LOCAL_SECRETS
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.identity import Echo, sender_id
from shared.domain.marks import Marks
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.tasks import task_body
from shared.domain.tenants import Scope, Sender, Tenant
from shared.logs import EVENTS
from shared.operations.keys import add_key
from shared.operations.registry import add_tenant
from shared.operations.senders import add_sender
from shared.pipeline.clock import SystemClock
from tests.support.stack import ROOT, SECRET, SENDER, TASK_TOKEN, TEAM, Stack, clean_environment, cli

Line = Mapping[str, Any]
SETTINGS = {
    "TIME_SCALE": "20",
    "MAX_ATTEMPTS": "2",
    "IN_DOUBT_SECONDS": "6000",  # a doubt lasts for the whole run
    "HANDLER": "scripted:handle",
    "PYTHONPATH": str(TEAM),
    "WHATSAPP_PHONE_NUMBER_ID": SENDER,
    "META_APP_SECRET": SECRET,
    "INTERNAL_TASK_TOKEN": TASK_TOKEN,
}
BACKEND_SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
MESSAGE = {"from": SENDER, "to": "+15550000022", "text": "hello", "delay": "30d"}
UNREADABLE = {
    "object": "whatsapp_business_account",
    "entry": [
        {
            "id": "300000000000003",
            "changes": [
                {"field": "messages", "value": {"metadata": {"phone_number_id": SENDER}, "messages": [{"id": 7}]}}
            ],
        }
    ],
}


def lines_of_a_run(directory: Path) -> list[Line]:
    """Every line that a service wrote."""
    settings = {**SETTINGS, "HANDLER_CALLS": str(directory / "calls.jsonl")}
    with Stack(directory / "data", settings=settings, is_forked=True) as stack:
        _all_that_happens(stack)
        _another_credential(stack)
        _missing_queue(stack)
    lines = stack.logs()  # including those of the shutdown
    lines += _lines_of_a_backend_outage(directory)
    return [line for line in (*lines, *_lines_without_a_configuration()) if _is_a_services(line)]


def _is_a_services(line: Line) -> bool:
    """Not the local cloud's, which logs into the same file in a different form."""
    return line.get("message") == EVENTS.get(line["event"], "")


def _all_that_happens(stack: Stack) -> None:
    _sweep(stack)
    _ask_the_api(stack)
    well = [stack.say("15550000001", "hello"), stack.say("15550000002", "!hang 1.1"), stack.say("15550000003", "!drop")]
    dead = stack.say("15550000005", "!raise always")
    stack.fault("send", "error", code=131026, match={"to": "15550000006"})
    stack.fault("send", "error", code=131056, match={"to": "15550000007"})
    stack.fault("receipt", "withhold", times=0, match={"to": "15550000008"})
    stack.fault("send", "accept_then_drop", match={"to": "15550000008"})
    ended = [stack.say("15550000006", "refused"), stack.say("15550000007", "limited")]
    stack.fault("send", "accept_then_drop", match={"to": "15550000004"})
    lost, found = stack.say("15550000008", "lost"), stack.say("15550000004", "lost, and a receipt comes")
    stack.post(json.dumps(UNREADABLE).encode())
    stack.post(_message("15550000013", "wamid.elsewhere", sender="100000000000002"))
    stack.post(b"{}", headers={})
    stack.get("webhook", "/webhooks/whatsapp?hub.mode=subscribe&hub.verify_token=wrong&hub.challenge=1")
    stack.task("inbound", {"v": 1}, token=None)
    stack.wait_settled([*well, dead, *ended, found])
    stack.wait_until(lambda: (reply := stack.reply(lost)) and reply.state == "in_doubt", "an answer is lost")
    _slow_and_failing_queue(stack)
    _api_in_trouble(stack)
    _provider_outage(stack)
    _failed_receipt(stack)
    _blocked_and_back(stack)
    _strangers(stack)
    _late_attempt(stack)
    _decided_dead_letters(stack)
    _refused_credential(stack)


def _ask_the_api(stack: Stack) -> None:
    """A message, a batch, and a request without a key."""
    operators = Path(stack.described["api_key_file"]).read_text().strip()
    assert _api(stack, operators, "", MESSAGE) == 202
    assert _api(stack, operators, "/batch", {"messages": [MESSAGE] * 2}) == 200
    traced = {"traceparent": f"00-{'0a' * 16}-{'0b' * 8}-01"}  # as Cloud Run gives each request one
    assert stack.http.post(stack.described["api"] + "/v1/messages", json=MESSAGE, headers=traced).status_code == 401


def _api(stack: Stack, key: str, path: str, body: Any) -> int:
    """The status of a request below /v1/messages."""
    url = f"{stack.described['api']}/v1/messages{path}"
    return stack.http.post(url, json=body, headers={"Authorization": f"Bearer {key}"}).status_code


def _api_in_trouble(stack: Stack) -> None:
    """A message without a queue, a batch with a slow one, and more requests than a key may make."""
    _, key = add_key(stack.store, SystemClock(), "default", [Scope.SEND])
    with _stopped(stack.pids()["tasks"]):
        assert _api(stack, key, "", MESSAGE) == 503
    with _stopped(stack.pids()["tasks"]) as go_on:
        threading.Timer(1.1, go_on).start()
        assert _api(stack, key, "/batch", {"messages": [MESSAGE] * 2}) == 200
    with ThreadPoolExecutor(16) as callers:
        stack.wait_until(
            lambda: 429 in callers.map(lambda _: _api(stack, key, "", {}), range(64)), "it is too many", 60
        )


def _missing_queue(stack: Stack) -> None:
    """The numbered queue of a tenant's events is gone: the shared queue takes its tasks."""
    number, account, token = "200000000000004", "300000000000004", LOCAL_SECRETS["WHATSAPP_ACCESS_TOKEN"]
    stack.control("POST", "senders", {"phone_number_id": number, "waba": account, "token": token})
    added = add_tenant(stack.store, SystemClock(), Tenant("bakery"), 20)
    add_sender(stack.store, stack.store, SystemClock(), (), Sender("bakery", "meta", number, account))
    environment = stack.environment
    parent = f"projects/{environment['GOOGLE_CLOUD_PROJECT']}/locations/{environment['CLOUD_TASKS_LOCATION']}"
    with grpc.insecure_channel(stack.described["tasks"], options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
        client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
        client.delete_queue(name=f"{parent}/queues/inbound-t{added.queue:03d}", timeout=5, retry=None)
    assert stack.post(_message("15550000020", "wamid.of.the.bakery", sender=number)).status_code == 200
    stack.wait_logs("queue_missing")


def _strangers(stack: Stack) -> None:
    """A receipt and a task of missing records, a task of a newer version, and a field that Pombo does not know."""
    echo = str(Echo("0" * 40, 0, "correlation-of-nobody"))
    receipt = {"id": "wamid.nobodys", "status": "sent", "timestamp": "1700000000", "biz_opaque_callback_data": echo}
    value = {"messaging_product": "whatsapp", "metadata": {"phone_number_id": SENDER}, "statuses": [receipt]}
    assert stack.post(_webhook("messages", value)).status_code == 200
    assert stack.post(_webhook("a_field_of_tomorrow", {})).status_code == 200
    for kind in Kind:
        body = task_body(Task("0" * 40, kind, "correlation-of-nobody", 0))
        assert stack.task(kind, body).json() == {"state": "gone"}
        assert stack.task(kind, {**body, "v": 99}).status_code == 409


def _late_attempt(stack: Stack) -> None:
    """While the handler works on an event, another attempt takes its lease."""
    key = stack.event_key(stack.say("15550000018", "!hang 1.1"))
    stack.wait_until(lambda: stack.state_of(key) == "leased", "the handler works on it")

    def take(record: Delivery | None) -> Step:
        assert record is not None
        return Step(Answer(TaskResult.ACK, ""), write=replace(record, token="another"))

    stack.store.change(key, take)
    stack.wait_logs("lease_lost", inbound_event_id=key)


def _decided_dead_letters(stack: Stack) -> None:
    dead = [line["delivery"] for line in stack.logs("dead_lettered", reason="error")]
    _dead(stack, "replay", dead[0])
    stack.wait_until(lambda: stack.state_of(dead[0]) == State.DEAD, "it is dead again")
    _dead(stack, "discard", dead[0], "--reason", "enough")


def _dead(stack: Stack, *arguments: str) -> None:
    done = cli("dead", *arguments, "--data-dir", str(stack.data_dir), env=clean_environment(**stack.settings))
    assert done.returncode == 0, done.stderr


def _another_credential(stack: Stack) -> None:
    stack.restart(WHATSAPP_ACCESS_TOKEN="test_access_token_of_after")
    stack.say("15550000019", "hello")
    stack.wait_logs("tenant_reconnected")


def _sweep(stack: Stack) -> None:
    answer = stack.http.post(stack.described["internal"] + "/internal/sweep", headers={"X-Internal-Token": TASK_TOKEN})
    assert answer.status_code == 200, answer.text


def _slow_and_failing_queue(stack: Stack) -> None:
    """The queue freezes, first for longer than a webhook waits, then for less."""
    body = _message("15550000009", "wamid.slow")
    with _stopped(stack.pids()["tasks"]):
        assert stack.post(body).status_code == 500
    with _stopped(stack.pids()["tasks"]) as go_on:
        threading.Timer(0.5, go_on).start()
        # Another message: the task of the first may have been made once the queue went on.
        assert stack.post(_message("15550000009", "wamid.slow.but.in.time")).status_code == 200
    assert stack.post(body).status_code == 200
    stack.wait_logs("inbound_processing_finished", inbound_event_id=stack.event_key("wamid.slow"))
    assert stack.post(body).status_code == 200, "a duplicate"


@contextmanager
def _stopped(pid: int) -> Iterator[Any]:
    def go_on() -> None:
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    try:
        yield go_on
    finally:
        go_on()


def _message(contact: str, message_id: str, sender: str = SENDER) -> bytes:
    message = {"from": contact, "id": message_id, "timestamp": "1700000000", "type": "text", "text": {"body": "hello"}}
    value = {"messaging_product": "whatsapp", "metadata": {"phone_number_id": sender}, "messages": [message]}
    return _webhook("messages", value)


def _webhook(field: str, value: Any) -> bytes:
    entry = {"id": "300000000000003", "changes": [{"field": field, "value": value}]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def _sweep_until_it_counts(stack: Stack, what: str) -> None:
    """Repeat: on a busy machine a mark may be between two probes for long."""

    def is_counted() -> bool:
        _sweep(stack)
        return any(line[what] for line in stack.logs("swept"))

    stack.wait_until(is_counted, f"a sweep counts {what}")


def _provider_outage(stack: Stack) -> None:
    stack.fault("provider", "refuse", times=0)
    waiting = [stack.say("15550000014", "hello")]
    stack.wait_logs("provider_down")
    waiting.append(stack.say("15550000015", "hello"))
    stack.wait_logs("outbound_waiting", reason="provider_down")
    _sweep_until_it_counts(stack, "provider_down")
    stack.control("DELETE", "faults")
    stack.wait_logs("provider_up")
    stack.wait_settled(waiting)


def _failed_receipt(stack: Stack) -> None:
    """WhatsApp accepts a message, then reports that a payment is missing: that blocks the sender too."""
    stack.fault("receipt", "error", code=131042, match={"to": "15550000016"})
    stack.say("15550000016", "hello")
    stack.wait_logs("receipt_failed", code=131042)
    stack.say("15550000017", "hello")
    stack.wait_logs("sender_blocked", code=131042)
    _sweep(stack)
    _mend(stack, at=1700000000)


def _blocked_and_back(stack: Stack) -> None:
    stack.fault("send", "error", code=368, match={"to": "15550000010"})
    stack.say("15550000010", "hello")
    stack.wait_until(lambda: _marks(stack).block, "the sender is blocked")
    stack.say("15550000011", "hello")
    stack.wait_logs("outbound_waiting", reason="blocked")
    _sweep(stack)
    _mend(stack, at=1700000001)


def _marks(stack: Stack) -> Marks:
    found: Marks = stack.store.marks(sender_id("meta", SENDER))
    return found


def _mend(stack: Stack, at: int) -> None:
    """WhatsApp reports that the account may send again. An earlier report's timestamp would make it a duplicate."""
    news = {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "REINSTATE"}}
    entry = {"id": "300000000000003", "time": at, "changes": [{"field": "account_update", "value": news}]}
    body = json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()
    assert stack.post(body).status_code == 200
    stack.wait_until(lambda: not _marks(stack).block and not _marks(stack).receipt_block, "the block is lifted")


def _refused_credential(stack: Stack) -> None:
    stack.fault("send", "error", code=190, match={"to": "15550000012"})
    stack.say("15550000012", "hello")
    stack.wait_logs("tenant_needs_reauth")
    _sweep(stack)


def _lines_of_a_backend_outage(directory: Path) -> list[Line]:
    """The handler's URL refuses connections at first; the queues give their tasks an identity."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    settings = {
        **SETTINGS,
        "HANDLER": "",
        "HANDLER_URL": f"http://127.0.0.1:{port}/",
        "HANDLER_URL_SECRET": BACKEND_SECRET,
        "TASKS_SERVICE_ACCOUNT": "tasks@pombo-local.iam.gserviceaccount.com",
    }
    with Stack(directory / "backend", settings=settings, is_forked=True) as stack:
        waiting = [stack.say("15550000020", "hello"), stack.say("15550000021", "hello")]
        stack.wait_logs("backend_down")
        stack.wait_logs("inbound_waiting", reason="backend_down")
        _sweep_until_it_counts(stack, "backend_down")
        with _backend(port):
            stack.wait_logs("backend_up")
            stack.wait_settled(waiting)
        return stack.logs()


class _NoReply(BaseHTTPRequestHandler):
    """A backend that handles each event and sends no reply."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _backend(port: int) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", port), _NoReply)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _lines_without_a_configuration() -> list[Line]:
    done = subprocess.run(
        [sys.executable, "-m", "services.webhook"],
        cwd=ROOT,
        env=clean_environment(APP_ENV="prod", PORT="0"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
