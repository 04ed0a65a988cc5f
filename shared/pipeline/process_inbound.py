"""process_inbound: calls the handler with an event, and commits the event's end and the replies together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from shared import logs
from shared.domain.delivery.answers import Answer, Hop, Run, Step, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.errors import ItemUnparsable
from shared.domain.events import OF_ACCOUNT
from shared.domain.guards import Elect, Go, Guard
from shared.domain.identity import sender_id
from shared.domain.limits import Limits
from shared.domain.marks import Marks, unblocked
from shared.domain.messages import Drop, Message
from shared.domain.outbound.messages import InvalidReply, PlanItem
from shared.domain.record import INVALID, Delivery, State, Task
from shared.domain.state_changes import AccountConnected, AccountReinstated
from shared.domain.verdicts import (
    BackendDown,
    Dropped,
    HandlerFailed,
    HandlerVerdict,
    Released,
    Replied,
    StillUnknown,
    StillUnparsable,
)
from shared.pipeline import log_fields
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.intake import Addressee
from shared.pipeline.ports import (
    BackendUnavailable,
    Channel,
    DecideMarks,
    Handler,
    HandlerCall,
    HandlerFault,
    HandlerInterrupted,
    Store,
    Tenants,
)
from shared.pipeline.settle_with_retry import settle_with_retry

OwnerOf = Callable[[Addressee], str]


def is_of_account(event: Delivery) -> bool:
    """Whether the event's `sender` is an account: true for the changes of an account, readable or not; never for a
    message, even if its channel stores an account with it.
    """
    if "item" in event.payload:
        return False
    return "value" in event.payload or event.payload.get(OF_ACCOUNT) is True


@dataclass(frozen=True, slots=True)
class ProcessInbound:
    """The inbound half of the internal service."""

    store: Store
    tenants: Tenants
    channels: Channels[Channel]
    handler: Handler
    backend: BackendMarks
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock
    stopping: Callable[[], bool]

    def __call__(self, task: Task) -> Answer:
        """Handle one task and answer it. Raises StoreUnavailable, RegistryUnavailable and UnknownState."""
        began = self.clock.monotonic()
        token = self.clock.token()
        seen = self.backend.read()
        owner_of = cache(self._owner_of)  # the store may run the decision again, while it holds a lock
        step, record = self._lease(task, token, owner_of, lambda record: self._guard(seen, record))
        with logs.context(**log_fields.of_record(record, self.channels) if record else {}):
            return self._process(step, seen, owner_of, task, token, began)

    def _process(self, step: Step, seen: Marks, owner_of: OwnerOf, task: Task, token: str, began: float) -> Answer:
        elected = False
        if isinstance(step.next, Elect):
            seen, guard = self.backend.elect(seen, step.next, token)
            elected = isinstance(guard, Go)
            step, _ = self._lease(task, token, owner_of, lambda _: guard)
        if not isinstance(step.next, Run):
            if elected:
                self.backend.give_back(token)
            self._log_arrival(step)
            return self.dispatch(step, task)
        return self._run(step.next.record, seen, elected, task, token, began)

    def _lease(
        self, task: Task, token: str, owner_of: OwnerOf, guards: Callable[[Delivery], Guard]
    ) -> tuple[Step, Delivery | None]:
        """The step of the task's arrival, and the record as found. A replayed event of an unknown sender gets its
        tenant with the lease, so that its record, its dead letter and its log lines have it in any outcome.
        """
        found: Delivery | None = None

        def decide(now: Delivery | None) -> Step:
            nonlocal found
            if now is not None and not now.final:
                self.channels.require(now.provider)  # before the lease: an unreadable record spends no attempt
            if now is not None and not now.tenant:
                now = replace(now, tenant=owner_of(Addressee(now.provider, now.sender, is_of_account(now))))
            found = now
            return lease(now, task, token, guards(now) if now else Go(), self.limits, self.clock.now())

        return self.store.change(task.key, decide), found

    def _owner_of(self, addressee: Addressee) -> str:
        """The tenant's id, or ""."""
        owner = self.tenants.owner_of(addressee)
        return owner.id if owner else ""

    def _guard(self, seen: Marks, record: Delivery) -> Guard:
        """Only an event that calls the backend waits for the backend."""
        if seen.down is None or not self._is_for_handler(record):
            return Go()
        return self.backend.guard(seen, record)

    def _is_for_handler(self, record: Delivery) -> bool:
        try:
            message = self.channels[record.provider].read(record)
        except ItemUnparsable:
            return False
        return message is not None and self._asks_handler(message)

    def _run(self, record: Delivery, seen: Marks, elected: bool, task: Task, token: str, began: float) -> Answer:
        logs.event("inbound_processing_started", attempt=record.attempt)
        verdict, change = self._verdict(record, seen, token)
        until = began + self.limits.inbound_lease.total_seconds()
        step = settle_with_retry(self.store, record, token, verdict, self.limits, self.clock, until, self.stopping)
        if change:
            self.backend.change(change)
        elif elected:
            self.backend.give_back(token)
        answer = self.dispatch(step, task)
        self._log_end(record, verdict, step, answer, began)
        return answer

    def _verdict(self, record: Delivery, seen: Marks, token: str) -> tuple[HandlerVerdict, DecideMarks | None]:
        """Read the event and call the handler. Returns the verdict, and the change of the backend's mark."""
        if self.stopping():
            return Released(), None
        try:
            message = self.channels[record.provider].read(record)
        except ItemUnparsable:
            return StillUnparsable(), None
        if not record.tenant:
            return StillUnknown(), None
        if message is None:
            self._apply(record)
            return Replied(()), None
        if not self._asks_handler(message):
            return Replied((), message.contact.id), None
        try:
            verdict = self._asked(record, message)
        except HandlerInterrupted:
            return Released(), None
        except BackendUnavailable as failure:
            return self.backend.failed(seen, failure, record, token)
        return verdict, self.backend.answered(seen, record.key, token)

    def _asks_handler(self, message: Message) -> bool:
        """Not for a group: a handler that takes it for a private chat would tell all members one customer's matters."""
        return message.group_id is None and self.handler.handles(message.kind)

    def _asked(self, record: Delivery, message: Message) -> HandlerVerdict:
        """The verdict on the team's answer. Raises HandlerInterrupted and BackendUnavailable."""
        try:
            replies = self.handler(HandlerCall(record.key, record.correlation_id, record.attempt, message))
        except BackendUnavailable:
            raise
        except Drop as drop:
            return Dropped(drop.reason)
        except HandlerFault as fault:
            return HandlerFailed(str(fault), fault.origin)
        return self._replied(self.channels[record.provider].address(message), message, replies)

    def _apply(self, record: Delivery) -> None:
        """Apply a change as state, so that a repeat is harmless. Raises StoreUnavailable.

        The change names the account and not its numbers, so every block of the tenant is lifted, and the next send is
        the probe.
        """
        changes = self.channels[record.provider].changes(record)
        if any(isinstance(change, AccountConnected | AccountReinstated) for change in changes):
            for sender in self.tenants.senders(record.tenant):
                self.store.change_marks(sender_id(sender.provider, sender.id), unblocked)

    def _replied(self, address: Mapping[str, str], message: Message, replies: Sequence[PlanItem]) -> Replied:
        """The plan. A reply that cannot be sent has no address."""
        payloads = tuple(
            {"type": INVALID, "given": reply.given}
            if isinstance(reply, InvalidReply)
            else {"type": reply.type, "content": reply.content, "reply_to": reply.reply_to, **address}
            for reply in replies
        )
        invalid = {index: reply.sentence for index, reply in enumerate(replies) if isinstance(reply, InvalidReply)}
        return Replied(payloads, message.contact.id, invalid)

    def _log_arrival(self, step: Step) -> None:
        """Log a task that found nothing to run: waiting leaves no other trace."""
        match step.answer.state:
            case "gone":
                logs.event("task_gone", severity="WARNING")
            case "waiting" if isinstance(step.next, Hop):
                logs.event(
                    "inbound_waiting",
                    reason=step.why,
                    until=step.next.until.isoformat(),
                )
            case _:
                pass

    def _log_end(self, record: Delivery, verdict: HandlerVerdict, step: Step, answer: Answer, began: float) -> None:
        is_late = answer.result is TaskResult.CONFLICT
        name = "lease_lost" if is_late else "inbound_processing_finished"
        failure: log_fields.Fields = {}
        if isinstance(verdict, HandlerFailed | BackendDown) and step.write:
            name = "inbound_failed" if step.write.state is State.DEAD else "inbound_rescheduled"
            failure = log_fields.of_failure(step.write)
            if isinstance(verdict, HandlerFailed):
                failure = {**failure, "stack_trace": verdict.origin.stack_trace}
        elif isinstance(verdict, Released):
            name = "inbound_rescheduled"
        planned = step.write.plan_size if step.write else None
        invalid = sum(reply.state is State.DEAD for reply in step.create)
        logs.event(
            name,
            severity="INFO" if name == "inbound_processing_finished" else "WARNING",
            attempt=record.attempt,
            state=answer.state,
            status="success" if name == "inbound_processing_finished" and answer.state == State.DONE else None,
            reason=step.write.reason if step.write else None,
            verdict=verdict.label,
            **failure,
            outbound_planned=planned,
            outbound_invalid=invalid or None,
            outbound_enqueued=planned if answer.result is TaskResult.ACK else None,
            duration_ms=round((self.clock.monotonic() - began) * 1000, 1),
            latency_seconds=round((self.clock.now() - record.received_at).total_seconds(), 3),
        )
