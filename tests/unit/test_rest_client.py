"""The REST client's patience: which failures it retries, how long, on which connections, and with which token."""

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shared.net.async_http import Answer, AsyncHttp, CallFailed, NoFreeConnection, NotConnected, TimedOut
from shared.net.google_token import TokenUnavailable
from shared.net.patience import FIRST_TRY, PATIENCE, OutOfPatience, ServicePace
from shared.net.rest_client import NoToken, Refused, RestClient, code_of
from tests.support.real_servers import free_port
from tests.support.rest_middleman import PRIVATE, STATUSES, Middleman


@pytest.fixture
def server() -> Iterator[Middleman]:
    with Middleman() as server:
        yield server


def calls(server: Middleman, count: int = 1, token: Any = None, longest: float = PATIENCE) -> list[Any]:
    """What so many calls after one another return or raise."""

    async def call() -> list[Any]:
        client = RestClient("unused.example", server.address, token or NoToken(), 4)
        results: list[Any] = []
        for _ in range(count):
            try:
                results.append(await client.call(client.post("/v1/x"), b"{}", client.patience(longest)))
            except (OutOfPatience, Refused, CallFailed) as error:
                results.append(error)
        client.close()
        await asyncio.sleep(0.01)
        return results

    return asyncio.run(call())


def test_answer_is_returned(server: Middleman) -> None:
    assert calls(server) == [b"{}"]
    (call,) = server.calls
    assert (call.verb, call.path, call.body) == ("POST", "/v1/x", b"{}")


def test_request_names_its_json_and_its_length() -> None:
    sent: list[bytes] = []
    body = b'{"a":"b"}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(len(body))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async def call() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            client = RestClient("unused.example", address, NoToken(b"Authorization: Bearer t\r\n"), 1)
            await client.call(client.post("/v1/x"), body, client.patience())
            client.close()
            await asyncio.sleep(0.05)
            assert sent[0].decode().split("\r\n") == [
                "POST /v1/x HTTP/1.1",
                f"Host: {address}",
                "Content-Type: application/json",
                "Authorization: Bearer t",
                "Content-Length: 9",
                "",
                "",
            ]

    asyncio.run(call())


@pytest.mark.parametrize("failures", [1, 7, 100])
def test_pause_between_two_tries_is_half_a_second_at_most(failures: int) -> None:
    patience = ServicePace().patience(1000.0)
    patience._pauses = failures
    assert 0 < patience.next_pause(ValueError()) <= 0.5


PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("code", PASSING)
def test_passing_error_is_retried(server: Middleman, code: str) -> None:
    server.errors += [code, code]
    assert calls(server) == [b"{}"]
    assert len(server.calls) == 3


@pytest.mark.parametrize("code", sorted(STATUSES.keys() - {*PASSING}))
def test_refusal_is_raised_at_once_without_what_the_server_says(server: Middleman, code: str) -> None:
    server.always = code
    (refused,) = calls(server)
    assert (refused.status, refused.code, str(refused)) == (STATUSES[code], code, code)
    assert len(server.calls) == 1
    assert PRIVATE not in repr(refused)


def test_service_that_is_unavailable_ends_after_the_patience(server: Middleman) -> None:
    server.always = "UNAVAILABLE"
    began = time.monotonic()
    (error,) = calls(server, longest=10)
    assert isinstance(error, OutOfPatience)
    assert str(error.__cause__) == "UNAVAILABLE"
    assert PATIENCE - 0.6 < time.monotonic() - began < PATIENCE + 0.5
    assert len(server.calls) > 5


def test_aborted_calls_are_retried_for_longer_because_the_service_answers(server: Middleman) -> None:
    server.always = "ABORTED"
    began = time.monotonic()
    (error,) = calls(server, longest=3)
    assert isinstance(error, OutOfPatience)
    assert PATIENCE + 0.2 < time.monotonic() - began < 3.5


@pytest.mark.parametrize("address", ["[::1]:9083", "127.0.0.1:9083", "localhost:9083"])
def test_host_header_names_the_address_of_the_emulator(address: str) -> None:
    client = RestClient("unused.example", address, NoToken(), 4)
    assert client.get("/v1/x") == b"GET /v1/x HTTP/1.1\r\nHost: %b\r\n" % address.encode()


def test_real_host_is_called_over_tls_that_checks_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int, ssl.SSLContext]] = []

    async def refused(_: object, host: str, port: int, *, ssl: ssl.SSLContext) -> None:
        opened.append((host, port, ssl))
        raise ConnectionRefusedError

    async def call() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refused)
        client = RestClient("a.example", None, NoToken(), 4)
        with pytest.raises(OutOfPatience):
            await client.call(client.get("/"), b"", client.patience(0.1))

    asyncio.run(call())
    host, port, context = opened[0]
    assert (host, port, context.check_hostname, context.verify_mode) == ("a.example", 443, True, ssl.CERT_REQUIRED)


def test_port_without_a_server_is_out_of_patience() -> None:
    async def call() -> None:
        client = RestClient("unused.example", f"127.0.0.1:{free_port()}", NoToken(), 4)
        with pytest.raises(OutOfPatience):
            await client.call(client.get("/"), b"", client.patience(0.3))

    asyncio.run(call())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"error":7}', b'{"error":{"status":"15550002222"}}'])
def test_error_without_a_code_of_google_has_none(body: bytes) -> None:
    assert code_of(body) == ""


def test_code_of_a_streaming_call_is_in_a_list() -> None:
    assert code_of(json.dumps([{"error": {"status": "NOT_FOUND"}}]).encode()) == "NOT_FOUND"


# ---- timeouts and connections


