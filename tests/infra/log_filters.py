"""Log filters: the part of Cloud Logging's query language that we write, evaluated on a line.

https://cloud.google.com/logging/docs/view/logging-query-language. Only comparisons of a field with a value, or with
several texts of which one must match, joined by AND. Any other syntax is refused instead of guessed at.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Entry = Mapping[str, Any]
"""A log entry with the API's names: resource, severity, labels, jsonPayload."""

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
"""In ascending order, https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry#logseverity."""

_TOKEN = re.compile(
    r"""\s*(?: (?P<path>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
             | (?P<op>>=|<=|=|>|<)(?![~=])
             | (?P<text>"[^"\\]*")
             | (?P<texts>\("[^"\\]*"(?:\ OR\ "[^"\\]*")+\))
             | (?P<number>-?[0-9]+(?:\.[0-9]+)?)(?![\w.])
           )""",
    re.X,
)
_VALUES = ("text", "texts", "number")
_ROOTS = ("jsonPayload", "labels", "resource", "severity", "trace")
_EXTRACT = re.compile(r"EXTRACT\(([A-Za-z0-9_.]+)\)")


class FilterInvalid(Exception):
    """A filter uses syntax or values that are not supported here."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value."""

    path: tuple[str, ...]
    op: str
    value: str | float | tuple[str, ...]
    """With several texts, one of them must match."""

    def __call__(self, entry: Entry) -> bool:
        """Whether the entry has the field, and the comparison holds. Raises FilterInvalid if the types differ."""
        found = field_of(entry, self.path)
        if found is None:
            return False
        if self.path == ("severity",):
            return _compare(SEVERITIES.index(found), self.op, SEVERITIES.index(str(self.value)))
        if isinstance(found, str) and isinstance(self.value, str | tuple) and self.op == "=":
            texts = (self.value,) if isinstance(self.value, str) else self.value
            return found.casefold() in {text.casefold() for text in texts}  # only a regular expression minds the case
        if isinstance(found, int | float) and not isinstance(found, bool) and isinstance(self.value, float):
            return _compare(found, self.op, self.value)
        raise FilterInvalid(f"{'.'.join(self.path)} is {found!r} in a line; {self.op} {self.value!r} is another kind.")


@dataclass(frozen=True, slots=True)
class Filter:
    """A conjunction of comparisons."""

    comparisons: tuple[Comparison, ...]

    def __call__(self, entry: Entry) -> bool:
        """Whether all hold. Each is evaluated, so that an invalid one is found whatever the others say."""
        answers = [comparison(entry) for comparison in self.comparisons]
        return all(answers)

    @property
    def paths(self) -> set[tuple[str, ...]]:
        return {comparison.path for comparison in self.comparisons}


def parse(text: str) -> Filter:
    """Raises FilterInvalid for any syntax but `field op value AND field=("text" OR "text")`."""
    tokens = list(_tokens(text))
    comparisons = []
    while tokens:
        comparisons.append(_comparison(tokens[:3], text))
        if len(tokens) > 3 and tokens[3] != ("path", "AND"):
            raise FilterInvalid(f"{tokens[3][1]}: only AND joins comparisons: {text}")
        if len(tokens) == 4:
            raise FilterInvalid(f"nothing follows AND: {text}")
        tokens = tokens[4:]
    if not comparisons:
        raise FilterInvalid("it is empty, and would match everything.")
    return Filter(tuple(comparisons))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if not found or not found.lastgroup:
            raise FilterInvalid(f"{text[at:].strip()[:20]}: unknown here: {text}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _comparison(tokens: list[tuple[str, str]], text: str) -> Comparison:
    if [kind for kind, _ in tokens][:2] != ["path", "op"] or len(tokens) != 3 or tokens[2][0] not in _VALUES:
        raise FilterInvalid(
            f"{' '.join(it for _, it in tokens)} compares no field with a quoted text or number: {text}"
        )
    (_, path), (_, op), (kind, value) = tokens
    parts = tuple(path.split("."))
    if parts[0] not in _ROOTS or (len(parts) > 1) == (parts[0] in ("severity", "trace")):
        raise FilterInvalid(f"{path} is no field of a log entry: {text}")
    if parts == ("severity",):
        if value.strip('"') not in SEVERITIES:
            raise FilterInvalid(f"{value} is no severity: {text}")
    elif kind != "number" and op != "=":
        raise FilterInvalid(f"{op} is for numbers: {text}")
    if kind == "texts":
        return Comparison(parts, op, tuple(re.findall(r'"([^"]*)"', value)))
    return Comparison(parts, op, float(value) if kind == "number" else value[1:-1])


def field_of(entry: Entry, path: tuple[str, ...]) -> Any:
    """The value at a path; None if there is none."""
    found: Any = entry
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def extracted_path(extractor: str) -> tuple[str, ...]:
    """The path of an extractor. Raises FilterInvalid for anything but EXTRACT(a.path)."""
    found = _EXTRACT.fullmatch(extractor)
    if not found:
        raise FilterInvalid(f"{extractor}: only EXTRACT(a.path) is known here.")
    return tuple(found[1].split("."))


def _compare(found: float, op: str, value: float) -> bool:
    match op:
        case "=":
            return found == value
        case ">":
            return found > value
        case ">=":
            return found >= value
        case "<":
            return found < value
        case _:
            return found <= value


LIFTED = {
    "severity": "severity",
    "time": "timestamp",
    "logging.googleapis.com/labels": "labels",
    "logging.googleapis.com/trace": "trace",
}
"""The fields that Cloud Run's agent takes out of a line, https://cloud.google.com/logging/docs/structured-logging."""


def entry_of(line: Mapping[str, Any]) -> Entry:
    """A line of a service as Cloud Logging stores it."""
    return {
        "resource": {"type": "cloud_run_revision", "labels": {"service_name": "pombo"}},
        **{LIFTED[name]: value for name, value in line.items() if name in LIFTED},
        "jsonPayload": {name: value for name, value in line.items() if name not in LIFTED},
    }
