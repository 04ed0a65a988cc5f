"""The plot: a bar for each server's ratio to stock, on a logarithmic axis, as SVG."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from bench.figures import FIGURES, Figure

SHOWN = ("cpu_message_16", "cpu_message_1", "cpu_receipt_16", "rate", "cold", "memory", "p99", "large_cpu")
"""One figure of each kind; the table has all."""

COLOURS: Mapping[str, str] = {"product": "#1f6feb", "floor": "#2da44e", "ack": "#bf8700", "pywa": "#8250df"}
WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 860, 330, 60, 13, 14, 64
TEXT = 'font-family="sans-serif" font-size="12" fill="#24292f"'


def draw(document: Mapping[str, Any], servers: Sequence[str] = tuple(COLOURS)) -> str:
    """The SVG of a run's results. Servers and figures without a ratio are left out."""
    figures = [figure for figure in FIGURES if figure.key in SHOWN and _ratios(document, figure, servers)]
    ratios = [ratio for figure in figures for ratio in _ratios(document, figure, servers).values()]
    low = 10 ** math.floor(math.log10(min([*ratios, 0.5])))
    high = 10 ** math.ceil(math.log10(max([*ratios, 2.0])))
    heights = [len(_ratios(document, figure, servers)) * BAR + GAP for figure in figures]
    height = TOP + sum(heights) + 30

    def x(ratio: float) -> float:
        share = math.log10(ratio / low) / math.log10(high / low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" {TEXT} font-weight="bold">Ratio to the stock server (1 = as stock)</text>',
        *_legend([server for server in servers if any(server in _ratios(document, it, servers) for it in figures)]),
        *_axis(low, high, x, height),
    ]
    top = TOP
    for figure, size in zip(figures, heights, strict=True):
        better = "more is better" if figure.more_is_better else "less is better"
        lines.append(f'<text x="10" y="{top + BAR}" {TEXT}>{escape(figure.label)}</text>')
        lines.append(f'<text x="10" y="{top + 2 * BAR}" {TEXT} fill-opacity="0.6">{better}</text>')
        for place, (server, ratio) in enumerate(_ratios(document, figure, servers).items()):
            lines += _bar(server, ratio, x(1), x(ratio), top + place * BAR)
        top += size
    return "\n".join([*lines, "</svg>", ""])


def _ratios(document: Mapping[str, Any], figure: Figure, servers: Sequence[str]) -> dict[str, float]:
    found = document["figures"].get(figure.key, {})
    return {name: found[name]["ratio"] for name in servers if name in found and found[name]["ratio"]}


def _bar(server: str, ratio: float, one: float, end: float, top: float) -> Iterator[str]:
    left, width = min(one, end), max(abs(end - one), 1.0)
    yield (
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR - 3}" fill="{COLOURS[server]}">'
        f"<title>{server}: {ratio:.3g}</title></rect>"
    )
    place, anchor = (end + 4, "start") if end >= one else (end - 4, "end")
    yield f'<text x="{place:.1f}" y="{top + BAR - 4}" {TEXT} text-anchor="{anchor}">{ratio:.2g}</text>'


def _legend(servers: Sequence[str]) -> Iterator[str]:
    for place, server in enumerate(servers):
        left = LEFT + place * 100
        yield f'<rect x="{left}" y="32" width="10" height="10" fill="{COLOURS[server]}"/>'
        yield f'<text x="{left + 15}" y="41" {TEXT}>{server}</text>'


def _axis(low: float, high: float, x: Any, height: int) -> Iterator[str]:
    ratio = low
    while ratio <= high * 1.001:
        colour = "#24292f" if abs(ratio - 1) < 1e-9 else "#d0d7de"
        yield f'<line x1="{x(ratio):.1f}" y1="{TOP - 8}" x2="{x(ratio):.1f}" y2="{height - 24}" stroke="{colour}"/>'
        yield f'<text x="{x(ratio):.1f}" y="{height - 8}" {TEXT} text-anchor="middle">{ratio:g}</text>'
        ratio *= 10
