"""Conversations, aliases and lanes in the Firestore database: one document each, written in the commit of a record.

Times are timestamps, so that a query can sort by them and an operator can read them; the rest is native too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from shared.domain.conversations import Conversation, ConversationEntry, SenderLane
from shared.domain.delivery.answers import Step
from shared.domain.errors import ConversationChanged, UnknownState
from shared.domain.record import Delivery
from shared.pipeline.ports import ConversationPage, Cursor
from shared.stores import codec
from shared.stores.codec import as_moment, moment
from shared.stores.conversation_codec import KNOWN, decode, encode
from shared.stores.firestore.connection import FirestoreRpc
from shared.stores.firestore.queries import conversation_page
from shared.stores.firestore.records import Write, document_of, time_of, unless_changed, value_of, version_of
from shared.stores.firestore.schema import CONVERSATIONS
from shared.stores.steps import written

_MOMENTS = ("last_inbound_at", "last_message_at")
_MAY_BE_ABSENT = (*_MOMENTS, "last_outbound", "assignee")


class FirestoreConversations:
    """The part of the `Store` port that reads conversations."""

    _rpc: FirestoreRpc

    def conversation_entries(self, ids: Sequence[str]) -> Mapping[str, ConversationEntry]:
        """One call for all of them: one read for each id."""
        found = self._rpc.read([entry_name(id) for id in ids], self._rpc.patience()) if ids else {}
        return {entry.id: entry for entry in map(_entry_in, found.values())}

    def conversations(self, tenant: str, after: Cursor | None, limit: int) -> ConversationPage:
        """One query."""
        last = (as_moment(after[0]), self._rpc.reference(entry_name(after[1]))) if after else None
        documents = self._rpc.query(conversation_page(tenant, limit, last), self._rpc.patience())
        found: list[Conversation] = []
        for document in documents:
            with suppress(UnknownState):
                entry = _entry_in(document)
                found += [entry] if isinstance(entry, Conversation) else []
        ends_at = _age_and_id(documents[-1]) if len(documents) == limit else None
        return ConversationPage(found, len(documents) - len(found), ends_at)


def entry_name(id: str) -> str:
    return f"{CONVERSATIONS.name}/{id}"


def writing_entry(entry: ConversationEntry) -> Write:
    """The write of an entry, refused if it is not as it was read. Raises TypeError or ValueError for what cannot be
    stored.
    """
    fields = {name: value_of(value) for name, value in _fields_of(entry).items() if value is not None}
    condition = {"current_document": unless_changed(entry.version)}
    if not isinstance(entry, Conversation):
        return {"update": {"name": entry_name(entry.id), "fields": fields}, **condition}
    for name, value in entry.newer.items():
        with suppress(TypeError):  # of a kind that this version never writes: it stays as it is
            fields[name] = value_of(value)
    mask = sorted(KNOWN | fields.keys())
    return {
        "update": {"name": entry_name(entry.id), "fields": fields},
        "update_mask": {"field_paths": mask},
        **condition,
    }


def have_moved(entries: Iterable[ConversationEntry], documents: Mapping[str, Any]) -> bool:
    """Whether one of the entries is not as it was read. `documents` has those of them that exist."""
    found = {name: version_of(document.update_time) for name, document in documents.items()}
    return any(found.get(entry_name(entry.id)) != entry.version for entry in entries)


def must_be_as_read(step: Step, names: Collection[str], documents: Mapping[str, Any]) -> None:
    """Raise ConversationChanged if the step writes, and one of its entries is not as it was read. `documents` has those
    with these names that exist; entries with other names are not checked.
    """
    checked = (entry for entry in step.entries if entry_name(entry.id) in names)
    if (step.write or step.create) and have_moved(checked, documents):
        raise ConversationChanged


def as_written(step: Step, before: Delivery | None, now: Delivery | None) -> Step | None:
    """A step with entries, if it was committed although Firestore refused it when it was sent again: its record is
    there. `before` is what the step was decided on.
    """
    if not step.entries or step.write is None or now is None:
        return None
    wanted = codec.encode(step.write)
    is_there = codec.encode(now) == wanted and (before is None or codec.encode(before) != wanted)
    return written(replace(step, write=now), now.version) if is_there else None


def contended_id(entries: Sequence[ConversationEntry]) -> str:
    """Of the entry that the most commits write."""
    return next((entry.id for entry in entries if isinstance(entry, SenderLane)), entries[0].id)


def _fields_of(entry: ConversationEntry) -> dict[str, Any]:
    """The fields that this version knows."""
    plain = {name: value for name, value in encode(entry).items() if name in KNOWN}
    for name in _MOMENTS:
        if plain.get(name):
            plain[name] = as_moment(plain[name])
    if plain.get("last_outbound"):
        plain["last_outbound"] = {**plain["last_outbound"], "until": as_moment(plain["last_outbound"]["until"])}
    return plain


def _entry_in(message: Any) -> ConversationEntry:
    """The entry in its document. Raises UnknownState."""
    document = document_of(message)
    plain = dict.fromkeys(_MAY_BE_ABSENT) | dict(document.fields)
    for name in _MOMENTS:
        plain[name] = _text(plain[name])
    if isinstance(end := plain["last_outbound"], Mapping):
        plain["last_outbound"] = {name: _text(value) for name, value in end.items()}
    return decode(document.name.rpartition("/")[2], plain, document.version)


def _text(value: Any) -> Any:
    return moment(value) if isinstance(value, datetime) else value


def _age_and_id(document: Any) -> Cursor:
    at = time_of(document.fields["last_message_at"].timestamp_value)
    return moment(at), document.name.rpartition("/")[2]
