"""A fault: an error that a test asks the local cloud to make, a number of times, on whatever matches.

The faults are kept in one SQLite file in the data directory, because the control address that writes it
(local/whatsapp) and the emulator that also reads it (local/tasks) are different processes that may be killed. A stopped
process blocks no reader; it blocks a writer only if it was stopped in the middle of a write: see `held`.
"""

import json
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

BOOK = "faults.sqlite"
"""The file's name in the data directory."""

KINDS: Mapping[str, frozenset[str]] = {
    "provider": frozenset({"error", "refuse", "unreachable", "hang"}),
    "send": frozenset({"error", "slow", "refuse", "drop", "accept_then_drop"}),
    "receipt": frozenset({"withhold", "duplicate", "reorder", "slow", "error"}),
    "webhook": frozenset({"withhold", "duplicate", "reorder", "slow", "drop"}),
    "task": frozenset({"duplicate", "drop", "early", "free_name", "slow"}),
}
"""The kinds of fault that each place can make."""

MATCHED = frozenset({"to", "type", "phone_number_id"})
"""What a WhatsApp fault may match. A task's facts are not checked here."""

PROVIDER_FIELDS: Mapping[str, frozenset[str]] = {
    "error": frozenset({"times", "match", "code", "status", "subcode", "transient", "retry_after"}),
    "refuse": frozenset({"times", "match", "retry_after"}),
    "unreachable": frozenset({"times", "seconds"}),
    "hang": frozenset({"times", "match", "seconds"}),
}
"""The fields that each kind of provider fault may have, besides on and kind."""

LONGEST_SECONDS = 3600.0
"""An hour is longer than every timeout that a test could want to reach."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `times` 0: until cleared. `seconds`: how long a slow one takes. An empty `match` matches everything.

    `subcode`, `transient` and `retry_after` (seconds) complete an error answer: error_subcode, is_transient and the
    header Retry-After. `until` (Unix time): when an unreachable provider comes back; FaultBook sets it.
    """

    on: str
    kind: str
    code: int | None = None
    status: int | None = None
    times: int = 1
    seconds: float | None = None
    match: Mapping[str, str] = field(default_factory=dict)
    subcode: int | None = None
    transient: bool = False
    retry_after: int | None = None
    until: float | None = None

    @property
    def delay(self) -> float:
        """How many seconds a slow or reordered item waits: one second if the fault does not say."""
        return 1.0 if self.seconds is None else self.seconds

    def fits(self, facts: Mapping[str, str]) -> bool:
        """Whether every value of `match` equals the fact; a number equals itself with a plus."""
        return all(
            facts.get(name, "").removeprefix("+") == value.removeprefix("+") for name, value in self.match.items()
        )


