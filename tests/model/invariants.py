"""The invariants: of every state, of every write, task, send and answer. Each says what is broken; None: nothing is.

The names before the colon (I2, O4) are those of the table in docs/model.md.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from shared.domain.conversations import ConversationEntry
from shared.domain.delivery.answers import Run, Step
from shared.domain.guards import predecessor_finished, was_passed_over
from shared.domain.identity import sender_id
from shared.domain.limits import DoubtPolicy
from shared.domain.marks import Marks
from shared.domain.record import MOST_WAITERS, Delivery, Kind, State, Task, is_cancelled, waiter
from tests.model import lanes
from tests.model.entries import CANCEL, OF_TASKS, WEBHOOK, Reached
from tests.model.ports import AWAY, NOT_SENT, WRITTEN, Call, fingerprint
from tests.model.setting import IN_TIME, Setting
from tests.model.world import CHANGED, FUTURE, PAST, SENDER, Ended, Mishap, Row, Worker, World, at_times_of, claims

SENDER_MARKS = sender_id("meta", SENDER)

# ---- of every state


def of_state(setting: Setting, world: World) -> str | None:
    """What must hold at any moment."""
    for place, row in enumerate(world.rows):
        name = setting.names[place]
        if sum(task.key == setting.keys[place] and not task.wake for task in world.tasks) > setting.most_tasks:
            return f"I5: more than {setting.most_tasks} live tasks of {name}"
        if place < setting.events:
            fault = _of_event(setting, world, place, name, row)
        else:
            fault = _of_reply(setting, world, place, row)
        if fault:
            return fault
    return lanes.of_lanes(setting, world)


def _of_event(setting: Setting, world: World, place: int, name: str, row: Row | None) -> str | None:
    if (
        row is not None
        and row.record.state is State.DEAD
        and any(other and setting.event_of(reply) == place and reply != place for reply, other in enumerate(world.rows))
    ):
        return f"I2: {name} is dead although its plan is committed"
    if setting.order and row is not None and row.record.final and row.record.conversation is None:
        return f"lanes: {name} has ended, and is in no conversation"
    return None


def _of_reply(setting: Setting, world: World, place: int, row: Row | None) -> str | None:
    name, handed, of = setting.names[place], world.ledger[place], setting.event_of(place)
    event = None if of is None else world.rows[of]
    if row is None:
        expired = world.left[Mishap.EXPIRY] < setting.budget[Mishap.EXPIRY]
        is_planned = event is not None and event.record.state is State.DONE
        return f"I2: the event is done, but {name} is not there" if is_planned and not expired else None
    record = row.record
    if not setting.is_message(place):
        return None  # a call may be repeated
    if handed.this_round > 1 + handed.resent:
        return f"I3: {name} is handed over {handed.this_round} times in one round"
    if handed.reach > handed.allowed + (handed.resent and setting.receipts != IN_TIME):
        return f"I3: {handed.reach} copies of {name} reach the customer"
    if is_cancelled(record) and handed.this_round:
        return f"I3: {name} is cancelled, but was handed over"
    if record.state is State.DONE and not handed.this_round:
        return f"I2: {name} is done, but was not handed over in this round"
    if record.state is State.DEAD and record.current_receipts.any and handed.this_round and setting.receipts == IN_TIME:
        return f"I2: {name} is dead although its receipt came in time"
    return None


# ---- of every write


def of_write(
    setting: Setting, world: World, worker: Worker, reached: Reached, found: Delivery, step: Step
) -> str | None:
    """What must hold when a write is applied; `found` is the record as it is now."""
    after = step.write
    assert after is not None
    place = setting.place(after.key)
    name = setting.names[place]
    if _has_leased(worker, reached) and world.holders[place] != worker.token:
        return f"I4: {name} is written by a worker whose token stands no more"
    if after.state is State.DEAD and found.current_receipts.any:
        return f"I2: {name} is written dead over a receipt of its round"
    if after.state is State.DEAD and after.reason == "waited" and world.gave_up[place] != after.round:
        return f"I2: {name} ends by the give_up_at of an earlier round, without a try"
    if after.bell and after.round > found.round:
        return f"bell: a new round of {name} begins with who waited in the one before"
    if after.round == found.round and not after.bell >= found.bell and not _passes_on(worker, found, step):
        return f"bell: {name} forgets who waits for it"
    if _is_swept_early(setting, found, after):
        return f"I5: the sweep comes to {name} before it is due"
    if fault := _of_outage(setting, world, worker, reached, found, after):
        return fault
    if fault := of_entries(setting, worker, reached, lanes.records_of(step), step.entries):
        return fault
    if isinstance(step.next, Run) and place >= setting.events:
        return _of_lease(setting, name, worker, reached, found, after)
    if isinstance(step.next, Run) and setting.turns and (fault := _of_turn(setting, worker, reached, found, after)):
        return fault
    if isinstance(step.next, Run) and setting.backend:
        return _of_event_lease(setting.backend, name, worker, reached, found)
    return None


def of_entries(
    setting: Setting,
    worker: Worker,
    reached: Reached,
    stored: Sequence[Delivery],
    written: Sequence[ConversationEntry],
) -> str | None:
    """What must hold when a conversation is written with these records."""
    looks = [answer for call, answer in _story(worker, reached) if call.name == "store.conversation_entries"]
    return lanes.of_entries(setting, looks[-1] if looks else (), stored, written) if written else None


def of_lost_race(worker: Worker) -> str | None:
    """What must hold when a commit finds that its conversation has changed: it was read again since the last time."""
    if worker.answers[-1:] == (CHANGED,):
        return "lanes: a commit is tried again with a conversation that has changed, and that nobody has read again"
    return None


def _passes_on(worker: Worker, found: Delivery, step: Step) -> bool:
    """Whether the write ends a handler's try, which rings for all that wait and comes again without them."""
    after = step.write
    assert after is not None
    return _ends_a_try(worker, found, after) and step.rings is not None and step.rings.bell >= found.bell


