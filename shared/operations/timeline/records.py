"""Moments from one record, each with its time and its sentence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.domain.calls import is_call
from shared.domain.dead_letters import DISCARDED_BECAUSE, handler_said, is_discarded, is_refused_later
from shared.domain.identity import DOCTOR_KEY
from shared.domain.listings import is_dropped_by_handler, is_of_unknown_sender
from shared.domain.record import ATTEMPTS_KEPT, INVALID, Attempt, Delivery, Kind, State, is_invalid
from shared.operations.timeline import sentences as say
from shared.operations.timeline.sentences import Explain, clock, with_details

GIVEN_BACK = frozenset(
    {"limited", "credential_refused", "credential_replaced", "blocked", "provider_down", "backend_down", "put_back"}
)
"""Results of attempts that do not count: the next attempt has the same number."""

SECOND = timedelta(seconds=1)
UNCERTAIN = frozenset({"lost", "in_doubt"})
FAILURES = frozenset({"handler_failed", "backend_down"})
"""Results that leave an error text with the record; the last one's is kept in full."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened to one delivery. `what` is a code for programs, `sentence` is for operators."""

    at: datetime
    what: str
    sentence: str
    delivery: str


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt, with what its neighbours tell: its round, and whether an earlier one left no verdict."""

    attempt: Attempt
    began: datetime
    round: int
    opens_round: bool
    follows_doubt: bool
    after_cut_off: bool
    error: str | None
    """Why it failed: the record's last error, if this attempt left it."""
    last: bool


def moments(
    record: Delivery,
    beginning: str,
    explain: Explain,
    cut_offs: Sequence[datetime],
    replays: Mapping[int, datetime],
    enqueued: int | None,
    invalid: int = 0,
) -> Iterator[Moment]:
    """The moments in causal order. `beginning` is how the record was created; `invalid`, how many of its replies cannot
    be sent. From the log: `cut_offs`, when its attempts were found cut off; `replays`, when an operator began each
    round; `enqueued`, how many of its replies have their task.
    """
    what = "received" if record.kind is Kind.INBOUND else "planned"
    yield Moment(record.received_at, what, beginning, record.key)
    found = tries(record)
    known = iter(cut_offs)
    for one in found:
        if one.opens_round:
            yield _replayed(record, one.round, one.began, replays)
        yield from _of_try(record, one, explain, known)
    reached = found[-1].round if found else 0
    if record.round > reached:
        at = record.due_at or record.finished_at or record.received_at
        yield _replayed(record, record.round, at, replays)
    yield from _of_receipts(record, found, explain)
    ending = _ending(record, found, enqueued, invalid)
    if ending is not None and record.finished_at is not None:
        yield Moment(record.finished_at, *ending, record.key)


def beginning_of_event(record: Delivery) -> str:
    return say.DOCTOR if record.key == DOCTOR_KEY else say.RECEIVED


def cannot_be_sent(record: Delivery) -> bool:
    """Whether the handler returned it as an invalid message, regardless of an operator's later decision."""
    return record.kind is Kind.OUTBOUND and record.payload.get("type") == INVALID and "content" not in record.payload


def release(record: Delivery, records: Sequence[Delivery], deaths: Sequence[datetime]) -> Iterator[Moment]:
    """When a message stopped waiting for a predecessor that was not sent, or that did not end in time. If it was sent,
    there is no moment.

    `deaths`: when the predecessor died, from the log: its record loses that once it is replayed or discarded.
    """
    moved = _first_moved(record)
    if record.overtook and moved:
        sentence = say.OVERTOOK_IN_TURN if record.kind is Kind.INBOUND else say.OVERTOOK
        began = next((one.began for one in tries(record)), moved)
        yield Moment(began, "overtook", sentence, record.key)
        return
    before = next((other for other in records if other.key == record.after), None)
    if before is None:
        return
    ends = [at for at in _unsent_ends(before, deaths) if moved is None or at <= moved]
    waits_again = moved is None and not before.final
    was_sent = before.state is State.DONE and _is_until(before.finished_at, moved)
    if ends and not waits_again and not was_sent:
        yield Moment(max(*ends, record.received_at), "released", say.RELEASED, record.key)


def _first_moved(record: Delivery) -> datetime | None:
    """When a message had certainly stopped waiting for its predecessor; None while it may still wait.

    It is the end of its first attempt rather than the beginning: the log line of a death follows the store's write.
    """
    return record.attempts_log[0].at if record.attempts_log else record.started_at or record.finished_at


