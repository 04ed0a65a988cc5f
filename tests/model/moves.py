"""Moves: all that may happen next in a world. Workers go on, Meta and the queue deliver, time passes, people decide."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from shared.domain.delivery.answers import NotAllowed
from shared.domain.delivery.operator import replay
from shared.domain.events import ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.marks import Block, Credential, Marks, Outage
from shared.domain.rate_limit import RateLimit
from shared.domain.record import OPEN_STATES, Delivery, Kind, ReceiptKind, State, Task
from tests.model import invariants, lanes
from tests.model.engine import Move
from tests.model.entries import CANCEL, DISCARD, OF_TASKS, RECEIPT, REPLAY, REPLAY_MAY_DOUBLE, SEND, SWEEP, WEBHOOK
from tests.model.ports import fingerprint
from tests.model.setting import IN_TIME, Setting
from tests.model.workers import Workers
from tests.model.world import (
    A_SECOND,
    CORRELATION,
    FUTURE,
    GOOD,
    NOW,
    PAST,
    REVOKED,
    SENDER,
    Handed,
    Mishap,
    Shelf,
    World,
    put,
)

WHOSE = {"marks": "sender", "backend": "backend"}
COMMANDS = {
    REPLAY: Mishap.REPLAY,
    REPLAY_MAY_DOUBLE: Mishap.MAY_DOUBLE,
    DISCARD: Mishap.DISCARD,
    CANCEL: Mishap.CANCEL,
}


class Model:
    """One setting, and what may happen in it."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._shelf = Shelf()
        self._workers = Workers(setting, self._shelf)

    def start(self) -> World:
        """Nothing but a webhook on its way; or (planned) what undisturbed workers leave once the plan is made."""
        places = len(self._setting.keys)
        world = World(
            rows=(None,) * places,
            holders=(None,) * places,
            ledger=(Handed(),) * places,
            gave_up=(-1,) * places,
            left=self._setting.budget,
            marks=Marks(credential=Credential(fingerprint(REVOKED), PAST)),
            lanes=((),) * len(set(self._setting.lane_numbers)),
        )
        sends = frozenset((SEND, key) for key in self._setting.keys[self._setting.first_sent :])
        if self._setting.begins == "webhook":
            return world._replace(commands=sends)
        world = self._workers.through(world, WEBHOOK, None)
        (task,) = world.tasks
        planned = self._workers.through(world, task.kind, task)
        down = Outage(PAST) if self._setting.down else None
        world = planned._replace(marks=replace(planned.marks, down=down), commands=sends)
        if not self._setting.bells:
            for place in range(self._setting.events, places):
                world = self._set(world, place, bell=frozenset())
        return world

    def final(self, world: World) -> bool:
        """Whether all has come to an end: nothing under way, every record final or deleted."""
        busy = world.workers or world.tasks or world.commands or not world.acknowledged
        return not busy and all(row is None or row.record.final for row in world.rows)

    def broken(self, world: World) -> str | None:
        return invariants.of_state(self._setting, world)

    def moves(self, world: World) -> Iterator[Move[World]]:
        """All that may happen next."""
        for worker in dict.fromkeys(world.workers):
            yield from self._workers.go_on(world, worker)
        yield from self._meta(world)
        yield from self._queue(world)
        yield from self._receipts(world)
        yield from self._guards(world)
        yield from self._callers(world)
        for place, row in enumerate(world.rows):
            if row is not None:
                yield from self._time(world, place, row.record)
                yield from self._sweep(world, place, row.record)
                yield from self._people(world, place, row.record)

    def told(self, world: World) -> Sequence[str]:
        """Where everything stands, in words."""
        tasks = ", ".join(sorted(map(self._setting.task_name, world.tasks))) or "none"
        records = [
            f"{name}: {row.record.state}, attempt {row.record.attempt}, generation {row.record.generation}"
            for name, row in zip(self._setting.names, world.rows, strict=True)
            if row
        ]
        return [*records, f"tasks: {tasks}"]

    # ---- Meta, the queue, the provider

    def _meta(self, world: World) -> Iterator[Move[World]]:
        if _busy(world, WEBHOOK) >= self._setting.webhooks:
            return
        if not world.acknowledged:
            yield from self._workers.begin(world, WEBHOOK, None, "Meta delivers the webhook", True)
        elif world.may(Mishap.POSTED_AGAIN):
            after = world.spent(Mishap.POSTED_AGAIN)
            yield from self._workers.begin(after, WEBHOOK, None, "Meta delivers the webhook again", False)

    def _queue(self, world: World) -> Iterator[Move[World]]:
        has_worker = _busy(world, *OF_TASKS) < self._setting.workers
        may_send = has_worker and _busy(world, "outbound") < self._setting.sends
        for task in sorted(world.tasks, key=self._setting.task_name):
            is_free = may_send if task.kind is Kind.OUTBOUND else has_worker
            name = self._setting.task_name(task)
            if is_free:
                yield from self._workers.begin(world, task.kind, task, f"the queue delivers {name}", True)
            if world.may(Mishap.PATIENCE) and task.alone_since == NOW:
                after = world.spent(Mishap.PATIENCE)
                over = world.tasks - {task} | {replace(task, alone_since=PAST)}
                yield Move(f"time: the patience of {name} is over", after._replace(tasks=over), False)
            if world.may(Mishap.TASK_LOST):
                after = world.spent(Mishap.TASK_LOST)
                after = after._replace(tasks=world.tasks - {task}, used=world.used | {task})
                yield Move(f"the queue loses {name}", after, False)
        for task in sorted(world.used, key=self._setting.task_name):
            name, is_free = self._setting.task_name(task), may_send if task.kind is Kind.OUTBOUND else has_worker
            if is_free and world.may(Mishap.DELIVERED_AGAIN):
                after = world.spent(Mishap.DELIVERED_AGAIN)
                yield from self._workers.begin(after, task.kind, task, f"the queue delivers {name} again", False)
            if world.may(Mishap.NAME_FREED):
                after = world.spent(Mishap.NAME_FREED)._replace(used=world.used - {task})
                yield Move(f"the name of {name} is free again", after, False)

    def _receipts(self, world: World) -> Iterator[Move[World]]:
        """No help where they may fail to come. One for what is done is asked for by nobody but a replay."""
        may_replay = world.may(Mishap.REPLAY) or world.may(Mishap.MAY_DOUBLE)
        for flying in sorted(world.flying):
            row = world.rows[flying.place]
            if row and row.record.state is State.DONE and not may_replay:
                continue
            echo = str(Echo(self._setting.keys[flying.place], flying.round, CORRELATION))
            receipt = ReceiptReceived(
                "meta",
                SENDER,
                flying.provider_id,
                flying.kind,
                PAST,
                code=131042,
                echo=echo if self._setting.echo else None,
                concerns_sender=self._setting.blocking and flying.kind is ReceiptKind.FAILED,
            )
            said = f"a receipt for {self._setting.names[flying.place]}, round {flying.round}: {flying.kind}"
            after = self._workers.through(world, RECEIPT, receipt)
            is_ordinary = self._setting.receipts == IN_TIME
            yield Move(said, after._replace(flying=world.flying - {flying}), is_ordinary)
            if world.may(Mishap.RECEIPT_TWICE):
                yield Move(f"{said}, and will come again", after.spent(Mishap.RECEIPT_TWICE), False)

    def _guards(self, world: World) -> Iterator[Move[World]]:
        marks = world.marks
        for name in ("down", "block", "refused", "limited"):
            yield from self._mark_ends(world, "marks", name)
        yield from self._mark_ends(world, "backend", "down")
        if marks.block is None and world.may(Mishap.BLOCKED_ELSEWHERE):
            blocked = replace(marks, block=Block(FUTURE, timedelta(), 0))
            after = self._shelf.outdated(world.spent(Mishap.BLOCKED_ELSEWHERE), marks, blocked)._replace(marks=blocked)
            yield Move("another message finds the sender blocked", after, False)
        if world.may(Mishap.LIMITED_ELSEWHERE) and (marks.limited is None or marks.limited.until == PAST):
            limited = replace(marks, limited=RateLimit(FUTURE, A_SECOND))
            after = self._shelf.outdated(world.spent(Mishap.LIMITED_ELSEWHERE), marks, limited)._replace(marks=limited)
            yield Move("another message finds the sender limited", after, False)
        if world.may(Mishap.SUSPENDED):
            suspended = world.spent(Mishap.SUSPENDED)._replace(suspended=True)
            yield Move("an operator suspends the tenant", suspended, False)
        if world.suspended:
            yield Move("an operator resumes the tenant", world._replace(suspended=False))
        if self._setting.budget[Mishap.CREDENTIAL] and world.credential == REVOKED:
            yield Move("another credential is put in use", world._replace(credential=GOOD))

    def _mark_ends(self, world: World, whose: str, name: str) -> Iterator[Move[World]]:
        marks: Marks = getattr(world, whose)
        mark = getattr(marks, name)
        if mark is not None and mark.until == FUTURE:
            over = replace(marks, **{name: replace(mark, until=PAST)})
            yield Move(f"time: the mark {name} of the {WHOSE[whose]} is over", world._replace(**{whose: over}))

    # ---- time

    def _time(self, world: World, place: int, record: Delivery) -> Iterator[Move[World]]:
        name = self._setting.names[place]
        match record.state:
            case State.LEASED if record.lease_until == FUTURE:
                yield Move(f"time: the lease of {name} runs out", self._set(world, place, lease_until=PAST))
            case State.PENDING if record.due_at == FUTURE:
                yield Move(f"time: {name} is due", self._set(world, place, due_at=PAST))
            case State.IN_DOUBT if record.doubt_until == FUTURE and self._doubt_may_end(world, place, record):
                yield Move(f"time: the doubt window of {name} is over", self._set(world, place, doubt_until=PAST))
            case _:
                pass
        if world.may(Mishap.GIVE_UP) and record.give_up_at == FUTURE and record.state in OPEN_STATES:
            after = world.spent(Mishap.GIVE_UP)._replace(
                gave_up=put(world.gave_up, place, record.round), entries=lanes.given_up(world.entries, record.key)
            )
            yield Move(f"time: give_up_at of {name} passes", self._set(after, place, give_up_at=PAST), False)
        if world.may(Mishap.EXPIRY) and record.expire_at and place >= self._setting.events:
            broken = None if record.state in (State.DONE, State.DROPPED) else f"I2: {name} expires while {record.state}"
            yield Move(f"time: {name} expires", world.spent(Mishap.EXPIRY).with_row(place, None), False, broken)

    def _doubt_may_end(self, world: World, place: int, record: Delivery) -> bool:
        flying = any((one.place, one.round) == (place, record.round) for one in world.flying)
        holding = any(worker.token == world.holders[place] for worker in world.workers)
        return not (self._setting.receipts == IN_TIME and flying) and not (self._setting.patient and holding)

    def _set(self, world: World, place: int, **changes: object) -> World:
        row = world.rows[place]
        assert row is not None
        return world.with_row(place, self._shelf.changed(row, **changes))

    # ---- the sweep, and people

    def _sweep(self, world: World, place: int, record: Delivery) -> Iterator[Move[World]]:
        """The scheduler's call, once sweep_at of a record has passed; never before what it waits for."""
        waits = record.due_at == FUTURE if record.state is State.PENDING else record.doubt_until == FUTURE
        if record.final or waits:
            return
        said = f"{self._setting.names[place]} is overdue, the sweep comes"
        overdue = self._set(world, place, sweep_at=PAST)
        if self._setting.sweep and self._is_forgotten(world, place):
            yield from self._workers.begin(overdue, SWEEP, None, said, True)
        elif world.may(Mishap.SWEEP):
            yield from self._workers.begin(overdue.spent(Mishap.SWEEP), SWEEP, None, said, False)

    def _is_forgotten(self, world: World, place: int) -> bool:
        """Nobody works, and neither the record nor its event has a task."""
        keys = {self._setting.keys[place], self._setting.keys[self._setting.event_of(place) or 0]}
        return world.acknowledged and not world.workers and not any(task.key in keys for task in world.tasks)

    def _callers(self, world: World) -> Iterator[Move[World]]:
        """Callers send their messages, each until it is answered."""
        for key in self._setting.keys[self._setting.first_sent :]:
            task = Task(key, Kind.OUTBOUND, CORRELATION, 0)
            is_busy = any(worker.entry == SEND and worker.subject == task for worker in world.workers)
            if (SEND, key) in world.commands and not is_busy:
                said = f"a caller sends {self._setting.name_of(key)}"
                yield from self._workers.begin(world, SEND, task, said, True)

    def _people(self, world: World, place: int, record: Delivery) -> Iterator[Move[World]]:
        """A person replays or discards what is final, or cancels a message that is not; and repeats a command that was
        not answered.
        """
        task = Task(record.key, record.kind, CORRELATION, 0)
        for entry, mishap in COMMANDS.items():
            said, command = f"a person: {entry} {self._setting.names[place]}", (entry, record.key)
            if command in world.commands:
                if not _busy(world, entry):
                    yield from self._workers.begin(world, entry, task, f"{said} once more", True)
            elif world.may(mishap) and self._is_allowed(world, record.key, entry):
                asked = world.spent(mishap)._replace(commands=world.commands | {command})
                yield from self._workers.begin(asked, entry, task, said, False)

    def _is_allowed(self, world: World, key: str, entry: str) -> bool:
        """Nobody asks for --may-double where a plain replay will do."""
        row = self._workers.steps.read(world, key)
        assert row is not None
        if entry == CANCEL:
            return row.record.kind is Kind.OUTBOUND and not row.record.final
        if entry == DISCARD:
            return row.record.state is State.DEAD
        if not row.record.final:
            return False
        plain = self._replays(row.record, may_double=False)
        return plain if entry == REPLAY else not plain and self._replays(row.record, may_double=True)

    def _replays(self, record: Delivery, may_double: bool) -> bool:
        try:
            step = replay(record, self._setting.limits, NOW, may_double)
        except NotAllowed:
            return False
        return step.write is not None


def _busy(world: World, *entries: str) -> int:
    return sum(worker.entry in entries for worker in world.workers)
