"""Where a connection may lead: what a stranger named reaches the public Internet, and nothing of ours."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from shared.bootstrap.internal import build_internal
from shared.domain.identity import Echo
from shared.domain.limits import PostTimes
from shared.domain.messages import Contact, Message
from shared.domain.send_errors import ProviderUnavailable
from shared.net import egress_policy
from shared.net.bounded_http import HttpResponse, NotSent, Poster
from shared.net.egress_policy import ANYWHERE, PUBLIC, EgressPolicy, NotPublic, is_public
from shared.pipeline.ports import HandlerCall, HandlerFault
from tests.support.builders import leased

PATIENT = PostTimes(*[timedelta(seconds=20)] * 4)
NAME = "media.tenant.example"
NEAR, FAR = "127.0.0.1", "127.0.0.2"
"""Two addresses of this machine: in these tests one is out of reach and the other stands for a public one."""


SENDER = "200000000000002"
PROD = {
    "APP_ENV": "prod",
    "STORE": "firestore",
    "GOOGLE_CLOUD_PROJECT": "a-project",
    "CLOUD_TASKS_LOCATION": "europe-west1",
    "INBOUND_TASK_QUEUE_NAME": "inbound",
    "OUTBOUND_TASK_QUEUE_NAME": "outbound",
    "INTERNAL_TASK_BASE_URL": "https://internal.example.com",
    "INTERNAL_TASK_TOKEN": "a-token-of-our-own",
    "ID_KEY": "a-key-of-our-own",
    "WHATSAPP_PHONE_NUMBER_ID": SENDER,
    "WHATSAPP_ACCESS_TOKEN": "an-access-token",
    "HANDLER_URL_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
}


# ---- addresses

BEYOND = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1",
    "127.255.255.255", "168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.170",
    "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8", "64:ff9b:1::a9fe:a9fe", "100::1", "2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:10::1",
    "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "4000::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1",
]  # fmt: skip
WITHIN = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.1",
    "157.240.1.1", "168.63.129.15", "168.63.129.17", "172.15.255.255", "172.32.0.1", "192.0.1.1", "192.169.0.1",
    "198.17.255.255", "198.20.0.1", "223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2003::1",
    "2606:4700:4700::1111", "2a03:2880:f10d::1", "3ffe::1",
]  # fmt: skip


@pytest.mark.parametrize("address", BEYOND)
def test_local_cloud_and_reserved_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", WITHIN)
def test_globally_reachable_address_is_public(address: str) -> None:
    assert is_public(ip_address(address))


def test_name_is_refused_unless_every_address_is_public() -> None:
    for answers in (["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], ["2606:4700:4700::1111", "::1"]):
        with pytest.raises(NotPublic):
            EgressPolicy(is_public, lambda *_, answers=answers: answers).addresses(NAME, 443)
    mixed = ["8.8.8.8", "2606:4700:4700::1111"]
    assert EgressPolicy(is_public, lambda *_: mixed).addresses(NAME, 443) == mixed


# ---- connections


@dataclass
class Server:
    """Listens on NEAR and on FAR, on the same port, answers whatever it is asked, and remembers who was called."""

    port: int
    listeners: Sequence[socket.socket]
    answer: bytes = b"HTTP/1.1 204 X\r\nConnection: close\r\n\r\n"
    called: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.called.append(listener.getsockname()[0])
            with closing(connection):
                self.heads.append(connection.recv(65536))
                connection.sendall(self.answer)


@pytest.fixture
def server() -> Iterator[Server]:
    near = socket.create_server((NEAR, 0))
    port = near.getsockname()[1]
    served = Server(port, (near, socket.create_server((FAR, port))))
    threads = [threading.Thread(target=served.serve, args=(listener,), daemon=True) for listener in served.listeners]
    for thread in threads:
        thread.start()
    yield served
    for listener in served.listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(5)


def post(url: str, egress_policy: EgressPolicy = PUBLIC) -> HttpResponse:
    with closing(Poster(PATIENT, time.monotonic, reach=egress_policy)) as poster:
        return poster.post(url, {"Host": NAME} if NAME in url else {}, b"{}")


def answering(*answers: Sequence[str]) -> tuple[EgressPolicy, list[str]]:
    """A resolver that gives one of these answers after the other, and whom it was asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return EgressPolicy(lambda address: str(address) != NEAR, resolve), asked


HERE = [
    "127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.1.", "0.0.0.0",
    "0", "localhost", "LOCALHOST", "localhost.", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]", "[::]",
    "[0:0:0:0:0:0:0:1]", "tenant.invalid@127.0.0.1", "tenant.invalid:80@127.0.0.1", "a:b@127.0.0.1",
    "tenant.invalid%40127.0.0.1", "127.0.0.1%00.tenant.invalid", "１２７.０.０.１", "ⓛocalhost",
]  # fmt: skip


@pytest.mark.parametrize("host", HERE)
def test_no_spelling_of_this_machine_reaches_it(server: Server, host: str) -> None:
    """With the machine's own resolver. Some forms are no address at all to it, and that is as good."""
    with pytest.raises(NotSent):
        post(f"http://{host}:{server.port}/")
    assert server.called == []


