"""Log lines, checked against the table of shared/log_events.py."""

from collections.abc import Mapping
from typing import Any

from shared.log_events import EVENTS, EVERY_LINE


def faults(line: Mapping[str, Any]) -> list[str]:
    """Fields of a line that the table does not have, and fields that the line lacks."""
    name = str(line["event"])
    if name not in EVENTS:
        return [f"The table has no event {name}."]
    event = EVENTS[name]
    always = {*EVERY_LINE.always, *event.always}
    known = {*EVERY_LINE.always, *EVERY_LINE.may, *event.always, *event.may}
    return [
        *(f"{name} lacks {field}." for field in sorted(always - line.keys())),
        *(f"{name} has {field}, which the table does not know of it." for field in sorted(line.keys() - known)),
    ]
