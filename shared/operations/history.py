"""The history of a tenant: what it sent and received, a page at a time, the newest first."""

from dataclasses import dataclass
from datetime import datetime

from shared.domain.identity import DOCTOR_KEY
from shared.domain.record import Delivery, Kind, State
from shared.pipeline.ports import Cursor, Page, Store

READS = 5
"""Pages of the store that one page of a history reads at most, whatever the filter: so each costs about the same."""


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Selects records of a tenant; a field that is not given does not restrict. The ends of the period belong to it."""

    tenant: str
    since: datetime | None = None
    until: datetime | None = None
    state: State | None = None
    kind: Kind | None = None

    def matches(self, record: Delivery) -> bool:
        is_meant = self.state in (None, record.state) and self.kind in (None, record.kind)
        return is_meant and record.key != DOCTOR_KEY


def history(store: Store, wanted: HistoryFilter, after: Cursor | None, limit: int) -> Page:
    """The next records that match. If few do, a page has fewer than `limit`, even none, and is not the last. Raises
    StoreUnavailable.
    """
    found, unread = list[Delivery](), 0
    for _ in range(READS):
        page = store.history(wanted.tenant, wanted.since, wanted.until, after, limit - len(found))
        found += [record for record in page.records if wanted.matches(record)]
        unread, after = unread + page.unread, page.ends_at
        if after is None or len(found) == limit:
            break
    return Page(found, unread, after)
