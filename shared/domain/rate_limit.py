"""Rate limit: while the provider limits a sender, most of its waiting messages only look again, less and less often.

The mark is noted at an answer `Limited` about the sender's messages a second. While it holds, no other message of the
sender is tried. Once it is over, whichever message comes first is tried: nobody is elected. As many are tried as the
queue runs at once, because the first answer that is another `Limited` renews the mark for all. Those messages come back
when they are due, so a few always look again soon; every other one does within one and a half times
`limits.waits.limited.longest`.

A mark that was renewed several times tells that messages may be waiting for long. The first accepted send deletes it
and starts a drain. One that is short makes a message wait until its end and no longer: a sender that has only sent too
much in one second is not slowed down.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.domain.limits import Limits, Waits
from shared.domain.verdicts import Accepted, Limited, LimitScope, SendVerdict
from shared.domain.waits import asked_for, spread

LIMITED = Limited.label
"""Why a message waits: the provider limits how many messages a second its sender sends."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The provider limits a sender: until when others wait, and how long that wait is without what the provider asks
    for beyond it; the next one is longer.
    """

    until: datetime
    wait: timedelta


def after_answer(
    current: RateLimit | None, seen: RateLimit | None, verdict: SendVerdict, limits: Limits, now: datetime
) -> RateLimit | None:
    """The mark after an attempt that saw `seen` before its lease. One that has changed since is left alone: another
    attempt knows more.
    """
    if current != seen:
        return current
    match verdict:
        case Limited(scope=LimitScope.RATE):
            backoff = limits.waits.throughput
            wait = min(backoff.longest, current.wait * backoff.factor) if current else backoff.first
            return RateLimit(now + max(wait, asked_for(verdict, limits.waits)), wait)
        case Accepted():
            return None
        case _:
            return current


def look_again(mark: RateLimit, hop: int, waits: Waits, now: datetime, jitter: float) -> datetime:
    """When a message that the mark holds back looks again. Those of a limit that lasts do not look together."""
    return max(mark.until, now + spread(waits.limited.after(hop), jitter)) if _is_long(mark, waits) else mark.until


def is_lifted(before: RateLimit | None, after: RateLimit | None, waits: Waits) -> bool:
    """Whether a change of the mark lets messages go that would look again only much later."""
    return before is not None and after is None and _is_long(before, waits)


def _is_long(mark: RateLimit, waits: Waits) -> bool:
    return mark.wait > waits.throughput.after(1)