def _ends_a_try(worker: Worker, found: Delivery, after: Delivery) -> bool:
    """Whether this write ends a try of the worker's handler that comes again."""
    return found.kind is Kind.INBOUND and found.token == worker.token and after.generation > found.generation


def _of_turn(setting: Setting, worker: Worker, reached: Reached, found: Delivery, after: Delivery) -> str | None:
    """What must hold when an event is leased that has a turn: the one in its way, as the worker has read last."""
    name, blocker = setting.name_of(found.key), _blocker(worker, reached)
    if blocker and blocker.state is State.LEASED:
        return f"guards: {name} is leased although {setting.name_of(blocker.key)} is being handled"
    if blocker and not _has_no_patience(worker, found):
        return f"guards: {name} is leased although it has to wait (turn)"
    if _behind_blocker(worker, reached):
        assert blocker is not None
        return f"turns: {name} overtakes {setting.name_of(blocker.key)}, which perhaps waits too"
    if after.overtook != (blocker.key if blocker else found.overtook):
        return f"turns: {name} says that it overtook {after.overtook and setting.name_of(after.overtook)}"
    return None


def _of_turn_hop(setting: Setting, worker: Worker, record: Delivery, reached: Reached) -> str | None:
    """What must hold when an event hops because of another one of its turn, and of nothing else."""
    name, blocker = setting.name_of(record.key), _blocker(worker, reached)
    if blocker is None:
        return f"turns: {name} hops though nothing is in its way"
    other = setting.name_of(blocker.key)
    if not setting.is_one_turn(record.key, blocker.key):
        return f"turns: {name} waits for {other}, which is of another contact or sender"
    is_handled = blocker.state is State.LEASED and blocker.lease_until == FUTURE
    is_earlier = _is_untried(blocker) and _is_untried(record) and setting.comes_before(blocker.key, record.key)
    if not is_handled and not is_earlier:
        return f"turns: {name} waits for {other}, which is in nobody's way"
    if waiter(record) not in blocker.bell and len(blocker.bell) < MOST_WAITERS:
        return f"bell: {name} hops and is not in the bell of {other}"
    if not is_handled and _behind_blocker(worker, reached):
        return f"turns: {name} is patient while {other} waits for its own turn"
    if _has_no_patience(worker, record) and not is_handled:
        return f"turns: {name} hops though it has waited long enough"
    return None


