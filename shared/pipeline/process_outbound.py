"""process_outbound: sends one message once: guards, lease, clock check, send, settle."""

from collections.abc import Callable
from dataclasses import dataclass

from shared import logs
from shared.domain.calls import is_call
from shared.domain.delivery.answers import Answer, Hop, Run, Step, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.guards import Elect, Go, Guard, outbound_guard, predecessor_finished
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.record import Delivery, State, Task
from shared.domain.send_errors import SendError
from shared.domain.verdicts import Accepted, Lost, Released, SendVerdict
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Channel, Store
from shared.pipeline.sender_marks import SenderMarks
from shared.pipeline.settle_with_retry import settle_with_retry


@dataclass(frozen=True, slots=True)
class ProcessOutbound:
    """The outbound half of the internal service."""

    store: Store
    channels: Channels[Channel]
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock
    stopping: Callable[[], bool]

    def __call__(self, task: Task) -> Answer:
        """Handle one task and answer it. Raises StoreUnavailable and UnknownState."""
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
        senders = SenderMarks(self.store, self.channels[record.provider], self.limits, self.clock)
        fingerprint = senders.channel.fingerprint(record.sender)
        seen = senders.read(record, fingerprint)
        token = self.clock.token()
        asked = self.clock.monotonic()
        step = self._lease(record, task, token, self._guards(record, seen, fingerprint, task))
        if isinstance(step.next, Elect):
            seen, elected = senders.elect(record, seen, step.next, token)
            asked = self.clock.monotonic()
            step = self._lease(record, task, token, lambda _: elected)
            if isinstance(elected, Go) and not isinstance(step.next, Run):
                senders.give_back(record, token, ended=step.write is not None and step.write.final)
        if not isinstance(step.next, Run):
            self._log_arrival(step)
            return self.dispatch(step, task)
        leased = step.next.record
        verdict, answered = self._send(step.next, asked)
        learned = senders.learned(leased, seen, verdict, answered, fingerprint, token)
        until = began + self.limits.request_budget.total_seconds()
        settled = settle_with_retry(
            self.store, leased, token, learned.verdict, self.limits, self.clock, until, self.stopping
        )
        senders.keep(leased, learned)
        answer = self.dispatch(settled, task)
        self._log_attempt(leased, verdict, settled, began)
        return answer

    def _guards(self, record: Delivery, seen: Marks, fingerprint: str, task: Task) -> Callable[[Delivery], Guard]:
        """The guards, for the record as it is when the lease is decided."""
        before = self.store.get(record.after) if record.after else None
        finished = predecessor_finished(record, before)
        return lambda now: outbound_guard(seen, fingerprint, now, finished, task.hop, self.limits, self.clock.now())

    def _lease(self, record: Delivery, task: Task, token: str, guards: Callable[[Delivery], Guard]) -> Step:
        return self.store.change(
            task.key,
            lambda now: lease(now, task, token, guards(now) if now else Go(), self.limits, self.clock.now()),
            seen=record,
        )

    def _send(self, run: Run, asked: float) -> tuple[SendVerdict, bool]:
        """Send, unless it is too late to begin: a send may not outlive its lease. Returns the verdict, and whether the
        provider answered.
        """
        record = run.record
        late = self.clock.monotonic() - asked >= self.limits.begin_within.total_seconds()
        if late or self.stopping():
            return Released(run.resend), False
        try:
            echo = Echo(record.key, record.round, record.correlation_id)
            return Accepted(self.channels[record.provider].send(record, echo)), True
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
