"""The sweep: whatever is overdue gets another task; it is bounded, fair, re-entrant, and decides nothing else."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from services.internal.main import create_app
from shared.domain.errors import QueueUnavailable, RegistryUnavailable, RegistryUnreadable, StoreUnavailable
from shared.domain.events import ReceiptBlock
from shared.domain.identity import Echo, sender_id, stable_hash
from shared.domain.marks import Block, Outage, RefusedCredential
from shared.domain.record import Delivery, ReceiptKind, State, Task
from shared.domain.tenants import Tenant
from shared.pipeline.sweep import MISSED_AT_MOST, PAGE
from shared.tenants.environment import EnvironmentTenants
from tests.support import parts
from tests.support.parts import NOW, TOKEN, InternalParts, a_reply, an_event, doubtful, ended, held, put_marks
from tests.support.receipts import note_receipt

PAST, FUTURE = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)


@pytest.fixture
def internal(tmp_path: Path) -> Iterator[InternalParts]:
    with parts.logged():
        internal = parts.internal_parts(tmp_path, queue=parts.NoQueue())
        yield internal
    internal.store.port.close()


@pytest.fixture
def client(internal: InternalParts) -> FlaskClient:
    return create_app(internal.parts).test_client()


def put(internal: InternalParts, *records: Delivery) -> None:
    for record in records:
        internal.store.port.create(record)


def put_many(internal: InternalParts, count: int) -> list[Delivery]:
    """Overdue events, all in one commit; the first is the longest overdue."""
    records = [an_event(number, sweep_at=NOW - timedelta(seconds=count - number)) for number in range(count)]
    internal.store.port.change(records[0].key, lambda _: replace(parts.step(records[0]), create=tuple(records[1:])))
    return records


def sweep(client: FlaskClient) -> tuple[int, Any]:
    answer = client.post("/internal/sweep", headers={"X-Internal-Token": TOKEN})
    return answer.status_code, answer.json


def ensured(internal: InternalParts) -> list[Task]:
    return [task for task, _ in internal.queue.asked("ensure")]


OPEN = {
    "an event that waits": an_event(sweep_at=PAST),
    "an event that nobody finished": an_event(**held(-1, sweep_at=PAST)),
    "a message that waits": a_reply(sweep_at=PAST),
    "a message that nobody finished": a_reply(**held(-1, sweep_at=PAST)),
    "a message in doubt": a_reply(**doubtful(-40, sweep_at=PAST)),
}


@pytest.mark.parametrize("name", OPEN)
def test_overdue_record_gets_a_task_of_the_next_generation(
    client: FlaskClient, internal: InternalParts, name: str
) -> None:
    record = OPEN[name]
    put(internal, record)
    status, body = sweep(client)
    assert (status, body["selected"], body["enqueued"]) == (200, 1, 1)
    after = internal.store.port.get(record.key)
    assert after == replace(record, generation=1, due_at=NOW, sweeps=1, sweep_at=NOW + timedelta(seconds=60)), (
        "nothing else is changed"
    )
    assert internal.queue.asked("ensure") == [(Task.of(after), NOW)]


NOT_OVERDUE = {
    "not yet": an_event(sweep_at=FUTURE),
    "done": an_event(**ended(State.DONE, plan_size=0)),
    "dropped": an_event(**ended(State.DROPPED)),
    "dead": an_event(**ended(State.DEAD)),
}


@pytest.mark.parametrize("name", NOT_OVERDUE)
def test_record_not_overdue_or_final_is_left_alone(client: FlaskClient, internal: InternalParts, name: str) -> None:
    record = NOT_OVERDUE[name]
    put(internal, record)
    status, body = sweep(client)
    assert (status, body["selected"], body["enqueued"]) == (200, 0, 0)
    assert internal.store.port.get(record.key) == record
    assert ensured(internal) == []


def test_leased_record_is_only_checked_later(client: FlaskClient, internal: InternalParts) -> None:
    record = an_event(**held(10, sweep_at=PAST))
    put(internal, record)
    status, body = sweep(client)
    assert (status, body["selected"], body["enqueued"]) == (200, 1, 0)
    assert internal.store.port.get(record.key) == replace(record, sweeps=1, sweep_at=NOW + timedelta(seconds=60))
    assert ensured(internal) == []


def test_the_wait_doubles_with_every_sweep_up_to_six_hours(client: FlaskClient, internal: InternalParts) -> None:
    put(internal, an_event(sweep_at=PAST))
    waits = []
    for _ in range(12):
        sweep(client)
        record = internal.store.port.get(an_event().key)
        waits.append(record.sweep_at - internal.clock.at)
        internal.clock.go(waits[-1].total_seconds())
    assert waits == [min(timedelta(hours=6), timedelta(seconds=30) * 2**times) for times in range(1, 13)]
    assert record.generation == 12


def test_longest_overdue_comes_first_and_all_are_swept(client: FlaskClient, internal: InternalParts) -> None:
    records = put_many(internal, PAGE + 50)
    status, body = sweep(client)
    assert (status, body["selected"], body["enqueued"]) == (200, PAGE + 50, PAGE + 50)
    assert [task.key for task in ensured(internal)] == [record.key for record in records]
    assert [limit for _, limit in internal.store.asked("overdue")] == [PAGE] * 3


def test_a_sweep_ends_when_its_time_is_over(client: FlaskClient, internal: InternalParts) -> None:
    """Not only between two pages: a page of slow writes would take longer than the request may."""
    put_many(internal, PAGE + 50)
    internal.store.after = lambda name, *_: internal.clock.go(1) if name == "change" else None
    status, body = sweep(client)
    assert (status, body["selected"], body["pending"]) == (200, 45, PAGE + 50)
    assert sweep(client)[1]["selected"] == 45, "the next one goes on"


def test_two_sweeps_at_once_make_no_more_tasks_than_one(client: FlaskClient, internal: InternalParts) -> None:
    """Each has read the same page before either writes."""
    records = put_many(internal, 40)
    both_have_read, found = threading.Barrier(2, timeout=30), []
    first: set[int] = set()

    def wait_for_the_other(name: str, *_: Any) -> None:
        if name == "overdue" and threading.get_ident() not in first:
            first.add(threading.get_ident())
            both_have_read.wait()

    internal.store.after = wait_for_the_other
    threads = [threading.Thread(target=lambda: found.append(internal.parts.sweep())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(swept.enqueued for swept in found) == sum(swept.selected for swept in found) == 40
    assert sorted(task.name for task in ensured(internal)) == sorted(
        Task.of(replace(record, generation=1)).name for record in records
    )


# ---- when a part fails


def test_unavailable_store_is_answered_503(client: FlaskClient, internal: InternalParts) -> None:
    internal.store.before = lambda *_: StoreUnavailable()
    assert sweep(client) == (503, {"error": "store_unavailable"})


def test_unavailable_queue_is_answered_503_and_its_record_is_swept_again(
    client: FlaskClient, internal: InternalParts
) -> None:
    put(internal, an_event(sweep_at=PAST))
    internal.queue.before = lambda *_: QueueUnavailable()
    assert sweep(client) == (503, {"error": "queue_unavailable"})
    internal.queue.before = lambda *_: None
    internal.clock.go(60)
    status, body = sweep(client)
    assert (status, body["enqueued"]) == (200, 1)
    assert ensured(internal)[-1].generation == 2


def test_store_outage_in_the_middle_leaves_the_rest_to_the_next_sweep(
    client: FlaskClient, internal: InternalParts
) -> None:
    records = put_many(internal, 5)
    third = records[2].key
    internal.store.before = lambda _, *given: StoreUnavailable() if given and given[0] == third else None
    assert sweep(client) == (503, {"error": "store_unavailable"})
    assert [task.key for task in ensured(internal)] == [record.key for record in records[:2]]

    internal.store.before = lambda *_: None
    status, body = sweep(client)

    assert (status, body["enqueued"]) == (200, 3)
    assert [(task.key, task.generation) for task in ensured(internal)] == [(record.key, 1) for record in records]


def without_tasks_for(internal: InternalParts, *keys: str) -> None:
    internal.queue.before = lambda _, *given: QueueUnavailable() if given and given[0].key in keys else None


def test_record_whose_task_cannot_be_created_delays_no_other(client: FlaskClient, internal: InternalParts) -> None:
    records = put_many(internal, 5)
    third = records[2].key
    without_tasks_for(internal, third)
    assert sweep(client) == (503, {"error": "queue_unavailable"})
    assert [task.key for task in ensured(internal)] == [record.key for record in records], "each was tried once"

    without_tasks_for(internal)
    assert sweep(client)[1]["enqueued"] == 0, "not before its wait is over"
    internal.clock.go(60)
    status, body = sweep(client)

    assert (status, body["enqueued"]) == (200, 5), "it, and those whose tasks nobody has run yet"
    assert [task.generation for task in ensured(internal) if task.key == third] == [1, 2]


def test_a_sweep_of_nothing_reports_nothing(client: FlaskClient) -> None:
    status, body = sweep(client)
    assert (status, set(body.values())) == (200, {0})


def test_queue_outage_in_the_middle_delays_only_a_few_records(
    client: FlaskClient, internal: InternalParts, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the report is made all the same: nobody else says how much is waiting then."""
    records = put_many(internal, 20)
    without_tasks_for(internal, *(record.key for record in records[10:]))
    assert sweep(client) == (503, {"error": "queue_unavailable"})
    assert len(ensured(internal)) == 10 + MISSED_AT_MOST
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "swept"]
    assert {name: line[name] for name in ("severity", "selected", "enqueued", "missed", "pending")} == {
        "severity": "WARNING",
        "selected": 10 + MISSED_AT_MOST,
        "enqueued": 10,
        "missed": MISSED_AT_MOST,
        "pending": 20,
    }

    without_tasks_for(internal)
    status, body = sweep(client)

    assert (status, body["enqueued"]) == (200, 10 - MISSED_AT_MOST), "the others kept their place"
    internal.clock.go(60)
    assert sweep(client)[1]["enqueued"] == 20


