"""Marks: what past answers tell about a sender or a backend, stored beside the records, and which attempt may probe.

A mark holds sends back until `until`. After that one attempt is elected: it writes its token as the `claim` and a new
`until`, which keeps the others waiting while it probes. A claim that is not given back expires.

The functions here are pure: marks in, marks out. A store applies them as one conditional write, and reads and decides
again if another write came first. Each function recognises by the claim what its own attempt has already written. It
does not change a mark that differs from what its attempt saw, because another attempt knows more.
"""

from collections.abc import Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from shared.domain import rate_limit
from shared.domain.events import ReceiptBlock
from shared.domain.limits import Limits, Waits
from shared.domain.rate_limit import RateLimit
from shared.domain.verdicts import (
    Accepted,
    Blocked,
    CredentialRefused,
    Lost,
    ProviderDown,
    SendVerdict,
)
from shared.domain.waits import jittered

M = TypeVar("M", "Outage", "Block", "RefusedCredential")

DOWN, BLOCK, REFUSED = "down", "block", "refused"
"""The names of the marks that one attempt can be elected to probe."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The provider or the backend is down, as far as the last call shows: the state of a circuit breaker.

    `wait` is the last wait, before jitter; the next one is twice as long. `by` is the event that failed at a backend:
    until a second event fails, the mark holds back only that one.
    """

    until: datetime
    wait: timedelta = timedelta()
    claim: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """The provider does not let a sender send: until when, how long that wait is, and the provider's code.

    `by_receipt`: the provider reported it after it had accepted a message. An accepted send then proves little: it
    extends the block by a minute (`confirming`), and only the first send accepted after that lifts it.
    """

    until: datetime
    wait: timedelta
    code: int
    claim: str | None = None
    by_receipt: bool = False
    confirming: bool = False


@dataclass(frozen=True, slots=True)
class RefusedCredential:
    """A credential that the provider refused. `until`: when one message retries it; None: never."""

    fingerprint: str
    code: int
    since: datetime
    until: datetime | None = None
    claim: str | None = None


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential in use, since when it connects the sender, and the previous one, which instances of an earlier
    revision may use.
    """

    fingerprint: str
    since: datetime
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The provider said that the sender's account was disconnected or deleted: until it is connected again, the sender
    cannot send. `event` is the provider's word.
    """

    event: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Bucket:
    """How far a sender's pace is spent: `next` is when the next message would go if there were no burst."""

    next: datetime


@dataclass(frozen=True, slots=True)
class Marks:
    """All marks of one sender. A backend has only `down`; a sender's pace has a document of its own, with `bucket`."""

    down: Outage | None = None
    block: Block | None = None
    refused: RefusedCredential | None = None
    credential: Credential | None = None
    receipt_block: ReceiptBlock | None = None
    disconnected: Disconnected | None = None
    bucket: Bucket | None = None
    limited: RateLimit | None = None
    version: int | None = field(default=None, compare=False)
    """The store's version of what was read; it refuses a write if another came between. None: nothing is stored."""


class _Claimable(Protocol):
    @property
    def until(self) -> datetime | None: ...
    @property
    def claim(self) -> str | None: ...


def is_troubled(marks: Marks) -> bool:
    """Whether something is known against the sender itself: the sweep checks and reports such senders."""
    return any((marks.refused, marks.block, marks.receipt_block, marks.disconnected))


def holds(mark: _Claimable | None, now: datetime) -> bool:
    """Whether a mark holds sends back now; once it is over, one attempt may be elected."""
    return mark is not None and (mark.until is None or now < mark.until)


# ---- before a send


