"""Settle: applies an attempt's verdict to the record."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from shared.domain import waits
from shared.domain.calls import is_call
from shared.domain.dead_letters import HANDLER, HANDLER_SAID
from shared.domain.delivery.answers import Answer, EnsureReplies, Step, TaskResult, Token
from shared.domain.delivery.bell import passing, ringing
from shared.domain.delivery.changes import (
    end_dead,
    give_back,
    limits_of,
    log_attempt,
    log_error,
    postpone,
    release,
    reschedule,
    write,
)
from shared.domain.delivery.create import create
from shared.domain.delivery.lifecycle import begin_doubt, end, reopen, schedule
from shared.domain.identity import outbound_key
from shared.domain.limits import Limits
from shared.domain.record import INVALID, Delivery, Kind, State, waiter
from shared.domain.verdicts import (
    Accepted,
    BackendDown,
    Blocked,
    CredentialRefused,
    Dropped,
    HandlerFailed,
    Limited,
    Lost,
    Origin,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    StillUnknown,
    StillUnparsable,
    Verdict,
    of_repeatable,
)


def settle(
    record: Delivery | None,
    token: Token,
    verdict: Verdict,
    limits: Limits,
    now: datetime,
    jitter: float,
) -> Step:
    """Apply one attempt's verdict. An attempt whose token is no longer current writes nothing and is answered 409."""
    if record is None:
        return Step(Answer(TaskResult.CONFLICT, "gone"))
    if record.token != token:
        return Step(Answer(TaskResult.CONFLICT, record.state))
    if record.kind is Kind.INBOUND:
        return ringing(_settle_inbound(record, verdict, limits, now, jitter), record)
    return ringing(_settle_outbound(record, verdict, limits_of(record, limits), now, jitter), record)


def _settle_inbound(record: Delivery, verdict: Verdict, limits: Limits, now: datetime, jitter: float) -> Step:
    if record.state is State.DONE:
        return Step(Answer(TaskResult.ACK, "done"), next=EnsureReplies(record))
    if record.state is not State.LEASED:
        return Step(Answer(TaskResult.CONFLICT, record.state))
    match verdict:
        case Released():
            return release(record, State.PENDING)
        case Replied(payloads, contact, invalid):
            event = replace(record, contact=record.contact or contact or "")
            logged = log_attempt(event, verdict.label, now)
            done = end(replace(logged, plan_size=len(payloads)), State.DONE, limits, now)
            plan = _plan(event, payloads, invalid, limits, now)
            follows = EnsureReplies(done, _first_tasks(plan, limits, now))
            return Step(Answer(TaskResult.ACK, "done"), done, plan, follows)
        case Dropped(said):
            told = replace(record, metadata={**record.metadata, HANDLER_SAID: said})
            return write(end(log_attempt(told, verdict.label, now), State.DROPPED, limits, now, reason=HANDLER))
        case StillUnparsable():
            return write(end(log_attempt(record, verdict.label, now), State.DEAD, limits, now, reason=verdict.label))
        case StillUnknown():
            return write(end(log_attempt(record, verdict.label, now), State.DROPPED, limits, now, reason=verdict.label))
        case HandlerFailed(error, origin):
            failed = log_error(replace(log_attempt(record, verdict.label, now), throttled=0), error, origin)
            if record.attempt >= limits.max_attempts:
                return write(end(failed, State.DEAD, limits, now, reason="error"))
            return passing(reschedule(failed, now + waits.before_retry(record.attempt, limits.waits, jitter), limits))
        case BackendDown(error, until, retry_after):
            waiting = log_error(postpone(record, verdict.label, None, now), error, Origin())
            due_at = waits.after_outage(record.throttled, until, retry_after, limits.waits, now, jitter)
            return passing(reschedule(waiting, due_at, limits))
        case _:
            raise TypeError(f"{type(verdict).__name__} is not a verdict on an event")


def _plan(
    event: Delivery,
    payloads: tuple[Mapping[str, Any], ...],
    invalid: Mapping[int, str],
    limits: Limits,
    now: datetime,
) -> tuple[Delivery, ...]:
    """The replies as records. A message waits for the message before it. A call (read, typing) waits for the reply
    before it, so calls keep their order too. Nothing waits for an invalid reply, which is dead from the start. Each has
    those that wait for it in its bell from the start.
    """
    replies: list[Delivery] = []
    last_message: str | None = None
    last: str | None = None
    for index, payload in enumerate(payloads):
        key = outbound_key(event.key, index)
        reply = create(
            Kind.OUTBOUND,
            key,
            tenant=event.tenant,
            sender=event.sender,
            contact=event.contact,
            correlation_id=event.correlation_id,
            payload=payload,
            limits=limits,
            now=now,
            after=last if is_call(payload) else last_message,
            provider=event.provider,
            refused=INVALID if index in invalid else None,
            error=invalid.get(index),
        )
        replies.append(reply)
        if index in invalid:
            continue
        last = key
        if not is_call(payload):
            last_message = key
    return tuple(replace(reply, bell=_waiting_for(reply, replies)) for reply in replies)


