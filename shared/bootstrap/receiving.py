"""The channels of the webhook service: the receiving half of each provider, with only the secrets to verify."""

from collections.abc import Callable, Sequence

from shared.bootstrap.adapters import port
from shared.channels.meta.receiver import MetaReceiver
from shared.config import Config
from shared.pipeline.channels import Channels
from shared.pipeline.intake import IntakeChannel


def _meta(settings: Config) -> IntakeChannel:
    return MetaReceiver(app_secrets=settings["META_APP_SECRET"], verify_tokens=settings["META_VERIFY_TOKEN"])


RECEIVERS: Sequence[Callable[[Config], IntakeChannel]] = (_meta,)
"""Makes the receiving half of each provider. `CHANNELS` in channels.py has the other half; a test compares the two."""


def receiving(settings: Config) -> Channels[IntakeChannel]:
    """The channels of the webhook service."""
    return Channels.of(*(port(settings, "channel", make(settings)) for make in RECEIVERS))
