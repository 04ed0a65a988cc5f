"""The messages of a chaos run that a business's own program sends through the API. The seed determines all of it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.chaos.message_script import CANARY, ScriptedReply
from shared.domain.identity import api_message_key

LATER_SHARE, CANCELLED_SHARE, REPEATED_SHARE = 0.4, 0.2, 0.3
"""Shares of messages for a later time, of messages that are cancelled, and of requests that come once more."""

LONGEST_AHEAD = 8.0
"""Seconds. A run of half a minute sends such a message before it ends, and a process is killed meanwhile."""


@dataclass(frozen=True, slots=True)
class ApiMessage:
    """One message to a contact. `at`: seconds after the start. `ahead`: its send_at is so many seconds after its first
    request; 0: at once. `cancelled`: the program takes it back as soon as it is accepted. `repeated`: the program makes
    the request once more at the end, as it would if the answer had been lost.
    """

    idempotency_key: str
    contact: str
    reply: ScriptedReply
    tenant: int = 0
    at: float = 0.0
    ahead: float = 0.0
    cancelled: bool = False
    repeated: bool = False

    def key(self, tenant: str) -> str:
        """The key of its record, which must follow from the tenant whose API key was used."""
        return api_message_key(tenant, self.idempotency_key)


def api_messages(seed: int, count: int, seconds: float, contacts: Sequence[str], tenants: int) -> Iterator[ApiMessage]:
    """So many messages, evenly over the seconds. A contact belongs to a tenant by its place, as for all messages."""
    chance = random.Random(f"api {seed}")
    for number in range(count):
        place = chance.randrange(len(contacts))
        cancelled = chance.random() < CANCELLED_SHARE
        later = cancelled or chance.random() < LATER_SHARE
        yield ApiMessage(
            idempotency_key=f"chaos-{seed}-{number}",
            contact=contacts[place],
            reply=ScriptedReply("text", {"body": f"{CANARY} by the API {number:06} 🕊"}),
            tenant=place % tenants,
            at=seconds * number / count,
            ahead=round(chance.uniform(0.2, LONGEST_AHEAD), 1) if later else 0.0,
            cancelled=cancelled,
            repeated=chance.random() < REPEATED_SHARE,
        )
