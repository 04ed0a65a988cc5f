"""Changes of the registry: the numbers of tenants, and the accounts at a provider that hold them.

A provider's id belongs to one sender, and an account to one tenant: the first that claims it, until it is removed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

from shared.domain.identity import pace_id, sender_id
from shared.domain.listings import Listing
from shared.domain.marks import Marks, is_refused
from shared.domain.record import Delivery
from shared.domain.tenants import DEFAULT_TENANT, Sender
from shared.operations.dead_letters import PAGE, pages
from shared.operations.registry import (
    Decided,
    Invalid,
    NotFound,
    Taken,
    beginning_with,
    commit,
    entries_of,
    tenant_entry,
)
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store
from shared.pipeline.registry import Entry, EntryKind, EntryWrite, Registry
from shared.tenants.cache import FRESH_SECONDS
from shared.tenants.entries import (
    Account,
    account_name,
    deletion,
    is_gone,
    is_removed,
    read_account,
    read_sender,
    removal,
    sender_name,
    unchanged,
    write_account,
    write_sender,
)

RELEASE_SECONDS = FRESH_SECONDS + 1
"""How long a removed number is nobody's before another tenant can add it: longer than any process keeps an answer of
the registry. So what comes for the new owner never counts as the former one's.
"""

NO_SUCH_NUMBER = "The provider knows no such number for this account."
"""What a tenant is told of a number or an account that another one has: the same as of one that does not exist."""

BEING_REMOVED = (
    "This sender is being removed, and no tenant has it any more. If its removal was interrupted, run pombo senders "
    "remove again."
)


def add_sender(registry: Registry, store: Store, clock: Clock, environment: Sequence[Sender], sender: Sender) -> Sender:
    """Give a number to a tenant, with the account that holds it, if that is known. `environment`: the senders that the
    environment names. Raises Refused and StoreUnavailable. Taken also if the tenant has the number already.

    When it was added is the store's time: older news of its account counts for a former owner, and the clock of an
    operator's machine may be ahead.
    """
    if not sender.provider_id:
        raise Invalid("id", "A sender needs the id that its provider gave it.")

    def decide() -> Decided[Sender]:
        tenant, holder = check_free(registry, environment, sender)
        added = replace(sender, created_at=store.time())
        # The tenant's entry too: its removal must not come between.
        writes = [unchanged(tenant), write_sender(added, None)]
        return [*writes, _held(added, holder)] if sender.account else writes, added

    return commit(registry, clock, decide)


def check_free(registry: Registry, environment: Sequence[Sender], sender: Sender) -> tuple[Entry, Entry | None]:
    """The entries of the tenant that claims the number, and of the account if it has one. Raises Taken if the number or
    the account has an owner, Invalid for tenant `default`, else as `add_sender`.
    """
    if sender.id in (ours.id for ours in environment):
        raise Taken("This number is the environment's: it belongs to tenant default.")
    if sender.tenant == DEFAULT_TENANT:
        raise Invalid("tenant", "Tenant default has only the environment's number: add a tenant for another one.")
    tenant = tenant_entry(registry, sender.tenant)
    found, holder = registry.entries([sender_name(sender.id), account_name(sender.provider, sender.account)])
    if found is not None and is_removed(found):
        raise Taken(
            f"This number is being removed from tenant {found.tenant}: try again in some seconds. If its removal was "
            "interrupted, run pombo senders remove again."
        )
    if found is not None:
        raise Taken(
            f"This number belongs to tenant {found.tenant} already, as sender {sender.id[:8]}: pombo senders reconnect "
            "gives it another token, and pombo senders remove frees it."
        )
    if holder is not None and holder.tenant != sender.tenant and not _is_free(holder):
        raise Taken(f"This account belongs to tenant {holder.tenant} already, until its numbers are removed there.")
    return tenant, holder


def _held(sender: Sender, holder: Entry | None) -> EntryWrite:
    """The write of the account that now holds the sender too."""
    former = read_account(holder).senders if holder and holder.tenant == sender.tenant else ()
    return write_account(Account(sender.provider, sender.account, sender.tenant, (*former, sender.id)), holder)


def _is_free(holder: Entry) -> bool:
    """Whether another tenant may claim the account: its last number is removed, and every process knows of it."""
    return not is_removed(holder) and not read_account(holder).senders


def find_sender(
    registry: Registry, id: str, providers: Iterable[str] = (), *, even_being_removed: bool = False
) -> Sender:
    """The sender with this id, given in full or by its first 8 characters, or with this id at one of the providers.
    Raises NotFound, also if several ids begin with it and, unless the caller is to end its removal, if it is being
    removed; UnknownState and StoreUnavailable.
    """
    names = [sender_name(one) for one in (id, *(sender_id(provider, id) for provider in providers))]
    exact = next((entry for entry in registry.entries(names) if entry), None)
    found = exact or beginning_with(registry, EntryKind.SENDER, id)
    if found is None:
        raise NotFound("There is no such sender: pombo senders list shows their ids.")
    if is_gone(found) and not even_being_removed:
        raise NotFound(BEING_REMOVED)
    return read_sender(found)


def users_of_secret(registry: Registry, name: str) -> Iterator[str]:
    """The senders of all tenants that are sent from with the secret of this name, each in words: an operator may name
    one secret for several. Also one that only a newer version can read. Raises StoreUnavailable.
    """
    for entry in entries_of(registry, EntryKind.SENDER, None):
        if entry.fields.get("credential") == name and not is_gone(entry):
            yield f"sender {entry.name.id[:8]} of tenant {entry.tenant}"


def set_sender(registry: Registry, clock: Clock, id: str, change: Callable[[Sender], Sender]) -> Sender:
    """Change a sender's display, credential, order or pace. `id` is `Sender.id`. `change` may run several times. Raises
    NotFound, UnknownState and StoreUnavailable.
    """

    def decide() -> Decided[Sender]:
        found = registry.entries([sender_name(id)])[0]
        if found is None or is_gone(found):
            raise NotFound("There is no such sender." if found is None else BEING_REMOVED)
        before = read_sender(found)
        asked = change(before)
        after = replace(before, display=asked.display, credential=asked.credential, order=asked.order, pace=asked.pace)
        return [write_sender(after, found)] if after != before else [], after

    return commit(registry, clock, decide)


def remove_sender(registry: Registry, store: Store, clock: Clock, id: str) -> Sender:
    """Delete a sender, and what past answers said about it. Messages of it that wait are not sent. The number is its
    tenant's no more at once, and free for any tenant RELEASE_SECONDS later, when this returns. If it is interrupted, it
    can be repeated. `id` is `Sender.id`. Raises NotFound, UnknownState and StoreUnavailable.
    """
    at = clock.now()

    def take() -> Decided[Sender]:
        found = registry.entries([sender_name(id)])[0]
        if found is None:
            raise NotFound("There is no such sender.")
        sender = read_sender(found)
        return [removal(unchanged(found), at), *_without(registry, sender, at)], sender

    def free() -> Decided[None]:
        found, holder = registry.entries([sender_name(id), account_name(sender.provider, sender.account)])
        number = [deletion(found)] if found and is_removed(found, at) else []
        account = [write_account(read_account(holder), holder)] if holder and is_removed(holder, at) else []
        return [*number, *account], None

    sender = commit(registry, clock, take)
    clock.sleep(RELEASE_SECONDS)
    for marks in (sender.id, pace_id(sender.provider, sender.provider_id)):
        store.change_marks(marks, _nothing_known)
    commit(registry, clock, free)
    return sender


def _without(registry: Registry, sender: Sender, at: datetime) -> list[EntryWrite]:
    """The write of the account that no longer holds the sender. Without senders it can be claimed by another tenant,
    but it stays: what the provider reports of it must not count for the environment, which owns unknown accounts.
    """
    holder = registry.entries([account_name(sender.provider, sender.account)])[0]
    if holder is None or holder.tenant != sender.tenant:
        return []
    account = read_account(holder)
    write = write_account(replace(account, senders=tuple(id for id in account.senders if id != sender.id)), holder)
    return [removal(write, at) if account.senders in ((), (sender.id,)) else write]


def _nothing_known(marks: Marks) -> Marks:
    return replace(marks, **{mark.name: None for mark in fields(marks) if mark.name != "version"})


# ---- what is known of a sender


@dataclass(frozen=True, slots=True)
class Auth:
    """Whether a sender can send, as past answers tell: connected, needs_reauth, blocked or disconnected. `code` is the
    provider's code or word for it.
    """

    state: str
    code: int | str | None = None
    since: datetime | None = None

    def __str__(self) -> str:
        """Its state, with the provider's code or word in brackets."""
        code = f"code {self.code}" if isinstance(self.code, int) else self.code
        return f"{self.state} ({code})" if code else self.state


def auth_of(marks: Marks) -> Auth:
    """A refusal counts while its credential is the last one that was used. When a block began is not known."""
    if marks.disconnected:
        return Auth("disconnected", marks.disconnected.event, marks.disconnected.since)
    if marks.refused and is_refused(marks):
        return Auth("needs_reauth", marks.refused.code, marks.refused.since)
    if marks.block:
        return Auth("blocked", marks.block.code)
    return (
        Auth("blocked", marks.receipt_block.code, marks.receipt_block.at) if marks.receipt_block else Auth("connected")
    )


def troubled(store: Store) -> Iterator[str]:
    """The ids of all senders, and of numbers that are no sender any more, whose marks say more than connected. Raises
    StoreUnavailable.
    """
    after: str | None = None
    while page := store.troubled(after, PAGE):
        yield from page
        after = page[-1]


def came_before(store: Store, sender: Sender) -> Iterator[Delivery]:
    """The events for this number that were dropped because no tenant owned it; an operator may replay them. Without
    their payloads. Raises StoreUnavailable.
    """
    for page in pages(store, Listing.UNKNOWN_SENDER, None):
        for record in page.records:
            if (record.provider, record.sender) == (sender.provider, sender.provider_id):
                yield record
