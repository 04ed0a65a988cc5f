"""Limits: every duration and bound of docs/protocol.md, in one value that is scaled once."""

from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self

LONGEST_DOUBLING = 16
"""Beyond this exponent every wait has reached its cap, and 4^30 s is more than a timedelta can hold."""


class DoubtPolicy(StrEnum):
    """What happens to a message whose answer was lost and whose receipt never came."""

    RESEND = "resend"  # sent once more, at the risk of a duplicate
    HOLD = "hold"  # an operator decides


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: `first`, times `factor` each time, at most `longest`."""

    first: timedelta
    factor: int
    longest: timedelta

    def after(self, times: int) -> timedelta:
        """The wait after `times` earlier waits."""
        grown: timedelta = self.first * int(self.factor ** min(times, LONGEST_DOUBLING))
        return min(self.longest, grown)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long we wait before a retry, by reason."""

    retry: Backoff = Backoff(timedelta(seconds=10), 2, timedelta(seconds=300))
    throughput: Backoff = Backoff(timedelta(seconds=1), 4, timedelta(seconds=32))  # too many a second; 1-2 s first
    limited: Backoff = Backoff(timedelta(seconds=60), 4, timedelta(seconds=200))  # a sender stays limited: the others
    pair: Backoff = Backoff(timedelta(seconds=1), 4, timedelta(seconds=256))  # too many messages to one contact
    account: Backoff = Backoff(timedelta(seconds=60), 2, timedelta(seconds=3600))  # too many calls of the account
    maintenance: timedelta = timedelta(seconds=30)  # an upgrade of the sender, of at most a minute; 30-60 s
    minute: timedelta = timedelta(minutes=1)  # the unit of the minimum waits that a provider documents for a code
    second: timedelta = timedelta(seconds=1)  # the unit of a sender's pace
    credential: timedelta = timedelta(seconds=600)
    replaced_credential: timedelta = timedelta(seconds=1)  # a newer credential is there: the next attempt uses it
    credentials_unavailable: timedelta = timedelta(seconds=60)  # a secret is missing, or cannot be read
    suspended: timedelta = timedelta(seconds=600)  # also while the sender does not exist
    pace_ahead: timedelta = timedelta(seconds=600)  # how far ahead a sender's pace is reserved
    pace_late: timedelta = timedelta(seconds=10)  # how late a task may still use the slot that it reserved
    block: Backoff = Backoff(timedelta(seconds=600), 2, timedelta(seconds=6 * 3600))
    predecessor: Backoff = Backoff(timedelta(milliseconds=300), 2, timedelta(milliseconds=38_400))  # 0.3 s, 7 doublings
    turn: Backoff = Backoff(timedelta(seconds=1), 2, timedelta(seconds=32))  # an event of the same contact; 5 doublings
    outage: Backoff = Backoff(timedelta(seconds=10), 2, timedelta(seconds=300))  # the provider or the backend is down
    claimed: timedelta = timedelta(seconds=15)  # another attempt probes
    doubtful_trial: timedelta = timedelta(seconds=60)  # how long a message in doubt lets a fresh one be the trial
    credential_probe: timedelta = timedelta(hours=2)  # for a refused credential that may be fixed at the provider
    confirmation: timedelta = timedelta(
        seconds=60
    )  # after an accepted send, until its receipt would have reported a failure
    doubt: Backoff = Backoff(timedelta(seconds=15), 2, timedelta(seconds=240))
    busy: Backoff = Backoff(timedelta(seconds=1), 2, timedelta(seconds=32))  # a tenant's handler places; 5 doublings
    reply_spacing: timedelta = timedelta(seconds=1)  # delays a reply's first task, per message before it


