"""What a caller may do with a message that waits: take it back."""

from dataclasses import dataclass

from shared.domain.delivery.answers import NotAllowed, Step
from shared.domain.delivery.operator import cancel
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Store


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels messages that wait. Safe to repeat."""

    store: Store
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock

    def __call__(self, key: str, seen: Delivery | None = None) -> Delivery:
        """The message as it is then. `seen` is it as last read, which saves a read. Raises NotAllowed with a sentence
        if the message is being sent or has ended, UnknownState, and StoreUnavailable: then it may still be cancelled,
        and the call may be repeated.
        """
        now = self.clock.now()
        found: list[Delivery] = []

        def decide(record: Delivery | None) -> Step:
            if record is None:
                raise NotAllowed("The message does not exist.")
            found.append(record)
            return cancel(record, self.limits, now)

        step = self.store.change(key, decide, seen)
        self.dispatch.ring(step)
        return step.write or found[-1]
