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
    linked,
)
from shared.domain.errors import ConversationChanged, StoreUnavailable, UnknownState
from shared.domain.identity import sender_id
from shared.domain.messages import Message
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
    """Both sides of a conversation. `names`: what is known of the contact, the name that counts first."""

    tenant: str
    provider: str
    sender: str
    order: Order
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Conversations:
    """Reads and commits conversations. `is_ordered` False: messages wait for none of another plan."""

    store: Store
    clock: Clock
    id_key: bytes = field(repr=False)
    is_ordered: bool = True

    def thread(self, party: Party) -> Thread:
        """The contact's conversation, perhaps a new one. One read if its first name leads to it and it knows the
        others; two more at most. Raises StoreUnavailable and UnknownState.
        """
        ids = {name: conversation_id(self.id_key, party.provider, party.sender, name) for name in party.names}
        first = ids[party.names[0]]
        lane = self._lane_of(party.provider, party.sender, party.order)
        read = self.store.conversation_entries([first, *([lane] if lane else [])])
        conversation = followed(self.store, read.get(first)) or _new(party, first, read.get(first))
        aliases: list[Alias] = []
        unknown = [name for name in party.names[1:] if name not in {conversation.contact, *conversation.aliases}]
        others = self.store.conversation_entries([ids[name] for name in unknown]) if unknown else {}
        for name in unknown:
            conversation, alias = linked(conversation, name, ids[name], others.get(ids[name]))
            aliases += [alias] if alias else []
        return Thread(conversation, tuple(aliases), _lane_in(read, lane), self.is_ordered)

    def thread_of(self, id: str, provider: str, sender: str, order: Order) -> Thread | None:
        """The conversation with this id, or that which it became; None if there is none. Raises as `thread` does."""
        lane = self._lane_of(provider, sender, order)
        read = self.store.conversation_entries([id, *([lane] if lane else [])])
        conversation = followed(self.store, read.get(id))
        return Thread(conversation, (), _lane_in(read, lane), self.is_ordered) if conversation else None

    def readable_thread(self, party: Party) -> Thread | None:
        """As `thread`; None if this version cannot read the conversation: it holds up no message."""
        id = conversation_id(self.id_key, party.provider, party.sender, party.names[0])
        return _readable(id, lambda: self.thread(party))

    def readable_thread_of(self, id: str, provider: str, sender: str, order: Order) -> Thread | None:
        """As `thread_of`; also None if this version cannot read the conversation."""
        return _readable(id, lambda: self.thread_of(id, provider, sender, order))

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

    def _lane_of(self, provider: str, sender: str, order: Order) -> str | None:
        return sender_id(provider, sender) if order is Order.SENDER and self.is_ordered else None


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
    """What a message says of its contact: first the stable id, then the number, then what replaces them from now on."""
    contact, system = message.contact, message.system
    named = (contact.id, contact.phone, system and system.user_id, system and system.wa_id)
    return list(dict.fromkeys(name for name in named if name))


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
