"""The registry of a team with one number: tenant `default`, from the environment."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.pipeline.ports import Sender, Tenant

DEFAULT = Tenant("default")
PROVIDER = "meta"
"""Whose number the environment names."""


@dataclass(frozen=True, slots=True)
class EnvironmentTenants:
    """One sender, one tenant. Account news is its own too: our app secret signed it, and there is nobody else."""

    sender: str

    def owner_of(self, provider: str, sender: str) -> Tenant | None:  # noqa: ARG002 - one sender, whoever provides it
        return DEFAULT if sender == self.sender else None

    def owner_of_account(self, provider: str, account: str) -> Tenant | None:  # noqa: ARG002 - see the class
        return DEFAULT

    def senders(self, tenant: str | None = None) -> Sequence[Sender]:
        return (Sender(DEFAULT.id, PROVIDER, self.sender),) if tenant in (None, DEFAULT.id) else ()