def _is_untried(record: Delivery) -> bool:
    return record.state is State.PENDING and not record.attempt and not record.round


def _blocker(worker: Worker, reached: Reached) -> Delivery | None:
    """The event in the way of this worker's, as it has read last."""
    return next(iter(_ahead(worker, reached)), None)


def _behind_blocker(worker: Worker, reached: Reached) -> Sequence[Delivery]:
    """What is in the way of that one, as this worker has read last."""
    return _ahead(worker, reached)[1:]


def _ahead(worker: Worker, reached: Reached) -> Sequence[Delivery]:
    """The events before this worker's in its turn, as it has read last, the nearest one first."""
    looks = [answer for call, answer in _story(worker, reached) if call.name == "store.in_turn"]
    return [row.record for row in looks[-1] if row.record.key != worker.subject.key] if looks else []


def of_call(setting: Setting, world: World, worker: Worker) -> str | None:
    """What must hold when a handler's call begins: no other one of the turn is at work within its lease, and none that
    was written earlier waits for its first try.
    """
    assert isinstance(worker.subject, Task)
    mine = setting.place(worker.subject.key)
    name, row = setting.names[mine], world.rows[mine]
    for other in world.workers:
        task = other.subject
        if other.token not in world.handling or not isinstance(task, Task):
            continue
        is_in_time = is_standing(world, other, setting.place(task.key)) and is_standing(world, worker, mine)
        if is_in_time and setting.is_one_turn(task.key, worker.subject.key):
            return f"turns: {name} is handled while {setting.name_of(task.key)} is"
    if row is None or row.record.attempt > 1 or row.record.round or row.record.overtook:
        return None
    for place in range(setting.events):
        earlier, key = world.rows[place], setting.keys[place]
        is_new = earlier is not None and _is_untried(earlier.record) and world.holders[place] is None
        if is_new and setting.comes_before(key, worker.subject.key):
            return f"turns: {name} is handled before {setting.name_of(key)}, which was written earlier"
    return None


def _of_outage(
    setting: Setting, world: World, worker: Worker, reached: Reached, found: Delivery, after: Delivery
) -> str | None:
    """I10: an outage spends no attempt and kills nothing before give_up_at, save what was lost twice."""
    place = setting.place(after.key)
    name, is_given_up = setting.names[place], world.gave_up[place] == after.round
    is_settled = _has_leased(worker, reached) and after.state is State.PENDING
    if is_settled and _met_outage(worker, reached) and after.attempt != found.attempt - 1:
        return f"I10: an outage spends an attempt of {name}"
    if after.state is not State.DEAD:
        return None
    # A lease may run out here while its worker lives: that spends an attempt of an event.
    is_reply = place >= setting.events
    reason, spending = (
        ("attempts", (Mishap.RETRY,)) if is_reply else ("error", (Mishap.HANDLER_RAISES, Mishap.BACKEND_LOST))
    )
    if after.reason == reason and not any(setting.budget[mishap] for mishap in spending):
        return f"I10: {name} is dead though nothing but outages met it"
    if after.reason == "in_doubt" and not is_given_up:
        is_last = after.attempt >= setting.attempts or after.doubts >= setting.limits.max_doubts
        if setting.policy is DoubtPolicy.RESEND and not is_last:
            return f"I10: {name} is dead after one lost answer"
        seen = marks_seen(worker, reached, _marks_of(after))
        if seen and seen.down and not _has_probed(worker, reached):
            return f"I10: a doubt about {name} is judged while the provider is down"
    return None


def _is_swept_early(setting: Setting, found: Delivery, after: Delivery) -> bool:
    """Whether a new due time has no new time for the sweep after it; the sweep itself sets a longer one."""
    if after.state is not State.PENDING or after.due_at is None or after.due_at == found.due_at or after.sweeps:
        return False
    return after.sweep_at != after.due_at + setting.limits.sweep_after


