"""The listings of the SQLite file: which keys are on a page, and the records behind them without their content."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from shared.domain.errors import UnknownState
from shared.domain.listings import UNKNOWN_SENDER, Listing
from shared.domain.record import Delivery, ReceiptKind, State
from shared.domain.turns import LOOKED_AT
from shared.pipeline.ports import Cursor, Page
from shared.stores.codec import decode, from_json, moment
from shared.stores.records import without_content
from shared.stores.sqlite.records import find, joined
from shared.stores.sqlite.schema import HAS_PLACE, PLACE

_OF_STATE: Mapping[Listing, str] = {
    Listing.DEAD: f"state = '{State.DEAD}'",
    Listing.PENDING: f"state = '{State.PENDING}'",
    Listing.UNKNOWN_SENDER: f"state = '{State.DROPPED}' "
    f"AND iif(json_valid(body), json_extract(body, '$.reason') = '{UNKNOWN_SENDER}', 0)",
    Listing.REPLAYED: f"state = '{State.PENDING}' "
    "AND iif(json_valid(body), json_extract(body, '$.round') > 0 AND json_extract(body, '$.attempt') = 0, 0)",
}
"""Read from the record: in one file that costs less than a mark column."""

_FAILED = f"kind = '{ReceiptKind.FAILED}'"
_REFUSED = f"""
SELECT key FROM (SELECT DISTINCT key FROM receipts WHERE {_FAILED} AND key > :after ORDER BY key LIMIT :limit)
UNION
SELECT key FROM (
    SELECT records.key FROM unechoed JOIN records USING (id_hash)
    WHERE {_FAILED} AND records.key > :after ORDER BY records.key LIMIT :limit
)
ORDER BY key LIMIT :limit
"""  # noqa: S608 — our own words

# Starts from the failed receipts, which are few even among many records. Receipts of a record that this version cannot
# read count too if its round can be read.
_COUNT_REFUSED = f"""
SELECT count(*) FROM (
    SELECT records.key FROM receipts CROSS JOIN records USING (key)
    WHERE {_FAILED} AND round = iif(json_valid(body), ifnull(json_extract(body, '$.round'), 0), NULL)
    UNION
    SELECT records.key FROM unechoed CROSS JOIN records USING (id_hash) WHERE {_FAILED}
)
"""  # noqa: S608

_LEAN = "SELECT iif(json_valid(body), json_remove(body, '$.payload'), NULL) FROM records WHERE key = ?"


_HISTORY = """
SELECT received_at, key FROM records
WHERE tenant = :tenant AND received_at BETWEEN :since AND :until AND (received_at, key) < (:after_age, :after_key)
ORDER BY received_at DESC, key DESC LIMIT :limit
"""
_OF_CONVERSATION = """
SELECT received_at, key FROM of_conversation
WHERE id = :id AND received_at <= :after_age AND (received_at, key) < (:after_age, :after_key)
ORDER BY received_at DESC, key DESC LIMIT :limit
"""
_EARLIEST, _LATEST = "", "~"
"""They sort before and after every time."""

# Left to itself, SQLite would read all open records by their state and sort them.
_IN_TURN = f"""
SELECT key FROM records INDEXED BY records_by_place WHERE {HAS_PLACE} AND {PLACE} >= ? AND {PLACE} < ?
ORDER BY {PLACE} DESC LIMIT {LOOKED_AT}
"""  # noqa: S608 — ours


def count_refused(db: sqlite3.Connection) -> int:
    """How many records Listing.REFUSED holds."""
    count: int = db.execute(_COUNT_REFUSED).fetchone()[0]
    return count


def page(db: sqlite3.Connection, listing: Listing, tenant: str | None, after: Cursor | None, limit: int) -> Page:
    """A page of a listing, as the port specifies it."""
    ends = _refused(db, after, limit) if listing is Listing.REFUSED else _of_state(db, listing, tenant, after, limit)
    records: list[Delivery] = []
    unread = 0
    for *_, key in ends:
        try:
            found = _find_lean(db, key)
        except UnknownState:
            unread += 1
            continue
        if found is not None and tenant in (None, found.tenant) and _is_of(listing, found):
            records.append(without_content(found))
    return Page(records, unread, tuple(map(str, ends[-1])) if len(ends) == limit else None)


def history(
    db: sqlite3.Connection,
    tenant: str,
    since: datetime | None,
    until: datetime | None,
    after: Cursor | None,
    limit: int,
) -> Page:
    """A page of a tenant's records, as the port specifies it."""
    after_age, after_key = after or (_LATEST, "")
    given = {"tenant": tenant, "after_age": after_age, "after_key": after_key, "limit": limit}
    # The index is entered where the page begins, and not where the period ends.
    newest = min(moment(until) if until else _LATEST, after_age)
    between = {"since": moment(since) if since else _EARLIEST, "until": newest}
    return _whole(db, db.execute(_HISTORY, given | between).fetchall(), limit)


