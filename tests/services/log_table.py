"""Log lines held to the table of shared/log_events.py."""

from collections.abc import Collection, Mapping
from typing import Any

from shared.log_events import EVENTS, EVERY_LINE

AWAITED = frozenset(
    {"inbound_new", "inbound_duplicate", "inbound_enqueued", "receipt_applied", "receipt_failed", "receipt_unknown"}
)
"""Events of accept.py and receipts.py that do not have all their fields yet. Each is the parameter of a test that is
expected to fail, and that breaks the run once the fields are there: then take the name out.
"""


def faults(line: Mapping[str, Any], awaited: Collection[str] = AWAITED) -> list[str]:
    """What a line has that the table does not know, and what it lacks."""
    name = str(line["event"])
    if name not in EVENTS:
        return [f"The table has no event {name}."]
    event = EVENTS[name]
    always = {*EVERY_LINE.always, *(() if name in awaited else event.always)}
    known = {*EVERY_LINE.always, *EVERY_LINE.may, *event.always, *event.may}
    return [
        *(f"{name} lacks {field}." for field in sorted(always - line.keys())),
        *(f"{name} has {field}, which the table does not know of it." for field in sorted(line.keys() - known)),
    ]
