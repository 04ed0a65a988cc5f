"""The Firestore store: one document per record, without transactions.

A record is created only if it does not exist and changed only if its update time is still the one that was read. A
plan is one commit. So an operation may be repeated: after a refused write the record is read and decided on again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from shared.domain.conversations import ConversationEntry
from shared.domain.counters import ProcessCounters
from shared.domain.delivery.answers import Step
from shared.domain.errors import ConversationChanged, UnknownState
from shared.domain.identity import provider_id_hash
from shared.domain.listings import Listing
from shared.domain.marks import Marks
from shared.domain.record import COUNTED_STATES, OPEN_STATES, Delivery, Kind, State
from shared.net.patience import Patience
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import Backlog, Cursor, Decide, DecideMarks, Load, Page
from shared.stores.codec import as_moment, moment
from shared.stores.counters_codec import MOST_PROCESSES
from shared.stores.firestore.connection import FirestoreRpc, pause
from shared.stores.firestore.conversations import (
    FirestoreConversations,
    as_written,
    contended_id,
    entry_name,
    have_moved,
    must_be_as_read,
    writing_entry,
)
from shared.stores.firestore.counters import counters_in, keeping_counters
from shared.stores.firestore.errors import LostRace
from shared.stores.firestore.listings import correlation_ids_with_prefix, documents_of_page, keys_with_prefix
from shared.stores.firestore.marks import changing_marks, marks_of
from shared.stores.firestore.queries import (
    equal,
    history_page,
    in_state_of_kind,
    last_in_turn,
    of_conversation_page,
    oldest_of,
    overdue_page,
    recent_counters,
    troubled_page,
    waiting_for,
)
from shared.stores.firestore.receipts import marks_name
from shared.stores.firestore.records import (
    Document,
    Write,
    changing,
    creating,
    document_of,
    echoed_in,
    id_hash_of,
    lean_record_of,
    name_of,
    receipts_name,
    record_name,
    record_of,
    time_of,
    unechoed_in,
)
from shared.stores.firestore.registry import FirestoreRegistry
from shared.stores.firestore.turns import Turns
from shared.stores.records import in_order, with_receipts
from shared.stores.steps import written

T = TypeVar("T")

_PROBE = record_name("ping")
"""A document that never exists: asking for it costs one read."""


class FirestoreStore(FirestoreRegistry, FirestoreConversations):
    """The ports `Store` and `Registry` on one Firestore database. A call ends within about 2 s if the database does not
    answer, within 10 s if it keeps losing races. It connects on first use, so it may be created before a fork.
    """

    def __init__(self, project: str, database: str, emulator: str | None = None) -> None:
        self._rpc = FirestoreRpc(project, database, emulator)
        self._turns = Turns()
        self._conversation_turns = Turns()

    def close(self) -> None:
        """Close the connection; no other call may follow."""
        self._rpc.close()

    def create(self, record: Delivery, entries: Sequence[ConversationEntry] = ()) -> Created | Exists:
        """Exists may refer to this same call, if the library retried a write whose first try was applied."""
        patience, write = self._rpc.patience(), creating(record)
        while True:
            try:
                self._commit([write], entries, patience)
                return Created()
            except LostRace as lost:
                cause = lost
            found = self._rpc.read([name_of(write), *(entry_name(entry.id) for entry in entries)], patience)
            if name_of(write) in found:
                return self._exists(found[name_of(write)], patience)
            if have_moved(entries, found):
                raise ConversationChanged from cause
            pause(patience, cause)

    def get(self, key: str, unechoed: bool = True) -> Delivery | None:
        patience = self._rpc.patience()
        if unechoed:
            return self._find(key, patience)
        found = map(document_of, self._rpc.read([record_name(key)], patience).values())
        return next((with_receipts(record_of(document), echoed_in(document), ()) for document in found), None)

    def change(self, key: str, decide: Decide, seen: Delivery | None = None) -> Step:
        """Writes only if the record is unchanged since it was read; otherwise reads and decides again. Then the threads
        of a process go one at a time, since they would make each other lose the race.
        """
        patience = self._rpc.patience()
        found = seen if _current(seen) else self._find(key, patience)
        step = decide(found)
        with suppress(LostRace):
            return self._apply(key, found, step, (), patience)

        def again() -> Step:
            nonlocal found, step
            names = [record_name(key), *(entry_name(entry.id) for entry in step.entries)]
            documents = self._rpc.read(names, patience)
            now = self._record_in(documents, key, patience)
            if made := as_written(step, found, now):
                return made
            found, step = now, decide(now)
            must_be_as_read(step, names, documents)
            return self._apply(key, found, step, self._existing(step.create, patience), patience)

        return self._until_won(key, again, patience)

    def in_turn(self, first: str, beyond: str) -> Sequence[Delivery]:
        return self._all(last_in_turn(first, beyond))

    def overdue(self, before: datetime, limit: int) -> Sequence[str]:
        """Skips records in states of a newer version, and reads on until it has `limit` records."""
        patience, keys, last = self._rpc.patience(), list[str](), None
        while len(keys) < limit:
            page = self._rpc.query(overdue_page(before, limit, last), patience)
            keys += [key for key, state in map(_key_and_state, page) if state in OPEN_STATES]
            if len(page) < limit:
                break
            last = page[-1]
        return keys[:limit]

    def backlog(self) -> Backlog:
        patience = self._rpc.patience()
        counts = {state: self._rpc.count(equal("state", state, then="tenant"), patience) for state in COUNTED_STATES}
        # Excludes records that only a receipt without an echo marks: each would need a look-up by its provider id.
        receipts_failed = self._rpc.count(equal("mark", Listing.REFUSED, then="tenant"), patience)
        pending, dead = (self._oldest(field, patience) for field in ("pending_since", "dead_since"))
        return Backlog(counts, pending, receipts_failed, dead)

    def load(self, tenant: str | None, now: datetime) -> Load:
        """One count for each state that events and messages may have."""
        patience = self._rpc.patience()

        def counted(kind: Kind, states: Iterable[State]) -> Mapping[State, int]:
            return {state: self._rpc.count(in_state_of_kind(state, kind, tenant), patience) for state in states}

        return Load(
            events=counted(Kind.INBOUND, [state for state in COUNTED_STATES if state is not State.IN_DOUBT]),
            messages=counted(Kind.OUTBOUND, COUNTED_STATES),
            scheduled=self._rpc.count(waiting_for(now, tenant), patience),
            oldest_pending=self._oldest("pending_since", patience, tenant),
        )

    def keep_counters(self, counters: ProcessCounters) -> None:
        """A blind write, which may be made twice."""
        self._rpc.commit([keeping_counters(counters)], self._rpc.patience())

    def recent_counters(self, since: datetime) -> Sequence[ProcessCounters]:
        found = self._rpc.query(recent_counters(since, MOST_PROCESSES), self._rpc.patience())
        return [*counters_in(map(document_of, found))]

    def _oldest(self, field: str, patience: Patience, tenant: str | None = None) -> datetime | None:
        found = self._rpc.query(oldest_of(field, tenant), patience)
        return time_of(found[0].fields[field].timestamp_value) if found else None

    def listed(self, listing: Listing, tenant: str | None, after: Cursor | None, limit: int) -> Page:
        patience = self._rpc.patience()
        documents, ends_at = documents_of_page(self._rpc, listing, tenant, after, limit, patience)
        read: list[tuple[Delivery, Document]] = []
        for document in map(document_of, documents):
            with suppress(UnknownState):
                read.append((lean_record_of(document), document))
        return Page(self._with_receipts(read, patience), len(documents) - len(read), ends_at)

    def history(
        self, tenant: str, since: datetime | None, until: datetime | None, after: Cursor | None, limit: int
    ) -> Page:
        patience = self._rpc.patience()
        documents = self._rpc.query(history_page(tenant, since, until, limit, self._last(after)), patience)
        return self._whole(documents, limit, patience)

    def of_conversation(self, id: str, after: Cursor | None, limit: int) -> Page:
        patience = self._rpc.patience()
        documents = self._rpc.query(of_conversation_page(id, limit, self._last(after)), patience)
        return self._whole(documents, limit, patience)

    def _last(self, after: Cursor | None) -> tuple[datetime, Any] | None:
        return (as_moment(after[0]), self._rpc.reference(record_name(after[1]))) if after else None

    def _whole(self, documents: Sequence[Any], limit: int, patience: Patience) -> Page:
        """The page of whole records in these documents."""
        read: list[tuple[Delivery, Document]] = []
        for document in map(document_of, documents):
            with suppress(UnknownState):
                read.append((record_of(document), document))
        ends_at = _age_and_key(documents[-1]) if len(documents) == limit else None
        return Page(self._with_receipts(read, patience), len(documents) - len(read), ends_at)

    def purge(self, now: datetime, limit: int) -> int:  # noqa: ARG002 — the port's
        """Nothing: Firestore's TTL policies delete what has expired."""
        return 0

    def by_correlation(self, correlation_id: str) -> Sequence[Delivery]:
        return in_order(self._all(equal("correlation_id", correlation_id)))

    def by_provider_id(self, provider: str, provider_id: str) -> Delivery | None:
        return next(iter(self._all(equal("id_hash", provider_id_hash(provider, provider_id)))), None)

    def ids_with_prefix(self, prefix: str, limit: int) -> Sequence[str]:
        patience = self._rpc.patience()
        keys = keys_with_prefix(self._rpc, prefix, limit, patience)
        return sorted({*keys, *correlation_ids_with_prefix(self._rpc, prefix, limit, patience)})[:limit]

    def marks(self, id: str) -> Marks:
        return self._find_marks(id, self._rpc.patience())

    def change_marks(self, id: str, decide: DecideMarks, seen: Marks | None = None) -> tuple[Marks, Marks]:
        """As `change`."""
        patience = self._rpc.patience()
        before = self._find_marks(id, patience) if seen is None else seen
        with suppress(LostRace):
            return self._apply_marks(id, before, decide(before), patience)

        def again() -> tuple[Marks, Marks]:
            now = self._find_marks(id, patience)
            return self._apply_marks(id, now, decide(now), patience)

        return self._until_won(id, again, patience)

    def troubled(self, after: str | None, limit: int) -> Sequence[str]:
        """By the field `troubled`, which each write of marks sets or removes. Marks that an earlier version of Pombo
        left troubled have it from their next write on; those that it healed are skipped.
        """
        patience, ids = self._rpc.patience(), list[str]()
        last = self._rpc.reference(marks_name(after)) if after else None
        while len(ids) < limit:
            page = self._rpc.query(troubled_page(last, limit), patience)
            ids += [document.name.rpartition("/")[2] for document in page if document.fields]
            if len(page) < limit:
                break
            last = {"reference_value": page[-1].name}
        return ids[:limit]

    def ping(self) -> None:
        self.time()

    def time(self) -> datetime:
        return self._rpc.time(_PROBE, self._rpc.patience())

    # ---- reading and writing

    def _find(self, key: str, patience: Patience) -> Delivery | None:
        return self._record_in(self._rpc.read([record_name(key)], patience), key, patience)

    def _record_in(self, documents: Mapping[str, Any], key: str, patience: Patience) -> Delivery | None:
        found = documents.get(record_name(key))
        return None if found is None else self._joined([found], patience)[0]

    def _all(self, query: Mapping[str, Any]) -> list[Delivery]:
        patience = self._rpc.patience()
        return self._joined(self._rpc.query(query, patience), patience)

    def _joined(self, documents: Iterable[Any], patience: Patience) -> list[Delivery]:
        found = [(record_of(document), document) for document in map(document_of, documents)]
        return self._with_receipts(found, patience)

    def _with_receipts(self, found: Sequence[tuple[Delivery, Document]], patience: Patience) -> list[Delivery]:
        """The records with all their receipts. Receipts without an echo are read if the record has a provider's id."""
        hashes = {id_hash_of(record) for record, _ in found} - {None}
        names = [receipts_name(id_hash) for id_hash in hashes if id_hash]
        unechoed = self._rpc.read(names, patience) if names else {}
        return [
            with_receipts(record, echoed_in(document), _unechoed_of(record, unechoed)) for record, document in found
        ]

    def _exists(self, document: Any, patience: Patience) -> Exists:
        try:
            return Exists(self._joined([document], patience)[0])
        except UnknownState:
            return Exists(None)

    def _existing(self, records: Sequence[Delivery], patience: Patience) -> Collection[str]:
        return self._rpc.read([record_name(record.key) for record in records], patience) if records else ()

    def _apply(
        self, key: str, found: Delivery | None, step: Step, existing: Collection[str], patience: Patience
    ) -> Step:
        """The step, committed. Raises LostRace."""
        writes = _writes(key, found, step, existing)
        return written(step, self._commit(writes, step.entries, patience)[0]) if writes else step

    def _commit(self, writes: Sequence[Write], entries: Sequence[ConversationEntry], patience: Patience) -> list[int]:
        """One commit, with the entries. Raises LostRace."""
        if not entries:
            return self._rpc.commit(writes, patience)
        with self._conversation_turns.of(contended_id(entries), patience):
            return self._rpc.commit([*writes, *map(writing_entry, entries)], patience)

    def _find_marks(self, id: str, patience: Patience) -> Marks:
        name = marks_name(id)
        found = self._rpc.read([name], patience)
        return marks_of(found[name]) if found else Marks()

    def _apply_marks(self, id: str, before: Marks, after: Marks, patience: Patience) -> tuple[Marks, Marks]:
        """The marks before and after, committed. Raises LostRace."""
        if after == before:
            return before, before
        version = self._rpc.commit([changing_marks(id, before, after)], patience)[0]
        return before, replace(after, version=version)

    def _until_won(self, key: str, again: Callable[[], T], patience: Patience) -> T:
        """Repeat `again` until it loses no race."""
        with self._turns.of(key, patience):
            while True:
                try:
                    return again()
                except LostRace as lost:
                    pause(patience, lost)


