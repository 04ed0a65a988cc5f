"""python tests/unit/log_page.py: write docs/logs.md from the tables of shared/log_events.py."""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from shared.log_events import EVENTS, EVERY_LINE, FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "logs.md"

_HEAD = """# Log events

Written by `tests/unit/log_page.py` from `shared/log_events.py`; a test fails if they differ. How to read and search the
lines: [operating.md](operating.md).

Each service writes one JSON object a line to standard output. No line holds a phone number, a name, a text, a token or
WhatsApp's message id ([decision 7](decisions/0007-nothing-private-in-logs.md)). A field without a value is left out.

A line is written after what it tells of. If a process is killed in between, the line is missing, and what it tells of
is so all the same: the records in the store count, and the sweep's counts are taken from them. Of a large POST that was
cut off, the lines `inbound_new` and `dead_lettered` of up to all its events may be missing.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_events(), "", *_fields(), ""])


def _events() -> Iterable[str]:
    yield "## Events"
    yield ""
    yield _wrapped(f"Every line has {_names(EVERY_LINE.always)}, and may have {_names(EVERY_LINE.may)}.")
    for name, event in EVENTS.items():
        yield ""
        yield f"### {name}"
        yield ""
        yield event.sentence
        yield ""
        yield _wrapped(f"- Always: {_names(event.always) or 'nothing else'}")
        yield _wrapped(f"- Sometimes: {_names(event.may) or 'nothing else'}")


def _fields() -> Iterable[str]:
    yield "## Fields"
    yield ""
    yield "| field | meaning |"
    yield "|---|---|"
    for name, meaning in FIELDS.items():
        yield f"| `{name}` | {meaning} |"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _names(fields: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(fields))


if __name__ == "__main__":
    PAGE.write_text(page())
