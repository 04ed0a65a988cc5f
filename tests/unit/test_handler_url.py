"""HANDLER_URL, against real servers on this machine: what leaves, what each answer means, and that every call ends."""

import gzip
import hmac
import json
import re
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pytest_mock import MockerFixture

from shared import config
from shared.bootstrap.internal import build_internal
from shared.domain.identity import backend_id
from shared.domain.limits import PostTimes
from shared.domain.message_kinds import DEFAULT_KINDS, KINDS
from shared.domain.messages import Contact, Drop, Message, to_json
from shared.domain.outbound.limits import MESSAGE_BYTES
from shared.domain.outbound.messages import InvalidReply, OutboundMessage
from shared.handlers.hung_threads import HungThreads
from shared.handlers.runner import HandlerRunner
from shared.handlers.signature import signed_headers
from shared.handlers.url import GRACE, Backend
from shared.net.bounded_http import NoAnswer, Poster
from shared.net.egress_policy import ANYWHERE, PUBLIC, EgressPolicy
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted

NOW = datetime(2026, 11, 27, 12, 0, 0, 900_000, tzinfo=UTC)
TIMESTAMP = "1795780800"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
KEY = b"0123456789abcdef0123456789abcdef"
NEW_SECRET, NEW_KEY = "whsec_" + b64encode(b"n" * 24).decode(), b"n" * 24
CANARY = "c4n4ry"
MESSAGE = Message(
    kind="text",
    text="Olá 😀",
    id="wamid.1",
    contact=Contact("15550002222", phone="15550002222"),
    sender="100000000000001",
    tenant="default",
    received_at=datetime(2026, 11, 27, 11, 59, 59, tzinfo=UTC),
    raw={"text": {"body": "Olá 😀"}},
)
CALL = HandlerCall("e" * 40, "corr_0001", 3, MESSAGE)

PATIENT = timedelta(seconds=20)
"""For whatever is answered at once: no busy machine turns it into a timeout."""

HASTY = timedelta(seconds=0.6)
"""For what is never answered."""

OVER = 10.0
"""Seconds by which a hasty call has ended, on a busy machine too; what is not cut off takes PATIENT or for ever."""

Reply = Callable[[socket.socket], None]


@dataclass
class Server:
    """Takes whole requests and answers each as it is told; keeps what it was sent, byte for byte."""

    listener: socket.socket
    reply: Reply
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each connection that the client has closed."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/pombo"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, connection: socket.socket) -> None:
        with closing(connection), connection.makefile("rb") as stream:
            try:
                while line := stream.readline():
                    lines = [line]
                    while (line := stream.readline()) not in (b"", b"\r\n"):
                        lines.append(line)
                    head = b"".join(lines).decode()
                    length = re.search(r"(?i)content-length: (\d+)", head)
                    self.heads.append(head)
                    self.bodies.append(stream.read(int(length[1]) if length else 0))
                    self.reply(connection)
            except OSError:
                pass  # the client has hung up
            self.ended.release()


