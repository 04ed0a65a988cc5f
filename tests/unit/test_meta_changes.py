"""What the other fields change about our own state, and that all the rest stays as it came."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.channels.meta.changes import _READERS, CONNECTING, DISCONNECTING, changes_in, contact_change, state_changes
from shared.channels.meta.other_fields import ACCOUNT_FIELDS, OTHER_FIELDS, STATE_FIELDS
from shared.channels.meta.webhook import parse
from shared.domain.events import Change, Event, Unparsable
from shared.domain.state_changes import (
    AccountBanned,
    AccountConnected,
    AccountDisconnected,
    AccountReinstated,
    AccountRestricted,
    ContactChanged,
    MarketingPreferenceChanged,
    NumberLimitChanged,
    StateChange,
    TemplateStatusChanged,
)
from tests.unit.test_meta_kinds import received
from tests.unit.test_meta_parse import RECORDED, envelope, stored

ACCOUNT = "300000000000001"


def account_update(**value: Any) -> tuple[StateChange, ...]:
    return state_changes(ACCOUNT, "account_update", value)


def events_of(name: str) -> tuple[Event, ...]:
    return parse(json.dumps(RECORDED[name]["body"]).encode()).events


def test_each_state_field_has_a_reader() -> None:
    assert _READERS.keys() == STATE_FIELDS


# ---- over all that was recorded

SAID: dict[str, list[StateChange]] = {
    "change_account_update": [AccountDisconnected("100000000000001", "PARTNER_REMOVED")],
    "change_partner_without_entry_id": [AccountDisconnected("100000000000002", "PARTNER_REMOVED")],
    "change_ban_lifted": [AccountReinstated("100000000000001")],
}


@pytest.mark.parametrize("name", RECORDED)
def test_only_known_recorded_changes_alter_our_state(name: str) -> None:
    """Everything else stays Change(field, value), an error of the number and a message among it."""
    changes = [change for event in _records(name) for change in changes_in(stored(event))]
    templates = [change for change in changes if isinstance(change, TemplateStatusChanged)]
    assert [change for change in changes if change not in templates] == SAID.get(name, [])
    assert bool(templates) == (name == "change_template")


def _records(name: str) -> Iterator[Event]:
    return (event for event in events_of(name) if hasattr(event, "key"))


# ---- the account


@pytest.mark.parametrize("event", sorted(DISCONNECTING))
def test_removed_account_is_disconnected(event: str) -> None:
    assert account_update(event=event) == (AccountDisconnected(ACCOUNT, event),)
    reason = {"reason": "PRIMARY_INACTIVITY", "initiated_by": "SYSTEM"}
    assert account_update(event=event, disconnection_info=reason) == (
        AccountDisconnected(ACCOUNT, event, "PRIMARY_INACTIVITY"),
    )


@pytest.mark.parametrize("event", sorted(CONNECTING))
def test_an_account_that_comes_back_is_connected(event: str) -> None:
    assert account_update(event=event) == (AccountConnected(ACCOUNT, event),)


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("DISABLE", AccountBanned(ACCOUNT, scheduled=False, since="May 1, 2026")),
        ("SCHEDULE_FOR_DISABLE", AccountBanned(ACCOUNT, scheduled=True, since="May 1, 2026")),
        ("REINSTATE", AccountReinstated(ACCOUNT)),
        ("NONE", None),
        (["DISABLE"], None),
    ],
)
def test_a_ban_comes_as_an_object_or_as_a_list_of_one(state: Any, expected: StateChange | None, as_list: bool) -> None:
    info = {"waba_ban_state": state, "waba_ban_date": "May 1, 2026"}
    found = account_update(event="DISABLED_UPDATE", ban_info=[info] if as_list else info)
    assert found == ((expected,) if expected else ())


@pytest.mark.parametrize(
    ("expiration", "until"),
    [
        (1791021600, datetime(2026, 10, 3, 10, tzinfo=UTC)),
        ("1791021600", datetime(2026, 10, 3, 10, tzinfo=UTC)),
        ("2026-10-03T12:00:00+0200", datetime(2026, 10, 3, 10, tzinfo=UTC)),
        ("2026-10-03T10:00:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("soon", None),
        (None, None),
        ({}, None),
    ],
)
def test_each_restriction_has_its_end(expiration: Any, until: datetime | None) -> None:
    one = {"restriction_type": "RESTRICTED_BIZ_INITIATED_MESSAGING", "expiration": expiration}
    found = account_update(event="ACCOUNT_RESTRICTION", restriction_info=[one, {"restriction_type": None}, 7])
    assert found == (AccountRestricted(ACCOUNT, "RESTRICTED_BIZ_INITIATED_MESSAGING", until),)


@pytest.mark.parametrize("event", ["ACCOUNT_VIOLATION", "MM_LITE_TERMS_SIGNED", "partner_removed", "", None, 7, ["x"]])
def test_other_account_event_changes_nothing(event: Any) -> None:
    assert account_update(event=event, violation_info={"violation_type": "SPAM"}) == ()


@pytest.mark.parametrize("field", sorted(OTHER_FIELDS))
def test_news_are_of_the_account_of_the_entry(field: str) -> None:
    (event,) = parse(envelope({"event": "PARTNER_REMOVED"}, field, ACCOUNT)).events
    assert isinstance(event, Change)
    assert (event.account, event.field) == (ACCOUNT, field)


@pytest.mark.parametrize("portfolio", ["400000000000009", "", None, 7])
def test_news_of_a_partner_are_of_the_account_that_the_value_names(portfolio: Any) -> None:
    """In these `entry.id` is a business portfolio."""
    value = {"event": "PARTNER_REMOVED", "waba_info": {"waba_id": ACCOUNT, "owner_business_id": "4"}}
    (event,) = parse(envelope(value, "account_update", portfolio)).events
    assert isinstance(event, Change)
    assert event.account == ACCOUNT
    assert changes_in(stored(event)) == (AccountDisconnected(ACCOUNT, "PARTNER_REMOVED"),)


@pytest.mark.parametrize("info", [None, [], "x", {}, {"waba_id": ""}, {"waba_id": 7}, {"waba_id": "9" * 2000}])
def test_where_the_value_names_no_account_the_entry_does(info: Any) -> None:
    (event,) = parse(envelope({"event": "PARTNER_REMOVED", "waba_info": info}, "account_update", ACCOUNT)).events
    assert isinstance(event, Change)
    assert event.account == ACCOUNT


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("PARTNER_APP_UNINSTALLED", AccountDisconnected(ACCOUNT, "PARTNER_APP_UNINSTALLED")),
        ("PARTNER_APP_INSTALLED", AccountConnected(ACCOUNT, "PARTNER_APP_INSTALLED")),
    ],
)
def test_an_update_whose_field_stands_inside_its_value_is_applied(event: str, expected: StateChange) -> None:
    """As Meta's page on account_update shows these two."""
    info = {"waba_id": ACCOUNT, "owner_business_id": "1"}
    value = {"event": event, "waba_info": info, "field": "account_update", "object": "whatsapp_business_account"}
    entry = {"id": "300000000000009", "time": 1790416800, "changes": [{"value": value}]}
    (change,) = parse(json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()).events
    assert isinstance(change, Change)
    assert (change.account, change.time) == (ACCOUNT, 1790416800)
    assert changes_in(stored(change)) == (expected,)


