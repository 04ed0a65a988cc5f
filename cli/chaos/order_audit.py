"""The order of a chaos run: no two calls of the handler for one contact at the same time, and one lane for each.

Pure. A lane is the messages of one tenant to one contact; each record names the one before it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cli.chaos.message_fate import LedgerEntry
from shared.domain.record import Delivery

Fault = tuple[str, str]
"""The key of a record, and a sentence."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the handler that came to its end, in seconds since 1970, and the key of its event."""

    key: str
    began: float
    ended: float


def overlaps(calls: Sequence[Call], lease: float, lost: Collection[str]) -> Iterator[Fault]:
    """The calls of one contact that began before another one had ended. Two sorts may overlap: calls that took longer
    than `lease`, in seconds, and those of the events in `lost`, whose lease ran out while an attempt held it.
    """
    held = sorted((call for call in calls if call.ended - call.began < lease and call.key not in lost), key=_began)
    until = 0.0
    for call in held:
        if call.began < until:
            yield call.key, "The handler was called for a message while it handled another one of the same contact."
        until = max(until, call.ended)


def out_of_lane(lane: Sequence[Delivery], ledger: Mapping[str | None, Sequence[LedgerEntry]]) -> Iterator[Fault]:
    """What is wrong in one lane: two messages wait for the same one, more than one waits for none, or one was first
    sent before the one before it. A replayed message may come late, and one may overtake another if its record says so.
    """
    after = Counter(record.after for record in lane)
    for record in lane:
        if record.after is not None and after[record.after] > 1:
            yield record.key, "Two messages to one contact follow the same one."
    first = [record for record in lane if record.after is None]
    for record in first[1:]:
        yield record.key, "Two messages to one contact follow none."
    following = {record.after: record for record in lane if record.after is not None}
    yield from _sent_too_early(first[0] if first else None, following, ledger)


def _sent_too_early(
    record: Delivery | None,
    following: Mapping[str, Delivery],
    ledger: Mapping[str | None, Sequence[LedgerEntry]],
) -> Iterator[Fault]:
    """From the first record on. The order within one plan is judged by the plan."""
    last, plan = -1, None
    while record is not None:
        found = ledger.get(record.key, ())
        last = -1 if record.overtook else last
        if found and not record.round:
            if found[0].place < last and record.correlation_id != plan:
                yield record.key, "A message was sent before an earlier one to the same contact."
            last = max(last, found[0].place)
        plan = record.correlation_id
        record = following.get(record.key)


def _began(call: Call) -> float:
    return call.began