@dataclass(frozen=True, slots=True)
class PostTimes:
    """How long one POST to the provider may take. httpx has no total timeout, so our clock ends the stream."""

    connect: timedelta = timedelta(seconds=3)
    write: timedelta = timedelta(seconds=3)
    read: timedelta = timedelta(seconds=6)
    total: timedelta = timedelta(seconds=20)

    @property
    def longest(self) -> timedelta:
        """A last read may begin just before the total is over."""
        return self.total + self.read


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of both halves. A frozen value, so that all rules use the same numbers."""

    max_attempts: int = 8
    handler_timeout: timedelta = timedelta(seconds=60)
    inbound_lease_margin: timedelta = timedelta(seconds=30)
    outbound_lease: timedelta = timedelta(seconds=60)  # 60 >= 30 (begin) + 26 (post) + 4: no send outlives its lease
    begin_within: timedelta = timedelta(seconds=30)
    clock_margin: timedelta = timedelta(seconds=4)  # how far the clocks of two instances may differ
    post: PostTimes = PostTimes()
    early: timedelta = timedelta(milliseconds=100)  # how far the queue's clock may be ahead: such a task is on time
    marks_age: timedelta = timedelta(seconds=5)  # how long an instance caches a backend's mark
    claim: timedelta = timedelta(seconds=90)  # >= 26 (probe) + 30 (begin) + 26 (post) + 4: one trial at a time
    request_budget: timedelta = timedelta(seconds=90)  # process_outbound ends itself, settle retries included
    request_margin: timedelta = timedelta(seconds=30)  # from our own end of a request to Cloud Run's
    dispatch_margin: timedelta = timedelta(seconds=15)  # from Cloud Run's end of a request to the queue's
    doubt_window: timedelta = timedelta(seconds=300)
    doubt_policy: DoubtPolicy = DoubtPolicy.RESEND
    max_doubts: int = 2  # the second doubt ends dead: a message is resent once
    message_max_age: timedelta = timedelta(hours=24)
    sweep_after: timedelta = timedelta(seconds=600)
    sweep_longest: timedelta = timedelta(hours=6)
    sweep_budget: timedelta = timedelta(seconds=45)
    inbound_retention: timedelta = timedelta(days=8)  # outlives a week of redelivered webhooks
    outbound_retention: timedelta = timedelta(days=35)
    receipt_retention: timedelta = timedelta(days=35)
    order_patience: timedelta = timedelta(minutes=10)  # how long a record waits for the one before it and nothing else
    max_replies: int = 30
    counters_flush: timedelta = timedelta(seconds=60)  # a process writes its counters no more often
    waits: Waits = Waits()

    @property
    def inbound_lease(self) -> timedelta:
        return self.handler_timeout + self.inbound_lease_margin

    @property
    def request_timeout(self) -> timedelta:
        """When Cloud Run cuts a request of the internal service: after the longest lease and our own budget."""
        return max(self.inbound_lease, self.outbound_lease, self.request_budget) + self.request_margin

    @property
    def dispatch_deadline(self) -> timedelta:
        """When the queue stops waiting for an answer: after Cloud Run has cut the request. At most 30 minutes."""
        return self.request_timeout + self.dispatch_margin

    def with_retries(self, attempts: int, wait: timedelta) -> Self:
        """The same limits for a message whose caller says how often it is tried, and how long each retry waits."""
        always = Backoff(wait, 1, wait)
        return replace(self, max_attempts=attempts, waits=replace(self.waits, retry=always))

    def scaled(self, factor: float) -> Self:
        """The same limits with every duration divided by `factor` (TIME_SCALE), the POST's too: a scaled lease is safe
        only if the send that it must outlive is scaled as well. At 20 the provider has 0.3 s to answer, so a slow
        machine sees more lost answers. The timeouts of the store and the queue are not scaled: no rule depends on them.
        """
        scaled: Self = _scale(self, factor)
        return scaled


def _scale(value: Any, factor: float) -> Any:
    if isinstance(value, timedelta):
        return value / factor
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _scale(getattr(value, f.name), factor) for f in fields(value)})
    return value
