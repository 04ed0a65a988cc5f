"""Mutants: mistakes that somebody made, or could, planted in the project's own source. Each must be caught."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.model.planting import Patch

CHANGES, CREATE = "shared/domain/delivery/changes.py", "shared/domain/delivery/create.py"
LIFECYCLE = "shared/domain/delivery/lifecycle.py"
BELL = "shared/domain/delivery/bell.py"
TURNS, TURN_GUARD = "shared/domain/turns.py", "shared/domain/turn_guard.py"
LEASE, SETTLE = "shared/domain/delivery/lease.py", "shared/domain/delivery/settle.py"
SWEEP, OPERATOR = "shared/domain/delivery/sweep.py", "shared/domain/delivery/operator.py"
RECORD = "shared/domain/record.py"
GUARDS, IDENTITY = "shared/domain/guards.py", "shared/domain/identity.py"
ACCEPT, DISPATCH, RECEIPTS = "shared/pipeline/accept.py", "shared/pipeline/dispatch.py", "shared/pipeline/receipts.py"
TASKS = "shared/domain/tasks.py"
RATE_LIMIT = "shared/domain/rate_limit.py"
MARKS, BACKEND = "shared/domain/marks.py", "shared/pipeline/backend_marks.py"
CONVERSATIONS, JOINED = "shared/domain/conversations.py", "shared/domain/delivery/conversation.py"
FINDS, SETTLES = "shared/pipeline/conversations.py", "shared/pipeline/settle_with_retry.py"
MESSAGES = "shared/pipeline/accept_message.py"
IN_LANE, IN_TURN = "shared/pipeline/lanes.py", "shared/pipeline/turns.py"
INBOUND, OUTBOUND = "shared/pipeline/process_inbound.py", "shared/pipeline/process_outbound.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, the setting that shows it, and the invariant that it breaks."""

    name: str
    breaks: str
    setting: str
    patches: tuple[Patch, ...]


def _mutant(name: str, breaks: str, setting: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, breaks, setting, (Patch(file, old, new),))


# ---- the fence

FENCE = (
    _mutant(
        "settle does not ask for the token",
        "I4",
        "event: handler drops it, shutdown, killed",
        SETTLE,
        """
    if record.token != token:
        return Step(Answer(TaskResult.CONFLICT, record.state))
""",
        "\n",
    ),
    Mutant(
        "the attempt number, which a release decrements, is the fencing token",
        "I4",
        "reply: released, own write refused",
        (
            Patch(
                LEASE,
                "attempt=record.attempt + 1, token=token,",
                "attempt=record.attempt + 1, token=str(record.attempt + 1),",
            ),
            Patch(OUTBOUND, "self.store, leased, token,", "self.store, leased, leased.token or token,"),
            Patch(INBOUND, "self.store, record, token,", "self.store, record, record.token or token,"),
        ),
    ),
    _mutant(
        "an attempt mistakes any live lease for its own",
        "I4",
        "reply: killed, answer lost",
        LEASE,
        """
    if record.token == token:
        return Step(Answer(TaskResult.ACK, record.state), next=Run(""",
        """
    if token:
        return Step(Answer(TaskResult.ACK, record.state), next=Run(""",
    ),
    _mutant(
        "a send begins however late it is",
        "I4",
        "reply: killed, answer lost",
        OUTBOUND,
        "if late or self.stopping():",
        "if self.stopping():",
    ),
    _mutant(
        "a release keeps the token",
        "I3",
        "resend: released twice, own write refused",
        CHANGES,
        "token=None, lease_until=None, doubt_until=doubt_until",
        "lease_until=None, doubt_until=doubt_until",
    ),
)

# ---- durable before ack

DURABLE = (
    _mutant(
        "a redelivered event never gets its missing task",
        "I1",
        "event: two webhooks at once, killed twice, own write refused",
        CREATE,
        "return record.state is State.PENDING and record.attempt == 0",
        "return False",
    ),
    _mutant(
        "an event that cannot be stored is passed over",
        "I1",
        "event: two in one POST, store and queue away",
        ACCEPT,
        "faults += faults_in(mark for mark in marks if not isinstance(mark, RegistryUnavailable))",
        "faults += []",
    ),
)

# ---- nothing lost

