"""Calls: what a stored reply may be beside a message. A call says something about a message that came in (it was read,
an answer is being written), and may be repeated without harm. The state machine rests on that difference alone; what a
message may hold is checked elsewhere.
"""

from collections.abc import Mapping
from typing import Any

CALLS = frozenset({"read", "typing"})


def is_call(payload: Mapping[str, Any]) -> bool:
    """Whether a stored reply is a call on a message that came in, not a message of its own."""
    return payload.get("type") in CALLS