def _first_tasks(plan: Sequence[Delivery], limits: Limits, now: datetime) -> tuple[datetime, ...]:
    """When the first task of each reply runs: a while after that of the message before it, so that the wake task, which
    comes when that message has ended, is usually the first. Calls take no time.
    """
    messages = [reply.final or is_call(reply.payload) for reply in plan]
    return tuple(now + limits.waits.reply_spacing * messages[:index].count(False) for index in range(len(plan)))


def _waiting_for(reply: Delivery, replies: Sequence[Delivery]) -> frozenset[str]:
    return frozenset(waiter(other) for other in replies if other.after == reply.key)


def _settle_outbound(record: Delivery, verdict: Verdict, limits: Limits, now: datetime, jitter: float) -> Step:
    if record.state is State.DONE:
        return _settle_done(record, verdict, now)
    if record.state not in (State.LEASED, State.IN_DOUBT):
        return Step(Answer(TaskResult.CONFLICT, record.state))
    if isinstance(verdict, Lost) and is_call(record.payload):
        verdict = of_repeatable(verdict)
    if isinstance(verdict, Lost):
        return _settle_lost(record, verdict, limits, now)
    if isinstance(verdict, Accepted):
        logged = log_attempt(record, verdict.label, now, provider_id=verdict.provider_id)
        done = end(replace(logged, provider_id=verdict.provider_id, throttled=0), State.DONE, limits, now)
        return write(done)
    return _settle_not_accepted(record, verdict, limits, now, jitter)


def _settle_done(record: Delivery, verdict: Verdict, now: datetime) -> Step:
    """The record is done by a receipt or by this same settle: only the provider's id is left to add."""
    news = isinstance(verdict, Accepted) and verdict.provider_id and verdict.provider_id != record.provider_id
    if not (isinstance(verdict, Accepted) and news):
        return Step(Answer(TaskResult.ACK, "done"))
    logged = log_attempt(record, verdict.label, now, provider_id=verdict.provider_id)
    return Step(Answer(TaskResult.ACK, "done"), write=replace(logged, provider_id=verdict.provider_id))


def _settle_lost(record: Delivery, verdict: Lost, limits: Limits, now: datetime) -> Step:
    if record.state is State.IN_DOUBT:
        return Step(Answer(TaskResult.NACK, record.state))
    logged = replace(log_attempt(record, verdict.label, now, code=verdict.code), throttled=0)
    return Step(Answer(TaskResult.NACK, State.IN_DOUBT), write=begin_doubt(logged, limits, now))


def _settle_not_accepted(record: Delivery, verdict: Verdict, limits: Limits, now: datetime, jitter: float) -> Step:
    """The provider certainly did not take it, so a doubt that arose meanwhile was unfounded."""
    record = replace(record, doubts=record.doubts - (record.state is State.IN_DOUBT))
    match verdict:
        case Released(resend):
            return release(record, State.IN_DOUBT if resend else State.PENDING)
        case ProviderDown(code, retry_after, until):
            due_at = waits.after_outage(record.throttled, until, retry_after, limits.waits, now, jitter)
            waiting = schedule(reopen(postpone(record, verdict.label, code, now), State.PENDING), due_at, limits)
            return Step(Answer(TaskResult.NACK, waiting.state), write=waiting)
        case Retry(code):
            tried = replace(log_attempt(record, verdict.label, now, code=code), throttled=0)
            if record.attempt >= limits.max_attempts:
                return end_dead(tried, "attempts", limits, now)
            wait = max(waits.before_retry(record.attempt, limits.waits, jitter), waits.asked_for(verdict, limits.waits))
            return reschedule(tried, now + wait, limits)
        case Limited(code=code):
            waiting = postpone(record, verdict.label, code, now)
            wait = waits.before_limited(verdict, waiting.throttled, limits.waits, jitter)
            return reschedule(waiting, now + wait, limits)
        case CredentialRefused(code):
            usual = limits.waits.replaced_credential if verdict.replaced else limits.waits.credential
            wait = max(usual, verdict.retry_after or timedelta())
            return reschedule(give_back(record, verdict.answer, code, now), now + wait, limits)
        case Blocked(_, code, until):
            until = max(until or now + limits.waits.block.first, now + (verdict.retry_after or timedelta()))
            return reschedule(give_back(record, verdict.label, code, now), until, limits)
        case Refused(code, on_fault):
            refused = replace(log_attempt(record, verdict.label, now, code=code), throttled=0)
            result = TaskResult.REFUSED_ON_FAULT if on_fault else TaskResult.REFUSED
            answer = Answer(result, State.DEAD, code)
            return end_dead(refused, "permanent", limits, now, answer)
        case _:
            raise TypeError(f"{type(verdict).__name__} is not a verdict on a message")
