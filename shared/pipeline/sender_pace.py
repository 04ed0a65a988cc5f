"""The pace of senders: a message takes its place before it is sent, or reserves one and waits for it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shared.domain import pace
from shared.domain.delivery.changes import is_older
from shared.domain.guards import PACED, Go, Guard, Wait
from shared.domain.identity import pace_id
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.record import Delivery, Task
from shared.domain.tenants import Pace, Sender
from shared.domain.waits import jittered
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store


@dataclass(frozen=True, slots=True)
class SenderPace:
    """Takes places in the pace of a sender, each by one conditional write. Raises StoreUnavailable."""

    store: Store
    limits: Limits
    clock: Clock
    sender: Sender
    its: Pace

    def guard(self, record: Delivery, task: Task, guard: Guard, unclear: bool) -> Wait | None:
        """None if a message may go now: it has its place, which no other can take. Otherwise it waits for one.

        `guard`: what the guards before this one say. A message that would overtake reserves no place: the one before it
        may wait for its own. Nor does an older task, which makes no hop that could carry it. A place too far ahead is
        not reserved: the message comes back at a random time within reach of one.
        """
        older = is_older(task, record)
        slot = None if older and not record.sweeps else task.slot  # a drain gave it back; the sweep only adds a task
        may_reserve = not older and guard == Go()
        now, ahead = self.clock.now(), self.limits.waits.pace_ahead
        on_time = now + self.limits.early
        if slot is not None and pace.is_valid(slot, self.limits, now):
            return None if slot <= on_time else Wait(PACED, slot, unclear, slot)
        place = self._take(now, ahead if may_reserve else self.limits.early)
        if place.taken:
            return None if place.at <= on_time else Wait(PACED, place.at, unclear, place.at)
        return Wait(PACED, min(place.at, now + jittered(ahead, self.clock.jitter())), unclear)

    def count(self) -> None:
        """Count a message that goes without waiting: an elected attempt, while the others wait for its answer."""
        now = self.clock.now()
        self.store.change_marks(
            _id(self.sender),
            lambda marks: replace(marks, bucket=pace.counted(marks.bucket, self.its, self.limits, now)),
        )

    def next_place(self) -> datetime:
        """When the next message may go."""
        bucket = self.store.marks(_id(self.sender)).bucket
        return pace.take_place(bucket, self.its, self.limits, self.clock.now(), timedelta()).at

    def _take(self, now: datetime, within: timedelta) -> pace.Place:
        def place_in(marks: Marks) -> pace.Place:
            return pace.take_place(marks.bucket, self.its, self.limits, now, within)

        before, _ = self.store.change_marks(
            _id(self.sender), lambda marks: replace(marks, bucket=place_in(marks).bucket)
        )
        return place_in(before)


def give_back(store: Store, limits: Limits, sender: Sender, now: datetime) -> None:
    """Give back the places of all messages of this sender that wait: they come again as new tasks, without a slot.
    Raises StoreUnavailable.
    """
    if its := sender.pace:
        store.change_marks(
            _id(sender), lambda marks: replace(marks, bucket=pace.given_back(marks.bucket, its, limits, now))
        )


def _id(sender: Sender) -> str:
    return pace_id(sender.provider, sender.provider_id)
