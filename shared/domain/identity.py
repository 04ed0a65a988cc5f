"""Identity: how every key, task name and echo is derived. Derivations never change once released."""

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring as _in_json
from typing import Any

DOCTOR_KEY = "doctor"
"""Reserved for the test event of `pombo doctor`. No provider's event can have it: their keys are hashes."""

LEAST_PREFIX = 8
"""Characters that are enough to name an id: among a million hashes, another one shares its first 8 digits in one case
of four thousand.
"""

BEYOND_IDS = "~"
"""Sorts after every character of an id: ids that begin with `prefix` lie between `prefix` and `prefix~`."""

_ASKED_AGAIN = 4096
"""Ids that are kept: each is asked for a few times within one request, which has 2,000 events at most."""

_CORRELATION_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_ECHO = re.compile(r"pombo1\.([0-9a-f]{40})\.(0|[1-9][0-9]{0,8})\.([A-Za-z0-9_-]{8,64})")


def stable_hash(*parts: str | int) -> str:
    """The first 40 hex digits of SHA-256 over the compact JSON array of the parts, as UTF-8."""
    return hashlib.sha256(_array(parts)).hexdigest()[:40]


def keyed_hash(key: bytes, *parts: str | int) -> str:
    """As `stable_hash`, with HMAC-SHA256 under a secret key: whoever lacks the key cannot find a phone number's hash by
    trying all numbers.
    """
    return hmac.digest(key, _array(parts), "sha256").hex()[:40]


def _array(parts: Iterable[str | int]) -> bytes:
    """The compact JSON array of the parts: what json.dumps writes, at a quarter of its cost."""
    return ("[" + ",".join([_in_json(part) if isinstance(part, str) else str(part) for part in parts]) + "]").encode()


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys: the same value always gives the same text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=_ASKED_AGAIN)
def message_event_id(provider: str, sender: str, message_id: str) -> str:
    """The key of an inbound message: a hash, because the message id holds the customer's number."""
    return stable_hash(provider, sender, "message", message_id)


def change_event_id(provider: str, account: str, field: str, value: Any, time: int | None) -> str:
    """The key of an event without an id: from its value without the parts that differ between deliveries."""
    parts: list[str | int] = [provider, account, field, canonical_json(_without_profiles(value))]
    if time is not None:
        parts.append(time)
    return stable_hash(*parts)


def outbound_key(event_id: str, index: int) -> str:
    """The key of reply `index` (from 0) to an event."""
    return stable_hash("out", event_id, index)


def api_message_key(tenant: str, idempotency_key: str) -> str:
    """The key of a message that a caller of the API wants sent: the same for each request with its Idempotency-Key."""
    return stable_hash("api", tenant, idempotency_key)


@lru_cache(maxsize=_ASKED_AGAIN)
def task_name(key: str, generation: int, hop: int) -> str:
    """The name of a record's task. It makes task creation idempotent."""
    return stable_hash("task", key, generation, hop)


def wake_name(waiting: str, finished: str, round_: int, generation: int, state: str) -> str:
    """The name of the task that wakes one record because another has ended. A record that ends again after a replay has
    another round and generation, and wakes again.
    """
    return stable_hash("wake", waiting, finished, round_, generation, state)


def provider_id_hash(provider: str, provider_id: str) -> str:
    """The hash that replaces a provider's message id (it contains a phone number) in keys and indexes."""
    return stable_hash(provider, provider_id)


def sender_id(provider: str, sender: str) -> str:
    """The id of a sender and of its marks. It is a hash, because the provider's id may be a phone number."""
    return stable_hash("sender", provider, sender)


def pace_id(provider: str, sender: str) -> str:
    """The id of the marks that count a sender's pace: apart from its other marks, which each send would change."""
    return stable_hash("pace", provider, sender)


def account_id(provider: str, account: str) -> str:
    """The id of an account in the registry."""
    return stable_hash("account", provider, account)


def credential_fingerprint(token: str) -> str:
    """What identifies an access token in marks and listings, and reveals nothing else of it."""
    return stable_hash("credential", token)


def backend_id(url: str, tenant: str = "") -> str:
    """The id of a backend's marks. A tenant's own backend has its own, even if another tenant names the same address:
    what fails for one of them may answer the other. `tenant` is "" for the deployment's backend.
    """
    return stable_hash("backend", url, tenant) if tenant else stable_hash("backend", url)


def is_correlation_id(text: str) -> bool:
    return _CORRELATION_ID.fullmatch(text) is not None


def is_id_prefix(text: str) -> bool:
    """Whether this may be the beginning of a key or a correlation id, and is long enough to name one."""
    return len(text) >= LEAST_PREFIX and is_correlation_id(text)


@dataclass(frozen=True, slots=True)
class Echo:
    """Our key, which the provider repeats in every receipt of a message."""

    key: str
    round: int
    correlation_id: str

    def __str__(self) -> str:
        return f"pombo1.{self.key}.{self.round}.{self.correlation_id}"


def parse_echo(text: str | None) -> Echo | None:
    """The echo in a receipt, or None if it is absent or not ours."""
    match = _ECHO.fullmatch(text or "")
    return Echo(match[1], int(match[2]), match[3]) if match else None


def _without_profiles(value: Any) -> Any:
    """The value without profile names, which may change between two deliveries of one event."""
    if not isinstance(value, Mapping) or not isinstance(value.get("contacts"), list):
        return value
    contacts = [
        {k: v for k, v in contact.items() if k != "profile"} if isinstance(contact, Mapping) else contact
        for contact in value["contacts"]
    ]
    return {**value, "contacts": contacts}
