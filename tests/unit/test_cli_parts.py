"""Small parts of the command line and of the settings, without a stack."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cli import ids
from cli.commands import pombo
from cli.dead import decision_context
from cli.progress import EVERY_SECONDS, Counting
from services.webhook import main
from shared.config.parsers import spell
from tests.support.builders import at


@pytest.mark.parametrize(
    ("length", "spelled"),
    [
        (timedelta(seconds=59), "59s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=60), "1h"),
        (timedelta(minutes=61), "61m"),
        (timedelta(hours=24), "1d"),
        (timedelta(hours=25), "25h"),
        (timedelta(days=2), "2d"),
        (timedelta(seconds=3601), "3601s"),
    ],
)
def test_duration_is_spelled_in_its_largest_whole_unit(length: timedelta, spelled: str) -> None:
    assert spell(length) == spelled


def test_id_that_is_no_prefix_is_looked_up_as_it_is() -> None:
    running: Any = SimpleNamespace(ids_in_log=lambda _: pytest.fail("the log was read"))
    assert ids.in_log(running, "wamid.1…") == "wamid.1"


def test_ambiguous_prefix_lists_each_match_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = {f"{'a' * 39}1": at(0).isoformat(), f"{'a' * 39}2": "no time"}
    running: Any = SimpleNamespace(ids_in_log=lambda _: found)
    with pytest.raises(click.ClickException, match=r"^2 ids start with this; give more characters\.$"):
        ids.in_log(running, "a" * 39)
    first, second = capsys.readouterr().err.splitlines()[1:]
    assert first.split() == [f"{'a' * 39}1", *ids.IN_LOG.split(), "2026-03-01", "12:00:00"]
    assert second.split() == [f"{'a' * 39}2", *ids.IN_LOG.split(), "-"]


def test_counter_shows_nothing_before_its_first_interval(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = [100.0]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("cli.progress.time.monotonic", lambda: moments[0])
    with Counting("Read", total=2_000) as counting:
        counting.one_more()
        assert capsys.readouterr().err == ""
        moments[0] += EVERY_SECONDS
        counting.one_more()
        assert capsys.readouterr().err == "\rRead: 2 of 2,000"
        counting.one_more()
        assert capsys.readouterr().err == "", "the next interval has not passed"


def test_rest_of_an_oversized_body_is_read_up_to_what_cloud_run_accepts() -> None:
    assert main.DRAINED_AT_MOST == 33_554_432


def test_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    described: Any = SimpleNamespace(is_local=True, logs=tmp_path)
    with pytest.raises(click.ClickException, match=rf"^Cannot write the log {tmp_path}: Is a directory\.$"):
        decision_context._log_beside(described)


def test_help_of_the_filters_names_their_values() -> None:
    shown = CliRunner().invoke(pombo, ["dead", "list", "--help"]).output
    assert re.search(r"--error ERROR\b", shown)