def test_a_record_that_a_newer_version_wrote_does_not_stop_the_others(
    client: FlaskClient, internal: InternalParts, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put_many(internal, 3)
    db = sqlite3.connect(tmp_path / "pombo.sqlite")
    with db:
        db.execute("UPDATE records SET body = json_set(body, '$.kind', 'sideways') WHERE key = ?", (an_event(0).key,))
    db.close()
    status, body = sweep(client)
    assert (status, body["enqueued"]) == (200, 2)
    assert "state_unknown" in parts.events(capfd.readouterr().out)


# ---- the report


def test_pages_of_records_of_a_newer_version_starve_no_other_record(
    client: FlaskClient, internal: InternalParts, tmp_path: Path
) -> None:
    records = put_many(internal, PAGE * 2 + 5)
    db = sqlite3.connect(tmp_path / "pombo.sqlite")
    with db:
        db.executemany(
            "UPDATE records SET body = json_set(body, '$.kind', 'of_tomorrow') WHERE key = ?",
            [(record.key,) for record in records[: PAGE * 2]],
        )
    db.close()
    status, body = sweep(client)
    assert (status, body["selected"], body["enqueued"]) == (200, 5, 5)


def test_report_counts_open_records_and_the_age_of_the_oldest(
    client: FlaskClient, internal: InternalParts, capfd: pytest.CaptureFixture[str]
) -> None:
    put(
        internal,
        an_event(1, received_at=NOW - timedelta(seconds=90), sweep_at=FUTURE),
        an_event(2, received_at=NOW - timedelta(seconds=12.5), sweep_at=PAST),
        an_event(3, **held(10, received_at=NOW - timedelta(seconds=900))),
        a_reply(1, **doubtful(10)),
        a_reply(2, **doubtful(10)),
        a_reply(3, **ended(State.DEAD), received_at=NOW - timedelta(days=100)),
        a_reply(4, **ended(State.DONE)),
    )
    expected = {
        "selected": 1,
        "enqueued": 1,
        "pending": 2,
        "leased": 1,
        "in_doubt": 2,
        "dead": 1,
        "receipts_failed": 1,
        "oldest_pending_seconds": 90.0,
        "oldest_dead_seconds": 100 * 86400.0,
    }
    failed = a_reply(4)
    echo = Echo(failed.key, 0, failed.correlation_id)
    note_receipt(internal.store.port, echo, parts.a_receipt("wamid.4", ReceiptKind.FAILED))
    down = Outage(NOW + timedelta(seconds=10), timedelta(seconds=10))
    put_marks(internal.store.port, down=down)
    assert sweep(client) == (200, expected)
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "swept"]
    in_log = {**expected, "provider_down": 1, "backend_down": 0}
    assert {name: line[name] for name in in_log} == in_log


