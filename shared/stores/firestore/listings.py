"""The listings of Firestore: the documents of a page, and where it ends.

A failed receipt with our echo marks its record. One without an echo marks its own document, which leads to the record;
if the message is not ours, it leads to none.
"""

from collections.abc import Sequence
from typing import Any

from shared.domain.identity import BEYOND_IDS
from shared.domain.listings import Listing
from shared.net.patience import Patience
from shared.pipeline.ports import Cursor
from shared.stores.firestore.connection import FirestoreRpc
from shared.stores.firestore.queries import (
    MOST_IN,
    listed_page,
    next_correlation_id,
    of_provider_ids,
    records_between,
    refused_unechoed_page,
)
from shared.stores.firestore.records import record_name
from shared.stores.firestore.schema import RECEIPTS, RECORDS


def documents_of_page(
    rpc: FirestoreRpc, listing: Listing, tenant: str | None, after: Cursor | None, limit: int, patience: Patience
) -> tuple[Sequence[Any], Cursor | None]:
    """The documents of a page without their content, and the cursor of its end unless it is the last page."""
    collection, last_tenant, last_name = after or (RECORDS.name, "", "")
    if collection == RECEIPTS.name:
        return _by_provider_ids(rpc, tenant, last_name, min(limit, MOST_IN), patience)
    last = (last_tenant, last_name) if after else None
    found = rpc.query(listed_page(listing, tenant, limit, last), patience)
    if len(found) == limit:
        return found, (RECORDS.name, found[-1].fields["tenant"].string_value, found[-1].name)
    return found, (RECEIPTS.name, "", "") if listing is Listing.REFUSED else None


def keys_with_prefix(rpc: FirestoreRpc, prefix: str, limit: int, patience: Patience) -> Sequence[str]:
    """The first keys that begin with this."""
    first, beyond = (rpc.reference(record_name(key)) for key in (prefix, prefix + BEYOND_IDS))
    return [document.name.rpartition("/")[2] for document in rpc.query(records_between(first, beyond, limit), patience)]


def correlation_ids_with_prefix(rpc: FirestoreRpc, prefix: str, limit: int, patience: Patience) -> Sequence[str]:
    """The first correlation ids that begin with this, one query each: Firestore has no DISTINCT."""
    found: list[str] = []
    while len(found) < limit:
        query = next_correlation_id(found[-1] if found else prefix, prefix + BEYOND_IDS, is_behind=bool(found))
        documents = rpc.query(query, patience)
        if not documents:
            break
        found.append(documents[0].fields["correlation_id"].string_value)
    return found


def _by_provider_ids(
    rpc: FirestoreRpc, tenant: str | None, last_name: str, limit: int, patience: Patience
) -> tuple[Sequence[Any], Cursor | None]:
    receipts = rpc.query(refused_unechoed_page(limit, last_name or None), patience)
    if not receipts:
        return [], None
    hashes = [document.name.rpartition("/")[2] for document in receipts]
    found = [
        document
        for document in rpc.query(of_provider_ids(hashes), patience)
        if "mark" not in document.fields and tenant in (None, document.fields["tenant"].string_value)
    ]
    return found, (RECEIPTS.name, "", receipts[-1].name) if len(receipts) == limit else None
