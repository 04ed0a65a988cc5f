"""The Redis store: the records of many instances in one Redis server, if latency matters more than durability."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from shared.domain.conversations import ConversationEntry
from shared.domain.counters import ProcessCounters
from shared.domain.delivery.answers import Step
from shared.domain.errors import StoreUnavailable
from shared.domain.identity import provider_id_hash
from shared.domain.listings import Listing
from shared.domain.marks import Marks
from shared.domain.record import COUNTED_STATES, Delivery, State
from shared.domain.turns import LOOKED_AT
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import Backlog, Cursor, Decide, DecideMarks, Load, Page
from shared.stores.counters_codec import MOST_PROCESSES
from shared.stores.records import in_order, new_version
from shared.stores.redis.conversations import RedisConversations, entry_rows
from shared.stores.redis.counters import as_counters
from shared.stores.redis.intake import RedisIntake, committed, created
from shared.stores.redis.listings import as_history, as_page, as_state_load, asking_for, asking_for_history, ids_in
from shared.stores.redis.marks import as_marks, changed
from shared.stores.redis.records import (
    StoredRecord,
    as_stored,
    as_time,
    creation,
    marks_name,
    microseconds,
    pairs,
)
from shared.stores.redis.registry import RedisRegistry
from shared.stores.redis.scripts import (
    BACKLOG,
    CHANGE_MARKS,
    COMMIT,
    FIND,
    FIND_ALL,
    HISTORY,
    IN_TURN,
    LISTED,
    LOAD,
    OVERDUE,
    RECENT_COUNTERS,
    TROUBLED,
)
from shared.stores.redis.steps import commit, handed_on, seen_before

CONTENTION = 10.0
"""Seconds that a change may keep losing races."""

SEARCH_SECONDS = 10.0
"""Seconds that a search by a part of an id may take: enough for some ten million names."""

SEARCH_NAMES = 1000
"""Names checked in one round trip, which occupies the server for less than a millisecond."""

LOAD_PAGE = 2000
"""Records counted in one round trip, which occupies the server for some milliseconds."""

_LONGEST_PAUSE = 0.05


class RedisStore(RedisIntake, RedisRegistry, RedisConversations):
    """The ports `Store` and `Registry` on one Redis server."""

    def create(self, record: Delivery, entries: Sequence[ConversationEntry] = ()) -> Created | Exists:
        return created(self._client.run(COMMIT, *creation(record, new_version(), self._clock(), entry_rows(entries))))

    def get(self, key: str, unechoed: bool = True) -> Delivery | None:  # noqa: ARG002 — they cost nothing here
        found = self._find(key)
        return found.record if found else None

    def change(self, key: str, decide: Decide, seen: Delivery | None = None) -> Step:
        """A refused commit returns what is stored now, so a lost race costs one round trip and no read."""
        before = seen_before(seen) if seen else self._find(key)
        for _ in _tries():
            step = decide(before.record if before else None)
            if step.write is None and not step.create:
                return step
            version = new_version()
            outcome, answer = self._client.run(COMMIT, *commit(key, before, step, version, self._clock()))
            if committed(outcome):
                return handed_on(step, before, version, joins=bool(answer))
            before = as_stored(answer)
        raise StoreUnavailable("The store is busy.")

    def in_turn(self, first: str, beyond: str) -> Sequence[Delivery]:
        turn_id, *_ = first.partition("/")
        found = [as_stored(each) for each in self._client.run(IN_TURN, turn_id, first, beyond, LOOKED_AT)]
        return [stored.record for stored in found if stored]

    def overdue(self, before: datetime, limit: int) -> Sequence[str]:
        keys: list[str] = self._client.run(OVERDUE, microseconds(before), limit)
        return keys

    def backlog(self) -> Backlog:
        pending, dead, counts, refused = self._client.run(BACKLOG, *COUNTED_STATES)
        oldest_pending, oldest_dead = (as_time(oldest) if oldest else None for oldest in (pending, dead))
        return Backlog(dict(zip(COUNTED_STATES, counts, strict=True)), oldest_pending, refused, oldest_dead)

    def load(self, tenant: str | None, now: datetime) -> Load:
        """Looks at every counted record, some thousands at a time: the server has no index of tenants."""
        given = (tenant or "", microseconds(now))
        states = {state: as_state_load(self._pages_of_load(state, *given)) for state in COUNTED_STATES}
        pending = states[State.PENDING]
        return Load(
            events={state: found.events for state, found in states.items()},
            messages={state: found.messages for state, found in states.items()},
            scheduled=pending.later,
            oldest_pending=pending.oldest,
        )

    def _pages_of_load(self, state: State, tenant: str, now: int) -> Iterator[Sequence[Any]]:
        score, key = "", ""
        while True:
            *page, end = self._client.run(LOAD, f"pombo:state:{state}", tenant, now, score, key, LOAD_PAGE)
            yield page
            if not end:
                return
            score, key = end

    def recent_counters(self, since: datetime) -> Sequence[ProcessCounters]:
        return [*as_counters(self._client.run(RECENT_COUNTERS, microseconds(since), MOST_PROCESSES))]

    def listed(self, listing: Listing, tenant: str | None, after: Cursor | None, limit: int) -> Page:
        return as_page(self._client.run(LISTED, *asking_for(listing, after, limit)), tenant)

    def history(
        self, tenant: str, since: datetime | None, until: datetime | None, after: Cursor | None, limit: int
    ) -> Page:
        """From a sorted set of each tenant. Records of an earlier version are in it from their next write on."""
        return as_history(self._client.run(HISTORY, *asking_for_history(tenant, since, until, after, limit)))

    def purge(self, now: datetime, limit: int) -> int:  # noqa: ARG002 — the port's
        """Nothing: Redis deletes what has expired."""
        return 0

    def by_correlation(self, correlation_id: str) -> Sequence[Delivery]:
        return in_order(self._all(f"pombo:correlation:{correlation_id}"))

    def by_provider_id(self, provider: str, provider_id: str) -> Delivery | None:
        return next(iter(self._all(f"pombo:id:{provider_id_hash(provider, provider_id)}")), None)

    def ids_with_prefix(self, prefix: str, limit: int) -> Sequence[str]:
        """Scans all names in the server, some at a time: an index of ids would slow every write for a rare look-up.
        Raises StoreUnavailable if there are too many names.
        """
        give_up, cursor, found = time.monotonic() + SEARCH_SECONDS, 0, set[str]()
        while True:
            cursor, names = self._client.command("SCAN", cursor, "MATCH", f"pombo:*:{prefix}*", "COUNT", SEARCH_NAMES)
            found |= {id for name in names for id in ids_in(name)}
            found = set(sorted(found)[:limit])
            if cursor == 0:
                return sorted(found)
            if time.monotonic() > give_up:
                raise StoreUnavailable("Redis holds too many records to search by a part of an id: give the whole id.")

    def marks(self, id: str) -> Marks:
        return as_marks(self._client.command("HGETALL", marks_name(id)))

    def change_marks(self, id: str, decide: DecideMarks, seen: Marks | None = None) -> tuple[Marks, Marks]:
        """As `change`."""
        before = self.marks(id) if seen is None else seen
        for _ in _tries():
            after = decide(before)
            if after == before:
                return before, before
            version = new_version()
            done, found = self._client.run(CHANGE_MARKS, *changed(id, before, after, version))
            if done:
                return before, replace(after, version=version)
            before = as_marks(pairs(found))
        raise StoreUnavailable("The store is busy.")

    def troubled(self, after: str | None, limit: int) -> Sequence[str]:
        """From a sorted set that each write of marks keeps. Marks that an earlier version of Pombo left troubled are in
        it from their next write on.
        """
        ids: list[str] = self._client.run(TROUBLED, after or "", limit)
        return ids

    def time(self) -> datetime:
        seconds, rest = self._client.command("TIME")
        return as_time(seconds * 1_000_000 + rest)

    def _find(self, key: str) -> StoredRecord | None:
        return as_stored(self._client.run(FIND, key))

    def _all(self, index: str) -> list[Delivery]:
        found = [as_stored(each) for each in self._client.run(FIND_ALL, index)]
        return [stored.record for stored in found if stored]


def _tries() -> Iterator[None]:
    """Tries until the patience is over, with growing random pauses between them."""
    give_up, pause = time.monotonic() + CONTENTION, 0.001
    while True:
        yield
        if time.monotonic() > give_up:
            return
        time.sleep(random.uniform(0, pause))  # noqa: S311 — a pause, not a secret
        pause = min(_LONGEST_PAUSE, pause * 2)
