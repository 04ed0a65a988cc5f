"""The SQLite store: the records of one machine in one file, shared by all its processes."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from shared.domain.conversations import ConversationEntry
from shared.domain.counters import ProcessCounters
from shared.domain.delivery.answers import Step
from shared.domain.identity import BEYOND_IDS, provider_id_hash
from shared.domain.listings import Listing
from shared.domain.marks import Marks
from shared.domain.record import COUNTED_STATES, OPEN_STATES, Delivery, Kind, State
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import Backlog, ConversationPage, Cursor, Decide, DecideMarks, Load, Page
from shared.stores.codec import as_moment, moment
from shared.stores.records import in_order
from shared.stores.sqlite.conversations import commit_entries, conversation_page, find_entries
from shared.stores.sqlite.counters import recent_counters
from shared.stores.sqlite.intake import SqliteIntake, created
from shared.stores.sqlite.listings import count_refused, history, last_in_turn, page, records_of_conversation
from shared.stores.sqlite.marks import commit_marks, find_marks, troubled_ids
from shared.stores.sqlite.records import find, leave_conversation, new_row
from shared.stores.sqlite.registry import SqliteRegistry
from shared.stores.sqlite.steps import commit

_OPEN = ", ".join(f"'{state}'" for state in sorted(OPEN_STATES))
_OVERDUE = f"""
SELECT key FROM records WHERE sweep_at <= ? AND state IN ({_OPEN}) ORDER BY sweep_at, key LIMIT ?
"""  # noqa: S608 — our own states
_SINCE = "iif(json_valid(body), ifnull(json_extract(body, '$.send_at'), received_at), received_at)"
_COUNTED = f"state IN ({_OPEN}, '{State.DEAD}')"
_BACKLOG = f"SELECT state, count(*), min({_SINCE}) FROM records WHERE {_COUNTED} GROUP BY state"  # noqa: S608
_LOAD = f"""
SELECT json_extract(body, '$.kind') AS kind, state, count(*), min({_SINCE}), sum({_SINCE} > :now)
FROM records WHERE {_COUNTED} AND json_valid(body) AND (:tenant IS NULL OR tenant = :tenant) GROUP BY kind, state
"""  # noqa: S608
_IDS = """
SELECT id FROM (SELECT key AS id FROM records WHERE key >= :first AND key < :beyond ORDER BY key LIMIT :limit)
UNION
SELECT id FROM (
    SELECT DISTINCT correlation_id AS id FROM records
    WHERE correlation_id >= :first AND correlation_id < :beyond ORDER BY correlation_id LIMIT :limit
)
ORDER BY id LIMIT :limit
"""
_EXPIRED = """
DELETE FROM records WHERE key IN (SELECT key FROM records WHERE expire_at <= ? LIMIT ?)
RETURNING key, received_at, iif(json_valid(body), json_extract(body, '$.conversation'), NULL)
"""
_EXPIRED_UNECHOED = """
DELETE FROM unechoed WHERE (id_hash, kind) IN (SELECT id_hash, kind FROM unechoed WHERE expire_at <= ? LIMIT ?)
"""


class SqliteStore(SqliteIntake, SqliteRegistry):
    """The ports `Store` and `Registry` on one file."""

    def create(self, record: Delivery, entries: Sequence[ConversationEntry] = ()) -> Created | Exists:
        row = new_row(record)

        def work(db: sqlite3.Connection) -> Created | Exists:
            made = created(db, row)
            if isinstance(made, Created):
                commit_entries(db, entries)
            return made

        return self._file.write(work)

    def get(self, key: str, unechoed: bool = True) -> Delivery | None:  # noqa: ARG002 — they cost nothing here
        found = self._file.read(lambda db: find(db, key))
        return found.record if found else None

    def change(self, key: str, decide: Decide, seen: Delivery | None = None) -> Step:
        """Decides without a lock first, since most tasks write nothing. If there is something to write and the record
        or its receipts have changed, it decides again under the lock. So a lost race is repeated only once.
        """
        before = seen or self.get(key)
        step = decide(before)
        if _writes_nothing(step):
            return step

        def work(db: sqlite3.Connection) -> Step:
            found = find(db, key)
            now = found.record if found else None
            return commit(db, key, found, step if _same(before, now) else decide(now))

        return self._file.write(work)

    def in_turn(self, first: str, beyond: str) -> Sequence[Delivery]:
        return self._file.read(lambda db: last_in_turn(db, first, beyond))

    def conversation_entries(self, ids: Sequence[str]) -> Mapping[str, ConversationEntry]:
        """All of one moment."""
        return self._file.read(lambda db: find_entries(db, ids))

    def conversations(self, tenant: str, after: Cursor | None, limit: int) -> ConversationPage:
        return self._file.read(lambda db: conversation_page(db, tenant, after, limit))

    def of_conversation(self, id: str, after: Cursor | None, limit: int) -> Page:
        return self._file.read(lambda db: records_of_conversation(db, id, after, limit))

    def overdue(self, before: datetime, limit: int) -> Sequence[str]:
        rows = self._file.read(lambda db: db.execute(_OVERDUE, (moment(before), limit)).fetchall())
        return [key for (key,) in rows]

    def backlog(self) -> Backlog:
        rows, receipts_failed = self._file.read(lambda db: (db.execute(_BACKLOG).fetchall(), count_refused(db)))
        oldest = {State(state): as_moment(received_at) for state, _, received_at in rows}
        counts = dict.fromkeys([*OPEN_STATES, State.DEAD], 0) | {State(state): count for state, count, _ in rows}
        return Backlog(counts, oldest.get(State.PENDING), receipts_failed, oldest.get(State.DEAD))

    def load(self, tenant: str | None, now: datetime) -> Load:
        """Reads the body of each counted record, since the file has no column for the kind."""
        given = {"tenant": tenant, "now": moment(now)}
        rows = self._file.read(lambda db: db.execute(_LOAD, given).fetchall())
        counts = {(kind, state): count for kind, state, count, *_ in rows}
        events, messages = ({state: counts.get((kind, state), 0) for state in COUNTED_STATES} for kind in Kind)
        pending = [rest for _, state, _, *rest in rows if state == State.PENDING]
        oldest = min((since for since, _ in pending), default=None)
        return Load(events, messages, sum(later for _, later in pending), oldest and as_moment(oldest))

    def recent_counters(self, since: datetime) -> Sequence[ProcessCounters]:
        return self._file.read(lambda db: [*recent_counters(db, since)])

    def listed(self, listing: Listing, tenant: str | None, after: Cursor | None, limit: int) -> Page:
        return self._file.read(lambda db: page(db, listing, tenant, after, limit))

    def history(
        self, tenant: str, since: datetime | None, until: datetime | None, after: Cursor | None, limit: int
    ) -> Page:
        return self._file.read(lambda db: history(db, tenant, since, until, after, limit))

    def purge(self, now: datetime, limit: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            gone = db.execute(_EXPIRED, (moment(now), limit)).fetchall()
            db.executemany("DELETE FROM receipts WHERE key = ?", [(key,) for key, *_ in gone])
            leave_conversation(db, [(id, received_at, key) for key, received_at, id in gone if id])
            return len(gone) + db.execute(_EXPIRED_UNECHOED, (moment(now), limit - len(gone))).rowcount

        return self._file.write(work)

    def by_correlation(self, correlation_id: str) -> Sequence[Delivery]:
        return in_order(self._all("correlation_id", correlation_id))

    def by_provider_id(self, provider: str, provider_id: str) -> Delivery | None:
        return next(iter(self._all("id_hash", provider_id_hash(provider, provider_id))), None)

    def ids_with_prefix(self, prefix: str, limit: int) -> Sequence[str]:
        between = {"first": prefix, "beyond": prefix + BEYOND_IDS, "limit": limit}
        rows = self._file.read(lambda db: db.execute(_IDS, between).fetchall())
        return [id for (id,) in rows]

    def marks(self, id: str) -> Marks:
        return self._file.read(lambda db: find_marks(db, id)).marks

    def change_marks(self, id: str, decide: DecideMarks, seen: Marks | None = None) -> tuple[Marks, Marks]:
        """As `change`: decides without a lock first, and again under it if the marks have changed."""
        before = self.marks(id) if seen is None else seen
        after = decide(before)
        if after == before:
            return before, before

        def work(db: sqlite3.Connection) -> tuple[Marks, Marks]:
            found = find_marks(db, id)
            now = found.marks
            wanted = after if now.version == before.version else decide(now)
            return now, now if wanted == now else commit_marks(db, id, found, wanted)

        return self._file.write(work)

    def troubled(self, after: str | None, limit: int) -> Sequence[str]:
        """By an index of the troubled ones alone, which holds also what an older Pombo wrote."""
        return self._file.read(lambda db: troubled_ids(db, after or "", limit))

    def time(self) -> datetime:
        """This machine's clock: a file has no other."""
        now = self._file.read(lambda db: db.execute("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00')").fetchone()[0])
        return as_moment(now)

    def _all(self, column: str, value: str) -> list[Delivery]:
        def work(db: sqlite3.Connection) -> list[Delivery]:
            keys = db.execute(f"SELECT key FROM records WHERE {column} = ?", (value,))  # noqa: S608 — ours
            found = [find(db, key) for (key,) in keys.fetchall()]
            return [stored.record for stored in found if stored]

        return self._file.read(work)


def _writes_nothing(step: Step) -> bool:
    return step.write is None and not step.create


def _same(before: Delivery | None, now: Delivery | None) -> bool:
    """Whether the decision is still valid. A receipt that came since may change it (done instead of dead)."""
    if before is None or now is None:
        return before is now
    return before.version == now.version and before.receipts == now.receipts
