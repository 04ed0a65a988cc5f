"""Moments from log lines, which the records do not hold: duplicates, waits, and how an earlier round ended.

A repeated moment is shown once: the first time, how often, and the last time.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from shared.domain.delivery.answers import LEASE_EXPIRED
from shared.domain.guards import TURN
from shared.domain.record import Delivery, State
from shared.logs import EVENTS
from shared.operations.timeline import sentences as say
from shared.operations.timeline.records import Moment
from shared.operations.timeline.sentences import Explain, with_details

DUPLICATE, DOUBT = "inbound_duplicate", "outbound_in_doubt"
WAITING = frozenset({"inbound_waiting", "outbound_waiting"})
DEATH, REPLAY = "dead_lettered", "replayed"
ENQUEUED = "outbound_enqueued"

SaidOf = Callable[[str, str, datetime], str]
"""What is known of a wait beside the log: the delivery, the reason and from when its patience counts in, a sentence or
"" out.
"""

READ = frozenset({*WAITING, DUPLICATE, DOUBT, DEATH, REPLAY, ENQUEUED})
"""The log events that add to the records."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a timeline reads of one log line."""

    at: datetime
    event: str
    delivery: str
    correlation_id: str
    provider: str = ""
    reason: str = ""
    until: datetime | None = None
    alone_since: datetime | None = None
    code: int | None = None
    round: int | None = None
    enqueued: int | None = None
    settled: bool = False
    """Whether it reports how an attempt ended, rather than what a task found."""


