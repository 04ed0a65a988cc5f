"""The end of a contact's message, in its conversation: its replies take their places at the end of the lane."""

from dataclasses import replace
from datetime import datetime

from shared.domain.conversations import Thread, takes_place
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.record import Delivery


def with_conversation(step: Step, thread: Thread, sent_at: datetime, now: datetime) -> Step:
    """The step that ends a contact's message, with its conversation in the same commit: the first message of the plan
    waits for the last one of the lane. A step that does not end it stays as it is.
    """
    if step.write is None or not step.write.final:
        return step
    if step.write.conversation is None:  # one that was replayed has been heard before
        thread = thread.heard(sent_at)
    plan: list[Delivery] = []
    is_first = True
    for reply in step.create:
        reply = replace(reply, conversation=thread.id)
        if takes_place(reply):
            if is_first:
                reply = replace(reply, after=thread.before(now))
            is_first = False
            thread = thread.continued(reply, now)
        plan.append(reply)
    event = replace(step.write, conversation=thread.id)
    return replace(step, write=event, create=tuple(plan), entries=thread.entries)


def moved_up(record: Delivery | None, after: str | None) -> Step:
    """The step by which a message waits for another one further on in its lane, because all those between them ended
    before their turn came. One that has ended waits for none.
    """
    if record is None or record.final:
        return Step(Answer(TaskResult.ACK, record.state if record else "gone"))
    return Step(Answer(TaskResult.ACK, record.state), write=replace(record, after=after))
