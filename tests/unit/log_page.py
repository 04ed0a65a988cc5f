"""python tests/unit/log_page.py: write docs/logs.md from the tables of shared/log_events.py."""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from shared.log_events import EVENTS, EVERY_LINE, FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "logs.md"

_HEAD = """# Log events

`tests/unit/log_page.py` generates this page from `shared/log_events.py`; a test fails if they differ. To read and
search the lines, see [operating.md](operating.md).

Each service writes one JSON object a line to standard output. No line holds a phone number, a name, a text, a token or
WhatsApp's message id ([decision 7](decisions/0007-nothing-private-in-logs.md)). A field without a value is left out.

Pombo acts first and logs afterwards. If a process is killed between the two, the line is missing although the action
took effect. The records in the store are authoritative, and the sweep counts those. If a large POST was cut off, the
lines `inbound_new` and `dead_lettered` of some or all of its events may be missing.
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