def _unsent_ends(before: Delivery, deaths: Sequence[datetime]) -> Sequence[datetime]:
    """When the predecessor ended unsent. A discard does not count: the record was dead before."""
    if is_discarded(before) and deaths:
        return deaths
    own = before.finished_at if before.state in (State.DEAD, State.DROPPED) else None
    return [*deaths, own] if own else deaths


def _is_until(at: datetime | None, then: datetime | None) -> bool:
    return then is None or (at is not None and at <= then)


def tries(record: Delivery) -> list[Try]:
    """Every attempt that the record keeps, including one that left no verdict."""
    unsettled = _unsettled(record)
    attempts = [*record.attempts_log, *([unsettled] if unsettled else [])]
    return [_try(record, attempts, index) for index in range(len(attempts))]


def _try(record: Delivery, attempts: Sequence[Attempt], index: int) -> Try:
    attempt, last = attempts[index], index == len(attempts) - 1
    before = attempts[index - 1] if index and attempts[index - 1].round == attempt.round else None
    is_whole = index > 0 or len(record.attempts_log) < ATTEMPTS_KEPT
    cut_off = is_whole and attempt.attempt > (_next_number(before) if before else 1)
    doubted = cut_off or (before is not None and before.answer in UNCERTAIN)
    began = record.started_at if last and record.started_at and record.started_at <= attempt.at else attempt.at
    return Try(
        attempt=attempt,
        began=began,
        round=attempt.round,
        opens_round=attempt.round > (attempts[index - 1].round if index else 0),
        follows_doubt=doubted and _can_double(record),
        after_cut_off=cut_off,
        error=(record.last_error if _left_the_last_error(attempts, index) else None) or attempt.error,
        last=last,
    )


def _left_the_last_error(attempts: Sequence[Attempt], index: int) -> bool:
    """Whether the last error is from this attempt: the next one may be running or over without an error."""
    return index == max((i for i, attempt in enumerate(attempts) if attempt.answer in FAILURES), default=None)


def _next_number(before: Attempt) -> int:
    return before.attempt + (before.answer not in GIVEN_BACK)


def _can_double(record: Delivery) -> bool:
    """Whether a second send may reach the customer: a handler's replies are committed once, and a call (read, typing)
    is harmless when repeated.
    """
    return record.kind is Kind.OUTBOUND and not is_call(record.payload)


def _unsettled(record: Delivery) -> Attempt | None:
    """The attempt that took the last lease, if it left no verdict."""
    started = record.started_at
    if started is None or (record.attempts_log and record.attempts_log[-1].at >= started):
        return None
    if record.state is State.LEASED:
        number, answer = record.attempt, "started"
    elif record.token is None:
        number, answer = record.attempt + 1, "put_back"
    else:
        number, answer = record.attempt, _cut_off(record)
    return Attempt(started, number, answer, round=record.round)


def _cut_off(record: Delivery) -> str:
    return "in_doubt" if _can_double(record) else "cut_off"


def _replayed(record: Delivery, round_: int, latest: datetime, replays: Mapping[int, datetime]) -> Moment:
    """The moment of a replay. The record has the first attempt of a round; the log has when the round began."""
    at = min(replays.get(round_, latest), latest)
    return Moment(at, "replayed", say.REPLAYED.format(round=round_), record.key)


def _of_try(record: Delivery, one: Try, explain: Explain, cut_offs: Iterator[datetime]) -> Iterator[Moment]:
    if one.after_cut_off:
        word = _cut_off(record)
        at = min(next(cut_offs, one.began), one.began)
        sentence = with_details(say.UNSETTLED[record.kind, word], round=one.round or None)
        yield Moment(at, word, sentence, record.key)
    if one.follows_doubt:
        yield Moment(one.began, "resent", with_details(say.RESENT, round=one.round or None), record.key)
    at = one.attempt.at
    if one.attempt.answer == "in_doubt":
        at = max(at, next(cut_offs, at))
    yield Moment(at, one.attempt.answer, sentence_of_try(record, one, explain), record.key)


