"""The private service over HTTP: the rows of the tables with a real store, a provider, and every refusal."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import parts
import pytest
from flask.testing import FlaskClient
from parts import NOW, PERSON, STRANGER, TOKEN, InternalParts, a_reply, an_event, doubtful, ended, error, held, text
from werkzeug.test import TestResponse

from services.internal.main import create_app
from shared.domain.delivery import Answer
from shared.domain.errors import QueueUnavailable, StoreUnavailable
from shared.domain.guards import Block
from shared.domain.identity import Echo, outbound_key
from shared.domain.record import Delivery, Kind, ReceiptKind, State, Task
from shared.domain.tasks import task_body
from shared.handlers import Drop, Message

PLUS = timedelta(seconds=1)
T0, OLDER = 0, -1
LAST = 8
FINAL = (State.DONE, State.DROPPED, State.DEAD)


@dataclass
class Service:
    """The app on tapped ports, with one handler and one provider that do what a test says."""

    client: FlaskClient
    internal: InternalParts
    handler: "Handler"

    def put(self, record: Delivery) -> Delivery:
        self.internal.store.port.create(record)
        return record

    def get(self, record: Delivery) -> Delivery:
        found = self.internal.store.port.get(record.key)
        assert found is not None
        return found

    def post(self, task: Task, **headers: str) -> TestResponse:
        return self.client.post(
            f"/internal/process_{task.kind}", json=task_body(task), headers={"X-Internal-Token": TOKEN, **headers}
        )

    def process(self, task: Task, **headers: str) -> tuple[int, Any]:
        answer = self.post(task, **headers)
        return answer.status_code, answer.json

    def arrive(self, record: Delivery, age: int = T0, hop: int = 0) -> tuple[int, Any]:
        """A task for this record comes, of its generation or of one before."""
        return self.process(replace(Task.of(record), generation=record.generation + age, hop=hop))

    @property
    def made(self) -> list[tuple[Task, datetime | None]]:
        return self.internal.queue.asked("ensure")

    def hopped(self, record: Delivery) -> bool:
        """Whether the running task made its next one, and nothing else."""
        return [task for task, _ in self.made] == [replace(Task.of(record), hop=1)]


@dataclass
class Handler:
    """The team's code: notes whom it was called for."""

    answer: Callable[[Message], Any] = lambda _: None
    called: list[Message] = field(default_factory=list)

    def __call__(self, message: Message) -> Any:
        self.called.append(message)
        return self.answer(message)


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[parts.Provider]:
    with parts.a_provider() as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: parts.Provider) -> parts.Provider:
    shared_provider.answers.clear()
    shared_provider.requests.clear()
    shared_provider.headers.clear()
    shared_provider.during = lambda _: None
    return shared_provider


Make = Callable[..., Service]


@pytest.fixture
def make(tmp_path: Path, provider: parts.Provider) -> Iterator[Make]:
    made: list[InternalParts] = []

    def make(**environ: str) -> Service:
        handler = Handler()
        given = {"WHATSAPP_API_BASE_URL": provider.url, **environ}
        internal = parts.internal_parts(tmp_path, handler, queue=parts.NoQueue(), **given)
        made.append(internal)
        return Service(create_app(internal.parts).test_client(), internal, handler)

    with parts.logged():
        yield make
    for internal in made:
        internal.parts.process_outbound.channel.close()
        internal.store.port.close()


@pytest.fixture
def service(make: Make) -> Service:
    return make()


def said(capfd: pytest.CaptureFixture[str], event: str) -> dict[str, Any]:
    """The one line of this event."""
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == event]
    return line


# ---- who may ask, and for what

