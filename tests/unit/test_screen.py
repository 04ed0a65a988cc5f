"""The live feed: one log line as a person reads it."""

import json
from typing import Any

import click
import pytest

from local.log_follower import pretty


def shown(**line: Any) -> str | None:
    written = {"time": "2026-11-28T10:15:02.084000Z", "severity": "INFO", "message": "-", **line}
    found = pretty(json.dumps(written))
    return click.unstyle(found) if found else found


@pytest.mark.parametrize("kind", ["sent", "delivered", "read", "played", "failed"])
@pytest.mark.parametrize("event", ["receipt_applied", "receipt_failed", "receipt_unknown"])
def test_a_receipt_is_shown_with_its_kind(event: str, kind: str) -> None:
    said = shown(event=event, event_type=kind, correlation_id="4f1c2a90" + "0" * 24)
    assert said == f"10:15:02.084  4f1c2a90  {event} {kind}"


def test_event_type_is_shown_only_for_receipts() -> None:
    said = shown(event="inbound_new", event_type="message", correlation_id="4f1c2a90" + "0" * 24, state="pending")
    assert said == f"10:15:02.084  4f1c2a90  {'inbound_new':<28} state=pending"


def test_a_receipt_without_its_kind_is_shown_all_the_same() -> None:
    assert shown(event="receipt_applied", delivery="9f" * 20) == "10:15:02.084  9f9f9f9f  receipt_applied"