def _met_outage(worker: Worker, reached: Reached) -> bool:
    outages = {"channel.send": "provider down", "handler.call": "takes nothing"}
    return any(outages.get(call.name, call) == answer for call, answer in _story(worker, reached))


def _of_event_lease(backend: str, name: str, worker: Worker, reached: Reached, found: Delivery) -> str | None:
    """What must hold when an event is leased, which means that the backend will be asked."""
    seen = marks_seen(worker, reached, backend)
    if seen is None:
        return f"guards: {name} is leased and nobody looked at the mark of the backend"
    if seen.down and seen.down.by in (None, found.key) and seen.down.claim != worker.token:
        return f"guards: {name} is leased although the backend is down"
    return None


def _of_lease(
    setting: Setting, name: str, worker: Worker, reached: Reached, found: Delivery, after: Delivery
) -> str | None:
    """What must hold when a message is leased, which means that it will be sent."""
    before = _in_the_way(worker, reached, found)
    if before and _is_being_sent(before):
        return f"I9: {name} goes while the one before it is being sent"
    if before and not _has_no_patience(worker, found):
        return f"guards: {name} is leased although it has to wait (predecessor)"
    if before and (not _has_looked_behind(worker, reached, before) or _waits_in_lane(worker, reached, before)):
        return f"I9: {name} overtakes {setting.name_of(before.key)}, which perhaps waits too"
    if after.overtook != (before.key if before else found.overtook):
        return f"I9: {name} says that it overtook {after.overtook and setting.name_of(after.overtook)}"
    if why := _held_back(setting, worker, reached, found):
        return f"guards: {name} is leased although it has to wait ({why})"
    if found.current_receipts.any:
        return f"I3: {name} is leased although a receipt of its round is there"
    if found.state is State.IN_DOUBT and not (setting.policy is DoubtPolicy.RESEND and found.doubt_until == PAST):
        return f"I3: {name} is leased out of a doubt that is not over"
    return None


def _held_back(setting: Setting, worker: Worker, reached: Reached, found: Delivery) -> str | None:
    """What else this worker has read that forbids it to send."""
    if setting.may_be_suspended and _tenant_seen(worker, reached) is not False:
        return "suspended"
    seen = marks_seen(worker, reached, _marks_of(found))
    if seen is None:
        return "nobody looked at the marks"
    in_use = fingerprint(credential_of(worker, reached))
    if seen.refused and seen.refused.fingerprint == in_use and seen.refused.claim != worker.token:
        return "credential"
    if seen.block and seen.block.claim != worker.token:
        return "blocked"
    if seen.down and seen.down.claim != worker.token:
        return "provider down"
    if (found.doubts or seen.down) and not _has_probed(worker, reached):
        return "not probed"
    return "limited" if seen.limited and seen.limited.until == FUTURE else None


def _in_the_way(worker: Worker, reached: Reached, record: Delivery) -> Delivery | None:
    """The message before it, if that has not ended, as this worker has read or written it last."""
    before = _before_it(worker, reached, record)
    return None if predecessor_finished(record, before) else before


def _before_it(worker: Worker, reached: Reached, record: Delivery) -> Delivery | None:
    """The message that it waits for: those that were cancelled before their turn are looked behind."""
    before = _last_shown(worker, reached, record.after)
    while before is not None and was_passed_over(before):
        before = _last_shown(worker, reached, before.after)
    return before


def _has_looked_behind(worker: Worker, reached: Reached, before: Delivery) -> bool:
    """Whether this worker has read the message that the one before its own waits for; true if that waits for none."""
    reads = [call.args[0] for call, _ in _story(worker, reached) if call.name == "store.get"]
    return before.after is None or before.after in reads


def _waits_in_lane(worker: Worker, reached: Reached, before: Delivery) -> bool:
    """Whether that one waits for another message itself, which is not given up, as this worker has read."""
    behind = _in_the_way(worker, reached, before)
    return behind is not None and behind.give_up_at != PAST


