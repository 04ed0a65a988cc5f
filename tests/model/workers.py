"""Workers: how they begin, go on from one effect to the next, and come to their answer."""

from collections.abc import Iterator

from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Task
from tests.model import invariants
from tests.model.engine import Move
from tests.model.entries import OF_TASKS, WEBHOOK, Reached, run
from tests.model.ports import Play
from tests.model.setting import Setting, sender_number
from tests.model.steps import Steps
from tests.model.world import Mishap, Shelf, Subject, Worker, World


class Workers:
    """All that workers may do, in one setting."""

    def __init__(self, setting: Setting, shelf: Shelf) -> None:
        self._setting = setting
        self._shelf = shelf
        self.steps = Steps(setting, shelf)
        self._reached: dict[Worker, Reached] = {}
        calls = [OutboundMessage.typing("wamid.0")] * setting.calls
        messages = [OutboundMessage.text("hello")] * (setting.replies - setting.calls)
        may_stop = setting.budget[Mishap.SHUTDOWN] > 0
        may_be_busy = setting.budget[Mishap.BUSY] > 0
        self._play = Play(
            setting.messages,
            (*calls, *messages),
            setting.limits,
            may_stop,
            setting.may_be_suspended,
            may_be_busy,
            setting.backend,
            setting.turns,
            shelf,
            setting.order,
            setting.lanes,
            {sender_number(number): f"tenant {number % setting.tenants}" for number in range(1, setting.senders)},
            frozenset(setting.keys[setting.answered : setting.events]),
            setting.keys[setting.first_sent :],
            frozenset(setting.keys[setting.first_sent : setting.first_sent + setting.later]),
        )

    def begin(self, world: World, entry: str, subject: Subject, said: str, ordinary: bool) -> Iterator[Move[World]]:
        """A new worker, which comes at once as far as its first effect."""
        worker = self._shelf.worker(entry, subject, self._token(world, entry, subject))
        if self._setting.every_call:
            yield Move(said, world.plus(worker), ordinary)
        else:
            yield from self._go(world, worker, f"{said}: ", ordinary)

    def go_on(self, world: World, worker: Worker) -> Iterator[Move[World]]:
        """The next step of one that is under way; or its end, by a kill."""
        name = worker.token or self._about(worker.entry, worker.subject)
        yield from self._go(world.minus(worker), worker, f"{name}: ", True)
        if world.may(Mishap.CRASH) and not self._reach(worker).call.ends:
            after = self._shelf.without(worker.token, world.minus(worker))
            yield Move(f"{name} is killed", after.spent(Mishap.CRASH), False)

    def through(self, world: World, entry: str, subject: Subject) -> World:
        """The world after a worker whom nothing disturbs."""
        move = _ordinary(self.begin(world, entry, subject, "", True))
        while new := [worker for worker in move.state.workers if worker not in world.workers]:
            move = _ordinary(self.go_on(move.state, new[0]))
        return move.state

    def _go(self, others: World, worker: Worker, said: str, ordinary: bool) -> Iterator[Move[World]]:
        """What may happen until the worker pauses again. `others`: the world without it."""
        reached = self._reach(worker)
        if reached.call.ends:
            yield from self._answers(others, worker, reached, said, ordinary)
            return
        for outcome in self.steps.outcomes(others, worker, reached):
            further = self._shelf.answered(worker, outcome.answer)
            words = said + outcome.said
            is_ordinary = ordinary and outcome.ordinary
            if outcome.broken:
                yield Move(words, outcome.world, is_ordinary, outcome.broken)
            elif self._pauses(reached, self._reach(further), outcome.world is not others):
                words = words if outcome.said else said + reached.call.name
                yield Move(words, self._paused(outcome.world, further), is_ordinary)
            else:
                yield from self._go(outcome.world, further, words + ", " if outcome.said else words, is_ordinary)

    def _pauses(self, before: Reached, after: Reached, changed: bool) -> bool:
        """Whether something else may happen between two calls. What follows a choice follows at once: a send begins as
        soon as the clock was looked at.
        """
        if before.call.chooses:
            return False
        if self._setting.looks_apart and before.call.name == "store.in_turn":
            return True
        if before.call.name == "store.conversation_entries":
            return True  # else nobody would come between this look and the commit
        return self._setting.every_call or (changed and not after.call.ends)

    def _paused(self, others: World, worker: Worker) -> World:
        call = self._reach(worker).call
        if not call.ends:
            return others.plus(worker)
        ended = self._shelf.ended(worker, *call.args)
        return self._shelf.without(worker.token, others).plus(ended)

    def _answers(
        self, others: World, worker: Worker, reached: Reached, said: str, ordinary: bool
    ) -> Iterator[Move[World]]:
        (status,) = reached.call.args
        broken = invariants.of_answer(self._setting, others, worker, reached, status)
        after = self._shelf.without(worker.token, others)
        answered = _accomplished(after, worker) if status == 200 else after
        yield Move(f"{said}answers {status}", answered, ordinary, broken)
        if after.may(Mishap.CRASH):
            yield Move(f"{said}is killed before it answers {status}", after.spent(Mishap.CRASH), False)

    def _reach(self, worker: Worker) -> Reached:
        if worker not in self._reached:
            self._reached[worker] = run(worker, self._play)
        return self._reached[worker]

    def _token(self, world: World, entry: str, subject: Subject) -> str:
        """By what it is for, so that two workers have the same tokens in whatever order they began."""
        taken = {worker.token for worker in world.workers}
        about = self._about(entry, subject)
        return next(token for token in (f"{about} #{n}" for n in range(1, 99)) if token not in taken)

    def _about(self, entry: str, subject: Subject) -> str:
        return f"{entry} {self._setting.task_name(subject)}" if isinstance(subject, Task) else entry


def _ordinary(moves: Iterator[Move[World]]) -> Move[World]:
    return next(move for move in moves if move.ordinary)


def _accomplished(world: World, worker: Worker) -> World:
    """The world once whoever asked knows that it is done, and need not ask again."""
    subject = worker.subject
    if worker.entry == WEBHOOK:
        return world._replace(acknowledged=True)
    if not isinstance(subject, Task):
        return world
    if worker.entry in OF_TASKS:
        done = {
            task for task in world.tasks if task.key == subject.key and task.name == subject.name
        }  # its patience may have ended meanwhile
        return world._replace(tasks=world.tasks - done, used=world.used | done)
    return world._replace(commands=world.commands - {(worker.entry, subject.key)})
