"""What Pombo prints on terminals of other encodings than UTF-8, without colours, and when an argument is not text."""

import ast
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.support.stack import ROOT, Stack, clean_environment, command

LATIN = {"PYTHONIOENCODING": "latin-1"}
POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}
TERMINALS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "latin-1": (LATIN, "latin-1"),
    "cp437": ({"PYTHONIOENCODING": "cp437"}, "cp437"),
    "cp1252": ({"PYTHONIOENCODING": "cp1252"}, "cp1252"),
    "ascii": ({"PYTHONIOENCODING": "ascii"}, "ascii"),
    "utf-16": ({"PYTHONIOENCODING": "utf-16"}, "utf-16"),
    "LC_ALL=POSIX without UTF-8 mode": (POSIX, "ascii"),
    "LANG=C": ({"LANG": "C", "LC_ALL": "", "LC_CTYPE": ""}, "utf-8"),
    "utf-8": ({"PYTHONIOENCODING": "utf-8"}, "utf-8"),
}
"""What the environment says, and how the output is encoded then. (In the locale C Python chooses UTF-8 by itself.)"""

LIKE_LATIN = ("cp437", "cp1252")
"""Encodings of 256 characters, as latin-1 is."""

each_terminal = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LIKE_LATIN else []) for name in TERMINALS]
)
each_locale = pytest.mark.parametrize(
    "terminal", [pytest.param(LATIN, marks=pytest.mark.slow), POSIX], ids=["latin-1", "POSIX"]
)
TEXT = "é 😀 日本"
SEEN = {
    "latin-1": "é ? ??",
    "cp437": "é ? ??",
    "cp1252": "é ? ??",
    "ascii": "? ? ??",
    "utf-16": TEXT,
    "utf-8": TEXT,
}
NOT_TEXT = b"\xff\xfe"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("terminals") / "data", options=(), is_forked=True) as stack:
        yield stack


@pytest.fixture(scope="module")
def message_id(plain: Stack) -> str:
    said = plain.say("15550002222", TEXT)
    plain.wait_settled([said])
    return said


def shown(
    terminal: Mapping[str, str], encoding: str, *words: str | bytes, code: int = 0, module: str = ""
) -> tuple[str, str]:
    """What a command prints on standard output and standard error, read as that terminal reads it."""
    words = (sys.executable, "-m", module, *words) if module else (*command(), *words)
    done = subprocess.run(words, cwd=ROOT, env=clean_environment(**terminal), capture_output=True, timeout=90)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert b"Traceback" not in done.stderr, done.stderr
    return done.stdout.decode(encoding), done.stderr.decode(encoding)


def of_stack(stack: Stack) -> tuple[str, str]:
    return "--data-dir", str(stack.data_dir)


# ---- encodings


@pytest.mark.parametrize("name", TERMINALS)
def test_a_character_that_the_terminal_lacks_is_replaced(plain: Stack, message_id: str, name: str) -> None:
    terminal, encoding = TERMINALS[name]
    out, err = shown(terminal, encoding, "trace", message_id, *of_stack(plain))
    assert out.splitlines()[-1] == f"  Reply 1 is sent: {SEEN[encoding]}"
    assert err == ""


@each_terminal
def test_json_is_escaped_where_the_terminal_is_not_utf_8(plain: Stack, message_id: str, name: str) -> None:
    terminal, encoding = TERMINALS[name]
    out, err = shown(terminal, encoding, "trace", message_id, "--json", *of_stack(plain))
    assert json.loads(out)["replies"][0]["text"] == TEXT
    assert out.isascii() is (encoding != "utf-8")
    assert err == ""


@each_terminal
def test_text_can_be_sent_from_any_terminal(plain: Stack, name: str) -> None:
    terminal, encoding = TERMINALS[name]
    out, _ = shown(terminal, encoding, "say", TEXT, "--from", "15550003333", "--wait", "--json", *of_stack(plain))
    assert json.loads(out)["replies"][0]["text"] == TEXT
    out, _ = shown(terminal, encoding, "say", TEXT, "--from", "15550003333", "--wait", *of_stack(plain))
    assert out.splitlines()[-1] == f"  Reply 1 is sent: {SEEN[encoding]}"