def _is_being_sent(before: Delivery) -> bool:
    return before.state is State.LEASED and before.lease_until == FUTURE


def _has_no_patience(worker: Worker, record: Delivery) -> bool:
    """Whether the worker's task has waited for the one before, and for nothing else, for as long as it may. Each
    generation begins anew.
    """
    task = worker.subject
    return isinstance(task, Task) and task.alone_since == PAST and task.generation >= record.generation


def _tenant_seen(worker: Worker, reached: Reached) -> bool | None:
    """Whether the tenant is suspended, as this worker has read; None if it has not looked."""
    return next((answer for call, answer in _story(worker, reached) if call.name == "tenants.tenant"), None)


def _has_probed(worker: Worker, reached: Reached) -> bool:
    return any(call.name == "channel.probe" and answer == "answered" for call, answer in _story(worker, reached))


def of_marks(setting: Setting, worker: Worker, reached: Reached, whose: str, before: Marks, after: Marks) -> str | None:
    """What must hold when marks are written; `before` are those that stand now."""
    for name in ("down", "block", "refused"):
        old, new = getattr(before, name), getattr(after, name)
        is_claim = new is not None and new.claim == worker.token and (old is None or old.claim != worker.token)
        if is_claim and old is not None and old.until != PAST:
            return f"O4: an attempt is elected while the mark {name} is in force"
    if before.down and after.down is None:
        if not _was_answered(worker, reached):
            return f"O4: the breaker of the {whose} is closed without an answer"
        if _first_marks(worker, reached, whose).down is None:
            return f"O2: the breaker of the {whose} is closed by an answer to a call that began before it opened"
    if before.limited != after.limited and (fault := _of_limit(setting, worker, reached, before, after)):
        return fault
    subject = worker.subject
    if whose == "backend" and before.down and after.down and isinstance(subject, Task) and _failed(worker, reached):
        is_second = before.down.by not in (None, subject.key)
        if is_second and after.down.by is not None:
            return "O7: two events have failed, and the mark holds back one of them alone"
    return None


def _of_limit(setting: Setting, worker: Worker, reached: Reached, before: Marks, after: Marks) -> str | None:
    """What must hold when a rate limit begins, goes on or ends."""
    seen, answer = _first_marks(worker, reached, "marks"), _sent(setting, worker, reached)
    if after.limited and answer != "limited":
        return "limit: a sender is marked as limited without such an answer"
    if after.limited is None and answer != "accepted":
        return "limit: a limit ends although no message was accepted"
    if not _is_still(before, seen):
        return "limit: an answer changes a limit that has changed since its attempt looked"
    return None


def _is_still(now: Marks, seen: Marks) -> bool:
    """Whether the limit is the one that was seen, whatever time has passed."""
    return at_times_of(now, seen).limited == seen.limited


def _sent(setting: Setting, worker: Worker, reached: Reached) -> str | None:
    """What the provider answered to this worker's send; None if it sent nothing, or a call that it took."""
    for call, answer in _story(worker, reached):
        if call.name == "channel.send":
            is_call = not setting.is_message(setting.place(call.args[0].key))
            return answer if answer in NOT_SENT else None if is_call else "accepted"
    return None


def _first_marks(worker: Worker, reached: Reached, whose: str) -> Marks:
    """The marks that the worker acted by: as it read or claimed them before its call."""
    id = SENDER_MARKS if whose == "marks" else whose
    acted = Marks()
    for call, answer in _story(worker, reached):
        if call.name in ("channel.send", "handler.call"):
            break
        if call.name == "store.marks" and call.args[0] == id:
            acted = answer
        elif call.name == "store.commit_marks" and call.args[0] == id and answer == WRITTEN:
            acted = call.args[2]
    return acted


def _failed(worker: Worker, reached: Reached) -> bool:
    failures = ("takes nothing", "does not answer")
    return any(call.name == "handler.call" and answer in failures for call, answer in _story(worker, reached))


