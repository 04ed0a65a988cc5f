"""Entries: tenants, senders, keys and accounts as the registry's entries hold them, and back.

A field that only a newer version knows is ignored on reading and kept on writing. What cannot be read raises
UnknownState: it is never taken for something else. What a store found damaged has no fields, and so cannot be read.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from shared.domain.errors import RegistryUnreadable, UnknownState
from shared.domain.identity import account_id, sender_id
from shared.domain.limits import DoubtPolicy
from shared.domain.tenants import ApiKey, Order, Pace, QueueUse, Scope, Sender, Tenant, TenantHandler, TenantState
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite

Fields = Mapping[str, Any]
T = TypeVar("T")

QUEUE_USE = EntryName(EntryKind.QUEUE_USE, "all")
"""The one entry that counts the tenants of each pair of queues."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account at a provider: it belongs to one tenant, and holds the senders with these ids (`Sender.id`)."""

    provider: str
    id: str
    tenant: str
    senders: tuple[str, ...] = ()


# ---- names


def tenant_name(id: str) -> EntryName:
    return EntryName(EntryKind.TENANT, id)


def sender_name(id: str) -> EntryName:
    """`id` is `Sender.id`."""
    return EntryName(EntryKind.SENDER, id)


def account_name(provider: str, account: str) -> EntryName:
    return EntryName(EntryKind.ACCOUNT, account_id(provider, account))


def owned_name(addressee: Addressee) -> EntryName:
    """The entry that names the owner of a number or an account."""
    provider, id, is_account = addressee
    return account_name(provider, id) if is_account else sender_name(sender_id(provider, id))


def key_name(id: str) -> EntryName:
    return EntryName(EntryKind.KEY, id)


# ---- writes: `found` is the entry as read, None if there is none


def write_tenant(tenant: Tenant, found: Entry | None) -> EntryWrite:
    handler = tenant.handler
    fields = {
        "name": tenant.name,
        "state": tenant.state.value,
        "queue": tenant.queue,
        "in_doubt": tenant.in_doubt and tenant.in_doubt.value,
        "handler": {"url": handler.url, "secret": handler.secret} if handler else None,
        "created_at": _stamp(tenant.created_at),
    }
    return _write(tenant_name(tenant.id), tenant.id, fields, found)


def write_sender(sender: Sender, found: Entry | None) -> EntryWrite:
    pace = sender.pace
    fields = {
        "provider": sender.provider,
        "provider_id": sender.provider_id,
        "account": sender.account,
        "display": sender.display,
        "credential": sender.credential,
        "order": sender.order.value,
        "pace": {"per_second": pace.per_second, "burst": pace.burst} if pace else None,
        "created_at": _stamp(sender.created_at),
    }
    return _write(sender_name(sender.id), sender.tenant, fields, found)


def write_account(account: Account, found: Entry | None) -> EntryWrite:
    fields = {
        "provider": account.provider,
        "account": account.id,
        "senders": list(account.senders),
        "removed_at": None,
    }
    return _write(account_name(account.provider, account.id), account.tenant, fields, found)


def write_key(key: ApiKey, found: Entry | None) -> EntryWrite:
    fields = {
        "digest": key.digest,
        "scopes": sorted(key.scopes),
        "created_at": _stamp(key.created_at),
        "revoked_at": _stamp(key.revoked_at),
    }
    return _write(key_name(key.id), key.tenant or "", fields, found)


def write_queue_use(use: QueueUse, found: Entry | None) -> EntryWrite:
    counts = {str(pair): count for pair, count in sorted(use.tenants.items()) if count}
    fields = {"tenants": counts, "active": use.active}
    # Counts are replaced as a whole: a pair that is missing has no tenant.
    kept = {name: value for name, value in (found.fields if found else {}).items() if name not in fields}
    return EntryWrite(QUEUE_USE, "", {**kept, **fields}, found.version if found else None)


def unchanged(found: Entry) -> EntryWrite:
    """A write that changes nothing but the version: a commit with it is refused if another write came between. Raises
    UnknownState for an entry that cannot be read: of a damaged one this would write less than there is.
    """
    READERS[found.name.kind](found)
    return EntryWrite(found.name, found.tenant, found.fields, found.version)


def removal(write: EntryWrite, at: datetime) -> EntryWrite:
    """This write of a sender or an account, with the time of its removal: until it is free, no other tenant can have
    it. A removed sender does not exist to the services; news of a removed account still goes to its last tenant.
    """
    return replace(write, fields={**(write.fields or {}), "removed_at": _stamp(at)})


def is_removed(entry: Entry, at: datetime | None = None) -> bool:
    """Whether it was taken from its tenant (at this time, if one is given), and is not free yet."""
    removed_at = entry.fields.get("removed_at")
    return removed_at is not None and (at is None or removed_at == _stamp(at))


