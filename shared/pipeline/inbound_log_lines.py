"""Inbound log lines: what process_inbound logs of a task."""

from shared import logs
from shared.domain.delivery.answers import Answer, Hop, Step, TaskResult
from shared.domain.guards import CREDENTIALS_UNAVAILABLE
from shared.domain.record import Delivery, State
from shared.domain.verdicts import BackendDown, HandlerFailed, HandlerVerdict, Released
from shared.pipeline import log_fields
from shared.pipeline.clock import Clock


def log_arrival(step: Step) -> None:
    """Log a task that found nothing to run: waiting leaves no other trace."""
    if step.answer.state == "waiting" and isinstance(step.next, Hop):
        logs.event(
            "inbound_waiting",
            severity="WARNING" if step.why == CREDENTIALS_UNAVAILABLE else "INFO",
            reason=step.why,
            until=step.next.until.isoformat(),
            alone_since=step.next.alone_since.isoformat() if step.next.alone_since else None,
        )


def log_end(record: Delivery, verdict: HandlerVerdict, step: Step, answer: Answer, began: float, clock: Clock) -> None:
    """Log an attempt, which began at this monotonic time, by what was written of it."""
    is_late = step.answer.result is TaskResult.CONFLICT
    name = "lease_lost" if is_late else "inbound_processing_finished"
    failure: log_fields.Fields = {}
    if isinstance(verdict, HandlerFailed | BackendDown) and step.write:
        name = "inbound_failed" if step.write.state is State.DEAD else "inbound_rescheduled"
        failure = log_fields.of_failure(step.write)
        if isinstance(verdict, HandlerFailed):
            failure = {**failure, "stack_trace": verdict.origin.stack_trace}
    elif isinstance(verdict, Released):
        name = "inbound_rescheduled"
    planned = step.write.plan_size if step.write else None
    invalid = sum(reply.state is State.DEAD for reply in step.create)
    logs.event(
        name,
        severity="INFO" if name == "inbound_processing_finished" else "WARNING",
        attempt=record.attempt,
        state=answer.state,
        status="success" if name == "inbound_processing_finished" and answer.state == State.DONE else None,
        reason=step.write.reason if step.write else None,
        verdict=verdict.label,
        **failure,
        outbound_planned=planned,
        outbound_invalid=invalid or None,
        outbound_enqueued=planned if answer.result is TaskResult.ACK else None,
        duration_ms=round((clock.monotonic() - began) * 1000, 1),
        latency_seconds=round((clock.now() - record.received_at).total_seconds(), 3),
    )
