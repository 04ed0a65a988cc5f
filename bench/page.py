"""python -m bench.page RESULTS.json: put a run's tables into docs/performance.md, and draw docs/performance.svg.

A run of the API service alone replaces its own part of the page, and draws nothing.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import api, emulators
from bench.environments import ROOT
from bench.figures import Summary, markdown
from bench.plot import draw
from bench.servers import SERVERS

PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- results of a run: python -m bench.page -->\n", "<!-- end of the results -->\n"
API_BEGIN, API_END = "<!-- results of the API: python -m bench.page -->\n", "<!-- end of the API's results -->\n"


def part(path: Path) -> str:
    """The part of the page that shows this file's results."""
    document: Mapping[str, Any] = json.loads(path.read_text())
    return "\n".join([*lines(document, path), ""])


def api_part(path: Path) -> str:
    """The part of the page that shows this file's results of the API service."""
    document: Mapping[str, Any] = json.loads(path.read_text())
    return "\n".join([*_head(document, path), "", *api.markdown(document["api"]), ""])


def _head(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    machine, options = document["machine"], document["options"]
    rounds = "1 round" if options["rounds"] == 1 else f"{options['rounds']} rounds"
    yield f"Run of {document['date']}, commit `{document['commit']}`: {machine['processor']}, {machine['cores']} cores,"
    yield f"Python {machine['python']}, {rounds}, {options['seconds']:g} s for each load. All"
    yield f"samples: `{path.resolve().relative_to(ROOT).as_posix()}`."


def lines(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    yield from _head(document, path)
    yield ""
    summaries = {
        key: {server: Summary(**summary) for server, summary in found.items()}
        for key, found in document["figures"].items()
    }
    if summaries:
        yield "Each cell has the median, [min-max], and in bold the ratio to stock."
        yield ""
        servers = [name for name in SERVERS if any(name in found for found in summaries.values())]
        yield from markdown(summaries, servers)
        yield ""
        yield "![Each server's ratio to the stock server](performance.svg)"
    if document["stores"]:
        yield ""
        yield from emulators.markdown(document["stores"])


def replaced(page: str, shown: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with this part between its two marks."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{shown}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("results", type=Path, help="a file of bench/results")
    path = parser.parse_args().results
    document = json.loads(path.read_text())
    if document.get("api"):
        PAGE.write_text(replaced(PAGE.read_text(), api_part(path), API_BEGIN, API_END))
    if document["figures"] or document["stores"]:
        PAGE.write_text(replaced(PAGE.read_text(), part(path)))
        PLOT.write_text(draw(document))


if __name__ == "__main__":
    main()
