"""The filters for dead letters: the options that several commands share, and the format of a time."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import islice
from typing import Any

import click

from cli.running import Running
from shared.domain.dead_letters import ERRORS, DeadLetter, DeadLetterFilter
from shared.domain.identity import is_id_prefix
from shared.domain.record import Kind
from shared.operations.dead_letters import find
from shared.operations.senders import find_sender
from shared.pipeline.ports import Store

_AGO = re.compile(r"([0-9]{1,6})\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_WHOLE_ID = re.compile(r"[0-9a-f]{40}")
_CODE = re.compile(r"-?[0-9]{1,9}")

Counts = Counter[tuple[str, int | None]]
"""How many letters there are per reason and provider's code."""


def _moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time, or how long ago it was."""
    if value is None:
        return None
    try:
        if match := _AGO.fullmatch(value.strip()):
            return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        at = datetime.fromisoformat(value.strip())
    except (ValueError, OverflowError):
        sentence = "give a time like 2026-11-28, 2026-11-28T10:15 (UTC) or 2h (two hours ago)."
        raise click.BadParameter(sentence) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _errors(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[str | int]:
    """Parse Pombo's reasons and the provider's error codes."""
    for value in values:
        if value not in ERRORS and not _CODE.fullmatch(value):
            raise click.BadParameter(f"give one of {', '.join(ERRORS)}, or a provider's error code like 131026.")
    return frozenset(value if value in ERRORS else int(value) for value in values)


_OPTIONS = (
    click.option("--tenant", help="Only this tenant's."),
    click.option("--sender", metavar="ID", help="Only this sender's: 8 or more characters of its id."),
    click.option(
        "--since", callback=_moment, metavar="TIME", help="Only those dead since this time: UTC, or 2h, 3d, 90m ago."
    ),
    click.option("--until", callback=_moment, metavar="TIME", help="Only those dead by this time."),
    click.option(
        "--error",
        "errors",
        callback=_errors,
        multiple=True,
        metavar="ERROR",
        help="Only this reason or provider's error code; may be repeated.",
    ),
    click.option("--kind", type=click.Choice([kind.value for kind in Kind]), help="Only events, or only messages."),
)


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the filters, as one argument `wanted`."""

    @wraps(command)
    def filtered(
        tenant: str | None,
        sender: str | None,
        since: datetime | None,
        until: datetime | None,
        errors: frozenset[str | int],
        kind: str | None,
        **others: Any,
    ) -> None:
        if since and until and since > until:
            raise click.UsageError("--since is later than --until.")
        wanted = DeadLetterFilter(tenant, since, until, errors, Kind(kind) if kind else None, sender)
        command(wanted=wanted, **others)

    for option in reversed(_OPTIONS):
        filtered = option(filtered)
    return filtered


def with_whole_sender(running: Running, wanted: DeadLetterFilter) -> DeadLetterFilter:
    """The filter with the whole id of its sender. Raises NotFound unless it names one; a whole id may
    be of a number that was removed, whose letters stay.
    """
    if wanted.sender is None:
        return wanted
    id = wanted.sender.rstrip("….")
    if _WHOLE_ID.fullmatch(id):
        return replace(wanted, sender=id)
    ours = [sender.id for sender in running.senders if is_id_prefix(id) and sender.id.startswith(id)]
    return replace(wanted, sender=ours[0] if ours else find_sender(running.registry, id).id)


class Search:
    """Iterates over the matching letters, each once, and counts those that it cannot read."""

    def __init__(self, store: Store, wanted: DeadLetterFilter, at_most: int | None = None) -> None:
        self._store, self._wanted, self._at_most = store, wanted, at_most
        self.unread = 0
        """Written by a newer version, or damaged."""

    def __iter__(self) -> Iterator[DeadLetter]:
        """Raises StoreUnavailable. A letter that dies again meanwhile is not returned twice."""
        yield from islice(self._all(), self._at_most)

    def _all(self) -> Iterator[DeadLetter]:
        seen: set[str] = set()
        for page in find(self._store, self._wanted):
            self.unread += page.unread
            for letter in page.letters:
                if letter.key not in seen:
                    seen.add(letter.key)
                    yield letter


def error_of(error: str, code: int | None, error_type: str | None = None) -> str:
    """An error as shown: its reason, and the provider's code or the exception's type if known."""
    more = error_type if code is None else code
    return f"{error} ({more})" if more is not None else error


def counts_as_text(counts: Counts) -> str:
    """The most frequent first."""
    return ", ".join(f"{error_of(*error)} {count:,}" for error, count in _ordered(counts))


def counts_as_dicts(counts: Counts) -> list[dict[str, Any]]:
    return [{"error": error, "code": code, "count": count} for (error, code), count in _ordered(counts)]


def _ordered(counts: Counts) -> Iterable[tuple[tuple[str, int | None], int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0][0], one[0][1] or 0))


def unread_as_text(unread: int) -> str:
    return f"{unread:,} more cannot be read: written by a newer version of Pombo, or damaged."
