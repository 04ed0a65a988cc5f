"""process_outbound: sends one message once: guards, lease, clock check, send, settle."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from shared import logs
from shared.domain.calls import is_call
from shared.domain.conversations import Thread, joining
from shared.domain.delivery.answers import Answer, Hop, Run, Step, TaskResult
from shared.domain.delivery.bell import enter, may_enter
from shared.domain.delivery.lease import lease
from shared.domain.guards import PREDECESSOR, Elect, Go, Guard, Wait, outbound_guard
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.record import Delivery, State, Task
from shared.domain.send_errors import SendError
from shared.domain.tenants import Order
from shared.domain.verdicts import Accepted, Lost, Released, SendVerdict
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.lanes import Lanes
from shared.pipeline.ports import Channel, Credentials, Store, Tenants
from shared.pipeline.send_counting import NO_SEND_COUNTING, SendCounting
from shared.pipeline.sender_access import SenderAccess, SenderAccounts
from shared.pipeline.sender_marks import SenderMarks, best_effort
from shared.pipeline.sender_pace import SenderPace
from shared.pipeline.settle_with_retry import settle_with_retry

Guards = Callable[[Delivery], Guard]
"""What a message waits for, if anything, by the record as it is when its lease is decided."""


@dataclass(frozen=True, slots=True)
class ProcessOutbound:
    """The outbound half of the internal service."""

    store: Store
    tenants: Tenants
    credentials: Credentials
    channels: Channels[Channel]
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock
    stopping: Callable[[], bool]
    conversations: Conversations | None
    """None: none are kept."""
    counting: SendCounting = NO_SEND_COUNTING

    def __call__(self, task: Task) -> Answer:
        """Handle one task and answer it. Raises StoreUnavailable, RegistryUnavailable and UnknownState."""
        began = self.clock.monotonic()
        record = self.store.get(task.key)
        if record is None:
            logs.event("task_gone", severity="WARNING", delivery=task.key)
            return Answer(TaskResult.ACK, "gone")
        with logs.context(**log_fields.of_record(record, self.channels)):
            return self._process(record, task, began)

    def _process(self, record: Delivery, task: Task, began: float) -> Answer:
        if record.final:  # no send follows, so it needs no channel: its provider may no longer have one here
            return self.dispatch(lease(record, task, "", Go(), self.limits, self.clock.now()), task)
        channel, accounts = self.channels[record.provider], SenderAccounts(self.tenants, self.credentials)
        access = accounts.access(record, channel)
        record = self._in_lane(record, access)
        senders = SenderMarks(self.store, channel, self.dispatch, self.limits, self.clock)
        seen = senders.read(record, access.fingerprint)
        token = self.clock.token()
        step, seen, asked = self._arrival(record, seen, access, senders, task, token)
        if not isinstance(step.next, Run):
            self.counting.written(step, is_accepted=False)
            self._log_arrival(step)
            return self.dispatch(step, task)
        leased = step.next.record
        verdict, answered = self._send(step.next, access.credential, asked)
        verdict = accounts.judged(verdict, access, channel)
        learned = senders.learned(leased, seen, verdict, answered, access.fingerprint, token)
        until = began + self.limits.request_budget.total_seconds()
        settled = settle_with_retry(
            self.store, leased, token, learned.verdict, self.limits, self.clock, until, self.stopping
        )
        self.counting.written(settled, isinstance(verdict, Accepted))
        senders.keep(leased, learned)
        answer = self.dispatch(settled, task, self._ring_at(settled, leased, access))
        self._log_attempt(leased, verdict, settled, began)
        return answer

    def _in_lane(self, record: Delivery, access: SenderAccess) -> Delivery:
        """The record, which takes its place in its lane if its caller wanted it sent later and it is due now."""
        conversations, id = self.conversations, record.conversation
        if conversations is None or id is None or not self._joins(record):
            return record
        order = access.sender.order if access.sender else Order.CONTACT

        def commit() -> Step:
            thread = conversations.readable_thread_of(id, record.tenant, record.provider, record.sender, order)
            return self.store.change(record.key, lambda found: self._joining(found, thread), seen=record)

        return conversations.committed(commit).write or self.store.get(record.key) or record

    def _joins(self, record: Delivery) -> bool:
        is_due = record.due(self.clock.now() + self.limits.early)
        return record.joins_lane_later and record.state is State.PENDING and is_due

    def _joining(self, found: Delivery | None, thread: Thread | None) -> Step:
        if found is None or thread is None or not self._joins(found):
            return Step(Answer(TaskResult.ACK, found.state if found else "gone"))
        placed, entries = joining(found, thread, self.clock.now())
        return Step(Answer(TaskResult.ACK, placed.state), write=placed, entries=tuple(entries))

    def _arrival(
        self, record: Delivery, seen: Marks, access: SenderAccess, senders: SenderMarks, task: Task, token: str
    ) -> tuple[Step, Marks, float]:
        """The step of the task's arrival, the marks that it counts on, and when the lease was asked for."""
        limits = replace(self.limits, doubt_policy=access.doubt_policy or self.limits.doubt_policy)
        held, before = self._held(record, seen, access, task), None
        guards = held
        if guards is None:
            record, before, guards = self._looked(record, seen, access, task)
        step, asked = self._asked(record, guards, seen, access, limits, task, token)
        if step.why == PREDECESSOR and before and may_enter(before, record):
            entered = self.store.change(before.key, lambda found: enter(found, record), seen=before)
            if entered.write is None:  # it has ended meanwhile, perhaps, and then it rings no more
                record, _, again = self._looked(record, seen, access, task)
                step, asked = self._asked(record, again, seen, access, limits, task, token)
        if not isinstance(step.next, Elect):
            return step, seen, asked
        seen, elected = senders.elect(record, seen, step.next, token, access.credential)
        asked = self.clock.monotonic()
        step = self._lease(record, task, token, lambda _: elected, limits)
        if isinstance(elected, Go):
            if not isinstance(step.next, Run):
                senders.give_back(record, token, ended=step.write is not None and step.write.final)
            elif pace := self._pace(record, access):
                with best_effort():
                    pace.count()
        return step, seen, asked

    def _asked(
        self,
        record: Delivery,
        guards: Guards,
        seen: Marks,
        access: SenderAccess,
        limits: Limits,
        task: Task,
        token: str,
    ) -> tuple[Step, float]:
        """The step of a message by these guards and its pace, and when the lease was asked for."""
        guards = self._paced(record, access, seen, guards, limits, task)
        asked = self.clock.monotonic()
        return self._lease(record, task, token, guards, limits), asked

    def _looked(
        self, record: Delivery, seen: Marks, access: SenderAccess, task: Task
    ) -> tuple[Delivery, Delivery | None, Guards]:
        """The record, the message that it waits for, and its guards. All count with the time of the look: patience that
        ends a moment later has not been looked at.
        """
        now = self.clock.now()
        found = Lanes(self.store, self.limits).look(record, task, now)
        return found.record, found.before, self._guards(found.before, seen, access, found.task, now)

    def _held(self, record: Delivery, seen: Marks, access: SenderAccess, task: Task) -> Guards | None:
        """The guard of a message that waits for its sender: while one is limited many look again, and this saves each
        the read of the message before it.
        """
        found = self._guards(None, seen, access, task, self.clock.now())(record)
        if not isinstance(found, Wait):
            return None
        return lambda now: replace(found, unclear=now.state is State.IN_DOUBT and seen.down is not None)

    def _guards(self, before: Delivery | None, seen: Marks, access: SenderAccess, task: Task, now: datetime) -> Guards:
        """The guards, for the record as it is when the lease is decided."""
        jitter = self.clock.jitter()
        return lambda found: outbound_guard(
            seen, access.fingerprint, found, before, task, self.limits, now, access.withheld, jitter
        )

    def _paced(
        self,
        record: Delivery,
        access: SenderAccess,
        seen: Marks,
        guards: Guards,
        limits: Limits,
        task: Task,
    ) -> Guards:
        """The guards and, after them, the sender's pace. Only a message that would be sent now takes a place in it. An
        election is not held up: at most one message is elected at a time, and it is counted once it has its lease.
        """
        pace = self._pace(record, access)
        if pace is None:
            return guards
        guard = guards(record)
        if not isinstance(lease(record, task, "", guard, limits, self.clock.now()).next, Run):
            return guards
        unclear = record.state is State.IN_DOUBT and seen.down is not None
        wait = pace.guard(record, task, guard, unclear)
        return guards if wait is None else lambda _: wait

    def _ring_at(self, step: Step, record: Delivery, access: SenderAccess) -> datetime | None:
        """When those that wait for the message are woken: where its sender has a pace, as soon as that has a place. A
        wake task reserves none, and its message would wait for its own hop.
        """
        pace, at = self._pace(record, access), None
        if pace and step.rings:
            with best_effort():
                at = pace.next_place()
        return at

    def _pace(self, record: Delivery, access: SenderAccess) -> SenderPace | None:
        """The pace that holds back this message, if any. A call (read, typing) is no message."""
        sender = access.sender
        if sender is None or sender.pace is None or is_call(record.payload):
            return None
        return SenderPace(self.store, self.limits, self.clock, sender, sender.pace)

    def _lease(self, record: Delivery, task: Task, token: str, guards: Guards, limits: Limits) -> Step:
        return self.store.change(
            task.key,
            lambda now: lease(now, task, token, guards(now) if now else Go(), limits, self.clock.now()),
            seen=record,
        )

    def _send(self, run: Run, credential: str, asked: float) -> tuple[SendVerdict, bool]:
        """Send, unless it is too late to begin: a send may not outlive its lease. Returns the verdict, and whether the
        provider answered.
        """
        record = run.record
        late = self.clock.monotonic() - asked >= self.limits.begin_within.total_seconds()
        if late or self.stopping():
            return Released(run.resend), False
        try:
            echo = Echo(record.key, record.round, record.correlation_id)
            return Accepted(self.channels[record.provider].send(record, echo, credential)), True
        except SendError as error:
            return error.verdict, error.answered

    def _log_arrival(self, step: Step) -> None:
        """Log a task that found nothing to run: waiting leaves no other trace."""
        if step.write is None and step.answer.state not in ("waiting", "in_doubt"):
            return
        logs.event(
            "outbound_in_doubt"
            if step.answer.state == "in_doubt"
            else "outbound_waiting"
            if not step.write
            else "outbound_attempt",
            state=step.answer.state,
            status="success" if step.write is not None and _is_confirmed(step.write) else None,
            reason=step.why,
            until=step.next.until.isoformat() if isinstance(step.next, Hop) else None,
        )

    def _log_attempt(self, record: Delivery, verdict: SendVerdict, settled: Step, began: float) -> None:
        """Log one wide line per attempt."""
        message_hash = None
        match verdict:
            case _ if settled.write is None and settled.answer.result is TaskResult.CONFLICT:
                name = "lease_lost"
            case Accepted(provider_id):
                name = "outbound_sent"
                message_hash = log_fields.message_hash(record.provider, provider_id)
            case Lost() if not is_call(record.payload):
                name = "outbound_in_doubt"
            case _ if settled.write is not None and settled.write.state is State.DEAD:
                name = "outbound_failed"
            case Released():
                name = "outbound_attempt"
            case _:
                name = "outbound_rescheduled"
        logs.event(
            name,
            severity="INFO" if name == "outbound_sent" else "WARNING",
            attempt=record.attempt,
            message_hash=message_hash,
            verdict=verdict.label,
            code=getattr(verdict, "code", None),
            state=settled.write.state if settled.write else settled.answer.state,
            status="success" if name == "outbound_sent" else None,
            duration_ms=round((self.clock.monotonic() - began) * 1000, 1),
            latency_seconds=round((self.clock.now() - record.received_at).total_seconds(), 3),
        )


def _is_confirmed(record: Delivery) -> bool:
    """Whether a receipt settled it as sent. A failed receipt has been counted as a failure already."""
    return record.state is State.DONE and record.current_receipts.positive
