"""Steps: what a call of a port may be answered, and what it does to the world. Each thing that may happen is one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from shared.domain.conversations import ConversationEntry
from shared.domain.delivery.answers import Run, Step
from shared.domain.events import ReceiptBlock
from shared.domain.identity import Echo
from shared.domain.marks import Marks
from shared.domain.record import OPEN_STATES, Delivery, ReceiptKind, State, Task
from shared.domain.turns import LOOKED_AT
from shared.domain.turns import place as place_in_turn
from tests.model import invariants, lanes
from tests.model.entries import REPLAY_MAY_DOUBLE, Reached
from tests.model.ports import AWAY, CREATED, EXHAUSTED, FRESH, LATE, MADE, WRITTEN, Call
from tests.model.setting import NEVER, Setting
from tests.model.world import (
    CHANGED,
    FUTURE,
    PAST,
    REFUSED,
    REVOKED,
    Flying,
    Handed,
    Mishap,
    Row,
    Shelf,
    Worker,
    World,
    at_times_of,
    normal_marks,
    noted,
    put,
)

NOT_TAKEN = {
    "refused": Mishap.REFUSED,
    "our backoff": Mishap.RETRY,
    "provider down": Mishap.PROVIDER_DOWN,
    "limited": Mishap.LIMITED,
    "blocked": Mishap.BLOCKED,
    "credential refused": Mishap.CREDENTIAL,
    "access denied": Mishap.ACCESS_DENIED,
}
"""Answers of the provider that did not take a message."""


class Outcome(NamedTuple):
    """One thing that may happen: what the trace says of it, what the worker is told, and the world after it."""

    said: str
    answer: Any
    world: World
    ordinary: bool = True
    broken: str | None = None


class Steps:
    """What the calls of workers do, in one setting. Every world here is without the worker that calls."""

    def __init__(self, setting: Setting, shelf: Shelf) -> None:
        self._setting = setting
        self._shelf = shelf

    def outcomes(self, world: World, worker: Worker, reached: Reached) -> Iterator[Outcome]:
        """All that may happen at the worker's next call."""
        call = reached.call
        match call.name:
            case "store.get":
                yield Outcome("", self.read(world, call.args[0]), world)
            case "store.in_turn":
                yield Outcome("", self._in_turn(world, *call.args), world)
            case "handler.begin":
                broken = invariants.of_call(self._setting, world, worker)
                begun = world._replace(handling=world.handling | {worker.token})
                yield Outcome("the handler begins", "begun", begun, broken=broken)
            case "store.conversation_entries":
                yield Outcome("", lanes.read(world.entries, call.args[0]), world)
            case "store.marks":
                yield Outcome("", self._marks(world, call.args[0]), world)
            case "store.commit_marks":
                yield from self._commits_marks(world, worker, reached)
            case "channel.probe":
                yield Outcome("probes, answered", "answered", world)
                yield from _mishap(world, Mishap.PROVIDER_DOWN, "probes: provider down", "provider down")
                yield from _mishap(world, Mishap.ANSWER_LOST, "probes, no answer", "answer lost")
            case "store.overdue":
                yield Outcome("", _overdue(world), world)
            case "credentials.of" | "credentials.newest":
                yield Outcome("", world.credential, world)
            case "tenants.tenant":
                yield Outcome("", world.suspended, world)
            case "clock.monotonic":
                yield from self._times(world, worker, call)
            case "process.stopping":
                yield Outcome("", False, world)
                yield from _mishap(world, Mishap.SHUTDOWN, "is told to end", True)
            case "places.take":
                yield Outcome("", True, world)
                yield from _mishap(world, Mishap.BUSY, "finds no handler place", False)
            case "handler.call":
                yield Outcome("the handler replies", "replies", world)
                yield from _mishap(world, Mishap.HANDLER_RAISES, "the handler raises", "raises")
                yield from _mishap(world, Mishap.HANDLER_DROPS, "the handler drops it", "drops")
                yield from _mishap(world, Mishap.BACKEND_DOWN, "the backend takes nothing", "takes nothing")
                yield from _mishap(world, Mishap.BACKEND_LOST, "the backend does not answer", "does not answer")
            case "store.create":
                yield from self._creates(world, worker, reached, *call.args)
            case "store.commit":
                yield from self._commits(world, worker, reached)
            case "queue.ensure":
                yield from self._ensures(world, worker, reached)
            case "channel.send":
                yield from self._sends(world, worker, reached)
            case _:
                yield self._blind(world, call)

    # ---- reads and choices

    def read(self, world: World, key: str) -> Row | None:
        """The record with its receipts, those without an echo too."""
        row = world.rows[self._setting.place(key)]
        if row is None or not world.unechoed:
            return row
        record = row.record
        for provider_id, kind in world.unechoed:
            if provider_id == record.provider_id:
                record = noted(record, record.round, kind)
        return self._shelf.row(record)

    def _in_turn(self, world: World, first: str, beyond: str) -> tuple[Row, ...]:
        """As the stores' indexes of turns."""
        placed = [(its, row) for row in world.rows if row and (its := place_in_turn(row.record))]
        found = sorted((one for one in placed if first <= one[0] < beyond), key=lambda one: one[0], reverse=True)
        return tuple(row for _, row in found[:LOOKED_AT])

    def _times(self, world: World, worker: Worker, call: Call) -> Iterator[Outcome]:
        """A worker whose lease has run out knows by its own clock that it is late."""
        if call.args[0] == "away":
            yield Outcome("has time to try again", FRESH, world)
            yield Outcome("has no time to try again", EXHAUSTED, world)
        elif any(invariants.is_standing(world, worker, place) for place in range(len(world.rows))):
            yield Outcome("", FRESH, world)
            yield from _mishap(world, Mishap.STALL, "is late", LATE)
        else:
            yield Outcome("is late", LATE, world)

    # ---- the store's writes

    def _creates(
        self, world: World, worker: Worker, reached: Reached, record: Delivery, entries: Sequence[ConversationEntry]
    ) -> Iterator[Outcome]:
        place = self._setting.place(record.key)
        name, there = self._setting.names[place], world.rows[place]
        if there is not None:
            yield Outcome(f"finds {name} stored already", there, world)
            return
        if lanes.is_changed(world.entries, entries):
            broken = invariants.of_lost_race(worker)
            yield Outcome("finds another conversation", CHANGED, world, broken=broken)
            return
        row = self._shelf.row(record)
        broken = invariants.of_entries(self._setting, worker, reached, (record,), entries)
        after = self._in_lanes(world.with_row(place, row), None, (record,), entries)
        yield Outcome(f"stores {name}", CREATED, after, broken=broken)
        yield from _mishap(after, Mishap.AMBIGUOUS, f"stores {name}, told that it was there already", row)
        yield from _away(world, after)

    def _commits(self, world: World, worker: Worker, reached: Reached) -> Iterator[Outcome]:
        """Applied only to what was read."""
        key, found, step = reached.call.args
        current = self.read(world, key)
        now = current.record if current else None
        if now is None or now != found:
            yield Outcome("" if _is_only_later(now, found) else "finds another write before its own", REFUSED, world)
            return
        if lanes.is_changed(world.entries, step.entries):
            broken = invariants.of_lost_race(worker)
            yield Outcome("finds another conversation", CHANGED, world, broken=broken)
            return
        broken = invariants.of_write(self._setting, world, worker, reached, now, step)
        after = self._written(world, worker, now, step)
        said = _changed(self._setting.name_of(key), now, step)
        yield Outcome(said, WRITTEN, after, broken=broken)
        yield from _mishap(after, Mishap.AMBIGUOUS, f"{said}, told that it was refused", REFUSED)
        yield from _away(world, after)

    def _commits_marks(self, world: World, worker: Worker, reached: Reached) -> Iterator[Outcome]:
        """Applied only to what was read; that time has passed is no write."""
        id, found, after = reached.call.args
        whose = "backend" if id == self._setting.backend else "marks"
        current: Marks = getattr(world, whose)
        if at_times_of(current, found) != found:
            yield Outcome("finds other marks", REFUSED, world)
            return
        broken = invariants.of_marks(self._setting, worker, reached, whose, current, after)
        written = self._shelf.outdated(world, found, after)._replace(**{whose: after})
        said = f"marks: {_told(found)} → {_told(after)}"
        yield Outcome(said, WRITTEN, written, broken=broken)
        yield from _mishap(written, Mishap.AMBIGUOUS, f"{said}, told that it was refused", REFUSED)
        yield from _away(world, written)

    def _marks(self, world: World, id: str) -> Marks:
        return world.backend if id == self._setting.backend else world.marks

    def _written(self, world: World, worker: Worker, found: Delivery, step: Step) -> World:
        write = step.write
        assert write is not None
        place = self._setting.place(write.key)
        stored = world.rows[place]
        assert stored is not None
        row = self._shelf.changed(self._shelf.row(write), receipts=stored.record.receipts)  # no write touches those
        after = world.with_row(place, row)
        for record in step.create:
            other = self._setting.place(record.key)
            if after.rows[other] is None:
                after = after.with_row(other, self._shelf.row(record))
        after = self._in_lanes(after, found, lanes.records_of(step), step.entries)
        handed = _replayed(world.ledger[place], worker) if write.round > found.round else world.ledger[place]
        if isinstance(step.next, Run):
            after = after._replace(holders=put(world.holders, place, worker.token))
            handed = handed._replace(resent=handed.resent or found.state is State.IN_DOUBT)
        return after._replace(ledger=put(world.ledger, place, handed), handling=world.handling - {worker.token})

    def _in_lanes(
        self,
        world: World,
        found: Delivery | None,
        stored: Sequence[Delivery],
        entries: Sequence[ConversationEntry],
    ) -> World:
        after = lanes.after_commit(self._setting, world, found, stored)
        return after._replace(entries=lanes.with_entries(after.entries, entries)) if entries else after

    def _blind(self, world: World, call: Call) -> Outcome:
        """A write that asks for nothing."""
        match call.name:
            case "store.note_receipt":
                echo, receipt = call.args
                place = self._setting.place(echo.key)
                row = world.rows[place]
                if row is None:
                    return Outcome("names no record", False, world)
                row = self._shelf.row(noted(row.record, echo.round, receipt.kind))
                return Outcome("is noted", True, world.with_row(place, row))
            case "store.note_unechoed_receipt":
                one = (call.args[0].provider_id, call.args[0].kind)
                return Outcome("is kept by its id", WRITTEN, world._replace(unechoed=world.unechoed | {one}))
            case "store.note_receipt_block":
                noted_block: ReceiptBlock = call.args[0]
                marks = normal_marks(replace(world.marks, receipt_block=noted_block))
                return Outcome("is noted beside the marks of the sender", WRITTEN, world._replace(marks=marks))
            case name:
                raise AssertionError(f"nobody says what {name} does")

    # ---- the queue and the provider

    def _ensures(self, world: World, worker: Worker, reached: Reached) -> Iterator[Outcome]:
        task: Task = reached.call.args[0]
        name = self._setting.task_name(task)
        if task.hop > self._setting.hops:
            broken = invariants.of_task(self._setting, world, worker, reached, task)
            yield Outcome("cannot hop any further", AWAY, world, broken=broken)
        elif any(_name_of(other) == _name_of(task) for other in world.tasks | world.used):
            broken = (
                invariants.of_wake(self._setting, world, worker, reached, task, is_new=False) if task.wake else None
            )
            yield Outcome(f"finds task {name} made already", MADE, world, broken=broken)
        else:
            broken = invariants.of_task(self._setting, world, worker, reached, task)
            after = world._replace(tasks=world.tasks | {task})
            if task.wake:
                after = after._replace(rung=world.rung | {invariants.ring_of(worker, reached, task)})
            yield Outcome(f"makes task {name}", MADE, after, broken=broken)
            yield from _mishap(world, Mishap.QUEUE_AWAY, f"cannot make task {name}", AWAY)
            yield from _mishap(after, Mishap.QUEUE_AWAY, f"makes task {name}, told that it could not", AWAY)

    def _sends(self, world: World, worker: Worker, reached: Reached) -> Iterator[Outcome]:
        record, echo, _ = reached.call.args
        place = self._setting.place(record.key)
        broken = invariants.of_send(self._setting, world, worker, place)
        broken = broken or invariants.of_handover(self._setting, world, place)
        provider_id = f"{place}/{echo.round}/{world.ledger[place].this_round}"
        after = self._taken(world, place, echo, provider_id, ReceiptKind.DELIVERED)
        yield Outcome("sends it, accepted", provider_id, after, broken=broken)
        yield from _mishap(after, Mishap.ANSWER_LOST, "sends it, accepted, answer lost", "answer lost")
        yield from _mishap(world, Mishap.ANSWER_LOST, "sends it, not taken, no answer", "answer lost")
        if world.may(Mishap.FAILED_RECEIPT):
            fails = self._taken(world, place, echo, provider_id, ReceiptKind.FAILED).spent(Mishap.FAILED_RECEIPT)
            said = "sends it, accepted, to fail later"
            yield Outcome(said, provider_id, fails, ordinary=False, broken=broken)
            yield from _mishap(fails, Mishap.ANSWER_LOST, f"{said}, answer lost", "answer lost")
        for answer, mishap in NOT_TAKEN.items():
            if mishap is not Mishap.CREDENTIAL or invariants.credential_of(worker, reached) == REVOKED:
                yield from _mishap(world, mishap, f"sends it: {answer}", answer)

    def _taken(self, world: World, place: int, echo: Echo, provider_id: str, kind: ReceiptKind) -> World:
        """The provider has it; its receipt is on its way."""
        handed = world.ledger[place]
        reach = handed.reach + (kind is ReceiptKind.DELIVERED)
        ledger = put(world.ledger, place, handed._replace(this_round=handed.this_round + 1, reach=reach))
        flying = world.flying
        if self._setting.receipts != NEVER and self._setting.is_message(place):
            flying |= {Flying(place, echo.round, "" if self._setting.echo else provider_id, kind)}
        return world._replace(ledger=ledger, flying=flying)


