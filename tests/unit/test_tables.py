"""Tables: whole in a file or a pipe, and as wide as the terminal where there is one."""

import io
import os
import sys

import pytest
from click.testing import CliRunner

from cli.commands import pombo
from cli.dead.list import _COLUMNS as DEAD
from cli.ledger import _COLUMNS as LEDGER
from local import terminal
from local.terminal import Column, table

COLUMNS = (Column("KEY", 9), Column("WHEN"), Column("TEXT", 4))
ROWS = [("k" * 40, "2026-11-28 10:15:02", "a long text " * 5), ("k" * 12, "2026-11-28", "short")]


@pytest.fixture(autouse=True)
def utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_nothing_is_cut_in_a_pipe_with_any_columns_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    heading, first, second = table(COLUMNS, ROWS)
    assert first == f"{'k' * 40}  2026-11-28 10:15:02  {'a long text ' * 5}".rstrip()
    assert heading == f"{'KEY':<40}  {'WHEN':<19}  TEXT"
    assert second == f"{'k' * 12:<40}  {'2026-11-28':<19}  short"


@pytest.mark.parametrize("width", [120, 100, 80, 60, 40, 36])
def test_lines_fit_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in table(COLUMNS, ROWS, width))


def test_the_widest_columns_give_first_and_a_column_without_a_least_gives_nothing() -> None:
    _, first, second = table(COLUMNS, ROWS, 60)
    assert first == f"{'k' * 18}…  2026-11-28 10:15:02  a long text a lon…"
    assert second == "kkkkkkkkkkkk         2026-11-28           short"


def test_no_column_is_cut_below_its_least() -> None:
    _, first, _ = table(COLUMNS, ROWS, 1)
    assert first == f"{'k' * 8}…  2026-11-28 10:15:02  a l…"


def test_row_that_fits_is_not_cut() -> None:
    assert list(table((Column("A", 1), Column("B", 1)), [("xx", "yyy")], 7)) == ["A   B", "xx  yyy"]


def test_a_wide_character_takes_the_room_of_two() -> None:
    _, line = table((Column("A", 4),), [("日本日本日本",)], 7)
    assert line == "日本日…"
    _, line = table((Column("A"), Column("B")), [("日本", "x")], 40)
    assert line == "日本  x"
    _, line = table((Column("A", 2), Column("B")), [("e\u0301e\u0301", "x")], 5)
    assert line == "e\u0301e\u0301  x"


def test_a_terminal_that_lacks_the_ellipsis_has_three_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    terminal.prepare()
    _, line = table((Column("A", 4),), [("abcdefgh",)], 6)
    assert line == "abc..."


def test_on_a_terminal_its_own_width_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((50, 24)))
    assert max(map(len, table(COLUMNS, ROWS))) == 50


@pytest.mark.parametrize("columns", [DEAD, LEDGER], ids=["dead list", "ledger"])
def test_the_tables_of_commands_fit_80_columns_and_keep_8_characters_of_an_id(columns: tuple[Column, ...]) -> None:
    cells = {"DIED (UTC)": "2026-11-28 10:15:02", "ACCEPTED (UTC)": "2026-11-28 10:15:02", "KIND": "outbound"}
    row = [cells.get(column.title, "0123456789" * 5) for column in columns]
    _, line = table(columns, [row], 80)
    assert len(line) <= 80
    shown = line.split("  ")
    for column, cell in zip(columns, shown, strict=True):
        if column.title in ("KEY", "CORRELATION ID"):
            assert cell.startswith("01234567")


@pytest.mark.parametrize(
    ("total", "foot"), [(1, None), (20, None), (21, "21 messages. Showing the newest 20.")], ids=str
)
def test_ledger_shows_20_messages_and_mentions_more(
    monkeypatch: pytest.MonkeyPatch, total: int, foot: str | None
) -> None:
    entry = {
        "accepted_at": "2026-11-28T10:15:02Z",
        "to": "15550002222",
        "type": "text",
        "key": "k" * 40,
        "body": {"body": "hello"},
        "answered": True,
    }
    monkeypatch.setattr("cli.ledger.find", lambda _: None)
    monkeypatch.setattr("cli.simulator.ledger", lambda _: [entry] * total)
    heading, *rows = CliRunner().invoke(pombo, ["ledger"]).output.splitlines()
    assert heading.split() == ["ACCEPTED", "(UTC)", "TO", "TYPE", "KEY", "TEXT"]
    line = f"2026-11-28 10:15:02  15550002222  text  {'k' * 40}  hello"
    assert rows == [line] * min(total, 20) + ([foot] if foot else [])


@pytest.mark.parametrize(("text", "shown"), [("a\nb", "a\\nb"), ("\x1b[31m", "\\x1b[31m"), ("é 日", "é 日")])
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert terminal.plain(text) == shown