def of_credential_in_use(marks: Marks, fingerprint: str, now: datetime) -> Marks:
    """The marks, given the credential in use. A new credential is a reconnect: a block is over, and the next send
    probes it.

    The previous credential changes nothing: during a rollout, instances of both revisions send.
    """
    known = marks.credential
    if not fingerprint or (known and fingerprint in (known.fingerprint, known.previous)):
        return marks
    block, refused = marks.block, marks.refused
    if known and block and holds(block, now):
        block = replace(block, until=now, claim=None)
    if refused and refused.fingerprint != fingerprint:
        refused = None
    credential = Credential(fingerprint, now, known.fingerprint if known else None)
    disconnected = None if known else marks.disconnected
    return replace(marks, credential=credential, block=block, refused=refused, disconnected=disconnected)


def lifted(marks: Marks, fingerprint: str, now: datetime, is_newest: bool = False) -> Marks:
    """The marks after a check of the credential in use, also without a send: the refusal of another one is
    over, even if it was noted after the change. The previous credential says nothing, because it may be that of an
    instance of an earlier revision, unless `is_newest`: all instances use it, so it was put back.
    """
    if not fingerprint:
        return marks
    known = marks.credential
    if known and fingerprint == known.previous:
        if not is_newest:
            return marks
        marks = replace(marks, credential=replace(known, previous=None))
    in_use = of_credential_in_use(marks, fingerprint, now)
    is_stale = in_use.refused is not None and in_use.refused.fingerprint != fingerprint
    return replace(in_use, refused=None) if is_stale else in_use


def is_refused(marks: Marks) -> bool:
    """Whether the credential that was used last is refused, as far as the marks tell without a look at it. A sender
    without one is refused with an empty fingerprint, which never counts as used.
    """
    refused, used = marks.refused, marks.credential
    return refused is not None and (used is None or refused.fingerprint in (used.fingerprint, ""))


def is_reconnected(before: Marks, after: Marks) -> bool:
    """Whether a change of the marks lets the sender's waiting messages go."""
    was_cut_off = before.refused is not None or before.disconnected is not None
    return was_cut_off and after.refused is None and after.disconnected is None


def lets_go(before: Marks, after: Marks, waits: Waits) -> bool:
    """Whether a change of the marks ends a rate limit for which messages may be waiting for long."""
    return rate_limit.is_lifted(before.limited, after.limited, waits)


def of_receipt(marks: Marks, began: datetime | None, limits: Limits, now: datetime) -> Marks:
    """The marks after a failed receipt about the sender. `began`: when the last attempt of that message began; None if
    unknown. A replay restarts the attempts, so the receipt's own time counts as well.

    A message sent before the current credential concerns the old connection: its receipt blocks nothing.
    """
    noted = marks.receipt_block
    if noted is None:
        return marks
    heard = replace(marks, receipt_block=None)
    since = marks.credential.since if marks.credential else None
    failed_until = noted.at + timedelta(seconds=1)  # the provider gives whole seconds
    if since and min(began or failed_until, failed_until) < since:
        return heard
    old = marks.block
    if old and holds(old, now) and not old.confirming:
        return heard
    return replace(heard, block=replace(_next_block(old, noted.code, limits, now), by_receipt=True))


def claimed(current: Marks, seen: Marks, names: Set[str], token: str, until: datetime) -> Marks:
    """The marks with this attempt elected, until then, to probe those named, unless one of them has changed.

    A closed breaker can be claimed too: a message in doubt always probes first.
    """
    if any(getattr(current, name) != getattr(seen, name) for name in names):
        return current
    return replace(
        current,
        down=_held_by(current.down or Outage(until), token, until) if DOWN in names else current.down,
        block=_held_by(current.block, token, until) if current.block and BLOCK in names else current.block,
        refused=_held_by(current.refused, token, until) if current.refused and REFUSED in names else current.refused,
    )


def is_elected(marks: Marks, names: Set[str], token: str) -> bool:
    """Whether this attempt holds the claims of all these marks."""
    return all((mark := getattr(marks, name)) is not None and mark.claim == token for name in names)


