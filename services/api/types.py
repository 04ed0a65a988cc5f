"""Types that several routes use: what requests may hold, and how times are read."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic_core import PydanticCustomError

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_FRACTION = re.compile(r"(\.\d{6})\d+")


def _moment(value: object) -> datetime:
    """Reads a time as RFC 3339 has it, in UTC. What is below a microsecond is cut off."""
    try:
        if isinstance(value, str) and _RFC_3339.fullmatch(value):
            return datetime.fromisoformat(_FRACTION.sub(r"\1", value.upper())).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # for example a month 13, or a time that is in year 0 or 10000 in UTC
    raise PydanticCustomError("rfc_3339", "Input should be a time of RFC 3339, like 2026-12-01T09:00:00Z")


Rfc3339 = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]

_DURATION = re.compile(r"[0-9]{1,7}[smhd]")


def _duration(value: object) -> str:
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return value
    raise PydanticCustomError("duration", "Input should be whole seconds, minutes, hours or days, like 15s or 2h")


Duration = Annotated[
    str, BeforeValidator(_duration), WithJsonSchema({"type": "string", "pattern": f"^{_DURATION.pattern}$"})
]


class Strict(BaseModel):
    """A body. Another field is a fault: it is misspelled, or it would be lost. No value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)