class Http:
    """Stands for the connections: notes the timeouts, and answers, or fails, as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: Exception | int) -> None:
        """`results`: what the first calls raise, or the status of their answers. The others are answered with 200."""
        self.timeouts: list[float] = []
        self.left = 0
        self._results = [*results]
        monkeypatch.setattr(AsyncHttp, "call", self._call)
        monkeypatch.setattr(AsyncHttp, "leave_idle", self._leave_idle)

    async def _call(self, _: bytes, seconds: float) -> Answer:
        self.timeouts.append(seconds)
        result = self._results.pop(0) if self._results else 200
        if isinstance(result, Exception):
            raise result
        return Answer(result, b"")

    def _leave_idle(self) -> None:
        self.left += 1


def called(count: int = 1, quick: bool = True) -> None:
    async def call() -> None:
        client = RestClient("a.example", None, NoToken(), 1)
        for _ in range(count):
            await client.call(b"", b"", client.patience(), quick)

    asyncio.run(call())


@pytest.mark.parametrize("status", [408, 429, 499, 500, 502, 503, 504])
def test_status_that_may_pass_is_retried_without_a_code_of_google(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch, status)
    called()
    assert len(http.timeouts) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 501])
def test_other_status_without_a_code_of_google_is_a_refusal(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch, status)
    with pytest.raises(Refused, match=f"HTTP {status}"):
        called()
    assert len(http.timeouts) == 1


def test_first_call_has_all_of_the_patience_and_a_later_quick_one_a_short_try(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch)
    called(2)
    assert FIRST_TRY + 1 < http.timeouts[0] <= PATIENCE
    assert http.timeouts[1] == FIRST_TRY


def test_call_that_is_not_quick_has_all_of_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch)
    called(2, quick=False)
    assert http.timeouts[1] > FIRST_TRY + 1


def test_try_after_a_timeout_has_the_rest_and_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch, 200, TimedOut())
    called(2)
    assert http.timeouts[1] == FIRST_TRY
    assert http.timeouts[2] > FIRST_TRY
    assert http.left == 1


def test_timeout_keeps_the_idle_connections_if_another_call_was_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    http, answered = Http(monkeypatch), asyncio.Event()

    async def late_then_quick(_http: AsyncHttp, request: bytes, _seconds: float) -> Answer:
        if request.startswith(b"late") and not answered.is_set():
            await answered.wait()
            raise TimedOut
        return Answer(200, b"")

    async def call() -> None:
        client = RestClient("a.example", None, NoToken(), 2)
        late = asyncio.ensure_future(client.call(b"late", b"", client.patience()))
        await asyncio.sleep(0.01)
        await client.call(b"quick", b"", client.patience())
        answered.set()
        assert await late == b""

    monkeypatch.setattr(AsyncHttp, "call", late_then_quick)
    asyncio.run(call())
    assert http.left == 0


def test_connection_that_broke_leaves_the_other_idle_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch, CallFailed("The server hung up."))
    called()
    assert (len(http.timeouts), http.left) == (2, 1)


def test_connection_that_could_not_be_opened_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch, NotConnected("No connection."))
    called()
    assert (len(http.timeouts), http.left) == (2, 0)


def test_wait_for_a_connection_says_nothing_about_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(monkeypatch, 200, NoFreeConnection("All connections are in use."))
    called(2)
    assert http.timeouts[1:] == [FIRST_TRY, FIRST_TRY], "it still counts as quick"
    assert http.left == 0


# ---- the token


class Token:
    """Tokens in turn; None is one that cannot be had."""

    def __init__(self, *texts: str | None) -> None:
        self._texts = [*texts]
        self.header: bytes | None = None
        self.renewals: list[bytes | None] = []

    async def renewed(self, used: bytes | None, seconds: float) -> bytes:
        assert 0 < seconds <= PATIENCE
        self.renewals.append(used)
        text = self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]
        if text is None:
            raise TokenUnavailable("No access token (OSError).")
        self.header = f"Authorization: Bearer {text}\r\n".encode()
        return self.header


def test_each_call_carries_the_token(server: Middleman) -> None:
    token = Token("one")
    assert calls(server, 2, token) == [b"{}"] * 2
    assert [call.authorization for call in server.calls] == ["Bearer one"] * 2
    assert token.renewals == [None]


def test_refused_token_is_renewed_once(server: Middleman) -> None:
    server.errors += ["UNAUTHENTICATED"]
    token = Token("one", "two")
    assert calls(server, 1, token) == [b"{}"]
    assert [call.authorization for call in server.calls] == ["Bearer one", "Bearer two"]
    assert token.renewals == [None, b"Authorization: Bearer one\r\n"]


@pytest.mark.parametrize("then", ["one", "two"])
def test_token_that_stays_refused_is_a_refusal(server: Middleman, then: str) -> None:
    server.always = "UNAUTHENTICATED"
    (refused,) = calls(server, 1, Token("one", then))
    assert refused.code == "UNAUTHENTICATED"
    assert len(server.calls) == (1 if then == "one" else 2)


def test_missing_token_is_retried_and_then_out_of_patience(server: Middleman) -> None:
    assert calls(server, 1, Token(None, None, "one")) == [b"{}"]
    (error,) = calls(server, 1, Token(None), longest=0.3)
    assert isinstance(error, OutOfPatience)
    assert str(error.__cause__) == "No access token (OSError)."
    assert len(server.calls) == 1


def test_closed_client_makes_no_call(server: Middleman) -> None:
    async def call() -> None:
        client = RestClient("unused.example", server.address, NoToken(), 4)
        client.close()
        with pytest.raises(CallFailed, match="closed"):
            await client.call(client.get("/"), b"", client.patience())

    asyncio.run(call())
    assert server.calls == []
