"""Domain, pipeline and operations know no provider: not by an import, not by a name, not by a code of its.

A record says which provider it is of, and a channel knows all that is special about it. WhatsApp is no provider: every
one of them carries it.
"""

import ast
import re
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"
ROOMS = ("domain", "pipeline", "operations")
PROVIDERS = re.compile(
    r"(?<![a-z])(?:meta|facebook|graph|wamid|waba|twilio|evolution|baileys|360dialog|vonage)(?![a-z])", re.IGNORECASE
)
A_CODE = re.compile(r"\b(?:1[3-9]\d{4}|80\d{3}|24\d{5})\b")
"""As Meta numbers its errors: six digits from 130000, five of a limit, seven of a setting up."""

LANGUAGE = SHARED / "domain" / "outbound"
"""The language of outbound messages is the Cloud API's JSON, on purpose, and says where its limits come from:
docs/decisions/0068-the-outbound-language.md."""

MODULES = sorted(path for room in ROOMS for path in (SHARED / room).rglob("*.py") if LANGUAGE not in path.parents)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_domain_or_pipeline_names_no_provider(path: Path) -> None:
    text = path.read_text()
    assert [f"{path.name}: {match}" for match in PROVIDERS.findall(text)] == []
    assert [f"{path.name}: {match}" for match in A_CODE.findall(text)] == []


def test_only_listed_modules_know_the_outbound_language() -> None:
    """The state machine, its guards and every rule of waiting go by the record alone."""
    found = {
        path.stem
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared.domain.outbound")
    }
    assert found == {"accept_message", "ports", "handler_verdict", "log_fields"}


def test_the_one_reason_with_a_carrier_in_its_name_is_written_once() -> None:
    """Decision 67 keeps WHATSAPP_REAUTH_REQUIRED: whoever needs it imports it, and there is no second one."""
    found = [(path.stem, word) for path in MODULES for word in re.findall(r"\bWHATSAPP_\w+", path.read_text())]
    assert found == [("guards", "WHATSAPP_REAUTH_REQUIRED")]


@pytest.mark.parametrize(
    "text",
    [
        '"meta"',
        "Meta's",
        "META_CODES",
        "from shared.channels.meta.channel import x",
        "# 131056: too many",
        "a WABA, say",
    ],
)
def test_the_check_sees_a_name_and_a_code(text: str) -> None:
    assert PROVIDERS.search(text) or A_CODE.search(text)
    assert not PROVIDERS.search("metadata, a paragraph, WHATSAPP_REAUTH_REQUIRED")