def test_lost_answer_without_a_probe_is_not_an_outage(
    client: FlaskClient, internal: InternalParts, capfd: pytest.CaptureFixture[str]
) -> None:
    put_marks(internal.store.port, down=Outage(NOW))
    assert sweep(client)[0] == 200
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "swept"]
    assert line["provider_down"] == 0


def test_the_report_of_an_empty_store_is_all_zero(client: FlaskClient) -> None:
    names = ("selected", "enqueued", "pending", "leased", "in_doubt", "dead", "receipts_failed")
    assert sweep(client) == (200, dict.fromkeys((*names, "oldest_pending_seconds", "oldest_dead_seconds"), 0))


CREDENTIAL_OF_TODAY, ANOTHER_NUMBER = stable_hash("credential", "of-today"), "100000000000009"


@pytest.mark.parametrize(
    ("refused", "blocked", "connected", "reason"),
    [
        (None, None, 1, None),
        (CREDENTIAL_OF_TODAY, None, 0, "needs_reauth"),
        ("the credential of before", None, 1, None),
        (None, parts.SENDER, 0, "blocked"),
        (None, ANOTHER_NUMBER, 1, None),
        (CREDENTIAL_OF_TODAY, parts.SENDER, 0, "needs_reauth"),
        (None, "by receipt", 0, "blocked"),
    ],
)
def test_sweep_logs_whether_each_sender_is_connected(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    refused: str | None,
    blocked: str | None,
    connected: int,
    reason: str | None,
) -> None:
    with parts.logged():
        internal = parts.internal_parts(tmp_path, queue=parts.NoQueue(), WHATSAPP_ACCESS_TOKEN="of-today")
        store = internal.store.port
        if refused:
            put_marks(store, refused=RefusedCredential(refused, 190, PAST))
        if blocked == "by receipt":  # which the next send makes a block of
            store.note_receipt_block(sender_id("meta", parts.SENDER), ReceiptBlock(131042, PAST))
        elif blocked:  # its time is over, and nobody knows yet whether it may send again
            put_marks(store, blocked, block=Block(PAST, timedelta(minutes=10), 368))
        assert sweep(create_app(internal.parts).test_client())[0] == 200
        store.close()
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "sender_checked"]
    assert (line["connected"], line.get("reason"), line["severity"]) == (
        connected,
        reason,
        "INFO" if connected else "WARNING",
    )
    assert (line["phone_number_id"], line["tenant"]) == (parts.SENDER, "default")


