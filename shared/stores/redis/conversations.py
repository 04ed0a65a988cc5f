"""Conversations, aliases and lanes in the Redis server. A commit writes them with its records (scripts.COMMIT)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from shared.domain.conversations import Conversation, ConversationEntry
from shared.domain.errors import UnknownState
from shared.pipeline.ports import ConversationPage, Cursor, Page
from shared.stores.codec import as_moment, from_json, moment, to_json
from shared.stores.conversation_codec import decode, encode
from shared.stores.redis.connection import RedisClient
from shared.stores.redis.listings import as_history, asking_for_conversation
from shared.stores.redis.records import Value, as_time, microseconds
from shared.stores.redis.scripts import CONVERSATION_ENTRIES, CONVERSATIONS, HISTORY


class RedisConversations:
    """The part of the `Store` port that reads conversations. Each call is one round trip."""

    _client: RedisClient

    def conversation_entries(self, ids: Sequence[str]) -> Mapping[str, ConversationEntry]:
        """All of one moment."""
        found = self._client.run(CONVERSATION_ENTRIES, *ids) if ids else ()
        return {id: _entry(id, version, body) for id, version, body in found}

    def conversations(self, tenant: str, after: Cursor | None, limit: int) -> ConversationPage:
        """From a sorted set of each tenant."""
        score, id = (microseconds(as_moment(after[0])), after[1]) if after else ("", "")
        return _page(self._client.run(CONVERSATIONS, f"pombo:conversations:{tenant}", score, id, limit))

    def of_conversation(self, id: str, after: Cursor | None, limit: int) -> Page:
        """From a sorted set of each conversation."""
        return as_history(self._client.run(HISTORY, *asking_for_conversation(id, after, limit)))


def entry_rows(entries: Sequence[ConversationEntry]) -> list[Value]:
    """The entries as a commit takes them. Raises TypeError or ValueError for what cannot be stored."""
    return [value for entry in entries for value in _row(entry)]


def _row(entry: ConversationEntry) -> Sequence[Value]:
    of = entry if isinstance(entry, Conversation) else None
    at = of.last_message_at if of else None
    expected = "" if entry.version is None else entry.version
    body = to_json(encode(entry))
    return (entry.id, expected, body, of.tenant if of else "", "" if at is None else microseconds(at))


def _entry(id: str, version: str, body: str) -> ConversationEntry:
    """Raises UnknownState."""
    try:
        return decode(id, from_json(body), int(version))
    except ValueError as error:
        raise UnknownState from error


def _page(answer: Sequence[Any]) -> ConversationPage:
    found, ends_at = answer
    conversations: list[Conversation] = []
    for each in found:
        with suppress(UnknownState):
            entry = _entry(*each)
            conversations += [entry] if isinstance(entry, Conversation) else []
    cursor = (moment(as_time(ends_at[0])), ends_at[1]) if ends_at else None
    return ConversationPage(conversations, len(found) - len(conversations), cursor)
