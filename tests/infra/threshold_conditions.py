"""Threshold conditions: a condition without PromQL, evaluated on made-up series.

The part of https://cloud.google.com/monitoring/alerts/concepts-indepth that the uptime alert uses. Any other condition
is refused instead of guessed at.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_COMPARISON = re.compile(r'([a-z_.]+)="([^"]*)"')
_AS_COMPARED = {
    "COMPARISON_GT": lambda value, bound: value > bound,
    "COMPARISON_LT": lambda value, bound: value < bound,
}


class ConditionInvalid(Exception):
    """A condition uses something that is not supported here."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: its type and labels, and its points by the minute."""

    about: Mapping[str, str]
    """`metric.type`, `resource.type` and labels, by their paths."""
    points: Mapping[int, bool]


def speaks(condition: Mapping[str, Any], series: Iterable[Series], minute: int) -> bool:
    """Whether a threshold condition holds at a minute, and has held for its duration. Raises ConditionInvalid."""
    wanted = dict(_comparisons(condition["filter"]))
    looked_at = [it for it in series if wanted.items() <= it.about.items()]
    minutes = _minutes(condition["duration"])
    (trigger,) = condition["trigger"] or [{"count": 1}]
    groups = [_groups(condition, looked_at, at) for at in range(minute - minutes, minute + 1)]
    violating = {name for name in groups[-1] if all(_violates(condition, group.get(name)) for group in groups)}
    return len(violating) >= (trigger.get("count") or 1)


def _comparisons(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(" AND "):
        found = _COMPARISON.fullmatch(part.strip())
        if not found:
            raise ConditionInvalid(f'{part}: only field="value" is known here.')
        path = re.sub(r"^(resource|metric)\.label\.", r"\1.labels.", found[1])
        yield path, found[2]


def _groups(condition: Mapping[str, Any], series: Iterable[Series], minute: int) -> dict[tuple[str, ...], float]:
    """For each group of series the number that is compared with the threshold."""
    (how,) = condition["aggregations"]
    if how["per_series_aligner"] != "ALIGN_NEXT_OLDER":
        raise ConditionInvalid(f"{how['per_series_aligner']} is not known here.")
    count = {"REDUCE_COUNT_FALSE": False, "REDUCE_COUNT_TRUE": True}.get(how["cross_series_reducer"])
    if count is None:
        raise ConditionInvalid(f"{how['cross_series_reducer']} is not known here.")
    by = [re.sub(r"^(resource|metric)\.label\.", r"\1.labels.", path) for path in how["group_by_fields"] or []]
    back = _minutes(how["alignment_period"])
    found: dict[tuple[str, ...], float] = {}
    for one in series:
        known = [at for at in one.points if minute - back < at <= minute]
        if known:
            name = tuple(one.about.get(path, "") for path in by)
            found[name] = found.get(name, 0) + (one.points[max(known)] is count)
    return found


def _violates(condition: Mapping[str, Any], value: float | None) -> bool:
    compare = _AS_COMPARED.get(condition["comparison"])
    if compare is None:
        raise ConditionInvalid(f"{condition['comparison']} is not known here.")
    return value is not None and compare(value, condition.get("threshold_value") or 0)


def _minutes(length: str) -> int:
    return int(float(length.removesuffix("s")) // 60)