def given_back(current: Marks, token: str, now: datetime) -> Marks:
    """The marks without this attempt's claims: the next attempt may be elected at once."""
    down, block, refused = current.down, current.block, current.refused
    return replace(
        current,
        down=_over(down, now) if down and down.claim == token else down,
        block=_over(block, now) if block and block.claim == token else block,
        refused=_over(refused, now) if refused and refused.claim == token else refused,
    )


def answered_without_send(current: Marks, token: str, now: datetime) -> Marks:
    """The provider answered the probe, and nothing is left to send: the breaker closes."""
    closed = _is_mine(current.down, token)
    rest = given_back(current, token, now)
    return replace(rest, down=None) if closed else rest


def unblocked(marks: Marks) -> Marks:
    """The marks once the provider reports that the account is connected or reinstated."""
    return replace(marks, block=None, receipt_block=None)


def reconnected(marks: Marks, fingerprint: str, now: datetime) -> Marks:
    """The marks once the provider accepted this credential for the sender: nothing is known against it, and the next
    send probes a block. What the provider reports of messages sent before `now` concerns the old connection.
    """
    known, block = marks.credential, marks.block
    previous = (known.previous if known.fingerprint == fingerprint else known.fingerprint) if known else None
    if block and holds(block, now):
        block = replace(block, until=now, claim=None)
    return replace(
        marks, credential=Credential(fingerprint, now, previous), refused=None, disconnected=None, block=block
    )


def account_disconnected(marks: Marks, event: str, at: datetime) -> Marks:
    """The marks of a sender of an account that was disconnected or deleted at `at`; `event` is the provider's word. The
    first report is kept. What happened before the connection in use is about the former one and changes nothing.
    """
    if marks.disconnected or (marks.credential and at < marks.credential.since):
        return marks
    return replace(marks, disconnected=Disconnected(event, at))


def account_connected(marks: Marks, at: datetime) -> Marks:
    """The marks of a sender of an account that was connected at `at`: an earlier disconnection is over, also one that
    is reported later, and so is a block.
    """
    noted, known = marks.disconnected, marks.credential
    return replace(
        unblocked(marks),
        disconnected=noted if noted and noted.since > at else None,
        credential=replace(known, since=max(known.since, at)) if known else None,
    )


# ---- after a send


def is_outage(verdict: SendVerdict) -> bool:
    """Whether an answer, or its absence, is about the provider as a whole rather than this message."""
    return isinstance(verdict, ProviderDown) or (isinstance(verdict, Lost) and verdict.outage)


def after_send(
    current: Marks,
    seen: Marks,
    verdict: SendVerdict,
    answered: bool,
    fingerprint: str,
    token: str,
    limits: Limits,
    now: datetime,
    jitter: float,
) -> Marks:
    """The marks after an attempt or a probe that saw `seen` before it began. `answered`: the provider answered."""
    return replace(
        current,
        down=_down_after(current.down, seen.down, verdict, answered, token, limits, now, jitter),
        block=_block_after(current.block, seen.block, verdict, token, limits, now),
        refused=_refused_after(current.refused, seen.refused, verdict, fingerprint, token, limits, now),
        limited=rate_limit.after_answer(current.limited, seen.limited, verdict, limits, now),
    )


def _down_after(
    current: Outage | None,
    seen: Outage | None,
    verdict: SendVerdict,
    answered: bool,
    token: str,
    limits: Limits,
    now: datetime,
    jitter: float,
) -> Outage | None:
    if current != seen:
        return current
    if is_outage(verdict):
        if current is None:
            is_refused = isinstance(verdict, ProviderDown)
            first = limits.waits.outage.first
            return Outage(now + first, first) if is_refused else Outage(now)
        return _longer(current, limits, now, jitter) if _is_mine(current, token) else current
    if current is None or current.claim != token:
        return current
    return None if answered else _over(current, now)


