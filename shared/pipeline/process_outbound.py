"""process_outbound: guards, lease, clock check, send, settle. One message, handed over once."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from shared import logs
from shared.domain.delivery import Answer, Hop, Run, Step, lease
from shared.domain.errors import SendError
from shared.domain.guards import Block, Go, Guard, TenantMarks, next_block, outbound_guard, predecessor_finished
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.outbound_checks import is_call
from shared.domain.record import Delivery, Task
from shared.domain.verdicts import Accepted, Blocked, CredentialRefused, Lost, Refused, Released, SendVerdict
from shared.pipeline.clock import Clock
from shared.pipeline.follow import Follow
from shared.pipeline.patience import settle_patiently
from shared.pipeline.ports import Channel, Store


@dataclass(frozen=True, slots=True)
class ProcessOutbound:
    """The outbound half of the internal service."""

    store: Store
    channel: Channel
    follow: Follow
    limits: Limits
    clock: Clock
    stopping: Callable[[], bool]

    def __call__(self, task: Task) -> Answer:
        """Do what a task finds to do, and answer it. Raises StoreUnavailable and UnknownState."""
        began = self.clock.monotonic()
        record = self.store.get(task.key)
        if record is None:
            logs.event("task_gone", severity="WARNING", delivery=task.key)
            return Answer(200, "gone")
        marks = TenantMarks() if record.final else self.store.marks(record.tenant)
        fingerprint = self.channel.fingerprint(record.sender)
        guard = self._guard(record, marks, fingerprint, task)
        token = self.clock.token()
        asked = self.clock.monotonic()
        step = self.store.change(
            task.key, lambda now: lease(now, task, token, guard, self.limits, self.clock.now()), seen=record
        )
        if not isinstance(step.next, Run):
            self._log_arrival(step, task, guard)
            return self.follow(step, task)
        leased = step.next.record
        verdict, block = self._send(step.next, asked, marks)
        until = began + self.limits.request_budget.total_seconds()
        settled = settle_patiently(self.store, leased, token, verdict, self.limits, self.clock, until, self.stopping)
        self._learn(leased, verdict, block, marks, fingerprint)
        answer = self.follow(settled, task)
        self._log_attempt(leased, task, verdict, settled, began)
        return answer

    def _guard(self, record: Delivery, marks: TenantMarks, fingerprint: str, task: Task) -> Guard:
        if record.final:
            return Go()
        before = self.store.get(record.after) if record.after else None
        finished = predecessor_finished(record, before)
        return outbound_guard(marks, fingerprint, finished, record.sender, task.hop, self.limits, self.clock.now())

    def _send(self, run: Run, asked: float, marks: TenantMarks) -> tuple[SendVerdict, Block | None]:
        """Send, if it is not too late to begin: a send may not outlive its lease. What the answer means, and the block
        of the sender where it says one: the message waits until its end.
        """
        record = run.record
        late = self.clock.monotonic() - asked >= self.limits.begin_within.total_seconds()
        if late or self.stopping():
            return Released(run.resend), None
        try:
            echo = Echo(record.key, record.round, record.correlation_id)
            return Accepted(self.channel.send(record, echo)), None
        except SendError as error:
            verdict = error.verdict
        if not isinstance(verdict, Blocked):
            return verdict, None
        block = next_block(marks, record.sender, verdict.code, self.limits.waits.block, self.clock.now())
        return replace(verdict, until=block.until), block

    def _learn(
        self, record: Delivery, verdict: SendVerdict, block: Block | None, marks: TenantMarks, fingerprint: str
    ) -> None:
        """What the answer says of tenant or sender: a second, blind write, lost at worst until the next refusal."""
        match verdict:
            case CredentialRefused(code):
                self.store.mark_credential(record.tenant, fingerprint)
                logs.event("tenant_needs_reauth", severity="ERROR", tenant=record.tenant, code=code)
            case Blocked(code):
                self.store.mark_block(record.tenant, record.sender, block)
                logs.event("sender_blocked", severity="ERROR", phone_number_id=record.sender, code=code)
            case Accepted() if record.sender in marks.blocks:
                self.store.mark_block(record.tenant, record.sender, None)
            case _:
                pass

    def _log_arrival(self, step: Step, task: Task, guard: Guard) -> None:
        """A task that found nothing to run says so: waiting leaves no other trace."""
        if step.write is None and step.answer.state not in ("waiting", "in_doubt"):
            return
        logs.event(
            "outbound_in_doubt"
            if step.answer.state == "in_doubt"
            else "outbound_waiting"
            if not step.write
            else "outbound_attempt",
            delivery=task.key,
            stage=task.kind,
            state=step.answer.state,
            reason=_arrival_reason(step, guard),
            until=step.next.until.isoformat() if isinstance(step.next, Hop) else None,
            hop=task.hop,
        )

    def _log_attempt(self, record: Delivery, task: Task, verdict: SendVerdict, settled: Step, began: float) -> None:
        """One wide line per attempt."""
        match verdict:
            case _ if settled.write is None and settled.answer.status == 409:
                name = "lease_lost"
            case Accepted():
                name = "outbound_sent"
            case Lost() if not is_call(record.payload):
                name = "outbound_in_doubt"
            case Refused():
                name = "outbound_failed"
            case Released():
                name = "outbound_attempt"
            case _:
                name = "outbound_rescheduled"
        logs.event(
            name,
            severity="INFO" if name == "outbound_sent" else "WARNING",
            delivery=record.key,
            tenant=record.tenant,
            phone_number_id=record.sender,
            stage=record.kind,
            attempt=record.attempt,
            task_name=task.name,
            verdict=verdict.word,
            code=getattr(verdict, "code", None),
            state=settled.write.state if settled.write else settled.answer.state,
            duration_ms=round((self.clock.monotonic() - began) * 1000, 1),
            latency_seconds=round((self.clock.now() - record.received_at).total_seconds(), 3),
        )


def _arrival_reason(step: Step, guard: Guard) -> str | None:
    """Why a message waits; or that a doubt begins here, since nobody was heard of again who was sending it."""
    match step.answer.state:
        case "waiting":
            return getattr(guard, "why", None)
        case "in_doubt" if step.write:
            return "lease_expired"
        case _:
            return None
