"""Appointments: a handler with state. It shows the two rules for a handler with a database:

- Calls run in several threads and processes. Each call opens its own connection, and the database decides which of two
  callers gets a slot.
- Pombo may call again for the same message, for example after a crash. What a message changes is stored under its id,
  so the second call changes nothing and gives the same answer.

SQLite keeps the state of one machine. On Cloud Run an instance's files are lost when it ends, and other instances do
not see them: use a database server there. The two rules stay the same.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from pombo import Message, handles

SLOTS = ("9:00", "10:00", "11:00")
FILE = ".pombo/appointments.sqlite"
BUSY_SECONDS = 10  # how long a call waits for another one that writes


@handles("text")
def handle(message: Message) -> str:
    """Book a free slot; answer anything else with the free slots."""
    wanted = (message.text or "").strip()
    with closing(connected()) as database:
        if wanted in SLOTS:
            return booked(database, wanted, message)
        taken = {slot for (slot,) in database.execute("SELECT slot FROM appointments")}
    free = [slot for slot in SLOTS if slot not in taken]
    return f"Free are {', '.join(free)}. Which one?" if free else "Nothing is free today."


def booked(database: sqlite3.Connection, slot: str, message: Message) -> str:
    """One statement takes the slot or finds it taken, so no other call can come between check and booking."""
    with database:  # commits, or rolls back on an exception
        database.execute(
            "INSERT INTO appointments (slot, message, contact) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (slot, message.id, message.contact.id),
        )
    (owner,) = database.execute("SELECT message FROM appointments WHERE slot = ?", (slot,)).fetchone()
    return f"See you at {slot}." if owner == message.id else f"{slot} has just been taken."


def connected() -> sqlite3.Connection:
    """A new connection for this call, with the table created."""
    file = Path(os.environ.get("APPOINTMENTS_FILE", FILE))
    file.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(file, timeout=BUSY_SECONDS)
    database.execute(
        "CREATE TABLE IF NOT EXISTS appointments (slot TEXT PRIMARY KEY, message TEXT UNIQUE, contact TEXT NOT NULL)"
    )
    return database
