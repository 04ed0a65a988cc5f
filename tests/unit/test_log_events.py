"""The table of log events: what it says of each, and the page that is written from it."""

import pytest

from shared import logs
from shared.log_events import EVENTS, EVERY_LINE, FIELDS, LogEvent
from tests.support import log_table
from tests.unit import log_page


def test_the_page_of_log_events_is_the_table() -> None:
    assert log_page.PAGE.read_text() == log_page.page(), "write it with: python tests/unit/log_page.py"


def test_each_event_is_logged_with_the_sentence_of_the_table() -> None:
    assert {name: event.sentence for name, event in EVENTS.items()} == logs.EVENTS


def test_each_field_of_an_event_is_explained_and_each_explained_field_is_an_events() -> None:
    used = {name for event in (*EVENTS.values(), EVERY_LINE) for name in (*event.always, *event.may)}
    assert used == set(FIELDS)


@pytest.mark.parametrize("event", [*EVENTS.values(), EVERY_LINE], ids=[*EVENTS, "every line"])
def test_no_field_of_an_event_stands_twice(event: LogEvent) -> None:
    fields = [*event.always, *event.may]
    assert sorted(fields) == sorted(set(fields))


@pytest.mark.parametrize("name", [name for name in EVENTS if name.startswith(("inbound_", "outbound_"))])
def test_each_inbound_and_outbound_event_always_has_task_queue_and_type(name: str) -> None:
    assert {"task_name", "queue", "event_type"} <= set(EVENTS[name].always)


@pytest.mark.parametrize("name", ["outbound_sent", "receipt_applied", "receipt_failed", "receipt_unknown"])
def test_a_send_and_its_receipts_can_have_the_message_hash(name: str) -> None:
    assert "message_hash" in EVENTS[name].may


def test_a_receipt_that_names_no_record_has_the_correlation_id_of_its_echo() -> None:
    assert {"delivery", "correlation_id"} <= set(EVENTS["receipt_unknown"].always)


# ---- how lines are held to the table

STARTED = {
    "time": "",
    "severity": "INFO",
    "message": "Service ready.",
    "event": "started",
    "stage": "webhook",
    "pid": 1,
}


def test_a_line_with_all_its_fields_has_no_fault() -> None:
    assert log_table.faults(STARTED) == []
    assert log_table.faults({**STARTED, "logging.googleapis.com/labels": {}}) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({**STARTED, "hop": 1}, "started has hop, which the table does not know of it."),
        ({name: value for name, value in STARTED.items() if name != "pid"}, "started lacks pid."),
        ({name: value for name, value in STARTED.items() if name != "time"}, "started lacks time."),
        ({**STARTED, "event": "begun"}, "The table has no event begun."),
    ],
)
def test_a_line_that_differs_from_the_table_is_found(line: dict[str, object], fault: str) -> None:
    assert log_table.faults(line) == [fault]
