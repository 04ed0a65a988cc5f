"""Dead letter operations: find dead letters page by page, replay or discard each one; all safe to repeat.

A replay writes the record and then makes its task. If the command is killed between the two, the record is pending and
no longer a dead letter. It is still listed as replayed and untried, and the next run makes its task first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from shared import logs
from shared.domain.dead_letters import DeadLetter, DeadLetterFilter, dead_letter
from shared.domain.delivery.answers import Ensure, NotAllowed, Step
from shared.domain.delivery.operator import discard, replay
from shared.domain.errors import PomboError, RegistryUnreadable, UnknownState
from shared.domain.limits import Limits
from shared.domain.listings import Listing, is_untried
from shared.domain.record import Delivery
from shared.domain.tasks import own_task
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import pair_of
from shared.pipeline.ports import Cursor, Page, Queue, Store, Tenants

PAGE = 100
PATIENCE_SECONDS = 3.0
"""How long a call to a store or a queue that is down is retried: the write may have been made."""

PAUSE_SECONDS = 0.25

UNREADABLE = (UnknownState, RegistryUnreadable)
"""Retryable, but not within seconds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """The dead letters of a page, and how many of its records only a newer version can read."""

    letters: tuple[DeadLetter, ...]
    unread: int


def find(store: Store, wanted: DeadLetterFilter) -> Iterator[FoundLetter]:
    """All matching dead letters, a page at a time, in no order. Raises StoreUnavailable."""
    for listing in wanted.listings:
        for page in pages(store, listing, wanted.tenant):
            letters = (dead_letter(record) for record in page.records)
            meant = (one for one in letters if one and one.listing is listing and wanted.matches(one))
            yield FoundLetter(tuple(meant), page.unread)


def untried(store: Store) -> Iterator[Delivery]:
    """The records that were replayed and not tried since. Raises StoreUnavailable.

    A late receipt of the earlier round may have marked one as refused instead.
    """
    for listing in (Listing.REPLAYED, Listing.REFUSED):
        for page in pages(store, listing, None):
            yield from (record for record in page.records if is_untried(record))


def pages(store: Store, listing: Listing, tenant: str | None) -> Iterator[Page]:
    """All pages of a listing. Raises StoreUnavailable."""
    after: Cursor | None = None
    while True:
        page = store.listed(listing, tenant, after, PAGE)
        yield page
        after = page.ends_at
        if after is None:
            return


class Done(StrEnum):
    """The result for a dead letter."""

    REPLAYED = "replayed"  # it has its task
    DONE = "done"  # a receipt shows that the provider has it
    DISCARDED = "discarded"
    SKIPPED = "skipped"  # the reason says why


@dataclass(frozen=True, slots=True)
class Decision:
    """The result for one dead letter, and the reason if it was left unchanged."""

    done: Done
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Replays dead letters. `may_double`: also those whose copy may have arrived."""

    store: Store
    queue: Queue
    tenants: Tenants
    limits: Limits
    clock: Clock
    may_double: bool = False

    def __call__(self, key: str) -> Decision:
        """Raises StoreUnavailable, QueueUnavailable or RegistryUnavailable; the replay may still have happened, and may
        be repeated.
        """
        now = self.clock.now()
        try:
            step, before = _decide(
                self.store,
                self.clock,
                key,
                lambda record: replay(record, self.limits, now, self.may_double),
            )
        except (NotAllowed, UnknownState) as error:
            return Decision(Done.SKIPPED, _sentence(error))
        after = step.next.record if isinstance(step.next, Ensure) else step.write
        if isinstance(step.next, Ensure):
            self.ensure(step.next.record)
        if after is not None and before.final:  # otherwise it was replayed already
            _log("replayed", after, before.reason)
        return Decision(Done.REPLAYED if isinstance(step.next, Ensure) else Done.DONE)

    def ensure(self, record: Delivery) -> None:
        """Ensure a replayed record's task, idempotently. If its tenant's entry cannot be read, the sweep makes the task
        once it can: the replay of other tenants' letters goes on. Raises QueueUnavailable and RegistryUnavailable.
        """
        try:
            _patiently(self.clock, lambda: self.queue.ensure(*own_task(record, pair_of(record, self.tenants))))
        except RegistryUnreadable as error:
            logs.event("unexpected_error", severity="WARNING", delivery=record.key, reason=error.code, stage="replay")


@dataclass(frozen=True, slots=True)
class Discard:
    """Discards dead letters. `because` is kept with the record and never logged."""

    store: Store
    limits: Limits
    clock: Clock
    because: str

    def __call__(self, key: str) -> Decision:
        """Raises StoreUnavailable; the discard may still have happened, and may be repeated."""
        now = self.clock.now()
        try:
            step, before = _decide(
                self.store, self.clock, key, lambda record: discard(record, self.limits, now, self.because)
            )
        except (NotAllowed, UnknownState) as error:
            return Decision(Done.SKIPPED, _sentence(error))
        if step.write is not None:
            _log("discarded", step.write, before.reason)
        return Decision(Done.DISCARDED)


def _decide(store: Store, clock: Clock, key: str, decide: Callable[[Delivery], Step]) -> tuple[Step, Delivery]:
    """The step that was written, and the record as first found."""
    found: list[Delivery] = []

    def on(record: Delivery | None) -> Step:
        if record is None:
            raise NotAllowed("The record does not exist.")
        found.append(record)
        return decide(record)

    step = _patiently(clock, lambda: store.change(key, on))
    return step, found[0]


def _patiently(clock: Clock, call: Callable[[], T]) -> T:
    until = clock.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except PomboError as error:
            if not error.retryable or isinstance(error, UNREADABLE) or clock.monotonic() > until:
                raise
            clock.sleep(PAUSE_SECONDS)


def _sentence(error: NotAllowed | UnknownState) -> str:
    return error.sentence if isinstance(error, UnknownState) else str(error)


def _log(event: str, record: Delivery, reason: str | None) -> None:
    logs.event(
        event,
        delivery=record.key,
        correlation_id=record.correlation_id,
        tenant=record.tenant or None,
        stage=record.kind,
        state=record.state,
        reason=reason,
        round=record.round,
    )
