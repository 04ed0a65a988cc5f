"""Conversations as an operator sees them: a tenant's, and the messages of one in both directions."""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain.conversations import Conversation
from shared.domain.errors import UnknownState
from shared.domain.record import Delivery
from shared.pipeline.conversations import followed
from shared.pipeline.ports import ConversationPage, Cursor, Page, Store

PAGE = 100
"""Conversations that are read at a time."""

UNREADABLE = "This conversation cannot be read: a newer version of Pombo wrote it, or it was damaged."

NEWEST = 2000
"""How many of a tenant's conversations are searched for a part of an id, those with the newest messages first."""


def newest(store: Store, tenant: str, limit: int) -> ConversationPage:
    """A tenant's conversations, that with the newest message first, and how many of them this version cannot read.
    Raises StoreUnavailable.
    """
    found, unread, after = list[Conversation](), 0, None
    while len(found) < limit:
        page = store.conversations(tenant, after, min(limit - len(found), PAGE))
        found += page.conversations
        unread, after = unread + page.unread, page.ends_at
        if after is None:
            break
    return ConversationPage(found, unread, after)


def conversation(store: Store, id: str) -> Conversation | None:
    """The conversation with this id, or the one that it became; None if there is none. Raises StoreUnavailable and
    UnknownState.
    """
    try:
        return followed(store, store.conversation_entries([id]).get(id))
    except UnknownState as error:
        raise UnknownState(UNREADABLE) from error


def beginning_with(store: Store, tenant: str, prefix: str) -> ConversationPage:
    """Those of the tenant's newest conversations whose ids begin with this, and how many of the newest cannot be read,
    whatever their ids. Raises StoreUnavailable.
    """
    page = newest(store, tenant, NEWEST)
    return replace(page, conversations=[found for found in page.conversations if found.id.startswith(prefix)])


def messages(store: Store, of: Conversation, after: Cursor | None, limit: int) -> Page:
    """A page of its events and messages, the newest first, with those of the conversations that became it. Of those of
    one moment, as a handler's replies are, the one that is sent last is first. The cursor begins with the number of the
    conversation that it is in. Raises StoreUnavailable.
    """
    ids = (of.id, *of.formerly)
    number, inner = (int(after[0]), tuple(after[1:]) or None) if after else (0, None)
    page = store.of_conversation(ids[number], inner, limit)
    page = replace(page, records=_in_their_lane(page.records))
    if page.ends_at is not None:
        return Page(page.records, page.unread, (str(number), *page.ends_at))
    more = (str(number + 1),) if number + 1 < len(ids) else None
    return Page(page.records, page.unread, more)


def _in_their_lane(records: Sequence[Delivery]) -> Sequence[Delivery]:
    """The records of a page, those of one moment by who goes after whom."""
    by_key = {record.key: record for record in records}

    def ahead(record: Delivery) -> int:
        before = by_key.get(record.after) if record.after else None
        return 1 + ahead(before) if before and before.received_at == record.received_at else 0

    return sorted(records, key=lambda record: (record.received_at, ahead(record)), reverse=True)
