"""docs/record.md: every field of a record is there with its type and default, and a store keeps what the page says."""

import json
import re
import sqlite3
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain import dead_letters, delivery
from shared.domain.record import ATTEMPTS_KEPT, CANCELLED, ERROR_KEPT, Attempt, Delivery, Kind, Receipts, Retries, State
from shared.domain.tasks import task_body
from shared.handlers.runner import ERROR_CHARACTERS
from shared.stores import codec
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, NOW, at, pending, task_for

PAGE = (Path(__file__).parents[2] / "docs" / "record.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without the names of its columns."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def names(heading: str) -> list[str]:
    return [cells[0].strip("`") for cells in table(heading)]


def _type(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) and "[" not in str(annotation) else str(annotation)
    return re.sub(r"\b(?:collections\.abc|typing|datetime|shared\.domain\.record)\.", "", text)


def _default(field: Any) -> str:
    if field.default_factory is not MISSING:
        return f"`{field.default_factory()!r}`"
    return "–" if field.default is MISSING else f"`{field.default!r}`"


def test_every_field_is_on_the_page_in_its_order_with_its_type_and_default() -> None:
    expected = [[f"`{field.name}`", f"`{_type(field.type)}`", _default(field)] for field in fields(Delivery)]
    assert [cells[:3] for cells in table("Fields")] == expected


@pytest.mark.parametrize(("heading", "of"), [("An attempt", Attempt), ("Receipts", Receipts)])
def test_fields_inside_a_record_are_on_the_page(heading: str, of: type) -> None:
    expected = [[f"`{field.name}`", f"`{_type(field.type)}`"] for field in fields(of)]  # type: ignore[arg-type]
    assert [cells[:2] for cells in table(heading)] == expected


FULL = pending(
    attempt=1,
    token="a token",
    lease_until=at(1),
    doubt_until=at(1),
    after="0a" * 20,
    plan_size=2,
    reason="waited",
    last_error="no",
    attempts_log=(Attempt(NOW, 1, "lost", 1, "wamid.1", 0, "no", "E", "a.py:1", "f"),),
    started_at=NOW,
    finished_at=NOW,
    provider_id="wamid.1",
    metadata={"handler_said": "spam"},
    retry=Retries(3, timedelta(seconds=15)),
    send_at=at(1),
    body_hash="0b" * 20,
    turn_id="0e" * 20,
    position="1",
    conversation="0f" * 20,
    bell=frozenset({"0c" * 20 + ".correlation-1"}),
    overtook="0d" * 20,
    expire_at=at(1),
)
"""A record without an absent field."""

STORED: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "time": str,
    "number": int,
    "flag": bool,
    "JSON": (dict, list),
    "texts": list,
}


def test_store_encodes_each_field_as_on_the_page(tmp_path: Path) -> None:
    path = tmp_path / "pombo.sqlite"
    store = SqliteStore(path, LIMITS, lambda: NOW)
    store.create(FULL)
    with sqlite3.connect(path) as db:
        (body,) = db.execute("SELECT body FROM records").fetchone()
    kept = json.loads(body)
    said = {cells[0].strip("`"): cells[3] for cells in table("Fields")}
    assert set(kept) == {name for name, how in said.items() if how != "apart"}
    assert {name for name, value in kept.items() if not isinstance(value, STORED[said[name]])} == set()
    assert {name for name, how in said.items() if how == "time"} == codec.MOMENTS
    assert kept == codec.encode(FULL)


def test_kinds_and_states_are_those_of_the_code() -> None:
    assert names("Kinds") == list(Kind)
    assert names("States") == list(State)


def test_every_reason_that_the_code_writes_is_on_the_page_with_its_state() -> None:
    source = "".join(path.read_text() for path in Path(str(delivery.__file__)).parent.glob("*.py"))
    dropped = {dead_letters.HANDLER, dead_letters.UNKNOWN_SENDER, dead_letters.DISCARDED, "opt_out", CANCELLED}
    dead = {*dead_letters.ERRORS} - {dead_letters.REFUSED, dead_letters.UNKNOWN_SENDER}
    assert {cells[0].strip("`"): cells[1] for cells in table("Reasons")} == dict.fromkeys(
        dropped, "dropped"
    ) | dict.fromkeys(dead, "dead")
    assert set(re.findall(r'reason="(\w+)"', source)) <= set(names("Reasons"))


def test_the_page_has_the_bounds_of_the_code() -> None:
    assert f"the newest {ATTEMPTS_KEPT} attempts" in PAGE
    assert f"have {ERROR_KEPT} characters together" in PAGE
    assert f"at most {ERROR_CHARACTERS} characters" in PAGE


def test_every_property_of_a_record_is_named() -> None:
    derived = [name for name, value in vars(Delivery).items() if isinstance(value, property)]
    (said,) = re.findall(r"Derived, not stored: (.+?)\n\n", PAGE, re.S)
    assert re.findall(r"`(\w+)`", said) == derived


def test_a_task_has_the_fields_of_the_page() -> None:
    bodies = [task_body(task_for(pending(kind))) for kind in Kind]
    assert set(names("The task")) == set(bodies[0]) | set(bodies[1])