@contextmanager
def one_connection(converse: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server of its own manners for a single connection; its host:port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            with suppress(OSError), closing(listener.accept()[0]) as connection:
                converse(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(OVER)
        assert not thread.is_alive()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        served = Server(listener, answer(204))
        thread = threading.Thread(target=served.serve, daemon=True)
        thread.start()
        yield served
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def response(status: int, body: Any = b"", **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", *([] if status in (204, 304) else [f"Content-Length: {len(content)}"])]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def answer(status: int, body: Any = b"", **headers: str) -> Reply:
    return lambda connection: connection.sendall(response(status, body, **headers))


def backend(
    url: str,
    timeout: timedelta = PATIENT,
    secrets: tuple[str, ...] = (SECRET,),
    threads: int = 2,
    reach: EgressPolicy = ANYWHERE,
    **more: Any,
) -> Backend:
    return Backend(
        url,
        secrets=secrets,
        timeout=timeout,
        connect=timeout,
        connections=threads,
        max_replies=30,
        now=lambda: NOW,
        reach=reach,
        **more,
    )


def a_runner(
    code: Backend,
    timeout: timedelta = PATIENT,
    stopping: Callable[[], bool] = lambda: False,
    threads: int = 1,
    **more: bool,
) -> HandlerRunner:
    return HandlerRunner(code, timeout=timeout + GRACE, hung=HungThreads(threads), stopping=stopping, **more)


def ask(url: str, timeout: timedelta = PATIENT, call: HandlerCall = CALL) -> list[OutboundMessage]:
    """One call as the service makes it: through the runner."""
    with closing(backend(url, timeout)) as code:
        return list(a_runner(code, timeout)(call))


def fault_of(url: str, timeout: timedelta = PATIENT, call: HandlerCall = CALL) -> str:
    with pytest.raises(HandlerFault) as caught:
        ask(url, timeout, call)
    return str(caught.value)


def header(head: str, name: str) -> str:
    (value,) = re.findall(rf"(?im)^{name}: (.*)\r$", head)
    return str(value)


def signature_by(key: bytes, body: bytes) -> str:
    """Worked out from the specification, with nothing of ours."""
    content = b"%s.%s.%s" % (CALL.inbound_event_id.encode(), TIMESTAMP.encode(), body)
    return "v1," + b64encode(hmac.digest(key, content, "sha256")).decode()


# ---- the signature


def test_standard_webhooks_vector_has_the_published_signature() -> None:
    """https://github.com/standard-webhooks/standard-webhooks: the vector of its libraries' tests."""
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        at,
        b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_the_bytes_that_are_sent_are_the_bytes_that_are_signed(server: Server) -> None:
    ask(server.url)
    (head,), (body,) = server.heads, server.bodies
    assert header(head, "webhook-id") == CALL.inbound_event_id
    assert header(head, "webhook-timestamp") == TIMESTAMP
    assert header(head, "webhook-signature") == signature_by(KEY, body)


def test_every_secret_of_the_list_signs_in_its_order(server: Server) -> None:
    """So that a backend which knows either of two takes the call, whichever side was changed first."""
    with closing(backend(server.url, secrets=(NEW_SECRET, SECRET))) as code:
        code(CALL)
    (body,) = server.bodies
    signatures = header(server.heads[0], "webhook-signature").split(" ")
    assert signatures == [signature_by(NEW_KEY, body), signature_by(KEY, body)]


def test_retry_has_the_same_id_and_a_new_signature(server: Server) -> None:
    times = iter([NOW, NOW + timedelta(seconds=10)])
    code = backend(server.url)
    code._now = lambda: next(times)
    with closing(code):
        code(CALL)
        code(replace(CALL, attempt=4))
    assert {header(head, "webhook-id") for head in server.heads} == {CALL.inbound_event_id}
    assert [int(header(head, "webhook-timestamp")) - int(TIMESTAMP) for head in server.heads] == [0, 10]
    assert len({header(head, "webhook-signature") for head in server.heads}) == 2


# ---- what leaves


def test_a_call_goes_out_in_its_wire_form(server: Server) -> None:
    ask(server.url)
    (head,), (body,) = server.heads, server.bodies
    assert head.startswith("POST /pombo HTTP/1.1\r\n")
    assert header(head, "content-type") == "application/json; charset=utf-8"
    assert header(head, "user-agent") == "Pombo"
    assert header(head, "accept-encoding") == "identity"
    assert json.loads(body) == {
        "v": 1,
        "inbound_event_id": CALL.inbound_event_id,
        "correlation_id": "corr_0001",
        "attempt": 3,
        "message": json.loads(json.dumps(to_json(MESSAGE))),
    }
    assert json.loads(body)["message"]["text"] == "Olá 😀"
    assert "Olá 😀".encode() in body


@pytest.mark.parametrize("path", ["", "/", "/a/b", "/a/b/"])
def test_path_is_sent_unchanged_including_its_last_slash(server: Server, path: str) -> None:
    address = server.url.removesuffix("/pombo") + path
    given = {"HANDLER_URL": address, "HANDLER_URL_SECRET": SECRET}
    ask(config.load(given, config.INTERNAL)["HANDLER_URL"])
    assert server.heads[0].startswith(f"POST {path or '/'} HTTP/1.1\r\n")


@pytest.mark.parametrize("who", ["user:c4n4ry@", "user@", ":c4n4ry@", ":@", "@"])
def test_address_with_user_or_password_stops_the_start_and_is_not_repeated(who: str) -> None:
    given = {"HANDLER_URL": f"https://{who}handler.example.com/", "HANDLER_URL_SECRET": SECRET}
    with pytest.raises(config.ConfigError) as caught:
        config.load(given, config.INTERNAL)
    (fault,) = caught.value.faults
    assert fault.startswith("HANDLER_URL must not contain a user or a password")
    assert CANARY not in fault


def test_a_backend_is_asked_for_the_default_kinds() -> None:
    runner = a_runner(backend("http://127.0.0.1:1/"))
    assert {kind for kind in KINDS if runner.handles(kind)} == DEFAULT_KINDS


@pytest.mark.parametrize(
    ("kinds", "handled"),
    [(frozenset({"text", "unsupported"}), {"text", "unsupported"}), (frozenset({"*"}), {*KINDS, "a kind of tomorrow"})],
)
def test_a_backend_is_asked_for_the_kinds_it_is_given(kinds: frozenset[str], handled: set[str]) -> None:
    runner = a_runner(backend("http://127.0.0.1:1/", kinds=kinds))
    assert {kind for kind in (*KINDS, "a kind of tomorrow") if runner.handles(kind)} == handled


def test_proxy_variables_do_not_change_the_backend_called(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert ask(server.url) == []


def test_many_threads_ask_at_once_and_each_gets_its_own_answer(server: Server) -> None:
    def say_back(connection: socket.socket) -> None:
        connection.sendall(response(200, {"replies": []}))

    server.reply = say_back
    with closing(backend(server.url, threads=16)) as code, ThreadPoolExecutor(16) as pool:
        runner = a_runner(code, threads=16)
        assert list(pool.map(lambda _: list(runner(CALL)), range(64))) == [[]] * 64
    assert len(server.bodies) == 64
    assert server.connections <= 16


def test_backend_that_is_closed_during_a_call_ends_it_first(server: Server) -> None:
    """A tenant's changed secret replaces its backend, and must not abort the calls of the old one."""
    code = backend(server.url)
    posters = []

    def close_meanwhile(connection: socket.socket) -> None:
        posters.append(code._poster)
        code.close()
        connection.sendall(response(200, {"replies": ["one"]}))

    server.reply = close_meanwhile
    assert code(CALL) == [OutboundMessage.text("one")]
    assert (code._poster, len(code._in_use)) == (None, 0)
    assert posters[0]._pool.connections == [], "closed once the call had ended"


def test_backend_of_a_tenant_has_marks_apart_from_the_deployments(server: Server) -> None:
    ids = {backend(server.url, tenant=tenant).backend for tenant in ("", "acme", "globex")}
    assert ids == {backend_id(server.url), backend_id(server.url, "acme"), backend_id(server.url, "globex")}
    assert len(ids) == 3


def test_a_closed_backend_opens_again_for_the_next_call(server: Server) -> None:
    code = backend(server.url)
    for _ in range(2):
        code.close()
        assert code(CALL) == []
    code.close()
    assert server.connections == 2


# ---- answers


def test_replies_of_any_form_arrive_in_order(server: Server) -> None:
    quoted = {"type": "text", "content": {"body": "two"}, "reply_to": "wamid.1"}
    server.reply = answer(200, {"replies": ["one", quoted], "more": "is left alone"})
    assert ask(server.url) == [OutboundMessage.text("one"), OutboundMessage.text("two", reply_to="wamid.1")]


@pytest.mark.parametrize("reply", [answer(204), answer(200, {"replies": []}), answer(204, Content_Encoding="gzip")])
def test_no_reply_is_an_answer(server: Server, reply: Reply) -> None:
    server.reply = reply
    assert ask(server.url) == []


def test_thirty_replies_are_accepted(server: Server) -> None:
    server.reply = answer(200, {"replies": ["more"] * 30})
    assert len(ask(server.url)) == 30


@pytest.mark.parametrize("kind", ["text/plain", "application/json; charset=latin-1", ""])
def test_the_content_type_of_an_answer_is_left_alone(server: Server, kind: str) -> None:
    server.reply = answer(200, {"replies": ["one"]}, Content_Type=kind)
    assert ask(server.url) == [OutboundMessage.text("one")]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the backend answered 410"),
        (b"<h1>Gone</h1>", "the backend answered 410"),
        ([], "the backend answered 410"),
        ({"reason": ""}, "the backend answered 410"),
        ({"reason": 5}, "the backend answered 410"),
        ({"reason": "not for us"}, "not for us"),
        ({"reason": "x" * 9999}, "x" * 500),
    ],
)
def test_410_drops_the_message_for_the_backends_reason(server: Server, body: Any, reason: str) -> None:
    server.reply = answer(410, body)
    with pytest.raises(Drop) as caught:
        ask(server.url)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (201, "The backend answered 201."),
        (202, "The backend answered 202."),
        (206, "The backend answered 206."),
        (400, "The backend answered 400."),
        (401, "The backend answered 401 (does it know HANDLER_URL_SECRET?)."),
        (403, "The backend answered 403 (does it know HANDLER_URL_SECRET?)."),
        (404, "The backend answered 404 (does HANDLER_URL name the right path?)."),
        (405, "The backend answered 405 (it must take a POST)."),
        (418, "The backend answered 418."),
        (429, "The backend answered 429."),
        (500, "The backend answered 500."),
        (503, "The backend answered 503."),
        (599, "The backend answered 599."),
    ],
)
def test_any_other_status_counts_as_raised_and_its_body_is_not_repeated(server: Server, status: int, said: str) -> None:
    server.reply = answer(status, {"replies": [CANARY], "error": CANARY})
    assert fault_of(server.url) == said
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_hint_about_a_tenants_own_backend_names_no_setting_of_the_deployment(server: Server, status: int) -> None:
    server.reply = answer(status)
    with closing(backend(server.url, tenant="acme")) as code, pytest.raises(HandlerFault, match="the tenant's") as said:
        a_runner(code)(CALL)
    assert "HANDLER_URL" not in str(said.value)


