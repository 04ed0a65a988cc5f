"""Guards: what must hold before a lease. Waiting for one spends no attempt and writes nothing."""

from dataclasses import dataclass
from datetime import datetime

from shared.domain.calls import is_call
from shared.domain.limits import Limits
from shared.domain.marks import BLOCK, DOWN, REFUSED, Marks, Outage, holds, holds_back
from shared.domain.record import Delivery, State

PROVIDER_DOWN, BACKEND_DOWN, REAUTH_REQUIRED = "provider_down", "backend_down", "WHATSAPP_REAUTH_REQUIRED"
"""Why something waits, as log lines and `pombo trace --json` say it: a contract with who reads them, so that the last
one keeps its name although it is said of every provider."""

PROVIDER_PROBE, BACKEND_PROBE = "provider_probe", "backend_probe"
"""Why something waits that is held up although nothing shows an outage: an answer was lost, and one attempt probes."""


@dataclass(frozen=True, slots=True)
class Go:
    """Nothing is in the way."""


@dataclass(frozen=True, slots=True)
class Wait:
    """False for now. `why` is the word the outside is shown. `unclear`: the provider is marked as down, so that a doubt
    cannot be judged: its receipt may be kept back too.
    """

    why: str
    until: datetime
    unclear: bool = False


@dataclass(frozen=True, slots=True)
class Elect:
    """Only an elected attempt may go: it claims these marks first. `probe`: where it claims the breaker, it then asks
    the provider something that harms nothing. `why` the others wait, and `unclear`, are as of Wait.
    """

    claims: frozenset[str]
    why: str
    unclear: bool = False

    @property
    def probe(self) -> bool:
        return DOWN in self.claims


@dataclass(frozen=True, slots=True)
class Never:
    """False permanently."""

    reason: str


Guard = Go | Wait | Elect | Never


def outbound_guard(
    marks: Marks,
    fingerprint: str,
    record: Delivery,
    predecessor_finished: bool,
    hop: int,
    limits: Limits,
    now: datetime,
) -> Guard:
    """The first guard that is false, or Go.

    A refused credential holds only while it is the one in use: another one in its place *is* the reconnect. No hop goes
    past the end of a mark: of refusals that come together the last one sets the end, a moment after the others are due,
    and a look a moment too early would cost a whole wait more. Elected is only who could send: an attempt that has to
    wait anyway claims nothing.
    """
    waits, claims = limits.waits, list[tuple[str, str]]()
    ahead = now + limits.early  # a hop to the end of a mark that comes a little early would else hop again and again
    unclear = record.state is State.IN_DOUBT and marks.down is not None
    refused = marks.refused
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
    if not predecessor_finished:
        return Wait("predecessor", now + waits.predecessor.after(hop), unclear)
    if marks.down or record.doubts:
        claims.append((DOWN, _why(marks.down, PROVIDER_DOWN, PROVIDER_PROBE)))
    return Elect(frozenset(name for name, _ in claims), claims[0][1], unclear) if claims else Go()


def _why(down: Outage | None, outage: str, probe: str) -> str:
    """The word for a wait for the breaker. Without a wait of its own the mark stems from a lost answer alone."""
    return outage if down and down.wait else probe


def _probe_from(down: Outage, record: Delivery, limits: Limits) -> datetime:
    """When this message may probe. One that may be with the provider already lets a fresh one be the trial; and a call,
    whose answer would close nothing, lets a message go first.
    """
    if record.doubts:
        return down.until + limits.waits.doubtful_trial
    return down.until + limits.waits.claimed if is_call(record.payload) else down.until


def inbound_guard(down: Outage | None, record: Delivery, limits: Limits, now: datetime) -> Guard:
    """Whether the backend may be asked about this event. `down` is its mark, as it was last read.

    Where several events have failed, one that was tried before lets a fresh one be the trial: poisonous events, which
    always fail, would else keep the breaker open for all.
    """
    if down is None or not holds_back(down, record.key):
        return Go()
    why = _why(down, BACKEND_DOWN, BACKEND_PROBE)
    lets_others_go = down.by is None and record.tried
    trial_from = down.until + limits.waits.claimed if lets_others_go else down.until
    if now + limits.early < trial_from:
        return Wait(why, now + limits.waits.claimed if down.claim else trial_from)
    return Elect(frozenset({DOWN}), why)


def disconnected(marks: Marks, fingerprint: str) -> str | None:
    """Why a sender cannot send, as a reason word; None if nothing is known against it.

    A block counts beyond its end: only a send that is accepted, or the provider's own word, lifts it.
    """
    if marks.refused and marks.refused.fingerprint == fingerprint:
        return "needs_reauth"
    return "blocked" if marks.block or marks.receipt_block else None


def is_down(marks: Marks, limits: Limits, now: datetime) -> bool:
    """Whether a provider or a backend counts as down. One lost answer does not: it makes the next attempt probe. Nor
    does a mark that nobody has probed for long: where nothing waits, nothing is known.
    """
    down = marks.down
    return down is not None and bool(down.wait) and now < down.until + limits.waits.outage.longest


def predecessor_finished(record: Delivery, predecessor: Delivery | None) -> bool:
    """Whether the reply before this one is out of the way; one that is missing is."""
    return record.after is None or predecessor is None or predecessor.finished