@pytest.mark.parametrize("words", [("doctor",), ("doctor", "--points"), ("dead", "list"), ("--help",)], ids=" ".join)
@pytest.mark.parametrize(
    ("terminal", "more"),
    [
        pytest.param(LATIN, (), id="latin-1, text"),
        pytest.param(POSIX, ("--json",), id="POSIX, json"),
        pytest.param(LATIN, ("--json",), id="latin-1, json", marks=pytest.mark.slow),
        pytest.param(POSIX, (), id="POSIX, text", marks=pytest.mark.slow),
    ],
)
def test_every_command_runs_on_a_terminal_without_utf_8(
    plain: Stack, words: tuple[str, ...], more: tuple[str, ...], terminal: Mapping[str, str]
) -> None:
    given = () if words == ("--help",) else (*more, *of_stack(plain))
    out, err = shown(terminal, "latin-1" if terminal is LATIN else "ascii", *words, *given)
    assert out.isascii()
    assert err == ""


@each_locale
def test_up_starts_and_shows_its_log_on_a_terminal_without_utf_8(tmp_path: Path, terminal: Mapping[str, str]) -> None:
    data_dir = tmp_path / "dados-é-日本"
    with _started("up", "--ports", "0", "--data-dir", str(data_dir), **terminal) as up:
        assert up.stdout is not None
        lines = iter(up.stdout.readline, b"")
        assert next(lines).startswith(b"? Starting ")
        told = next(line for line in lines if b"Pombo is up." in line).decode(
            "latin-1" if terminal is LATIN else "ascii"
        )
        assert re.search(r'In another terminal: \S*pombo say "hello" --wait --data-dir \S*dados-', told)
        shown(terminal, "latin-1", "say", "hello", "--data-dir", str(data_dir))
        assert any(b"inbound_new" in line for line in lines)
        up.send_signal(signal.SIGINT)
        out, err = up.communicate(timeout=30)
    assert (up.returncode, err) == (0, b"")
    assert out.endswith(b"? Stopping\n")


def test_the_tour_of_make_run_ends_well_on_a_terminal_without_utf_8() -> None:
    out, err = shown(POSIX, "ascii", "--once", module="cli.tour")
    assert "Reply 1 is sent: Hello, Pombo!" in out
    assert out.splitlines()[-1].startswith("? The reply was sent. ")
    assert err == ""


@each_locale
def test_chaos_begins_on_a_terminal_without_utf_8(tmp_path: Path, terminal: Mapping[str, str]) -> None:
    with _started("chaos", "--messages", "20", "--data-dir", str(tmp_path / "data"), **terminal) as chaos:
        assert chaos.stdout is not None
        assert chaos.stdout.readline().startswith(b"? Seed ")
        chaos.send_signal(signal.SIGINT)
        _, err = chaos.communicate(timeout=60)
    assert (chaos.returncode, err) == (130, b"")


