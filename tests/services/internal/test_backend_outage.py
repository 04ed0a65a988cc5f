"""A backend behind HANDLER_URL that is down, or fails for one event alone: what waits, and what it costs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from shared.domain.delivery.create import create
from shared.domain.delivery.operator import replay
from shared.domain.errors import StoreUnavailable
from shared.domain.identity import change_event_id
from shared.domain.marks import Block, Marks, Outage
from shared.domain.record import Kind, State, Task
from tests.support import parts
from tests.support.internal_service import Make, Service, TaskRun, told
from tests.support.parts import NOW, an_event

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
TEN = timedelta(seconds=10)
ANSWERED = (200, {"replies": []})
TOOK_NOTHING = {"503": (503, b""), "429": (429, b"")}
TOOK = {"502": (502, b""), "504": (504, b""), "a reset": (0, b"")}


class Backend:
    """The team's own: by default it answers all; `says` decides by the text of the message and the time."""

    def __init__(self, server: parts.Provider) -> None:
        self.server = server
        self.asked: list[tuple[datetime, str]] = []
        self.says: Callable[[str, datetime], tuple[int, Any]] = lambda *_: ANSWERED
        self.clock = parts.Clock()
        server.during = self._during

    def _during(self, body: bytes) -> None:
        text = json.loads(body)["message"]["text"]
        self.asked.append((self.clock.at, text))
        self.server.answers[:] = [self.says(text, self.clock.at)]


@pytest.fixture
def backend() -> Iterator[Backend]:
    with parts.a_provider() as server:
        yield Backend(server)


@pytest.fixture
def ask(make: Make, backend: Backend) -> Iterator[Callable[..., Service]]:
    """Makes a service that asks the backend."""
    code: list[Any] = []

    def ask(queue: Any = None, url: str = "", **environ: str) -> Service:
        address = {"HANDLER": "", "HANDLER_URL": url or backend.server.url, "HANDLER_URL_SECRET": SECRET}
        service = make(queue=queue, is_asking=True, **address, **environ)
        backend.clock = service.internal.clock
        code.append(service.internal.parts.handler._code)
        return service

    yield ask
    for one in code:
        one.close()


@pytest.fixture
def service(ask: Callable[..., Service]) -> Service:
    return ask()


def marks(service: Service) -> Marks:
    id = service.internal.parts.senders.backend
    assert id is not None
    found: Marks = service.internal.store.port.marks(id)
    return found


@pytest.mark.parametrize("name", TOOK_NOTHING)
def test_backend_that_takes_nothing_costs_no_attempt(
    service: Service, backend: Backend, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    backend.says = lambda *_: TOOK_NOTHING[name]
    backend.server.headers["Retry-After"] = "90"
    record = service.put(an_event())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.state, after.attempt, after.throttled, after.generation) == (State.PENDING, 0, 1, 1)
    assert (after.due_at, after.last_error) == (NOW + timedelta(seconds=90), f"The backend answered {name}.")
    assert service.made == [(Task.of(after), after.due_at)]
    assert marks(service).down == Outage(NOW + TEN, TEN, by=record.key)
    (down, ended) = told(capfd, "backend_down", "inbound_rescheduled")
    assert (down["until"], down["wait_seconds"], ended["verdict"]) == ((NOW + TEN).isoformat(), 10.0, "backend_down")
    assert (ended["cause"], after.attempts_log[-1].error) == (f"The backend answered {name}.",) * 2


def test_backend_that_cannot_be_reached_costs_no_attempt(ask: Callable[..., Service]) -> None:
    service = ask(url="http://127.0.0.1:9")
    record = service.put(an_event())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.due_at, after.last_error) == (0, NOW + TEN, "The backend refused the connection.")


@pytest.mark.parametrize("name", TOOK)
def test_first_lost_answer_costs_an_attempt_and_makes_a_mark(service: Service, backend: Backend, name: str) -> None:
    backend.says = lambda *_: TOOK[name]
    record = service.put(an_event())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.attempts_log[-1].error) == (1, after.last_error)
    assert marks(service).down == Outage(NOW, by=record.key)


