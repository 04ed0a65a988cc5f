"""Guards: conditions that must hold before a lease. Waiting for one spends no attempt and writes nothing."""

from dataclasses import dataclass, replace
from datetime import datetime

from shared.domain.calls import is_call
from shared.domain.errors import CredentialsUnavailable
from shared.domain.limits import Limits
from shared.domain.marks import BLOCK, DOWN, REFUSED, Marks, Outage, holds, holds_back
from shared.domain.rate_limit import LIMITED, look_again
from shared.domain.record import Delivery, State, Task
from shared.domain.tenants import Sender, Tenant

PROVIDER_DOWN, BACKEND_DOWN, REAUTH_REQUIRED = "provider_down", "backend_down", "WHATSAPP_REAUTH_REQUIRED"
"""Why a record waits, in log lines and `pombo trace --json`. They are a contract with readers, so the last one keeps
its name although it is used for every provider."""

SENDER_BLOCKED = "SENDER_BLOCKED"
"""Why the API refuses a message of a blocked sender."""

SUSPENDED, SENDER_REMOVED, CREDENTIALS_UNAVAILABLE = "suspended", "sender_removed", CredentialsUnavailable.code
"""Why a message waits before anything is asked of its sender's marks; the last one also why an event waits whose
handler's secret cannot be read."""

PACED = "paced"
"""Why a message waits: its sender sends no faster than its pace."""

PREDECESSOR = "predecessor"
"""Why a message waits: the one before it to the same contact has not ended."""

TURN = "turn"
"""Why an event waits: another one of its contact comes before it, or is being handled."""

BUSY = "busy"
"""Why an event waits that is to be handled: its tenant's handler has its share of this process's request threads."""

PROVIDER_PROBE, BACKEND_PROBE = "provider_probe", "backend_probe"
"""Why a record waits although no outage is certain: an answer was lost, and one attempt probes."""


@dataclass(frozen=True, slots=True)
class Go:
    """Nothing is in the way. `overtakes`: the key of the message before it, if it has waited for that long enough."""

    overtakes: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """False for now. `why` is the reason that is shown. `unclear`: the provider is marked as down, so a doubt cannot be
    judged, because its receipt may be delayed too. `slot` is the time that is reserved for the message in its sender's
    pace, `alone_since` the time since when the record before it is all that it waits for; the task that hops there
    carries both.
    """

    why: str
    until: datetime
    unclear: bool = False
    slot: datetime | None = None
    alone_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Elect:
    """Only an elected attempt may go: it claims these marks first. `probe`: if it claims the breaker, it then sends the
    provider a harmless request. `why` (the others wait) and `unclear` are as in Wait, `overtakes` as in Go.
    """

    claims: frozenset[str]
    why: str
    unclear: bool = False
    overtakes: str | None = None

    @property
    def probe(self) -> bool:
        return DOWN in self.claims


@dataclass(frozen=True, slots=True)
class Never:
    """False permanently."""

    reason: str


Guard = Go | Wait | Elect | Never


def withheld(record: Delivery, tenant: Tenant | None, sender: Sender | None) -> str | None:
    """Why the registry lets a message of this sender not go, or None. A sender that was removed, or that another tenant
    has now, sends nothing under the name of the tenant that it had.
    """
    if tenant is not None and tenant.suspended:
        return SUSPENDED
    is_its_own = sender is not None and tenant is not None and sender.tenant == tenant.id == record.tenant
    return None if is_its_own else SENDER_REMOVED


def outbound_guard(
    marks: Marks,
    fingerprint: str,
    record: Delivery,
    before: Delivery | None,
    task: Task,
    limits: Limits,
    now: datetime,
    withheld: str | None = None,
    jitter: float = 0.5,
) -> Guard:
    """The first guard that is false, or Go. `before`: the message before it, None if it is gone or there is none.
    `withheld`: why the message may not even be tried, if so. The sender's pace is the guard after these
    (shared.domain.pace): it alone writes.

    A message in doubt whose policy or number of doubts ends it is ended although its tenant is suspended: its receipt
    would have come all the same. If the provider is marked as down too, the receipt may be late, so it waits.

    A refused credential counts only while it is in use: a new credential *is* the reconnect. No hop goes past the end
    of a mark: of refusals that come together, the last one sets the end, a moment after the others are due, and a check
    a moment too early would cost one more full wait. Only an attempt that could send is elected: one that has to wait
    anyway claims nothing.

    The predecessor is the last guard that makes a message wait, so `alone_since` counts only time in which nothing else
    was in the way: an outage uses none of `order_patience`. One that is being sent just then is waited for even longer:
    its lease is short. Nor does the time count in which the predecessor itself waited in the lane: see `renewed`.
    """
    waits, claims = limits.waits, list[tuple[str, str]]()
    ahead = now + limits.early  # otherwise a hop that comes a little before a mark's end would hop again and again
    unclear = record.state is State.IN_DOUBT and marks.down is not None
    refused = marks.refused
    if withheld:
        is_short = withheld == CREDENTIALS_UNAVAILABLE
        return Wait(withheld, now + (waits.credentials_unavailable if is_short else waits.suspended), unclear)
    if marks.disconnected:
        return Wait(REAUTH_REQUIRED, now + waits.credential, unclear)
    if refused and refused.fingerprint == fingerprint:
        if holds(refused, ahead):
            look = now + (waits.claimed if refused.claim else waits.credential)
            until = look if refused.until is None else min(look, refused.until)
            return Wait(REAUTH_REQUIRED, until, unclear)
        claims.append((REFUSED, REAUTH_REQUIRED))
    if marks.block:
        if holds(marks.block, ahead):
            look = now + (waits.claimed if marks.block.claim else waits.credential)
            return Wait("blocked", min(look, marks.block.until), unclear)
        claims.append((BLOCK, "blocked"))
    if marks.down and ahead < (probe_from := _probe_from(marks.down, record, limits)):
        why = _why(marks.down, PROVIDER_DOWN, PROVIDER_PROBE)
        return Wait(why, now + waits.claimed if marks.down.claim else probe_from, unclear)
    if marks.limited and ahead < marks.limited.until:
        return Wait(LIMITED, look_again(marks.limited, task.hop, waits, now, jitter), unclear)
    alone_since = task.alone_since or now
    patient_until = alone_since + limits.order_patience
    in_the_way = None if predecessor_finished(record, before) else before
    if in_the_way and (ahead < patient_until or in_the_way.leased_at(now)):
        look = now + waits.predecessor.after(task.hop)
        until = min(look, patient_until) if ahead < patient_until else look
        return Wait(PREDECESSOR, until, unclear, alone_since=alone_since)
    overtakes = in_the_way.key if in_the_way else None
    if marks.down or record.doubts:
        claims.append((DOWN, _why(marks.down, PROVIDER_DOWN, PROVIDER_PROBE)))
    if not claims:
        return Go(overtakes)
    return Elect(frozenset(name for name, _ in claims), claims[0][1], unclear, overtakes)


