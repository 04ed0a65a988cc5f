"""Outage runs: a provider or a backend that is away for a while, under a real stack, and the account of what followed.

    python -m tests.outages.outage_runs --store redis --minutes 180 --kind refuse

Times are the protocol's, in seconds, unless a name says `real`: the stack runs SCALE times as fast.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.stack import SECRET, SENDER, TASK_TOKEN, TEAM, Stack

SCALE = 20
LONGEST_WAIT = 300 * 1.2
"""Seconds that the breaker waits at most between two probes, jitter included."""

DOUBT_WINDOW, DOUBTFUL_TRIAL = 300, 60
CONCURRENT_SENDS = 10
"""As many messages as the outbound queue sends at once."""

SLACK_REAL = 10.0
"""Seconds for a machine that does other work too."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "refuse": {"kind": "refuse"},  # 503 with code 2
    "unreachable": {"kind": "unreachable"},  # connections are refused
    "hang": {"kind": "hang"},  # takes nothing, answers nothing
    "500": {"kind": "error", "status": 500},  # without a body
    "429": {"kind": "error", "status": 429},  # without a Graph error
}
"""What each outage of the provider is, as a fault of the simulator's."""

LOSING = frozenset({"hang", "500"})
"""Outages in which the answer to a send is lost: the provider may have taken the message."""

_contacts = count(7_000_000)


@dataclass(frozen=True, slots=True)
class Outage:
    """One outage to run: its kind, how long it lasts, how many messages are to be sent, and whether a probe is answered
    while sends fail.
    """

    kind: str
    minutes: float
    messages: int
    probe_answered: bool = False

    def __str__(self) -> str:
        length = f"{self.minutes / 60:g} h" if self.minutes >= 60 else f"{self.minutes:g} min"
        return f"{self.kind}, {length}, {self.messages}{', probe answered' if self.probe_answered else ''}"

    @property
    def fault(self) -> dict[str, Any]:
        only_sends = {"match": {"type": "text"}} if self.probe_answered else {}
        lasts = {} if self.kind == "unreachable" else {"times": 0}
        return {"on": "provider", **KINDS[self.kind], **lasts, **only_sends}


@dataclass(frozen=True, slots=True)
class Account:
    """What came of it. Times in seconds of the protocol."""

    sent: int
    doubled: int
    lost: int
    dead: int
    in_doubt: int
    failed_trials: int
    calls: int
    most_calls_a_minute: float
    out_of_order: int
    first_after: float
    all_after: float
    attempts_spent: int


def run(stack: Stack, outage: Outage) -> Account:
    """Let the provider be away, with messages waiting; then wait until all has come to its end."""
    began = time.time()
    messages = _write(stack, outage)
    return _finish(stack, outage, messages, began)


