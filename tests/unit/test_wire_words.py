"""Meta's words, and a few more that only a list holds: one that changed by mistake would go unnoticed."""

import logging
from datetime import timedelta

import pytest

from shared import logs
from shared.channels.meta import changes, other_fields
from shared.channels.meta.codes import UNKNOWN
from shared.config import API, CLI, INTERNAL, WEBHOOK, ConfigError, load
from shared.net.grpc_client import OPTIONS
from shared.pipeline.clock import SystemClock

OF_ACCOUNTS = """
account_alerts account_review_update account_settings_update account_update business_capability_update
business_username_update business_username_updates flows message_template_components_update
message_template_quality_update message_template_status_update partner_solutions payment_configuration_update
phone_number_name_update phone_number_quality_update security template_category_update
template_correct_category_detection
"""
OF_NUMBERS = """
automatic_events calls group_lifecycle_update group_participants_update group_settings_update group_status_update
history messaging_handovers smb_app_state_sync smb_message_echoes standby user_id_update user_preferences
"""


def test_every_field_of_metas_webhooks_is_known() -> None:
    assert set(OF_ACCOUNTS.split()) == other_fields.ACCOUNT_FIELDS
    assert set(OF_NUMBERS.split()) == other_fields.SENDER_FIELDS


def test_every_event_that_connects_or_disconnects_an_account_is_known() -> None:
    assert {"PARTNER_ADDED", "PARTNER_APP_INSTALLED", "ACCOUNT_RECONNECTED"} == changes.CONNECTING
    assert {
        "PARTNER_REMOVED",
        "PARTNER_APP_UNINSTALLED",
        "ACCOUNT_OFFBOARDED",
        "ACCOUNT_DELETED",
    } == changes.DISCONNECTING


def test_codes_that_are_not_known_concern_the_message_or_the_provider() -> None:
    assert {error.__name__: meaning.scope for error, meaning in UNKNOWN.items()} == {
        "TryLater": "message",
        "SendRefused": "message",
        "AnswerLost": "provider",
    }


def test_the_services_of_the_configuration_have_their_names() -> None:
    assert (WEBHOOK, API, INTERNAL, CLI) == ("webhook", "api", "internal", "cli")


@pytest.mark.parametrize(
    ("name", "value", "said"), [("SWEEP_AFTER", "0s", "from 1s to"), ("MESSAGE_MAX_AGE", "1s", "to 30d")]
)
def test_duration_out_of_range_is_reported_in_common_units(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load({name: value}, INTERNAL)


def test_jitter_is_a_number_from_0_to_1_and_never_twice_the_same() -> None:
    seen = [SystemClock().jitter() for _ in range(50)]
    assert all(0 <= jitter <= 1 for jitter in seen)
    assert len(set(seen)) > 40


def test_a_silent_google_connection_is_looked_at_every_half_minute() -> None:
    assert dict(OPTIONS)["grpc.keepalive_time_ms"] == 30_000
    assert dict(OPTIONS)["grpc.use_local_subchannel_pool"] == 1


def test_an_event_without_a_severity_is_information(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pombo")
    logs.event("started", stage="webhook", pid=1)
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_clock_sleeps_for_the_given_time() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.02)
    assert timedelta(seconds=clock.monotonic() - before) >= timedelta(milliseconds=19)