def read(lines: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The lines in order of time, without foreign ones: a handler may print anything."""
    found = (_line(line) for line in lines)
    return sorted((line for line in found if line is not None), key=lambda line: line.at)


def moments(lines: Sequence[Line], records: Sequence[Delivery], said_of: SaidOf) -> Iterator[Moment]:
    """What the lines add to the records. `said_of`: what a wait's sentence adds for one that is not over."""
    known = {record.key: record for record in records}
    for delivery in dict.fromkeys(line.delivery for line in lines):
        own = [line for line in lines if line.delivery == delivery]
        again = [line.at for line in own if line.event == DUPLICATE]
        if again:
            yield Moment(again[0], "duplicate", say.came_again(len(again), again[-1], again[0]), delivery)
        for wait in waits(own, known.get(delivery)):
            more = "" if wait.over else said_of(delivery, wait.reason, wait.patient_since)
            yield replace(wait.moment, sentence=f"{wait.moment.sentence}{more}")
        yield from _earlier_deaths(own, known.get(delivery))


def alone(lines: Sequence[Line], explain: Explain) -> Iterator[Moment]:
    """The moments if the record no longer exists: each event once, with how often it came."""
    explained: set[tuple[str, int | None]] = set()
    for (delivery, event, reason), group in _grouped(lines):
        first, last = group[0], group[-1]
        sentence = EVENTS[event].rstrip(".")
        often = f" ({len(group)} times, the last at {say.clock(last.at, first.at)})" if len(group) > 1 else ""
        because = f": {reason}" if reason else ""
        is_new = first.code is not None and (delivery, first.code) not in explained
        explained.add((delivery, first.code))
        meaning = explain(first.provider, first.code, "") if is_new and first.code is not None else None
        said = f"{sentence}{often}{because}." + (f" {meaning}" if meaning else "")
        yield Moment(first.at, event, with_details(said, code=first.code), delivery)


def cut_offs(lines: Sequence[Line], key: str) -> list[datetime]:
    """When the lease of a message's attempt was found expired."""
    return [line.at for line in lines if (line.delivery, line.event, line.reason) == (key, DOUBT, LEASE_EXPIRED)]


def replays(lines: Sequence[Line], key: str) -> dict[int, datetime]:
    """When an operator began each round of a delivery: the first time, if a repeated command logged it again."""
    began: dict[int, datetime] = {}
    for line in lines:
        if (line.delivery, line.event) == (key, REPLAY) and line.round is not None:
            began.setdefault(line.round, line.at)
    return began


def enqueued(lines: Sequence[Line], key: str) -> int | None:
    """How many replies to an event have their task; None if the log does not say. A retried task logs it again."""
    told = [line.enqueued for line in lines if (line.delivery, line.event) == (key, ENQUEUED)]
    return max((number for number in told if number is not None), default=None)


def deaths(lines: Sequence[Line], key: str | None) -> list[datetime]:
    """Each time that a delivery became a dead letter."""
    return [line.at for line in lines if (line.delivery, line.event) == (key, DEATH)]


def waits_for(lines: Sequence[Line], record: Delivery) -> str:
    """What a message waits for now, or ""."""
    own = list(waits([line for line in lines if line.delivery == record.key], record))
    return own[-1].reason if own and not own[-1].over else ""


@dataclass(frozen=True, slots=True)
class WaitSeen:
    """One wait, over all tasks that found it. `patient_since`: from when its patience counts, unless the record that it
    waits for waits itself.
    """

    reason: str
    over: bool
    moment: Moment
    patient_since: datetime


def waits(lines: Sequence[Line], record: Delivery | None) -> Iterator[WaitSeen]:
    """The waits of one delivery, each between two attempts."""
    tried = [attempt.at for attempt in record.attempts_log] if record else []
    looks = [line for line in lines if line.event in WAITING or (line.event == DOUBT and not line.settled)]
    for (reason, tries), group in groupby(looks, lambda line: (_reason(line), bisect_right(tried, line.at))):
        seen = list(group)
        first, last = seen[0], seen[-1]
        over = record is None or last is not looks[-1] or tries < len(tried) or not _still(record, reason, last.at)
        sentence = say.waited(reason, len(seen), first.at, last.at, last.until, over)
        # In a turn the last look says it; if the event ahead was not the first one then, the next look begins it.
        patient_since = last.alone_since or last.until or last.at if reason == TURN else first.at
        yield WaitSeen(reason, over, Moment(first.at, "waiting", sentence, first.delivery), patient_since)


def _still(record: Delivery, reason: str, at: datetime) -> bool:
    if reason == "in_doubt":
        return record.state is State.IN_DOUBT and not record.current_receipts.any
    return record.state is State.PENDING and (record.started_at is None or record.started_at <= at)


def _reason(line: Line) -> str:
    return "in_doubt" if line.event == DOUBT else line.reason


def _earlier_deaths(lines: Sequence[Line], record: Delivery | None) -> Iterator[Moment]:
    """Earlier deaths, which only the log keeps: the record has its last end, and a replay or a discard replaces the one
    before. The last attempt of that round shows what the provider said.
    """
    if record is None:
        return
    died = [line for line in lines if line.event == DEATH]
    for line in died[: len(died) - (record.state is State.DEAD)]:
        yield Moment(line.at, "dead", say.dead(line.reason or None), line.delivery)


def _grouped(lines: Sequence[Line]) -> Iterator[tuple[tuple[str, str, str], list[Line]]]:
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.delivery, line.event, line.reason), []).append(line)
    yield from groups.items()


def _line(line: Mapping[str, Any]) -> Line | None:
    event = line.get("event")
    at = _moment(line.get("time"))
    if at is None or not isinstance(event, str) or event not in EVENTS:
        return None
    return Line(
        at=at,
        event=event,
        delivery=str(line.get("delivery") or line.get("inbound_event_id") or ""),
        correlation_id=str(line.get("correlation_id") or ""),
        provider=str(line.get("provider") or ""),
        reason=str(line.get("reason") or ""),
        until=_moment(line.get("until")),
        alone_since=_moment(line.get("alone_since")),
        code=_number(line.get("code")),
        round=_number(line.get("round")),
        enqueued=_number(line.get(ENQUEUED)),
        settled="verdict" in line,
    )


def _moment(value: Any) -> datetime | None:
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else None


def _number(value: Any) -> int | None:
    """Cloud Logging gives every number as a float."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
