"""python -m bench.page RESULTS.json: put a run's table into docs/performance.md, and draw docs/performance.svg."""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import emulators
from bench.environments import ROOT
from bench.figures import Summary, markdown
from bench.plot import draw
from bench.servers import SERVERS

PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- results of a run: python -m bench.page -->\n", "<!-- end of the results -->\n"


def part(path: Path) -> str:
    """The part of the page that shows this file's results."""
    document: Mapping[str, Any] = json.loads(path.read_text())
    return "\n".join([*lines(document, path), ""])


def lines(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    machine, options = document["machine"], document["options"]
    rounds = "1 round" if options["rounds"] == 1 else f"{options['rounds']} rounds"
    yield f"Run of {document['date']}, commit `{document['commit']}`: {machine['processor']}, {machine['cores']} cores,"
    yield f"Python {machine['python']}, {rounds}, {options['seconds']:g} s for each load. All"
    yield f"samples: `{path.resolve().relative_to(ROOT).as_posix()}`."
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


def replaced(page: str, shown: str) -> str:
    """The page with this part between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{shown}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("results", type=Path, help="a file of bench/results")
    path = parser.parse_args().results
    PAGE.write_text(replaced(PAGE.read_text(), part(path)))
    PLOT.write_text(draw(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
