"""Errors name the options that the person can type: make's variables under make, else pombo's own."""

import click
import pytest

from cli.commands import pombo
from local.invocation import CALLED_BY, OPTIONS, as_typed


@pytest.mark.parametrize(
    ("sentence", "typed"),
    [
        ("Port 8080 is in use: choose others with --ports N (0 takes free ones).", "with PORTS=N (0 takes free ones)."),
        (
            "Invalid value for '--store': '' is not one of 'sqlite'.",
            "Invalid value for STORE: '' is not one of 'sqlite'.",
        ),
        ("Option '--seconds' requires an argument.", "Option SECONDS requires an argument."),
        ("--messages and --seed", "MESSAGES and SEED"),
        ("with --data-dir DIR and --ports N.", "with DATA=DIR and PORTS=N."),
        ("No such option: --portside", "No such option: --portside"),
    ],
)
def test_an_option_is_named_as_make_takes_it(sentence: str, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLED_BY, "make")
    assert as_typed(sentence).endswith(typed)


@pytest.mark.parametrize("called_by", [None, "", "pombo"])
def test_sentence_is_unchanged_when_make_did_not_call(called_by: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CALLED_BY, raising=False)
    if called_by is not None:
        monkeypatch.setenv(CALLED_BY, called_by)
    assert as_typed("Choose others with --ports N.") == "Choose others with --ports N."


def test_each_of_make_s_options_is_one_of_pombo_s() -> None:
    options = {option for command in pombo.commands.values() for it in command.params for option in it.opts}
    assert {f"--{name}" for name in OPTIONS} <= options


def test_every_option_has_a_help_text() -> None:
    silent: list[str] = []

    def look(command: click.Command, name: str) -> None:
        options = [one for one in command.params if isinstance(one, click.Option)]
        silent.extend(f"{name} {one.name}" for one in options if not one.help)
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            look(inner, f"{name} {inner.name}")

    look(pombo, "pombo")
    assert silent == []
