"""The marks of senders: read before a send, claimed if it must probe, updated with the result."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from shared import logs
from shared.domain import marks
from shared.domain.calls import is_call
from shared.domain.drains import LIMIT_OVER
from shared.domain.errors import StoreUnavailable, UnknownState
from shared.domain.guards import PROVIDER_DOWN, Elect, Go, Guard, Wait
from shared.domain.identity import sender_id
from shared.domain.limits import Limits
from shared.domain.marks import Marks, holds
from shared.domain.record import Delivery
from shared.domain.send_errors import SendError
from shared.domain.verdicts import Accepted, Blocked, CredentialRefused, ProviderDown, Released, SendVerdict
from shared.pipeline import log_fields
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Channel, DecideMarks, Store


@dataclass(frozen=True, slots=True)
class MarksUpdate:
    """What an attempt learned of its sender: its verdict, with the time until which others wait, and the change of the
    marks to write once the record is settled (None if they do not change).
    """

    verdict: SendVerdict
    change: DecideMarks | None = None


@dataclass(frozen=True, slots=True)
class SenderMarks:
    """Reads and writes the marks of one sender at a time. All methods raise StoreUnavailable."""

    store: Store
    channel: Channel
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock

    def read(self, record: Delivery, fingerprint: str) -> Marks:
        """The marks as they count now: for the credential in use, and with the block from a failed receipt."""
        id = _id(record)
        seen = self.store.marks(id)
        noted, now = seen.receipt_block, self.clock.now()
        began = self._began(noted.key) if noted and noted.key else None

        def counting(current: Marks) -> Marks:
            in_use = marks.of_credential_in_use(current, fingerprint, now)
            # Another receipt may have come meanwhile; the next attempt checks its message.
            return marks.of_receipt(in_use, began, self.limits, now) if in_use.receipt_block == noted else in_use

        if counting(seen) == seen:
            return seen
        before, after = self.store.change_marks(id, counting, seen)
        if marks.is_reconnected(before, after):
            self.dispatch.start_drain(id)
        if noted and after.block and after.block != marks.of_credential_in_use(before, fingerprint, now).block:
            logs.event(
                "sender_blocked",
                severity="ERROR",
                phone_number_id=self._public_id(record),
                code=noted.code,
                by="receipt",
            )
        return after

    def _public_id(self, record: Delivery) -> logs.PublicId | None:
        return log_fields.sender_id(self.channel, record.sender)

    def _began(self, key: str) -> datetime | None:
        """When the last attempt of a message began, if it can be read."""
        try:
            failed = self.store.get(key)
        except UnknownState:
            return None
        return failed.started_at if failed else None

    def elect(self, record: Delivery, seen: Marks, election: Elect, token: str, credential: str) -> tuple[Marks, Guard]:
        """Claim what the election asks for, and probe. `Go`: this attempt is elected, and the provider answers."""
        until = self.clock.now() + self.limits.claim
        _, after = self.store.change_marks(
            _id(record), lambda current: marks.claimed(current, seen, election.claims, token, until), seen
        )
        if not marks.is_elected(after, election.claims, token):
            return after, Wait(election.why, self.clock.now() + self.limits.waits.claimed, election.unclear)
        if not election.probe:
            return after, Go(election.overtakes)
        try:
            self.channel.probe(record.sender, credential)
        except SendError as error:
            if marks.is_outage(error.verdict):
                return self._probe_failed(record, after, error.verdict, token)
        return after, Go(election.overtakes)

    def give_back(self, record: Delivery, token: str, ended: bool) -> None:
        """Give the claims back, since nothing is sent. `ended`: the message is final, so an answered probe closes the
        breaker.
        """
        now = self.clock.now()
        change = marks.answered_without_send if ended else marks.given_back
        with best_effort():
            self._change(record, lambda current: change(current, token, now))

    def learned(
        self, record: Delivery, seen: Marks, verdict: SendVerdict, answered: bool, fingerprint: str, token: str
    ) -> MarksUpdate:
        """What an answer says of the sender, by the marks that the attempt saw. Writes nothing.

        The answer to a call (read, typing) proves nothing about sends: it closes no breaker and lifts no block.
        """
        is_trial = not is_call(record.payload)
        proven = verdict if is_trial or not isinstance(verdict, Accepted) else Released()
        change = self._after_send(seen, proven, answered and is_trial, fingerprint, token)
        after = change(seen)
        match verdict:
            case Blocked() if after.block:
                verdict = replace(verdict, until=after.block.until)
            case ProviderDown() if after.down:
                verdict = replace(verdict, until=after.down.until)
            case _:
                pass
        return MarksUpdate(verdict, None if after == seen else change)

    def keep(self, record: Delivery, learned: MarksUpdate) -> None:
        """Write what was learned: a second write after the record's. If it is lost, the next answer repeats it."""
        match learned.verdict:
            case CredentialRefused(code, replaced=False):
                logs.event("tenant_needs_reauth", severity="ERROR", tenant=record.tenant, code=code)
            case Blocked(scope, code):
                logs.event(
                    "sender_blocked", severity="ERROR", phone_number_id=self._public_id(record), code=code, scope=scope
                )
            case _:
                pass
        if learned.change:
            with best_effort():
                self._change(record, learned.change)

    def _after_send(
        self, seen: Marks, verdict: SendVerdict, answered: bool, fingerprint: str, token: str
    ) -> DecideMarks:
        now, jitter = self.clock.now(), self.clock.jitter()
        return lambda current: marks.after_send(
            current, seen, verdict, answered, fingerprint, token, self.limits, now, jitter
        )

    def _probe_failed(self, record: Delivery, claimed: Marks, verdict: SendVerdict, token: str) -> tuple[Marks, Guard]:
        after = self._change(record, self._after_send(claimed, verdict, False, "", token), claimed)
        until = after.down.until if after.down else self.clock.now() + self.limits.waits.claimed
        return after, Wait(PROVIDER_DOWN, until, unclear=True)

    def _change(self, record: Delivery, decide: DecideMarks, seen: Marks | None = None) -> Marks:
        before, after = self.store.change_marks(_id(record), decide, seen)
        if marks.is_reconnected(before, after):
            self.dispatch.start_drain(_id(record))
        elif marks.lets_go(before, after, self.limits.waits):
            self.dispatch.start_drain(_id(record), LIMIT_OVER)
        log_outage("provider", before, after, self.clock.now(), phone_number_id=self._public_id(record))
        return after


def _id(record: Delivery) -> str:
    return sender_id(record.provider, record.sender)


@contextmanager
def best_effort() -> Iterator[None]:
    """Guards a write of marks that follows a record's write. If the store is down, the next answer repeats it and a
    claim expires. The record's outcome is still logged and answered.
    """
    try:
        yield
    except (StoreUnavailable, UnknownState) as error:
        logs.event("unexpected_error", severity="WARNING", reason=error.code, stage="marks")


def log_outage(
    whose: str, before: Marks, after: Marks, now: datetime, phone_number_id: logs.PublicId | None = None
) -> None:
    """Log that an outage began or continues, and until when sends wait; or that it is over."""
    down = after.down
    if down and down.wait and holds(down, now) and not down.claim and down != before.down:
        logs.event(
            f"{whose}_down",
            severity="WARNING",
            until=down.until.isoformat(),
            wait_seconds=round(down.wait.total_seconds(), 3),
            phone_number_id=phone_number_id,
        )
    elif before.down and before.down.wait and down is None:
        logs.event(f"{whose}_up", phone_number_id=phone_number_id)