def unavailable(url: str, timeout: timedelta = PATIENT) -> BackendUnavailable:
    """The failure of a call that got no answer, as the runner passes it on."""
    with pytest.raises(BackendUnavailable) as caught:
        ask(url, timeout)
    return caught.value


@pytest.mark.parametrize(("status", "took"), [(429, False), (503, False), (502, True), (504, True)])
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry_After": "7"}, 7),
        ({"retry_after": "0"}, 0),
        ({"Retry_After": "Fri, 27 Nov 2026 12:01:00 GMT", "Date": "Fri, 27 Nov 2026 12:00:00 GMT"}, 60),
        ({"Retry_After": "999999999"}, 24 * 3600),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "-5"}, None),
    ],
)
def test_unavailable_status_raises_backend_unavailable_with_its_wait(
    server: Server, status: int, took: bool, headers: dict[str, str], wait: float | None
) -> None:
    """429 and 503: it took nothing. 502 and 504: what stands before it cannot know."""
    server.reply = answer(status, {"replies": [CANARY]}, **headers)
    failure = unavailable(server.url)
    assert (str(failure), failure.took) == (f"The backend answered {status}.", took)
    assert failure.retry_after == (None if wait is None else timedelta(seconds=wait))


@pytest.mark.parametrize(
    "reply", [answer(500), answer(400), answer(413), answer(501), answer(599), answer(302), answer(200)]
)
def test_any_other_answer_is_one_however_bad(server: Server, reply: Reply) -> None:
    """A backend that fails at one message is there."""
    server.reply = reply
    with pytest.raises(HandlerFault) as caught:
        ask(server.url)
    assert not isinstance(caught.value, BackendUnavailable)