LOST = (
    _mutant(
        "a task's name has no generation",
        "I2",
        "event: handler fails, two workers",
        IDENTITY,
        'stable_hash("task", key, generation, hop)',
        'stable_hash("task", key, hop)',
    ),
    _mutant(
        "a hop has the name of the task that makes it",
        "I2",
        "order: two replies, two workers",
        TASKS,
        "hop=task.hop + 1",
        "hop=task.hop",
    ),
    _mutant(
        "settle before enqueue: 200 although the task could not be made",
        "I2",
        "plan: store and queue away",
        DISPATCH,
        "return Answer(TaskResult.CONFLICT if is_tenants else TaskResult.NACK, step.answer.state)",
        "return step.answer",
    ),
    _mutant(
        "a done event does not ensure its replies' tasks",
        "I2",
        "plan: two replies, killed",
        LEASE,
        """
        return Step(Answer(TaskResult.ACK, "done"), next=EnsureReplies(record))
    if record.final:""",
        """
        return Step(Answer(TaskResult.ACK, "done"))
    if record.final:""",
    ),
    _mutant(
        "a committed plan that was reported refused gets no tasks",
        "I2",
        "plan: killed, own write refused",
        SETTLE,
        """
        return Step(Answer(TaskResult.ACK, "done"), next=EnsureReplies(record))
    if record.state is not State.LEASED:""",
        """
        return Step(Answer(TaskResult.ACK, "done"))
    if record.state is not State.LEASED:""",
    ),
    Mutant(
        "the plan is committed before the event is done",
        "I2",
        "plan: killed in the last attempt",
        (
            Patch(
                SETTLE,
                "done = end(replace(logged, plan_size=len(payloads)), State.DONE, limits, now)",
                "done = replace(logged, plan_size=len(payloads))",
            ),
            Patch(INBOUND, "import Delivery, Task\n", "import Delivery, State, Task\n"),
            Patch(
                INBOUND,
                """
        answer = self.dispatch(step, task)
""",
                """
        answer = self.dispatch(step, task)
        if step.write is not None and step.write.plan_size is not None:
            done = replace(step.write, state=State.DONE, lease_until=None, sweep_at=None)
            self.store.change(record.key, lambda now: Step(answer, done if now == step.write else None))
""",
            ),
        ),
    ),
    _mutant(
        "an early task creates itself again",
        "I2",
        "reply: limited, own write refused",
        LEASE,
        'return _wait(record, task, "waiting", record.due_at, why)',
        'return Step(Answer(TaskResult.ACK, "waiting"), next=Ensure(record), why=why)',
    ),
    _mutant(
        "a task of an older generation does nothing",
        "I2",
        "reply: limited, own write refused",
        LEASE,
        "follows: Next = Ensure(record) if is_older(task, record) else Hop(record, until, slot, alone_since)",
        "follows: Next = None if is_older(task, record) else Hop(record, until, slot, alone_since)",
    ),
    _mutant(
        "a task of an older generation keeps a chain of its own",
        "I5",
        "reply: blocked, killed",
        LEASE,
        "follows: Next = Ensure(record) if is_older(task, record) else Hop(record, until, slot, alone_since)",
        "follows: Next = Hop(record, until, slot, alone_since)",
    ),
    _mutant(
        "a waiting record gets no next task",
        "I2",
        "order: two replies, two workers",
        LEASE,
        "return _wait(record, task, word, until, why, slot=guard.slot, alone_since=guard.alone_since)",
        'return Step(Answer(TaskResult.ACK, "waiting"))',
    ),
    _mutant(
        "a task is answered 200 although the provider is down",
        "I2",
        "reply: our backoff, provider down, killed",
        SETTLE,
        "return Step(Answer(TaskResult.NACK, waiting.state), write=waiting)",
        "return Step(Answer(TaskResult.ACK, waiting.state), write=waiting)",
    ),
    _mutant(
        "the sweep begins no generation",
        "I2",
        "event: lost by the queue, racing sweep, killed",
        SWEEP,
        "moved = replace(moved, generation=record.generation + 1, due_at=now)",
        "moved = replace(moved, due_at=now)",
    ),
    Mutant(
        "a late refusal of an old credential counts against the current one",
        "I2",
        "reply: credential refused and replaced, killed",
        (
            Patch(OUTBOUND, "verdict = accounts.judged(verdict, access, channel)", "in_use = self.credentials.of"),
            Patch(
                OUTBOUND,
                "senders.learned(leased, seen, verdict, answered, access.fingerprint, token)",
                "senders.learned(leased, seen, verdict, answered, channel.fingerprint(in_use(access.sender)), token)",
            ),
        ),
    ),
    _mutant(
        "a suspended tenant's message is sent",
        "guards",
        "reply: suspended and resumed, killed",
        GUARDS,
        "if tenant is not None and tenant.suspended:",
        "if tenant is None:",
    ),
    _mutant(
        "the wait of a suspended tenant ends a doubt",
        "I10",
        "resend: suspended and resumed, killed",
        LEASE,
        "or isinstance(guard, Never)",
        "or isinstance(guard, Never | Wait)",
    ),
    _mutant(
        "a dead record expires",
        "I2",
        "replay: expired, discarded",
        LIFECYCLE,
        "expire_at = None if state is State.DEAD else now + retention(record.kind, limits)",
        "expire_at = now + retention(record.kind, limits)",
    ),
)