@pytest.mark.parametrize("name", [*TOOK, *TOOK_NOTHING])
def test_second_event_that_fails_costs_no_attempt_and_holds_back_all(
    service: Service, backend: Backend, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    backend.says = lambda *_: {**TOOK, **TOOK_NOTHING}[name]
    for number in (1, 2):
        service.arrive(service.put(an_event(number)))
    second = service.get(an_event(2))
    assert (second.attempt, second.attempts_log[-1].answer) == (0, "backend_down")
    down = marks(service).down
    assert down is not None
    assert down.by is None
    service.internal.clock.go(5 if name in TOOK_NOTHING else 0)
    capfd.readouterr()
    third = service.put(an_event(3))
    service.arrive(third)
    if name in TOOK_NOTHING:
        assert (service.get(third), len(backend.asked)) == (third, 2), "no lease, no attempt, no call"
        (waiting,) = told(capfd, "inbound_waiting")
        assert (waiting["reason"], waiting["until"]) == ("backend_down", down.until.isoformat())


@pytest.mark.parametrize("answer", [ANSWERED, (204, b""), (410, b""), (500, b""), (401, b"")], ids=str)
def test_trial_that_is_answered_closes_the_breaker(
    service: Service, backend: Backend, answer: tuple[int, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    id = service.internal.parts.senders.backend
    service.internal.store.port.change_marks(id, lambda _: Marks(down=Outage(NOW, TEN)))
    backend.says = lambda *_: answer
    service.arrive(service.put(an_event()))
    assert marks(service).down is None
    assert len(told(capfd, "backend_up")) == 1


def test_event_whose_time_ends_while_it_is_elected_ends_at_its_next_task(service: Service, backend: Backend) -> None:
    """Ended there it would be in no conversation."""
    id = service.internal.parts.senders.backend
    service.internal.store.port.change_marks(id, lambda _: Marks(down=Outage(NOW, TEN)))
    event = service.put(an_event(1, give_up_at=NOW + TEN))

    def pass_the_time(name: str, *_: Any) -> None:
        if name == "change_marks":
            service.internal.store.before = lambda *_: None
            service.internal.clock.go(10)

    service.internal.store.before = pass_the_time
    assert (service.arrive(event)[0], backend.asked) == (503, [])
    assert service.arrive(event) == (200, {"state": "dead"})
    assert service.get(event).conversation is not None


def test_trial_that_fails_doubles_the_wait(service: Service, backend: Backend) -> None:
    id = service.internal.parts.senders.backend
    service.internal.store.port.change_marks(id, lambda _: Marks(down=Outage(NOW, TEN)))
    backend.says = lambda *_: (504, b"")
    record = service.put(an_event())
    service.arrive(record)
    after = service.get(record)
    assert (after.attempt, after.due_at) == (0, NOW + 2 * TEN), "a lost answer counts as down while a mark is there"
    assert marks(service).down == Outage(NOW + 2 * TEN, 2 * TEN)


@pytest.mark.parametrize("answer", [(503, b""), (502, b""), (0, b"")], ids=["503", "502", "a reset"])
def test_backend_outage_makes_no_dead_event(
    ask: Callable[..., Service], backend: Backend, answer: tuple[int, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    queue, back = TaskRun(), NOW + 15 * MINUTE
    service = ask(queue=queue)
    backend.says = lambda _, now: answer if now < back else ANSWERED
    records = [service.put(an_event(number)) for number in range(10)]
    for record in records:
        queue.ensure(Task.of(record), NOW)

    queue.work(service, back + 6 * MINUTE)

    after = [service.get(record) for record in records]
    assert {record.state for record in after} == {State.DONE}
    assert sum(record.attempt for record in after) <= 10 + 1, "the first lost answer alone"
    heard = [text for at, text in backend.asked if at >= back]
    assert sorted(heard) == sorted(f"hello {number}" for number in range(10)), "each once"
    at_the_cap = [at for at, _ in backend.asked if back - 5 * MINUTE <= at < back]
    assert len(at_the_cap) <= 2 * 5
    assert marks(service).down is None
    names = [line["event"] for line in told(capfd, "backend_down", "backend_up", "dead_lettered")]
    assert names.count("backend_up") == 1
    assert names[-1] == "backend_up"
    assert "dead_lettered" not in names


@pytest.mark.parametrize("answer", [(502, b""), (503, b"")], ids=["502", "503"])
def test_one_poisonous_event_holds_back_no_other(
    ask: Callable[..., Service], backend: Backend, answer: tuple[int, Any]
) -> None:
    queue = TaskRun()
    service = ask(queue=queue, MAX_ATTEMPTS="4")
    backend.says = lambda text, _: answer if text == "hello 0" else ANSWERED
    poisonous = service.put(an_event(0, give_up_at=NOW + 5 * MINUTE))
    queue.ensure(Task.of(poisonous), NOW)
    others = [service.put(an_event(number)) for number in range(1, 400)]
    for number, record in enumerate(others, 1):
        queue.ensure(Task.of(record), NOW + number * SECOND)

    queue.work(service, NOW + 10 * MINUTE)

    came = {text: at for at, text in backend.asked if text != "hello 0"}
    waits = sorted(came[f"hello {number}"] - NOW - number * SECOND for number in range(1, 400))
    assert waits[len(waits) * 95 // 100] <= timedelta(), "19 of 20 are asked about at once"
    assert {service.get(record).state for record in others} == {State.DONE}
    ended = service.get(poisonous)
    assert ended.state is State.DEAD
    if answer[0] == 502:
        assert (ended.reason, ended.attempt) == ("error", 4), "its own attempts"
    else:
        assert (ended.reason, ended.attempt) == ("waited", 0)


def test_account_change_is_applied_while_the_backend_is_down(service: Service) -> None:
    id = service.internal.parts.senders.backend
    service.internal.store.port.change_marks(id, lambda _: Marks(down=Outage(NOW + MINUTE, MINUTE)))
    parts.put_marks(service.internal.store.port, block=Block(NOW + MINUTE, MINUTE, 368))
    value = {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "REINSTATE"}}
    record = service.put(
        create(
            Kind.INBOUND,
            change_event_id("meta", "300000000000003", "account_update", value, None),
            provider="meta",
            tenant="default",
            sender="300000000000003",
            contact="",
            correlation_id="correlation-1",
            payload={"field": "account_update", "value": value},
            limits=parts.LIMITS,
            now=NOW,
        )
    )
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.marks.block is None
    assert marks(service).down is not None


def test_expired_event_is_dead_and_its_replay_gets_a_new_max_age(service: Service, backend: Backend) -> None:
    backend.says = lambda *_: (503, b"")
    record = service.put(an_event())
    assert record.give_up_at == NOW + timedelta(hours=24)
    service.internal.clock.go(timedelta(hours=24).total_seconds())
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, backend.asked) == ("waited", [])

    now = service.internal.clock.at
    replayed = service.internal.store.port.change(record.key, lambda found: replay(found, parts.LIMITS, now)).write

    assert replayed.give_up_at == now + timedelta(hours=24)
    assert service.arrive(replayed) == (200, {"state": "rescheduled"})
    backend.says = lambda *_: ANSWERED
    service.internal.clock.go(10)
    assert service.arrive(service.get(record)) == (200, {"state": "done"})


def test_early_task_of_an_event_hops_to_its_due_time(service: Service, backend: Backend) -> None:
    record = service.put(an_event(due_at=NOW + MINUTE))
    assert service.arrive(record) == (200, {"state": "waiting"})
    assert service.made == [(replace(Task.of(record), hop=1), record.due_at)]
    assert backend.asked == []


def test_backend_that_is_down_is_counted_by_health_and_sweep(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    id = service.internal.parts.senders.backend
    service.internal.store.port.change_marks(id, lambda _: Marks(down=Outage(NOW + MINUTE, MINUTE)))
    assert service.client.get("/health").json["outages"] == {"provider_down": 0, "backend_down": 1}
    assert service.client.get("/health").json["status"] == "ok", "another instance would not help"
    service.internal.parts.sweep()
    assert [line["backend_down"] for line in told(capfd, "swept")] == [1]


def test_outages_that_cannot_be_read_are_null(service: Service) -> None:
    service.internal.store.before = lambda *_: StoreUnavailable()
    answer = service.client.get("/health")
    assert (answer.status_code, answer.json["outages"]) == (200, {"provider_down": None, "backend_down": None})
