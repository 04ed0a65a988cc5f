"""The example backend: what its signature check lets through, and how its command line speaks."""

import importlib.util
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shared.domain.outbound.messages import OutboundMessage, from_json
from shared.handlers.signature import signed_headers

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "backend" / "main.py"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
KEY = b"0123456789abcdef0123456789abcdef"
OTHER_SECRET = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="
NOW = 1_795_780_800
BODY = '{"v":1,"message":{"text":"Olá"}}'.encode()


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_backend", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def signed(*secrets: str, at: int = NOW) -> dict[str, Any]:
    """What reaches the check when Pombo calls."""
    headers = signed_headers(secrets, "e" * 40, datetime.fromtimestamp(at, UTC), BODY)
    names = {"call_id": "webhook-id", "timestamp": "webhook-timestamp", "signatures": "webhook-signature"}
    return {"key": KEY, "body": BODY, "now": NOW, **{ours: headers[name] for ours, name in names.items()}}


@pytest.mark.parametrize("secrets", [[SECRET], [OTHER_SECRET, SECRET], [SECRET, OTHER_SECRET]])
@pytest.mark.parametrize("seconds", [0, -299, 299])
def test_a_call_signed_with_its_secret_passes(example: ModuleType, secrets: list[str], seconds: int) -> None:
    example.verify(**signed(*secrets, at=NOW + seconds))


WRONG: dict[str, dict[str, Any]] = {
    "another body": {"body": BODY + b" "},
    "another id": {"call_id": "f" * 40},
    "another time": {"timestamp": str(NOW + 1)},
    "another key": {"key": b"x" * 32},
    "no id": {"call_id": ""},
    "no time": {"timestamp": ""},
    "a time that is none": {"timestamp": "soon"},
    "digits that are none": {"timestamp": "١٢٣"},
    "no signature": {"signatures": ""},
    "half a signature": {"signatures": "v1,"},
    "a signature of another version": {"signatures": signed(SECRET)["signatures"].replace("v1,", "v1a,")},
    "no ASCII": {"signatures": "v1,é"},
    "another secret": signed(OTHER_SECRET),
    "signed five minutes ago and more": signed(SECRET, at=NOW - 301),
    "signed in the future": signed(SECRET, at=NOW + 301),
}


@pytest.mark.parametrize("name", WRONG)
def test_forged_or_old_call_is_refused(example: ModuleType, name: str) -> None:
    with pytest.raises(example.Refused):
        example.verify(**{**signed(SECRET), **WRONG[name]})


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ({"text": "hello", "id": "wamid.1"}, OutboundMessage.text("hello", reply_to="wamid.1")),
        ({"text": None, "id": "wamid.1"}, OutboundMessage.text("I can read text messages only, so far.")),
        (
            {"text": "Menu ", "id": "wamid.1"},
            OutboundMessage.buttons("What would you like?", {"hours": "Opening hours", "person": "Talk to a person"}),
        ),
        (
            {"text": "Opening hours", "id": "wamid.1", "interactive": {"title": "Opening hours"}},
            OutboundMessage.text("You chose Opening hours."),
        ),
    ],
)
def test_its_replies_are_what_pombo_takes(example: ModuleType, message: Any, reply: OutboundMessage) -> None:
    assert [from_json(one) for one in example.answer(message)] == [reply]


def test_a_call_is_remembered_and_the_oldest_is_forgotten(example: ModuleType) -> None:
    answers = example.Answers()
    for number in range(example.REMEMBERED_CALLS + 1):
        answers.keep(str(number), [number])
    assert answers.get("0") is None
    assert answers.get("1") == [1]
    assert answers.get(str(example.REMEMBERED_CALLS)) == [example.REMEMBERED_CALLS]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=30)


def test_help_explains_the_usage() -> None:
    result = run("--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "HANDLER_URL_SECRET" in result.stdout


@pytest.mark.parametrize("secret", ["", "whsec_", "c4n4ry", "whsec_c4n4ry!", "whsec_YWJj"])
def test_invalid_secret_is_refused_in_one_line(secret: str) -> None:
    result = run("--secret", secret, "--port", "0")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("backend: --secret is whsec_ and the base64 of 24 to 64 bytes")
    assert result.stderr.count("\n") == 1
    assert "c4n4ry" not in result.stderr


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_port_that_cannot_be_had_is_refused_in_one_line(port: str) -> None:
    result = run("--secret", SECRET, "--port", port)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("backend: cannot listen on 127.0.0.1:")
    assert result.stderr.count("\n") == 1


def test_ctrl_c_ends_it_silently() -> None:
    command = [sys.executable, str(PROGRAM), "--secret", SECRET, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("The backend answers on http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


# ---- what is said of it


def test_the_worked_example_of_the_documentation_is_right(example: ModuleType) -> None:
    text = (ROOT / "docs" / "handler-url.md").read_text()
    request = re.search(r"```\nPOST .*?\n\n(.*?)\n```", text, re.DOTALL)
    program = re.search(r"<<'END'\n(.*?)\nEND\n(\S+)\n", text, re.DOTALL)
    assert request is not None
    assert program is not None
    headers = dict(re.findall(r"(?m)^(webhook-\w+): (.*)$", request[0]))
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    example.verify(KEY, *(headers[name] for name in names), request[1].encode(), NOW)
    printed = subprocess.run([sys.executable, "-c", program[1]], capture_output=True, text=True, check=True).stdout
    assert [f"v1,{printed.strip()}", f"v1,{program[2]}"] == [headers["webhook-signature"]] * 2
