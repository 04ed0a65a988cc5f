"""Retry-After: the minimum wait that an HTTP response asks for."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(hours=24)
"""No limit of Meta lasts longer, and a queue schedules at most 30 days ahead."""

_SECONDS = re.compile(r"[0-9]{1,9}")


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """The wait, given in seconds or as a date (relative to the response's clock); None if it cannot be read.

    `headers` have names in lower case. https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(timedelta(seconds=int(value)), LONGEST)
    until = _date(value)
    if until is None:
        return None
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    return max(timedelta(), min(until - now, LONGEST))


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date
