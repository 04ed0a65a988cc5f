"""Conversations: what Pombo keeps of a sender and one contact, and the lanes in which their messages are sent.

A contact is one person however they write: a conversation has the id of their user id where the provider says one, else
of their number, and an alias leads there from every other name. A lane is the messages of one sender to one contact, or
with `Order.SENDER` all of a sender's: each waits for the one before it. Its end is read and replaced in the commit that
creates a message.

Every entry is written only if it is still as it was read, so a decision here holds or is made again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from shared.domain.calls import is_call
from shared.domain.identity import keyed_hash, sender_id, stable_hash
from shared.domain.record import Delivery
from shared.domain.tenants import apart


class ConversationState(StrEnum):
    """Whether a conversation is open. A new message opens it again."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """The last message of a lane. Nobody waits for it after `until`, when it is given up."""

    key: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Conversation:
    """A sender's conversation with one contact. All times are UTC."""

    id: str
    tenant: str
    provider: str
    sender: str
    contact: str
    """The name that its id is made of."""
    aliases: frozenset[str] = frozenset()
    """The contact's other names: a number, a former user id."""
    lost: frozenset[str] = frozenset()
    """Those of its names that the contact no longer has: who comes by one of them alone may be another person."""
    formerly: tuple[str, ...] = ()
    """The ids of conversations that became this one; their messages keep them. The newest first."""
    last_inbound_at: datetime | None = None
    """The provider's time of the contact's last message."""
    last_message_at: datetime | None = None
    """The time of the last message in either direction."""
    last_outbound: LaneEnd | None = None
    """The end of its lane."""
    unread: int = 0
    """How many of the contact's messages nobody has marked as read."""
    state: ConversationState = ConversationState.OPEN
    assignee: str | None = None
    newer: Mapping[str, Any] = field(default_factory=dict)
    """What a newer version of Pombo keeps in it."""
    version: int | None = field(default=None, compare=False)
    """The store's version of what was read; None: it is not stored."""

    @property
    def names(self) -> frozenset[str]:
        """All names that the contact has, or had."""
        return self.aliases | {self.contact}

    def is_of(self, names: Sequence[str]) -> bool:
        """Whether who has these names is its contact. A name that the contact has lost says nothing."""
        return any(name in self.names and name not in self.lost for name in names)


@dataclass(frozen=True, slots=True)
class Alias:
    """A contact's other name: it leads to the conversation with the id `of`."""

    id: str
    of: str
    version: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SenderLane:
    """The lane of a sender with `Order.SENDER`."""

    id: str
    last_outbound: LaneEnd | None = None
    version: int | None = field(default=None, compare=False)


ConversationEntry = Conversation | Alias | SenderLane
"""What is stored under the id of a conversation, an alias or a sender."""


def conversation_id(id_key: bytes, tenant: str, provider: str, sender: str, contact: str) -> str:
    """The id of a conversation of a tenant's sender with a contact, by one of the contact's names."""
    return keyed_hash(id_key, "conversation", provider, sender, contact, *apart(tenant))


def lane_id(tenant: str, provider: str, sender: str) -> str:
    """The id of the lane of a tenant's sender with `Order.SENDER`."""
    others = apart(tenant)
    return stable_hash("lane", provider, sender, *others) if others else sender_id(provider, sender)


def name_of_next_owner(name: str, owner: int) -> str:
    """What stands for a name in an id once this many contacts have lost it, so that their conversations keep theirs."""
    return f"{name} {owner}" if owner else name


