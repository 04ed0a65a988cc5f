"""pombo trace of what waits in its lane or turn: which one is ahead of it, what happens next, and when at the latest.

The store and the log file are real, and the command is the whole one; no stack runs.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.commands import pombo
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.turns import position, turn_id
from shared.pipeline.lanes import MOST_PASSED_OVER
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, pending

FIRST, SECOND, THIRD = "a" * 40, "b" * 40, "c" * 40
TURN = turn_id(b"a key", "default", "meta", "100000000000001", "15550002222")


class Desk:
    """The command line on one file and one log, whose times are around now."""

    def __init__(self, directory: Path) -> None:
        self.directory, path = directory, directory / "pombo.sqlite"
        self.env: dict[str, str | None] = {"STORE": "sqlite", "SQLITE_PATH": str(path), "APP_ENV": None}
        self.now = datetime.now(UTC)
        self.store = SqliteStore(path, LIMITS, lambda: self.now)

    def at(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def keep(self, key: str, **changes: Any) -> Delivery:
        """A message that waits to be sent, or with `kind` an event, which is in the contact's turn."""
        record = pending(changes.pop("kind", Kind.OUTBOUND), key=key, received_at=self.at(-60), attempt=0, generation=0)
        in_turn = {"turn_id": TURN, "position": position(self.now, self.now, 0, key)}
        record = replace(record, correlation_id=f"of-{key[:8]}", give_up_at=self.at(3600))
        record = replace(record, **(in_turn if record.kind is Kind.INBOUND else {}) | changes)
        self.store.create(record)
        return record

    def log(self, record: Delivery, reason: str, seconds: float = 0, alone: float | None = None) -> None:
        """A line about a wait, so many seconds from now; `alone`: since when an event waits for the first of a turn."""
        name = "inbound_event_id" if record.kind is Kind.INBOUND else "delivery"
        event = "inbound_waiting" if record.kind is Kind.INBOUND else "outbound_waiting"
        line = {"time": self.at(seconds).isoformat(), "event": event, name: record.key, "reason": reason}
        line |= {} if alone is None else {"alone_since": self.at(alone).isoformat()}
        with (self.directory / "logs.jsonl").open("a") as lines:
            lines.write(json.dumps({**line, "until": self.at(seconds + 2).isoformat()}) + "\n")

    def trace(self, key: str, *options: str) -> str:
        arguments = ["trace", key, *options, "--data-dir", str(self.directory)]
        result = CliRunner(env=self.env).invoke(pombo, arguments, standalone_mode=False)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def said(self, key: str) -> str:
        """The sentence about the wait."""
        events = json.loads(self.trace(key, "--json"))["events"]
        (sentence,) = [one["sentence"] for one in events if one["what"] == "waiting"]
        return str(sentence)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def clock(at: datetime) -> str:
    return rf"(\d{{4}}-\d\d-\d\d )?{at:%H:%M:%S} UTC"


def test_message_in_its_lane_says_which_one_it_waits_for_and_until_when(desk: Desk) -> None:
    desk.keep(FIRST)
    message = desk.keep(SECOND, after=FIRST)
    desk.log(message, "predecessor", -9)
    desk.log(message, "predecessor", -5)
    latest = clock(desk.at(600 - 9))
    assert re.search(
        rf"; next check at {clock(desk.at(-3))}\. It waits for aaaaaaaa: once that one has ended, this one is sent, "
        rf"at {latest} at the latest\.$",
        desk.said(SECOND),
    )
    assert "Message is pending (waiting for aaaaaaaa): " in desk.trace(SECOND)
    (reply,) = json.loads(desk.trace(SECOND, "--json"))["replies"]
    assert (reply["why"], reply["waits_for"]) == ("waiting", FIRST)


def test_message_in_its_lane_names_the_one_ahead_without_a_log_too(desk: Desk) -> None:
    desk.keep(FIRST)
    desk.keep(SECOND, after=FIRST)
    assert "Message is pending (waiting for aaaaaaaa): " in desk.trace(SECOND)
    (reply,) = json.loads(desk.trace(FIRST, "--json"))["replies"]
    assert "waits_for" not in reply


