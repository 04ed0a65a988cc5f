"""A call: one request of the Graph API. What it asks for, which faults match, and its line in /control/calls."""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from local.whatsapp.errors import INVALID_REQUEST, GraphError
from local.whatsapp.http_transport import Request
from local.whatsapp.messages import ReadCall, parse_call
from local.whatsapp.webhook_payloads import rfc3339

MESSAGES = re.compile(r"/(v[0-9]+\.[0-9]+)/([^/]+)/messages")


def fields_of(body: bytes) -> dict[str, Any]:
    """The body's JSON object; GraphError if it is none."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise GraphError(INVALID_REQUEST, "The body must be a JSON object.")
    return fields


def described(request: Request) -> tuple[str, Mapping[str, str]]:
    """The kind of call and its facts, before Meta checks anything. A call that Meta would refuse is `other`."""
    path = MESSAGES.fullmatch(request.path)
    if path is None or request.method != "POST":
        return "other", {}
    facts = {"phone_number_id": path[2]}
    try:
        call = parse_call(fields_of(request.body))
    except GraphError:
        return "other", facts
    if isinstance(call, ReadCall):
        return call.type, facts | {"type": call.type}
    return "message", facts | {"to": call.given, "type": call.type}


def line(call: str, kind: str | None, status: int | None, code: int | None = None) -> dict[str, Any]:
    """One line of /control/calls; the status is None if the connection is dropped."""
    return {"at": rfc3339(time.time()), "call": call, "type": kind, "status": status, "code": code}