ROUTES = ["process_inbound", "process_outbound", "sweep"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x"])
def test_without_the_internal_token_nothing_is_read(service: Service, route: str, token: str | None) -> None:
    headers = {} if token is None else {"X-Internal-Token": token}
    answer = service.client.post(f"/internal/{route}", data=b"c4n4ry", headers=headers)
    assert (answer.status_code, answer.json) == (403, {"error": "forbidden"})
    assert service.internal.store.calls == []


@pytest.mark.parametrize("route", ["process_inbound", "process_outbound"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"c4n4ry"', b"\xff", b'{"v":1}', b'{"c4n4ry":1}', b"[" * 90_000, b"9" * 9000]
)
def test_a_body_that_is_no_task_is_refused_and_never_quoted(
    service: Service, route: str, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = service.client.post(f"/internal/{route}", data=body, headers={"X-Internal-Token": TOKEN})
    assert answer.status_code == 400
    assert answer.json["error"] == "task_invalid"
    assert "c4n4ry" not in answer.text
    assert service.internal.store.calls == []
    assert "c4n4ry" not in json.dumps(said(capfd, "task_refused"))


def test_a_body_larger_than_any_task_is_refused(service: Service) -> None:
    body = b" " * (100 * 1024 + 1)
    answer = service.client.post("/internal/process_inbound", data=body, headers={"X-Internal-Token": TOKEN})
    assert answer.status_code == 413


@pytest.mark.parametrize("kind", list(Kind))
def test_a_task_of_a_newer_version_is_left_to_who_knows_it(service: Service, kind: Kind) -> None:
    body = {**task_body(Task.of(an_event())), "v": 2}
    answer = service.client.post(f"/internal/process_{kind}", json=body, headers={"X-Internal-Token": TOKEN})
    assert (answer.status_code, answer.json) == (409, {"state": "unknown"})


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
def test_a_record_of_a_state_that_a_newer_version_wrote_is_left_alone(
    service: Service, record: Delivery, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service.put(record)
    db = sqlite3.connect(tmp_path / "pombo.sqlite")
    with db:
        db.execute("UPDATE records SET body = json_set(body, '$.state', 'resting')")
    db.close()
    assert service.arrive(record) == (409, {"state": "unknown"})
    assert said(capfd, "state_unknown")["severity"] == "WARNING"


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(StoreUnavailable(), 503, "store_unavailable"), (ValueError("c4n4ry"), 500, "unexpected")],
    ids=["away", "a bug"],
)
def test_a_store_that_fails_before_the_lease_is_answered_without_a_trace_of_it(
    service: Service, record: Delivery, error: Exception, status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    service.put(record)
    service.internal.store.before = lambda *_: error
    assert service.arrive(record) == (status, {"error": code})
    assert service.get(record) == record
    line = said(capfd, "unexpected_error")
    is_outage = status == 503
    assert line["severity"] == ("WARNING" if is_outage else "ERROR"), "an outage is no fault of the code's"
    assert ("stack_trace" in line) is not is_outage
    assert line["correlation_id"] == record.correlation_id
    assert "c4n4ry" not in json.dumps(line)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
@pytest.mark.parametrize("route", ROUTES)
def test_another_method_is_not_allowed(service: Service, route: str, method: str) -> None:
    answer = service.client.open(f"/internal/{route}", method=method)
    assert (answer.status_code, answer.json) == (405, {"error": "method_not_allowed"})


@pytest.mark.parametrize("path", ["/", "/internal", "/webhooks/whatsapp", "/internal/process_inbound/"])
def test_there_is_nothing_at_any_other_path(service: Service, path: str) -> None:
    answer = service.client.post(path, headers={"X-Internal-Token": TOKEN})
    assert (answer.status_code, answer.json) == (404, {"error": "not_found"})


# ---- health


def test_the_process_lives_until_all_its_handlers_hang(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (service.client.get("/livez").status_code, service.client.get("/livez").json) == (200, {"status": "ok"})
    monkeypatch.setattr(service.internal.parts.handler, "_hung", 2)
    assert (service.client.get("/livez").status_code, service.client.get("/livez").json) == (
        503,
        {"status": "exhausted"},
    )


@pytest.mark.parametrize("gone", ["store", "queue"])
def test_it_is_ready_while_store_and_queue_answer(service: Service, gone: str) -> None:
    assert service.client.get("/readyz").json["services"] == {"store": "connected", "queue": "connected"}
    getattr(service.internal, gone).before = lambda *_: StoreUnavailable()
    for path, status in (("/readyz", 503), ("/health", 200)):
        answer = service.client.get(path)
        assert answer.status_code == status
        assert answer.json["status"] == "degraded"
        assert answer.json["services"][gone] == "unavailable"
        assert answer.json["timestamp"].endswith("Z")


# ---- process_inbound: what a task finds


def test_an_event_that_is_gone(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    assert service.arrive(an_event()) == (200, {"state": "gone"})
    assert said(capfd, "task_gone")["inbound_event_id"] == an_event().key


@pytest.mark.parametrize("state", [State.DROPPED, State.DEAD])
def test_an_event_that_has_ended(service: Service, state: State) -> None:
    record = service.put(an_event(**ended(state)))
    assert service.arrive(record) == (200, {"state": state})
    assert (service.handler.called, service.made) == ([], [])


def test_an_event_that_is_done_makes_sure_of_its_replies_and_asks_nobody_twice(service: Service) -> None:
    record = service.put(an_event(**ended(State.DONE, plan_size=3)))
    assert service.arrive(record) == (200, {"state": "done"})
    assert [task.key for task, _ in service.made] == [outbound_key(record.key, index) for index in range(3)]
    assert service.handler.called == []


def test_one_reply_that_cannot_be_queued_does_not_stop_the_others_and_is_answered_503(service: Service) -> None:
    record = service.put(an_event(**ended(State.DONE, plan_size=3)))
    poisoned = outbound_key(record.key, 1)
    service.internal.queue.before = lambda _, task, *__: QueueUnavailable() if task.key == poisoned else None
    assert service.arrive(record) == (503, {"state": "done"})
    assert len(service.made) == 3


def test_an_event_that_another_attempt_holds(service: Service) -> None:
    record = service.put(an_event(**held(10)))
    assert service.arrive(record) == (409, {"state": "leased"})
    assert service.get(record) == record


@pytest.mark.parametrize("fields", [{"attempt": LAST}, held(-1, attempt=LAST)], ids=["pending", "leased expired"])
def test_an_event_without_attempts_left_is_dead(
    service: Service, fields: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event(**fields))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert service.get(record).reason == "attempts"
    assert said(capfd, "dead_lettered")["severity"] == "ERROR"


def test_an_older_task_of_an_event_that_is_not_due_makes_sure_of_the_current_one(service: Service) -> None:
    record = service.put(an_event(generation=2, due_at=NOW + PLUS))
    assert service.arrive(record, OLDER) == (200, {"state": "waiting"})
    assert service.made == [(Task.of(record), record.due_at)]
    assert service.handler.called == []


def test_an_older_task_of_an_event_that_is_due_does_the_work(service: Service) -> None:
    record = service.put(an_event(generation=2, due_at=NOW))
    assert service.arrive(record, OLDER) == (200, {"state": "done"})
    assert len(service.handler.called) == 1


# ---- process_inbound: what the handler says


def test_the_handler_is_given_the_message(service: Service) -> None:
    service.arrive(service.put(an_event()))
    (message,) = service.handler.called
    assert (message.kind, message.text, message.id, message.tenant) == ("text", "hello 1", "wamid.1", "default")
    assert (message.contact.id, message.sender) == (PERSON, parts.SENDER)


def test_the_end_and_the_replies_are_one_commit_and_then_the_tasks_are_made(service: Service) -> None:
    record = service.put(an_event())
    service.handler.answer = lambda _: ["one", "two"]
    service.internal.store.calls.clear()
    assert service.arrive(record) == (200, {"state": "done"})
    assert [name for name, *_ in service.internal.store.calls] == ["change", "change"]
    event, *replies = service.internal.store.port.by_correlation(record.correlation_id)
    assert (event.state, event.plan_size, event.attempt, event.finished_at) == (State.DONE, 2, 1, NOW)
    assert [(reply.state, reply.generation, reply.attempt) for reply in replies] == [(State.PENDING, 0, 0)] * 2
    assert [reply.payload for reply in replies] == [
        {"type": "text", "content": {"body": body}, "reply_to": None, "to": f"+{PERSON}"} for body in ("one", "two")
    ]
    assert [reply.after for reply in replies] == [None, replies[0].key]
    assert service.made == [(Task.of(replies[0]), None), (Task.of(replies[1]), NOW + PLUS)]


def test_an_expired_lease_is_taken_over(service: Service) -> None:
    record = service.put(an_event(**held(-1)))
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.get(record).attempt == 2


def test_a_plan_whose_tasks_could_not_be_made_is_answered_503_and_made_by_the_redelivery(service: Service) -> None:
    record = service.put(an_event())
    service.handler.answer = lambda _: "one"
    service.internal.queue.before = lambda *_: QueueUnavailable()
    assert service.arrive(record) == (503, {"state": "done"})
    service.internal.queue.before = lambda *_: None
    assert service.arrive(record) == (200, {"state": "done"})
    assert len(service.handler.called) == 1
    assert service.made[-1][0].key == outbound_key(record.key, 0)


def test_a_handler_that_drops(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    def drop(_: Message) -> None:
        raise Drop("c4n4ry")

    record = service.put(an_event())
    service.handler.answer = drop
    assert service.arrive(record) == (200, {"state": "dropped"})
    assert service.get(record).reason == "c4n4ry"
    assert "c4n4ry" not in capfd.readouterr().out


def failing(_: Message) -> None:
    raise LookupError("c4n4ry")


@pytest.mark.parametrize(
    "answer", [failing, lambda _: 5, lambda _: ["x"] * 31], ids=["raises", "no answer", "too many"]
)
def test_a_handler_that_fails_is_asked_again_later(
    service: Service, answer: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event())
    service.handler.answer = answer
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.state, after.generation, after.attempt) == (State.PENDING, 1, 1)
    assert after.due_at == NOW + timedelta(seconds=10)
    assert service.made == [(Task.of(after), after.due_at)]
    assert after.last_error
    assert "c4n4ry" not in capfd.readouterr().out


def test_a_handler_that_overruns_is_asked_again_later(make: Make) -> None:
    service = make(HANDLER_TIMEOUT="1", TIME_SCALE="20")
    released = threading.Event()
    record = service.put(an_event())
    service.handler.answer = lambda _: released.wait(30)
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    assert "longer than" in str(service.get(record).last_error)
    released.set()


def test_a_handler_that_fails_at_its_last_attempt(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    record = service.put(an_event(attempt=LAST - 1))
    service.handler.answer = failing
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, service.made) == ("error", [])
    said_all = capfd.readouterr().out
    assert {"inbound_failed", "dead_lettered"} <= set(parts.events(said_all))
    assert "c4n4ry" not in said_all


NOT_FOR_IT = {
    "an account change": {"field": "account_update", "value": {"event": "X"}},
    "a kind that it does not handle": {"field": "messages", "item": text("wamid.1") | {"type": "reaction"}},
}


@pytest.mark.parametrize("payload", NOT_FOR_IT.values(), ids=NOT_FOR_IT)
def test_what_the_handler_is_not_for_ends_without_it(service: Service, payload: dict[str, Any]) -> None:
    record = service.put(an_event(payload={**payload, "contact": {}, "phone_number_id": parts.SENDER}))
    assert service.arrive(record) == (200, {"state": "done"})
    assert (service.handler.called, service.get(record).plan_size) == ([], 0)


def test_an_item_that_still_makes_no_sense_is_dead_again(service: Service) -> None:
    record = service.put(an_event(payload={"field": "messages", "unparsable": {"item": {"id": 5}}}))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert service.get(record).reason == "unparsable"


def test_a_sender_that_is_still_nobodys_is_dropped_again(service: Service) -> None:
    record = service.put(an_event(tenant="", sender=STRANGER))
    assert service.arrive(record) == (200, {"state": "dropped"})
    assert service.get(record).reason == "unknown_sender"
    assert service.handler.called == []


def test_a_shutdown_before_the_handler_gives_the_attempt_back(service: Service) -> None:
    record = service.put(an_event(attempt=2))
    service.internal.parts.shutdown.begin()
    assert service.arrive(record) == (409, {"state": "pending"})
    after = service.get(record)
    assert (after.state, after.attempt, after.generation, after.token) == (State.PENDING, 2, 0, None)
    assert service.handler.called == []


def test_a_shutdown_while_the_handler_works_gives_the_attempt_back(service: Service) -> None:
    released = threading.Event()

    def work(_: Message) -> None:
        service.internal.parts.shutdown.begin()
        released.wait(30)

    record = service.put(an_event())
    service.handler.answer = work
    assert service.arrive(record) == (409, {"state": "pending"})
    assert service.get(record).attempt == 0
    released.set()


def taken_over(service: Service, record: Delivery, **changes: Any) -> None:
    """Another attempt writes, while this one is at work."""
    now = service.get(record)
    service.internal.store.port.change(record.key, lambda _: parts.step(replace(now, **changes)))


@pytest.mark.parametrize(
    ("record", "state"), [(an_event(), "leased"), (a_reply(), "leased")], ids=["the handler", "the send"]
)
def test_an_attempt_whose_lease_was_lost_writes_nothing(
    service: Service, provider: parts.Provider, record: Delivery, state: str, capfd: pytest.CaptureFixture[str]
) -> None:
    service.put(record)

    def lose(*_: Any) -> str:
        taken_over(service, record, token="another", lease_until=NOW + PLUS)
        return "too late"

    service.handler.answer = lose
    provider.during = lose
    assert service.arrive(record) == (409, {"state": state})
    assert service.get(record).token == "another"
    assert len(service.internal.store.port.by_correlation(record.correlation_id)) == 1
    assert service.made == []
    assert said(capfd, "lease_lost")["severity"] == "WARNING"


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
def test_an_end_that_was_written_and_not_reported_is_recognised(service: Service, record: Delivery) -> None:
    """The store says that it is away once the write is done; asked again, it shows our own token."""
    service.put(record)
    changed: list[str] = []

    def unreported(name: str, *_: Any) -> Exception | None:
        changed.append(name)
        return StoreUnavailable() if changed.count("change") == 2 and name == "change" else None

    service.internal.store.after = unreported
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.get(record).state is State.DONE
    assert changed.count("change") == 3


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
def test_a_store_that_stays_away_after_the_work_is_answered_503_and_the_lease_runs_out(
    service: Service, record: Delivery
) -> None:
    service.put(record)
    seen: list[str] = []

    def away(name: str, *_: Any) -> Exception | None:
        seen.append(name)
        return StoreUnavailable() if name == "change" and seen.count("change") > 1 else None

    service.internal.store.before = away
    assert service.arrive(record) == (503, {"error": "store_unavailable"})
    assert service.get(record).state is State.LEASED
    assert service.internal.clock.seconds <= 90


# ---- process_outbound: what a task finds


def test_a_message_that_is_gone(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    assert service.arrive(a_reply()) == (200, {"state": "gone"})
    assert said(capfd, "task_gone")["delivery"] == a_reply().key


@pytest.mark.parametrize("state", FINAL)
def test_a_message_that_has_ended(service: Service, provider: parts.Provider, state: State) -> None:
    record = service.put(a_reply(**ended(state)))
    assert service.arrive(record) == (200, {"state": state})
    assert (provider.requests, service.made) == ([], [])


def test_a_message_that_another_attempt_holds(service: Service) -> None:
    record = service.put(a_reply(**held(10)))
    assert service.arrive(record) == (409, {"state": "leased"})


def note(service: Service, record: Delivery, kind: ReceiptKind = ReceiptKind.DELIVERED) -> None:
    receipt = parts.a_receipt("wamid.receipt", kind)
    assert service.internal.store.port.note_receipt(Echo(record.key, record.round, record.correlation_id), receipt)


@pytest.mark.parametrize("kind", list(ReceiptKind))
@pytest.mark.parametrize(
    "fields", [{}, doubtful(100), doubtful(-1), held(-1)], ids=["pending", "in_doubt", "past it", "leased expired"]
)
def test_a_receipt_of_its_round_proves_that_it_was_sent(
    service: Service, provider: parts.Provider, fields: dict[str, Any], kind: ReceiptKind
) -> None:
    record = service.put(a_reply(**fields))
    note(service, record, kind)
    assert service.arrive(record) == (200, {"state": "done"})
    assert (provider.requests, service.get(record).state) == ([], State.DONE)


@pytest.mark.parametrize("age", [T0, OLDER])
def test_an_expired_lease_is_a_doubt(service: Service, provider: parts.Provider, age: int) -> None:
    record = service.put(a_reply(generation=1, **held(-1)))
    assert service.arrive(record, age) == (200, {"state": "in_doubt"})
    after = service.get(record)
    assert (after.state, after.doubts, after.doubt_until) == (State.IN_DOUBT, 1, NOW + timedelta(seconds=300))
    assert provider.requests == []
    if age == T0:
        assert service.made == [(replace(Task.of(record), hop=1), NOW + timedelta(seconds=15))]
    else:
        assert service.made == [(Task.of(after), after.due_at)]


def test_a_doubt_waits_by_hops_and_never_past_its_window(service: Service) -> None:
    record = service.put(a_reply(**doubtful(20)))
    before = service.get(record)
    assert service.arrive(record, hop=3) == (200, {"state": "in_doubt"})
    assert service.made == [(replace(Task.of(record), hop=4), NOW + timedelta(seconds=20))]
    assert service.get(record) == before


HOPELESS = {
    "resent once": ({}, {"doubts": 2}),
    "no attempts left": ({}, {"attempt": LAST}),
    "too old": ({}, {"give_up_at": NOW}),
    "by policy": ({"IN_DOUBT_POLICY": "hold"}, {}),
}


@pytest.mark.parametrize("why", HOPELESS)
def test_a_doubt_that_cannot_be_resolved_is_dead(make: Make, provider: parts.Provider, why: str) -> None:
    environ, fields = HOPELESS[why]
    service = make(**environ)
    record = service.put(a_reply(**doubtful(-1, **fields)))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, provider.requests) == ("in_doubt", [])


def test_a_doubt_past_its_window_is_resent_once(service: Service, provider: parts.Provider) -> None:
    record = service.put(a_reply(**doubtful(-1)))
    assert service.arrive(record) == (200, {"state": "done"})
    assert len(provider.requests) == 1
    assert (service.get(record).attempt, service.get(record).doubts) == (2, 1)


@pytest.mark.parametrize(
    ("fields", "reason"), [({"give_up_at": NOW}, "waited"), ({"attempt": LAST}, "attempts")], ids=["waited", "attempts"]
)
def test_a_message_that_may_not_be_tried_any_more_is_dead(
    service: Service, provider: parts.Provider, fields: dict[str, Any], reason: str
) -> None:
    record = service.put(a_reply(**fields))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, provider.requests) == (reason, [])


def test_an_older_task_of_a_message_that_is_not_due_makes_sure_of_the_current_one(service: Service) -> None:
    record = service.put(a_reply(generation=1, due_at=NOW + PLUS))
    assert service.arrive(record, OLDER) == (200, {"state": "waiting"})
    assert service.made == [(Task.of(record), record.due_at)]


def blocked(service: Service) -> None:
    service.internal.store.port.mark_block(
        "default", parts.SENDER, Block(NOW + timedelta(hours=1), timedelta(hours=1), 131031)
    )


def refused_credential(service: Service) -> None:
    fingerprint = service.internal.parts.process_outbound.channel.fingerprint(parts.SENDER)
    service.internal.store.port.mark_credential("default", fingerprint)


def unfinished_predecessor(service: Service) -> None:
    service.put(a_reply(2))


GUARDS: dict[str, tuple[Callable[[Service], None], str | None, float]] = {
    "blocked": (blocked, None, 600),
    "WHATSAPP_REAUTH_REQUIRED": (refused_credential, None, 600),
    "predecessor": (unfinished_predecessor, a_reply(2).key, 1),
}


@pytest.mark.parametrize("why", GUARDS)
@pytest.mark.parametrize("age", [T0, OLDER])
@pytest.mark.parametrize("fields", [{}, doubtful(-1)], ids=["pending", "in_doubt"])
def test_a_guard_that_is_false_for_now_makes_it_wait_and_writes_nothing(
    service: Service, provider: parts.Provider, why: str, age: int, fields: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    forbid, after, seconds = GUARDS[why]
    forbid(service)
    record = service.put(a_reply(after=after, generation=1, due_at=NOW, **fields))
    word = "in_doubt" if fields else "waiting"
    assert service.arrive(record, age) == (200, {"state": word})
    assert (service.get(record), provider.requests) == (record, [])
    if age == T0:
        assert service.made == [(replace(Task.of(record), hop=1), NOW + timedelta(seconds=seconds))]
    else:
        assert service.made == [(Task.of(record), record.due_at)]
    if not fields:
        assert said(capfd, "outbound_waiting")["reason"] == why


def test_a_hop_that_cannot_be_made_is_answered_503(service: Service) -> None:
    blocked(service)
    service.internal.queue.before = lambda *_: QueueUnavailable()
    assert service.arrive(service.put(a_reply())) == (503, {"state": "waiting"})


@pytest.mark.parametrize(
    "before",
    [{"state": State.DONE}, {"state": State.DEAD}, {"state": State.DROPPED}, None],
    ids=["done", "dead", "dropped", "missing"],
)
def test_a_predecessor_that_is_out_of_the_way_lets_it_go(service: Service, before: dict[str, Any] | None) -> None:
    if before:
        service.put(a_reply(2, **ended(**before)))
    assert service.arrive(service.put(a_reply(after=a_reply(2).key))) == (200, {"state": "done"})


def test_a_predecessor_with_a_receipt_lets_it_go(service: Service) -> None:
    note(service, service.put(a_reply(2, **doubtful(100))), ReceiptKind.SENT)
    assert service.arrive(service.put(a_reply(after=a_reply(2).key))) == (200, {"state": "done"})


# ---- process_outbound: what the provider says


def test_a_message_is_sent_with_our_key_and_settled_with_the_providers_id(
    service: Service, provider: parts.Provider
) -> None:
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "done"})
    assert provider.requests == [
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": f"+{PERSON}",
            "type": "text",
            "text": {"body": "hello to you"},
            "biz_opaque_callback_data": f"pombo1.{record.key}.0.{record.correlation_id}",
        }
    ]
    after = service.get(record)
    assert (after.state, after.provider_id, after.attempt) == (State.DONE, "wamid.accepted", 1)
    assert after.expire_at == NOW + timedelta(days=35)


def test_a_2xx_that_cannot_be_read_is_accepted(service: Service, provider: parts.Provider) -> None:
    provider.answers.append((200, b"<html>"))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.get(record).provider_id is None


LOST = {
    "no answer": (0, b""),
    "a page": (502, b"<html>"),
    "code 1": error(1, 500),
    "code 131000": error(131000, 500),
    "an unknown code with 5xx": error(999999, 503),
    "a 4xx that cannot be read": (400, b"<html>"),
}


@pytest.mark.parametrize("name", LOST)
def test_an_answer_that_was_lost_is_a_doubt_and_the_same_task_comes_back(
    service: Service, provider: parts.Provider, name: str
) -> None:
    provider.answers.append(LOST[name])
    record = service.put(a_reply())
    assert service.arrive(record) == (503, {"state": "in_doubt"})
    after = service.get(record)
    assert (after.state, after.doubts, after.generation, after.attempt) == (State.IN_DOUBT, 1, 0, 1)
    assert service.made == []
    assert service.arrive(record) == (200, {"state": "in_doubt"})
    assert len(provider.requests) == 1


DOWN = {"a plain 429": (429, b"slow down"), "code 2": error(2, 503), "code 131016": error(131016, 500)}


@pytest.mark.parametrize("name", DOWN)
def test_a_provider_that_took_nothing_sets_the_queues_pace(
    service: Service, provider: parts.Provider, name: str
) -> None:
    provider.answers.append(DOWN[name])
    record = service.put(a_reply())
    assert service.arrive(record) == (503, {"state": "pending"})
    after = service.get(record)
    assert (after.generation, after.attempt, after.doubts) == (0, 1, 0)
    assert service.made == []


@pytest.mark.parametrize("name", DOWN)
@pytest.mark.parametrize(("asked", "told"), [("90", "90"), ("0", "1"), ("soon", None), (None, None)])
def test_the_queue_is_told_the_wait_that_such_a_provider_asks_for(
    service: Service, provider: parts.Provider, name: str, asked: str | None, told: str | None
) -> None:
    provider.answers.append(DOWN[name])
    provider.headers |= {"Retry-After": asked} if asked else {}
    answer = service.post(Task.of(service.put(a_reply())))
    assert (answer.status_code, answer.json) == (503, {"state": "pending"})
    assert answer.headers.get("Retry-After") == told


@pytest.mark.parametrize(("seconds", "told"), [(0, "1"), (0.4, "1"), (1, "1"), (1.000001, "2"), (86400, "86400")])
def test_a_wait_is_told_in_whole_seconds_and_never_cut_short(service: Service, seconds: float, told: str) -> None:
    answer = Answer(503, "pending", retry_after=timedelta(seconds=seconds))
    app = create_app(replace(service.internal.parts, process_outbound=lambda _: answer))
    told_answer = replace(service, client=app.test_client()).post(Task.of(a_reply()))
    assert told_answer.headers["Retry-After"] == told


@pytest.mark.parametrize(
    "answer", [error(1, 503), error(130429, 429), error(131026)], ids=["lost", "limited", "refused"]
)
def test_no_other_answer_tells_the_queue_to_wait(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    """A limit's wait is the due time of a new task; a doubt's is its window."""
    provider.answers.append(answer)
    provider.headers["Retry-After"] = "90"
    assert "Retry-After" not in service.post(Task.of(service.put(a_reply()))).headers


def test_a_provider_that_cannot_be_reached_took_nothing(make: Make) -> None:
    service = make(WHATSAPP_API_BASE_URL="http://127.0.0.1:9")
    answer = service.post(Task.of(service.put(a_reply())))
    assert (answer.status_code, answer.json) == (503, {"state": "pending"})
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("answer", [error(2, 503), error(999999, 400, is_transient=True)], ids=["down", "retry"])
def test_the_last_attempt_that_was_not_taken_is_dead(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    provider.answers.append(answer)
    record = service.put(a_reply(attempt=LAST - 1))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert service.get(record).reason == "attempts"


def test_what_is_only_this_messages_trouble_is_tried_again_by_our_backoff(
    service: Service, provider: parts.Provider
) -> None:
    provider.answers.append(error(999999, 400, is_transient=True))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.state, after.generation, after.attempt) == (State.PENDING, 1, 1)
    assert service.made == [(Task.of(after), NOW + timedelta(seconds=10))]


@pytest.mark.parametrize(("code", "seconds"), [(130429, 1.5), (131056, 1), (80007, 60), (4, 60), (131057, 45)])
def test_a_limit_spends_no_attempt(service: Service, provider: parts.Provider, code: int, seconds: float) -> None:
    provider.answers.append(error(code))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.throttled, after.generation) == (0, 1, 1)
    assert service.made == [(Task.of(after), NOW + timedelta(seconds=seconds))]


@pytest.mark.parametrize("code", [0, 3, 10, 102, 190, 200, 299, 467, 131005])
def test_a_refused_credential_holds_the_tenant_until_there_is_another(
    service: Service, make: Make, provider: parts.Provider, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    provider.answers.append(error(code, 401))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.generation, after.due_at) == (0, 1, NOW + timedelta(minutes=10))
    assert said(capfd, "tenant_needs_reauth")["severity"] == "ERROR"
    other = service.put(a_reply(2))
    assert service.arrive(other) == (200, {"state": "waiting"})
    assert len(provider.requests) == 1
    reconnected = make(WHATSAPP_ACCESS_TOKEN="another-token")
    assert reconnected.arrive(other) == (200, {"state": "done"})


@pytest.mark.parametrize("answer", [error(131031, 403), error(368), error(100, error_subcode=33)], ids=str)
def test_a_blocked_sender_waits_and_the_first_send_after_it_is_the_probe(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    provider.answers.append(answer)
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.generation, after.due_at) == (0, 1, NOW + timedelta(minutes=10))
    assert service.arrive(service.put(a_reply(2))) == (200, {"state": "waiting"})
    service.internal.clock.go(601)
    assert service.arrive(after) == (200, {"state": "done"})
    assert service.internal.store.port.marks("default").blocks == {}


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [(error(131026), 400, 131026), (error(131047), 400, 131047), (error(999999, 404), 400, 999999)],
    ids=str,
)
def test_a_message_that_was_refused_for_good_is_dead_and_said_so_once(
    service: Service, provider: parts.Provider, answer: tuple[int, Any], status: int, code: int,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    provider.answers.append(answer)
    record = service.put(a_reply())
    assert service.arrive(record) == (status, {"state": "dead", "error": "whatsapp_permanent_error", "code": code})
    assert service.get(record).reason == "permanent"
    line = said(capfd, "dead_lettered")
    assert (line["severity"], line["code"]) == ("ERROR", code)
    assert service.arrive(record) == (200, {"state": "dead"})
    assert len(provider.requests) == 1


def test_a_refusal_for_good_with_their_5xx_is_answered_502(service: Service, provider: parts.Provider) -> None:
    provider.answers.append(error(131026, 500))
    assert service.arrive(service.put(a_reply())) == (
        502,
        {"state": "dead", "error": "whatsapp_permanent_error", "code": 131026},
    )


# ---- process_outbound: time


@pytest.mark.parametrize(
    ("fields", "state", "attempt"), [({}, "pending", 0), (doubtful(-1), "in_doubt", 1)], ids=["pending", "in_doubt"]
)
@pytest.mark.parametrize("why", ["too late to begin", "shutdown"])
def test_a_send_that_may_not_begin_any_more_puts_everything_back(
    service: Service, provider: parts.Provider, fields: dict[str, Any], state: str, attempt: int, why: str
) -> None:
    record = service.put(a_reply(**fields))
    if why == "shutdown":
        service.internal.parts.shutdown.begin()
    else:  # a machine that stood still: the lease's commit took half a minute
        service.internal.store.after = lambda name, *_: service.internal.clock.go(30) if name == "change" else None
    assert service.arrive(record) == (409, {"state": state})
    after = service.get(record)
    assert (after.state, after.attempt, after.token, after.generation) == (state, attempt, None, 0)
    assert after.doubt_until == record.doubt_until
    assert provider.requests == []


def test_a_receipt_while_it_is_sent_and_an_answer_that_is_lost_end_well(
    service: Service, provider: parts.Provider
) -> None:
    record = service.put(a_reply())
    provider.answers.append((0, b""))
    provider.during = lambda _: note(service, record)
    assert service.arrive(record) == (503, {"state": "in_doubt"})
    assert service.arrive(record) == (200, {"state": "done"})
    assert len(provider.requests) == 1


@pytest.mark.parametrize("answer", [error(131026), error(2, 503)], ids=["refused", "down at the last attempt"])
def test_a_receipt_while_it_is_refused_for_good_is_the_truth(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    record = service.put(a_reply(attempt=LAST - 1))
    provider.answers.append(answer)
    provider.during = lambda _: note(service, record)
    assert service.arrive(record) == (200, {"state": "done"})


# ---- what the log says


def test_one_wide_line_tells_all_of_a_send(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    record = service.put(a_reply())
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "X-CloudTasks-TaskRetryCount": "3"}
    service.process(Task.of(record), **headers)
    (line,) = parts.lines(capfd.readouterr().out)
    assert line["event"] == "outbound_sent"
    assert {name: line[name] for name in ("delivery", "correlation_id", "tenant", "stage", "attempt", "state")} == {
        "delivery": record.key,
        "correlation_id": record.correlation_id,
        "tenant": "default",
        "stage": "outbound",
        "attempt": 1,
        "state": "done",
    }
    assert (line["task_name"], line["retry_count"], line["generation"]) == (Task.of(record).name, 3, 0)
    assert line["logging.googleapis.com/trace"] == f"projects/pombo-local/traces/{trace}"


@pytest.mark.parametrize("retries", ["", "-1", "many", "9" * 50, "٣"])
def test_a_header_that_anyone_may_send_breaks_no_line(
    service: Service, retries: str, capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(a_reply())
    body = json.dumps(task_body(Task.of(record)))
    answer = service.client.post(
        "/internal/process_outbound",
        data=body,
        headers={"X-Internal-Token": TOKEN},
        environ_overrides={"HTTP_X_CLOUDTASKS_TASKRETRYCOUNT": retries},
    )
    assert answer.status_code == 200
    assert "retry_count" not in said(capfd, "outbound_sent")


def test_the_finishing_line_says_how_many_replies_were_planned_and_queued(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    service.handler.answer = lambda _: ["one", "two"]
    service.arrive(service.put(an_event()))
    line = said(capfd, "inbound_processing_finished")
    assert (line["outbound_planned"], line["outbound_enqueued"], line["state"]) == (2, 2, "done")
