"""Retention: how long finished records are kept, in one table that the deployment's TTL policies follow."""

from datetime import timedelta

from shared.domain.limits import Limits
from shared.domain.record import Kind

UNKNOWN_SENDER_PAYLOAD_BYTES = 16 * 1024
"""Bytes kept of a message to an unknown sender: misrouted traffic of others may reach us, signed by our own app."""

RAW_PAYLOAD_BYTES = 256 * 1024
"""Bytes kept of an item that could not be read. A message is under 20 KB; a document store takes at most 1 MiB."""


def retention(kind: Kind, limits: Limits) -> timedelta:
    """From the end of a record to its deletion. A dead one stays until an operator decides."""
    return limits.inbound_retention if kind is Kind.INBOUND else limits.outbound_retention
