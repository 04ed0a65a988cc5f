"""Guards: what must hold before an outbound lease. Waiting for one spends no attempt and writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared.domain.limits import Backoff, Limits
from shared.domain.record import Delivery


@dataclass(frozen=True, slots=True)
class Block:
    """The provider's word that a sender may not send: until when, how long that was, and its code."""

    until: datetime
    wait: timedelta
    code: int


@dataclass(frozen=True, slots=True)
class TenantMarks:
    """What refusals taught us about a tenant: the credential that was refused, the senders that are blocked."""

    refused_credential: str | None = None
    blocks: Mapping[str, Block] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Go:
    """Nothing is in the way."""


@dataclass(frozen=True, slots=True)
class Wait:
    """False for now. `why` is the word the outside is shown."""

    why: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Never:
    """False for good."""

    reason: str


Guard = Go | Wait | Never


def outbound_guard(
    marks: TenantMarks,
    fingerprint: str,
    predecessor_finished: bool,
    sender: str,
    hop: int,
    limits: Limits,
    now: datetime,
) -> Guard:
    """The first guard that is false, or Go.

    A refused credential holds only while it is the one in use: another one in its place *is* the reconnect.
    The first send after a block has passed is the probe: nobody hops past its end, which refusals that came together
    may have moved by a moment.
    """
    waits = limits.waits
    if marks.refused_credential == fingerprint:
        return Wait("WHATSAPP_REAUTH_REQUIRED", now + waits.credential)
    block = marks.blocks.get(sender)
    if block and now < block.until:
        return Wait("blocked", min(now + waits.credential, block.until))
    if not predecessor_finished:
        return Wait("predecessor", now + waits.predecessor.after(hop))
    return Go()


def disconnected(marks: TenantMarks, fingerprint: str, sender: str) -> str | None:
    """Why a sender is known to reach nobody, in a word; None where nothing speaks against it.

    A block counts beyond its end: only a send that is accepted, or the provider's own word, lifts it.
    """
    if marks.refused_credential == fingerprint:
        return "needs_reauth"
    return "blocked" if sender in marks.blocks else None


def next_block(marks: TenantMarks, sender: str, code: int, backoff: Backoff, now: datetime) -> Block:
    """The block that follows a refusal: twice as long as the last one, if that one has passed; else it stands."""
    old = marks.blocks.get(sender)
    if old and now < old.until:
        return old
    wait = min(backoff.longest, old.wait * backoff.factor) if old else backoff.first
    return Block(now + wait, wait, code)


def predecessor_finished(record: Delivery, predecessor: Delivery | None) -> bool:
    """Whether the reply before this one is out of the way; one that is missing is."""
    return record.after is None or predecessor is None or predecessor.finished
