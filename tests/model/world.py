"""The world: all that is outside the code that runs, as one value that never changes.

Time has no numbers here. Of a deadline in a record it only counts whether it has passed, and any may pass before any
other: every order of lease, due time, doubt window and the rest is explored, also those that the real numbers forbid.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, auto
from typing import Any, NamedTuple

from shared.domain.conversations import ConversationEntry
from shared.domain.events import ReceiptReceived
from shared.domain.marks import Marks
from shared.domain.rate_limit import RateLimit
from shared.domain.record import Delivery, ReceiptKind, Receipts, State, Task
from shared.stores.records import receipts_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAST, FUTURE = NOW - timedelta(days=1), NOW + timedelta(days=1)
SENDER, TENANT, CORRELATION = "100000000000001", "default", "correlation"

REVOKED, GOOD = 0, 1
"""Credentials: the first one may come to be refused, the second never is."""

NOBODY = "nobody's"
"""The token of a worker that is no more: no other can have it, and all such are alike."""

OUTDATED, OUTDATED_CODE = timedelta(days=999), 999
"""In a mark that a worker has read: it was written since."""

CHANGED = "conversation changed"
"""The answer to a commit with a conversation that is no longer what was read: nothing is written."""

A_SECOND = timedelta(seconds=1)
"""The wait of every rate limit: without one the next limit would be over at once."""

REFUSED = "write refused"
"""The answer to a write whose record is no longer what was read: it is read again."""

Subject = Task | ReceiptReceived | None


class Mishap(IntEnum):
    """What may go wrong, or be done from outside. A setting says how often each may happen."""

    CRASH = 0  # a process dies between two effects, or its answer to the caller is lost
    AMBIGUOUS = auto()  # a write is applied and reported refused: the client library made it twice
    STORE_AWAY = auto()  # a write is reported unavailable, applied or not
    QUEUE_AWAY = auto()  # a task is reported not made, made or not
    DELIVERED_AGAIN = auto()  # a task that was answered 200; one that was not may come at any time, also twice at once
    TASK_LOST = auto()  # the queue forgets a task
    NAME_FREED = auto()  # the queue forgets that a name was used
    POSTED_AGAIN = auto()  # Meta delivers what was answered 200
    HANDLER_RAISES = auto()
    HANDLER_DROPS = auto()
    BUSY = auto()  # other messages of the tenant have all its handler places
    SHUTDOWN = auto()  # the process is told to end before the handler ended, or the send began
    STALL = auto()  # half a minute passes between lease and send; the lease still stands
    ANSWER_LOST = auto()  # the provider's, whether it took the message or not
    REFUSED = auto()  # for good
    RETRY = auto()  # this message, for now: our backoff
    PROVIDER_DOWN = auto()  # the provider refuses as a whole
    LIMITED = auto()
    LIMITED_ELSEWHERE = auto()  # the sender, as the answer to another message
    BLOCKED = auto()  # the sender, as the answer to a send
    BLOCKED_ELSEWHERE = auto()  # the sender, as another message found
    CREDENTIAL = auto()  # refused for good
    ACCESS_DENIED = auto()  # refused, and perhaps not for good
    BACKEND_DOWN = auto()  # the backend takes nothing
    BACKEND_LOST = auto()  # the backend does not answer in time
    GIVE_UP = auto()  # give_up_at passes
    PATIENCE = auto()  # a message has waited for the one before it, and for nothing else, for as long as it may
    FAILED_RECEIPT = auto()  # accepted, but its receipt will say failed
    RECEIPT_TWICE = auto()
    SWEEP = auto()  # comes although nothing is wrong
    REPLAY = auto()
    MAY_DOUBLE = auto()  # a replay with --may-double
    DISCARD = auto()
    CANCEL = auto()  # its caller takes a message back
    EXPIRY = auto()  # expire_at passes and the record is deleted
    SUSPENDED = auto()  # an operator suspends the tenant


class Row:
    """A stored record. Equal records are one and the same row, so that worlds are compared quickly."""

    __slots__ = ("record",)

    def __init__(self, record: Delivery) -> None:
        self.record = record


class Worker:
    """Whoever runs an entry point: a request, a sweep, a person's command. It is what it was called with (`subject`: a
    task or a receipt) and the answers that its calls of the ports have got. Equal workers are one and the same object.
    """

    __slots__ = ("answers", "entry", "serial", "subject", "token")

    def __init__(self, entry: str, subject: Subject, token: str, answers: tuple[Any, ...], serial: int) -> None:
        self.entry = entry
        self.subject = subject
        self.token = token
        self.answers = answers
        self.serial = serial


class Ended(NamedTuple):
    """The one answer of a worker that has nothing left to do but to give its own: how it came there matters no more."""

    status: int


class Handed(NamedTuple):
    """What the provider has of one reply."""

    this_round: int = 0  # copies it took since the last replay
    reach: int = 0  # copies, of all rounds, that reach the customer
    allowed: int = 1  # how many may, without a resend
    resent: bool = False  # whether a lease was taken out of doubt in this round


class Flying(NamedTuple):
    """A receipt on its way."""

    place: int
    round: int
    provider_id: str
    kind: ReceiptKind


class World(NamedTuple):
    """The places in `rows`, `holders`, `ledger` and `gave_up` are those of the setting's keys."""

    rows: tuple[Row | None, ...]
    holders: tuple[str | None, ...]  # whose lease was the last one: the code's own tokens may be wrong
    ledger: tuple[Handed, ...]
    gave_up: tuple[int, ...]  # in which round give_up_at passed; -1: never
    left: tuple[int, ...]  # how often each mishap may still happen
    marks: Marks = Marks()  # of the sender
    backend: Marks = Marks()
    acknowledged: bool = False  # Meta has its 200
    credential: int = REVOKED  # the one in use
    suspended: bool = False  # the tenant is
    workers: tuple[Worker, ...] = ()
    tasks: frozenset[Task] = frozenset()
    used: frozenset[Task] = frozenset()  # tasks that are over; their names are taken
    rung: frozenset[tuple[str, str, int, int, State]] = frozenset()  # who was woken, by which end of which record
    flying: frozenset[Flying] = frozenset()
    unechoed: frozenset[tuple[str, ReceiptKind]] = frozenset()  # receipts without an echo, by the provider's id
    handling: frozenset[str] = frozenset()  # the tokens of those whose handler is at work, where turns are explored
    commands: frozenset[tuple[str, str]] = frozenset()  # a person's, by entry and key: asked for and not answered
    entries: frozenset[ConversationEntry] = frozenset()  # of conversations
    lanes: tuple[tuple[int, ...], ...] = ()  # the places of messages in each lane, as they took them

    def may(self, mishap: Mishap) -> bool:
        return self.left[mishap] > 0

    def spent(self, mishap: Mishap) -> "World":
        return self._replace(left=put(self.left, mishap, self.left[mishap] - 1))

    def plus(self, worker: Worker) -> "World":
        return self._replace(workers=tuple(sorted((*self.workers, worker), key=lambda one: one.serial)))

    def minus(self, worker: Worker) -> "World":
        place = self.workers.index(worker)
        return self._replace(workers=self.workers[:place] + self.workers[place + 1 :])

    def with_row(self, place: int, row: Row | None) -> "World":
        return self._replace(rows=put(self.rows, place, row))


