"""Lookup: finds the records for an id that an operator types, in full or by its first characters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from shared.domain.errors import UnknownState
from shared.domain.identity import is_id_prefix, message_event_id
from shared.domain.listings import Listing
from shared.domain.record import Delivery, Kind
from shared.domain.tenants import Sender
from shared.operations.dead_letters import pages
from shared.pipeline.ports import Store

MATCHES = 10
"""Matches shown for an ambiguous id: more would not help, since the id needs more characters."""

KINDS = {Kind.INBOUND: "event", Kind.OUTBOUND: "message"}
CORRELATION, UNREADABLE = "correlation id", "cannot be read"


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of a lookup: the id in full, and all records of its event."""

    id: str
    records: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Match:
    """One of the ids with this prefix, its kind, and when its record was received."""

    id: str
    kind: str
    at: datetime | None


class Ambiguous(Exception):
    """Several ids have this prefix. `more`: there are more than those shown."""

    def __init__(self, matches: Sequence[Match], more: bool) -> None:
        super().__init__("Several ids start with this.")
        self.matches = matches
        self.more = more


def find(store: Store, id: str, providers: Iterable[str], senders: Iterable[Sender]) -> LookupResult | None:
    """The records of the event that this id belongs to; None if the id is unknown. An exact id takes precedence over a
    prefix. A provider's message id is searched for at these providers, which takes a read for each, then at these
    senders, a read for each of them, then among events of unknown senders. Raises Ambiguous.
    """
    known = store.get(id) or next(filter(None, (store.by_provider_id(provider, id) for provider in providers)), None)
    if records := store.by_correlation(known.correlation_id if known else id):
        return LookupResult(id, records)
    whole = _whole(store, id) if is_id_prefix(id) else None
    if whole is not None:
        return LookupResult(whole, _records_of(store, whole))
    events = (store.get(_event_id(sender, id)) for sender in senders)
    event = next(chain(filter(None, events), _of_unknown_senders(store, id)), None)
    return LookupResult(id, store.by_correlation(event.correlation_id)) if event else None


def _event_id(sender: Sender, message_id: str) -> str:
    return message_event_id(sender.provider, sender.provider_id, message_id)


def _whole(store: Store, prefix: str) -> str | None:
    """The only id with this prefix."""
    ids = store.ids_with_prefix(prefix, MATCHES + 1)
    matches = [match for match in (_match(store, id) for id in ids) if match is not None]
    if len(matches) > 1:
        raise Ambiguous(matches[:MATCHES], more=len(matches) > MATCHES)
    return matches[0].id if matches else None


def _match(store: Store, id: str) -> Match | None:
    """None if its record was deleted in the meantime."""
    try:
        record = store.get(id)
        if record is not None:
            return Match(id, KINDS[record.kind], record.received_at)
        records = store.by_correlation(id)
    except UnknownState:
        return Match(id, UNREADABLE, None)
    return Match(id, CORRELATION, records[0].received_at) if records else None


def _records_of(store: Store, id: str) -> Sequence[Delivery]:
    record = store.get(id)
    return store.by_correlation(record.correlation_id if record else id)


def _of_unknown_senders(store: Store, message_id: str) -> Iterator[Delivery]:
    """The events of this message among those dropped because no tenant owns their number. An event's key is a hash of
    the sender and the message id, and the record has the sender, so the key tells whether it is of this message.
    """
    for page in pages(store, Listing.UNKNOWN_SENDER, None):
        for record in page.records:
            if record.key == message_event_id(record.provider, record.sender, message_id):
                yield record