# ---- nothing twice

TWICE = (
    _mutant(
        "an expired send is pending again",
        "I3",
        "reply: killed, answer lost",
        LEASE,
        "case State.LEASED if not is_call(record.payload):",
        "case State.LEASED if record.plan_size:",
    ),
    _mutant(
        "a lost answer is retried",
        "I3",
        "resend: receipts late, three answers lost",
        SETTLE,
        "if isinstance(verdict, Lost) and is_call(record.payload):",
        "if isinstance(verdict, Lost):",
    ),
    _mutant(
        "resends are bounded by the attempts alone",
        "I3",
        "resend: receipts late, three answers lost",
        LEASE,
        """
        or record.doubts >= limits.max_doubts
""",
        "\n",
    ),
    _mutant(
        "the policy hold resends too",
        "I3",
        "reply: a slow answer is kept",
        LEASE,
        """
        limits.doubt_policy is DoubtPolicy.HOLD
        or record.doubts""",
        """
        record.doubts""",
    ),
    _mutant(
        "a receipt is kept only while in doubt",
        "I3",
        "resend: receipts in time",
        RECEIPTS,
        "    made = await store.note_receipts(found, deadline)\n",
        "    records = [await store.get(echo.key) for echo, _ in found if echo]\n"
        '    if not any(record and record.state == "in_doubt" for record in records):\n'
        "        return []\n"
        "    made = await store.note_receipts(found, deadline)\n",
    ),
    _mutant(
        "a receipt settles nothing but a doubt",
        "I3",
        "resend: rescheduled once more",
        LEASE,
        """
    if record.current_receipts.any:
        return write(end(record, State.DONE, limits, now))
    match record.state:""",
        """
    if record.current_receipts.any and record.state is State.IN_DOUBT:
        return write(end(record, State.DONE, limits, now))
    match record.state:""",
    ),
)

# ---- receipts and late answers are not thrown away

THROWN_AWAY = (
    _mutant(
        "the lease of the last attempt expires into dead",
        "I10",
        "reply: killed in its last attempt",
        LEASE,
        """
            doubtful = begin_doubt(record, limits, now)
            until =""",
        """
            if record.attempt >= limits.max_attempts:
                return write(end(record, State.DEAD, limits, now, reason="attempts"))
            doubtful = begin_doubt(record, limits, now)
            until =""",
    ),
    _mutant(
        "settle is accepted only from leased",
        "I2",
        "reply: a slow answer is kept",
        SETTLE,
        "if record.state not in (State.LEASED, State.IN_DOUBT):",
        "if record.state is not State.LEASED:",
    ),
    _mutant(
        "a record dies although a receipt of its round exists",
        "I2",
        "resend: permanently refused after a receipt",
        CHANGES,
        """
    if record.current_receipts.any:
        return write(end(record, State.DONE, limits, now))
    dead =""",
        """
    dead =""",
    ),
)

# ---- rounds of replay

REPLAYS = (
    _mutant(
        "a replay begins no round",
        "I3",
        "replay: its receipt said failed, without an echo",
        OPERATOR,
        "round=record.round + 1",
        "round=record.round",
    ),
    _mutant(
        "receipts of an earlier round count",
        "I2",
        "replay: its receipt said failed",
        RECORD,
        "return self.receipts.get(self.round, Receipts())",
        "return self.receipts.get(self.round) or self.receipts.get(0, Receipts())",
    ),
    _mutant(
        "replay never requires --may-double",
        "I3",
        "replay: resent, one copy failed",
        OPERATOR,
        "if record.doubts and not may_double:",
        "if False:",
    ),
    _mutant(
        "replay requires --may-double only without a receipt",
        "I3",
        "replay: resent, one copy failed",
        OPERATOR,
        "if record.doubts and not may_double:",
        "if record.doubts and not record.current_receipts.any and not may_double:",
    ),
    _mutant(
        "a replay keeps give_up_at",
        "I2",
        "replay: after give_up_at",
        OPERATOR,
        """
        round=record.round + 1,
        give_up_at=now + limits.message_max_age,
""",
        """
        round=record.round + 1,
""",
    ),
    _mutant(
        "a replay keeps expire_at",
        "I2",
        "replay: expired, discarded",
        OPERATOR,
        """
        overtook=None,
        expire_at=None,
""",
        """
        overtook=None,
""",
    ),
    _mutant(
        "a replay keeps the provider's id",
        "I2",
        "replay: its receipt said failed, without an echo",
        OPERATOR,
        """
        provider_id=None,
        bell=frozenset(),
""",
        """
        bell=frozenset(),
""",
    ),
    _mutant(
        "a replay that was killed cannot be repeated",
        "I2",
        "replay: refused for good, the command killed",
        OPERATOR,
        """
    if record.state in OPEN_STATES:
        return Step(Answer(TaskResult.ACK, record.state), next=Ensure(record))
    if is_invalid(record):""",
        """
    if record.state in OPEN_STATES:
        raise NotAllowed("It is no dead letter.")
    if is_invalid(record):""",
    ),
)

