"""The plan of a chaos run: who writes what and when, all of it from the seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from cli.chaos.enough_faults import is_short
from cli.chaos.message_script import Script

FIRST_CONTACT = 15552000000
"""Far from the business's own number: what comes from that is an echo of what it wrote itself."""

REFUSED_SHARE = 20
"""One contact in so many has a number that WhatsApp never delivers to,"""

REFUSED_AT_MOST = 5
"""but no more than so many: each is a fault of its own, which every send has to be held against."""

RAISING_SHARE = 0.01
"""Of the messages: every try of their handler raises."""

SLOWER_AT_MOST = 2500
"""Milliseconds by which a short run's handler is slower: then some messages are under way at each kill."""

EARLY = 10
"""They are all in the first tenth, for eight tries take their time."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What to do: how many messages, over how many seconds, from how many contacts. The handler takes `slower`
    milliseconds longer than it would.
    """

    messages: int
    seconds: float
    contacts: int
    seed: int
    slower: int = 0


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message to the business."""

    id: str
    contact: str
    script: Script


@dataclass(frozen=True, slots=True)
class WebhookBatch:
    """Messages of one contact in one webhook, which comes `times`; with `rebatch` cut elsewhere each time. `at` is in
    seconds after the start.
    """

    at: float
    id: str
    messages: tuple[Inbound, ...]
    times: int
    rebatch: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The same for the same order. `refused`: contacts to whom nothing can be delivered."""

    batches: Sequence[WebhookBatch]
    refused: frozenset[str]

    @property
    def messages(self) -> Iterator[Inbound]:
        return chain.from_iterable(batch.messages for batch in self.batches)


def slower(messages: int, seconds: float, time_scale: float) -> int:
    """How many milliseconds slower the handler is: the more, the fewer messages come in a second, and always less than
    would meet HANDLER_TIMEOUT.
    """
    longest = min(SLOWER_AT_MOST, 10 * SLOWER_AT_MOST / time_scale)
    return round(longest / max(1.0, messages / seconds)) if is_short(messages) else 0


def make_plan(order: PlanSettings) -> Plan:
    chance = random.Random(f"plan {order.seed}")
    contacts = [str(FIRST_CONTACT + number) for number in range(order.contacts)]
    batches: list[WebhookBatch] = []
    planned = 0
    while planned < order.messages:
        size = min(chance.choice((1, 1, 1, 1, 1, 2, 2, 3, 5, 10)), order.messages - planned)
        at = order.seconds * planned / order.messages
        batches.append(_batch(order, chance, at, chance.choice(contacts), range(planned, planned + size)))
        planned += size
    return Plan(batches, frozenset(contacts[: min(REFUSED_AT_MOST, max(1, len(contacts) // REFUSED_SHARE))]))


def _batch(order: PlanSettings, chance: random.Random, at: float, contact: str, numbers: range) -> WebhookBatch:
    """The simulator numbers the ids of a batch of several in just this way."""
    batch = f"wamid.CHAOS.{order.seed}.{numbers[0]}"
    ids = [batch] if len(numbers) == 1 else [f"{batch}.{place}" for place in range(1, len(numbers) + 1)]
    messages = [
        Inbound(id, contact, _script(chance, number, order.slower, early=EARLY * number < order.messages))
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
