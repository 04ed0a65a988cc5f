"""The log lines of a chaos run, read once: event counts, unexpected lines, and what they say about doubts."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cli.chaos.message_fate import Evidence
from cli.chaos.message_script import CANARY
from shared.config import LOCAL_SECRETS

OF_PEOPLE = r"(?<![0-9a-zA-Z])\+?1555\d{7}(?![0-9a-zA-Z])|wamid\.|US\.\d{10}"
"""The numbers and ids of the simulated customers, and the ids of their messages."""

PRIVATE = re.compile("|".join((OF_PEOPLE, *map(re.escape, (CANARY, *LOCAL_SECRETS.values())))))
"""Data of the run that no log line may hold."""

UNAVAILABLE = ("store_unavailable", "queue_unavailable", "registry_unavailable")
"""Reasons that explain an otherwise unexpected failure: the run itself took the part away (the registry is a store)."""

BROKEN = ("IncompleteReadError", "ConnectionResetError", "BrokenPipeError", "EOFError")
"""How a webhook's connection ends if the service is killed while it handles it; not if it never connected."""

STRAYS_KEPT = 5
RECEIPTS = frozenset({"receipt_applied", "receipt_failed"})
UNREAD = "unread"


@dataclass
class LogSummary:
    """A summary of the logs. `strays` are lines that should not exist. `interrupted` counts requests whose connection
    broke after they had been sent, and attempts that ended because the emulator ended.
    """

    events: Counter[str] = field(default_factory=Counter)
    interrupted: Counter[str] = field(default_factory=Counter)
    strays: list[str] = field(default_factory=list)
    stray_count: int = 0
    evidence: dict[str, Evidence] = field(default_factory=dict)
    lost_leases: set[str] = field(default_factory=set)
    """The keys of events whose lease ran out while an attempt held it."""


def read_logs(data_dir: Path, doubled: Collection[str]) -> LogSummary:
    """Read all lines of all processes. `doubled`: the keys for which evidence is collected."""
    told = LogSummary()
    with (data_dir / "logs.jsonl").open(encoding="utf-8", errors="replace") as lines:
        _read(lines, doubled, told)
    for path in (*data_dir.glob("*.stderr.log"), *data_dir.glob("store.log")):
        with path.open(encoding="utf-8", errors="replace") as words:
            for line in words:
                if PRIVATE.search(line):
                    _stray(told, line)
    return told


def _read(lines: Iterable[str], doubled: Collection[str], told: LogSummary) -> None:
    for text in lines:
        try:
            line = json.loads(text)
            event = str(line["event"])
        except (ValueError, LookupError, TypeError):
            event, line = UNREAD, {}
        told.events[event] += 1
        if _is_stray(event, line, text):
            _stray(told, text)
        told.interrupted.update(_interrupted(event, line))
        if event == "lease_lost" and "inbound_event_id" in line:
            told.lost_leases.add(str(line["inbound_event_id"]))
        if line.get("delivery") in doubled:
            _note_evidence(told.evidence, event, line)


def _is_stray(event: str, line: Mapping[str, Any], text: str) -> bool:
    unexpected = event == UNREAD or (event == "unexpected_error" and line.get("reason") not in UNAVAILABLE)
    return unexpected or PRIVATE.search(text) is not None


def _stray(told: LogSummary, text: str) -> None:
    told.stray_count += 1
    if len(told.strays) < STRAYS_KEPT:
        told.strays.append(text.strip())


def _interrupted(event: str, line: Mapping[str, Any]) -> dict[str, int]:
    """Interrupted requests by who sent them."""
    if event == "attempt_failed" and line.get("broken"):
        return {"tasks": 1}
    if event == "webhook_failed" and line.get("error") in BROKEN:
        return {"webhooks": 1}
    if event == "started" and line.get("interrupted"):
        return {"emulator": int(line["interrupted"])}
    return {}


def _note_evidence(evidence: dict[str, Evidence], event: str, line: Mapping[str, Any]) -> None:
    key = str(line["delivery"])
    known = evidence.get(key, Evidence())
    at = datetime.fromisoformat(line["time"])
    if event == "outbound_in_doubt" and known.doubted_at is None:
        evidence[key] = Evidence(at, known.receipt_at)
    elif event in RECEIPTS and known.receipt_at is None:
        evidence[key] = Evidence(known.doubted_at, at)
