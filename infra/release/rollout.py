"""A rollout: a candidate gets the traffic in steps, and loses it again if it does worse."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.release.cloud_run import CloudRunService
from infra.release.metrics import DELAY, Counted, counted
from infra.release.tools import Refused

STEPS = (5, 25)
"""Percent of the traffic that the candidate gets before it gets all."""

HOLD = 300.0
"""Seconds of each step whose requests are judged."""

POLL = 60.0
"""Seconds between two looks; Cloud Run's metrics are sampled as often."""

FEW = 20
"""Requests below which a share or a percentile says nothing."""

MOST_FAILED = 0.01
MOST_TIMES = 2.0
"""The candidate may fail this share of its requests, and up to so many times the old revision's share; so its 95th
percentile."""


@dataclass(frozen=True, slots=True)
class RolloutVerdict:
    """Whether the candidate may have more, and why in words."""

    goes_on: bool
    reason: str


def judged(new: Counted, old: Counted) -> RolloutVerdict:
    """The candidate's requests beside those of the old revision in the same while."""
    if new.requests < FEW:
        return RolloutVerdict(True, f"it had {new.requests} requests, too few to judge it (under {FEW})")
    share, before = new.failed / new.requests, old.failed / old.requests if old.requests else 0.0
    said = f"{share:.1%} of its {new.requests} requests failed, and {before:.1%} of the old revision's {old.requests}"
    if share > MOST_FAILED and share > MOST_TIMES * before:
        return RolloutVerdict(False, said)
    if new.p95 is None or old.p95 is None or old.requests < FEW:
        return RolloutVerdict(True, f"{said}; the old revision's were too few to compare the times")
    said += f"; its 95th percentile was {new.p95:.0f} ms, and {old.p95:.0f} ms the old revision's"
    return RolloutVerdict(new.p95 <= MOST_TIMES * old.p95, said)


@dataclass(frozen=True, slots=True)
class RolloutWatch:
    """How a step is watched. `hold` 0 checks once without waiting: for a project without traffic."""

    hold: float = HOLD
    read: Callable[[CloudRunService, float, float], Mapping[str, Counted]] = counted
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    @property
    def longest(self) -> float:
        """Seconds that a service takes through all steps, beside what gcloud takes."""
        return len(STEPS) * (self.hold + (DELAY if self.hold else 0))

    def step(self, service: CloudRunService, new: str, old: str) -> RolloutVerdict:
        """Watch one step, from now on. What is bad already is not waited for; what cannot be read at the end is bad."""
        began = self.now()
        until = began + self.hold
        last = until + (DELAY if self.hold else 0)
        while True:
            at_last = self.now() >= last
            # A look at less than a minute is none: the metrics have a point a minute.
            ended = max(min(self.now(), until), began + POLL)
            try:
                seen = self.read(service, began, ended)
                verdict = judged(seen.get(new, Counted()), seen.get(old, Counted()))
            except Refused as refusal:
                verdict = RolloutVerdict(not at_last, str(refusal))
            if at_last or not verdict.goes_on:
                return verdict
            self.sleep(min(POLL, last - self.now()))


def in_steps(service: CloudRunService, new: str, old: str, watch: RolloutWatch) -> None:
    """Give the candidate its first shares of the traffic. Raises Refused, with all traffic back at the old revision."""
    try:
        for percent in STEPS:
            service.now().candidate()  # or something newer has come in between
            service.move(f"--to-revisions={new}={percent},{old}={100 - percent}")
            print(f"{new} has {percent} % of the traffic of {service.name}.", flush=True)
            verdict = watch.step(service, new, old)
            print(f"{new}: {verdict.reason}.", flush=True)
            if not verdict.goes_on:
                raise Refused(f"At {percent} % of the traffic {new} did worse than {old}: {verdict.reason}.")
        service.now().candidate()
    except Refused as refusal:
        service.move(f"--to-revisions={old}=100", "--clear-tags")
        raise Refused(f"{service.name} goes back to {old}. {refusal}") from refusal
