"""process_inbound: calls the handler with an event, and commits the event's end and the replies together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from shared import logs
from shared.domain.delivery.answers import Answer, Run, Step, TaskResult
from shared.domain.delivery.changes import reason_to_end
from shared.domain.delivery.conversation import with_conversation
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.errors import ItemUnparsable, SecretsUnavailable, StoreUnavailable, UnknownState
from shared.domain.events import OF_ACCOUNT
from shared.domain.guards import BUSY, CREDENTIALS_UNAVAILABLE, TURN, Elect, Go, Guard, Wait
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.messages import Message
from shared.domain.record import Delivery, Task
from shared.domain.tenants import Order
from shared.domain.turns import turn_id
from shared.domain.verdicts import Dropped, HandlerVerdict, Released, Replied, StillUnknown, StillUnparsable
from shared.domain.waits import jittered
from shared.pipeline import log_fields
from shared.pipeline.account_news import AccountNews
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.conversations import Conversations, Party, name_lost, names_of
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.handler_verdict import handler_verdict
from shared.pipeline.inbound_log_lines import log_arrival, log_end
from shared.pipeline.intake import Addressee
from shared.pipeline.ports import BackendUnavailable, Channel, DecideMarks, HandlerInterrupted, Store, Tenants
from shared.pipeline.settle_with_retry import Joining, as_it_is, settle_with_retry
from shared.pipeline.tenant_handlers import Handlers, TenantCode
from shared.pipeline.turns import Turns


def is_of_account(event: Delivery) -> bool:
    """Whether the event's `sender` is an account: true for the changes of an account, readable or not; never for a
    message, even if its channel stores an account with it.
    """
    if "item" in event.payload:
        return False
    return "value" in event.payload or event.payload.get(OF_ACCOUNT) is True


@dataclass(frozen=True, slots=True)
class _Call:
    """What one event needs. `code`: the handler to call; None if the event calls none. `seen`: the mark of its backend,
    `guard`: whether the event may begin by that mark. `has_place`: it holds one of its tenant's handler places.
    `party`: whose conversation its end is part of; None: of none.
    """

    message: Message | None = None
    code: TenantCode | None = None
    seen: Marks = field(default_factory=Marks)
    guard: Guard = field(default_factory=Go)
    has_place: bool = False
    is_elected: bool = False
    is_readable: bool = True
    party: Party | None = None


def _ends_later() -> Callable[[Step], Step]:
    """A step that was not to end the event, and would: its lease was taken and reported as refused, and has run out, or
    its time is over just then. The task comes again, and ends it in its conversation.
    """
    later = Step(Answer(TaskResult.NACK, "waiting"))
    return lambda step: later if step.write is not None and step.write.final else step


@dataclass(frozen=True, slots=True)
class ProcessInbound:
    """The inbound half of the internal service."""

    store: Store
    tenants: Tenants
    channels: Channels[Channel]
    handlers: Handlers
    places: HandlerPlaces
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock
    stopping: Callable[[], bool]
    conversations: Conversations | None
    """None: none are kept."""

    def __call__(self, task: Task) -> Answer:
        """Handle one task and answer it. Raises StoreUnavailable, RegistryUnavailable and UnknownState."""
        began = self.clock.monotonic()
        found, around = self._turns.look(task)
        if found is None:
            logs.event("task_gone", severity="WARNING")
            return Answer(TaskResult.ACK, "gone")
        owned = self._owned(found)
        with logs.context(**log_fields.of_record(owned, self.channels)):
            call = self._prepare(owned, task, around)
            try:
                return self._process(found, owned, call, task, began)
            finally:
                if call.has_place:
                    self.places.give_back(owned.tenant)

    @property
    def _turns(self) -> Turns:
        return Turns(self.store, self.limits, self.clock)

    def _owned(self, found: Delivery) -> Delivery:
        """The record with its tenant and its turn: a replayed event of an unknown sender gets them with the lease, so
        that its record, its dead letter and its log lines have its tenant in any outcome.
        """
        if not found.final:
            self.channels.require(found.provider)  # before the lease: an unreadable record spends no attempt
        if found.tenant:
            return found
        owner = self.tenants.owner_of(Addressee(found.provider, found.sender, is_of_account(found)))
        return replace(found, tenant=owner.id, turn_id=self._turn_of(found, owner.id)) if owner else found

    def _turn_of(self, found: Delivery, tenant: str) -> str | None:
        """The turn of an event that was stored before its tenant was known; none for what is no contact's message."""
        conversations = self.conversations
        if conversations is None or not conversations.is_ordered or not found.contact or "item" not in found.payload:
            return found.turn_id
        return turn_id(conversations.id_key, tenant, found.provider, found.sender, found.contact)

    def _prepare(self, record: Delivery, task: Task, around: Sequence[Delivery] | None) -> _Call:
        """What the event needs, and whether it may begin. Only an event that calls the handler waits for it, and
        one that changes the contact's number for its turn. `around`: what was found with it in its turn; None if
        nothing was looked for.
        """
        now = self.clock.now()
        if record.final or record.leased_at(now):
            # Seen only if the record changes before the lease is decided. Then the next task prepares the call.
            return _Call(guard=Wait(BUSY, now + self.limits.waits.busy.first))
        try:
            message = self.channels[record.provider].read(record)
        except ItemUnparsable:
            return _Call(is_readable=False)
        if message is None or message.group_id is not None or not record.tenant:
            # A handler that takes a group for a private chat would tell all members one customer's matters.
            return _Call(message)
        try:
            if not self.handlers.handles(record.tenant, message.kind):
                # What the contact wrote before by a number that they change here is theirs, and no next owner's.
                return _Call(message, guard=self._turns.guard(record, task, around) if name_lost(message) else Go())
            return self._guarded(record, message, self.handlers.of(record.tenant), task, around)
        except SecretsUnavailable:
            return _Call(message, guard=Wait(CREDENTIALS_UNAVAILABLE, now + self.limits.waits.credentials_unavailable))

    def _guarded(
        self, record: Delivery, message: Message, code: TenantCode, task: Task, around: Sequence[Delivery] | None
    ) -> _Call:
        """The call with its guards: the backend's mark, its contact's turn, and a place for it, which it then has."""
        seen = code.marks.read()
        guard = code.marks.guard(seen, record)
        if not isinstance(guard, Go | Elect):
            return _Call(message, code, seen, guard)
        turn = self._turns.guard(record, task, around)
        if not isinstance(turn, Go):
            return _Call(message, code, seen, turn)
        if self.places.take(record.tenant, self.tenants.are_several()):
            return _Call(message, code, seen, replace(guard, overtakes=turn.overtakes), has_place=True)
        return _Call(message, code, seen, Wait(BUSY, self.clock.now() + self.limits.waits.busy.after(task.hop)))

    def _process(self, found: Delivery, owned: Delivery, call: _Call, task: Task, began: float) -> Answer:
        """`owned`: the record `found` with its tenant."""
        token = self.clock.token()
        ends = reason_to_end(found, self.limits, self.clock.now()) is not None
        call = replace(call, party=self._party(owned, call, ends))
        joining = self._joining(call, ends)
        step = self._lease(found, owned, call.guard, task, token, joining)
        if isinstance(step.next, Elect) and call.code:
            seen, guard = call.code.marks.elect(call.seen, step.next, token)
            call = replace(call, seen=seen, is_elected=isinstance(guard, Go))
            step = self._lease(found, owned, guard, task, token, joining)
        if isinstance(step.next, Run):
            if call.code and self._is_contested(step.next.record, call, token):
                return self._step_back(step.next.record, call, task, token)
            return self._run(step.next.record, call, task, token, began)
        if call.is_elected and call.code:
            call.code.marks.give_back(token)
        log_arrival(step)
        return self.dispatch(step, task)

    def _lease(self, found: Delivery, owned: Delivery, guard: Guard, task: Task, token: str, joining: Joining) -> Step:
        """The step of the task's arrival, for the record as it is when the lease is decided, and joined to its
        conversation. `owned`: the record with its tenant.
        """

        def decide(now: Delivery | None, joined: Callable[[Step], Step]) -> Step:
            if now is not None and not now.tenant:
                now = replace(now, tenant=owned.tenant, turn_id=owned.turn_id)
            return joined(lease(now, task, token, guard, self.limits, self.clock.now()))

        def commit() -> Step:
            return self.store.change(task.key, partial(decide, joined=joining()), seen=found)

        return commit() if self.conversations is None else self.conversations.committed(commit)

    def _is_contested(self, leased: Delivery, call: _Call, token: str) -> bool:
        """Whether another event of the contact is being handled too. If nothing can be seen, the lease is given back:
        the handler was not called, so no attempt is spent.
        """
        try:
            return self._turns.is_contested(leased)
        except (StoreUnavailable, UnknownState):
            self._give_back(leased, call, token)
            raise

    def _give_back(self, leased: Delivery, call: _Call, token: str) -> Step:
        limits, now = self.limits, self.clock.now()
        step = self.store.change(leased.key, lambda found: settle(found, token, Released(), limits, now, 0), leased)
        if call.is_elected and call.code:
            call.code.marks.give_back(token)
        return step

    def _step_back(self, leased: Delivery, call: _Call, task: Task, token: str) -> Answer:
        """Give the lease back and wait for the other's, which is in the way at any position."""
        limits, step = self.limits, self._give_back(leased, call, token)
        if step.write is None:  # the lease has run out meanwhile, and another attempt has the record
            return self.dispatch(step, task)
        # With jitter, because two that step back from each other would meet again.
        again_in = jittered(limits.waits.turn.after(task.hop), self.clock.jitter())
        wait = Wait(TURN, self.clock.now() + again_in)
        again = self._lease(step.write, leased, wait, task, token, self._joining(call, False))
        log_arrival(again)
        return self.dispatch(again, task)

    def _run(self, record: Delivery, call: _Call, task: Task, token: str, began: float) -> Answer:
        logs.event("inbound_processing_started", attempt=record.attempt)
        verdict, change = self._verdict(record, call, token)
        until = began + self.limits.inbound_lease.total_seconds()
        joining = self._joining(call, self._is_ended_by(verdict, record, token))
        step = settle_with_retry(
            self.store, record, token, verdict, self.limits, self.clock, until, self.stopping, joining
        )
        if call.code and change:
            call.code.marks.change(change)
        elif call.code and call.is_elected:
            call.code.marks.give_back(token)
        answer = self.dispatch(step, task)
        log_end(record, verdict, step, answer, began, self.clock)
        return answer

    def _party(self, record: Delivery, call: _Call, ends: bool) -> Party | None:
        """Whose conversation the event is part of, if it may begin, or `ends` without that; one of a group is of no
        contact. The registry is asked before the lease: if it cannot be read after the handler has answered, that
        answer is lost.
        """
        message, joins = call.message, ends or isinstance(call.guard, Go | Elect)
        if self.conversations is None or message is None or message.group_id is not None:
            return None
        if not record.tenant or not joins:
            return None
        sender = self.tenants.sender(record.provider, record.sender)
        order = sender.order if sender else Order.CONTACT
        return Party(record.tenant, record.provider, record.sender, order, names_of(message), name_lost(message))

    def _is_ended_by(self, verdict: HandlerVerdict, record: Delivery, token: str) -> bool:
        """Whether the verdict ends the event. What every reply costs is not made twice for that."""
        if isinstance(verdict, Replied | Dropped):
            return True
        after = settle(record, token, verdict, self.limits, self.clock.now(), 0).write
        return after is not None and after.final

    def _joining(self, call: _Call, ends: bool) -> Joining:
        """How a step joins the conversation of a contact's message, which it `ends`, as far as is known: a message that
        is tried again does not end.
        """
        conversations, message, party = self.conversations, call.message, call.party
        if conversations is None or message is None or party is None:
            return as_it_is
        if not ends:
            return _ends_later

        def joining() -> Callable[[Step], Step]:
            thread = conversations.readable_thread(party)
            if thread is None:  # the handler has answered, and its answer is not lost for that
                return lambda step: step
            return lambda step: with_conversation(step, thread, message.received_at, self.clock.now())

        return joining

    def _verdict(self, record: Delivery, call: _Call, token: str) -> tuple[HandlerVerdict, DecideMarks | None]:
        """Call the handler, or apply the change. Returns the verdict, and the change of the backend's mark."""
        if self.stopping():
            return Released(), None
        if not call.is_readable:
            return StillUnparsable(), None
        if not record.tenant:
            return StillUnknown(), None
        if call.message is None:
            news = AccountNews(self.store, self.tenants, self.dispatch.start_drain)
            news.apply(record, self.channels[record.provider])
            return Replied(()), None
        if call.code is None:
            return Replied((), call.message.contact.id), None
        try:
            verdict = handler_verdict(call.code.handler, self.channels[record.provider], record, call.message)
        except HandlerInterrupted:
            return Released(), None
        except BackendUnavailable as failure:
            return call.code.marks.failed(call.seen, failure, record, token)
        return verdict, call.code.marks.answered(call.seen, record.key, token)
