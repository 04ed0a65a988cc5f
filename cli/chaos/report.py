"""The report of a chaos run: one value with every number, as a table for people and as JSON for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

from cli.chaos.api_load import ApiSent
from cli.chaos.audit import Audit
from cli.chaos.enough_faults import Need
from cli.chaos.fault_schedule import STORE, Action
from cli.chaos.logs import LogSummary
from cli.chaos.message_fate import BAD, Fate
from cli.chaos.run_settings import RunSettings
from local import terminal

FAULTS: Mapping[str, str] = {
    "send accept_then_drop": "sends taken, and the answer dropped",
    "send drop": "sends dropped unanswered",
    "send slow": "sends answered late",
    "send error": "sends answered with an error or a limit",
    "send refuse": "sends refused as a whole",
    "provider unreachable": "outages of WhatsApp longer than eight attempts",
    "provider refuse": "calls refused as a whole, probes too",
    "provider hang": "calls neither taken nor answered",
    "receipt duplicate": "messages whose receipts came twice",
    "receipt reorder": "messages whose receipts came out of order",
    "receipt slow": "messages whose receipts came late",
    "receipt withhold": "messages whose receipts were withheld",
    "webhook duplicate": "webhooks doubled",
    "webhook reorder": "webhooks overtaken",
    "webhook drop": "webhooks dropped, to be delivered again",
    "task duplicate": "tasks delivered twice",
    "task early": "tasks delivered early",
    "task slow": "tasks delivered late",
    "task drop": "tasks lost by the queue",
    "task free_name": "tasks made again under a used name",
}
"""The simulator's own count of each fault that it injected."""