# ---- cancels

CANCELS = (
    _mutant(
        "a message that is being sent can be cancelled",
        "I3",
        "cancel: two workers, own write refused",
        OPERATOR,
        "if record.state is not State.PENDING or record.doubts or",
        "if record.final or record.doubts or",
    ),
    _mutant(
        "a cancel asks for no doubts",
        "I3",
        "cancel: resent, our backoff",
        OPERATOR,
        "if record.state is not State.PENDING or record.doubts or record.current_receipts.any:",
        "if record.state is not State.PENDING:",
    ),
)

# ---- guards and order

GUARDED = (
    _mutant(
        "no guard at the resend",
        "guards",
        "resend: a guard is false for now",
        LEASE,
        """
        return write(end(record, State.DEAD, limits, now, reason="in_doubt"))
    return _guarded(record, task, token, guard,""",
        """
        return write(end(record, State.DEAD, limits, now, reason="in_doubt"))
    return _guarded(record, task, token, Go(),""",
    ),
    _mutant(
        "a reply does not wait for the one before it",
        "I9",
        "order: two replies, two workers",
        GUARDS,
        "return record.after is None or predecessor is None or predecessor.finished",
        "return True",
    ),
)

# ---- the bell, and how long order lasts

BELLS = (
    _mutant(
        "a message rings before its end is written",
        "bell",
        "order: two replies, two workers",
        OUTBOUND,
        """
        settled = settle_with_retry(
""",
        """
        self.dispatch.ring(Step(Answer(TaskResult.ACK, "done"), rings=leased))
        settled = settle_with_retry(
""",
    ),
    _mutant(
        "whoever ends a message does not ring",
        "bell",
        "order: two replies, two workers",
        SETTLE,
        "return ringing(_settle_outbound(record, verdict, limits_of(record, limits), now, jitter), record)",
        "return _settle_outbound(record, verdict, limits_of(record, limits), now, jitter)",
    ),
    _mutant(
        "whoever finds a message final does not ring",
        "bell",
        "bell: killed, a wake task comes again",
        BELL,
        """
    record = step.write or found
""",
        """
    record = step.write or replace(found, bell=frozenset())
""",
    ),
    _mutant(
        "a cancel does not ring",
        "bell",
        "cancel: the first of two replies",
        OPERATOR,
        "return ringing(write(end(record, State.DROPPED, limits, now, reason=CANCELLED)), record)",
        "return write(end(record, State.DROPPED, limits, now, reason=CANCELLED))",
    ),
    _mutant(
        "a message that waits does not enter the bell",
        "bell",
        "bell: entered while its record ends",
        OUTBOUND,
        "if step.why == PREDECESSOR and before and may_enter(before, record):",
        "if step.why == PREDECESSOR and before and before.final:",
    ),
    _mutant(
        "a message that came too late for the bell does not look again",
        "bell",
        "bell: entered, own write refused, two workers",
        OUTBOUND,
        "if entered.write is None:",
        "if entered is None:",
    ),
    _mutant(
        "a wake task hops",
        "bell",
        "order: the first is refused, replayed",
        LEASE,
        "Ensure(record) if is_older(task, record) else Hop(",
        "Ensure(record) if is_older(task, record) and task.generation != WAKE else Hop(",
    ),
    _mutant(
        "a wake task has the name of the record's own task",
        "bell",
        "order: two replies, two workers",
        IDENTITY,
        'stable_hash("wake", waiting, finished, round_, generation, state)',
        'stable_hash("task", waiting, 0, 0)',
    ),
    _mutant(
        "a wake task is named without the round and the generation",
        "bell",
        "order: the first is refused, replayed",
        IDENTITY,
        'stable_hash("wake", waiting, finished, round_, generation, state)',
        'stable_hash("wake", waiting, finished)',
    ),
    _mutant(
        "a wake task comes back while another attempt is at work",
        "bell",
        "order: two replies, two workers",
        LEASE,
        "TaskResult.ACK if task.generation == WAKE else TaskResult.CONFLICT",
        "TaskResult.CONFLICT",
    ),
    _mutant(
        "a replay keeps who waited",
        "bell",
        "order: the first is refused, replayed",
        OPERATOR,
        """
        bell=frozenset(),
""",
        "\n",
    ),
    _mutant(
        "a message goes before its patience is over",
        "guards",
        "order: two replies, two workers",
        GUARDS,
        "if in_the_way and (ahead < patient_until or in_the_way.leased_at(now)):",
        "if in_the_way and (ahead < alone_since or in_the_way.leased_at(now)):",
    ),
    _mutant(
        "a message waits for the one before it without end",
        "I9",
        "patience: provider down",
        GUARDS,
        "if in_the_way and (ahead < patient_until or in_the_way.leased_at(now)):",
        "if in_the_way:",
    ),
    _mutant(
        "a message overtakes one that is being sent",
        "I9",
        "patience: over, killed",
        GUARDS,
        "if in_the_way and (ahead < patient_until or in_the_way.leased_at(now)):",
        "if in_the_way and ahead < patient_until:",
    ),
    _mutant(
        "patience runs during an outage",
        "I9",
        "patience: provider down",
        GUARDS,
        "return Wait(why, now + waits.claimed if marks.down.claim else probe_from, unclear)",
        "return Wait(why, now + waits.claimed if marks.down.claim else probe_from, unclear, None, task.alone_since)",
    ),
    _mutant(
        "a message does not say which one it overtook",
        "I9",
        "patience: over, our backoff, replayed",
        LEASE,
        "_leased(replace(record, overtook=overtakes or record.overtook), token,",
        "_leased(record, token,",
    ),
    _mutant(
        "a message that was elected does not say which one it overtook",
        "I9",
        "patience: provider down",
        GUARDS,
        "return Elect(frozenset(name for name, _ in claims), claims[0][1], unclear, overtakes)",
        "return Elect(frozenset(name for name, _ in claims), claims[0][1], unclear)",
    ),
    _mutant(
        "a message goes although the one before it waits too",
        "I9",
        "patience: over, three replies",
        IN_LANE,
        "if is_patience_over(task, self.limits, now):",
        "if before.final:",
    ),
    _mutant(
        "a message looks one further at each of its hops",
        "I9",
        "patience: over, three replies",
        IN_LANE,
        "if is_patience_over(task, self.limits, now):",
        "if before:",
    ),
    _mutant(
        "the wait of the one before it is found and does not count",
        "I9",
        "patience: over, three replies",
        GUARDS,
        "return task if is_given_up else replace(task, alone_since=None)",
        "return task",
    ),
    _mutant(
        "a message waits because the one before it waits for one that is given up",
        "I9",
        "patience: over, three replies, give_up_at passes",
        GUARDS,
        "return task if is_given_up else replace(task, alone_since=None)",
        "return replace(task, alone_since=None)",
    ),
    _mutant(
        "a message keeps its patience in a new generation",
        "guards",
        "patience: over, racing sweep",
        IN_LANE,
        "task = with_patience(task, record)",
        "pass",
    ),
)

