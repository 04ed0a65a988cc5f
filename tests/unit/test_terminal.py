"""The terminal, where its encoding cannot show what is printed. Whole commands: tests/services/test_terminals.py."""

import io
import json
import sys

import click
import pytest

from local import terminal

HALF = "half a character: \ud83d"


def output(monkeypatch: pytest.MonkeyPatch, encoding: str) -> io.BytesIO:
    """What standard output is given from here on, on a terminal of that encoding. (No fixture: pytest has a standard
    output of its own for each phase of a test.)
    """
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding=encoding, errors="strict"))
    terminal.prepare()
    return stream


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("utf-8", "é 😀", "é 😀".encode()),
        ("utf-8", HALF, b"half a character: ?"),
        ("latin-1", "é 😀", b"\xe9 ?"),
        ("ascii", "é 😀", b"? ?"),
        ("US-ASCII", "é 😀", b"? ?"),
    ],
)
def test_click_prints_any_text_in_the_encoding_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, encoding: str, text: str, shown: bytes
) -> None:
    stream = output(monkeypatch, encoding)
    click.echo(text)
    assert stream.getvalue() == shown + b"\n"


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "é".encode()), ("latin-1", b"\xe9"), ("ascii", b"?")])
def test_terminal_can_be_prepared_twice(monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes) -> None:
    stream = output(monkeypatch, encoding)
    terminal.prepare()
    click.echo("é")
    assert stream.getvalue() == shown + b"\n"


@pytest.mark.parametrize(
    ("encoding", "value", "text"),
    [
        ("utf-8", ["é"], '["é"]'),
        ("UTF8", ["é"], '["é"]'),
        ("utf-8", [HALF], '["half a character: \\ud83d"]'),
        ("latin-1", ["é"], '["\\u00e9"]'),
        ("ascii", ["é"], '["\\u00e9"]'),
    ],
)
def test_json_is_escaped_unless_utf_8_can_show_it(
    monkeypatch: pytest.MonkeyPatch, encoding: str, value: list[str], text: str
) -> None:
    output(monkeypatch, encoding)
    assert terminal.as_json(value) == text
    assert json.loads(terminal.as_json(value)) == value


def test_stream_without_bytes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    terminal.prepare()
    assert sys.stdout is stream
    assert terminal.as_json(["é"]) == '["\\u00e9"]'


def test_closed_streams_are_empty_and_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    terminal.prepare()
    with sys.stdin, sys.stdout, sys.stderr:
        assert (sys.stdin.isatty(), sys.stdin.read()) == (False, "")
        assert list(terminal.table([terminal.Column("ID")], [["é"]])) == ["ID", "é"]
        click.echo("é")
        click.echo("é", err=True)


def test_arguments_are_those_after_the_programs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pombo", "say", "é 😀"])
    assert terminal.begin("pombo") == ["say", "é 😀"]


def test_styles_are_clicks_where_colours_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.styled("a", fg="red", bold=True) == click.style("a", fg="red", bold=True) != "a"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.styled("a", fg="red", bold=True) == "a"
