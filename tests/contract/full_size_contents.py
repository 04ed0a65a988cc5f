"""What fills a store: a sender's contacts, and one contact's messages, as the services leave them behind."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from shared.domain.conversations import Conversation, ConversationEntry, LaneEnd, Thread, conversation_id, linked
from shared.domain.delivery.create import create
from shared.domain.delivery.lifecycle import end
from shared.domain.identity import message_event_id, outbound_key
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.tenants import DEFAULT_TENANT
from shared.domain.turns import position, turn_id
from tests.support import parts
from tests.support.builders import LIMITS, NOW
from tests.support.whole_pipeline import ID_KEY, SENDER, USER_ID

TENANT, PROVIDER = "default", "meta"
APART = timedelta(seconds=1)


def time_of(number: int) -> datetime:
    """When the message or the contact with this number came; number 0 is the last one, a second ago."""
    return NOW - APART * (number + 1)


def conversation_of(name: str) -> str:
    """The id of the conversation with the contact of this name."""
    return conversation_id(ID_KEY, DEFAULT_TENANT, PROVIDER, SENDER, name)


def contact_name(number: int) -> str:
    return f"US.{10**15 + number}"


def contacts(first: int, beyond: int) -> Iterator[ConversationEntry]:
    """Each contact's conversation, by their user id, and the alias of their phone number. Each wrote once, and got one
    reply. Their records have expired.
    """
    for number in range(first, beyond):
        at, name, phone = time_of(number), contact_name(number), f"1555{number:08}"
        new = Conversation(conversation_of(name), TENANT, PROVIDER, SENDER, name)
        known, alias = linked(new, phone, conversation_of(phone), None)
        thread = Thread(known, (alias,) if alias else ()).heard(at)
        reply = LaneEnd(outbound_key(_event_key(f"of contact {number}"), 0), at + LIMITS.message_max_age)
        yield from replace(thread, conversation=replace(thread.conversation, last_outbound=reply)).entries


def messages(first: int, beyond: int) -> Iterator[Delivery]:
    """One contact's messages and the replies to them, in turn: in one turn, one lane and one conversation. All ended,
    none has expired.
    """
    return (_event(number) if number % 2 else _reply(number) for number in range(first, beyond))


def message_key(number: int) -> str:
    """Of the event with this odd number, or of the reply to it, which is one less."""
    return _event_key(number) if number % 2 else outbound_key(_event_key(number + 1), 0)


def _event_key(number: int | str) -> str:
    return message_event_id(PROVIDER, SENDER, f"wamid.past.{number}")


def _event(number: int) -> Delivery:
    its = _created(Kind.INBOUND, number, {"item": parts.text(f"wamid.past.{number}")})
    placed = replace(
        its,
        turn_id=turn_id(ID_KEY, DEFAULT_TENANT, PROVIDER, SENDER, USER_ID),
        position=position(its.received_at, its.received_at, 0, its.key),
        plan_size=1,
    )
    return _ended(placed, "replied")


def _reply(number: int) -> Delivery:
    payload = {"type": "text", "content": {"body": "hello to you"}, "to": "+15550002222"}
    id = f"wamid.reply.{number}"
    its = replace(_created(Kind.OUTBOUND, number, payload), after=message_key(number + 2), provider_id=id)
    return _ended(its, "accepted", id)


def _created(kind: Kind, number: int, payload: dict[str, object]) -> Delivery:
    made = create(
        kind,
        message_key(number),
        provider=PROVIDER,
        tenant=TENANT,
        sender=SENDER,
        contact=USER_ID,
        correlation_id=f"correlation-past-{number // 2}",
        payload=payload,
        limits=LIMITS,
        now=time_of(number),
    )
    return replace(made, conversation=conversation_of(USER_ID))


def _ended(record: Delivery, answer: str, id: str | None = None) -> Delivery:
    at = record.received_at
    tried = replace(record, attempt=1, token="t" * 32, started_at=at, attempts_log=(Attempt(at, 1, answer, None, id),))
    return end(tried, State.DONE, LIMITS, NOW)
