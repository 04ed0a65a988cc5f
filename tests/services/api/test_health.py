"""The health routes: what they count and judge, who may ask for what, and what they say while the store is away."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.api.cached import Cached
from services.api.health_routes import FRESH_SECONDS, NO_STORE
from shared.domain.counters import WHOLE, Cell, Measure, ProcessCounters, bucket_of, window_of
from shared.domain.errors import QueueUnavailable, StoreUnavailable
from shared.domain.marks import Credential, Disconnected, Outage, RefusedCredential
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.tenants import Scope, Sender
from tests.support.api_service import NO_KEY, ApiService, ids, problem
from tests.support.parts import SENDER

WHATSAPP, DETAILED, DLQ, ADMIN = (
    "/health/whatsapp",
    "/health/whatsapp/detailed",
    "/health/whatsapp/dlq",
    "/v1/admin/health",
)
OURS = Sender("default", "meta", SENDER)


def put(api: ApiService, count: int = 1, **changes: Any) -> list[Delivery]:
    """Records of tenant default, unless the changes say otherwise: messages that wait since a minute."""
    now = api.clock.now()
    made = []
    for number in range(count):
        record = Delivery(
            key=f"{api.clock.token()}{number:08x}",
            kind=Kind.OUTBOUND,
            provider="meta",
            tenant="default",
            sender=SENDER,
            contact="15550002222",
            correlation_id="corr_0001",
            state=State.PENDING,
            received_at=now - timedelta(seconds=60),
            payload={"type": "text", "content": {"body": "Your appointment is tomorrow at 9."}},
        )
        made.append(replace(record, **changes))
        api.store.port.create(made[-1])
    return made


def mark(api: ApiService, sender: Sender, **marks: Any) -> None:
    api.store.port.change_marks(sender.id, lambda before: replace(before, **marks))


def ask(api: ApiService, path: str, key: str = NO_KEY, **query: Any) -> dict[str, Any]:
    answer = api.call("GET", path, key=key, query_string=query)
    assert answer.status_code == 200, answer.get_json()
    body: dict[str, Any] = answer.get_json()
    return body


# ---- for anyone


def test_health_has_its_names_and_needs_no_key(api: ApiService) -> None:
    put(api, 5)
    put(api, 2, state=State.DEAD)
    assert ask(api, WHATSAPP) == {
        "status": "healthy",
        "queue_depth": 5,
        "dlq_depth": 2,
        "connected": True,
        "details": {"instance": OURS.id, "queue_high_water_mark": 100, "queue_critical_mark": 1000},
    }


@pytest.mark.parametrize(
    ("depth", "status"),
    [(0, "healthy"), (100, "healthy"), (101, "degraded"), (150, "degraded"), (1000, "degraded"), (1001, "unhealthy")],
)
def test_status_follows_the_queue_depth(api: ApiService, depth: int, status: str) -> None:
    put(api, depth)
    found = ask(api, WHATSAPP)
    assert (found["queue_depth"], found["status"]) == (depth, status)


def test_queue_holds_open_events_and_messages_without_those_for_later(api: ApiService) -> None:
    for state in (State.PENDING, State.LEASED, State.IN_DOUBT):
        put(api, state=state)
    for state in (State.PENDING, State.LEASED):
        put(api, kind=Kind.INBOUND, state=state)
    for state in (State.DONE, State.DROPPED, State.DEAD):
        put(api, state=state)
    put(api, send_at=api.clock.now() + timedelta(seconds=1))
    put(api, send_at=api.clock.now())
    assert ask(api, WHATSAPP)["queue_depth"] == 6


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        (
            {"disconnected": Disconnected("PARTNER_REMOVED", datetime.fromisoformat("2026-03-01T00:00Z"))},
            "disconnected",
        ),
        ({"refused": "f1", "credential": "f1"}, "needs_reauth"),
        ({"refused": "f1", "credential": "f2"}, None),
        ({"down": timedelta(seconds=10)}, "provider_down"),
    ],
)
def test_disconnected_number_degrades_the_health_with_its_reason(
    api: ApiService, marks: dict[str, Any], reason: str | None
) -> None:
    now = api.clock.now()
    as_mark = {"refused": lambda it: RefusedCredential(it, 190, now), "credential": lambda it: Credential(it, now)}
    as_mark["down"] = lambda it: Outage(now + it, it)
    mark(api, OURS, **{name: as_mark.get(name, lambda it: it)(value) for name, value in marks.items()})
    found = ask(api, DETAILED, api.key())
    assert (found["connected"], found["status"]) == ((True, "healthy") if reason is None else (False, "degraded"))
    assert [(one["connected"], one["reason"]) for one in found["senders"]] == [(reason is None, reason)]
    assert ask(api, WHATSAPP)["connected"] is found["connected"]


def test_number_in_trouble_of_another_tenant_does_not_degrade_the_deployment(api: ApiService) -> None:
    (theirs,) = api.tenant("acme", "200000000000001")
    mark(api, theirs, refused=RefusedCredential("", 190, api.clock.now()))
    assert ask(api, WHATSAPP)["status"] == "healthy"
    found = ask(api, DETAILED, api.key(None))
    assert (found["status"], found["connected"]) == ("healthy", True)
    assert {one["sender"]: one["reason"] for one in found["senders"]} == {OURS.id: None, theirs.id: "needs_reauth"}
    its = ask(api, DETAILED, api.key(None), tenant="acme")
    assert (its["status"], its["connected"], its["details"]["instance"]) == ("degraded", False, theirs.id)


def test_tenant_without_a_number_is_not_connected(api: ApiService) -> None:
    api.tenant("acme")
    found = ask(api, DETAILED, api.key("acme"))
    assert (found["connected"], found["status"], found["senders"]) == (False, "degraded", [])
    assert found["details"]["instance"] == ""


def test_unreachable_store_is_unhealthy_and_still_200(api: ApiService) -> None:
    key = api.key()
    ask(api, DETAILED, key)
    api.is_down(api.store, StoreUnavailable(), "load", "marks")
    for path, given in ((WHATSAPP, NO_KEY), (DETAILED, key)):
        found = ask(api, path, given)
        assert (found["status"], found["error"]) == ("unhealthy", NO_STORE)
        assert (found["queue_depth"], found["dlq_depth"], found["connected"]) == (None, None, None)
        assert found["details"] == {"instance": "", "queue_high_water_mark": 100, "queue_critical_mark": 1000}


@pytest.mark.parametrize("path", [DLQ, ADMIN])
def test_unreachable_store_is_503_where_only_the_store_knows(api: ApiService, path: str) -> None:
    key = api.key()
    ask(api, path, key)
    api.is_down(api.store, StoreUnavailable(), "load", "listed")
    answer = api.call("GET", path, key=key)
    assert problem(answer) == (503, "UNAVAILABLE", None)
    assert answer.headers["Retry-After"] == "5"


def test_health_for_anyone_is_read_once_in_ten_seconds(api: ApiService) -> None:
    ask(api, WHATSAPP)
    put(api, 3)
    api.clock.go(9.9)
    assert ask(api, WHATSAPP)["queue_depth"] == 0
    assert len(api.store.asked("load")) == 1
    api.clock.go(0.1)
    assert ask(api, WHATSAPP)["queue_depth"] == 3
    assert len(api.store.asked("load")) == 2


def test_unreachable_store_is_asked_once_in_ten_seconds_too(api: ApiService) -> None:
    api.is_down(api.store, StoreUnavailable(), "load")
    for _ in range(5):
        assert ask(api, WHATSAPP)["status"] == "unhealthy"
    assert len(api.store.asked("load")) == 1


def test_callers_at_the_same_time_share_one_reading() -> None:
    reads, may_go = [], threading.Event()

    def read() -> int:
        reads.append(1)
        assert may_go.wait(10)
        return len(reads)

    cached, found = Cached(read, FRESH_SECONDS, lambda: 0.0), list[int]()
    threads = [threading.Thread(target=lambda: found.append(cached())) for _ in range(8)]
    for thread in threads:
        thread.start()
    may_go.set()
    for thread in threads:
        thread.join(10)
    assert (found, reads) == ([1] * 8, [1])


# ---- with a key


@pytest.mark.parametrize("path", [DETAILED, DLQ, ADMIN])
def test_everything_but_the_short_health_needs_a_key_with_scope_read(api: ApiService, path: str) -> None:
    assert problem(api.call("GET", path, key=NO_KEY))[:2] == (401, "UNAUTHORIZED")
    others = [scope for scope in Scope if scope is not Scope.READ]
    assert problem(api.call("GET", path, key=api.key("default", *others)))[:2] == (403, "FORBIDDEN")
    ask(api, path, api.key("default", Scope.READ))


@pytest.mark.parametrize("path", [DETAILED, DLQ, ADMIN])
def test_tenant_key_is_for_its_own_health_alone(api: ApiService, path: str) -> None:
    api.tenant("acme", "200000000000001")
    key = api.key("acme")
    assert problem(api.call("GET", path, key=key, query_string={"tenant": "default"}))[:2] == (404, "NOT_FOUND")
    assert ask(api, path, key, tenant="acme") == ask(api, path, key)


@pytest.mark.parametrize("path", [DETAILED, DLQ, ADMIN])
@pytest.mark.parametrize("tenant", ["nobody", "No-Such", "\0", "a" * 64])
def test_operator_who_asks_for_no_tenant_gets_404(api: ApiService, path: str, tenant: str) -> None:
    answer = api.call("GET", path, key=api.key(None), query_string={"tenant": tenant})
    assert problem(answer)[:2] == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", [DETAILED, DLQ, ADMIN])
@pytest.mark.parametrize("tenant", ["", "a" * 65])
def test_tenant_of_another_form_is_an_invalid_request(api: ApiService, path: str, tenant: str) -> None:
    answer = api.call("GET", path, key=api.key(None), query_string={"tenant": tenant})
    assert problem(answer) == (400, "INVALID_REQUEST", "tenant")


def test_detailed_health_of_a_tenant_counts_nothing_of_others(api: ApiService) -> None:
    (theirs,) = api.tenant("acme", "200000000000001")
    put(api, 150)
    put(api, 4, tenant="acme", received_at=api.clock.now() - timedelta(seconds=7.5))
    put(api, 1, tenant="acme", send_at=api.clock.now() + timedelta(days=1))
    put(api, 2, tenant="acme", kind=Kind.INBOUND)
    put(api, 3, tenant="acme", state=State.DEAD)
    found = ask(api, DETAILED, api.key("acme"))
    assert found == {
        "status": "healthy",
        "queue_depth": 6,
        "dlq_depth": 3,
        "connected": True,
        "details": {"instance": theirs.id, "queue_high_water_mark": 100, "queue_critical_mark": 1000},
        "webhook_events_pending_count": 2,
        "outbox_pending_count": 5,
        "scheduled_count": 1,
        "oldest_pending_seconds": 60.0,
        "senders": [{"sender": theirs.id, "tenant": "acme", "provider": "meta", "connected": True, "reason": None}],
    }
    whole = ask(api, DETAILED, api.key(None))
    assert (whole["queue_depth"], whole["dlq_depth"], whole["status"]) == (156, 3, "degraded")


# ---- dead letters


def dead(api: ApiService, seconds: float, **changes: Any) -> Delivery:
    at = api.clock.now() - timedelta(seconds=seconds)
    attempts = (Attempt(at, 8, "retry", 131000),)
    given = {"state": State.DEAD, "reason": "attempts", "attempt": 8, "finished_at": at, "attempts_log": attempts}
    (record,) = put(api, **given | changes)
    return record


def test_dead_letters_come_newest_first_with_their_error_and_attempts(api: ApiService) -> None:
    old, new = dead(api, 60), dead(api, 1, doubts=1)
    dead(api, 600)
    found = ask(api, DLQ, api.key("default", Scope.READ), limit=2)
    assert (found["dlq_depth"], ids(found["items"])) == (3, [new.key, old.key])
    shown = found["items"][1]
    assert datetime.fromisoformat(shown.pop("dead_at")) == old.finished_at
    assert shown == {
        "id": old.key,
        "tenant": "default",
        "direction": "outbound",
        "correlation_id": "corr_0001",
        "error": "attempts",
        "code": 131000,
        "attempts": 8,
        "replay": "again",
    }
    assert found["items"][0]["replay"] == "may_double"


def test_previews_need_the_scope_dead_read(api: ApiService) -> None:
    body, error = "An appointment. " * 20, "ValueError: no such doctor"
    dead(api, 3, payload={"type": "text", "content": {"body": body}}, last_error=error)
    item = {"item": {"from": "15550002222", "id": "wamid.1", "timestamp": "1772366400", "type": "text"}}
    item["item"]["text"] = {"body": "Is the table free?"}  # type: ignore[assignment]
    dead(api, 2, kind=Kind.INBOUND, payload={"field": "messages", "phone_number_id": SENDER, **item})
    dead(api, 1, payload={"type": "image", "content": {"id": "1"}})
    dead(api, 0, kind=Kind.INBOUND, payload={"field": "messages", "unparsable": "…"}, reason="unparsable")

    shown = ask(api, DLQ, api.key("default", Scope.READ, Scope.READ_DEAD))["items"]
    assert [one["preview"] for one in shown] == [None, None, "Is the table free?", body[:200]]
    assert [one["last_error"] for one in shown] == [None, None, None, error]
    hidden = ask(api, DLQ, api.key("default", Scope.READ))["items"]
    assert not any({"preview", "last_error"} & set(one) for one in hidden)
    assert [one | {"preview": 0, "last_error": 0} for one in hidden] == [
        one | {"preview": 0, "last_error": 0} for one in shown
    ]


def test_dead_letters_of_a_tenant_are_its_own(api: ApiService) -> None:
    api.tenant("acme")
    ours, theirs = dead(api, 1), dead(api, 2, tenant="acme")
    for key, query, letters in (
        (api.key("acme"), {}, [theirs]),
        (api.key(), {}, [ours]),
        (api.key(None), {}, [ours, theirs]),
        (api.key(None), {"tenant": "acme"}, [theirs]),
    ):
        found = ask(api, DLQ, key, **query)
        assert (ids(found["items"]), found["dlq_depth"]) == ([one.key for one in letters], len(letters))


@pytest.mark.parametrize("limit", ["0", "101", "-1", "many", ""])
def test_limit_of_dead_letters_out_of_bounds_is_invalid(api: ApiService, limit: str) -> None:
    answer = api.call("GET", DLQ, key=api.key(), query_string={"limit": limit})
    assert problem(answer) == (400, "INVALID_REQUEST", "limit")


def test_dead_letters_cost_a_bounded_number_of_reads(api: ApiService) -> None:
    put(api, 1050, state=State.DEAD, reason="attempts")
    api.store.calls.clear()
    found = ask(api, DLQ, api.key("default", Scope.READ), limit=100)
    assert (len(found["items"]), found["dlq_depth"]) == (100, 1050)
    assert len(api.store.asked("listed")) == 10
    assert api.store.asked("get") == []


# ---- the last hour


def counted(api: ApiService, process: str, tenant: str, minutes: float = 0, **counts: Sequence[float] | int) -> None:
    """Counters of a process, for the tenant and the whole: counts, and times in seconds, some minutes ago."""
    now = api.clock.now()
    cells: dict[Cell, int] = {}
    for name, value in counts.items():
        buckets = [0] * value if isinstance(value, int) else [bucket_of(seconds) for seconds in value]
        for each in (tenant, WHOLE):
            for bucket in buckets:
                cell = Cell(window_of(now - timedelta(minutes=minutes)), each, Measure(name), bucket)
                cells[cell] = cells.get(cell, 0) + 1
    api.store.port.keep_counters(ProcessCounters(process, now - timedelta(minutes=minutes), cells))


def test_admin_health_has_its_names_and_figures(api: ApiService) -> None:
    put(api, 3)
    put(api, 1, send_at=api.clock.now() + timedelta(hours=1))
    put(api, 2, state=State.DEAD)
    put(api, 4, kind=Kind.INBOUND, received_at=api.clock.now() - timedelta(seconds=90))
    put(api, 1, kind=Kind.INBOUND, state=State.DEAD)
    counted(api, "internal", "default", sent=3, failed=1, send_time=[0.5, 0.5, 2.0])
    counted(api, "webhook", "default", webhook_time=[0.02] * 30)
    found = ask(api, ADMIN, api.key(None))
    (its,) = found.pop("tenants")
    assert its.pop("tenant") == "default"
    assert its == {name: found[name] for name in its}
    assert found.pop("send_p95_ms") == pytest.approx(2000, rel=0.09)
    assert found.pop("webhook_p95_ms") == pytest.approx(20, rel=0.09)
    assert found == {
        "webhook_events_pending_count": 4,
        "webhook_events_failed_count": 1,
        "outbox_pending_count": 4,
        "outbox_failed_count": 2,
        "scheduled_count": 1,
        "oldest_pending_seconds": 90.0,
        "sent_last_1h": 3,
        "failed_last_1h": 1,
        "send_success_rate_last_1h": 0.75,
    }


def test_figures_are_the_sum_of_all_processes_within_the_last_hour(api: ApiService) -> None:
    counted(api, "one", "default", sent=10)
    counted(api, "two", "default", minutes=59, sent=20)
    counted(api, "gone", "default", minutes=71, sent=400)
    assert ask(api, ADMIN, api.key())["sent_last_1h"] == 30


def test_figures_of_a_tenant_are_its_own(api: ApiService) -> None:
    api.tenant("acme")
    put(api, 7)
    counted(api, "one", "default", sent=1, failed=1, webhook_time=[1.0])
    counted(api, "two", "acme", sent=3)
    its = ask(api, ADMIN, api.key("acme"))
    assert (its["sent_last_1h"], its["send_success_rate_last_1h"], its["webhook_p95_ms"]) == (3, 1.0, None)
    assert (its["outbox_pending_count"], [one["tenant"] for one in its["tenants"]]) == (0, ["acme"])
    assert ask(api, ADMIN, api.key(None), tenant="acme") == its
    whole = ask(api, ADMIN, api.key(None))
    assert (whole["sent_last_1h"], whole["send_success_rate_last_1h"]) == (4, 0.8)
    assert [one["tenant"] for one in whole["tenants"]] == ["acme", "default"]


def test_hour_without_a_message_has_no_rate_and_no_percentile(api: ApiService) -> None:
    api.tenant("quiet")
    for key in (api.key(None), api.key("quiet")):
        found = ask(api, ADMIN, key)
        assert (found["sent_last_1h"], found["failed_last_1h"], found["tenants"]) == (0, 0, [])
        for name in ("send_success_rate_last_1h", "send_p95_ms", "webhook_p95_ms"):
            assert found[name] is None
        assert found["oldest_pending_seconds"] == 0


@pytest.mark.parametrize(
    ("away", "statuses"),
    [("store", {"/livez": 200, "/startz": 503, "/readyz": 503}), ("queue", {"/startz": 200, "/readyz": 503})],
)
def test_probe_fails_while_what_it_asks_is_away(api: ApiService, away: str, statuses: dict[str, int]) -> None:
    api.is_down(getattr(api, away), StoreUnavailable() if away == "store" else QueueUnavailable())
    assert {path: api.call("GET", path, key=NO_KEY).status_code for path in statuses} == statuses
    whole = api.call("GET", "/health", key=NO_KEY)
    assert (whole.status_code, whole.get_json()["services"][away]) == (200, "unavailable")


@pytest.mark.parametrize("path", ["/startz", "/readyz", "/health"])
def test_flood_of_probes_pings_the_store_and_the_queue_once_a_second(api: ApiService, path: str) -> None:
    pings = [1, 0] if path == "/startz" else [1, 1]
    for _ in range(2):
        for port in (api.store, api.queue):
            port.calls.clear()
        api.clock.go(1)
        assert {api.call("GET", path, key=NO_KEY).status_code for _ in range(20)} == {200}
        assert [len(port.asked("ping")) for port in (api.store, api.queue)] == pings
