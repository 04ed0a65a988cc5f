"""The tasks in the file: created, taken up and settled; and the names that finished tasks leave behind."""

import sqlite3
from dataclasses import dataclass

from local.grpc_methods import CallRefused
from local.tasks import refusals
from local.tasks.database import Database

NAME_KEPT = 24 * 3600.0
"""Seconds for which the name of a finished or deleted task is refused. CreateTaskRequest says "up to 24 hours": this is
the longest, so that code that relies on an earlier reuse fails here.
"""
RETENTION = 31 * 24 * 3600.0
"""Seconds after which a task is deleted, dispatched or not (CreateQueue's reference)."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """One row: the task as it was created, and its history since. Times in epoch seconds.

    `schedule_at` is the schedule_time that a caller sees; `next_at` is when the queue takes it up, None while an
    attempt runs. `previous_response` is the last attempt's HTTP status. The fields are the table's columns, in order.
    """

    id: int
    queue: str
    name: str
    message: bytes
    created_at: float
    schedule_at: float
    next_at: float | None
    dispatch_count: int
    response_count: int
    execution_count: int
    previous_response: int | None
    first_dispatch_at: float | None
    last_schedule_at: float | None
    last_dispatch_at: float | None
    last_response_at: float | None


@dataclass(frozen=True, slots=True)
class TargetResponse:
    """How an attempt ended: an HTTP status, and whether the target sent it or it stands for no response at all.

    `retry_after` is that header's raw value, empty if it was missing. `broken`: the request was sent, and the
    connection ended without a response.
    """

    status: int
    responded: bool
    retry_after: str = ""
    broken: bool = False

    @property
    def is_success(self) -> bool:
        return self.responded and 200 <= self.status <= 299

    @property
    def is_execution(self) -> bool:
        """Whether X-CloudTasks-TaskExecutionCount counts it: every response but a 5xx."""
        return self.responded and self.status < 500


_BEGIN_ATTEMPT = """
UPDATE tasks SET next_at = NULL, dispatch_count = dispatch_count + 1, last_schedule_at = schedule_at,
    first_dispatch_at = ifnull(first_dispatch_at, :now), last_dispatch_at = :now, last_response_at = NULL