class Frozen(dict[Any, Any]):
    """A mapping that can be hashed; nobody changes it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class Shelf:
    """Where rows and workers are kept, each once."""

    def __init__(self) -> None:
        self._rows: dict[Delivery, Row] = {}
        self._seen: dict[int, tuple[Delivery, Row]] = {}
        self._changed: dict[tuple[Row, tuple[tuple[str, Any], ...]], Row] = {}
        self._workers: dict[tuple[str, Subject, str, tuple[Any, ...]], Worker] = {}

    def row(self, record: Delivery) -> Row:
        if id(record) in self._seen:
            return self._seen[id(record)][1]
        plain = normal(record)
        row = self._rows.setdefault(plain, Row(plain))
        self._seen[id(record)] = record, row  # the record too: its id is its own as long as it lives
        return row

    def changed(self, row: Row, **changes: Any) -> Row:
        key = (row, tuple(changes.items()))
        if key not in self._changed:
            self._changed[key] = self.row(replace(row.record, **changes))
        return self._changed[key]

    def worker(self, entry: str, subject: Subject, token: str, answers: tuple[Any, ...] = ()) -> Worker:
        key = (entry, subject, token, answers)
        return self._workers.setdefault(key, Worker(*key, serial=len(self._workers)))

    def answered(self, worker: Worker, answer: Any) -> Worker:
        answers = worker.answers
        if answer == REFUSED and answers[-2:-1] == (REFUSED,):
            answers = answers[:-2]  # refused, read, refused again: how often matters to nobody
        if answer == CHANGED and answers[-2:-1] == (CHANGED,):
            answers = answers[:-2]  # so does how often another one was first
        return self.worker(worker.entry, worker.subject, worker.token, (*answers, answer))

    def ended(self, worker: Worker, status: int) -> Worker:
        return self.worker(worker.entry, worker.subject, "", (Ended(status),))

    def without(self, token: str, world: World) -> World:
        """The world once nobody has this token any more."""
        if token in world.handling:
            world = world._replace(handling=world.handling - {token})
        if token not in world.holders and token not in claims(world) and not world.workers:
            return world
        rows = tuple(self._renamed(row, token) for row in world.rows)
        holders = tuple(NOBODY if holder == token else holder for holder in world.holders)
        marks, backend = self._renamed(world.marks, token), self._renamed(world.backend, token)
        after = world._replace(rows=rows, holders=holders, marks=marks, backend=backend, workers=())
        return self._with_answers(after, world.workers, lambda answer: self._renamed(answer, token))

    def outdated(self, world: World, before: Marks, after: Marks) -> World:
        """The world once marks were written: what other workers have read of them is never equal to them again. In
        truth every mark has its own times; here only whether those have passed is told.
        """
        return self._with_answers(
            world._replace(workers=()),
            world.workers,
            lambda answer: outdated(answer, before, after) if isinstance(answer, Marks) else answer,
        )

    def _with_answers(self, world: World, workers: Iterable[Worker], change: Callable[[Any], Any]) -> World:
        for other in workers:
            answers = tuple(change(answer) for answer in other.answers)
            world = world.plus(self.worker(other.entry, other.subject, other.token, answers))
        return world

    def _renamed(self, answer: Any, token: str) -> Any:
        if isinstance(answer, Row) and answer.record.token == token:
            return self.changed(answer, token=NOBODY)
        if isinstance(answer, Marks) and token in _claims(answer):
            return each_mark(answer, lambda mark: replace(mark, claim=NOBODY) if mark.claim == token else mark)
        return answer


def normal(record: Delivery) -> Delivery:
    """The record without what no rule asks for, its deadlines told only as passed or not."""
    # What is final or in doubt is not due at any time; a replay sets it anew.
    due_at = PAST if record.final or record.state is State.IN_DOUBT else passed_or_not(record.due_at)
    return replace(
        record,
        lease_until=passed_or_not(record.lease_until),
        due_at=due_at,
        sweep_at=passed_or_not(record.sweep_at),
        give_up_at=passed_or_not(record.give_up_at),
        doubt_until=passed_or_not(record.doubt_until),
        expire_at=passed_or_not(record.expire_at),
        attempts_log=(),
        last_error=None,
        started_at=PAST if record.after and _was_tried(record) else None,
        finished_at=None,
        sweeps=0,
        throttled=0,
        payload=frozen(record.payload),
        metadata=Frozen(),
        receipts=Frozen({round_: replace(word, provider_ids=frozenset()) for round_, word in record.receipts.items()}),
    )


def _was_tried(record: Delivery) -> bool:
    """Whether a message that has ended was tried: who waits for it looks behind it if it was not."""
    return record.final and (record.state is State.DONE or bool(record.attempt or record.doubts))


def passed_or_not(deadline: datetime | None) -> datetime | None:
    return None if deadline is None else PAST if deadline <= NOW else FUTURE


def normal_marks(marks: Marks) -> Marks:
    """The marks with their deadlines told only as passed or not, and without codes and the length of waits."""
    down, block, refused, credential = marks.down, marks.block, marks.refused, marks.credential
    return Marks(
        down=down and replace(down, until=_passed_or_not(down.until), wait=_kept(down.wait)),
        block=block and replace(block, until=_passed_or_not(block.until), wait=_kept(block.wait), code=0),
        refused=refused
        and replace(
            refused,
            code=OUTDATED_CODE if refused.code == OUTDATED_CODE else 0,
            since=PAST,
            until=passed_or_not(refused.until),
        ),
        credential=credential and replace(credential, since=PAST),
        receipt_block=marks.receipt_block and replace(marks.receipt_block, code=0, at=PAST),
        limited=marks.limited and RateLimit(_passed_or_not(marks.limited.until), _kept(marks.limited.wait) or A_SECOND),
    )


def claims(world: World) -> set[str | None]:
    """Whose claims there are."""
    return {*_claims(world.marks), *_claims(world.backend)}


def _claims(marks: Marks) -> list[str | None]:
    return [mark.claim for mark in (marks.down, marks.block, marks.refused) if mark is not None]


def each_mark(marks: Marks, change: Callable[[Any], Any]) -> Marks:
    """The marks that can be claimed, each changed."""
    down, block, refused = marks.down, marks.block, marks.refused
    return replace(
        marks, down=down and change(down), block=block and change(block), refused=refused and change(refused)
    )


def outdated(seen: Marks, before: Marks, after: Marks) -> Marks:
    """What was read of marks, where a write has changed it since."""
    return replace(
        seen,
        down=seen.down and (seen.down if before.down == after.down else replace(seen.down, wait=OUTDATED)),
        block=seen.block and (seen.block if before.block == after.block else replace(seen.block, wait=OUTDATED)),
        refused=seen.refused
        and (seen.refused if before.refused == after.refused else replace(seen.refused, code=OUTDATED_CODE)),
        limited=seen.limited
        and (seen.limited if before.limited == after.limited else replace(seen.limited, wait=OUTDATED)),
    )


def at_times_of(current: Marks, seen: Marks) -> Marks:
    """The current marks, told with the deadlines of those that were seen before where nothing else differs: time that
    passes changes no mark in truth.
    """
    return replace(
        current,
        down=_at_time_of(current.down, seen.down),
        block=_at_time_of(current.block, seen.block),
        refused=_at_time_of(current.refused, seen.refused),
        limited=_at_time_of(current.limited, seen.limited),
    )


def _at_time_of(current: Any, seen: Any) -> Any:
    if current is None or seen is None:
        return current
    return seen if replace(current, until=seen.until) == seen else current


def _passed_or_not(deadline: datetime) -> datetime:
    return PAST if deadline <= NOW else FUTURE


def _kept(wait: timedelta) -> timedelta:
    return wait if wait == OUTDATED else timedelta()


def noted(record: Delivery, round_: int, kind: ReceiptKind) -> Delivery:
    """The record with one more receipt of a round."""
    word = receipts_of(kind, PAST, None, "")
    return replace(record, receipts={**record.receipts, round_: record.receipts.get(round_, Receipts()).merged(word)})


def frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Frozen({key: frozen(item) for key, item in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def put(places: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*places[:place], value, *places[place + 1 :])