def _was_answered(worker: Worker, reached: Reached) -> bool:
    for call, answer in _story(worker, reached):
        match call.name:
            case "channel.probe" if answer == "answered":
                return True
            case "channel.send" if answer not in ("answer lost", "provider down"):
                return True
            case "handler.call" if answer not in ("takes nothing", "does not answer"):
                return True
            case _:
                pass
    return False


# ---- of every task, send and answer


def of_task(setting: Setting, world: World, worker: Worker, reached: Reached, task: Task) -> str | None:
    """What must hold when a task is made: one that knows of a newer generation starts no hop."""
    if task.wake:
        return of_wake(setting, world, worker, reached, task, is_new=True)
    seen = [record for call, answer in _story(worker, reached) for record in _shown(call, answer)]
    newest = next((record for record in reversed(seen) if record.key == task.key), None)
    if task.hop and newest is not None and task.generation < newest.generation:
        return f"I5: an older task of {setting.name_of(task.key)} keeps a chain of its own"
    if (
        task.hop
        and setting.backend
        and newest is not None
        and newest.kind is Kind.INBOUND
        and not _blocker(worker, reached)
    ):
        backend = marks_seen(worker, reached, setting.backend)
        if backend and backend.down and backend.down.by not in (None, task.key) and newest.due_at == PAST:
            return f"O7: {setting.name_of(task.key)} waits though only another event failed"
    if task.alone_since and newest and newest.kind is Kind.INBOUND:
        return _of_turn_hop(setting, worker, newest, reached)
    return _of_lonely_hop(setting, worker, reached, newest) if task.alone_since and newest else None


def _of_lonely_hop(setting: Setting, worker: Worker, reached: Reached, record: Delivery) -> str | None:
    """What must hold when a message hops because of the one before it, and of nothing else."""
    name, before = setting.name_of(record.key), _in_the_way(worker, reached, record)
    if _waits_for_more(setting, worker, reached, record):
        return f"I9: {name} loses patience while it waits for something else"
    if before is None:
        return f"bell: {name} hops though the one before it has ended"
    if waiter(record) not in before.bell and len(before.bell) < MOST_WAITERS:
        return f"bell: {name} hops and is not in the bell of {setting.name_of(before.key)}"
    is_over = _has_no_patience(worker, record)
    if before.after and _has_looked_behind(worker, reached, before) and not is_over:
        return f"I9: {name} looks behind {setting.name_of(before.key)} before its patience is over"
    if is_over and not _is_being_sent(before) and not _waits_in_lane(worker, reached, before):
        return f"I9: {name} hops though it has waited long enough"
    return None


def _waits_for_more(setting: Setting, worker: Worker, reached: Reached, record: Delivery) -> bool:
    """Whether something other than the message before it is in its way, as this worker has read."""
    seen = marks_seen(worker, reached, _marks_of(record))
    assert seen is not None
    refused = (
        seen.refused
        if seen.refused and seen.refused.fingerprint == fingerprint(credential_of(worker, reached))
        else None
    )
    is_suspended = setting.may_be_suspended and _tenant_seen(worker, reached) is not False
    ends = (seen.block, seen.down, refused, seen.limited)
    return (
        is_suspended or FUTURE in (record.due_at, record.doubt_until) or any(one and one.until != PAST for one in ends)
    )


def of_wake(setting: Setting, world: World, worker: Worker, reached: Reached, task: Task, is_new: bool) -> str | None:
    """What must hold when a record is rung for: it has ended, and each of its ends wakes who waits once."""
    name = setting.name_of(task.key)
    assert isinstance(worker.subject, Task)
    ended = _last_shown(worker, reached, worker.subject.key)
    if ended is None or not (ended.final or _has_failed_try(worker, reached)):
        return f"bell: {name} is woken though nobody has seen the end of {setting.name_of(worker.subject.key)}"
    if not is_new and ring_of(worker, reached, task) not in world.rung:
        return f"bell: {name} is not woken, its wake task has the name of another one"
    return None


