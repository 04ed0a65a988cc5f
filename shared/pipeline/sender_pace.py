"""The pace of senders: a message takes its place before it is sent, or reserves one and waits for it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shared.domain import pace
from shared.domain.guards import PACED, Wait
from shared.domain.identity import pace_id
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.tenants import Pace, Sender
from shared.domain.waits import jittered
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store


@dataclass(frozen=True, slots=True)
class SenderPace:
    """Takes places in the paces of senders, each by one conditional write. Raises StoreUnavailable."""

    store: Store
    limits: Limits
    clock: Clock

    def guard(self, sender: Sender, its: Pace, slot: datetime | None, may_reserve: bool, unclear: bool) -> Wait | None:
        """None if a message may go now: it has its place, which no other can take. Otherwise it waits for one.

        `slot`: what the task reserved before. `may_reserve`: whether the task that hops can carry a slot. A place too
        far ahead is not reserved: the message comes back at a random time within reach of one.
        """
        now, ahead = self.clock.now(), self.limits.waits.pace_ahead
        on_time = now + self.limits.early
        if slot is not None and pace.is_valid(slot, self.limits, now):
            return None if slot <= on_time else Wait(PACED, slot, unclear, slot)
        place = self._take(sender, its, now, ahead if may_reserve else self.limits.early)
        if place.taken:
            return None if place.at <= on_time else Wait(PACED, place.at, unclear, place.at)
        return Wait(PACED, min(place.at, now + jittered(ahead, self.clock.jitter())), unclear)

    def count(self, sender: Sender, its: Pace) -> None:
        """Count a message that goes without waiting: an elected attempt, while the others wait for its answer."""
        now = self.clock.now()
        self.store.change_marks(
            _id(sender), lambda marks: replace(marks, bucket=pace.counted(marks.bucket, its, self.limits, now))
        )

    def next_place(self, sender: Sender, its: Pace) -> datetime:
        """When the next message may go."""
        bucket = self.store.marks(_id(sender)).bucket
        return pace.take_place(bucket, its, self.limits, self.clock.now(), timedelta()).at

    def _take(self, sender: Sender, its: Pace, now: datetime, within: timedelta) -> pace.Place:
        def place_in(marks: Marks) -> pace.Place:
            return pace.take_place(marks.bucket, its, self.limits, now, within)

        before, _ = self.store.change_marks(_id(sender), lambda marks: replace(marks, bucket=place_in(marks).bucket))
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