# ---- turns

TWO = "turns: two events, two workers"
IN_TURNS = (
    _mutant(
        "whoever has leased an event does not look again",
        "turns",
        "turns: look and lease apart",
        INBOUND,
        "if call.code and self._is_contested(step.next.record, call, token):",
        "if call.code and not step.next.record:",
    ),
    _mutant(
        "an event looks at earlier ones only",
        "turns",
        TWO,
        TURNS,
        'return f"{turn_id}/{HANDLED}/{_moment(now)}"',
        'return f"{turn_id}/{UNTRIED}"',
    ),
    _mutant(
        "an event looks at those only that are being handled",
        "guards",
        TWO,
        TURNS,
        "beyond = _untried_place(record) if _is_untried(record) else",
        "beyond = _untried_place(record) if record.round else",
    ),
    _mutant(
        "an expired lease is in the way",
        "turns",
        TWO,
        TURNS,
        'return f"{turn_id}/{HANDLED}/{_moment(now)}"',
        'return f"{turn_id}/{HANDLED}/"',
    ),
    _mutant(
        "a failed try that waits is in the way",
        "turns",
        "turns: the handler fails, killed",
        TURNS,
        "record.state is State.PENDING and record.attempt == 0 and record.round == 0",
        "record.state is State.PENDING",
    ),
    _mutant(
        "the order is that in which they came",
        "turns",
        TWO,
        TURNS,
        'f"{_moment(sent_at or received_at)} {_moment(received_at)}',
        'f"{_moment(received_at)}',
    ),
    _mutant(
        "all contacts have one turn",
        "turns",
        "turns: two contacts",
        TURNS,
        'keyed_hash(id_key, "turn", provider, sender, contact, *apart(tenant))',
        'keyed_hash(id_key, "turn", provider, sender)',
    ),
    _mutant(
        "a contact has one turn at all senders",
        "turns",
        "turns: two senders",
        TURNS,
        'keyed_hash(id_key, "turn", provider, sender, contact, *apart(tenant))',
        'keyed_hash(id_key, "turn", provider, contact)',
    ),
    _mutant(
        "an event that waits enters no bell",
        "bell",
        TWO,
        IN_TURN,
        "while ahead and may_enter(ahead[0], event):",
        "while ahead and ahead[0].final:",
    ),
    _mutant(
        "an event that has entered a bell does not look again",
        "bell",
        TWO,
        IN_TURN,
        """
            self.store.change(ahead[0].key, lambda found: enter(found, event), seen=ahead[0])
            ahead = self._ahead(event)
""",
        """
            self.store.change(ahead[0].key, lambda found: enter(found, event), seen=ahead[0])
            break
""",
    ),
    _mutant(
        "a handler that fails rings nobody",
        "bell",
        "turns: the handler fails, killed",
        BELL,
        "return replace(step, write=emptied, next=follows, rings=record)",
        "return replace(step, write=emptied, next=follows)",
    ),
    _mutant(
        "a handler that replies rings nobody",
        "bell",
        TWO,
        SETTLE,
        "return ringing(_settle_inbound(record, verdict, limits, now, jitter), record)",
        "return _settle_inbound(record, verdict, limits, now, jitter)",
    ),
    _mutant(
        "an event goes before its patience is over",
        "guards",
        TWO,
        TURN_GUARD,
        "if now + limits.early < patient_until:",
        "if now + limits.early < alone_since:",
    ),
    _mutant(
        "an event goes beside a lease when its patience is over",
        "guards",
        "turns: patience ends, killed",
        TURN_GUARD,
        "if blocker.leased_at(now):",
        "if blocker.leased_at(now) and now < alone_since + limits.order_patience:",
    ),
    _mutant(
        "an event that is never handled is waited for forever",
        "turns",
        "turns: patience ends, killed",
        TURN_GUARD,
        "if now + limits.early < patient_until:",
        "if now + limits.early < patient_until or blocker:",
    ),
    _mutant(
        "an event does not say which one it overtook",
        "turns",
        "turns: patience ends, killed",
        INBOUND,
        "replace(guard, overtakes=turn.overtakes)",
        "guard",
    ),
    _mutant(
        "an event goes although the one before it waits too",
        "turns",
        "turns: three events, patience ends",
        TURN_GUARD,
        "if behind:",
        "if behind and until < now:",
    ),
    _mutant(
        "an event is patient while the one before it waits too",
        "turns",
        "turns: three events, patience ends",
        TURN_GUARD,
        "return Wait(TURN, until)",
        "return Wait(TURN, until, alone_since=alone_since)",
    ),
    _mutant(
        "an event keeps its patience in a new generation",
        "guards",
        "turns: patience ends, the backend is down",
        IN_TURN,
        "return turn_guard(ahead, with_patience(task, event), self.limits, self.clock.now())",
        "return turn_guard(ahead, task, self.limits, self.clock.now())",
    ),
)

