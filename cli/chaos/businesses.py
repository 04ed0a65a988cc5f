"""Businesses: the tenants of a chaos run, each with one sender. The first is the environment's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.chaos.simulator_control import SimulatorControl
from cli.running import Running
from shared.domain.tenants import DEFAULT_TENANT, Scope, Sender, Tenant
from shared.operations.connect import credential_name
from shared.operations.keys import add_key
from shared.operations.registry import add_tenant
from shared.operations.senders import add_sender
from shared.pipeline.clock import SystemClock
from shared.secrets.file_secrets import FILE, FileSecrets

FIRST_SENDER = 300000000000000
FIRST_ACCOUNT = 310000000000000


@dataclass(frozen=True, slots=True)
class Business:
    """A tenant and its sender: the provider's ids of the number and its account."""

    tenant: str
    sender: str
    account: str


def businesses(count: int, sender: str) -> Sequence[Business]:
    """So many tenants. `sender` is the environment's number, whose account nothing names."""
    others = range(1, count)
    return [
        Business(DEFAULT_TENANT, sender, ""),
        *(Business(f"business-{n}", str(FIRST_SENDER + n), str(FIRST_ACCOUNT + n)) for n in others),
    ]


def register(
    others: Sequence[Business], running: Running, pairs: int, control: SimulatorControl, data_dir: Path
) -> None:
    """Make each a tenant of the stack, which has this many pairs of queues, with one connected sender, which the
    simulator knows too.
    """
    clock, secrets = SystemClock(), FileSecrets(data_dir / FILE)
    for business in others:
        token = f"token-of-{business.tenant}"
        sender = Sender(business.tenant, "meta", business.sender, business.account)
        sender = replace(sender, credential=credential_name(sender))
        secrets.add(sender.credential, token)
        add_tenant(running.registry, clock, Tenant(business.tenant), pairs)
        add_sender(running.registry, running.store, clock, running.senders, sender)
        control.post("senders", {"phone_number_id": business.sender, "waba": business.account, "token": token})


def api_keys(known: Sequence[Business], running: Running) -> Sequence[str]:
    """A new API key of each business, which may send and nothing else."""
    return [add_key(running.registry, SystemClock(), business.tenant, {Scope.SEND})[1] for business in known]
