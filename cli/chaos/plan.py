"""The plan of a chaos run: who writes what and when. The seed determines all of it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from cli.chaos.api_plan import ApiMessage, api_messages
from cli.chaos.enough_faults import is_short
from cli.chaos.message_script import Script

FIRST_CONTACT = 15552000000
"""Not near the business's own number: a message from that number is an echo of its own message."""

REFUSED_SHARE = 20
"""One contact in this many has a number that WhatsApp never delivers to,"""

REFUSED_AT_MOST = 5
"""but at most this many in all: each is a separate fault, and every send is matched against each."""

RAISING_SHARE = 0.01
"""Share of messages whose handler raises on every attempt."""

SLOWER_AT_MOST = 2500
"""Milliseconds by which a short run's handler is slower, so that each kill interrupts some messages."""

BURST = 0.4
"""How often a contact writes the next webhook too: it does not wait for the answers to the last one."""

EARLY = 10
"""They are all in the first tenth, because eight attempts take long."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The size of the run: how many messages, over how many seconds, from how many contacts, to how many tenants. The
    handler takes `slower` extra milliseconds. Programs send `api_share` as many messages through the API.
    """

    messages: int
    seconds: float
    contacts: int
    seed: int
    slower: int = 0
    tenants: int = 1
    api_share: float = 0.0

    @property
    def api_messages(self) -> int:
        return round(self.messages * self.api_share)


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message to a business: the tenant's number, where 0 is the environment's tenant."""

    id: str
    contact: str
    script: Script
    tenant: int = 0


@dataclass(frozen=True, slots=True)
class WebhookBatch:
    """Messages of one contact in one webhook, which comes `times` times, with `rebatch` in a different batch each time.
    `at` is in seconds after the start.
    """

    at: float
    id: str
    messages: tuple[Inbound, ...]
    times: int
    rebatch: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Equal for equal settings. `refused`: contacts whom WhatsApp never delivers to. `by_api`: what programs send."""

    batches: Sequence[WebhookBatch]
    refused: frozenset[str]
    by_api: Sequence[ApiMessage] = ()

    @property
    def messages(self) -> Iterator[Inbound]:
        return chain.from_iterable(batch.messages for batch in self.batches)


def slower(messages: int, seconds: float, time_scale: float) -> int:
    """How many milliseconds slower the handler is: more if fewer messages come per second, and always less than
    HANDLER_TIMEOUT.
    """
    longest = min(SLOWER_AT_MOST, 10 * SLOWER_AT_MOST / time_scale)
    return round(longest / max(1.0, messages / seconds)) if is_short(messages) else 0


def make_plan(order: PlanSettings) -> Plan:
    chance = random.Random(f"plan {order.seed}")
    contacts = [str(FIRST_CONTACT + number) for number in range(order.contacts)]
    tenants = {contact: number % order.tenants for number, contact in enumerate(contacts)}
    batches: list[WebhookBatch] = []
    contact = chance.choice(contacts)
    planned = 0
    while planned < order.messages:
        size = min(chance.choice((1, 1, 1, 1, 1, 2, 2, 3, 5, 10)), order.messages - planned)
        at = order.seconds * planned / order.messages
        contact = contact if chance.random() < BURST else chance.choice(contacts)
        batches.append(_batch(order, chance, at, contact, tenants[contact], range(planned, planned + size)))
        planned += size
    by_api = api_messages(order.seed, order.api_messages, order.seconds, contacts, order.tenants)
    refused = contacts[: min(REFUSED_AT_MOST, max(1, len(contacts) // REFUSED_SHARE))]
    return Plan(batches, frozenset(refused), list(by_api))


def _batch(
    order: PlanSettings, chance: random.Random, at: float, contact: str, tenant: int, numbers: range
) -> WebhookBatch:
    """The ids follow the simulator's own numbering of a batch."""
    batch = f"wamid.CHAOS.{order.seed}.{numbers[0]}"
    ids = [batch] if len(numbers) == 1 else [f"{batch}.{place}" for place in range(1, len(numbers) + 1)]
    messages = [
        Inbound(id, contact, _script(chance, number, order.slower, early=EARLY * number < order.messages), tenant)
        for id, number in zip(ids, numbers, strict=True)
    ]
    return WebhookBatch(at, batch, tuple(messages), times=chance.choice((1, 1, 1, 2, 3)), rebatch=chance.random() < 0.7)


def _script(chance: random.Random, number: int, slower: int, early: bool) -> Script:
    replies = chance.choices((1, 2, 3, 4, 5), (30, 25, 20, 15, 10))[0]
    kinds = "".join(chance.choices("tbl", (8, 1, 1), k=replies))
    longest = chance.choices((100, 600, 1500), (50, 35, 15))[0]
    raises: int | None = chance.choices((0, 1, 2), (85, 10, 5))[0]
    if chance.random() < EARLY * RAISING_SHARE and early:
        raises = None
    return Script(number, kinds, slower + chance.randrange(longest), raises)