# ---- outages, blocks, credentials

OUTAGES = (
    _mutant(
        "an outage spends an attempt",
        "I10",
        "outage: provider down repeatedly",
        CHANGES,
        "return give_back(record, word, code, now, throttled=record.throttled + 1)",
        "return replace(log_attempt(record, word, now, code=code), throttled=record.throttled + 1)",
    ),
    _mutant(
        "the sweep comes while a retry is not due",
        "I5",
        "outage: provider down, racing sweep",
        SETTLE,
        "waiting = schedule(reopen(postpone(record, verdict.label, code, now), State.PENDING), due_at, limits)",
        "waiting = replace(reopen(postpone(record, verdict.label, code, now), State.PENDING), due_at=due_at)",
    ),
    _mutant(
        "no attempt is elected",
        "guards",
        "outage: provider down repeatedly",
        GUARDS,
        "return Elect(frozenset(name for name, _ in claims), claims[0][1], unclear, overtakes)",
        "return Go(overtakes)",
    ),
    _mutant(
        "a claim does not ask whether the mark still stands",
        "O4",
        "every call: two workers after an outage",
        MARKS,
        "if any(getattr(current, name) != getattr(seen, name) for name in names):",
        "if not names:",
    ),
    _mutant(
        "a resend ignores the breaker",
        "O4",
        "outage: resend, answer lost, provider down",
        GUARDS,
        "if marks.down and ahead < (probe_from",
        "if marks.down and not record.doubts and ahead < (probe_from",
    ),
    _mutant(
        "a resend does not probe",
        "guards",
        "resend: receipts late, two answers lost",
        GUARDS,
        "if marks.down or record.doubts:",
        "if marks.down:",
    ),
    _mutant(
        "a doubt is judged while the provider is down",
        "I10",
        "outage: hold, answer lost, provider down",
        GUARDS,
        "unclear = record.state is State.IN_DOUBT and marks.down is not None",
        "unclear = False",
    ),
    _mutant(
        "an elected attempt whose lease is refused keeps its claim",
        "O4",
        "outage: two workers",
        OUTBOUND,
        "if not isinstance(step.next, Run):\n                senders.give_back(",
        "if not isinstance(step.next, Run) and step.write:\n                senders.give_back(",
    ),
    _mutant(
        "a probe that fails leaves the claim",
        "O4",
        "outage: provider down repeatedly",
        MARKS,
        "wait=wait, claim=None)",
        "wait=wait)",
    ),
    _mutant(
        "every attempt probes at the end of a block",
        "guards",
        "reply: blocked, killed",
        GUARDS,
        'claims.append((BLOCK, "blocked"))',
        "pass",
    ),
    _mutant(
        "a refused credential is never tried again",
        "I2",
        "credential: access denied, then granted, killed",
        MARKS,
        "until = now + limits.waits.credential_probe if is_curable else None",
        "until = None",
    ),
    _mutant(
        "a backend that refuses every call costs an attempt",
        "I10",
        "backend: refuses every call, repeatedly",
        BACKEND,
        "if failure.took and current.down is None:",
        "if current.down is None:",
    ),
    _mutant(
        "the mark of one event delays all events",
        "O7",
        "backend: two events, one fails",
        MARKS,
        "return mark is not None and mark.by in (None, event)",
        "return mark is not None",
    ),
    _mutant(
        "a second event that fails changes nothing",
        "O7",
        "backend: two events, one fails",
        MARKS,
        "joint = replace(mark, by=None)",
        "joint = mark",
    ),
    _mutant(
        "an event is sent to a backend that is down",
        "guards",
        "backend: refuses every call, repeatedly",
        INBOUND,
        "guard = code.marks.guard(seen, record)",
        "guard: Guard = Go()",
    ),
)