def test_a_username_of_the_business_is_news_under_both_names_of_its_field() -> None:
    value = {"display_phone_number": "15550001111", "username": "cafe.exemplo", "status": "approved"}
    for field in ("business_username_update", "business_username_updates"):
        (change,) = parse(envelope(value, field, ACCOUNT)).events
        assert isinstance(change, Change)
        assert (change.field, change.value, changes_in(stored(change))) == (field, value, ())
        assert field in ACCOUNT_FIELDS


def test_two_equal_news_of_an_account_at_two_times_are_two() -> None:
    def at(time: int) -> str:
        body = json.loads(envelope({"event": "ACCOUNT_RECONNECTED"}, "account_update", ACCOUNT))
        body["entry"][0]["time"] = time
        (event,) = parse(json.dumps(body).encode()).events
        assert isinstance(event, Change)
        return event.key

    assert at(1) == at(1) != at(2)
    assert "account_update" in ACCOUNT_FIELDS


# ---- the others


def test_a_template_has_its_number_as_a_text_and_no_reason_is_none() -> None:
    value = {"event": "APPROVED", "message_template_id": 5, "message_template_name": "n", "reason": "NONE"}
    approved = TemplateStatusChanged(ACCOUNT, "5", "n", "pt_BR", "APPROVED")
    value["message_template_language"] = "pt_BR"
    assert state_changes(ACCOUNT, "message_template_status_update", value) == (approved,)
    rejected = {"event": "REJECTED", "message_template_id": "5", "reason": "SCAM"}
    assert state_changes(ACCOUNT, "message_template_status_update", rejected) == (
        TemplateStatusChanged(ACCOUNT, "5", None, None, "REJECTED", "SCAM"),
    )


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ({"current_limit": "TIER_1K"}, "TIER_1K"),
        ({"current_limit": "TIER_1K", "max_daily_conversations_per_business": "TIER_10K"}, "TIER_10K"),
        ({"max_daily_conversations_per_business": 2000}, "2000"),
        ({}, None),
    ],
)
def test_both_names_of_a_number_limit_are_read(value: dict[str, Any], limit: str | None) -> None:
    value |= {"display_phone_number": "+15550001111", "event": "THROUGHPUT_UPGRADE"}
    assert state_changes(ACCOUNT, "phone_number_quality_update", value) == (
        NumberLimitChanged(ACCOUNT, "15550001111", "THROUGHPUT_UPGRADE", limit),
    )


