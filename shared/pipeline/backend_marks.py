"""The mark of the team's backend: read before a call, claimed for a trial, updated with the result."""

import threading

from shared.domain import marks
from shared.domain.errors import StoreUnavailable
from shared.domain.guards import Elect, Go, Guard, Wait, inbound_guard, is_down
from shared.domain.limits import Limits
from shared.domain.marks import BackendAnswered, BackendFailed, Marks
from shared.domain.record import Delivery
from shared.domain.verdicts import BackendDown, HandlerFailed, HandlerVerdict
from shared.pipeline.clock import Clock
from shared.pipeline.ports import BackendUnavailable, DecideMarks, Store
from shared.pipeline.sender_marks import best_effort, log_outage

CallOutcome = BackendAnswered | BackendFailed


class BackendMarks:
    """Reads and writes the mark of one backend. It caches the mark for a few seconds, so that an event normally costs
    no read for it. Without a backend (`id` None) every call may go. Raises StoreUnavailable.
    """

    def __init__(self, id: str | None, store: Store, limits: Limits, clock: Clock) -> None:
        self._id = id
        self._store = store
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._kept = Marks()
        self._read_at: float | None = None

    def read(self) -> Marks:
        """The mark, at most `Limits.marks_age` old. A change based on it is written only if it is still current."""
        if self._id is None:
            return Marks()
        with self._lock:
            age = self._clock.monotonic() - self._read_at if self._read_at is not None else None
            if age is not None and age < self._limits.marks_age.total_seconds():
                return self._kept
        return self._keep(self._store.marks(self._id))

    def counts_as_down(self) -> bool:
        """Whether the backend is down by what this process read last. Reads nothing."""
        with self._lock:
            return is_down(self._kept, self._limits, self._clock.now())

    def guard(self, seen: Marks, record: Delivery) -> Guard:
        """Whether the backend may be asked about this event."""
        return inbound_guard(seen.down, record, self._limits, self._clock.now())

    def elect(self, seen: Marks, election: Elect, token: str) -> tuple[Marks, Guard]:
        """Claim the trial. `Go` means that this attempt is elected."""
        lasts = max(self._limits.claim, self._limits.inbound_lease)
        until = self._clock.now() + lasts
        after = self._change(lambda now: marks.claimed(now, seen, election.claims, token, until), seen)
        if marks.is_elected(after, election.claims, token):
            return after, Go(election.overtakes)
        return after, Wait(election.why, self._clock.now() + self._limits.waits.claimed)

    def give_back(self, token: str) -> None:
        """Give the claim back, since the backend was not called."""
        now = self._clock.now()
        with best_effort():
            self._change(lambda current: marks.given_back(current, token, now))

    def failed(
        self, seen: Marks, failure: BackendUnavailable, record: Delivery, token: str
    ) -> tuple[HandlerVerdict, DecideMarks]:
        """The verdict on a call without an answer, by the current mark, and the change of the mark.

        If the backend certainly took nothing, the call costs no attempt. If its answer was lost, the call costs an
        attempt, unless the backend counts as down already.
        """
        assert self._id is not None
        try:
            current = self._keep(self._store.marks(self._id))
        except StoreUnavailable:  # the event must still be settled once the store is back
            current = seen
        change = self._after(seen, BackendFailed(failure.took), record.key, token, is_retry=record.tried)
        if failure.took and current.down is None:
            return HandlerFailed(str(failure)), change
        after = change(current).down
        held = after is not None and marks.holds_back(after, record.key)
        until = after.until if after and held else None
        return BackendDown(str(failure), until, failure.retry_after), change

    def answered(self, seen: Marks, event: str, token: str) -> DecideMarks | None:
        """The change of the mark after an answer; None if it does not change."""
        change = self._after(seen, BackendAnswered(), event, token)
        return None if change(seen) == seen else change

    def change(self, decide: DecideMarks) -> None:
        """Update the mark after a call: a second write after the record's. If it is lost, the next call repeats it."""
        with best_effort():
            self._change(decide)

    def _after(self, seen: Marks, outcome: CallOutcome, event: str, token: str, is_retry: bool = False) -> DecideMarks:
        now, jitter = self._clock.now(), self._clock.jitter()
        return lambda current: marks.after_call(
            current, seen, outcome, event, token, self._limits, now, jitter, is_retry
        )

    def _change(self, decide: DecideMarks, seen: Marks | None = None) -> Marks:
        assert self._id is not None
        before, after = self._store.change_marks(self._id, decide, seen)
        log_outage("backend", before, after, self._clock.now())
        return self._keep(after)

    def _keep(self, fresh: Marks) -> Marks:
        with self._lock:
            self._kept, self._read_at = fresh, self._clock.monotonic()
        return fresh