@contextmanager
def _started(*words: str, **terminal: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that runs until the test ends it, and no longer than the test."""
    environ = clean_environment(**terminal)
    with subprocess.Popen(
        command(*words), cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()


@pytest.mark.parametrize("terminal", [LATIN, POSIX], ids=["latin-1", "POSIX"])
def test_a_sentence_about_an_error_is_shown_on_a_terminal_without_utf_8(
    tmp_path: Path, terminal: Mapping[str, str]
) -> None:
    encoding = "latin-1" if terminal is LATIN else "ascii"
    out, err = shown(terminal, encoding, "trace", "é", "--data-dir", str(tmp_path / "日本é"), code=1)
    seen = "??é" if terminal is LATIN else "?" * len("日本é".encode())
    assert err.startswith(f"pombo: No Pombo is running with its data in {tmp_path}/{seen}. Start one with")
    assert (out, len(err.splitlines())) == ("", 1)


# ---- arguments that are no text


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("up", "--whatsapp-url"),
        ("up", "--data-dir"),
        ("dead", "list", "--tenant"),
        ("dead", "show"),
        ("dead", "discard", "--all", "--reason"),
        ("chaos", "--handler"),
        ("doctor", "--data-dir"),
        ("trace", "x", "--cloud"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("terminal", [{}, pytest.param(POSIX, marks=pytest.mark.slow)], ids=["as it is", "POSIX"])
def test_invalid_utf8_argument_is_refused_by_every_command(words: tuple[str, ...], terminal: Mapping[str, str]) -> None:
    out, err = shown(terminal, "ascii", *words, NOT_TEXT, code=2)
    assert (out, err) == ("", "pombo: An argument is not valid UTF-8.\n")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (("-m", "cli.tour", "--store"), "pombo: An argument is not valid UTF-8.\n"),
        (("-m", "cli.tour", "samples"), "pombo: An argument is not valid UTF-8.\n"),
        (("-m", "infra.release.pin_images"), "pin_images: An argument is not valid UTF-8.\n"),
        (("examples/requests/send.py",), "send.py: An argument is not valid UTF-8.\n"),
    ],
    ids=["tour", "samples", "pin_images", "send.py"],
)
def test_invalid_utf8_argument_is_refused_by_every_program(program: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, *program, NOT_TEXT], cwd=ROOT, env=clean_environment(), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", said)


@pytest.mark.parametrize(
    "words",
    [
        ("up", "--whatsapp-url", "é"),
        ("chaos", "--messages", "1", "--handler", "é:日本"),
        ("dead", "list", "--tenant", "é"),
    ],
    ids=" ".join,
)
def test_a_text_that_the_locale_cannot_express_breaks_no_command(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        command(*words, "--data-dir", str(tmp_path / "é")),
        cwd=ROOT,
        env=clean_environment(**POSIX),
        capture_output=True,
        timeout=90,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"pombo: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_sample_is_found_by_a_path_that_the_locale_cannot_express(tmp_path: Path) -> None:
    sample = tmp_path / "é.json"
    sample.write_text("{}")
    done = subprocess.run(
        [sys.executable, "examples/requests/send.py", str(sample), "--url", "http://127.0.0.1:9/"],
        cwd=ROOT,
        env=clean_environment(**POSIX),
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"send.py: nothing answers at http://127.0.0.1:9/ ")


def test_the_sample_sender_lists_its_samples_on_a_terminal_without_utf_8() -> None:
    done = subprocess.run(
        [sys.executable, "examples/requests/send.py", "--list", "é"],
        cwd=ROOT,
        env=clean_environment(**POSIX),
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"text.json" in done.stdout


# ---- colours


def on_a_terminal(tmp_path: Path, **environment: str) -> str:
    """What `pombo doctor` shows where its output is a terminal; nothing runs there, so that it has a red word too."""
    ours, theirs = pty.openpty()
    settings = {"STORE": "sqlite", "SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "TERM": "xterm-256color"}
    env = {k: v for k, v in clean_environment().items() if k != "NO_COLOR"} | settings | environment
    with subprocess.Popen(command("doctor"), cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as doctor:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:
            pass  # so Linux tells the end of a terminal
        assert doctor.wait(60) == 1
    os.close(ours)
    return text.decode()


@pytest.mark.parametrize(
    "environment",
    [pytest.param({"NO_COLOR": "1"}, marks=pytest.mark.slow), {"NO_COLOR": "false"}, {"TERM": "dumb"}],
    ids=str,
)
def test_colours_are_left_out_where_they_are_not_wanted(tmp_path: Path, environment: Mapping[str, str]) -> None:
    said = on_a_terminal(tmp_path, **environment)
    assert "NO  " in said
    assert "\x1b" not in said


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": ""}], ids=str)
def test_a_terminal_that_refuses_no_colours_has_them(tmp_path: Path, environment: Mapping[str, str]) -> None:
    assert "\x1b[31m\x1b[1mNO\x1b[0m" in on_a_terminal(tmp_path, **environment)


# ---- one place for all of it

PROGRAMS = [path for tree in ("shared", "cli", "local", "infra") for path in (ROOT / tree).rglob("*.py")]
TERMINAL = ROOT / "local" / "terminal.py"


@cache
def _calls(path: Path) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def test_colours_come_from_the_one_place_that_knows_if_they_are_wanted() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {call}"
        for path in PROGRAMS
        if path != TERMINAL
        for call in _calls(path)
        if call.startswith(("click.style(", "click.secho("))
    ]
    assert found == []


def _is_command(path: Path) -> bool:
    """Whether it is of the command line itself; the chaos run also writes JSON to files."""
    return path.relative_to(ROOT).parts[0] == "cli" and "chaos" not in path.parts


def test_json_for_standard_output_comes_from_the_one_place_that_knows_its_encoding() -> None:
    """The local cloud also writes JSON to files; a command only prints it."""
    found = [
        f"{path.relative_to(ROOT)}: {call}"
        for path in PROGRAMS
        if path != TERMINAL
        for call in _calls(path)
        if "json.dumps(" in call and (call.startswith("click.echo(") or _is_command(path))
    ]
    assert found == []