def test_the_marks_of_a_backend_are_its_addresses() -> None:
    with closing(backend("http://127.0.0.1:1/a")) as one, closing(backend("http://127.0.0.1:1/b")) as other:
        assert one.backend == a_runner(one).backend == backend_id("http://127.0.0.1:1/a")
        assert one.backend != other.backend


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_counts_as_raised_and_where_it_leads_is_never_asked(server: Server, status: int) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as elsewhere:
        elsewhere.setblocking(False)
        location = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/{CANARY}"
        server.reply = answer(status, Location=location)
        assert fault_of(server.url) == f"The backend answered {status}, a redirect, which is not followed."
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
        server.reply = answer(status, Location="/elsewhere")
        fault_of(server.url)
    assert [head.split(" ")[1] for head in server.heads] == ["/pombo", "/pombo"]


NO_LIST = 'The backend\'s answer is not an object with a list of "replies".'

BAD_BODIES: dict[str, tuple[Any, str]] = {
    "empty": (b"", "The backend's answer is not JSON."),
    "text": (CANARY.encode(), "The backend's answer is not JSON."),
    "cut off": (b'{"replies": ["c4n4ry"', "The backend's answer is not JSON."),
    "two documents": (b'{"replies": []}{"replies": []}', "The backend's answer is not JSON."),
    "null": (b"null", NO_LIST),
    "a list": ([CANARY], NO_LIST),
    "a string": (CANARY, NO_LIST),
    "no replies": ({"reply": CANARY}, NO_LIST),
    "replies are null": ({"replies": None}, NO_LIST),
    "replies are a string": ({"replies": CANARY}, NO_LIST),
    "replies are an object": ({"replies": {"type": "text"}}, NO_LIST),
    "31 replies": ({"replies": [CANARY] * 31}, "The backend may give 30 replies; it gave 31."),
    "a bomb that is not closed": (b'{"replies":' + b"[" * 1_000_000, "The backend's answer is not JSON."),
    "longer than 1 MiB": ({"replies": ["x" * 1024 * 1024]}, "The backend's answer is longer than 1 MiB."),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_BODIES)