# ---- lanes

IN_LANES = (
    _mutant(
        "an event that its lease ends is in no conversation",
        "lanes",
        "lanes: two events, two workers, killed",
        INBOUND,
        "step = self._lease(found, owned, call.guard, task, token, joining)",
        "step = self._lease(found, owned, call.guard, task, token, as_it_is)",
    ),
    _mutant(
        "an event that ends where it was to begin is in no conversation",
        "lanes",
        "lanes: a message for later, own write refused",
        INBOUND,
        "return _ends_later",
        "return as_it_is",
    ),
    _mutant(
        "a plan is committed without the end of its lane",
        "lanes",
        "lanes: two events in turn",
        JOINED,
        "create=tuple(plan), entries=thread.entries)",
        "create=tuple(plan))",
    ),
    _mutant(
        "the first reply of a plan waits for nobody",
        "lanes",
        "lanes: two events in turn",
        JOINED,
        "reply = replace(reply, after=thread.before(now))",
        "pass",
    ),
    _mutant(
        "the first reply of a plan is the end of the lane",
        "lanes",
        "lanes: a call and two messages, one of a caller",
        JOINED,
        """                reply = replace(reply, after=thread.before(now))
            is_first = False
            thread = thread.continued(reply, now)""",
        """                reply = replace(reply, after=thread.before(now))
                thread = thread.continued(reply, now)
            is_first = False""",
    ),
    _mutant(
        "a call takes a place in the lane",
        "lanes",
        "lanes: a call and two messages, one of a caller",
        CONVERSATIONS,
        "return not reply.final and not is_call(reply.payload)",
        "return not reply.final",
    ),
    _mutant(
        "a message waits for one that is given up",
        "lanes",
        "lanes: give_up_at passes",
        CONVERSATIONS,
        "return end.key if self.is_ordered and end and now < end.until else None",
        "return end.key if self.is_ordered and end else None",
    ),
    _mutant(
        "without lanes a message waits for another plan",
        "lanes",
        "lanes: none",
        CONVERSATIONS,
        "return end.key if self.is_ordered and end and now < end.until else None",
        "return end.key if end and now < end.until else None",
    ),
    _mutant(
        "a message for later takes its place when it is stored",
        "lanes",
        "lanes: a plan and a message for later",
        CONVERSATIONS,
        "    if message.joins_lane_later:\n",
        "    if False:\n",
    ),
    _mutant(
        "a message for later stays outside the lane",
        "lanes",
        "lanes: a plan and a message for later",
        OUTBOUND,
        "        record = self._in_lane(record, access)\n",
        "",
    ),
    _mutant(
        "a message for later joins with every task",
        "lanes",
        "lanes: a plan and a message for later",
        CONVERSATIONS,
        "placed = replace(message, joins_lane_later=False, after=thread.before(now))",
        "placed = replace(message, after=thread.before(now))",
    ),
    _mutant(
        "a message for later that has joined joins again, after itself",
        "lanes",
        "lanes: a message for later, own write refused",
        OUTBOUND,
        "if found is None or thread is None or not self._joins(found):",
        "if found is None or thread is None:",
    ),
    _mutant(
        "an event without replies writes the lane of its sender",
        "lanes",
        "lanes: of a sender, an event without replies",
        CONVERSATIONS,
        "lane = (self.lane,) if self.lane and self.has_grown else ()",
        "lane = (self.lane,) if self.lane else ()",
    ),
    _mutant(
        "a sender that sends all in order has a lane for each contact",
        "lanes",
        "lanes: of a sender, two contacts, two workers",
        FINDS,
        "lane = lane_id(tenant, provider, sender) if order is Order.SENDER and self.is_ordered else None",
        "lane = None",
    ),
    _mutant(
        "a contact has one lane at all senders",
        "lanes",
        "lanes: two tenants",
        CONVERSATIONS,
        'return keyed_hash(id_key, "conversation", provider, sender, contact, *apart(tenant))',
        'return keyed_hash(id_key, "conversation", provider, contact)',
    ),
    _mutant(
        "the store does not ask whether the conversation is as it was read",
        "lanes",
        "lanes: a plan and a caller's message",
        "tests/model/lanes.py",
        "return any(stored.get(entry.id) != entry.version for entry in written)",
        "return not written and bool(stored) and False",
    ),
    _mutant(
        "a plan whose conversation has changed is committed with what was read before",
        "lanes",
        "lanes: a plan and a caller's message",
        SETTLES,
        """    while True:
        try:
            return store.change(leased.key, partial(settled, joined=joining()), leased)""",
        """    joined = joining()
    while True:
        try:
            return store.change(leased.key, partial(settled, joined=joined), leased)""",
    ),
    _mutant(
        "a caller's message is stored with what was read before",
        "lanes",
        "lanes: a plan and a caller's message",
        MESSAGES,
        """        def commit() -> tuple[Delivery, Created | Exists]:
            thread = conversations.readable_thread(party)
            if thread is None:""",
        """        thread = conversations.readable_thread(party)

        def commit() -> tuple[Delivery, Created | Exists]:
            if thread is None:""",
    ),
    _mutant(
        "the handler is asked again because the conversation has changed",
        "lanes",
        "lanes: a plan and a caller's message",
        SETTLES,
        "            if clock.monotonic() > until:\n                raise StoreUnavailable(",
        "            if clock.monotonic() <= until:\n                raise StoreUnavailable(",
    ),
)

