"""The rules of dispatch: when a failed task runs again, when it is given up, and how fast a queue may go.

Pure: the time is an argument. Sources: RetryConfig and RateLimits of google-cloud-tasks 2.26 (types/queue.py), and
https://cloud.google.com/tasks/docs/reference/rpc/google.cloud.tasks.v2.
"""

import math
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime

UNLIMITED = -1
"""`max_attempts` of a task that is retried without end."""
LONGEST_RETRY_AFTER = 3600.0
"""Seconds. The reference gives no limit; this equals the longest backoff of a queue with default settings."""
_STATUSES_THAT_ASK = (429, 503)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How one task is retried; durations in seconds, 0 of `max_retry_duration` means no limit."""

    max_attempts: int
    max_retry_duration: float
    min_backoff: float
    max_backoff: float
    max_doublings: int

    def faster(self, scale: float) -> "RetryPolicy":
        """The same policy for queues that run `scale` times as fast."""
        return replace(
            self,
            max_retry_duration=self.max_retry_duration / scale,
            min_backoff=self.min_backoff / scale,
            max_backoff=self.max_backoff / scale,
        )


def backoff(policy: RetryPolicy, failures: int) -> float:
    """Seconds between failure number `failures` (from 1) and the next attempt.

    Starts at min_backoff, doubles max_doublings times, then grows linearly by 2^max_doublings * min_backoff, and never
    exceeds max_backoff.
    """
    doublings = min(failures - 1, policy.max_doublings, 62)  # 2^62 seconds is past any max_backoff
    steps = max(1, failures - policy.max_doublings)
    return min(policy.max_backoff, policy.min_backoff * float(1 << doublings) * steps)


def least_wait(status: int, retry_after: str, now: float) -> float:
    """Seconds to wait as the response's Retry-After asks: whole seconds or an HTTP date.

    0 for an unreadable value, and for every status but the two of HttpRequest (types/target.py): after 429 and 503 "the
    retry specified in the `Retry-After` HTTP response header is considered".
    """
    if status not in _STATUSES_THAT_ASK:
        return 0.0
    value = retry_after.strip()
    asked = float(value) if value.isascii() and value.isdigit() else _date(value, now) - now
    return max(0.0, min(asked, LONGEST_RETRY_AFTER))


def _date(text: str, otherwise: float) -> float:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return otherwise
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def is_given_up(policy: RetryPolicy, attempts: int, since_first_attempt: float) -> bool:
    """Whether a task that just failed is deleted: only once *both* limits are reached.

    A limit that is not set counts as reached, unless neither is set: max_attempts -1 with max_retry_duration 0 retries
    until the task's retention ends.
    """
    if policy.max_attempts == UNLIMITED and policy.max_retry_duration == 0:
        return False
    enough_attempts = policy.max_attempts == UNLIMITED or attempts >= policy.max_attempts
    return enough_attempts and since_first_attempt >= policy.max_retry_duration


def burst_size(rate: float) -> int:
    """The bucket size that the service picks for a rate; the reference promises "generally at least" the rate."""
    return max(1, math.ceil(rate))


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: one token per dispatch, refilled at `rate` a second up to `burst`."""

    rate: float
    burst: int
    tokens: float
    at: float

    @classmethod
    def full(cls, rate: float, burst: int, now: float) -> "Bucket":
        return cls(rate, burst, float(burst), now)

    def at_time(self, now: float) -> "Bucket":
        """The bucket at `now`; a clock that went backwards adds nothing."""
        gained = max(0.0, now - self.at) * self.rate
        return replace(self, tokens=min(float(self.burst), self.tokens + gained), at=now)

    def with_limits(self, rate: float, burst: int) -> "Bucket":
        return replace(self, rate=rate, burst=burst, tokens=min(self.tokens, float(burst)))

    def take(self, count: int) -> "Bucket":
        return replace(self, tokens=self.tokens - count)

    def seconds_to_a_token(self) -> float:
        return max(0.0, 1.0 - self.tokens) / self.rate
