"""Sending to Meta, against a real server on this machine: what was certainly not taken, what may have been, and why."""

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import pytest

from shared.channels.meta.channel import MetaChannel
from shared.domain.identity import Echo
from shared.domain.limits import PostTimes
from shared.domain.messages import Contact, Message
from shared.domain.outbound.recipient import Recipient
from shared.domain.record import Delivery, Kind, State
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    OutageInSuccess,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.verdicts import CredentialRefused, Lost, ProviderDown
from shared.net.egress_policy import ANYWHERE

SENDER = "200000000000001"
ECHO = Echo("0123456789abcdef0123456789abcdef01234567", 2, "corr_0001")
TOKEN = "token-1"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
PATIENT = PostTimes(*[timedelta(seconds=20)] * 4)
"""For whatever is answered at once: no busy machine turns it into a timeout."""

HASTY = PostTimes(read=timedelta(seconds=0.3), total=timedelta(seconds=0.8))
"""For what is lost anyway, so that a busy machine changes nothing."""

OVER = 10.0
"""Seconds by which a hasty send has ended, on a busy machine too; a trickle that is not cut off takes 20."""

Reply = Callable[[socket.socket], None]


@dataclass
class Server:
    """Reads whole requests and answers each as it is told; says nothing of its own."""

    listener: socket.socket
    reply: Reply
    heads: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

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
                while head := read_head(stream):
                    length = re.search(r"(?i)content-length: (\d+)", head)
                    assert length is not None
                    self.heads.append(head)
                    self.bodies.append(json.loads(stream.read(int(length[1]))))
                    self.reply(connection)
            except OSError:
                pass  # the client or the reply has hung up


def read_head(stream: BinaryIO) -> str:
    lines = []
    while (line := stream.readline()) not in (b"", b"\r\n"):
        lines.append(line)
    return b"".join(lines).decode()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        served = Server(listener, answer(200, {"messages": [{"id": "wamid.out1"}]}))
        thread = threading.Thread(target=served.serve, daemon=True)
        thread.start()
        yield served
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def answer(status: int, body: Any, **headers: str) -> Reply:
    return lambda connection: connection.sendall(response(status, body, **headers))