def _current(seen: Delivery | None) -> bool:
    """Whether a decision may be based on `seen`. Its version covers every write to its document, but not receipts
    without an echo: they are in another document, which only a record with a provider's id has.
    """
    return seen is not None and seen.version is not None and not seen.provider_id


def _writes(key: str, found: Delivery | None, step: Step, existing: Collection[str]) -> list[Write]:
    """The writes of a step, its record's first, without the records that exist already."""
    if step.write is None and not step.create:
        return []
    record = step.write or found  # if the step only creates others, the record it was decided on must be unchanged
    if record is not None and record.key != key:
        raise ValueError("A change writes the record that it was asked to change.")
    writes = [creating(other) for other in step.create if record_name(other.key) not in existing]
    if record is None:
        return writes
    return [changing(found, record) if found else creating(record), *writes]


def _unechoed_of(record: Delivery, unechoed: Mapping[str, Any]) -> Iterable[Any]:
    id_hash = id_hash_of(record)
    document = unechoed.get(receipts_name(id_hash)) if id_hash else None
    return unechoed_in(document_of(document)) if document is not None else ()


def _key_and_state(document: Any) -> tuple[str, str]:
    return document.name.rpartition("/")[2], document.fields["state"].string_value


def _age_and_key(document: Any) -> Cursor:
    return moment(time_of(document.fields["received_at"].timestamp_value)), document.name.rpartition("/")[2]