def _has_failed_try(worker: Worker, reached: Reached) -> bool:
    """Whether the worker has written that a handler's try has ended and comes again."""
    return any(
        call.name == "store.commit" and answer == WRITTEN and call.args[2].rings and not call.args[2].write.final
        for call, answer in _story(worker, reached)
    )


def ring_of(worker: Worker, reached: Reached, task: Task) -> tuple[str, str, int, int, State]:
    """Who is woken by this task, and which end of which record wakes it."""
    assert isinstance(worker.subject, Task)
    ended = _last_shown(worker, reached, worker.subject.key)
    return (
        (task.key, ended.key, ended.round, ended.generation, ended.state) if ended else (task.key, "", 0, 0, State.DONE)
    )


def of_send(setting: Setting, world: World, worker: Worker, place: int) -> str | None:
    """What must hold when a send begins."""
    if not is_standing(world, worker, place):
        return f"I4: the send of {setting.names[place]} begins though its lease has run out"
    return None


def of_handover(setting: Setting, world: World, place: int) -> str | None:
    """What must hold when the provider takes a message, before it is counted. Calls have no order; a replayed message
    may come after its successor, and so may a resend.
    """
    row, lane = world.rows[place], lanes.in_order(setting, world, place)
    if not setting.is_message(place) or row is None or row.record.round or world.ledger[place].this_round:
        return None
    if place not in lane:
        return f"lanes: {setting.names[place]} is handed over outside its lane"
    for other in lane:
        there, is_earlier = world.rows[other], lane.index(other) < lane.index(place)
        is_open = there is not None and not there.record.round and not there.record.finished
        if other == place or lanes.is_apart(world, lane, other, place):
            continue
        if is_earlier and is_open:
            return f"I9: {setting.names[place]} is handed over before {setting.names[other]}"
        if not is_earlier and world.ledger[other].this_round:
            return f"I9: {setting.names[place]} is handed over after {setting.names[other]}"
    return None


def of_answer(setting: Setting, world: World, worker: Worker, reached: Reached, status: int) -> str | None:
    """What must hold when a worker answers."""
    if status >= 500 and CHANGED in worker.answers and AWAY not in worker.answers:
        return "lanes: an attempt fails because its conversation has changed, and what it did is done again"
    if worker.entry == WEBHOOK and status == 200:
        for place in range(setting.events):
            if not _is_durable(world, place):
                return f"I1: Meta is answered 200, but {setting.names[place]} is not stored with its task"
    if worker.token in claims(world) and not any(answer == AWAY for answer in worker.answers):
        return f"O4: an attempt answers {status} and keeps its claim"
    if worker.answers and isinstance(worker.answers[0], Ended):
        return None  # what it did is forgotten
    if _sent(setting, worker, reached) == "accepted" and AWAY not in worker.answers:
        seen = _first_marks(worker, reached, "marks")
        if seen.limited and _is_still(world.marks, seen):
            return "limit: an accepted message leaves the limit that it saw"
    if setting.patient and status == 409:
        return _thrown_away(setting, world, worker, reached)
    return _of_bell(setting, worker, reached, status)


def _of_bell(setting: Setting, worker: Worker, reached: Reached, status: int) -> str | None:
    """Whoever knows that a record has ended, and comes no more, has rung for all in its bell. A wake task does not come
    back because another attempt is at work.
    """
    task = worker.subject
    if not isinstance(task, Task) or worker.entry not in (*OF_TASKS, CANCEL):
        return None
    if task.wake and status == 409 and not _has_held(worker, reached, task.key):
        return f"bell: a wake task of {setting.name_of(task.key)} comes back"
    ended = _last_shown(worker, reached, task.key)
    waiting = _passed_on(worker, reached)
    if waiting is None:
        if status != 200 or ended is None or not ended.final or (worker.entry == CANCEL and not is_cancelled(ended)):
            return None
        waiting = ended.bell
    made = [(call.args[0], answer) for call, answer in _story(worker, reached) if call.name == "queue.ensure"]
    rung = {waiter_of(other) for other, _ in made if other.wake}
    if not rung >= waiting and not any(answer == AWAY for _, answer in made):
        return f"bell: {setting.name_of(task.key)} has ended, and who waits for it is not woken"
    return None