def response(status: int, body: Any, **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def graph_error(code: Any, **more: Any) -> dict[str, Any]:
    return {"error": {"message": "(#) said in English", "type": "OAuthException", "code": code, **more}}


def delivery(sender: str = SENDER, **payload: Any) -> Delivery:
    text = {"type": "text", "content": {"body": "Olá 😀"}, "reply_to": None, "to": "+15550100001"}
    return Delivery(
        key=ECHO.key,
        kind=Kind.OUTBOUND,
        provider="meta",
        tenant="default",
        sender=sender,
        contact="c",
        correlation_id=ECHO.correlation_id,
        state=State.LEASED,
        received_at=NOW,
        payload={key: value for key, value in (text | payload).items() if value is not ...},
    )


def channel(url: str, times: PostTimes = PATIENT, **more: Any) -> MetaChannel:
    given = {"base_url": url, "version": "v25.0", "post": times, "reach": ANYWHERE, **more}
    return MetaChannel(app_secrets=(), **given)


def refused_with(url: str, token: str = TOKEN, **more: Any) -> SendError:
    with closing(channel(url, **more)) as meta, pytest.raises(SendError) as raised:
        meta.send(delivery(), ECHO, token)
    return raised.value


# ---- what goes out


def test_a_text_goes_out_as_meta_wants_it(server: Server) -> None:
    with closing(channel(server.url + "/")) as meta:
        assert meta.send(delivery(), ECHO, TOKEN) == "wamid.out1"
    assert server.bodies == [
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": "+15550100001",
            "type": "text",
            "text": {"body": "Olá 😀"},
            "biz_opaque_callback_data": "pombo1.0123456789abcdef0123456789abcdef01234567.2.corr_0001",
        }
    ]
    (head,) = server.heads
    assert head.startswith(f"POST /v25.0/{SENDER}/messages HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer token-1\r\n" in head
    assert "\r\nContent-Type: application/json\r\n" in head


def test_reply_to_a_contact_without_phone_uses_the_user_id(server: Server) -> None:
    with closing(channel(server.url)) as meta:
        meta.send(delivery(to=..., recipient="US.30000000000000000001", reply_to="wamid.in1"), ECHO, TOKEN)
    (body,) = server.bodies
    assert "to" not in body
    assert body["recipient"] == "US.30000000000000000001"
    assert body["context"] == {"message_id": "wamid.in1"}


@pytest.mark.parametrize(("type", "indicator"), [("read", {}), ("typing", {"typing_indicator": {"type": "text"}})])
def test_a_call_goes_out_without_address_and_echo_and_has_no_id(
    server: Server, type: str, indicator: dict[str, Any]
) -> None:
    server.reply = answer(200, {"success": True})
    with closing(channel(server.url)) as meta:
        assert meta.send(delivery(type=type, content={"message_id": "wamid.in1"}), ECHO, TOKEN) is None
    expected = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.in1", **indicator}
    assert server.bodies == [expected]


def test_contacts_go_out_as_a_list(server: Server) -> None:
    cards = [{"name": {"formatted_name": "Ana", "first_name": "Ana"}}]
    with closing(channel(server.url)) as meta:
        meta.send(delivery(type="contacts", content=cards, reply_to="wamid.in1"), ECHO, TOKEN)
    (body,) = server.bodies
    assert (body["type"], body["contacts"], body["context"]) == ("contacts", cards, {"message_id": "wamid.in1"})


@pytest.mark.parametrize(
    ("contact", "address"),
    [
        (Contact("US.3", "15550100001", "US.3"), {"to": "+15550100001"}),
        (Contact("+15550100001", "+15550100001"), {"to": "+15550100001"}),
        (Contact("US.3", None, "US.3"), {"recipient": "US.3"}),
        (Contact("US.3", "", "US.3"), {"recipient": "US.3"}),
    ],
)
def test_a_reply_is_addressed_by_phone_with_one_plus_else_by_user_id(contact: Contact, address: Any) -> None:
    message = Message("text", "x", "wamid.in1", contact, SENDER, "default", NOW)
    assert channel("http://127.0.0.1:1").address(message) == address


def test_number_is_the_contact_that_webhooks_name_and_the_address_with_its_plus() -> None:
    assert MetaChannel().recipient("+15550002222") == Recipient("15550002222", {"to": "+15550002222"})


@pytest.mark.parametrize("id", ["US.30000000000000000001", "user.93712345", "US.ENT.118"])
def test_user_id_is_the_contact_and_the_address_as_it_is(id: str) -> None:
    assert MetaChannel().recipient(id) == Recipient(id, {"recipient": id})


@pytest.mark.parametrize(
    "to", ["", "+", "15550002222", "+1 555 000 2222", "+0155500022", "+123456", "+1234567890123456", "(555) 000-2222"]
)
def test_number_in_another_form_is_refused_with_its_right_one(to: str) -> None:
    with pytest.raises(ValueError, match=r"like \+15550002222"):
        MetaChannel().recipient(to)


@pytest.mark.parametrize("to", ["a", "with blank", "+US.3", "line\nbreak", "x" * 161])
def test_text_that_is_neither_number_nor_user_id_is_refused(to: str) -> None:
    with pytest.raises(ValueError, match="or a user id"):
        MetaChannel().recipient(to)


def test_proxy_variables_do_not_change_the_provider_called(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with closing(channel(server.url)) as meta:
        assert meta.send(delivery(), ECHO, TOKEN) == "wamid.out1"


def test_two_messages_share_one_connection(server: Server) -> None:
    with closing(channel(server.url)) as meta:
        meta.send(delivery(), ECHO, TOKEN)
        meta.send(delivery(), ECHO, TOKEN)
        assert server.connections == 1


def test_idle_connection_closed_by_the_server_is_not_reused(server: Server) -> None:
    closed = threading.Event()

    def close_after(connection: socket.socket) -> None:
        connection.sendall(response(200, {"messages": [{"id": "wamid.out1"}]}))
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    server.reply = close_after
    with closing(channel(server.url)) as meta:
        for _ in range(3):
            closed.clear()
            assert meta.send(delivery(), ECHO, TOKEN) == "wamid.out1"
            assert closed.wait(5)
    assert len(server.bodies) == 3


def test_many_threads_send_through_one_channel(server: Server) -> None:
    with closing(channel(server.url)) as meta, ThreadPoolExecutor(32) as pool:
        ids = list(pool.map(lambda _: meta.send(delivery(), ECHO, TOKEN), range(200)))
    assert ids == ["wamid.out1"] * 200
    assert len(server.bodies) == 200
    assert server.connections <= 32


def test_a_closed_channel_opens_again_when_it_sends(server: Server) -> None:
    meta = channel(server.url)
    meta.close()
    for _ in range(2):
        assert meta.send(delivery(), ECHO, TOKEN) == "wamid.out1"
        meta.close()
    assert server.connections == 2


# ---- accepted: any 2xx, readable or not


@pytest.mark.parametrize(
    ("status", "body", "message_id"),
    [
        (200, {"messages": [{"id": "wamid.a", "message_status": "accepted"}], "contacts": [{}], "new": 1}, "wamid.a"),
        (201, {"messages": [{"id": "wamid.a"}]}, "wamid.a"),
        (200, {"messages": [{"id": 5}]}, None),
        (200, {"messages": [{"id": ""}]}, None),
        (200, {"messages": []}, None),
        (200, {"messages": {}}, None),
        (200, {"messages": [None]}, None),
        (200, [], None),
        (200, b"", None),
        (200, b"<html>", None),
        (200, b"[" * 100_000, None),
        (204, b"", None),
        (200, {"error": "no error of Graph's", "messages": [{"id": "wamid.a"}]}, "wamid.a"),
        (200, graph_error("E1"), None),
        (200, b" " * (1024 * 1024 + 1), None),
        (200, b'{"messages":[{"id":"wamid.a"}]}' + b" " * 1_000_000, "wamid.a"),
    ],
)
def test_a_2xx_without_a_readable_error_is_accepted(
    server: Server, status: int, body: Any, message_id: str | None
) -> None:
    server.reply = answer(status, body)
    with closing(channel(server.url)) as meta:
        assert meta.send(delivery(), ECHO, TOKEN) == message_id


def test_300_is_not_an_acceptance(server: Server) -> None:
    server.reply = answer(300, {"messages": [{"id": "wamid.a"}]})
    with closing(channel(server.url)) as meta, pytest.raises(SendError):
        meta.send(delivery(), ECHO, TOKEN)


@pytest.mark.parametrize("status", [200, 202])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (131026, SendRefused),
        (130429, LimitReached),
        (190, CredentialInvalid),
        (10, AccessDenied),
        (368, SenderBlocked),
        (131000, AnswerLost),
        (133015, AnswerLost),
        (2, OutageInSuccess),
        (131016, OutageInSuccess),
        (133004, OutageInSuccess),
        (999_001, AnswerLost),
    ],
)
def test_a_readable_error_inside_a_2xx_is_that_errors_verdict(
    server: Server, code: int, error: type[SendError], status: int
) -> None:
    """What would be sent again counts as lost: a success may be one all the same."""
    server.reply = answer(status, {**graph_error(code), "messages": [{"id": "wamid.a"}]})
    raised = refused_with(server.url)
    assert (type(raised), raised.provider_code, raised.status) == (error, code, status)
    assert isinstance(raised.verdict, Lost) is issubclass(error, AnswerLost)


