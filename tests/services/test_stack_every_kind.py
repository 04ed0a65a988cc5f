"""The running stack and what no closed list may lose: kinds that a backend asks for; a history sync, without alarm."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from local.whatsapp.webhook_payloads import ACCOUNT_ID, to_wire
from shared.domain.identity import canonical_json, stable_hash
from shared.domain.marks import Block
from shared.pipeline.clock import SystemClock
from tests.support.stack import SENDER, Stack

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

AGREED = {"payment_method": "offsite_card_pay", "payment_timestamp": 1790416800, "reference_id": "ref-1"}

MESSAGES: dict[str, tuple[str, Any, str]] = {
    "a type of tomorrow": ("hologram", {"depth": [1, {"two": None}]}, "unsupported"),
    "an answer of tomorrow": ("interactive", {"type": "hologram_reply", "hologram_reply": {"id": "x"}}, "unsupported"),
    "an answer without its object": ("interactive", {"type": "button_reply"}, "unsupported"),
    "an agreement to pay": ("interactive", {"type": "payment_method", "payment_method": AGREED}, "interactive"),
    "a first visit": ("request_welcome", None, "request_welcome"),
    "a voice message of its own type": ("voice", {"id": "900000000000009", "mime_type": "audio/ogg"}, "media"),
    "a reaction": ("reaction", {"message_id": "wamid.ours", "emoji": "👍"}, "reaction"),
    "a poll": ("unsupported", {"type": "poll_creation"}, "unsupported"),
}


class Backend(ThreadingHTTPServer):
    """Keeps each message that it is asked about, and answers with its kind."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.messages: dict[str, dict[str, Any]] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Call(BaseHTTPRequestHandler):
    server: Backend

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["message"]
        self.server.messages[message["id"]] = message
        body = json.dumps({"replies": [message["kind"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with closing(Backend()) as backend:
        yield backend


@pytest.fixture(scope="module")
def asking(make_stack: Callable[..., Stack], backend: Backend) -> Iterator[Stack]:
    settings = {"HANDLER": "", "HANDLER_URL": backend.url, "HANDLER_URL_SECRET": SECRET, "HANDLER_KINDS": "*"}
    with make_stack(**settings) as stack:
        yield stack


def deliver(stack: Stack, contact: str, name: str) -> str:
    type_, content, _ = MESSAGES[name]
    return stack.inbound(**{"from": contact, "type": type_, "content": content})[0]


@pytest.mark.parametrize("name", MESSAGES)
def test_backend_for_every_kind_gets_each_message_whole_and_its_reply_is_sent(
    asking: Stack, backend: Backend, contact: str, name: str
) -> None:
    type_, content, kind = MESSAGES[name]

    message_id = deliver(asking, contact, name)

    asking.wait_texts(contact, [kind])
    message = backend.messages[message_id]
    assert (message["kind"], message["raw"]["type"], message["raw"].get(type_)) == (kind, type_, content)


def test_groups_and_echoes_are_not_passed_to_a_backend_of_every_kind(
    asking: Stack, backend: Backend, contact: str
) -> None:
    text = {"type": "text", "content": {"body": "hello"}}
    group = asking.inbound(**{"from": contact, **text, "fields": {"group_id": "G1"}})[0]
    echo = asking.inbound(**{"from": "15550001111", **text})[0]

    asking.wait_settled([group, echo])

    assert not {group, echo} & backend.messages.keys()
    assert [asking.event(message_id).plan_size for message_id in (group, echo)] == [0, 0]  # type: ignore[union-attr]


# ---- a handler that does not ask


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a type of tomorrow", "(type hologram)"),
        ("an answer of tomorrow", "(type interactive hologram_reply)"),
        ("a poll", "(type poll_creation, code 131051)"),
    ],
)
def test_unreadable_message_is_stored_whole_and_explained_in_its_timeline(
    stack: Stack, contact: str, name: str, said: str
) -> None:
    message_id = deliver(stack, contact, name)

    stack.wait_settled([message_id])

    event = stack.event(message_id)
    assert event is not None
    type_, content, _ = MESSAGES[name]
    assert (event.state, event.payload["item"][type_]) == ("done", content)
    assert stack.calls(message_id) == 0
    sentences = [moment["sentence"] for moment in stack.timeline(message_id)["events"]]
    assert any(said in sentence for sentence in sentences), sentences
    assert not stack.logs(inbound_event_id=event.key, event_type="hologram"), "a type is told to operators alone"


def test_an_agreement_to_pay_reaches_a_handler_that_names_no_kinds(stack: Stack, contact: str) -> None:
    message_id = deliver(stack, contact, "an agreement to pay")
    stack.wait_texts(contact, ["interactive"])
    assert stack.calls(message_id) == 1


# ---- news of an account whose field stands inside the value


def test_an_update_whose_field_stands_inside_its_value_lifts_a_block(asking: Stack) -> None:
    now = SystemClock().now()
    asking.put_marks(block=Block(now + timedelta(hours=6), timedelta(hours=6), 368))
    value = {"event": "PARTNER_APP_INSTALLED", "waba_info": {"waba_id": ACCOUNT_ID}, "field": "account_update"}
    entry = {"id": "300000000000009", "time": int(now.timestamp()), "changes": [{"value": value}]}

    assert asking.post(to_wire({"object": "whatsapp_business_account", "entry": [entry]})).status_code == 200

    asking.wait_until(lambda: asking.marks.block is None, "the block is lifted")


# ---- a history sync


@pytest.mark.parametrize("field", ["history", "smb_app_state_sync"])
def test_sync_of_megabytes_is_stored_in_part_without_an_alert(stack: Stack, field: str) -> None:
    metadata = {"display_phone_number": "15550001111", "phone_number_id": SENDER}
    value = {"messaging_product": "whatsapp", "metadata": metadata, field: [{"body": "x" * 1000}] * 1500}
    document = {"object": "whatsapp_business_account", "entry": [{"id": ACCOUNT_ID, "changes": [
        {"field": field, "value": value}
    ]}]}  # fmt: skip

    for _ in range(2):
        assert stack.post(to_wire(document)).status_code == 200

    (again,) = stack.wait_logs("inbound_duplicate", event_type=field)
    key = again["inbound_event_id"]
    stack.wait_until(lambda: stack.state_of(key) == "done", "it is done")
    assert len(stack.wait_logs("inbound_new", inbound_event_id=key)) == 1
    record = stack.store.get(key)
    text = canonical_json(value)
    assert (record.reason, record.plan_size) == (None, 0)
    assert (record.payload["field"], record.payload["value"]["bytes"]) == (field, len(text.encode()))
    assert record.payload["value"]["hash"] == stable_hash(text)
    assert text.startswith(record.payload["value"]["truncated"])
    assert not [one for one in stack.logs() if key in one.values() and one.get("severity") not in (None, "INFO")]
    assert not stack.logs("dead_lettered", delivery=key)
