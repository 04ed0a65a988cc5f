"""Handler verdict: what the team's code answers for a message, as the verdict on its event."""

from collections.abc import Mapping, Sequence

from shared.domain.messages import Drop, Message
from shared.domain.outbound.messages import InvalidReply, PlanItem
from shared.domain.record import INVALID, Delivery
from shared.domain.verdicts import Dropped, HandlerFailed, HandlerVerdict, Replied
from shared.pipeline.ports import BackendUnavailable, Channel, Handler, HandlerCall, HandlerFault


def handler_verdict(handler: Handler, channel: Channel, record: Delivery, message: Message) -> HandlerVerdict:
    """Call the handler. Raises HandlerInterrupted and BackendUnavailable: then the handler has given no answer."""
    try:
        replies = handler(HandlerCall(record.key, record.correlation_id, record.attempt, message))
    except BackendUnavailable:
        raise
    except Drop as drop:
        return Dropped(drop.reason)
    except HandlerFault as fault:
        return HandlerFailed(str(fault), fault.origin)
    return _replied(channel.address(message), message, replies)


def _replied(address: Mapping[str, str], message: Message, replies: Sequence[PlanItem]) -> Replied:
    """The plan. A reply that cannot be sent has no address."""
    payloads = tuple(
        {"type": INVALID, "given": reply.given}
        if isinstance(reply, InvalidReply)
        else {"type": reply.type, "content": reply.content, "reply_to": reply.reply_to, **address}
        for reply in replies
    )
    invalid = {index: reply.sentence for index, reply in enumerate(replies) if isinstance(reply, InvalidReply)}
    return Replied(payloads, message.contact.id, invalid)