def _passed_on(worker: Worker, reached: Reached) -> frozenset[str] | None:
    """Who waited for the event whose try this worker has ended without ending the event; None: it did no such thing."""
    for call, answer in _story(worker, reached):
        if call.name == "store.commit" and answer == WRITTEN:
            _, found, step = call.args
            if _ends_a_try(worker, found, step.write):
                bell: frozenset[str] = found.bell
                return bell
    return None


def waiter_of(task: Task) -> str:
    """The record of a task as a bell names it."""
    return f"{task.key}.{task.correlation_id}"


def _is_durable(world: World, place: int) -> bool:
    """Whether the record is there, and its task too, unless somebody has worked on it already."""
    row = world.rows[place]
    if row is None:
        return False
    is_new = row.record.state is State.PENDING and not row.record.attempt and not row.record.generation
    name = Task.of(row.record).name
    return not is_new or any(task.name == name for task in world.tasks | world.used)


def _thrown_away(setting: Setting, world: World, worker: Worker, reached: Reached) -> str | None:
    for call, answer in _story(worker, reached):
        if call.name == "channel.send" and answer not in NOT_SENT:
            sent, echo, _ = call.args
            row = world.rows[setting.place(sent.key)]
            if row and row.record.round == echo.round and row.record.state is not State.DONE:
                return f"I2: the answer to {setting.name_of(sent.key)} is thrown away"
    return None


# ---- what a worker has done and seen


def marks_seen(worker: Worker, reached: Reached, id: str) -> Marks | None:
    """The marks of this id as the worker has read or written them last."""
    last: Marks | None = None
    for call, answer in _story(worker, reached):
        if call.name == "store.marks" and call.args[0] == id:
            last = answer
        elif call.name == "store.commit_marks" and call.args[0] == id and answer == WRITTEN:
            last = call.args[2]
    return last


def _marks_of(record: Delivery) -> str:
    """The id of the marks of a message's sender."""
    return sender_id(record.provider, record.sender)


def is_standing(world: World, worker: Worker, place: int) -> bool:
    """Whether the lease that this worker took is there and has time left."""
    row = world.rows[place]
    is_held = row is not None and row.record.state is State.LEASED and row.record.lease_until == FUTURE
    return is_held and world.holders[place] == worker.token


def credential_of(worker: Worker, reached: Reached) -> int:
    """The one that the worker's process has."""
    looked: int = next(answer for call, answer in _story(worker, reached) if call.name == "credentials.of")
    return looked


def _has_leased(worker: Worker, reached: Reached) -> bool:
    return any(
        call.name == "store.commit" and answer == WRITTEN and isinstance(call.args[2].next, Run)
        for call, answer in _story(worker, reached)
    )


def _has_held(worker: Worker, reached: Reached, key: str) -> bool:
    """Whether the worker had the lease, as it has read or written."""
    shown = (record for call, answer in _story(worker, reached) for record in _shown(call, answer))
    return any(record.key == key and record.token == worker.token for record in shown)


def _last_shown(worker: Worker, reached: Reached, key: str | None) -> Delivery | None:
    """The record as the worker has read or written it last; None if it is gone or was never looked at."""
    last: Delivery | None = None
    for call, answer in _story(worker, reached):
        if call.name == "store.get" and call.args[0] == key:
            last = None
        last = next((record for record in _shown(call, answer) if record.key == key), last)
    return last


def _shown(call: Call, answer: object) -> Sequence[Delivery]:
    """The records that a call has shown."""
    if call.name == "store.commit" and answer == WRITTEN:
        return [call.args[2].write]
    if call.name == "store.in_turn" and isinstance(answer, tuple):
        return [row.record for row in answer]
    return [answer.record] if isinstance(answer, Row) else []


def _story(worker: Worker, reached: Reached) -> Iterator[tuple[Call, Any]]:
    return zip(reached.asked, worker.answers, strict=True)
