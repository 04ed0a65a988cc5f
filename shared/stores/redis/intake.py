"""The part of the Redis store that the webhook service needs."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from shared.domain.counters import ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.errors import ConversationChanged, UnknownState
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.pipeline.intake import Created, Exists, NotedReceipt
from shared.pipeline.registry import EntryName
from shared.stores.entries import StoredEntry
from shared.stores.records import each_storable, id_hash_of, new_version, one_after_another
from shared.stores.redis.connection import RedisClient
from shared.stores.redis.counters import kept
from shared.stores.redis.records import Value, as_stored, creation, noted, noted_block, noted_unechoed
from shared.stores.redis.registry import find_entries
from shared.stores.redis.scripts import COMMIT, HAS_MOVED, IS_MADE, KEEP_COUNTERS, NOTE, NOTE_BLOCK, NOTE_UNECHOED

R = TypeVar("R")

PORTION = 200
"""Scripts in one round trip, as many as ThreadedIntake gives at once. They occupy the server for some 16 ms, while
other clients wait.
"""


class RedisIntake:
    """The calls of the `IntakeStore` port, blocking, on one Redis server, at a redis:// or rediss:// URL. It connects
    on first use.

    A call is one round trip and ends within about 2 s. A 200 is only as durable as the server: docs/stores.md.
    """

    def __init__(self, url: str, limits: Limits, clock: Callable[[], datetime], ca_certs: str | None = None) -> None:
        self._client = RedisClient(url, ca_certs)
        self._limits = limits
        self._clock = clock

    def close(self) -> None:
        """Close every connection; no other call may follow."""
        self._client.close()

    def create_all(self, records: Sequence[Delivery], deadline: Deadline) -> Sequence[Created | Exists | Exception]:
        """One round trip for each portion."""

        def arguments(record: Delivery) -> Sequence[Value]:
            return creation(record, new_version(), self._clock())

        def write(calls: list[Sequence[Value]]) -> list[Created | Exists | Exception]:
            return self._each(COMMIT, calls, created)

        return one_after_another(records, PORTION, lambda part: each_storable(part, arguments, write), deadline)

    def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        """As `create_all`. Receipts with an echo go first, because one round trip runs one script."""
        echoed = [(place, echo, receipt) for place, (echo, receipt) in enumerate(receipts) if echo]
        unechoed = [(place, receipt) for place, (echo, receipt) in enumerate(receipts) if not echo]

        life = self._limits.receipt_retention

        def of_echoed(noted_: tuple[int, Echo, ReceiptReceived]) -> Sequence[Value]:
            _, echo, receipt = noted_
            return noted(echo, receipt, id_hash_of(receipt))

        def of_unechoed(noted_: tuple[int, ReceiptReceived]) -> Sequence[Value]:
            _, receipt = noted_
            return noted_unechoed(receipt, id_hash_of(receipt), life)

        def note(calls: list[Sequence[Value]]) -> list[bool | Exception]:
            return self._each(NOTE, calls, bool)

        def note_unechoed(calls: list[Sequence[Value]]) -> list[bool | Exception]:
            return self._each(NOTE_UNECHOED, calls, lambda _: True)

        made = [
            *one_after_another(echoed, PORTION, lambda part: each_storable(part, of_echoed, note), deadline),
            *one_after_another(
                unechoed, PORTION, lambda part: each_storable(part, of_unechoed, note_unechoed), deadline
            ),
        ]
        by_place = dict(zip([place for place, *_ in (*echoed, *unechoed)], made, strict=True))
        return [by_place[place] for place in range(len(receipts))]

    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        self._client.run(NOTE_BLOCK, *noted_block(id, noted))

    def keep_counters(self, counters: ProcessCounters) -> None:
        self._client.run(KEEP_COUNTERS, *kept(counters))

    def stored_entries(self, names: Sequence[EntryName]) -> Sequence[StoredEntry | None]:
        """All of one moment."""
        return find_entries(self._client, names)

    def ping(self) -> None:
        """Writes, since a read-only server can take no message, and checks that the server does not evict records."""
        self._client.check()

    def _each(self, script: str, calls: Sequence[Sequence[Value]], read: Callable[[Any], R]) -> list[R | Exception]:
        """What `read` makes of each answer of the script; NotStored or StoreUnavailable if Redis refused that call."""
        answers = self._client.run_each(script, calls) if calls else ()
        return [answer if isinstance(answer, Exception) else read(answer) for answer in answers]


def committed(outcome: int) -> bool:
    """Whether a commit is made; if not, the record is another. Raises ConversationChanged."""
    if outcome == HAS_MOVED:
        raise ConversationChanged
    return outcome == IS_MADE


def created(outcome_and_found: Sequence[Any]) -> Created | Exists:
    """The result of a creation. Raises ConversationChanged."""
    outcome, found = outcome_and_found
    if committed(outcome):
        return Created()
    try:
        stored = as_stored(found)
    except UnknownState:
        return Exists(None)
    return Exists(stored.record if stored else None)
