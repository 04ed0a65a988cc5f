"""The handler API: messages in, messages out, `Drop` and `handles`, and what a handler's test needs.

    from pombo import Message, OutboundMessage


    def handle(message: Message) -> OutboundMessage | None: ...

`shared.handlers` has the same names, for handlers that were written for it.
"""

from shared.handlers import (
    DEFAULT_KINDS,
    Button,
    Contact,
    ContactCard,
    Drop,
    Interactive,
    Location,
    Media,
    Message,
    Order,
    OrderItem,
    OutboundMessage,
    Product,
    Reaction,
    Referral,
    handles,
    message,
)

__all__ = [
    "DEFAULT_KINDS",
    "Button",
    "Contact",
    "ContactCard",
    "Drop",
    "Interactive",
    "Location",
    "Media",
    "Message",
    "Order",
    "OrderItem",
    "OutboundMessage",
    "Product",
    "Reaction",
    "Referral",
    "handles",
    "message",
]