def _block_after(
    current: Block | None, seen: Block | None, verdict: SendVerdict, token: str, limits: Limits, now: datetime
) -> Block | None:
    is_mine = _is_mine(current, token)
    match verdict:
        case Blocked(code=code):
            if current and holds(current, now) and not is_mine:
                return current
            return _next_block(current, code, limits, now)
        case Accepted() if current == seen and current is not None:
            if current.by_receipt and not current.confirming:
                return replace(current, until=now + limits.waits.confirmation, claim=None, confirming=True)
            return None
        case _:
            return _over(current, now) if is_mine and current else current


def _refused_after(
    current: RefusedCredential | None,
    seen: RefusedCredential | None,
    verdict: SendVerdict,
    fingerprint: str,
    token: str,
    limits: Limits,
    now: datetime,
) -> RefusedCredential | None:
    match verdict:
        case CredentialRefused(code, is_curable, replaced=False):
            if current != seen:
                return current
            until = now + limits.waits.credential_probe if is_curable else None
            return RefusedCredential(fingerprint, code, now, until)
        case Accepted() if current == seen and current and current.fingerprint == fingerprint:
            return None
        case _:
            return _over(current, now) if current and _is_mine(current, token) else current


def _next_block(old: Block | None, code: int, limits: Limits, now: datetime) -> Block:
    """A block twice as long as the one before."""
    backoff = limits.waits.block
    wait = min(backoff.longest, old.wait * backoff.factor) if old else backoff.first
    return Block(now + wait, wait, code)


# ---- after a call of a backend


@dataclass(frozen=True, slots=True)
class BackendAnswered:
    """The backend answered, even if only with a failure."""


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The backend gave no usable answer. `took`: it may have taken the call, and its answer is lost; otherwise it took
    nothing (no connection, 429, 503).
    """

    took: bool


def holds_back(mark: Outage | None, event: str) -> bool:
    """Whether the mark holds back this event: a mark that names an event holds back only that one."""
    return mark is not None and mark.by in (None, event)


def after_call(
    current: Marks,
    seen: Marks,
    outcome: BackendAnswered | BackendFailed,
    event: str,
    token: str,
    limits: Limits,
    now: datetime,
    jitter: float,
    is_retry: bool = False,
) -> Marks:
    """The marks of a backend after a call for this event, which saw `seen` before it began. `is_retry`: the event had
    failed before, so its failure says nothing new about the others.
    """
    mark = current.down
    if isinstance(outcome, BackendAnswered):
        # Another event's failure may have changed the mark during the trial; the trial's answer is still the latest.
        return replace(current, down=None) if mark == seen.down or _is_mine(mark, token) else current
    first = limits.waits.outage.first
    if mark is None:
        if seen.down is not None:
            return current  # another call has had an answer meanwhile
        fresh = Outage(now, by=event) if outcome.took else Outage(now + first, first, by=event)
        return replace(current, down=fresh)
    if _is_mine(mark, token):
        return replace(current, down=_longer(mark, limits, now, jitter))
    if mark.by in (None, event) or is_retry:
        return current
    joint = replace(mark, by=None)
    if not outcome.took:
        joint = replace(joint, until=max(mark.until, now + first), wait=max(mark.wait, first))
    return replace(current, down=joint)


# ---- the small changes that marks share


def _longer(mark: Outage, limits: Limits, now: datetime, jitter: float) -> Outage:
    """The trial failed: the wait doubles, and the claim is removed."""
    backoff = limits.waits.outage
    wait = max(backoff.first, min(backoff.longest, mark.wait * backoff.factor))
    return replace(mark, until=now + jittered(wait, jitter), wait=wait, claim=None)


def _held_by(mark: M, token: str, until: datetime) -> M:
    return replace(mark, until=until, claim=token)


def _over(mark: M, now: datetime) -> M:
    return replace(mark, until=now, claim=None)


def _is_mine(mark: _Claimable | None, token: str) -> bool:
    return mark is not None and mark.claim == token
