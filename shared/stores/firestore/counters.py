"""The documents of counters: one per process, written blind; what it has counted is JSON text."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from shared.domain.counters import KEPT_FOR, ProcessCounters
from shared.domain.errors import UnknownState
from shared.stores.counters_codec import decode, encode
from shared.stores.firestore.records import Document, Write, value_of
from shared.stores.firestore.schema import COUNTERS


def keeping_counters(counters: ProcessCounters) -> Write:
    """The write of what a process has counted, in place of what it wrote before. Raises TypeError or ValueError for
    what cannot be stored.
    """
    at = counters.flushed_at
    plain = {"flushed_at": at, "expire_at": at + 2 * KEPT_FOR, "counts": encode(counters.counts)}
    fields = {name: value_of(value) for name, value in plain.items()}
    return {"update": {"name": f"{COUNTERS.name}/{counters.process}", "fields": fields}}


def counters_in(documents: Iterable[Document]) -> Iterator[ProcessCounters]:
    """The counters in their documents."""
    for document in documents:
        with suppress(UnknownState):
            process = document.name.rpartition("/")[2]
            yield ProcessCounters(process, document.fields["flushed_at"], decode(document.fields["counts"]))