def test_event_in_its_turn_says_which_one_it_waits_for_and_until_when(desk: Desk) -> None:
    desk.keep(FIRST, kind=Kind.INBOUND)
    event = desk.keep(SECOND, kind=Kind.INBOUND)
    desk.log(event, "turn", -20, alone=-20)
    desk.log(event, "turn", -5, alone=-20)
    assert re.search(
        rf"It waits for aaaaaaaa: once that one has ended, this one is handled, at {clock(desk.at(580))} at the latest",
        desk.said(SECOND),
    )


def test_event_is_patient_from_its_next_check_if_the_last_one_could_not_say(desk: Desk) -> None:
    desk.keep(FIRST, kind=Kind.INBOUND)
    event = desk.keep(SECOND, kind=Kind.INBOUND)
    desk.log(event, "turn", -900)
    desk.log(event, "turn", -4)
    assert re.search(rf"handled, at {clock(desk.at(600 - 2))} at the latest", desk.said(SECOND))


def test_wait_for_one_that_is_handled_now_lasts_as_long_as_its_lease(desk: Desk) -> None:
    desk.keep(FIRST, kind=Kind.INBOUND, state=State.LEASED, attempt=1, token="t", lease_until=desk.at(900))
    event = desk.keep(SECOND, kind=Kind.INBOUND)
    desk.log(event, "turn")
    assert re.search(rf"waits for aaaaaaaa.* at {clock(desk.at(900))} at the latest", desk.said(SECOND))


def test_patience_of_a_stack_with_a_time_scale_is_divided_by_it(desk: Desk) -> None:
    desk.env["TIME_SCALE"] = "20"
    desk.keep(FIRST)
    desk.log(desk.keep(SECOND, after=FIRST), "predecessor")
    assert re.search(rf"at {clock(desk.at(30))} at the latest", desk.said(SECOND))


def test_message_that_has_waited_for_its_patience_goes_at_its_next_check(desk: Desk) -> None:
    desk.keep(FIRST)
    desk.log(desk.keep(SECOND, after=FIRST), "predecessor", -601)
    assert desk.said(SECOND).endswith("once that one has ended, this one is sent, at its next check in any case.")


@pytest.mark.parametrize("number", [1, MOST_PASSED_OVER - 1])
def test_message_behind_cancelled_ones_waits_for_the_one_before_them(desk: Desk, number: int) -> None:
    keys = [FIRST, *(f"{place:040x}" for place in range(number))]
    desk.keep(FIRST)
    for after, key in pairwise(keys):
        desk.keep(key, after=after, state=State.DROPPED, reason="cancelled", finished_at=desk.now)
    desk.log(desk.keep(THIRD, after=keys[-1]), "predecessor")
    assert "It waits for aaaaaaaa: " in desk.said(THIRD)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ({"state": State.DONE, "attempt": 1}, "predecessor"),
        ({}, "paced"),
        ({}, "provider_down"),
    ],
    ids=["it has ended", "it waits for its pace", "it waits for the provider"],
)
def test_nothing_is_said_of_one_that_is_not_waited_for(desk: Desk, before: dict[str, Any], reason: str) -> None:
    ended = {"finished_at": desk.now, "started_at": desk.now} if before else {}
    desk.keep(FIRST, **before, **ended)
    desk.log(desk.keep(SECOND, after=FIRST), reason)
    assert "waits for" not in desk.said(SECOND)
    assert " for aaaaaaaa" not in desk.trace(SECOND)


@pytest.mark.parametrize("kind", [Kind.OUTBOUND, Kind.INBOUND])
def test_no_time_is_said_while_the_one_ahead_waits_itself(desk: Desk, kind: Kind) -> None:
    """It is not overtaken, for however long this one has waited."""
    goes, reason = ("sent", "predecessor") if kind is Kind.OUTBOUND else ("handled", "turn")
    in_lane = [{}, {"after": FIRST}, {"after": SECOND}] if kind is Kind.OUTBOUND else [{}, {}, {}]
    *_, third = [desk.keep(key, kind=kind, **one) for key, one in zip((FIRST, SECOND, THIRD), in_lane, strict=True)]
    desk.log(third, reason, -601)
    assert desk.said(THIRD).endswith(
        f" It waits for bbbbbbbb, which waits itself: once that one has ended, this one is {goes}."
    )