def test_unusual_url_syntax_cannot_reach_this_machine(server: Server) -> None:
    for url in (
        f"http://127.0.0.1:{server.port}#@tenant.invalid/",
        f"http://127.0.0.1:{server.port}?@tenant.invalid/",
        f"http://127.0.0.1:{server.port}\\@tenant.invalid/",
        f"http:/\\127.0.0.1:{server.port}/",
        f"http://127.0.0.1:{server.port}/@tenant.invalid",
        f"file://127.0.0.1:{server.port}/",
        f"ftp://127.0.0.1:{server.port}/",
        f"gopher://127.0.0.1:{server.port}/",
    ):
        with pytest.raises(NotSent):
            post(url)
    assert server.called == []


def test_a_name_that_leads_here_is_refused_before_anything_is_connected(server: Server) -> None:
    within, _ = answering([NEAR])
    with pytest.raises(NotSent, match="NotPublic"):
        post(f"http://{NAME}:{server.port}/", within)
    assert server.called == []


@pytest.mark.parametrize("answers", [[FAR, NEAR], [NEAR, FAR]])
def test_a_name_of_which_only_one_answer_leads_here_is_refused_too(server: Server, answers: list[str]) -> None:
    within, _ = answering(answers)
    with pytest.raises(NotSent, match="NotPublic"):
        post(f"http://{NAME}:{server.port}/", within)
    assert server.called == []


def test_name_is_resolved_once_and_the_checked_address_is_called(server: Server) -> None:
    """So a name that leads elsewhere a moment later has changed nothing, and is refused when it is asked again."""
    within, asked = answering([FAR], [NEAR])
    assert post(f"http://{NAME}:{server.port}/", within).status == 204
    assert (asked, server.called) == ([NAME], [FAR])
    with pytest.raises(NotSent, match="NotPublic"):
        post(f"http://{NAME}:{server.port}/", within)
    assert server.called == [FAR]


def test_the_request_still_names_its_host_by_name(server: Server) -> None:
    within, _ = answering([FAR])
    post(f"http://{NAME}:{server.port}/", within)
    assert f"Host: {NAME}".encode() in server.heads[0]


def test_tls_asks_for_the_host_by_its_name(tmp_path: object) -> None:
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def remember(_: object, name: str | None, __: object) -> int:
        named.append(name)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context.sni_callback = remember  # type: ignore[assignment]
    with socket.create_server((FAR, 0)) as listener:

        def shake_hands() -> None:
            connection, _ = listener.accept()
            with closing(connection), pytest.raises(ssl.SSLError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=shake_hands, daemon=True)
        thread.start()
        within, _ = answering([FAR])
        with pytest.raises(NotSent):
            post(f"https://{NAME}:{listener.getsockname()[1]}/", within)
        thread.join(20)
    assert named == [NAME]


def test_a_redirect_is_handed_back_and_not_followed(server: Server) -> None:
    server.answer = f"HTTP/1.1 302 X\r\nLocation: http://{NEAR}:{server.port}/\r\nContent-Length: 0\r\n\r\n".encode()
    within, _ = answering([FAR])
    assert post(f"http://{NAME}:{server.port}/", within).status == 302
    assert server.called == [FAR]


def test_next_address_of_a_name_is_used_when_one_refuses_connections(server: Server) -> None:
    within, asked = answering(["127.0.0.3", FAR])
    assert post(f"http://{NAME}:{server.port}/", within).status == 204
    assert (asked, server.called) == ([NAME], [FAR])


def test_a_name_without_an_address_is_not_connected_to() -> None:
    with pytest.raises(NotSent, match="ConnectError"):
        post(f"http://{NAME}/", EgressPolicy(is_public, lambda *_: []))


def test_the_addresses_of_the_configuration_are_trusted_in_prod_too(server: Server) -> None:
    """Both clients are built so: each gets as far as to ask the server here for TLS, which it does not speak."""
    here = f"https://{NEAR}:{server.port}"
    internal = build_internal(PROD | {"HANDLER_URL": here, "WHATSAPP_API_BASE_URL": here})
    person = Contact("15550002222", phone="15550002222")
    message = Message("text", "hello", "wamid.1", person, SENDER, "default", datetime.now(UTC))
    with pytest.raises(HandlerFault, match="its TLS, was not accepted"):
        internal.handler(HandlerCall("e" * 40, "corr_0001", 1, message))
    reply = leased(sender=SENDER, payload={"type": "text", "content": {"body": "hello"}, "to": "+15550002222"})
    with pytest.raises(ProviderUnavailable):
        internal.process_outbound.channels["meta"].send(reply, Echo(reply.key, 0, reply.correlation_id), "token")
    assert server.called == [NEAR, NEAR]


def test_trusted_address_can_lead_anywhere(server: Server) -> None:
    assert post(f"http://{NEAR}:{server.port}/", ANYWHERE).status == 204
    assert server.called == [NEAR]


def test_the_machines_own_resolver_gives_every_address_once() -> None:
    assert egress_policy.resolve("127.0.0.1", 80) == ["127.0.0.1"]
    with pytest.raises(socket.gaierror):
        egress_policy.resolve("nobody.invalid", 80)