"""
_TAKE_UP_NAMED = _BEGIN_ATTEMPT + "WHERE name = :name RETURNING *"
_TAKE_UP_DUE = (  # only constants are combined here
    _BEGIN_ATTEMPT  # noqa: S608
    + "WHERE id IN (SELECT id FROM tasks WHERE queue = :queue AND next_at <= :now ORDER BY next_at LIMIT :limit)"
    + " RETURNING *"
)


class TaskTable:
    """Tasks under their full names. Every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def recover(self) -> int:
        """Make tasks due again whose attempt a kill interrupted: its result is unknown, so it is repeated. Returns how
        many.
        """
        with self._database.transaction() as db:
            return db.execute("UPDATE tasks SET next_at = schedule_at WHERE next_at IS NULL").rowcount

    def tidy(self, now: float) -> None:
        """Delete names that are free again, and tasks past their retention."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM used_names WHERE free_at <= ?", (now,))
            db.execute("DELETE FROM tasks WHERE created_at <= ? AND next_at IS NOT NULL", (now - RETENTION,))

    def create(self, queue: str, name: str, message: bytes, schedule_at: float, now: float) -> StoredTask:
        with self._database.transaction() as db:
            if not db.execute("SELECT 1 FROM queues WHERE name = ?", (queue,)).fetchone():
                raise refusals.no_queue()
            if db.execute("SELECT 1 FROM tasks WHERE name = ?", (name,)).fetchone():
                raise refusals.task_exists()
            if db.execute("SELECT 1 FROM used_names WHERE name = ? AND free_at > ?", (name, now)).fetchone():
                raise refusals.NameUsed
            rows = db.execute(
                "INSERT INTO tasks (queue, name, message, created_at, schedule_at, next_at)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?5) RETURNING *",
                (queue, name, message, now, schedule_at),
            ).fetchall()
        return StoredTask(*rows[0])

    def free_name(self, name: str) -> None:
        with self._database.transaction() as db:
            db.execute("DELETE FROM used_names WHERE name = ?", (name,))

    def get(self, name: str, now: float) -> StoredTask:
        with self._database.transaction() as db:
            row = db.execute("SELECT * FROM tasks WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise _missing(db, name, now)
        return StoredTask(*row)

    def page(self, queue: str, after: int, limit: int) -> list[StoredTask]:
        """Tasks of a queue in the order of their creation, after the id `after`."""
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT * FROM tasks WHERE queue = ? AND id > ? ORDER BY id LIMIT ?", (queue, after, limit)
            ).fetchall()
        return [StoredTask(*row) for row in rows]

    def delete(self, name: str, now: float) -> None:
        """Delete a task that is scheduled or dispatched; an attempt under way continues and changes nothing."""
        with self._database.transaction() as db:
            if not db.execute("DELETE FROM tasks WHERE name = ?", (name,)).rowcount:
                raise _missing(db, name, now)
            db.execute("REPLACE INTO used_names VALUES (?, ?)", (name, now + NAME_KEPT))

    def purge(self, queue: str, now: float) -> None:
        with self._database.transaction() as db:
            db.execute(
                "REPLACE INTO used_names SELECT name, ? FROM tasks WHERE queue = ?",
                (now + NAME_KEPT, queue),
            )
            db.execute("DELETE FROM tasks WHERE queue = ?", (queue,))

    def take_up_due(self, queue: str, limit: int, now: float) -> list[StoredTask]:
        """Begin an attempt of each of the queue's due tasks, the longest overdue first, at most `limit`."""
        with self._database.transaction() as db:
            rows = db.execute(
                _TAKE_UP_DUE,
                {"queue": queue, "now": now, "limit": limit},
            ).fetchall()
        return sorted((StoredTask(*row) for row in rows), key=lambda task: (task.schedule_at, task.id))

    def take_up(self, name: str, now: float) -> StoredTask:
        """Begin an attempt of this task now, whether or not it is due or already running (RunTask)."""
        with self._database.transaction() as db:
            rows = db.execute(_TAKE_UP_NAMED, {"name": name, "now": now}).fetchall()
            if not rows:
                raise _missing(db, name, now)
        return StoredTask(*rows[0])

    def next_due(self, queue: str) -> float | None:
        with self._database.transaction() as db:
            row = db.execute("SELECT min(next_at) FROM tasks WHERE queue = ? AND next_at IS NOT NULL", (queue,))
            due: float | None = row.fetchone()[0]
        return due

    def finish(self, task: StoredTask, now: float) -> None:
        """Delete a task that succeeded or is given up; no error if it is already deleted."""
        with self._database.transaction() as db:
            if db.execute("DELETE FROM tasks WHERE id = ?", (task.id,)).rowcount:
                db.execute("REPLACE INTO used_names VALUES (?, ?)", (task.name, now + NAME_KEPT))

    def reschedule(self, task: StoredTask, answer: TargetResponse, schedule_at: float, now: float) -> None:
        """Record a failed attempt and when the next one is due."""
        with self._database.transaction() as db:
            db.execute(
                "UPDATE tasks SET next_at = ?1, schedule_at = ?1, previous_response = ?2, last_response_at = ?3,"
                " response_count = response_count + ?4, execution_count = execution_count + ?5 WHERE id = ?6",
                (schedule_at, answer.status, now, answer.responded, answer.is_execution, task.id),
            )

    def waiting_for_their_first_attempt(self, limit: int, now: float) -> list[StoredTask]:
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT * FROM tasks WHERE next_at > ? AND dispatch_count = 0 ORDER BY next_at LIMIT ?", (now, limit)
            ).fetchall()
        return [StoredTask(*row) for row in rows]

    def hasten(self, task: StoredTask, now: float) -> None:
        """Make a task due now without changing the schedule_time it shows."""
        with self._database.transaction() as db:
            db.execute("UPDATE tasks SET next_at = ? WHERE id = ? AND next_at > ?", (now, task.id, now))


def _missing(db: sqlite3.Connection, name: str, now: float) -> CallRefused:
    used = db.execute("SELECT 1 FROM used_names WHERE name = ? AND free_at > ?", (name, now)).fetchone()
    return refusals.task_gone() if used else refusals.no_task()
