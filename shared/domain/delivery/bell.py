"""The bell of a record: who waits for it and for nothing else is woken when it has ended, and need not look."""

from dataclasses import replace

from shared.domain.delivery.answers import Answer, Ensure, Step, TaskResult
from shared.domain.record import MOST_WAITERS, Delivery, waiter


def may_enter(bell_of: Delivery, waiting: Delivery) -> bool:
    """Whether the record still has to enter the bell, and can: a full one takes no more, and then it hops alone."""
    return waiter(waiting) not in bell_of.bell and len(bell_of.bell) < MOST_WAITERS


def enter(bell_of: Delivery | None, waiting: Delivery) -> Step:
    """Write who waits. The write moves the record's version, so an attempt that is about to end the record decides
    again, and rings for this one too. One that has ended already rings no more: look again after this step.
    """
    if bell_of is None:
        return Step(Answer(TaskResult.ACK, "gone"))
    answer = Answer(TaskResult.ACK, bell_of.state)
    if bell_of.final or not may_enter(bell_of, waiting):
        return Step(answer)
    return Step(answer, write=replace(bell_of, bell=bell_of.bell | {waiter(waiting)}))


def passing(step: Step) -> Step:
    """The step of a try that has ended and comes again: it lets those that wait go first, so it rings for them and
    empties the bell in the same write.
    """
    record = step.write
    if record is None or not record.bell:
        return step
    emptied = replace(record, bell=frozenset())
    follows = replace(step.next, record=emptied) if isinstance(step.next, Ensure) else step.next
    return replace(step, write=emptied, next=follows, rings=record)


def ringing(step: Step, found: Delivery) -> Step:
    """The step with the ring that it owes: of a record that it leaves final, or that it found final. A task that finds
    it final rings again, because the one that left it final may have been killed in between.
    """
    record = step.write or found
    if step.rings:
        return step
    return replace(step, rings=record) if record.final and record.bell else step
