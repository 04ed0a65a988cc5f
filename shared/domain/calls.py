"""Calls: stored replies that are not messages. A call reports on a received message (it was read, an answer is being
written) and may be repeated without harm. The state machine depends only on that difference; the content of a message
is checked elsewhere.
"""

from collections.abc import Mapping
from typing import Any

CALLS = frozenset({"read", "typing"})


def is_call(payload: Mapping[str, Any]) -> bool:
    """Whether a stored reply is a call about a received message, not a new message."""
    return payload.get("type") in CALLS
