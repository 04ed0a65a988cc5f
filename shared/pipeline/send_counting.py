"""Counting of messages: what the internal service counts, and when it writes that."""

from typing import Protocol

from shared.domain.calls import is_call
from shared.domain.counters import Measure, ProcessCounters
from shared.domain.delivery.answers import Step
from shared.domain.errors import StoreUnavailable
from shared.domain.record import Delivery, Kind, State
from shared.pipeline.clock import Clock
from shared.pipeline.counting import Counters
from shared.pipeline.ports import Store


class SendCounting(Protocol):
    """What `ProcessOutbound` tells of each message."""

    def written(self, step: Step, is_accepted: bool) -> None:
        """This was written of a message; `is_accepted`: the provider has accepted it in this attempt."""
        ...


class NoSendCounting:
    """Counts nothing."""

    def written(self, step: Step, is_accepted: bool) -> None: ...


NO_SEND_COUNTING = NoSendCounting()


class OutboundCounting:
    """Counts messages that were sent, and those that became dead letters. Safe in threads."""

    def __init__(self, counters: Counters, store: Store, clock: Clock) -> None:
        self._counters = counters
        self._store = store
        self._clock = clock

    def written(self, step: Step, is_accepted: bool) -> None:
        record = step.write
        if record is None or record.kind is not Kind.OUTBOUND or is_call(record.payload):
            return
        tenants = (record.tenant,)
        if record.state is State.DEAD:
            self._counters.add(Measure.FAILED, tenants)
        elif record.state is State.DONE:
            self._counters.add(Measure.SENT, tenants)
            if is_accepted and record.round == 0:
                self._counters.add(Measure.SEND_TIME, tenants, self._since_due(record))

    def flush(self) -> None:
        """Write the counters if that is due. Raises nothing."""
        self._write(self._counters.due())

    def finish(self) -> None:
        """Write what is left. Raises nothing."""
        self._write(self._counters.left())

    def _since_due(self, record: Delivery) -> float:
        """Seconds. A replayed message has waited for an operator, and is not measured."""
        return (self._clock.now() - (record.send_at or record.received_at)).total_seconds()

    def _write(self, counters: ProcessCounters | None) -> None:
        if counters is None:
            return
        try:
            self._store.keep_counters(counters)
        except StoreUnavailable:
            self._counters.not_written()
