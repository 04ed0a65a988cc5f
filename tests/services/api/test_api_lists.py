"""GET /v1/messages: which messages, in which order, page by page."""

import json
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.api.lists import encoded
from shared.domain.errors import StoreUnavailable
from shared.domain.record import Delivery, State
from shared.domain.tenants import Scope
from shared.operations.history import READS
from tests.support.api_service import ApiService, ids, problem
from tests.support.parts import NOW, a_reply, an_event, step

PATH = "/v1/messages"


@pytest.fixture
def six(api: ApiService) -> list[Delivery]:
    """Six records of tenant default, the newest first: events and messages in turn."""
    made = [
        (an_event if number % 2 else a_reply)(number, received_at=NOW + timedelta(seconds=number))
        for number in range(6)
    ]
    for record in made:
        api.store.port.create(record)
    return made[::-1]


def keys(records: list[Delivery]) -> list[str]:
    return [record.key for record in records]


def listed(api: ApiService, query: str = "", key: str | None = None) -> Any:
    answer = api.call("GET", f"{PATH}?{query}", key=key)
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def test_messages_of_both_directions_come_newest_first(api: ApiService, six: list[Delivery]) -> None:
    found = listed(api)
    assert (ids(found["items"]), found["next"]) == (keys(six), None)
    assert [one["direction"] for one in found["items"]] == ["inbound", "outbound"] * 3
    assert found["items"][0]["content"]["text"] == {"body": "hello 5"}
    assert "timeline" not in found["items"][0]


def test_page_has_50_messages_unless_the_caller_wants_another_number(api: ApiService) -> None:
    for number in range(51):
        api.store.port.create(a_reply(number, received_at=NOW + timedelta(seconds=number)))
    assert len(listed(api)["items"]) == 50


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_pages_give_each_message_once(api: ApiService, six: list[Delivery], limit: int) -> None:
    key, found, cursor = api.key(), list[str](), ""
    while True:
        page = listed(api, f"limit={limit}{cursor}", key)
        assert len(page["items"]) <= limit
        found += ids(page["items"])
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == keys(six)


def test_filters_select_by_time_state_and_direction(api: ApiService, six: list[Delivery]) -> None:
    dead = replace(six[1], state=State.DEAD, reason="permanent")
    api.store.port.change(dead.key, lambda _: step(dead))
    key = api.key()
    second, fourth = ((NOW + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ") for number in (1, 3))
    assert ids(listed(api, f"since={fourth}", key)["items"]) == keys(six[:3])
    assert ids(listed(api, f"until={second}", key)["items"]) == keys(six[4:])
    assert ids(listed(api, f"since={second}&until={fourth}", key)["items"]) == keys(six[2:5])
    assert ids(listed(api, f"since={fourth}&until={fourth}", key)["items"]) == keys(six[2:3])
    assert ids(listed(api, "direction=outbound", key)["items"]) == keys(six[1::2])
    assert ids(listed(api, "state=dead", key)["items"]) == [dead.key]
    assert ids(listed(api, "state=dead&direction=inbound", key)["items"]) == []


def test_filter_that_few_match_costs_a_bounded_number_of_reads(api: ApiService) -> None:
    """A page may be short, even empty, and not the last."""
    for number in range(3 * READS):
        api.store.port.create(a_reply(number, received_at=NOW + timedelta(seconds=number)))
    key = api.key()
    api.store.calls.clear()
    page = listed(api, "state=done&limit=1", key)
    assert (page["items"], page["next"] is None) == ([], False)
    assert len(api.store.asked("history")) == READS
    again = listed(api, f"state=pending&limit=1&cursor={page['next']}", key)
    assert len(again["items"]) == 1


def test_page_reads_on_until_it_is_full(api: ApiService, six: list[Delivery]) -> None:
    page = listed(api, "direction=outbound&limit=2")
    assert ids(page["items"]) == keys(six[1:4:2])
    assert len(api.store.asked("history")) > 1


def test_page_is_one_read_of_the_store(api: ApiService, six: list[Delivery]) -> None:
    key = api.key()
    listed(api, "", key)
    api.store.calls.clear()
    listed(api, "", key)
    assert [call[0] for call in api.store.calls] == ["history"]


def test_tenants_key_lists_its_own_alone(api: ApiService, six: list[Delivery]) -> None:
    api.tenant("bakery", "201")
    key = api.key("bakery")
    assert listed(api, "", key) == {"items": [], "next": None}
    assert listed(api, "tenant=bakery", key) == {"items": [], "next": None}
    for other in ("default", "nobody"):
        assert problem(api.call("GET", f"{PATH}?tenant={other}", key=key)) == (404, "NOT_FOUND", None)


def test_operator_names_the_tenant(api: ApiService, six: list[Delivery]) -> None:
    key = api.key(None)
    assert ids(listed(api, "tenant=default", key)["items"]) == keys(six)
    assert problem(api.call("GET", PATH, key=key)) == (400, "INVALID_REQUEST", "tenant")
    assert problem(api.call("GET", f"{PATH}?tenant=nobody", key=key)) == (404, "NOT_FOUND", "tenant")


@pytest.mark.parametrize(
    ("field", "query"),
    [
        *(("limit", f"limit={limit}") for limit in ("0", "101", "x", "-1", "")),
        *(("cursor", f"cursor={cursor}") for cursor in ("x", "W10", "bnVsbA", "WyIyMDI2IiwieCJd", "%00", "x" * 300)),
        ("cursor", f"cursor={encoded((NOW.replace(tzinfo=None).isoformat(), 'a'))}"),
        ("cursor", f"cursor={b64encode(json.dumps([NOW.isoformat(), 'a'], indent=300).encode()).decode()}"),
        ("since", "since=yesterday"),
        ("until", "until=1"),
        ("since", "since=2026-03-02T00:00:00Z&until=2026-03-01T00:00:00Z"),
        ("since", "since=0001-01-01T00:00:00%2B23:59"),
        ("until", "until=9999-12-31T23:59:59-23:59"),
        ("state", "state=sent"),
        ("direction", "direction=up"),
        ("tenant", "tenant=B%20"),
        ("status", "status=dead"),
    ],
)
def test_bad_parameter_is_named(api: ApiService, field: str, query: str) -> None:
    assert problem(api.call("GET", f"{PATH}?{query}")) == (400, "INVALID_REQUEST", field)


def test_list_needs_the_scope_read(api: ApiService) -> None:
    assert problem(api.call("GET", PATH, key=api.key("default", Scope.SEND))) == (403, "FORBIDDEN", None)


def test_store_that_is_away_is_a_503(api: ApiService) -> None:
    api.is_down(api.store, StoreUnavailable(), "history")
    assert problem(api.call("GET", PATH)) == (503, "UNAVAILABLE", None)


def test_event_of_the_doctor_is_no_message(api: ApiService) -> None:
    api.store.port.create(an_event(1, key="doctor"))
    assert listed(api)["items"] == []
