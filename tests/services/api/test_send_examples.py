"""The examples of pombo send and pombo.client in the pages and in --help are run as they stand."""

import re
import shlex
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands import pombo
from cli.send import send
from pombo.client import Client
from tests.support.served_api import ServedApi

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "api.md").read_text()
TEXTS = [(ROOT / "README.md").read_text(), PAGE, f"{send.help}"]
EXAMPLES = sorted({line for text in TEXTS for line in re.findall(r"^ +((?:\w+=\S+ )?\S*pombo send .+)$", text, re.M)})


def test_pages_and_help_have_examples_of_every_option() -> None:
    assert len(EXAMPLES) > 10
    options = {opt for each in send.params for opt in each.opts if opt.startswith("--")} - {"--json", "--data-dir"}
    assert {each for each in options if not any(each in example for example in EXAMPLES)} == {"--api-key-file"}
    assert "(docs/api.md" in TEXTS[0]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_the_command_sends_one_message(
    served_api: ServedApi, stack: Path, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.send.WAIT_SECONDS", 0)
    tomorrow = served_api.service.clock.now() + timedelta(days=1)
    example = example.replace("2026-12-01T", f"{tomorrow:%Y-%m-%d}T")
    words = shlex.split(re.split(r" {3,}", example)[0], comments=True)
    variables = dict(words.pop(0).split("=") for _ in words[:1] if "=" in words[0])
    arguments = words[words.index("send") :]
    if "--url" in arguments:
        arguments[arguments.index("--url") + 1] = served_api.url
        assert variables == {"POMBO_API_KEY": "..."}
        variables["POMBO_API_KEY"] = served_api.service.key()

    result = CliRunner(env=variables).invoke(pombo, [*arguments, "--data-dir", str(stack)])

    waits = "--wait" in arguments  # for a process that does not run here
    assert result.stderr.startswith("Error: No final answer") if waits else result.exit_code == 0, result.output
    assert re.match(r"Message [0-9a-f]{40}: pending\n", result.stdout)
    key = served_api.service.key()
    assert len(list(Client(served_api.url, key).messages())) == 1


def test_example_of_the_client_runs(
    served_api: ServedApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    operators = served_api.service.key(None)  # as pombo up writes it
    monkeypatch.setenv("POMBO_URL", served_api.url)
    monkeypatch.setenv("POMBO_API_KEY", operators)
    exec(program, {})
    assert capsys.readouterr().out == "pending\n"


def test_table_of_the_page_has_every_method_of_the_client() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_") and callable(getattr(Client, name))}
    table = PAGE.partition("| method | route |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)\(", table)) == methods
