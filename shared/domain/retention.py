"""Retention: how long what is finished is kept. One table; the TTL policies of the deployment agree with it."""

from datetime import timedelta

from shared.domain.limits import Limits
from shared.domain.record import Kind

UNKNOWN_SENDER_PAYLOAD_BYTES = 16 * 1024
"""Anyone's misrouted traffic may reach us signed by our own app; what is kept of it is bounded."""

RAW_PAYLOAD_BYTES = 256 * 1024
"""What is kept of an item that could not be read. A message is under 20 KB; a document store takes at most 1 MiB."""


def retention(kind: Kind, limits: Limits) -> timedelta:
    """From the end of a record to its deletion. A dead one stays until a person has decided."""
    return limits.inbound_retention if kind is Kind.INBOUND else limits.outbound_retention
