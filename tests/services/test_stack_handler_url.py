"""The running stack with the team's code behind an address: the example backend, a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.stack import ROOT, Stack

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
OLD_SECRET = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="
STRANGERS_SECRET = "whsec_enp6enp6enp6enp6enp6enp6enp6enp6enp6enp6eno="
PATH = "/the-teams-own-path"


class Backend:
    """examples/backend/main.py, on the port that it took first."""

    def __init__(self) -> None:
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self, secret: str = SECRET) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples/backend/main.py"), "--port", str(self.port)],
            env={**os.environ, "HANDLER_URL_SECRET": secret},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("The backend answers on http://127.0.0.1:"), line
        self.port = int(line.rpartition(":")[2].split(".")[0])

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def close(self, number: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait(10)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with closing(Backend()) as backend:
        yield backend


@pytest.fixture(scope="module")
def asking(make_stack: Callable[..., Stack], backend: Backend) -> Iterator[Stack]:
    """A stack that asks the backend; it signs with two secrets, as in the midst of a change."""
    settings = {
        "HANDLER": "",
        "HANDLER_URL": f"http://127.0.0.1:{backend.port}{PATH}",
        "HANDLER_URL_SECRET": f"{OLD_SECRET},{SECRET}",
        "HANDLER_TIMEOUT": "20s",  # one second of this stack's
        "MAX_ATTEMPTS": "8",
    }
    with make_stack(**settings) as stack:
        yield stack
        logged = (stack.data_dir / "logs.jsonl").read_text()
        assert "whsec_" not in logged
        assert PATH not in logged


def failures(stack: Stack, message_id: str) -> list[str]:
    """What the timeline says of the tries that failed."""
    event = stack.event(message_id)
    assert event is not None
    moments = stack.timeline(message_id)["events"]
    return [m["sentence"] for m in moments if m["what"] in ("handler_failed", "backend_down")]


def wait_failed(stack: Stack, message_id: str, said: str, times: int = 1) -> None:
    def has_failed() -> bool:
        event = stack.event(message_id)
        return event is not None and len(event.attempts_log) >= times and event.last_error == said

    stack.wait_until(has_failed, f"failed {times} times: {said}")
    assert any(said in sentence for sentence in failures(stack, message_id))


def test_a_reply_of_the_backend_arrives_and_quotes_what_it_answers(asking: Stack, contact: str) -> None:
    message_id = asking.say(contact, "Olá 😀")

    asking.wait_quiet(contact, ["Olá 😀"])

    reply = asking.reply(message_id)
    assert reply is not None
    assert reply.payload["reply_to"] == message_id


def test_buttons_of_the_backend_arrive(asking: Stack, contact: str) -> None:
    message_id = asking.say(contact, "menu")

    asking.wait_settled([message_id])

    (entry,) = asking.ledger(contact)
    assert entry["type"] == "interactive"
    titles = [button["reply"]["title"] for button in entry["body"]["action"]["buttons"]]
    assert titles == ["Opening hours", "Talk to a person"]


def test_unavailable_backend_is_retried_until_it_is_back(asking: Stack, backend: Backend, contact: str) -> None:
    backend.close()
    message_id = asking.say(contact, "is anybody there?")
    wait_failed(asking, message_id, "The backend refused the connection.", times=2)

    backend.start()

    asking.wait_quiet(contact, ["is anybody there?"])
    assert len(failures(asking, message_id)) >= 2
    assert asking.timeline(message_id)["shown"] == "processed"
    event = asking.event(message_id)
    assert event is not None
    assert event.attempt == 1, "while it was gone no attempt was spent"
    asking.wait_logs("backend_down", severity="WARNING")
    asking.wait_logs("backend_up")


def test_a_backend_with_another_secret_refuses_until_it_has_ours(asking: Stack, backend: Backend, contact: str) -> None:
    backend.close()
    backend.start(STRANGERS_SECRET)
    message_id = asking.say(contact, "who are you?")
    wait_failed(asking, message_id, "The backend answered 401 (does it know HANDLER_URL_SECRET?).")
    assert asking.texts(contact) == []

    backend.close()
    backend.start()

    asking.wait_quiet(contact, ["who are you?"])


def test_hanging_backend_times_out_and_its_late_answer_is_not_sent(
    asking: Stack, backend: Backend, contact: str
) -> None:
    """Frozen, it has the call in its backlog; once it goes on it answers that one too, to a closed connection."""
    backend.send(signal.SIGSTOP)
    try:
        message_id = asking.say(contact, "wake up")
        wait_failed(asking, message_id, "The backend gave no answer within 1 s.")
        assert asking.get("internal", "/livez").status_code == 200
    finally:
        backend.send(signal.SIGCONT)

    asking.wait_quiet(contact, ["wake up"])
    event = asking.event(message_id)
    assert event is not None
    assert event.plan_size == 1


# ---- replies that cannot be sent

ANSWER = {
    "replies": [
        "1",
        "",
        {"type": "text", "content": {"boddy": "2"}},
        {
            "type": "interactive",
            "content": {
                "type": "request_contact_info",
                "body": {"text": "Your number?"},
                "action": {"name": "request_contact_info"},
            },
        },
        {"type": "pin", "content": {"message_id": "wamid.A"}},
        "6",
    ]
}


class Answering(BaseHTTPRequestHandler):
    """A backend that gives every message the same answer."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def mixed(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """A stack whose backend gives replies that can be sent, that cannot, and that only WhatsApp knows of."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {"HANDLER": "", "HANDLER_URL": f"http://127.0.0.1:{server.server_port}/"}
        with make_stack(**settings, HANDLER_URL_SECRET=SECRET) as stack:
            yield stack
        server.shutdown()


def test_replies_of_the_backend_that_cannot_be_sent_keep_no_other_from_being_sent(mixed: Stack, contact: str) -> None:
    message_id = mixed.say(contact, "hello")

    mixed.wait_settled([message_id])

    assert [entry["type"] for entry in mixed.ledger(contact)] == ["text", "interactive", "text"]
    replies = [mixed.reply(message_id, index) for index in range(6)]
    assert [(reply.state, reply.reason) for reply in replies if reply] == [
        ("done", None),
        ("dead", "invalid"),
        ("dead", "invalid"),
        ("done", None),
        ("dead", "permanent"),
        ("done", None),
    ]
    assert replies[4] is not None
    assert replies[4].attempts_log[-1].code == 131051, "an unknown type went out, and WhatsApp refused it"
    told = " ".join(moment["sentence"] for moment in mixed.timeline(message_id)["events"])
    assert "Cannot be sent: The text of a message is empty." in told
    assert "Cannot be sent: The content of type text has a key that WhatsApp does not take" in told
    assert failures(mixed, message_id) == []


def test_with_all_or_nothing_a_reply_that_cannot_be_sent_fails_the_handler(mixed: Stack, contact: str) -> None:
    mixed.restart(PLAN_ALL_OR_NOTHING="true")

    message_id = mixed.say(contact, "hello")

    mixed.wait_settled([message_id])
    assert mixed.ledger(contact) == []
    event = mixed.event(message_id)
    assert event is not None
    assert (event.state, event.reason, event.attempt) == ("dead", "error", 3)
    assert event.last_error == "The backend's reply 2 cannot be sent: The text of a message is empty."


def test_the_backend_ends_cleanly_by_ctrl_c() -> None:
    backend = Backend()
    assert backend.close(signal.SIGINT) == 0