def test_time_counts_from_when_the_one_ahead_became_the_first(desk: Desk) -> None:
    desk.keep(FIRST, state=State.DONE, attempt=1, started_at=desk.at(-60), finished_at=desk.at(-60))
    desk.keep(SECOND, after=FIRST)
    desk.log(desk.keep(THIRD, after=SECOND), "predecessor", -601)
    assert re.search(rf"this one is sent, at {clock(desk.at(540))} at the latest\.$", desk.said(THIRD))


def test_message_that_goes_before_the_one_ahead_has_ended_is_waited_for_itself(desk: Desk) -> None:
    desk.keep(FIRST)
    desk.keep(SECOND, after=FIRST, state=State.LEASED, attempt=1, token="t", lease_until=desk.at(900))
    desk.log(desk.keep(THIRD, after=SECOND), "predecessor")
    assert re.search(rf"waits for bbbbbbbb: .* at {clock(desk.at(900))} at the latest", desk.said(THIRD))


def test_nothing_is_said_of_the_one_ahead_at_a_wait_that_is_over(desk: Desk) -> None:
    desk.keep(FIRST)
    message = desk.keep(SECOND, after=FIRST)
    desk.log(message, "predecessor", -9)
    desk.log(message, "provider_down", -5)
    assert "waits for" not in desk.trace(SECOND)


def test_refused_message_of_a_suspended_tenant_waits_for_its_resumption_only(desk: Desk) -> None:
    refused = Attempt(desk.at(-30), 1, "credential_refused", 190)
    message = desk.keep(FIRST, attempts_log=(refused,), due_at=desk.at(600))
    desk.log(message, "WHATSAPP_REAUTH_REQUIRED", -20)
    assert "Message is pending (WHATSAPP_REAUTH_REQUIRED): " in desk.trace(FIRST)
    desk.log(message, "suspended", -5)
    assert "Message is pending (suspended): " in desk.trace(FIRST)
    (reply,) = json.loads(desk.trace(FIRST, "--json"))["replies"]
    assert reply["why"] == "suspended"


def test_refused_message_that_is_behind_another_one_names_it(desk: Desk) -> None:
    desk.keep(FIRST)
    refused = Attempt(desk.at(-30), 1, "credential_refused", 190)
    desk.log(desk.keep(SECOND, after=FIRST, attempts_log=(refused,)), "predecessor", -5)
    assert "Message is pending (waiting for aaaaaaaa): " in desk.trace(SECOND)


@pytest.mark.parametrize("state", [State.LEASED, State.IN_DOUBT])
def test_message_that_was_tried_waits_for_none_ahead_of_it(desk: Desk, state: State) -> None:
    """It has overtaken that one."""
    desk.keep(FIRST)
    desk.keep(SECOND, after=FIRST, state=state, attempt=1, token="t", lease_until=desk.at(9), started_at=desk.now)
    assert "aaaaaaaa" not in desk.trace(SECOND)


def test_first_of_a_lane_and_of_a_turn_wait_for_no_other(desk: Desk) -> None:
    for kind, reason in ((Kind.OUTBOUND, "predecessor"), (Kind.INBOUND, "turn")):
        key = FIRST if kind is Kind.OUTBOUND else SECOND
        desk.log(desk.keep(key, kind=kind), reason)
        assert "waits for" not in desk.said(key)


def test_message_that_cannot_be_read_is_named_as_the_one_ahead(desk: Desk) -> None:
    desk.keep(FIRST)
    desk.log(desk.keep(SECOND, after=FIRST), "predecessor")
    desk.store._file.write(lambda db: db.execute("UPDATE records SET body = '{}' WHERE key = ?", (FIRST,)))
    assert "It waits for aaaaaaaa: " in desk.said(SECOND)


def test_record_that_cannot_be_read_is_named_so(desk: Desk) -> None:
    desk.keep(FIRST)
    desk.store._file.write(lambda db: db.execute("UPDATE records SET body = '{}' WHERE key = ?", (FIRST,)))
    for command in (["trace", FIRST], ["trace", FIRST[:8]], ["dead", "show", FIRST]):
        result = CliRunner(env=desk.env).invoke(
            pombo, [*command, "--data-dir", str(desk.directory)], standalone_mode=False
        )
        assert str(getattr(result.exception, "sentence", "")) == (
            "This record cannot be read: a newer version of Pombo wrote it, or it was damaged."
        )