def _mishap(world: World, mishap: Mishap, said: str, answer: Any) -> Iterator[Outcome]:
    if world.may(mishap):
        yield Outcome(said, answer, world.spent(mishap), ordinary=False)


def _away(before: World, after: World) -> Iterator[Outcome]:
    yield from _mishap(before, Mishap.STORE_AWAY, "the store is away", AWAY)
    yield from _mishap(after, Mishap.STORE_AWAY, "the store is away, but has it", AWAY)


def _overdue(world: World) -> tuple[str, ...]:
    records = [row.record for row in world.rows if row]
    return tuple(record.key for record in records if record.sweep_at == PAST and record.state in OPEN_STATES)


def _replayed(handed: Handed, worker: Worker) -> Handed:
    """A new round: one more copy is allowed if the person said so, else none beyond those that may be out."""
    may_double = worker.entry == REPLAY_MAY_DOUBLE
    return Handed(0, handed.reach, handed.reach + 1 if may_double else max(handed.allowed, handed.reach))


@lru_cache(maxsize=10_000)
def _name_of(task: Task) -> str:
    return task.name


def _is_only_later(now: Delivery | None, found: Delivery | None) -> bool:
    """Time that passes is no write, but here it changes a record. What was decided is decided again, as it is in truth,
    where the time is read last.
    """
    deadlines = ("lease_until", "due_at", "sweep_at", "give_up_at", "doubt_until")
    return now is not None and found is not None and replace(now, **{d: getattr(found, d) for d in deadlines}) == found


def _told(marks: Marks) -> str:
    """Marks in words."""
    words = []
    for name in ("down", "block", "refused"):
        mark = getattr(marks, name)
        if mark:
            by = f" by {mark.by}" if getattr(mark, "by", None) else ""
            words.append(f"{name}{by} {'in force' if mark.until == FUTURE else 'over'}, claim {mark.claim}")
    if marks.limited:
        words.append(f"limited {'in force' if marks.limited.until == FUTURE else 'over'}")
    return "; ".join(words) or "none"


def _changed(name: str, before: Delivery, step: Step) -> str:
    """What a write changes, in words."""
    after = step.write
    assert after is not None
    words = [f"{before.state} → {after.state}" if before.state is not after.state else f"{after.state} still"]
    for field in ("attempt", "generation", "round", "doubts", "reason"):
        value = getattr(after, field)
        if value != getattr(before, field) and value is not None:
            words.append(f"{field} {value}")
    if step.create:
        words.append(f"replies planned: {len(step.create)}")
    if before.joins_lane_later and not after.joins_lane_later:
        words.append("joins its lane")
    return f"{name}: {', '.join(words)}"