def test_invalid_body_counts_as_raised_and_is_not_repeated(server: Server, name: str) -> None:
    body, said = BAD_BODIES[name]
    server.reply = answer(200, body)
    fault = fault_of(server.url)
    assert fault.startswith(said)
    assert fault == said or not said.endswith(".")
    assert CANARY not in fault


BAD_REPLIES: dict[str, tuple[Any, str]] = {
    "a number": (5, "A reply is a string or an object with type and content, not int."),
    "a null": (None, "A reply is a string or an object with type and content, not NoneType."),
    "a list in the list": ([CANARY], "A reply is a string or an object with type and content, not list."),
    "an empty text": (" ", "The text of a message is empty."),
    "too long a text": (CANARY * 1000, "The text of a message has 6000 characters; WhatsApp takes 4096."),
    "no content": ({"type": "text"}, "A reply has a type and a content, perhaps a reply_to, and nothing else."),
    "no type": ({"content": {"body": CANARY}}, "A reply has a type and a content, perhaps a reply_to, and nothing"),
    "more than there is": (
        {"type": "text", "content": {"body": "x"}, CANARY: 1},
        "A reply has a type and a content, perhaps a reply_to, and nothing else.",
    ),
    "a type that is no string": ({"type": [CANARY], "content": {}}, "An OutboundMessage has a type, a str, and a"),
    "a misspelt key": ({"type": "text", "content": {"boddy": CANARY}}, "The content of type text has a key that"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_reply_that_cannot_be_sent_keeps_its_place_and_the_others_are_sent(server: Server, name: str) -> None:
    reply, said = BAD_REPLIES[name]
    server.reply = answer(200, {"replies": ["one", reply, "two"]})
    one, invalid, two = ask(server.url)
    assert (one, two) == (OutboundMessage.text("one"), OutboundMessage.text("two"))
    assert isinstance(invalid, InvalidReply)
    assert invalid.sentence.startswith(said)
    assert CANARY not in invalid.sentence
    assert invalid.given == reply


BOMBS: dict[str, bytes] = {
    "of brackets": b"[" * 300_000 + b"]" * 300_000,
    "of objects": b'{"type":"text","content":' + b'{"body":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "of digits": b"9" * 900_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_oversized_reply_is_stored_in_part_and_the_others_are_sent(server: Server, name: str) -> None:
    server.reply = answer(200, b'{"replies":["one",' + BOMBS[name] + b"]}")
    one, invalid = ask(server.url)
    assert one == OutboundMessage.text("one")
    assert isinstance(invalid, InvalidReply)
    assert invalid.sentence.endswith(".")
    assert len(json.dumps(invalid.given)) < MESSAGE_BYTES


def test_all_or_nothing_answer_counts_as_raised_and_names_the_bad_reply(server: Server) -> None:
    server.reply = answer(200, {"replies": ["one", " "]})
    with closing(backend(server.url)) as code, pytest.raises(HandlerFault) as caught:
        a_runner(code, all_or_nothing=True)(CALL)
    assert str(caught.value) == "The backend's reply 2 cannot be sent: The text of a message is empty."


def test_lone_surrogate_is_replaced_rather_than_refused(server: Server) -> None:
    server.reply = answer(200, b'{"replies": ["half \\ud83d", "null \\u0000"]}')
    assert [reply.content["body"] for reply in ask(server.url)] == ["half \ufffd", "null \ufffd"]


def test_a_compressed_answer_counts_as_raised_for_it_was_not_asked_for(server: Server) -> None:
    server.reply = answer(200, gzip.compress(b'{"replies": ["one"]}'), Content_Encoding="gzip")
    assert fault_of(server.url) == "The backend's answer is compressed, which was not asked for."
    server.reply = answer(200, {"replies": ["one"]}, Content_Encoding="Identity")
    assert ask(server.url) == [OutboundMessage.text("one")]


def test_an_answer_in_chunks_is_read_whole_and_an_endless_one_is_not(server: Server) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [b'{"replies": ', b'["one"]}']
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    server.reply = lambda connection: connection.sendall(head + chunks + b"0\r\n\r\n")
    assert ask(server.url) == [OutboundMessage.text("one")]

    def endless(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    server.reply = endless
    assert fault_of(server.url) == "The backend's answer is longer than 1 MiB."


def test_early_responses_before_the_answer_are_skipped(server: Server) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    server.reply = lambda connection: connection.sendall(early + response(200, {"replies": ["one"]}))
    assert ask(server.url) == [OutboundMessage.text("one")]


# ---- no answer

HUNG_UP = "The backend hung up, or sent invalid HTTP."


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


BROKEN: dict[str, tuple[Reply, str]] = {
    "hangs up": (hang_up, HUNG_UP),
    "changes the protocol": (answer(101, Upgrade="websocket", Connection="Upgrade"), HUNG_UP),
    "speaks no HTTP": (lambda c: c.sendall(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"), HUNG_UP),
    "breaks off in the head": (lambda c: (c.sendall(b"HTTP/1.1 200 OK\r\nContent-"), hang_up(c))[-1], HUNG_UP),
    "breaks off in the body": (
        lambda c: (c.sendall(response(200, {"replies": ["one"]})[:-3]), hang_up(c))[-1],
        "The backend's answer broke off.",
    ),
    "has a head of a megabyte": (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1024 * 1024), HUNG_UP),
    "gives two lengths": (
        lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
        HUNG_UP,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_is_broken_counts_as_raised(server: Server, name: str) -> None:
    server.reply, said = BROKEN[name]
    assert fault_of(server.url) == said
    if said == HUNG_UP:
        failure = unavailable(server.url)
        assert (failure.took, failure.retry_after) == (True, None)


def test_an_answer_before_the_whole_call_was_read_is_an_answer() -> None:
    """A proxy that refuses a large body answers and closes."""
    large = replace(CALL, message=replace(MESSAGE, raw={"x": "x" * 4_000_000}))

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(response(413, Connection="close"))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with one_connection(refuse) as address:
        assert fault_of(f"http://{address}", call=large) == "The backend answered 413."


def test_a_refused_connection_counts_as_raised() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    failure = unavailable(f"http://127.0.0.1:{port}")
    assert (str(failure), failure.took) == ("The backend refused the connection.", False)


def test_a_name_that_is_not_resolved_counts_as_raised(mocker: MockerFixture) -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    mocker.patch.object(socket, "getaddrinfo", side_effect=unknown)
    failure = unavailable("http://backend.c4n4ry.example.com/")
    assert (str(failure), failure.took) == ("The backend cannot be found: its name was not resolved.", False)


@pytest.mark.parametrize("host", ["x" * 64, "a..b", "xn--\u00e9"])
def test_invalid_address_counts_as_raised(host: str) -> None:
    assert fault_of(f"http://{host}.example.com/").startswith("The backend cannot be ")


def test_address_outside_the_configuration_must_be_public(server: Server) -> None:
    with closing(backend(server.url, reach=PUBLIC)) as code, pytest.raises(HandlerFault) as caught:
        code(CALL)
    assert str(caught.value) == "The backend may not be called: its name leads to an address that is not public."
    assert server.connections == 0


UNTRUSTED = "The backend cannot be trusted: its certificate, or its TLS, was not accepted."


@pytest.fixture
def own_certificate(tmp_path: Path) -> ssl.SSLContext:
    """A server's TLS by a certificate that nobody else has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    valid = builder.not_valid_before(datetime.now(UTC) - timedelta(1)).not_valid_after(datetime.now(UTC) + timedelta(1))
    plain = serialization.NoEncryption()
    path = tmp_path / "own.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + valid.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def test_untrusted_certificate_counts_as_raised_and_nothing_is_sent(own_certificate: ssl.SSLContext) -> None:
    read: list[bytes] = []

    def shake_hands(connection: socket.socket) -> None:
        with own_certificate.wrap_socket(connection, server_side=True) as safe:
            read.append(safe.recv(1000))

    with one_connection(shake_hands) as address:
        assert fault_of(f"https://{address}/") == UNTRUSTED
    assert b"".join(read) == b""


def test_a_server_without_tls_behind_https_counts_as_raised() -> None:
    with one_connection(lambda connection: connection.sendall(response(400))) as address:
        failure = unavailable(f"https://{address}/")
        assert (str(failure), failure.took) == (UNTRUSTED, False)


# ---- time

NO_ANSWER = "The backend gave no answer within 0.6 s."


def until_it_hangs_up(connection: socket.socket, say: Callable[[], None] = lambda: None) -> None:
    """Look for the client's end every 10 ms, and say something each time; closes no connection by itself."""
    connection.settimeout(0.01)
    while True:
        say()
        try:
            if not connection.recv(1):
                raise ConnectionAbortedError
        except TimeoutError:
            continue


def trickle(head: bytes, drop: bytes) -> Reply:
    def reply(connection: socket.socket) -> None:
        connection.sendall(head)
        until_it_hangs_up(connection, lambda: connection.sendall(drop))

    return reply


SLOW: dict[str, tuple[Reply, str]] = {
    "says nothing": (until_it_hangs_up, NO_ANSWER),
    "trickles its head": (trickle(b"HTTP/1.1 200 OK\r\nX: ", b"x"), NO_ANSWER),
    "trickles headers": (trickle(b"HTTP/1.1 200 OK\r\n", b"X: x\r\n"), NO_ANSWER),
    "says for ever that we may go on": (trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), NO_ANSWER),
    "trickles its body": (
        trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        "The backend's answer did not arrive in time.",
    ),
    "trickles chunks": (
        trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        "The backend's answer did not arrive in time.",
    ),
    "keeps the body of a refusal": (
        trickle(b"HTTP/1.1 500 X\r\nContent-Length: 1000000\r\n\r\n", b" "),
        "The backend answered 500.",
    ),
}


def handler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pombo-handler"]


@pytest.mark.parametrize("name", SLOW)
def test_hanging_backend_times_out_and_leaves_no_thread(server: Server, name: str) -> None:
    """Its connection is closed at the timeout, so no thread hangs, none is counted, and room is made for the next."""
    server.reply, said = SLOW[name]
    with closing(backend(server.url, HASTY)) as code:
        runner = a_runner(code, HASTY)
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(HandlerFault) as caught:
                runner(CALL)
            while "accepted no connection" in str(caught.value):  # on a busy machine 0.6 s may pass before the request
                began = time.monotonic()
                with pytest.raises(HandlerFault) as caught:
                    runner(CALL)
            assert time.monotonic() - began < OVER
            assert str(caught.value) == said
            is_silent = isinstance(caught.value, BackendUnavailable) and caught.value.took
            assert is_silent is (said in (NO_ANSWER, "The backend's answer did not arrive in time."))
            assert server.ended.acquire(timeout=OVER)
            for thread in handler_threads():
                thread.join(OVER)
            assert handler_threads() == []
            assert not runner.exhausted


def test_slowly_reading_backend_times_out() -> None:
    """Each write is answered by a little room for the next, so only a clock that is looked at in between ends it."""
    over = threading.Event()

    def sip(connection: socket.socket) -> None:
        while connection.recv(16_384) and not over.wait(0.005):
            pass

    with (
        one_connection(sip) as address,
        closing(Poster(PostTimes(*[HASTY] * 4), time.monotonic, reach=ANYWHERE)) as poster,
    ):
        began = time.monotonic()
        with pytest.raises(NoAnswer, match="WriteTimeout"):
            poster.post(f"http://{address}/", {}, bytes(40_000_000))
        assert time.monotonic() - began < OVER
        over.set()


def test_hanging_name_lookup_is_ended_by_the_runners_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket is there to close: the thread counts as hung until the resolver comes back."""
    held = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        held.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with closing(backend("http://backend.example.com/", HASTY)) as code:
        runner = a_runner(code, HASTY)
        with pytest.raises(BackendUnavailable, match=r"The handler took longer than 1\.1 s\.") as caught:
            runner(CALL)
        assert caught.value.took
        assert runner.exhausted
        held.set()
        for thread in handler_threads():
            thread.join(OVER)
        assert not runner.exhausted


def test_the_end_of_the_process_interrupts_a_call_that_is_under_way(server: Server) -> None:
    asked, released = threading.Event(), threading.Event()

    def hang(connection: socket.socket) -> None:
        asked.set()
        released.wait(60)
        connection.shutdown(socket.SHUT_RDWR)

    server.reply = hang
    began = time.monotonic()
    with closing(backend(server.url)) as code:
        with pytest.raises(HandlerInterrupted):
            a_runner(code, stopping=asked.is_set)(CALL)
        assert time.monotonic() - began < OVER < PATIENT.total_seconds()
        released.set()
        for thread in handler_threads():
            thread.join(OVER)
    assert handler_threads() == []


# ---- as the service is built


def test_the_service_asks_the_backend_within_its_scaled_timeout(server: Server, tmp_path: Path) -> None:
    given = {
        "HANDLER_URL": server.url,
        "HANDLER_URL_SECRET": f"{SECRET}, {NEW_SECRET}",
        "HANDLER_TIMEOUT": "40s",
        "TIME_SCALE": "20",
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
    }
    internal = build_internal(given)
    server.reply = answer(200, {"replies": ["one"]})
    handler = internal.process_inbound.handlers.of("default").handler
    assert list(handler(CALL)) == [OutboundMessage.text("one")]
    assert abs(int(header(server.heads[0], "webhook-timestamp")) - time.time()) < 60
    assert len(header(server.heads[0], "webhook-signature").split()) == 2
    server.reply = until_it_hangs_up
    with pytest.raises(HandlerFault, match=r"gave no answer within 2 s"):
        handler(CALL)
    assert internal.handler is handler
