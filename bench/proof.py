"""The proof that each server did the same durable work: what the fakes counted, compared with what was sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.errors import BenchError


@dataclass(frozen=True, slots=True)
class Work:
    """What was sent and answered 200."""

    messages: int = 0
    receipts: int = 0


def check_answers(server: str, sent: int, ok: int, others: Mapping[str, int], status: int = 200) -> None:
    """Raises BenchError unless each request was answered with this status."""
    if ok != sent or others:
        listed = ", ".join(f"{count} × {status}" for status, count in sorted(others.items())) or "none"
        raise BenchError(f"{server} answered {ok:,} of {sent:,} requests with {status}; the others: {listed}.")
    if not sent:
        raise BenchError(f"{server} took no request.")


def check_work(server: str, durable: bool, work: Work, counts: Mapping[str, Any]) -> None:
    """Raises BenchError if the server stored more or less than it answered 200 for, or made a call no fake knows."""
    if counts["unknown"]:
        raise BenchError(f"{server} made a call that the fakes do not know: {next(iter(counts['unknown']))}.")
    expected = work if durable else Work()
    for what, made, wanted in (
        ("documents", counts["created"], expected.messages),
        ("tasks", counts["tasks"], expected.messages),
        ("writes of receipts", counts["changed"], expected.receipts),
    ):
        if made != wanted:
            word = "skipped work" if made < wanted else "did more than its work"
            raise BenchError(
                f"{server} {word}: {work.messages:,} messages and {work.receipts:,} receipts were answered 200, so "
                f"{wanted:,} {what} were due, and the fakes counted {made:,}."
            )
