"""The codec of counters: JSON text by window, tenant and measure; of each, bucket and count in turn. All stores share
it.
"""

from shared.domain.counters import Cell, Counts, Measure
from shared.domain.errors import UnknownState
from shared.stores.codec import Plain, from_json, to_json

MOST_PROCESSES = 1000
"""Processes whose counters are read."""


def encode(counts: Counts) -> str:
    """The counts as text. Raises TypeError or ValueError for what cannot be stored."""
    plain: Plain = {}
    for cell in sorted(counts):
        measures = plain.setdefault(str(cell.window), {}).setdefault(cell.tenant, {})
        measures.setdefault(cell.measure.value, []).extend((cell.bucket, counts[cell]))
    return to_json(plain)


def decode(text: str) -> Counts:
    """What `encode` wrote, without measures that only a newer version knows. Raises UnknownState."""
    try:
        return {
            Cell(int(window), tenant, Measure(measure), int(bucket)): int(count)
            for window, tenants in from_json(text).items()
            for tenant, measures in tenants.items()
            for measure, flat in measures.items()
            if measure in frozenset(Measure)
            for bucket, count in zip(flat[::2], flat[1::2], strict=True)
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise UnknownState from error