# ---- rate limits

LIMITS = (
    _mutant(
        "an accepted message leaves the limit",
        "limit",
        "limit: another message too",
        RATE_LIMIT,
        """
        case Accepted():
            return None""",
        """
        case Accepted():
            return current""",
    ),
    _mutant(
        "a message that was accepted before a limit began ends it",
        "limit",
        "limit: another message too",
        RATE_LIMIT,
        "if current != seen:",
        "if current != seen and not isinstance(verdict, Accepted):",
    ),
    _mutant(
        "a limited message renews a limit that another one has renewed",
        "limit",
        "limit: another message too",
        RATE_LIMIT,
        "if current != seen:",
        "if current != seen and not isinstance(verdict, Limited):",
    ),
    _mutant(
        "an accepted call ends a limit",
        "limit",
        "limit: a call and a message, limited",
        "shared/pipeline/sender_marks.py",
        "is_trial = not is_call(record.payload)",
        "is_trial = True",
    ),
    _mutant(
        "a message is leased although its sender is limited",
        "guards",
        "limit: another message too",
        GUARDS,
        "if marks.limited and ahead < marks.limited.until:",
        "if marks.limited and task.hop and ahead < marks.limited.until:",
    ),
    _mutant(
        "a limit never ends by itself",
        "I2",
        "reply: limited, own write refused",
        GUARDS,
        "if marks.limited and ahead < marks.limited.until:",
        "if marks.limited:",
    ),
    _mutant(
        "patience runs while the sender is limited",
        "I9",
        "limit: two replies, limited",
        GUARDS,
        "waits, now, jitter), unclear)",
        "waits, now, jitter), unclear, None, task.alone_since or now)",
    ),
    _mutant(
        "a message that does not wait for its sender never reads the one before it",
        "I9",
        "order: two replies, two workers",
        OUTBOUND,
        "record, before, guards = self._looked(record, seen, access, task)",
        "guards = self._guards(None, seen, access, task, self.clock.now())",
    ),
)

MUTANTS: Sequence[Mutant] = (
    *FENCE,
    *DURABLE,
    *LOST,
    *TWICE,
    *THROWN_AWAY,
    *REPLAYS,
    *CANCELS,
    *GUARDED,
    *BELLS,
    *IN_TURNS,
    *IN_LANES,
    *OUTAGES,
    *LIMITS,
)
BY_NAME: Mapping[str, Mutant] = {mutant.name: mutant for mutant in MUTANTS}