@pytest.mark.parametrize(("word", "wants"), [("stop", False), ("resume", True), ("signup", True)])
def test_marketing_preference_of_a_contact_is_read(word: str, wants: bool) -> None:
    one = {"wa_id": "15550002222", "category": "marketing_messages", "value": word, "timestamp": 1791021600}
    at = datetime(2026, 10, 3, 10, tzinfo=UTC)
    value = {"user_preferences": [one, one | {"wa_id": "", "user_id": "US.1"}, one | {"wa_id": None}]}
    assert state_changes(ACCOUNT, "user_preferences", value) == (
        MarketingPreferenceChanged("15550002222", "15550002222", wants, at),
        MarketingPreferenceChanged("US.1", None, wants, at),
    )


@pytest.mark.parametrize("more", [{"value": "pause"}, {"category": "utility"}, {"value": ["stop"]}, {"category": None}])
def test_another_preference_changes_nothing(more: dict[str, Any]) -> None:
    one = {"wa_id": "15550002222", "category": "marketing_messages", "value": "stop"} | more
    assert state_changes(ACCOUNT, "user_preferences", {"user_preferences": [one]}) == ()


# ---- a person


def test_new_number_and_new_user_id_belong_to_the_same_contact() -> None:
    told = {"type": "user_changed_number", "wa_id": "15550003333", "user_id": "US.2", "previous_user_id": "US.1"}
    assert contact_change(received("system", told)) == ContactChanged("15550100001", "US.1", "15550003333", "US.2")
    alone = received("system", {"user_id": "US.2", "previous_user_id": "US.1"}, **{"from": ""})
    assert contact_change(alone) == ContactChanged(None, "US.1", None, "US.2")


@pytest.mark.parametrize(
    "told", [{"type": "customer_identity_changed"}, {"wa_id": "15550100001"}, {"previous_user_id": "US.1"}]
)
def test_system_message_about_no_other_contact_links_nothing(told: dict[str, Any]) -> None:
    assert contact_change(received("system", told)) is None


def test_text_links_no_contacts() -> None:
    assert contact_change(received("text", {"body": "x"})) is None


# ---- whatever comes

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["DISABLED_UPDATE", "REINSTATE", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["event", "ban_info", "waba_ban_state", "user_preferences", "value", "restriction_info"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(OTHER_FIELDS | {"messages", "surprise"})), _JSON)
def test_no_value_of_any_field_breaks_it(field: str, value: Any) -> None:
    for change in state_changes(ACCOUNT, field, value):
        assert isinstance(change, get_args(StateChange))


def test_change_too_large_to_store_changes_nothing() -> None:
    value = {"event": "ACCOUNT_RECONNECTED", "x": "x" * 300_000}
    (event,) = parse(envelope(value, "account_update", ACCOUNT)).events
    assert isinstance(event, Unparsable)
    assert changes_in(stored(event)) == ()