def sentence_of_try(record: Delivery, one: Try, explain: Explain) -> str:
    """The result of an attempt as a sentence; for the last attempt also what comes next."""
    answer, code = one.attempt.answer, one.attempt.code
    unsettled = say.UNSETTLED.get((record.kind, answer))
    sentence = unsettled or say.TRIES.get(answer, answer)
    if code is not None:
        sentence = explain(record.provider, code, answer) or sentence
    if one.error and answer == "backend_down":
        sentence = f"{one.error.rstrip('.')}. This attempt does not count."
    elif one.error:
        sentence = f"The handler failed{_where(one.attempt)}: {one.error.rstrip('.')}."
    if answer == "replied" and record.plan_size == 0:
        sentence = say.WITHOUT_REPLY if "item" in record.payload else say.NO_MESSAGE
    if one.last and is_dropped_by_handler(record):
        sentence = say.dropped_by_handler(handler_said(record))
    number = one.attempt.attempt if unsettled or answer in say.NUMBERED else None
    follows = _follows(record, one) if one.last and one.round == record.round else ""
    return with_details(f"{sentence}{follows}", attempt=number, code=code, round=one.round or None)


def _where(attempt: Attempt) -> str:
    """The team's code that failed, as the rest of a sentence that begins with "The handler failed"."""
    if not attempt.place:
        return ""
    return f" at {attempt.place} in {attempt.function}" if attempt.function else f" at {attempt.place}"


def _follows(record: Delivery, one: Try) -> str:
    """What comes next, after the last attempt."""
    answer, at = one.attempt.answer, one.attempt.at
    if record.state is State.IN_DOUBT and record.doubt_until and answer in UNCERTAIN:
        return (
            f" Waiting for a delivery receipt until {clock(record.doubt_until, at)} before deciding whether to resend."
        )
    if record.state is not State.PENDING or answer not in say.RETRIED:
        return ""
    if record.due_at is None:
        return ""
    due = clock(record.due_at, at)
    return f" Waiting until {due}." if answer == "blocked" else f" Next attempt at {due}."


def _of_receipts(record: Delivery, found: Sequence[Try], explain: Explain) -> Iterator[Moment]:
    for round_, receipts in sorted(record.receipts.items()):
        for kind, sentence in say.RECEIPTS.items():
            at = getattr(receipts, kind)
            if at is None:
                continue
            code = receipts.failed_code if kind == "failed" else None
            meaning = explain(record.provider, code, "failed") if code is not None else None
            said = f"{sentence} {meaning}" if meaning else sentence
            if kind == "failed" and round_ == record.round and is_refused_later(record):
                said += f" {say.REPLAYABLE_AS_DOUBLE if record.doubts else say.REPLAYABLE}"
            at = _as_shown(at, _handed_over(record, found, round_))
            yield Moment(at, f"receipt_{kind}", with_details(said, code=code, round=round_ or None), record.key)


def _as_shown(at: datetime, handed: Sequence[datetime]) -> datetime:
    """The displayed time of a receipt. The provider's clock has whole seconds: if it names the second in which the
    message was handed over, the receipt is shown after that.
    """
    within = [moment for moment in handed if at <= moment < at + SECOND] if at.microsecond == 0 else []
    return max([at, *within])


def _handed_over(record: Delivery, found: Sequence[Try], round_: int) -> Sequence[datetime]:
    """The times of a round that its receipts follow, even within the same second: the plan, and when the provider had
    or may have had the message.
    """
    of_round = [one for one in found if one.round == round_]
    handed = [one.attempt.at for one in of_round if one.attempt.answer in {"accepted", *UNCERTAIN}]
    return [record.received_at, *(one.began for one in of_round[-1:]), *handed]


def _ending(record: Delivery, found: Sequence[Try], enqueued: int | None, invalid: int) -> tuple[str, str] | None:
    match record.state:
        case State.DEAD if is_invalid(record):
            return "dead", say.invalid(record.last_error)
        case State.DEAD:
            return "dead", with_details(say.dead(record.reason, record.attempt), round=record.round or None)
        case State.DROPPED if is_discarded(record):
            why = say.unsendable(record.last_error) + " " if cannot_be_sent(record) else ""
            return "discarded", why + say.discarded(record.metadata.get(DISCARDED_BECAUSE))
        case State.DROPPED if is_dropped_by_handler(record):
            return None  # its last attempt says so
        case State.DROPPED:
            kept = record.expire_at if is_of_unknown_sender(record) else None
            until = f" Kept until {kept:%Y-%m-%d}." if kept else ""
            return "dropped", say.dropped(record.reason) + until
        case State.DONE if record.kind is Kind.INBOUND:
            size = record.plan_size or 0
            to_send = None if enqueued is None else min(enqueued, size - invalid)  # an invalid reply has a task too
            return "done", with_details(say.handled(size, invalid), enqueued=to_send)
        case State.DONE if not any(one.attempt.answer == "accepted" and one.round == record.round for one in found):
            return "done", with_details(say.CONFIRMED, round=record.round or None)
        case _:
            return None