def test_a_sweep_deletes_what_has_expired_where_the_store_does_not(
    client: FlaskClient, internal: InternalParts
) -> None:
    put(internal, an_event(1, **ended(State.DONE, expire_at=NOW)), an_event(2, **ended(State.DONE, expire_at=FUTURE)))
    assert sweep(client)[0] == 200
    assert internal.store.port.get(an_event(1).key) is None
    assert internal.store.port.get(an_event(2).key) is not None


class Registry(EnvironmentTenants):
    """Every tenant has the pair of queues 7, unless the registry is down or the tenant's entry cannot be read."""

    is_down = False
    unreadable = ""

    def tenant(self, id: str) -> Tenant | None:
        if self.is_down:
            raise RegistryUnavailable
        if id == self.unreadable:
            raise RegistryUnreadable
        return Tenant(id, queue=7)


@pytest.fixture
def registry(internal: InternalParts) -> Registry:
    registry = Registry(())
    dispatch = replace(internal.parts.sweep.dispatch, tenants=registry)
    internal.parts = replace(internal.parts, sweep=replace(internal.parts.sweep, dispatch=dispatch))
    return registry


@pytest.mark.usefixtures("registry")
def test_swept_tasks_go_to_the_pair_of_their_tenant(internal: InternalParts, client: FlaskClient) -> None:
    put(internal, an_event(sweep_at=PAST), a_reply(sweep_at=PAST))
    assert sweep(client)[0] == 200
    assert [task.pair for task in ensured(internal)] == [7, 7]


def test_a_sweep_without_the_registry_reports_and_answers_503(
    internal: InternalParts, registry: Registry, client: FlaskClient, capfd: pytest.CaptureFixture[str]
) -> None:
    put_many(internal, MISSED_AT_MOST + 2)
    registry.is_down = True
    status, body = sweep(client)
    assert (status, body) == (503, {"error": "registry_unavailable"})
    assert ensured(internal) == []
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == "swept"]
    assert (line["missed"], line["enqueued"]) == (MISSED_AT_MOST, 0)


def test_records_of_a_tenant_that_cannot_be_read_keep_the_sweep_from_no_other(
    internal: InternalParts, registry: Registry, client: FlaskClient
) -> None:
    registry.unreadable = "broken"
    put(
        internal,
        *(an_event(number, tenant="broken", sweep_at=PAST) for number in range(MISSED_AT_MOST + 2)),
        an_event(90, sweep_at=NOW),
    )
    assert sweep(client)[0] == 200
    assert [task.key for task in ensured(internal)] == [an_event(90).key]
