"""The registry of a team with one number: tenant `default`, from the environment."""

from dataclasses import dataclass

from shared.pipeline.ports import Tenant

DEFAULT = Tenant("default")


@dataclass(frozen=True, slots=True)
class EnvironmentTenants:
    """One sender, one tenant. Account news is its own too: our app secret signed it, and there is nobody else."""

    sender: str

    def owner_of(self, provider: str, sender: str) -> Tenant | None:  # noqa: ARG002 - one sender, whoever provides it
        return DEFAULT if sender == self.sender else None

    def owner_of_account(self, provider: str, account: str) -> Tenant | None:  # noqa: ARG002 - see the class
        return DEFAULT
