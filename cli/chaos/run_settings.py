"""The settings of a chaos run, and what follows from them."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cli.chaos.enough_faults import IN_DOUBT, KILLS, is_short, share
from cli.chaos.fault_schedule import KILLED, STORE, FaultRates
from cli.chaos.plan import PlanSettings
from local.stores import PROGRAMS
from shared.domain.limits import DoubtPolicy, Limits


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options of a run. Durations in seconds."""

    order: PlanSettings
    store: str
    sweep: bool
    policy: DoubtPolicy
    withhold_receipts: bool
    time_scale: float
    data_dir: Path
    handler: str

    @property
    def limits(self) -> Limits:
        return Limits(doubt_policy=self.policy).scaled(self.time_scale)

    @property
    def rates(self) -> FaultRates:
        """Twice as many kills as the proof needs, but far enough apart for work to be done in between."""
        order, program = self.order, PROGRAMS.get(self.store)
        return FaultRates(
            kill_every=min(10.0, max(5.0, order.seconds / (2 * share(KILLS, order.messages)))),
            fault_every=order.seconds / (0.3 * order.messages),
            lease=self.limits.outbound_lease.total_seconds(),
            doubt=self.limits.doubt_window.total_seconds(),
            owed_every=order.seconds / (4 * share(IN_DOUBT, order.messages)) if is_short(order.messages) else 0.0,
            server=program is not None,
            keeps=program is not None and not program.forgets,
            loses_tasks=self.sweep,
            receipts=not self.withhold_receipts,
            outage=self.eight_attempts.total_seconds(),
            length=order.seconds,
        )

    @property
    def eight_attempts(self) -> timedelta:
        """How long a message would be retried if an outage spent its attempts."""
        retry = self.limits.waits.retry
        return sum((retry.after(number) for number in range(self.limits.max_attempts - 1)), timedelta())

    @property
    def killed(self) -> list[str]:
        return [*KILLED, *([STORE] if self.rates.keeps else [])]
