"""The channels of all providers for the internal service, the API service and the command line, which read with them.

The webhook service has only their receiving halves: receiving.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from shared.bootstrap.adapters import port
from shared.channels.meta.channel import MetaChannel
from shared.config import Config
from shared.domain.errors import ItemUnparsable
from shared.domain.messages import Message
from shared.domain.record import Delivery
from shared.net.egress_policy import ANYWHERE
from shared.pipeline.channels import Channels
from shared.pipeline.ports import Channel


@dataclass(frozen=True, slots=True)
class ChannelMaker:
    """How to create a provider's channel, each time with only the secrets that its user needs."""

    sending: Callable[[Config], Channel]
    """For the internal service, which also reads what is stored."""
    reading: Callable[[], Channel]
    """Without a secret, for a command that reads what is stored."""


def _meta_sending(settings: Config) -> Channel:
    return MetaChannel(
        base_url=settings["WHATSAPP_API_BASE_URL"],
        version=settings["WHATSAPP_API_VERSION"],
        post=settings.limits.post,
        reach=ANYWHERE,
    )


CHANNELS: Sequence[ChannelMaker] = (ChannelMaker(_meta_sending, MetaChannel),)
"""The makers of all providers. `RECEIVERS` in receiving.py has the receiving half of each."""


def sending(settings: Config) -> Channels[Channel]:
    """The channels of the internal service."""
    return Channels.of(*(port(settings, "channel", each.sending(settings)) for each in CHANNELS))


def addressing(settings: Config) -> Channels[Channel]:
    """The channels of the API service, without a secret: it addresses messages and reads what is stored."""
    return Channels.of(*(port(settings, "channel", each.reading()) for each in CHANNELS))


def explain(provider: str, code: int, answer: str) -> str | None:
    """What a provider's error code means to an operator, given the verdict `answer`. None for an unknown code."""
    channel = reading().get(provider)
    return channel.explain(code, answer) if channel else None


def remark(record: Delivery) -> str | None:
    """What an operator must know of a stored event, as its provider's channel reads it; None if nothing."""
    channel = reading().get(record.provider)
    return channel.remark(record) if channel else None


def read_message(record: Delivery) -> Message | None:
    """The message in a stored event; None if the event is not a customer's message or cannot be read."""
    channel = reading().get(record.provider)
    try:
        return channel.read(record) if channel else None
    except ItemUnparsable:
        return None


@cache
def reading() -> Channels[Channel]:
    """All channels without secrets, for reading stored records."""
    return Channels.of(*(each.reading() for each in CHANNELS))
