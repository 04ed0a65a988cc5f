"""A provider that is down: no attempt is spent, one message probes, and the others make no call meanwhile."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from shared.domain.marks import Outage
from shared.domain.record import Delivery, State, Task
from tests.support import parts
from tests.support.internal_service import Make, Service, TaskRun, at_once, meet, told
from tests.support.parts import NOW, a_reply, doubtful, error

MINUTE = timedelta(minutes=1)
KINDS = {"refused": error(2, 503), "busy": (429, b"slow down"), "lost": (0, b""), "an empty 500": (500, b"")}


class AnOutage:
    """The provider answers each call so until it is back; notes when it was called, and what it took."""

    def __init__(self, service: Service, provider: parts.Provider, answer: tuple[int, Any], back: datetime) -> None:
        self.calls: list[datetime] = []
        self.taken: list[str] = []

        def during(_: bytes) -> None:
            now, request = service.internal.clock.at, provider.requests[-1]
            self.calls.append(now)
            if now < back:
                provider.answers.append(answer)
            elif "text" in request:
                self.taken.append(request["text"]["body"])

        provider.during = during


def some_pairs(service: Service, count: int) -> list[Delivery]:
    """So many messages, two to each contact, in order."""
    records = []
    for number in range(count):
        before = a_reply(number - 1).key if number % 2 else None
        payload = {**a_reply().payload, "content": {"body": f"{number}"}, "to": f"+1555000{number // 2:04}"}
        records.append(service.put(a_reply(number, payload=payload, after=before)))
    return records


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("minutes", [1, 15])
def test_ten_messages_survive_an_outage(make: Make, provider: parts.Provider, kind: str, minutes: int) -> None:
    queue, back = TaskRun(), NOW + minutes * MINUTE
    service = make(queue=queue)
    outage = AnOutage(service, provider, KINDS[kind], back)
    records = some_pairs(service, 10)
    for record in records:
        queue.ensure(Task.of(record), NOW)

    queue.work(service, back + 15 * MINUTE)

    after = [service.get(record) for record in records]
    assert {record.state for record in after} == {State.DONE}
    assert sorted(outage.taken) == sorted(f"{number}" for number in range(10)), "each once"
    for first in range(0, 10, 2):
        assert outage.taken.index(f"{first}") < outage.taken.index(f"{first + 1}"), "in order"
    is_lost = kind in ("lost", "an empty 500")
    assert sum(record.attempt for record in after) == 10 + sum(record.doubts for record in after)
    assert sum(record.doubts for record in after) == (1 if is_lost else 0), "the one that met the beginning"
    assert service.marks.down is None
    at_the_cap = [call for call in outage.calls if back - 5 * MINUTE <= call < back]
    assert minutes == 1 or len(at_the_cap) <= 2 * 5, "at most 2 calls a minute"
    assert min(call for call in outage.calls if call >= back) <= back + 6 * MINUTE, "within one wait of its return"


def test_outage_longer_than_max_age_makes_a_dead_letter_waited(make: Make, provider: parts.Provider) -> None:
    queue = TaskRun()
    service = make(queue=queue, MESSAGE_MAX_AGE="1h")
    outage = AnOutage(service, provider, error(131016, 500), NOW + timedelta(days=1))
    record = service.put(a_reply(give_up_at=NOW + timedelta(hours=1)))
    queue.ensure(Task.of(record), NOW)

    queue.work(service, NOW + timedelta(hours=2))

    after = service.get(record)
    assert (after.state, after.reason, after.attempt) == (State.DEAD, "waited", 0)
    assert len(outage.calls) < 30


def test_open_breaker_makes_a_message_wait_without_a_call_a_lease_or_a_write(
    service: Service, provider: parts.Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    service.use_credential()
    provider.answers.append(error(131016, 500))
    service.arrive(service.put(a_reply(1)))
    record = service.put(a_reply(2))
    service.internal.store.calls.clear()

    assert service.arrive(record) == (200, {"state": "waiting"})

    assert service.get(record) == record
    assert len(provider.requests) == 1
    assert service.internal.store.asked("change_marks") == []
    assert service.made == [(replace(Task.of(record), hop=1), NOW + timedelta(seconds=10))]
    down, waiting = told(capfd, "provider_down", "outbound_waiting")
    assert (down["until"], down["wait_seconds"]) == ((NOW + timedelta(seconds=10)).isoformat(), 10.0)
    assert (waiting["reason"], waiting["until"]) == ("provider_down", down["until"])


def test_two_arrivals_after_the_breakers_end_elect_one(service: Service, provider: parts.Provider) -> None:
    service.use_credential()
    parts.put_marks(service.internal.store.port, down=Outage(NOW, timedelta(seconds=10)))
    records = [service.put(a_reply(number)) for number in range(2)]
    meet(service.internal, "marks", 2)
    calls = [lambda record=record: service.internal.parts.process_outbound(Task.of(record)) for record in records]

    answers = at_once(calls)

    assert sorted(answer.state for answer in answers) == ["done", "waiting"]
    assert service.asked_of(provider) == ["probe", "text"]
    assert service.made[-1][1] == NOW + timedelta(seconds=15), "the other looks again while the first is on its way"
    assert service.marks.down is None


def test_ten_sends_that_are_refused_at_once_make_one_mark_and_one_of_them_probes(
    service: Service, provider: parts.Provider
) -> None:
    service.use_credential()  # its first use is noted once they have met, and shows the mark of the first refused
    records = [service.put(a_reply(number)) for number in range(10)]
    provider.answers += [error(2, 503)] * 10
    meet(service.internal, "marks", 10)
    at_once([lambda record=record: service.internal.parts.process_outbound(Task.of(record)) for record in records])
    assert service.marks.down == Outage(NOW + timedelta(seconds=10), timedelta(seconds=10))
    assert {service.get(record).attempt for record in records} == {0}

    service.internal.clock.go(10)
    provider.answers.append((0, b""))
    meet(service.internal, "marks", 10)
    at_once([lambda record=record: service.internal.parts.process_outbound(Task.of(record)) for record in records])

    assert service.asked_of(provider) == ["text"] * 10 + ["probe"]
    down = service.marks.down
    assert down == Outage(service.internal.clock.at + timedelta(seconds=20), timedelta(seconds=20))


def test_worker_killed_during_a_probe_delays_others_only_until_its_claim_ends(
    service: Service, provider: parts.Provider
) -> None:
    service.use_credential()
    parts.put_marks(service.internal.store.port, down=Outage(NOW, timedelta(seconds=10)))
    service.internal.store.after = lambda name, *_: KeyboardInterrupt() if name == "change_marks" else None
    with pytest.raises(KeyboardInterrupt):
        service.internal.parts.process_outbound(Task.of(service.put(a_reply())))
    service.internal.store.after = lambda *_: None
    for second in (0, 15, 89):
        service.internal.clock.go(second - (service.internal.clock.at - NOW).total_seconds())
        assert service.arrive(service.get(a_reply())) == (200, {"state": "waiting"})
    service.internal.clock.go(1)
    assert service.arrive(service.get(a_reply())) == (200, {"state": "done"})
    assert service.asked_of(provider) == ["probe", "text"]


@pytest.mark.parametrize("answer", [(200, {"success": True}), error(131009), error(190, 401), error(368)], ids=str)
def test_probe_that_is_answered_lets_its_message_go(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    """Whatever the provider says to the probe: it is there."""
    parts.put_marks(service.internal.store.port, down=Outage(NOW, timedelta(seconds=10)))
    provider.answers.append(answer)
    assert service.arrive(service.put(a_reply())) == (200, {"state": "done"})
    assert service.asked_of(provider) == ["probe", "text"]
    assert service.marks.down is None


@pytest.mark.parametrize("kind", KINDS)
def test_probe_that_fails_doubles_the_wait_and_spends_nothing(
    service: Service, provider: parts.Provider, kind: str
) -> None:
    service.use_credential()
    parts.put_marks(service.internal.store.port, down=Outage(NOW, timedelta(seconds=40)))
    provider.answers.append(KINDS[kind])
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "waiting"})
    assert (service.get(record), service.asked_of(provider)) == (record, ["probe"])
    assert service.marks.down == Outage(NOW + timedelta(seconds=80), timedelta(seconds=80))


def test_trial_that_is_refused_as_a_whole_doubles_the_wait_and_costs_no_attempt(
    service: Service, provider: parts.Provider
) -> None:
    parts.put_marks(service.internal.store.port, down=Outage(NOW, timedelta(seconds=200)))
    provider.answers += [error(131009), error(131016, 503)]
    record = service.put(a_reply())
    assert service.arrive(record) == (503, {"state": "pending"})
    assert service.asked_of(provider) == ["probe", "text"]
    assert service.marks.down == Outage(NOW + timedelta(minutes=5), timedelta(minutes=5))
    after = service.get(record)
    assert (after.attempt, after.due_at) == (0, NOW + timedelta(minutes=5)), "at the breaker's end"


def test_trial_that_is_refused_for_good_closes_the_breaker(service: Service, provider: parts.Provider) -> None:
    parts.put_marks(service.internal.store.port, down=Outage(NOW, timedelta(seconds=10)))
    provider.answers += [error(131009), error(131026)]
    assert service.arrive(service.put(a_reply()))[0] == 400
    assert service.marks.down is None


def test_message_with_a_doubt_probes_before_it_is_sent_in_any_state(service: Service, provider: parts.Provider) -> None:
    in_doubt, pending = service.put(a_reply(1, **doubtful(-1))), service.put(a_reply(2, doubts=1, attempt=1))
    for record in (in_doubt, pending):
        assert service.arrive(record) == (200, {"state": "done"})
    assert service.asked_of(provider) == ["probe", "text"] * 2
    assert service.marks.down is None


def test_answered_probe_with_nothing_to_send_closes_the_breaker(make: Make, provider: parts.Provider) -> None:
    service = make(IN_DOUBT_POLICY="hold")
    parts.put_marks(service.internal.store.port, down=Outage(NOW - MINUTE, timedelta(seconds=10)))
    record = service.put(a_reply(**doubtful(-1)))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, service.asked_of(provider)) == ("in_doubt", ["probe"])
    assert service.marks.down is None


def test_doubt_is_not_judged_while_the_provider_is_down(make: Make, provider: parts.Provider) -> None:
    """Its receipt may be kept back too: only its age ends it."""
    service = make(IN_DOUBT_POLICY="hold")
    parts.put_marks(service.internal.store.port, down=Outage(NOW + MINUTE, MINUTE))
    record = service.put(a_reply(**doubtful(-1, attempt=8, doubts=2)))
    assert service.arrive(record) == (200, {"state": "in_doubt"})
    service.internal.clock.go(timedelta(hours=24).total_seconds())
    parts.put_marks(service.internal.store.port, down=Outage(service.internal.clock.at + MINUTE, MINUTE))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, provider.requests) == ("in_doubt", [])


def test_lost_answer_is_followed_by_a_probe_and_its_end_is_reported(
    service: Service, provider: parts.Provider, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lost answer is no outage yet; a probe that is lost as well is one."""
    monkeypatch.setattr("services.internal.outages.time", SimpleNamespace(monotonic=service.internal.clock.monotonic))

    def outages() -> Any:
        return service.client.get("/health").json["outages"]

    provider.answers += [(0, b""), (0, b"")]
    assert service.arrive(service.put(a_reply(1))) == (503, {"state": "in_doubt"})
    assert outages() == {"provider_down": 0, "backend_down": 0}
    service.internal.clock.go(11)
    record = service.put(a_reply(2))
    assert service.arrive(record) == (200, {"state": "waiting"})
    assert service.asked_of(provider) == ["text", "probe"]
    assert outages() == {"provider_down": 1, "backend_down": 0}
    service.internal.parts.sweep()
    until = service.internal.clock.at + timedelta(seconds=10)
    service.internal.clock.go(10)
    assert service.arrive(record, hop=1) == (200, {"state": "done"})
    assert service.asked_of(provider)[2:] == ["probe", "text"]
    assert outages()["provider_down"] == 1, "what was read is at most 10 s old"
    service.internal.clock.go(0.1)
    assert outages() == {"provider_down": 0, "backend_down": 0}
    service.internal.parts.sweep()
    down, swept, up, swept_later = told(capfd, "provider_down", "provider_up", "swept")
    assert [line["event"] for line in (down, swept, up, swept_later)] == [
        "provider_down",
        "swept",
        "provider_up",
        "swept",
    ]
    assert (down["until"], down["phone_number_id"], up["phone_number_id"]) == (until.isoformat(), *[parts.SENDER] * 2)
    assert (swept["provider_down"], swept_later["provider_down"]) == (1, 0)