def fault_from(document: object) -> Fault:
    """The fault that a JSON document describes; ValueError with one sentence if it is not valid."""
    if not isinstance(document, dict):
        raise ValueError("A fault is a JSON object.")
    known = {one.name for one in fields(Fault)} - {"until"}
    if unknown := sorted(set(document) - known):
        raise ValueError(f"A fault has no field {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    on, kind = str(document.get("on")), str(document.get("kind"))
    if on not in KINDS:
        raise ValueError(f"on is one of {', '.join(sorted(KINDS))}.")
    if kind not in KINDS[on]:
        raise ValueError(f"kind is one of {', '.join(sorted(KINDS[on]))} where on is {on}.")
    _check_numbers(document)
    if (match := document.get("match")) is not None:
        _check_match(on, match)
    if on == "provider":
        _check_provider(kind, document)
    says = document.get("code") is not None or document.get("status") is not None
    if on in ("send", "provider") and kind == "error" and not says:
        raise ValueError("An error needs a code (Meta's error), a status (a plain answer) or both.")
    return Fault(**{name: value for name, value in document.items() if value is not None})


def _check_numbers(document: Mapping[str, object]) -> None:
    for name, least, most in (
        ("times", 0, 10**9),
        ("code", 0, 10**7),
        ("subcode", 0, 10**7),
        ("status", 400, 599),
        ("retry_after", 0, 10**6),
    ):
        value = document.get(name)
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise ValueError(f"{name} is a whole number from {least} to {most}.")
    seconds = document.get("seconds")
    if seconds is not None and (type(seconds) not in (int, float) or not 0 <= float(str(seconds)) <= LONGEST_SECONDS):
        raise ValueError(f"seconds is a number from 0 to {LONGEST_SECONDS:.0f}.")
    if not isinstance(document.get("transient", False), bool):
        raise ValueError("transient is true or false.")


def _check_match(on: str, match: object) -> None:
    if not isinstance(match, dict) or not all(isinstance(value, str) for value in match.values()):
        raise ValueError("match is an object of strings.")
    if on != "task" and (unknown := sorted(set(match) - MATCHED)):
        raise ValueError(f"match has no {unknown[0]!r}; it has {', '.join(sorted(MATCHED))}.")
    if on == "send" and match.get("type") == "read":
        raise ValueError("A fault on send spares read calls; use on provider.")


def _check_provider(kind: str, document: Mapping[str, object]) -> None:
    given = {name for name, value in document.items() if value} - {"on", "kind"}
    if unused := sorted(given - PROVIDER_FIELDS[kind]):
        allowed = ", ".join(sorted(PROVIDER_FIELDS[kind]))
        raise ValueError(f"{kind} on provider has no {unused[0]}; it has {allowed}.")
    if kind == "unreachable" and document.get("times") not in (None, 0, 1):
        raise ValueError("times is 0 or 1 for unreachable: it lasts for seconds, or until cleared, not for calls.")


PATIENCE_SECONDS = 60.0
"""Seconds to wait for another process that writes: it may be stopped in the middle of a write."""


class FaultBook:
    """The faults still to be made, shared by the processes and threads of one data directory."""

    def __init__(self, path: Path) -> None:
        # One open connection: every message and every task queries the file, which is nearly always empty. A query
        # costs microseconds, opening the file a hundred times that.
        self._db = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()
        self.clearings = 0
        """How often this process cleared the faults; a fault that is active ends at the next clear."""
        self.close = weakref.finalize(self, self._db.close)
        self._db.execute("PRAGMA synchronous=OFF")  # it must survive a killed process, not a power cut
        self._let_readers_be()
        with self.held():
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS faults"
                " (id INTEGER PRIMARY KEY, place TEXT NOT NULL, used INTEGER NOT NULL DEFAULT 0, fault TEXT NOT NULL)"
            )
            self._db.execute("CREATE TABLE IF NOT EXISTS made (what TEXT PRIMARY KEY, count INTEGER NOT NULL)")

    def add(self, fault: Fault) -> None:
        if lasts := fault.kind == "unreachable":
            fault = replace(fault, until=None if fault.seconds is None else time.time() + fault.seconds)
        with self.held():
            self._db.execute("INSERT INTO faults (place, fault) VALUES (?, ?)", (fault.on, json.dumps(asdict(fault))))
            if lasts:
                self._count(fault)

    def unreachable(self) -> bool:
        """Whether the provider is unreachable now. Removes a fault whose time is over."""
        with self._lock:
            rows = self._db.execute("SELECT id, fault FROM faults WHERE place = 'provider'").fetchall()
        faults = [(row, fault) for row, text in rows if (fault := Fault(**json.loads(text))).kind == "unreachable"]
        over = [(row,) for row, fault in faults if fault.until is not None and fault.until <= time.time()]
        if over:
            with self.held():
                self._db.executemany("DELETE FROM faults WHERE id = ?", over)
        return len(faults) > len(over)

    def active(self) -> list[Fault]:
        """Every fault with uses left, oldest first."""
        with self._lock:
            rows = self._db.execute("SELECT fault FROM faults ORDER BY id").fetchall()
        return [Fault(**json.loads(text)) for (text,) in rows]

    def made(self) -> dict[str, int]:
        """How many faults were made so far, by place and kind: {"send error": 3}. Clearing keeps these counts."""
        with self._lock:
            return dict(self._db.execute("SELECT what, count FROM made").fetchall())

    def clear(self) -> None:
        with self.held():
            self._db.execute("DELETE FROM faults")
        self.clearings += 1

    def withdraw(self, on: str, kinds: frozenset[str]) -> None:
        """Remove the faults of these kinds at this place that are not used up."""
        with self.held():
            rows = self._db.execute("SELECT id, fault FROM faults WHERE place = ?", (on,)).fetchall()
            gone = [(row,) for row, text in rows if json.loads(text)["kind"] in kinds]
            self._db.executemany("DELETE FROM faults WHERE id = ?", gone)

    def owed(self) -> int:
        """How many uses are left, of the faults that end by themselves."""
        with self._lock:
            rows = self._db.execute("SELECT used, fault FROM faults").fetchall()
        turns = [(used, Fault(**json.loads(text)).times) for used, text in rows]
        return sum(times - used for used, times in turns if times)

    def take(
        self, on: str, facts: Mapping[str, str], kinds: frozenset[str] | None = None, named: str | None = None
    ) -> Fault | None:
        """Use the oldest fault that matches at this place once, and return it; None if there is none.

        With `named`, consider only faults whose match names that fact: then a rare item (a read call, a single receipt)
        does not use up a fault that was meant for any item.
        """
        with self._lock:
            if self._oldest(on, facts, kinds, named) is None:
                return None
        with self.held():
            found = self._oldest(on, facts, kinds, named)
            if found is None:
                return None
            row, used, fault = found
            if fault.times and used + 1 >= fault.times:
                self._db.execute("DELETE FROM faults WHERE id = ?", (row,))
            else:
                self._db.execute("UPDATE faults SET used = used + 1 WHERE id = ?", (row,))
            self._count(fault)
            return fault

    def _count(self, fault: Fault) -> None:
        made = (f"{fault.on} {fault.kind}",)
        self._db.execute("INSERT INTO made VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1", made)

    def _oldest(
        self, on: str, facts: Mapping[str, str], kinds: frozenset[str] | None, named: str | None
    ) -> tuple[int, int, Fault] | None:
        rows = self._db.execute("SELECT id, used, fault FROM faults WHERE place = ? ORDER BY id", (on,)).fetchall()
        for row, used, text in rows:
            fault = Fault(**json.loads(text))
            if (kinds is None or fault.kind in kinds) and (named is None or named in fault.match) and fault.fits(facts):
                return row, used, fault
        return None

    def _let_readers_be(self) -> None:
        """Open the file for concurrent readers. Retry: two processes that open a new file at once collide, and SQLite
        does not wait here.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def held(self) -> Iterator[None]:
        """One transaction that holds the write lock from its start, so that two processes cannot take the same use. A
        process must hold it while it stops another one, which then cannot be in the middle of a write.
        """
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