def is_gone(entry: Entry) -> bool:
    """Whether it is a sender that was taken from its tenant: to the services, the lists and every change but the end of
    its removal it does not exist.
    """
    return entry.name.kind is EntryKind.SENDER and is_removed(entry)


def deletion(found: Entry) -> EntryWrite:
    return EntryWrite(found.name, found.tenant, None, found.version)


def _write(name: EntryName, tenant: str, fields: Fields, found: Entry | None) -> EntryWrite:
    merged = _merged(fields, found.fields if found else {})
    return EntryWrite(name, tenant, merged, found.version if found else None)


def _merged(fields: Fields, before: Fields) -> dict[str, Any]:
    """These fields, and those of `before` that this version does not know. A field of None is left out."""
    merged = {name: value for name, value in before.items() if name not in fields}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            was = before.get(name)
            merged[name] = _merged(value, was if isinstance(was, Mapping) else {})
        elif value is not None:
            merged[name] = value
    return merged


# ---- reads: each raises UnknownState


def read_tenant(entry: Entry) -> Tenant:
    def read(fields: Fields) -> Tenant:
        handler, policy = fields.get("handler"), fields.get("in_doubt")
        return Tenant(
            id=entry.name.id,
            name=_text(fields.get("name", "")),
            state=TenantState(fields["state"]),
            queue=None if fields.get("queue") is None else _count(fields["queue"]),
            in_doubt=None if policy is None else DoubtPolicy(policy),
            handler=None if handler is None else TenantHandler(_text(handler["url"]), _text(handler["secret"])),
            created_at=_moment(fields.get("created_at")),
        )

    return _read(entry, read)


def read_sender(entry: Entry) -> Sender:
    def read(fields: Fields) -> Sender:
        pace = fields.get("pace")
        return Sender(
            tenant=_owner(entry),
            provider=_text(fields["provider"]),
            provider_id=_text(fields["provider_id"]),
            account=_text(fields.get("account", "")),
            display=_text(fields.get("display", "")),
            credential=_text(fields.get("credential", "")),
            order=Order(fields.get("order", Order.CONTACT)),
            pace=None if pace is None else Pace(_rate(pace["per_second"]), _count(pace.get("burst", 1), least=1)),
            created_at=_moment(fields.get("created_at")),
        )

    found = _read(entry, read)
    return _named(found, sender_name(found.id), entry)


def read_account(entry: Entry) -> Account:
    def read(fields: Fields) -> Account:
        senders = fields.get("senders", [])
        if not isinstance(senders, list):
            raise TypeError(senders)
        ids = tuple(_text(id) for id in senders)
        return Account(_text(fields["provider"]), _text(fields["account"]), _owner(entry), ids)

    found = _read(entry, read)
    return _named(found, account_name(found.provider, found.id), entry)


def read_key(entry: Entry) -> ApiKey:
    def read(fields: Fields) -> ApiKey:
        created = _moment(fields["created_at"])
        if created is None:
            raise TypeError
        return ApiKey(
            id=entry.name.id,
            tenant=entry.tenant or None,
            digest=_text(fields["digest"]),
            scopes=frozenset(Scope(scope) for scope in fields["scopes"]),
            created_at=created,
            revoked_at=_moment(fields.get("revoked_at")),
        )

    return _read(entry, read)


def read_queue_use(entry: Entry | None) -> QueueUse:
    """No tenant was ever added if there is no entry."""
    if entry is None:
        return QueueUse()

    def read(fields: Fields) -> QueueUse:
        counts = {int(pair): _count(count) for pair, count in fields["tenants"].items()}
        return QueueUse(counts, _count(fields["active"]))

    return _read(entry, read)


READERS: Mapping[EntryKind, Callable[[Entry], Any]] = {
    EntryKind.TENANT: read_tenant,
    EntryKind.SENDER: read_sender,
    EntryKind.ACCOUNT: read_account,
    EntryKind.KEY: read_key,
    EntryKind.QUEUE_USE: read_queue_use,
}
"""How an entry of each kind is read."""


def _read(entry: Entry, read: Callable[[Fields], T]) -> T:
    try:
        return read(entry.fields)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnknownState(RegistryUnreadable().sentence) from error


def _named(found: T, name: EntryName, entry: Entry) -> T:
    """What was found. Raises UnknownState if it belongs under another name: the number that an entry was looked up by
    is the one that is sent from.
    """
    if name != entry.name:
        raise UnknownState(RegistryUnreadable().sentence)
    return found


def _owner(entry: Entry) -> str:
    if not entry.tenant:
        raise ValueError("It belongs to nobody.")
    return entry.tenant


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _count(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TypeError(value)
    return value


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise TypeError(value)
    return float(value)


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(_text(text))
    if at.tzinfo is None:
        raise ValueError(text)
    return at
