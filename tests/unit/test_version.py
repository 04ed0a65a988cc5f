"""The version: one place holds the number, the command line shows it, and the changelog's newest entry agrees."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import version as version_module
from cli.commands import pombo
from cli.version import version

ROOT = Path(__file__).parents[2]
DECLARED = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
PROGRAMS = (".ci", "bench", "cli", "handlers", "infra", "local", "services", "shared")


def test_pombo_version_shows_the_version_of_pyproject() -> None:
    assert version_module.PROJECT_FILE == ROOT / "pyproject.toml"
    shown = CliRunner().invoke(pombo, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"pombo {DECLARED}\n")


def test_newest_changelog_entry_has_the_shown_version() -> None:
    entries = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    newest, date = entries[0]
    assert newest == version()
    assert re.fullmatch(r"unreleased|20\d\d-\d\d-\d\d", date)


def test_no_program_repeats_the_version_number() -> None:
    literal = re.compile(rf"""(["']){re.escape(DECLARED)}\1""")
    paths = [path for folder in PROGRAMS for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 100
    assert [str(path) for path in paths if literal.search(path.read_text())] == []


def test_version_comes_from_package_metadata_without_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(version_module, "PROJECT_FILE", tmp_path / "pyproject.toml")
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"pombo": "1.2.3"}[name])
    assert version() == "1.2.3"


def test_command_loads_no_other_command_and_nothing_for_the_version() -> None:
    code = """
import sys
from cli.commands import pombo
pombo.commands['trace']
print([name for name in sys.modules if name.startswith(('cli.registry', 'cli.dead', 'cli.doctor', 'cli.chaos'))])
[*pombo.commands.values()]
print({'tomllib', 'importlib.metadata'} & {*sys.modules})
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("[]\nset()\n", "")
