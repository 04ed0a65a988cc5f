"""docs/outbound.md says what the code does: its tables are the code's own."""

import inspect
import re
from pathlib import Path

import pytest

from shared.channels.meta import codes as meta_codes
from shared.domain.outbound.limits import LIMITS
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)

PAGE = (Path(__file__).parents[2] / "docs" / "outbound.md").read_text()

WORDS: dict[type[SendError], str] = {
    AnswerLost: "in doubt",
    ProviderUnavailable: "waits, spends no try",
    TryLater: "tried again",
    LimitReached: "waits, spends no try",
    CredentialInvalid: "waits for another token",
    AccessDenied: "waits for another token, or 2 h",
    SenderBlocked: "waits for the block's end",
    SendRefused: "refused",
}


def limits() -> str:
    rows = []
    for limit in LIMITS.values():
        source = f"[{limit.source.rpartition('/')[2]}]({limit.source})"
        rows.append(f"| {limit.of} | {limit.most} | {source} | {'' if limit.confirmed else 'reported'} |")
    return "\n".join(rows)


def codes() -> str:
    rows = []
    for name, meaning in meta_codes.table():
        least = f", {meaning.minutes} min at least" if meaning.minutes else ""
        rows.append(f"| {name} | {WORDS[meaning.error]}{least} | {meaning.scope} | {meaning.sentence} |")
    return "\n".join(rows)


@pytest.mark.parametrize("table", [limits, codes])
def test_a_table_of_the_page_is_the_codes_own(table: object) -> None:
    expected = table()  # type: ignore[operator] # a function of this file
    assert expected in PAGE, f"Put this into docs/outbound.md:\n{expected}"


def test_the_page_has_every_maker_and_no_other() -> None:
    makers = {
        name
        for name, value in inspect.getmembers(OutboundMessage, inspect.ismethod)
        if not name.startswith("_") and value.__self__ is OutboundMessage
    }
    assert set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)) == makers


def test_every_example_of_the_page_is_valid() -> None:
    """They are shown as code; run as code."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    replies = eval(f"[{code}]", {"OutboundMessage": OutboundMessage, "message": type("Message", (), {"id": "wamid.1"})})
    assert len(replies) == 16
    assert all(isinstance(reply, OutboundMessage) for reply in replies)
