"""The internal service counts its messages and writes what it has counted, within a request and at its end."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.internal.main import create_app
from shared.domain.counters import WHOLE, Figures, figures, merged
from shared.domain.record import ReceiptKind, Task
from shared.pipeline.counting import Counters
from shared.pipeline.send_counting import OutboundCounting
from tests.support import parts
from tests.support.internal_service import Service
from tests.support.parts import NOW, TOKEN
from tests.support.receipts import echo_of, note_receipt

EVERY = timedelta(minutes=1)
NOTHING = Figures(0, 0, None, None, None)


@pytest.fixture
def counting(service: Service) -> Service:
    """The service, counting on the test's clock and store."""
    built = service.internal
    counting = OutboundCounting(Counters(built.clock, EVERY), built.store, built.clock)  # type: ignore[arg-type]
    outbound = replace(built.parts.process_outbound, counting=counting)
    changed = replace(built.parts, process_outbound=outbound, counting=counting)
    return replace(service, client=create_app(changed).test_client(), internal=replace(built, parts=changed))


def of(service: Service) -> dict[str, Figures]:
    """The figures in the store once the process has ended."""
    service.internal.parts.counting.finish()
    found = service.internal.store.port.recent_counters(NOW)
    return figures(merged(one.counts for one in found), service.internal.clock.now())


def send(service: Service, number: int, **changes: Any) -> None:
    service.process(Task.of(service.put(parts.a_reply(number, **changes))))


def test_sent_message_is_counted_with_its_time(counting: Service, provider: parts.Provider) -> None:
    provider.during = lambda _: counting.internal.clock.go(0.5)
    for number in range(1, 4):
        send(counting, number, received_at=counting.internal.clock.now())
    found = of(counting)
    assert found.keys() == {WHOLE, "default"}
    for its in found.values():
        assert (its.sent, its.failed, its.send_success_rate) == (3, 0, 1.0)
        assert its.send_p95_ms == pytest.approx(500, rel=0.09)


def test_dead_message_is_counted_as_failed(counting: Service, provider: parts.Provider) -> None:
    provider.answers = [parts.error(131026)]
    send(counting, 1)
    send(counting, 2)
    its = of(counting)["default"]
    assert (its.sent, its.failed, its.send_success_rate) == (1, 1, 0.5)


def test_message_that_waits_is_not_counted(counting: Service, provider: parts.Provider) -> None:
    provider.answers = [parts.error(131000)]
    send(counting, 1)
    assert of(counting) == {WHOLE: NOTHING}


def test_message_that_a_receipt_confirms_is_sent_without_a_time(counting: Service) -> None:
    record = counting.put(parts.a_reply(1, **parts.doubtful(60)))
    note_receipt(counting.internal.store.port, echo_of(record), parts.a_receipt("wamid.1", ReceiptKind.DELIVERED))
    assert counting.arrive(counting.get(record)) == (200, {"state": "done"})
    its = of(counting)["default"]
    assert (its.sent, its.send_p95_ms) == (1, None)


def test_refused_message_that_a_receipt_confirms_is_sent_without_a_time(
    counting: Service, provider: parts.Provider
) -> None:
    record = counting.put(parts.a_reply(1))
    it = parts.a_receipt("wamid.1", ReceiptKind.DELIVERED)
    provider.during = lambda _: note_receipt(counting.internal.store.port, echo_of(record), it)
    provider.answers = [parts.error(131026)]
    assert counting.arrive(record) == (200, {"state": "done"})
    its = of(counting)["default"]
    assert (its.sent, its.send_p95_ms) == (1, None)


def test_counters_are_written_within_a_request_once_a_minute(counting: Service) -> None:
    send(counting, 1)
    counting.internal.clock.go(59.9)
    send(counting, 2)
    store, clock = counting.internal.store, counting.internal.clock
    assert store.asked("keep_counters") == []
    clock.go(0.1)
    counting.client.get("/livez")
    assert store.asked("keep_counters") == []
    counting.client.post("/internal/sweep", headers={"X-Internal-Token": TOKEN})
    counting.client.post("/internal/sweep", headers={"X-Internal-Token": TOKEN})
    assert len(store.asked("keep_counters")) == 1
    clock.go(60)
    counting.client.post("/internal/sweep", headers={"X-Internal-Token": TOKEN})
    assert len(store.asked("keep_counters")) == 1, "nothing is new"
    send(counting, 3)
    assert len(store.asked("keep_counters")) == 2
