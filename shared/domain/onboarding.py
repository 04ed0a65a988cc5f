"""Onboarding: what a provider says of a number and an access token before Pombo sends with them."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from shared.domain.errors import PomboError


@dataclass(frozen=True, slots=True)
class Checked:
    """The provider names this very number with this token. `display` is the number as the provider shows it, "" if it
    shows none. A time of None: never, or unknown.
    """

    display: str = ""
    expires_at: datetime | None = None
    """When the token ends."""
    data_access_expires_at: datetime | None = None
    """When the token stops reading data, although it is still valid."""


class OnboardingRefused(PomboError):
    """The provider does not let Pombo use this number with this token."""

    code: ClassVar[str] = "onboarding_refused"
    scope: ClassVar[str] = "sender"

    def __init__(self, sentence: str, provider_code: int | None = None) -> None:
        super().__init__(sentence)
        self.provider_code = provider_code
        """The provider's error code; None if it gave none."""


class NoSuchNumber(OnboardingRefused):
    """The account that the token is for has no such number."""


class OnboardingUnavailable(PomboError):
    """The provider did not answer. Nothing was decided: try again later."""

    code: ClassVar[str] = "onboarding_unavailable"
    retryable: ClassVar[bool] = True
    scope: ClassVar[str] = "provider"
