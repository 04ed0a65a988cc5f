"""Pace: a sender that sends no faster than it may, as a token bucket without a clock of its own (GCRA).

A place in the pace is a time at which one message may go. A message that has to wait reserves one, and its task carries
it, so that a hundred waiting messages need a hundred writes and a hundred hops. The bucket keeps one time, `next`: the
place of the next message if there were no burst.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.domain.limits import Limits
from shared.domain.marks import Bucket
from shared.domain.tenants import Pace


@dataclass(frozen=True, slots=True)
class Place:
    """A place: when it is, and the bucket without it. `taken` is False if it is too far ahead to be reserved; the
    bucket is then unchanged.
    """

    at: datetime
    bucket: Bucket | None
    taken: bool


def interval(pace: Pace, limits: Limits) -> timedelta:
    """The time from one message to the next at a steady pace."""
    return limits.waits.second / pace.per_second


def take_place(bucket: Bucket | None, pace: Pace, limits: Limits, now: datetime, within: timedelta) -> Place:
    """The first free place, taken if it is at most `within` from now. A period of t holds at most burst + t / interval
    of them.
    """
    each = interval(pace, limits)
    follows = max(bucket.next, now) if bucket else now
    at = max(now, follows - each * (pace.burst - 1))
    if at > now + within:
        return Place(at, bucket, taken=False)
    return Place(at, Bucket(follows + each), taken=True)


def counted(bucket: Bucket | None, pace: Pace, limits: Limits, now: datetime) -> Bucket:
    """The bucket after a message that had to go at once, whatever the pace: an elected attempt."""
    return Bucket((max(bucket.next, now) if bucket else now) + interval(pace, limits))


def given_back(bucket: Bucket | None, pace: Pace, limits: Limits, now: datetime) -> Bucket | None:
    """The bucket once all that wait have lost their places, so that they take new ones, also at another pace. What was
    sent lately counts as a whole burst.
    """
    return bucket and Bucket(min(bucket.next, now + interval(pace, limits) * pace.burst))


def is_valid(slot: datetime | None, limits: Limits, now: datetime) -> bool:
    """Whether a task may still use its slot, now or once it has come. One that came too late has lost it, because later
    ones have been counted on without it.
    """
    if slot is None:
        return False
    return now - limits.waits.pace_late <= slot <= now + limits.waits.pace_ahead
