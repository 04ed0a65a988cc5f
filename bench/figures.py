"""The figures of a run, their medians and spreads, and their ratios to the stock server of the same run."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What is measured. `row` is its name among --rows; several figures may come from one row."""

    key: str
    row: str
    label: str
    unit: str
    digits: int = 0
    more_is_better: bool = False


FIGURES: tuple[Figure, ...] = (
    Figure("cpu_message_16", "cpu", "CPU per durable message, 16 connections", "µs"),
    Figure("cpu_message_1", "cpu", "CPU per durable message, 1 connection", "µs"),
    Figure("cpu_receipt_16", "cpu", "CPU per receipt, 16 connections", "µs"),
    Figure("rate", "rate", "requests/s on one core, 16 connections", "1/s", more_is_better=True),
    Figure("capacity", "rate", "messages/s that one core's CPU allows (1 / CPU)", "1/s", more_is_better=True),
    Figure("cold", "cold", "exec to the first processed webhook", "ms"),
    Figure("memory", "memory", "memory of the process tree after the load", "MiB", 1),
    Figure("p50", "latency", "latency at half load, p50", "ms", 2),
    Figure("p95", "latency", "latency at half load, p95", "ms", 2),
    Figure("p99", "latency", "latency at half load, p99", "ms", 2),
    Figure("large_seconds", "large", "a POST of 1,000 messages until its 200", "s", 2),
    Figure("large_deliveries", "large", "deliveries of that POST", "", 0),
    Figure("large_cpu", "large", "CPU per message of that POST", "µs"),
)
API_FIGURES: tuple[Figure, ...] = (
    Figure("api_rate", "api", "requests/s on one core, 16 connections", "1/s", more_is_better=True),
    Figure("api_cpu_16", "api", "CPU per message, 16 connections", "µs"),
    Figure("api_cpu_1", "api", "CPU per message, 1 connection", "µs"),
)
"""Of the API service; their ratio is to the bare app."""
ROWS: tuple[str, ...] = tuple(dict.fromkeys(figure.row for figure in FIGURES))


@dataclass(frozen=True, slots=True)
class Summary:
    """All samples of one figure of one server."""

    median: float
    least: float
    most: float
    ratio: float | None
    """To the median of the stock server (or another base) in the same run; None if it was not in it."""


def summarise(samples: Mapping[str, Sequence[float]], stock: str = "stock") -> dict[str, Summary]:
    """The summary of each server's samples of one figure. A server without a sample is left out."""
    medians = {server: statistics.median(values) for server, values in samples.items() if values}
    base = medians.get(stock)
    return {
        server: Summary(median, min(samples[server]), max(samples[server]), median / base if base else None)
        for server, median in medians.items()
    }


def rotated(names: Sequence[str], round_: int) -> list[str]:
    """The order of the servers in a round. Each goes first equally often, so that none always follows the same rest."""
    at = round_ % len(names) if names else 0
    return [*names[at:], *names[:at]]


def table(
    summaries: Mapping[str, Mapping[str, Summary]], figures: Iterable[Figure] = FIGURES, base: str = "stock"
) -> list[str]:
    """One line per figure and server, for a terminal. `summaries` is by the figure's key and then by server, and has
    ratios to the server `base`.
    """
    rows = [("", "server", "median", "[min-max]", f"of {base}")]
    for figure in figures:
        label = f"{figure.label} ({figure.unit})" if figure.unit else figure.label
        for server, summary in summaries.get(figure.key, {}).items():
            rows.append((label, server, *_cells(figure, summary)))
            label = ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  "
        f"{row[4]:>{widths[4]}}".rstrip()
        for row in rows
    ]


def markdown(summaries: Mapping[str, Mapping[str, Summary]], servers: Sequence[str]) -> list[str]:
    """The same for a page: one row per figure, one column per server, each with its ratio to stock."""
    lines = [f"| figure | {' | '.join(servers)} |", f"|---|{'---|' * len(servers)}"]
    for figure in FIGURES:
        found = summaries.get(figure.key, {})
        if not found:
            continue
        unit = f", {figure.unit}" if figure.unit else ""
        cells = [markdown_cell(figure, found.get(server)) for server in servers]
        lines.append(f"| {figure.label}{unit} | {' | '.join(cells)} |")
    return lines


def markdown_cell(figure: Figure, summary: Summary | None) -> str:
    """Median, spread and ratio; a dash if there is no sample."""
    if summary is None:
        return "–"
    median, spread, ratio = _cells(figure, summary)
    return f"{median} {spread}" + (f" **{ratio}**" if ratio else "")


def _cells(figure: Figure, summary: Summary) -> tuple[str, str, str]:
    median, least, most = (f"{value:,.{figure.digits}f}" for value in (summary.median, summary.least, summary.most))
    ratio = "" if summary.ratio is None else f"{summary.ratio:.3f}" if summary.ratio < 0.1 else f"{summary.ratio:.2f}"
    return median, f"[{least}-{most}]", ratio