def trickle(start: bytes, drop: bytes = b"x", seconds: float = 20) -> Reply:
    """The start at once, then a byte whenever a read timeout would be about to run out."""

    def send(connection: socket.socket) -> None:
        connection.sendall(start)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            connection.sendall(drop)

    return send


def half(start: bytes) -> Reply:
    def send(connection: socket.socket) -> None:
        connection.sendall(start)
        connection.shutdown(socket.SHUT_RDWR)

    return send


def hold(start: bytes) -> Reply:
    def send(connection: socket.socket) -> None:
        connection.sendall(start)
        connection.recv(1)  # until the client gives up

    return send


def reset(start: bytes) -> Reply:
    """The connection is torn down rather than closed, as by a machine that died or a middleman that gave up."""

    def send(connection: socket.socket) -> None:
        connection.sendall(start)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionError

    return send


@pytest.mark.parametrize("rest", [trickle, half, hold, reset])
def test_a_2xx_whose_body_never_ends_is_accepted_without_an_id(server: Server, rest: Callable[[bytes], Reply]) -> None:
    server.reply = rest(b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"messages":[{"id":"wam')
    with closing(channel(server.url, PostTimes(read=timedelta(seconds=1), total=timedelta(seconds=1.5)))) as meta:
        began = time.monotonic()
        assert meta.send(delivery(), ECHO, TOKEN) is None
        assert time.monotonic() - began < OVER


# ---- lost: it may have been taken

HEADERS = b"HTTP/1.1 400 X\r\nX-Slow: "
SLOW: dict[str, Reply] = {
    "the headers do not come": hold(b""),
    "the headers stop": hold(HEADERS),
    "the headers trickle": trickle(HEADERS),
    "interim answers trickle": trickle(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "the body of an error stops": hold(b"HTTP/1.1 400 X\r\nContent-Length: 99\r\n\r\n{"),
    "the body of an error trickles": trickle(b"HTTP/1.1 400 X\r\nContent-Length: 999\r\n\r\n"),
}
LOST: dict[str, Reply] = {
    "the connection is closed without a word": half(b""),
    "the connection is reset without a word": reset(b""),
    "the connection is reset in the headers": reset(HEADERS),
    "the connection is reset in the body of an error": reset(b"HTTP/1.1 400 X\r\nContent-Length: 99\r\n\r\n{"),
    "the headers break off": half(HEADERS),
    "the body of an error breaks off": half(b"HTTP/1.1 400 X\r\nContent-Length: 99\r\n\r\n{"),
    "the answer is no HTTP": half(b"+OK hello\r\n\r\n"),
    "the headers never end": lambda connection: connection.sendall(HEADERS + b"x" * 1_000_000),
    "the status is no number": half(b"HTTP/1.1 abc X\r\n\r\n"),
    "a redirect": answer(302, b"", Location="http://127.0.0.1:1/"),
    "a redirect that keeps the method": answer(307, b"", Location="/elsewhere"),
    "an error page": answer(400, b"<html>"),
    "not found": answer(404, {}),
    "an error without a code": answer(400, {"error": {"message": "x"}}),
    "an error that is a word": answer(400, {"error": "invalid_request"}),
    "an error whose code is no number": answer(400, graph_error("E1")),
    "an error whose code is true": answer(400, graph_error(True)),
    "a bad gateway": answer(502, b"<html>"),
    "unavailable, by somebody": answer(503, b""),
    "a server error without an error": answer(500, {"ok": False}),
    "a server error nested deeply": answer(500, b'{"error":' * 100_000),
    "code 1": answer(400, graph_error(1)),
    "code 131000": answer(500, graph_error(131000)),
    "code 131000 with 400": answer(400, graph_error(131000)),
    "an unknown code with 500": answer(500, graph_error(999_001)),
    "an unknown code with 503": answer(503, graph_error(-1)),
}


@pytest.mark.parametrize("name", LOST)
def test_unclear_response_is_a_lost_answer(server: Server, name: str) -> None:
    server.reply = LOST[name]
    assert type(refused_with(server.url)) is AnswerLost
    assert len(server.bodies) == 1, "it is never sent again by itself"


@pytest.mark.parametrize("name", SLOW)
def test_an_answer_that_is_too_slow_is_lost_in_bounded_time(server: Server, name: str) -> None:
    server.reply = SLOW[name]
    began = time.monotonic()
    assert type(refused_with(server.url, times=HASTY)) is AnswerLost
    assert time.monotonic() - began < OVER
    assert len(server.bodies) == 1


def test_a_request_that_had_begun_to_leave_when_the_connection_broke_is_lost() -> None:
    """Whether enough of it arrived is for nobody here to know."""

    def read_some(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.recv(100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    larger_than_any_buffer = delivery(content={"body": "x" * 16_000_000})
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_some, listener)
        with closing(channel(f"http://127.0.0.1:{listener.getsockname()[1]}")) as meta, pytest.raises(AnswerLost):
            meta.send(larger_than_any_buffer, ECHO, TOKEN)
        reading.result(5)


def test_whole_post_times_out_by_our_own_clock(server: Server) -> None:
    ticks = iter([0.0] * 4 + [100.0] * 100)
    assert type(refused_with(server.url, monotonic=lambda: next(ticks))) is AnswerLost


# ---- certainly not taken: nothing has left


def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1",
        "127.0.0.1",
        "",
        "http://",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://é\x00",
        "http://[::1",
    ],
)
def test_an_address_that_cannot_be_used_leaves_nothing_sent(url: str) -> None:
    assert type(refused_with(url)) is ProviderUnavailable


def test_a_host_that_does_not_listen_leaves_nothing_sent() -> None:
    assert type(refused_with(f"http://127.0.0.1:{closed_port()}")) is ProviderUnavailable


def test_a_handshake_that_fails_leaves_nothing_sent() -> None:
    def say_no(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.recv(1)
            connection.sendall(b"no TLS here")

    with closing(socket.create_server(("127.0.0.1", 0))) as plain, ThreadPoolExecutor(1) as pool:
        saying = pool.submit(say_no, plain)
        assert type(refused_with(f"https://127.0.0.1:{plain.getsockname()[1]}")) is ProviderUnavailable
        saying.result(5)


def test_a_handshake_that_hangs_leaves_nothing_sent() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        assert type(refused_with(url, times=HASTY)) is ProviderUnavailable


def test_time_that_is_over_before_the_request_has_left_leaves_nothing_sent(server: Server) -> None:
    ticks = iter([0.0, 0.0] + [100.0] * 100)
    assert type(refused_with(server.url, monotonic=lambda: next(ticks))) is ProviderUnavailable
    assert server.bodies == []


@pytest.mark.parametrize(
    "payload",
    [
        {"to": ...},
        {"to": ""},
        {"type": ...},
        {"type": 5},
        {"content": ...},
        {"content": {"body": float("nan")}},
        {"content": {"body": b"bytes"}},
        {"type": "read", "content": {}},
        {"type": "typing", "content": {"message_id": ""}},
        {"type": "typing", "content": ["wamid.in1"]},
        {"type": "read", "content": ...},
    ],
)
def test_stored_reply_without_a_valid_request_is_retried_later(server: Server, payload: dict[str, Any]) -> None:
    with closing(channel(server.url)) as meta, pytest.raises(TryLater):
        meta.send(delivery(**payload), ECHO, TOKEN)
    assert server.connections == 0


def test_a_text_with_a_lone_surrogate_is_still_sent(server: Server) -> None:
    with closing(channel(server.url)) as meta:
        assert meta.send(delivery(content={"body": "a\ud800"}), ECHO, TOKEN) == "wamid.out1"


@pytest.mark.parametrize("token", ["", " ", "token\n", "to\r\nken", "tokén"])
def test_invalid_token_is_a_refused_credential(server: Server, token: str) -> None:
    assert type(refused_with(server.url, token=token)) is CredentialInvalid
    assert server.connections == 0


# ---- Meta's own word, as it comes over the wire (the whole table: test_meta_codes.py)


@pytest.mark.parametrize(
    ("status", "body", "error", "code"),
    [
        (429, graph_error(130429), LimitReached, 130429),
        (400, graph_error("131056"), LimitReached, 131056),
        (401, graph_error(190, error_subcode=463), CredentialInvalid, 190),
        (400, graph_error(100, error_subcode=33), SenderBlocked, 100),
        (400, graph_error(131062), SendRefused, 131062),
        (500, graph_error(100), SendRefused, 100),
        (400, graph_error(999_001, is_transient=True), TryLater, 999_001),
        (503, graph_error(2, is_transient=True), ProviderUnavailable, 2),
        (429, b"", ProviderUnavailable, None),
        (429, b"<html>", ProviderUnavailable, None),
    ],
)
def test_an_error_of_metas_is_raised_with_its_code_and_status(
    server: Server, status: int, body: Any, error: type[SendError], code: int | None
) -> None:
    server.reply = answer(status, body)
    raised = refused_with(server.url)
    assert (type(raised), raised.provider_code, raised.status) == (error, code, status)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry_After": "2"}, timedelta(seconds=2)),
        ({"retry_after": " 0 "}, timedelta()),
        (
            {"Retry_After": "Fri, 27 Nov 2026 12:01:00 GMT", "Date": "Fri, 27 Nov 2026 12:00:00 GMT"},
            timedelta(seconds=60),
        ),
        ({"Retry_After": "Fri, 27 Nov 2020 12:01:00 GMT"}, timedelta()),
        ({"Retry_After": "Fri, 27 Nov 9999 12:01:00 GMT"}, timedelta(hours=24)),
        ({"Retry_After": "999999999"}, timedelta(hours=24)),
        ({"Retry_After": "99999999999999999999"}, None),
        ({"Retry_After": "-5"}, None),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "Fri, 99 Nov 99999999 12:01:00 GMT"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, graph_error(130429)),
        (400, graph_error(999_001, is_transient=True)),
        (503, graph_error(2)),
        (429, b"<html>"),
    ],
    ids=["limited", "retry", "down", "a plain 429"],
)
def test_a_wait_that_is_asked_for_is_passed_on(
    server: Server, status: int, body: Any, headers: dict[str, str], wait: timedelta | None
) -> None:
    server.reply = answer(status, body, **headers)
    assert refused_with(server.url).retry_after == wait


def test_error_has_the_unscaled_minimum_wait_of_its_code(server: Server) -> None:
    server.reply = answer(400, graph_error(133015))
    error = refused_with(server.url)
    assert (error.retry_after, error.minutes) == (None, 5)


# ---- the probe: a call that harms nothing, on the endpoint that sends


def probed(url: str, token: str = TOKEN, **more: Any) -> SendError | None:
    with closing(channel(url, **more)) as meta:
        try:
            meta.probe(SENDER, token)
        except SendError as error:
            return error
    return None


def test_a_probe_marks_a_message_as_read_that_does_not_exist(server: Server) -> None:
    """A GET might be answered by machines that do not send. https://developers.facebook.com/docs/whatsapp/cloud-api"""
    server.reply = answer(400, graph_error(131009))
    assert probed(server.url) is None
    (head,), (body,) = server.heads, server.bodies
    assert head.startswith(f"POST /v25.0/{SENDER}/messages HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer token-1\r\n" in head
    assert body == {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.pombo-probe"}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, graph_error(131009)),
        (401, graph_error(190)),
        (403, graph_error(10)),
        (429, graph_error(130429)),
        (403, graph_error(368)),
        (500, graph_error(131000)),
        (500, graph_error(1)),
        (500, graph_error(999_001)),
        (400, graph_error(999_001, is_transient=True)),
        (400, graph_error(133015)),
        (200, {"success": True}),
        (200, b""),
        (200, graph_error(131009)),
    ],
)
def test_any_answer_to_a_probe_means_the_provider_is_up(server: Server, status: int, body: Any) -> None:
    server.reply = answer(status, body)
    assert probed(server.url) is None


DOWN_SAYS: dict[str, tuple[Reply, Any]] = {
    "code 2": (answer(503, graph_error(2)), ProviderDown(2)),
    "code 131016": (answer(500, graph_error(131016)), ProviderDown(131016)),
    "code 133004": (answer(400, graph_error(133004)), ProviderDown(133004)),
    "a bare 429": (answer(429, b""), ProviderDown()),
    "a bare 429 with a wait": (answer(429, b"", Retry_After="7"), ProviderDown(retry_after=timedelta(seconds=7))),
    "500 without a body": (answer(500, b""), Lost(outage=True)),
    "a bad gateway": (answer(502, b"<html>"), Lost(outage=True)),
    "unavailable, by somebody": (answer(503, {}), Lost(outage=True)),
    "hangs up": (half(b""), Lost(outage=True)),
    "is reset": (reset(b""), Lost(outage=True)),
    "code 2 in a success": (answer(200, graph_error(2)), Lost(2, outage=True)),
}


@pytest.mark.parametrize("name", DOWN_SAYS)
def test_a_probe_that_is_lost_or_refused_as_a_whole_raises_the_outage(server: Server, name: str) -> None:
    server.reply, verdict = DOWN_SAYS[name]
    error = probed(server.url)
    assert error is not None
    assert error.verdict == verdict
    assert len(server.bodies) == 1


def test_a_probe_that_is_not_answered_in_time_raises_the_outage(server: Server) -> None:
    server.reply = hold(b"")
    assert type(probed(server.url, times=HASTY)) is AnswerLost


def test_a_probe_that_cannot_connect_raises_the_outage() -> None:
    assert type(probed(f"http://127.0.0.1:{closed_port()}")) is ProviderUnavailable


def test_a_probe_without_a_usable_token_asks_nothing(server: Server) -> None:
    error = probed(server.url, token="")
    assert error is not None
    assert (error.verdict, error.answered) == (CredentialRefused(0), False)
    assert server.connections == 0


def test_nothing_private_stands_in_an_error(server: Server) -> None:
    for reply in (answer(400, graph_error(131026, error_data={"details": "+15550100001"})), half(b"")):
        server.reply = reply
        error: BaseException | None = refused_with(server.url)
        while error:
            said = f"{error!r} {error} {error.__dict__}"
            assert not any(word in said for word in ("1555", "token", "Olá", "English"))
            error = error.__cause__ or error.__context__