def records_of_conversation(db: sqlite3.Connection, id: str, after: Cursor | None, limit: int) -> Page:
    """A page of a conversation's records, as the port specifies it."""
    after_age, after_key = after or (_LATEST, "")
    given = {"id": id, "after_age": after_age, "after_key": after_key, "limit": limit}
    return _whole(db, db.execute(_OF_CONVERSATION, given).fetchall(), limit)


def _whole(db: sqlite3.Connection, ends: Sequence[Cursor], limit: int) -> Page:
    """The page of whole records that ends there."""
    records: list[Delivery] = []
    for _, key in ends:
        with suppress(UnknownState):
            found = find(db, key)
            records += [found.record] if found else []
    return Page(records, len(ends) - len(records), tuple(ends[-1]) if len(ends) == limit else None)


def last_in_turn(db: sqlite3.Connection, first: str, beyond: str) -> Sequence[Delivery]:
    """The records with the last places from `first` to before `beyond`. Raises UnknownState."""
    found = [find(db, key) for (key,) in db.execute(_IN_TURN, (first, beyond)).fetchall()]
    return [stored.record for stored in found if stored]


def _find_lean(db: sqlite3.Connection, key: str) -> Delivery | None:
    """The record without its payload, which may be 256 KiB. Raises UnknownState."""
    row = db.execute(_LEAN, (key,)).fetchone()
    if row is None:
        return None
    return joined(db, decode({**from_json(row[0]), "payload": {}}))


def _is_of(listing: Listing, record: Delivery) -> bool:
    """Whether the record belongs to the listing: after a replay, receipts of earlier rounds are still stored."""
    return listing is not Listing.REFUSED or record.current_receipts.failed is not None


def _of_state(
    db: sqlite3.Connection, listing: Listing, tenant: str | None, after: Cursor | None, limit: int
) -> Sequence[Cursor]:
    """Sorted by tenant, age and creation. An index serves all of it: it holds the row numbers too."""
    of_tenant = "" if tenant is None else "AND tenant = :tenant "
    query = (
        f"SELECT tenant, received_at, rowid, key FROM records WHERE {_OF_STATE[listing]} {of_tenant}"  # noqa: S608 — ours
        "AND (tenant, received_at, rowid) > (:after_tenant, :after_age, :after_row) "
        "ORDER BY tenant, received_at, rowid LIMIT :limit"
    )
    after_tenant, after_age, after_row, _ = after or ("", "", "-1", "")
    given = {"tenant": tenant, "after_tenant": after_tenant, "after_age": after_age, "after_row": int(after_row)}
    return db.execute(query, {**given, "limit": limit}).fetchall()


def _refused(db: sqlite3.Connection, after: Cursor | None, limit: int) -> Sequence[Cursor]:
    return db.execute(_REFUSED, {"after": after[-1] if after else "", "limit": limit}).fetchall()