@dataclass(frozen=True, slots=True)
class Thread:
    """What a commit of one contact's messages is based on: the conversation, the aliases that are new or lead
    elsewhere, and the sender's lane if that orders all of its messages. `is_ordered` False: its messages wait for none.
    """

    conversation: Conversation
    aliases: tuple[Alias, ...] = ()
    lane: SenderLane | None = None
    is_ordered: bool = True
    has_grown: bool = False
    """Whether a message took a place in the lane."""

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.conversation.id

    def before(self, now: datetime) -> str | None:
        """The key of the message that the next one waits for; None if there is none, or it is given up."""
        end = self.lane.last_outbound if self.lane else self.conversation.last_outbound
        return end.key if self.is_ordered and end and now < end.until else None

    def heard(self, at: datetime) -> "Thread":
        """The same after a message of the contact that was written then."""
        of = self.conversation
        heard = replace(of, last_inbound_at=_later(of.last_inbound_at, at), unread=of.unread + 1)
        return replace(self, conversation=_opened(heard, at))

    def continued(self, message: Delivery, at: datetime) -> "Thread":
        """The same after this message took its place at the end."""
        if message.give_up_at is None:
            raise ValueError("A message in a lane has an end.")
        end = LaneEnd(message.key, message.give_up_at)
        conversation = _opened(replace(self.conversation, last_outbound=end), at)
        lane = self.lane and replace(self.lane, last_outbound=end)
        return replace(self, conversation=conversation, lane=lane, has_grown=True)

    def mentioned(self, at: datetime) -> "Thread":
        """The same with a message that takes no place in the lane yet."""
        return replace(self, conversation=_opened(self.conversation, at))

    @property
    def entries(self) -> tuple[ConversationEntry, ...]:
        """What to write in the commit. The lane of a sender is left to others if no message took a place in it."""
        lane = (self.lane,) if self.lane and self.has_grown else ()
        return (self.conversation, *self.aliases, *lane)


def linked(
    conversation: Conversation, name: str, id: str, found: ConversationEntry | None
) -> tuple[Conversation, Alias | None]:
    """The conversation with one more name of its contact, and the alias to write, if any. `found` is what is stored
    under the id of that name: the name may have been another contact's before, or have a conversation of its own, which
    this one then continues.
    """
    if isinstance(found, Conversation):
        conversation = merged(conversation, found)
    known = replace(conversation, aliases=conversation.aliases | {name})
    if isinstance(found, Alias) and found.of == conversation.id:
        return known, None
    return known, Alias(id, conversation.id, found.version if found else None)


def with_name_lost(conversation: Conversation, lost: str, names: Sequence[str]) -> Conversation:
    """The conversation of a contact that has lost one of its names, and has the others of these."""
    return replace(conversation, lost=conversation.lost.difference(names) | {lost})


def merged(into: Conversation, other: Conversation) -> Conversation:
    """The conversation with all that another one of the same contact has, which becomes an alias."""
    return replace(
        into,
        aliases=into.aliases | other.names,
        lost=into.lost | other.lost,
        formerly=(*into.formerly, other.id, *other.formerly),
        last_inbound_at=_later(into.last_inbound_at, other.last_inbound_at),
        last_message_at=_later(into.last_message_at, other.last_message_at),
        last_outbound=_later_end(into.last_outbound, other.last_outbound),
        unread=into.unread + other.unread,
        assignee=into.assignee or other.assignee,
        newer={**other.newer, **into.newer},
    )


def created_in(message: Delivery, thread: Thread, now: datetime) -> tuple[Delivery, Sequence[ConversationEntry]]:
    """A new message of the API with its place in the conversation, and what is written with it. One that is to be sent
    later takes its place in the lane when it is due.
    """
    if message.joins_lane_later:
        return replace(message, conversation=thread.id), thread.mentioned(now).entries
    placed = replace(message, conversation=thread.id, after=thread.before(now))
    return placed, thread.continued(placed, now).entries


def joining(message: Delivery, thread: Thread, now: datetime) -> tuple[Delivery, Sequence[ConversationEntry]]:
    """A message that is due now, in its place at the end of the lane, and what is written with it."""
    placed = replace(message, joins_lane_later=False, after=thread.before(now))
    return placed, thread.continued(placed, now).entries


def takes_place(reply: Delivery) -> bool:
    """Whether a reply has a place in a lane: a call (read, typing) and a reply that is invalid have none."""
    return not reply.final and not is_call(reply.payload)


def _opened(conversation: Conversation, at: datetime) -> Conversation:
    return replace(conversation, state=ConversationState.OPEN, last_message_at=_later(conversation.last_message_at, at))


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((time for time in (one, other) if time), default=None)


def _later_end(one: LaneEnd | None, other: LaneEnd | None) -> LaneEnd | None:
    return max((end for end in (one, other) if end), key=lambda end: end.until, default=None)