def _why(down: Outage | None, outage: str, probe: str) -> str:
    """The reason for a wait for the breaker. A mark without a `wait` comes only from a lost answer."""
    return outage if down and down.wait else probe


def _probe_from(down: Outage, record: Delivery, limits: Limits) -> datetime:
    """When this message may probe. A message in doubt lets a fresh one be the trial. A call lets a message go first,
    because its answer would not close the breaker.
    """
    if record.doubts:
        return down.until + limits.waits.doubtful_trial
    return down.until + limits.waits.claimed if is_call(record.payload) else down.until


def inbound_guard(down: Outage | None, record: Delivery, limits: Limits, now: datetime) -> Guard:
    """Whether the backend may be called for this event. `down` is its mark, as last read.

    If several events have failed, one that was tried before lets a fresh one be the trial. Otherwise poisonous events,
    which always fail, would keep the breaker open for all.
    """
    if down is None or not holds_back(down, record.key):
        return Go()
    why = _why(down, BACKEND_DOWN, BACKEND_PROBE)
    lets_others_go = down.by is None and record.tried
    trial_from = down.until + limits.waits.claimed if lets_others_go else down.until
    if now + limits.early < trial_from:
        return Wait(why, now + limits.waits.claimed if down.claim else trial_from)
    return Elect(frozenset({DOWN}), why)


def disconnected(marks: Marks, is_refused: bool) -> str | None:
    """Why a sender cannot send, as a reason code; None if nothing is known against it. `is_refused`: the credential in
    use is refused.

    A block counts beyond its end: only an accepted send, or a notice from the provider, lifts it.
    """
    if marks.disconnected:
        return "disconnected"
    if is_refused:
        return "needs_reauth"
    return "blocked" if marks.block or marks.receipt_block else None


def refused_at_once(marks: Marks, now: datetime) -> str | None:
    """Why a message that is due is not even stored, as its caller reads it; None if it may wait like any other.

    Only what a person must mend is told to the caller. A mark that may be probed holds nothing back here: this message
    may be the one that probes it.
    """
    refused, in_use = marks.refused, marks.credential
    is_in_use = refused is not None and in_use is not None and refused.fingerprint == in_use.fingerprint
    if marks.disconnected or (is_in_use and refused and refused.until is None):
        return REAUTH_REQUIRED
    return SENDER_BLOCKED if marks.block and now < marks.block.until else None


def is_down(marks: Marks, limits: Limits, now: datetime) -> bool:
    """Whether a provider or a backend counts as down. One lost answer is not enough: it makes the next attempt probe.
    A mark that no attempt has probed for long is not enough either: without traffic, nothing is known.
    """
    down = marks.down
    return down is not None and bool(down.wait) and now < down.until + limits.waits.outage.longest


def was_passed_over(record: Delivery) -> bool:
    """Whether a message ended before its turn came, as a cancelled one: who waits for it waits for the one before it.
    One that was tried had no message before it any more.
    """
    return record.final and record.after is not None and record.started_at is None and not record.current_receipts.any


def predecessor_finished(record: Delivery, predecessor: Delivery | None) -> bool:
    """Whether the message before this one is finished; a missing one is."""
    return record.after is None or predecessor is None or predecessor.finished


def with_patience(task: Task, record: Delivery) -> Task:
    """The task with the patience that counts: each generation of a record's tasks begins anew."""
    return task if task.generation >= record.generation else replace(task, alone_since=None)


def is_patience_over(task: Task, limits: Limits, now: datetime) -> bool:
    """Whether a record has waited for the one before it, and for nothing else, for as long as it may."""
    return task.alone_since is not None and task.alone_since + limits.order_patience <= now + limits.early


def renewed(task: Task, behind: Delivery | None, now: datetime) -> Task:
    """The task of a message whose patience is over. `behind`: the message that the one before it waits for, if any.

    Only a message that is first in its lane and does not move is overtaken. So as long as the one before waits for its
    own turn, patience begins anew, and once that has come, it counts from then. A message that is given up is waited
    for by nobody.
    """
    if behind is None:
        return task
    if behind.finished and not was_passed_over(behind):
        since, turn_came = task.alone_since, behind.finished_at
        return replace(task, alone_since=max(since, turn_came)) if since and turn_came else task
    is_given_up = behind.give_up_at is not None and behind.give_up_at <= now
    return task if is_given_up else replace(task, alone_since=None)
