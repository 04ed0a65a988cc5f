"""Conversations: finds the conversation of a contact under whichever of its names, and commits what goes on in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shared import logs
from shared.domain.conversations import (
    Alias,
    Conversation,
    ConversationEntry,
    SenderLane,
    Thread,
    conversation_id,
    lane_id,
    linked,
    name_of_next_owner,
    with_name_lost,
)
from shared.domain.errors import ConversationChanged, StoreUnavailable, UnknownState
from shared.domain.messages import Message
from shared.domain.phone_numbers import without_variant
from shared.domain.tenants import Order
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store

T = TypeVar("T")

CONTENTION = 10.0
"""Seconds that a commit may keep losing races for its conversation."""

LONGEST_PAUSE = 0.05
"""Seconds between two such tries, at most."""

_MOST_ALIASES = 4
"""How many aliases in a row are followed: a contact that changes its number twice has two."""


@dataclass(frozen=True, slots=True)
class Party:
    """Both sides of a conversation. `names`: what is known of the contact, the name that counts first. `lost`: the one
    of them that the contact no longer has.
    """

    tenant: str
    provider: str
    sender: str
    order: Order
    names: Sequence[str]
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class Conversations:
    """Reads and commits conversations. `is_ordered` False: messages wait for none of another plan."""

    store: Store
    clock: Clock
    id_key: bytes = field(repr=False)
    is_ordered: bool = True

    def thread(self, party: Party) -> Thread:
        """The contact's conversation, perhaps a new one. One read if its first name leads to it and it knows the
        others; two more at most, unless another contact had one of the names before. Raises StoreUnavailable and
        UnknownState.
        """
        first, others = party.names[0], party.names[1:]
        read, lane = self._read(self._id(party, first), party.tenant, party.provider, party.sender, party.order)
        id, entry, conversation = self._current(party, first, read)
        conversation = conversation or _new(party, id, entry)
        unknown = [name for name in others if name not in conversation.names]
        read = self.store.conversation_entries([self._id(party, name) for name in unknown]) if unknown else {}
        aliases: list[Alias] = []
        for name in unknown:
            id, entry, _ = self._current(party, name, read)
            conversation, alias = linked(conversation, name, id, entry)
            has_new_owner = name == party.lost and isinstance(entry, Alias)
            aliases += [alias] if alias and not has_new_owner else []
        if party.lost is not None:
            conversation = with_name_lost(conversation, party.lost, party.names)
        return Thread(conversation, tuple(aliases), lane, self.is_ordered)

    def thread_of(self, id: str, tenant: str, provider: str, sender: str, order: Order) -> Thread | None:
        """The conversation with this id, or that which it became; None if there is none. Raises as `thread` does."""
        read, lane = self._read(id, tenant, provider, sender, order)
        conversation = followed(self.store, read.get(id))
        return Thread(conversation, (), lane, self.is_ordered) if conversation else None

    def readable_thread(self, party: Party) -> Thread | None:
        """As `thread`; None if this version cannot read the conversation: it holds up no message."""
        return _readable(self._id(party, party.names[0]), lambda: self.thread(party))

    def readable_thread_of(self, id: str, tenant: str, provider: str, sender: str, order: Order) -> Thread | None:
        """As `thread_of`; also None if this version cannot read the conversation."""
        return _readable(id, lambda: self.thread_of(id, tenant, provider, sender, order))

    def committed(self, commit: Callable[[], T]) -> T:
        """The result of `commit`, which reads the conversation and writes: again while another write comes between.
        Raises StoreUnavailable if that lasts for long.
        """
        give_up = self.clock.monotonic() + CONTENTION
        while True:
            try:
                return commit()
            except ConversationChanged as error:
                if self.clock.monotonic() > give_up:
                    raise StoreUnavailable("The store is busy.") from error
                self.clock.sleep(LONGEST_PAUSE * self.clock.jitter())

    def _read(
        self, id: str, tenant: str, provider: str, sender: str, order: Order
    ) -> tuple[Mapping[str, ConversationEntry], SenderLane | None]:
        """What is stored under this id, and the sender's lane if it counts: one read."""
        lane = lane_id(tenant, provider, sender) if order is Order.SENDER and self.is_ordered else None
        read = self.store.conversation_entries([id, *([lane] if lane else [])])
        return read, _lane_in(read, lane)

    def _current(
        self, party: Party, name: str, read: Mapping[str, ConversationEntry]
    ) -> tuple[str, ConversationEntry | None, Conversation | None]:
        """The id that a name of this contact has, what is stored under it, and the conversation that it leads to. Those
        of other contacts that have lost the name are passed over. `read`: what is stored under the first id to look at.
        """
        id, owner = self._id(party, name), 0
        while True:
            found = read.get(id)
            conversation = followed(self.store, found)
            if conversation is None or name not in conversation.lost or conversation.is_of(party.names):
                return id, found, conversation
            owner += 1
            id = self._id(party, name, owner)
            read = self.store.conversation_entries([id])

    def _id(self, party: Party, name: str, owner: int = 0) -> str:
        name = name_of_next_owner(name, owner)
        return conversation_id(self.id_key, party.tenant, party.provider, party.sender, name)


def followed(store: Store, entry: ConversationEntry | None) -> Conversation | None:
    """The conversation that an entry is or leads to, or None. Raises StoreUnavailable and UnknownState."""
    for _ in range(_MOST_ALIASES):
        if not isinstance(entry, Alias):
            break
        entry = store.conversation_entries([entry.of]).get(entry.of)
    return entry if isinstance(entry, Conversation) else None


def _readable(id: str, read: Callable[[], Thread | None]) -> Thread | None:
    try:
        return read()
    except UnknownState as error:
        logs.event("state_unknown", severity="WARNING", entry=f"conversation {id}", reason=error.sentence)
        return None


def names_of(message: Message) -> Sequence[str]:
    """What a message says of its contact: first the stable id, then the number, then what replaces them from now on. A
    number has one form, whichever the provider wrote.
    """
    contact, system = message.contact, message.system
    stable = contact.id if contact.id != contact.phone else None
    named = (
        system and system.previous_user_id,
        stable,
        _number(contact.phone),
        system and system.user_id,
        system and _number(system.wa_id),
    )
    return list(dict.fromkeys(name for name in named if name))


def name_lost(message: Message) -> str | None:
    """The number that its contact no longer has, because the message says that they have another one now."""
    old, new = _number(message.contact.phone), _number(message.system.wa_id if message.system else None)
    return old if new not in (None, old) else None


def _number(text: str | None) -> str | None:
    return without_variant(text) if text else None


def _new(party: Party, id: str, replaced: ConversationEntry | None) -> Conversation:
    """A conversation that begins. `replaced`: an alias that leads nowhere, if one has its id."""
    return Conversation(
        id,
        party.tenant,
        party.provider,
        party.sender,
        party.names[0],
        version=replaced.version if replaced else None,
    )


def _lane_in(read: Mapping[str, ConversationEntry], id: str | None) -> SenderLane | None:
    """The sender's lane, if it counts."""
    if id is None:
        return None
    found = read.get(id)
    return found if isinstance(found, SenderLane) else SenderLane(id)
