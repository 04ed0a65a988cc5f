"""No command of ours prints the verify token, which Meta sends in the URL of its handshake."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.doctor.settings import check_all, faults
from tests.infra.log_filters import Entry, field_of, parse
from tests.infra.rules_logging import TOKEN, handshakes

ROOT = Path(__file__).parents[2]
SEARCHED = (
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "infra").rglob("*.py"),
    *(ROOT / "infra").rglob("*.md"),
    *(ROOT / "infra").rglob("*.tf"),
    *(ROOT / "shared").rglob("*.py"),
    *(ROOT / "services").rglob("*.py"),
    ROOT / "README.md",
    ROOT / "Makefile",
    ROOT / "cloudbuild.yaml",
)
_READ = re.compile(r"gcloud (?:beta |alpha )?logging (?:read|tail)((?:[^\n]*\\\n)*[^\n]*)")
_TABLE = re.compile(r"--format[ =]'table\(([^)]*)\)'")


def commands() -> Iterator[tuple[str, str]]:
    """Each command that reads the log, with the file that holds it."""
    for path in SEARCHED:
        for found in _READ.finditer(path.read_text()):
            yield str(path.relative_to(ROOT)), found[0]


def printed(command: str, entry: Entry) -> str:
    """What a command prints of an entry: nothing, some columns, or all of it."""
    text = re.search(r"(?:read|tail) '([^']*)'", command)
    if text and "…" in text[1]:
        return ""  # by an id, which only our own lines have
    if text and text[1] and not parse(text[1])(entry):
        return ""
    table = _TABLE.search(command)
    return str([field_of(entry, tuple(column.split("."))) for column in table[1].split(", ")] if table else entry)


@pytest.mark.parametrize(("file", "command"), sorted(set(commands())), ids=lambda it: re.sub(r"\W+", "-", it)[-60:])
def test_a_command_that_reads_the_log_prints_no_verify_token(file: str, command: str) -> None:
    assert [entry for entry in handshakes() if TOKEN in printed(command, entry)] == [], file


@pytest.mark.parametrize(
    "command",
    [
        "gcloud logging read",
        "gcloud logging read 'severity>=\"INFO\"' --freshness=10m",
        "gcloud logging read 'severity=\"INFO\"' --format='table(timestamp, httpRequest.requestUrl)'",
        "gcloud logging read 'severity=\"WARNING\"' --format 'table(timestamp, httpRequest)'",
        "gcloud logging read 'severity=\"WARNING\"' --format=json",
    ],
)
def test_a_command_that_would_print_it_is_found(command: str) -> None:
    (found,) = [it[0] for it in _READ.finditer(command)]
    assert any(TOKEN in printed(found, entry) for entry in handshakes())


def test_the_commands_of_the_pages_are_all_looked_at() -> None:
    files = {file for file, _ in commands()}
    assert {"docs/deploy.md", "docs/operating.md", "docs/runbook.md"} <= files
    assert len(set(commands())) >= 30


def test_no_program_of_ours_reads_the_value_of_the_verify_token() -> None:
    for path in SEARCHED:
        for line in path.read_text().splitlines():
            assert not re.search(r"secrets versions access.*META_VERIFY_TOKEN", line), path


def test_pombo_doctor_shows_no_verify_token() -> None:
    environ = {"META_VERIFY_TOKEN": TOKEN}
    shown = list(check_all(environ, faults(environ), is_local=False))
    assert any("META_VERIFY_TOKEN" in str(check) for check in shown)
    assert TOKEN not in str(shown)