def _write(stack: Stack, outage: Outage) -> dict[str, str]:
    """The outage begins, and people write; each message's id by its contact. Two replies each, or one message alone."""
    stack.control("DELETE", "ledger")
    stack.fault(**outage.fault)
    text = "!list 2" if outage.messages > 1 else "hello"
    people = [f"1555{next(_contacts):07}" for _ in range(max(1, outage.messages // 2))]
    return {person: stack.say(person, text) for person in people}


def _finish(stack: Stack, outage: Outage, messages: Mapping[str, str], began: float) -> Account:
    ids = list(messages.values())
    stack.wait_until(lambda: all((event := stack.event(one)) and event.final for one in ids), "all is planned", 60)
    time.sleep(max(0.0, began + outage.minutes * 60 / SCALE - time.time()))
    assert stack.ledger() == [], "the provider took something during its outage"
    calls = _calls(stack, began)
    stack.control("DELETE", "faults")
    back = time.time()
    longest = (LONGEST_WAIT + DOUBT_WINDOW + DOUBTFUL_TRIAL) / SCALE
    stack.wait_settled(ids, 2 * longest + SLACK_REAL + outage.messages * 0.2)
    ended = time.time()
    return _account(stack, messages, calls, began, back, ended)


def _account(
    stack: Stack, messages: Mapping[str, str], calls: Sequence[float], began: float, back: float, ended: float
) -> Account:
    ids = list(messages.values())
    replies = [reply for one in ids for reply in _replies(stack, one)]
    took = Counter(entry["key"] for entry in stack.ledger())
    orders = [[entry["key"] for entry in stack.ledger(person)] for person in messages]
    planned = {person: [reply.key for reply in _replies(stack, one)] for person, one in messages.items()}
    accepted = [_seconds(entry["accepted_at"]) for entry in stack.ledger()]
    since = [line for line in stack.logs() if _seconds(line["time"]) >= began]
    keys = {reply.key for reply in replies}
    doubts = [
        line
        for line in since
        if line["event"] == "outbound_in_doubt"
        and _seconds(line["time"]) <= back  # after it, an answer is late only because the machine is
        and line.get("delivery") in keys
        and (line.get("verdict") or line.get("reason") == "lease_expired")
    ]
    return Account(
        sent=len(took),
        doubled=sum(times - 1 for times in took.values()),
        lost=sum(reply.key not in took and reply.state != "dead" for reply in replies),
        dead=sum(reply.state == "dead" for reply in replies),
        in_doubt=len(doubts),
        failed_trials=sum(line["event"] == "provider_down" for line in since),
        calls=len(calls),
        most_calls_a_minute=_most_calls_a_minute(calls, back),
        out_of_order=sum(
            order != [key for key in planned[person] if key in took]
            for person, order in zip(messages, orders, strict=True)
        ),
        first_after=round((min(accepted) - back) * SCALE, 1) if accepted else -1,
        all_after=round((ended - back) * SCALE, 1),
        attempts_spent=max((reply.attempt for reply in replies), default=0),
    )


def _replies(stack: Stack, message_id: str) -> list[Any]:
    event = stack.event(message_id)
    assert event is not None
    found = [stack.reply(message_id, index) for index in range(event.plan_size or 0)]
    return [reply for reply in found if reply is not None]


def _calls(stack: Stack, began: float) -> list[float]:
    """When the provider was called during the outage (one that cannot be reached counts nothing)."""
    return [at for call in stack.control("GET", "calls") if (at := _seconds(call["at"])) >= began]


def _most_calls_a_minute(calls: Sequence[float], back: float) -> float:
    """Calls a minute in the last five minutes of the outage, when the wait is at its cap."""
    window = 300 / SCALE
    late = [at for at in calls if at >= back - window]
    return len(late) / 5


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def faults_of(outage: Outage, account: Account) -> list[str]:
    """What the account shows that must not be; nothing where all holds."""
    return list(_faults(outage, account))


def _faults(outage: Outage, account: Account) -> Iterator[str]:
    is_alone = outage.messages == 1
    allowed_dead = 1 if is_alone and outage.probe_answered and outage.kind in LOSING else 0
    if account.doubled:
        yield f"{account.doubled} messages were sent twice"
    if account.lost:
        yield f"{account.lost} messages were lost"
    if account.dead > allowed_dead:
        yield f"{account.dead} messages are dead"
    if account.out_of_order:
        yield f"{account.out_of_order} people got their replies out of order"
    doubts = CONCURRENT_SENDS + account.failed_trials  # of the other kinds too: a busy machine may miss an answer
    if account.in_doubt > doubts:
        yield f"{account.in_doubt} messages were in doubt; at most {doubts} may be"
    if outage.minutes >= 15 and account.most_calls_a_minute > 2:
        yield f"{account.most_calls_a_minute} calls a minute at the end of the outage"
    within = LONGEST_WAIT + (DOUBT_WINDOW + DOUBTFUL_TRIAL if is_alone and outage.kind in LOSING else 0)
    if account.sent and account.first_after > within + SLACK_REAL * SCALE:
        yield f"the first message went {account.first_after:.0f} s after the return; {within:.0f} s are allowed"


def make_stack(data_dir: Path, store: str, sweep: bool, is_forked: bool = False, **settings: str) -> Stack:
    """A stack with Pombo's own limits, not started."""
    chosen = {
        "TIME_SCALE": str(SCALE),
        "HANDLER": "scripted:handle",
        "HANDLER_CALLS": str(data_dir / "calls.jsonl"),
        "PYTHONPATH": str(TEAM),
        "WHATSAPP_PHONE_NUMBER_ID": SENDER,
        "META_APP_SECRET": SECRET,
        "INTERNAL_TASK_TOKEN": TASK_TOKEN,
        **settings,
    }
    return Stack(data_dir, () if sweep else ("--no-sweep",), chosen, store, is_forked=is_forked)


def row(store: str, sweep: bool, outage: Outage, account: Account) -> str:
    """A line of the table in docs/reliability.md."""
    told = (
        account.sent,
        account.doubled,
        account.dead,
        account.in_doubt,
        account.failed_trials,
        account.calls,
        f"{account.first_after:.0f}",
        f"{account.all_after:.0f}",
    )
    return f"| {store} | {'sweep' if sweep else 'no sweep'} | {outage} | " + " | ".join(map(str, told)) + " |"


def main() -> int:
    """Run the outages that the options name, on one stack, one after the other. 1 where one of them shows a fault."""
    parser = argparse.ArgumentParser("outage_runs", description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "firestore", "redis"))
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--sweep-after", default="")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--minutes", action="append", type=float)
    parser.add_argument("--messages", action="append", type=int)
    parser.add_argument("--probe-answered", action="store_true")
    asked = parser.parse_args()
    outages = [
        Outage(kind, minutes, messages, asked.probe_answered)
        for minutes in asked.minutes or (1, 15)
        for kind in asked.kind or KINDS
        for messages in asked.messages or (200, 1)
        if not (asked.probe_answered and kind == "unreachable")
    ]
    settings = {"SWEEP_AFTER": asked.sweep_after} if asked.sweep_after else {}
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        with make_stack(Path(directory) / "data", asked.store, not asked.no_sweep, **settings) as stack:
            stack.wait_settled([stack.say("15557999999", "hello")])
            for outage in outages:
                account = run(stack, outage)
                found = faults_of(outage, account)
                bad += bool(found)
                print(row(asked.store, not asked.no_sweep, outage, account), flush=True)
                print(json.dumps({"faults": found, **asdict(account)}), file=sys.stderr, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
