"""Channels: the channels of this process, by provider. Each record names its provider."""

from collections.abc import Mapping
from functools import cached_property
from typing import Generic, Self, TypeVar

from shared.domain.errors import UnknownState
from shared.pipeline.intake import IntakeChannel

C = TypeVar("C", bound=IntakeChannel)


class Channels(dict[str, C], Generic[C]):
    """Channels by the provider's name. A missing one raises UnknownState: the record waits for a version or a
    configuration that has it.
    """

    @classmethod
    def of(cls, *channels: C) -> Self:
        """Raises ValueError if two share a provider or a path: one of them would never be used."""
        providers = [channel.provider for channel in channels]
        paths = [path for channel in channels for path in channel.webhooks]
        for what, names in (("provider", providers), ("path", paths)):
            if len(set(names)) < len(names):
                raise ValueError(f"Two channels have one {what}: {', '.join(sorted(names))}.")
        return cls({channel.provider: channel for channel in channels})

    def __missing__(self, provider: str) -> C:
        raise UnknownState("This version of Pombo has no channel for the record's provider.")

    def require(self, provider: str) -> None:
        """Raise UnknownState unless there is a channel for this provider."""
        _ = self[provider]

    def at(self, path: str) -> C | None:
        """The channel whose provider calls this path below /webhooks/."""
        return self._by_path.get(path)

    @cached_property
    def _by_path(self) -> Mapping[str, C]:
        return {path: channel for channel in self.values() for path in channel.webhooks}
