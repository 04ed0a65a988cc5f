"""The queues in the file, and the names of deleted ones, which cannot be reused for a while."""

from local.tasks import refusals
from local.tasks.database import Database

NAME_KEPT = 7 * 24 * 3600.0
"""Seconds for which a deleted queue's name is refused.
https://cloud.google.com/tasks/docs/deleting-appengine-queues-and-tasks says 7 days, DeleteQueue's docstring "up to 3
days". This is the longer, so that code that relies on an earlier reuse fails here.
"""


class QueueTable:
    """Queues as serialised messages under their full names. Every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, message: bytes, now: float) -> None:
        with self._database.transaction() as db:
            if db.execute("SELECT 1 FROM queues WHERE name = ?", (name,)).fetchone():
                raise refusals.queue_exists()
            if db.execute("SELECT 1 FROM deleted_queues WHERE name = ? AND free_at > ?", (name, now)).fetchone():
                raise refusals.queue_existed()
            db.execute("INSERT INTO queues VALUES (?, ?)", (name, message))

    def replace(self, name: str, message: bytes) -> None:
        with self._database.transaction() as db:
            if not db.execute("UPDATE queues SET message = ? WHERE name = ?", (message, name)).rowcount:
                raise refusals.no_queue()

    def get(self, name: str) -> bytes:
        with self._database.transaction() as db:
            row = db.execute("SELECT message FROM queues WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise refusals.no_queue()
        message: bytes = row[0]
        return message

    def page(self, prefix: str, after: str, limit: int) -> list[bytes]:
        """Queues whose name begins with `prefix`, in lexicographical order, after the name `after`."""
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT message FROM queues WHERE substr(name, 1, length(?1)) = ?1 AND name > ?2"
                " ORDER BY name LIMIT ?3",
                (prefix, after, limit),
            ).fetchall()
        return [message for (message,) in rows]

    def delete(self, name: str, now: float) -> None:
        """Delete the queue "even if it has tasks in it" (DeleteQueue's reference)."""
        with self._database.transaction() as db:
            if not db.execute("DELETE FROM queues WHERE name = ?", (name,)).rowcount:
                raise refusals.no_task()  # this is the sentence recorded for DeleteQueue
            db.execute("DELETE FROM tasks WHERE queue = ?", (name,))
            db.execute("REPLACE INTO deleted_queues VALUES (?, ?)", (name, now + NAME_KEPT))