SHOWN_ABOVE = "Its timeline is shown above."


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended. `tasks_left` None: unknown. `early`: when an operator stopped it, None if it ran to its end."""

    seconds: float
    sent: int
    is_quiet: bool
    tasks_left: int | None
    replayed: int = 0
    early: datetime | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """All that a run found. `injected` and `swallowed` count the faults that the run injected itself, `made` those of
    the local cloud. `by_api`: what programs sent. `timelines`: those of the first findings.
    """

    run_settings: RunSettings
    end: End
    injected: Mapping[tuple[Action, str], int]
    swallowed: int
    made: Mapping[str, int]
    account: Audit
    told: LogSummary
    needs: Sequence[Need]
    by_api: Sequence[ApiSent] = ()
    timelines: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """0 all is well, 1 something is wrong, 2 nothing is proven, 130 an operator stopped it."""
        if self.end.early:
            return 130
        if self.account.bad or self.told.stray_count or not self.end.is_quiet:
            return 1
        return 0 if all(need.met for need in self.needs) else 2


def rows(result: Result) -> Iterator[tuple[str, Sequence[tuple[str, object]]]]:
    """The table: its headings, each with its rows."""
    account, told, run_settings, end = result.account, result.told, result.run_settings, result.end
    by_api = f"{len(result.by_api)} of {run_settings.order.api_messages}"
    repeated = sum(sent.repetitions for sent in result.by_api)
    yield (
        "Run",
        [
            ("seed", run_settings.order.seed),
            ("store", run_settings.store),
            *([("tenants", run_settings.order.tenants)] if run_settings.order.tenants > 1 else []),
            ("sweep", "on" if run_settings.sweep else "off"),
            ("doubt policy", run_settings.policy),
            ("messages sent to the business", f"{end.sent} of {run_settings.order.messages}"),
            *([("messages sent through the API", by_api)] * (run_settings.order.api_share > 0)),
            ("seconds", round(end.seconds)),
        ],
    )
    injected = [
        *_injected(result.injected),
        *([("answers of the store swallowed", result.swallowed)] * (result.swallowed > 0)),
    ]
    yield "What was done to it", [*injected, *_made(result.made)]
    yield (
        "What that met",
        [
            ("attempts interrupted: tasks under way at a service", told.interrupted["tasks"]),
            ("attempts interrupted: webhooks under way", told.interrupted["webhooks"]),
            ("attempts interrupted: by the emulator's own end", told.interrupted["emulator"]),
            ("webhooks' events that came again", told.events["inbound_duplicate"]),
            *([("requests to the API repeated", repeated)] * bool(result.by_api)),
            ("leases that ran out under their holder", told.events["lease_lost"]),
            ("dead letters replayed", end.replayed),
            ("tasks left in the queues at the end", end.tasks_left),
        ],
    )
    yield "Asked of it", [(need.what, f"{need.found} (at least {need.least})") for need in result.needs]
    still = [("still on their way, not judged", account.on_their_way)] if end.early else []
    yield "Messages received", [*_fates(account.received, (Fate.HANDLED,)), *still]
    yield "Replies", _fates(account.replies, (Fate.DELIVERED, Fate.DOUBLED_BY_POLICY))
    sent_by_api = (Fate.DELIVERED, Fate.CANCELLED, Fate.DOUBLED_BY_POLICY)
    yield "Messages sent through the API", _fates(account.by_api, sent_by_api) if result.by_api else []
    yield "Dead letters, told", sorted(account.reasons.items())
    yield "Log lines", [("read", sum(told.events.values())), ("that should not be", told.stray_count)]


def _injected(injected: Mapping[tuple[Action, str], int]) -> Iterator[tuple[str, int]]:
    words = {
        Action.KILL: "kills of",
        Action.STALL: "standstills of",
        Action.CUT: "cut-offs of",
        Action.SILENCE: "silences of",
    }
    for (kind, target), number in sorted(injected.items()):
        if kind in words:
            yield f"{words[kind]} {'the store' if target == STORE else target}", number


def _made(made: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for what, words in FAULTS.items():
        if what in made:
            yield words, made[what]


def _fates(counts: Mapping[Fate, int], good: Sequence[Fate]) -> list[tuple[str, object]]:
    shown = (*good, Fate.DEAD_AS_PLANNED, Fate.DEAD_LETTER, *BAD)
    return [(str(fate), counts.get(fate, 0)) for fate in shown]


def as_text(result: Result) -> str:
    """The table, for people."""
    lines: list[str] = []
    for heading, facts in rows(result):
        if facts:
            lines += ["", terminal.styled(heading, bold=True)]
        for name, value in facts:
            wrong = (name in BAD or name == "that should not be") and value
            lines.append(terminal.styled(f"  {name:<52} {value}", fg="red" if wrong else None))
    for finding, timeline in zip_longest(result.account.findings, _each_once(result.timelines)):
        lines += ["", terminal.styled(f"{finding.fate}: {finding.sentence} ({finding.key})", fg="red")]
        lines += [timeline] if timeline else []
    lines += ["", *(f"Unexpected log line: {stray}" for stray in result.told.strays)]
    lines += [terminal.styled(conclusion(result), bold=True, fg="green" if result.exit_code == 0 else "red")]
    return "\n".join(lines)


def _each_once(timelines: Sequence[str]) -> list[str]:
    """A message and its replies share one timeline: show it once, and refer to it afterwards."""
    return [text if text not in timelines[:place] else SHOWN_ABOVE for place, text in enumerate(timelines)]


def conclusion(result: Result) -> str:
    """The last line, for people."""
    match result.exit_code:
        case 0:
            doubled = result.account.replies[Fate.DOUBLED_BY_POLICY] + result.account.by_api[Fate.DOUBLED_BY_POLICY]
            by_policy = " but by policy" if doubled else ""
            crossed = ", none crossed" if result.run_settings.order.tenants > 1 else ""
            return f"Every message is accounted for: none lost, none doubled{by_policy}, none out of order{crossed}."
        case 130:
            return "Interrupted: this is the account so far."
        case 2:
            missing = [f"{need.what} {need.found} of {need.least}" for need in result.needs if not need.met]
            return f"Nothing proven: the run met too few faults ({', '.join(missing)})."
        case _:
            return "The run failed: see the red lines above, and the tasks left in the queues."


def as_dict(result: Result) -> dict[str, Any]:
    """The same as JSON: every row by its name, under its heading."""
    tables = {heading: {str(name): value for name, value in facts} for heading, facts in rows(result)}
    needs = [{"what": need.what, "found": need.found, "least": need.least} for need in result.needs]
    findings = [
        {"fate": finding.fate, "key": finding.key, "sentence": finding.sentence} for finding in result.account.findings
    ]
    return {
        "exit_code": result.exit_code,
        "conclusion": conclusion(result),
        **tables,
        "needs": needs,
        "findings": findings,
        "strays": result.told.strays,
    }
