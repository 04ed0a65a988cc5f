"""pombo.client against a small server: what it sends, what it repeats and how long it waits, and its errors."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from pombo import client as module
from pombo.client import (
    REPEATED,
    Accepted,
    ApiError,
    Client,
    Decided,
    Health,
    NewMessage,
    NoAnswer,
    NotUnderstood,
    Refused,
    Retry,
)
from services.api.message_types import NewMessage as TypeOfApi
from services.api.problems import STATUS
from tests.support.http_server import RESET, SILENCE, ScriptedServer, scripted_server

KEY = "pombo_1_secret"
STORED = {"id": "a" * 40, "state": "pending", "shown": "pending", "correlation_id": "c" * 32}
ACCEPTED = (202, {}, STORED)
HELLO = NewMessage("+15550002222", "Hello")
AWAY = {"status": 503, "code": "UNAVAILABLE", "detail": "Away.", "title": "Service Unavailable"}
UNAVAILABLE = (503, {"Retry-After": "5"}, AWAY)
NOW = 1_800_000_000.0


@dataclass
class Time:
    """A clock that only sleeping moves."""

    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return 100 + sum(self.slept)

    def now(self) -> float:
        return NOW + sum(self.slept)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as made:
        yield made


@pytest.fixture
def clock() -> Time:
    return Time()


def a_client(server: ScriptedServer, clock: Time, **more: Any) -> Client:
    return Client(server.url, KEY, sleep=clock.sleep, monotonic=clock.monotonic, now=clock.now, **more)


@pytest.fixture
def client(server: ScriptedServer, clock: Time) -> Client:
    return a_client(server, clock)


# ---- repetitions


def test_send_is_repeated_with_the_same_key_and_body_until_it_is_accepted(
    server: ScriptedServer, client: Client, clock: Time
) -> None:
    server.will(UNAVAILABLE, RESET, (502, {}, b"<html>"), ACCEPTED)

    assert client.send(HELLO) == Accepted(**STORED)

    (key,) = set(server.keys())
    assert key is not None
    assert len(key) == 32
    assert [each.body for each in server.received] == [server.received[0].body] * 4
    assert clock.slept[0] == 5


def test_each_send_has_a_key_of_its_own_unless_one_is_given(server: ScriptedServer, client: Client) -> None:
    server.will(ACCEPTED)
    client.send(HELLO)
    client.send(HELLO)
    client.send(HELLO, idempotency_key="order-17")

    first, second, third = server.keys()
    assert first != second
    assert third == "order-17"


@pytest.mark.parametrize("status", sorted(REPEATED))
def test_answer_that_says_later_is_repeated(server: ScriptedServer, client: Client, clock: Time, status: int) -> None:
    server.will((status, {}, {}), ACCEPTED)
    assert client.send(HELLO).id == STORED["id"]
    assert 0.25 <= clock.slept[0] <= 0.5


def test_every_code_of_the_api_with_a_retry_after_is_repeated() -> None:
    assert {408, 429, 500, 502, 503, 504} == REPEATED
    assert {STATUS[code].value for code in ("RATE_LIMITED", "UNAVAILABLE", "UNEXPECTED")} <= REPEATED
    refusals = set(STATUS) - {"RATE_LIMITED", "UNAVAILABLE", "UNEXPECTED"}
    assert not {STATUS[code].value for code in refusals} & REPEATED


def test_wait_doubles_and_is_bounded(server: ScriptedServer, clock: Time) -> None:
    server.will((500, {}, {}))
    with pytest.raises(Refused):
        a_client(server, clock, attempts=8).send(HELLO)
    longest = [0.5, 1, 2, 4, 8, 8, 8]
    assert len(clock.slept) == len(longest)
    assert all(most / 2 <= slept <= most for slept, most in zip(clock.slept, longest, strict=True))


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("7", 7), (formatdate(NOW + 9, usegmt=True), 9), (formatdate(NOW - 9, usegmt=True), 0), ("0", 0)],
    ids=["seconds", "a date", "a past date", "none"],
)
def test_retry_after_is_honoured(
    server: ScriptedServer, client: Client, clock: Time, retry_after: str, seconds: float
) -> None:
    server.will((429, {"Retry-After": retry_after}, {}), ACCEPTED)
    client.send(HELLO)
    assert clock.slept == [seconds]


@pytest.mark.parametrize("retry_after", ["soon", "-1", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_unreadable_retry_after_is_ignored(
    server: ScriptedServer, client: Client, clock: Time, retry_after: str
) -> None:
    server.will((503, {"Retry-After": retry_after}, {}), ACCEPTED)
    client.send(HELLO)
    assert 0.25 <= clock.slept[0] <= 0.5


def test_retry_after_beyond_the_patience_ends_the_request_at_once(
    server: ScriptedServer, client: Client, clock: Time
) -> None:
    server.will((429, {"Retry-After": "61"}, {}))
    with pytest.raises(Refused) as caught:
        client.send(HELLO)
    assert (clock.slept, caught.value.retry_after, len(server.received)) == ([], 61, 1)


def test_attempts_and_patience_bound_a_request(server: ScriptedServer, clock: Time) -> None:
    server.will(UNAVAILABLE)
    with pytest.raises(Refused):
        a_client(server, clock).send(HELLO)
    assert len(server.received) == 6
    with pytest.raises(Refused):
        a_client(server, clock, patience=11, attempts=100).send(HELLO)
    assert len(server.received) == 6 + 3


def test_read_is_repeated_too(server: ScriptedServer, client: Client) -> None:
    server.will(RESET, (200, {}, {"status": "healthy", "queue_depth": 3, "later": 1}))
    assert client.health() == Health("healthy", queue_depth=3)
    assert server.keys() == [None, None]


# ---- refusals


def test_refusal_has_the_fields_of_its_problem_document(server: ScriptedServer, client: Client, clock: Time) -> None:
    document = {
        "status": 400,
        "code": "INVALID_REQUEST",
        "title": "Bad Request",
        "detail": "to is wrong.",
        "field": "to",
    }
    server.will((400, {}, document))
    with pytest.raises(Refused) as caught:
        client.send(HELLO, idempotency_key="k")
    found = caught.value
    assert {name: getattr(found, name) for name in document} == document
    assert (found.idempotency_key, str(found)) == ("k", "to is wrong. (INVALID_REQUEST 400)")
    assert (clock.slept, len(server.received)) == ([], 1)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"\xff", b'"text"'])
def test_refusal_of_another_server_has_its_status(server: ScriptedServer, client: Client, body: bytes) -> None:
    server.will((403, {}, body))
    with pytest.raises(Refused, match=r"^The API answered with status 403\. \(status 403\)$") as caught:
        client.message("x")
    assert (caught.value.code, caught.value.status) == ("", 403)


def test_redirect_is_not_followed(server: ScriptedServer, client: Client) -> None:
    server.will((301, {"Location": f"{server.url}/elsewhere"}, b""), ACCEPTED)
    with pytest.raises(Refused):
        client.send(HELLO)
    assert [each.path for each in server.received] == ["/v1/messages"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"id": 1}', b'{"results": 1}'])
def test_success_that_is_not_pombos_is_not_understood(server: ScriptedServer, client: Client, body: bytes) -> None:
    server.will((200, {}, body))
    with pytest.raises(NotUnderstood):
        client.send(HELLO)


def test_request_without_an_answer_gives_the_key_to_repeat_it_with(
    server: ScriptedServer, client: Client, clock: Time
) -> None:
    server.will(RESET)
    with pytest.raises(NoAnswer) as caught:
        client.send(HELLO)
    assert (caught.value.attempts, {caught.value.idempotency_key}) == (6, set(server.keys()))
    assert "attempts: 6" in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)
    assert len(clock.slept) == 5


def test_server_that_is_silent_fails_the_attempt_in_time(server: ScriptedServer, clock: Time) -> None:
    server.will(SILENCE)
    with pytest.raises(NoAnswer) as caught:
        a_client(server, clock, timeout=0.05, attempts=2).send(HELLO)
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert len(server.received) == 2


def test_answer_that_breaks_off_is_no_answer(server: ScriptedServer, client: Client) -> None:
    server.will((202, {"Content-Length": "500"}, STORED), ACCEPTED)
    assert client.send(HELLO).id == STORED["id"]
    assert len(set(server.keys())) == 1


def test_clock_and_bounds_are_real_unless_given() -> None:
    made = Client("https://api.example.com", KEY)
    assert (made.sleep, made.monotonic, made.now) == (time.sleep, time.monotonic, time.time)
    assert (made.timeout, made.attempts, made.patience) == (15, 6, 60)


def test_address_that_nobody_listens_at_is_no_answer(clock: Time) -> None:
    with scripted_server() as gone:
        pass
    with pytest.raises(NoAnswer):
        a_client(gone, clock).health()
    assert len(clock.slept) == 5


def test_certificate_that_is_not_trusted_is_not_tried_again(
    client: Client, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise module.SSLCertVerificationError("self-signed")

    monkeypatch.setattr("pombo.client.HTTPConnection.request", refuse)
    with pytest.raises(NoAnswer):
        client.health()
    assert clock.slept == []


def test_errors_have_one_base() -> None:
    assert all(issubclass(kind, ApiError) for kind in (Refused, NoAnswer, NotUnderstood))


# ---- batches


def test_batch_is_repeated_while_one_of_it_may_succeed_later(server: ScriptedServer, client: Client) -> None:
    faulty = {"status": 400, "code": "INVALID_REQUEST", "detail": "No.", "title": "Bad Request", "field": "to"}
    accepted = {"status": 202, **STORED}
    server.will((200, {}, {"results": [accepted, faulty, AWAY]}), (200, {}, {"results": [accepted, faulty, accepted]}))

    first, second, third = client.send_batch([HELLO] * 3, idempotency_key="monday")

    assert server.keys() == ["monday", "monday"]
    assert first == third == Accepted(**STORED)
    assert isinstance(second, Refused)
    assert (second.field, second.idempotency_key) == ("to", "monday:1")


def test_batch_of_which_one_stays_unavailable_reports_it(server: ScriptedServer, client: Client) -> None:
    server.will((200, {}, {"results": [{"status": 202, **STORED}, AWAY]}))
    first, second = client.send_batch([HELLO] * 2)
    assert isinstance(first, Accepted)
    assert isinstance(second, Refused)
    assert (second.code, second.idempotency_key) == ("UNAVAILABLE", f"{server.keys()[0]}:1")
    assert len(server.received) == 6


@pytest.mark.parametrize("results", [None, 1, [], [1], [{}], [{"status": "202"}], [{"status": 202}]])
def test_batch_without_a_result_for_each_is_not_understood(
    server: ScriptedServer, client: Client, results: Any
) -> None:
    server.will((200, {}, {"results": results}))
    with pytest.raises(NotUnderstood):
        client.send_batch([HELLO])


# ---- what is sent


def test_request_carries_the_key_and_the_message(server: ScriptedServer, client: Client) -> None:
    server.will(ACCEPTED)
    at = datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(hours=1)))
    retry = Retry(3, timedelta(seconds=15))
    client.send(NewMessage("+1555", "Olá", "100", send_at=at, retry=retry, reply_to="wamid.1", metadata={"a": 1}))

    (request,) = server.received
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body) == {
        "from": "100",
        "to": "+1555",
        "text": "Olá",
        "send_at": "2026-12-01T09:00:00+01:00",
        "retry": {"attempts": 3, "wait": "15s"},
        "reply_to": "wamid.1",
        "metadata": {"a": 1},
    }


def test_delay_is_a_text_or_a_length_of_time() -> None:
    assert NewMessage("+1", "x", delay="2h").as_json()["delay"] == "2h"
    assert NewMessage("+1", "x", delay=timedelta(minutes=1, milliseconds=1)).as_json()["delay"] == "61s"
    assert NewMessage("+1", "x", retry=Retry(2, "1m")).as_json()["retry"] == {"attempts": 2, "wait": "1m"}


def test_message_of_the_client_has_the_fields_of_the_api() -> None:
    assert {name.rstrip("_") for name in TypeOfApi.model_fields} == {
        name.rstrip("_") for name in NewMessage.__dataclass_fields__
    }


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        NewMessage("+1", "x", send_at=datetime(2026, 12, 1)).as_json()  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize("key", ["", "a b", "ä", "a\nb", "x" * 256])
def test_idempotency_key_that_no_header_can_hold_is_refused(server: ScriptedServer, client: Client, key: str) -> None:
    with pytest.raises(ValueError, match="Idempotency-Key"):
        client.send(HELLO, idempotency_key=key)
    with pytest.raises(ValueError, match="Idempotency-Key"):
        client.send_batch([HELLO], idempotency_key=key)
    assert server.received == []


def test_id_cannot_lead_to_another_route(server: ScriptedServer, client: Client) -> None:
    server.will((404, {}, {}))
    for call in (client.message, client.cancel, client.replay, lambda id: client.discard(id, "no")):
        with pytest.raises(Refused):
            call("../a?b#c")
    assert {each.path.split("/")[3] for each in server.received} == {"..%2Fa%3Fb%23c"}


def test_path_of_the_address_is_kept(clock: Time, server: ScriptedServer) -> None:
    server.will((200, {}, {"status": "healthy"}))
    server.url += "/pombo/"
    a_client(server, clock).health()
    assert server.received[0].path == "/pombo/health/whatsapp"


@pytest.mark.parametrize(
    "url",
    [
        *("", "api", "ftp://api", "https://", "https://a:b@api", "https://api?x=1", "https://api#x", "https://api:0"),
        *("https://api:x", "http://api.example.com", "http://127.0.0.1.example.com"),
    ],
)
def test_address_that_cannot_be_right_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Client(url, KEY)


@pytest.mark.parametrize("url", ["https://api.example.com", "http://localhost:18084", "http://[::1]:18084"])
def test_address_may_be_secure_or_of_this_machine(url: str) -> None:
    assert KEY not in repr(Client(url, KEY))


@pytest.mark.parametrize("key", ["", "a b", "line\n", "ä"])
def test_api_key_that_no_header_can_hold_is_refused_unseen(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as caught:
        Client("https://api.example.com", key)
    assert not key or key not in str(caught.value)


def test_lists_are_read_page_by_page(server: ScriptedServer, client: Client) -> None:
    sender = {"id": "1", "tenant": "t", "provider": "meta", "provider_id": "2", "display": "+1"}
    server.will(
        (200, {}, {"items": [sender], "next": "c&1"}),
        (200, {}, {"items": [], "next": "c2"}),
        (200, {}, {"items": [sender], "next": None}),
    )
    found = client.senders(tenant="t")
    assert server.received == [], "nothing is read before it is wanted"
    assert [each.provider_id for each in found] == ["2", "2"]
    assert [each.path.partition("?")[2] for each in server.received] == [
        "tenant=t&limit=100",
        "tenant=t&cursor=c%261&limit=100",
        "tenant=t&cursor=c2&limit=100",
    ]


def test_filters_of_dead_letters_are_parameters(server: ScriptedServer, client: Client) -> None:
    server.will((200, {}, {"items": [], "next": None}))
    since = datetime(2026, 12, 1, tzinfo=UTC)
    assert list(client.dead_letters(errors=["permanent", 131026], since=since, direction="outbound")) == []
    assert server.received[0].path == (
        "/v1/dead-letters?direction=outbound&since=2026-12-01T00%3A00%3A00%2B00%3A00"
        "&error=permanent&error=131026&limit=100"
    )


def test_decisions_say_what_is_wanted(server: ScriptedServer, client: Client) -> None:
    server.will((200, {}, {"id": "1", "outcome": "skipped", "dry_run": True, "why": "It is no dead letter."}))
    decided = client.replay("1", may_double=True, dry_run=True)
    client.discard("1", "a wrong number")
    assert decided == Decided("1", "skipped", True, "It is no dead letter.")
    assert [json.loads(each.body) for each in server.received] == [
        {"may_double": True, "dry_run": True},
        {"reason": "a wrong number", "dry_run": False},
    ]


def test_file_works_alone(tmp_path: Path) -> None:
    """Copied, without Pombo and without a library."""
    copy = tmp_path / "copied_client.py"
    copy.write_bytes(Path(module.__file__).read_bytes())
    program = (
        f"import sys; sys.path.append({str(tmp_path)!r})\nfrom copied_client import Client; Client('https://a', 'k')"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
