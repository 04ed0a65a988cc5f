"""The command line of the benchmark."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from bench.figures import ROWS
from bench.servers import SERVERS

FAKES, EMULATORS, API = "fakes", "emulators", "api"
STORES = ("sqlite", "redis", "firestore")
MOST_ROUNDS, MOST_SECONDS = 50, 30.0

EXAMPLES = """\
examples:
  make bench                                                   everything, about nine minutes
  make bench ARGS="--rounds 1 --seconds 1"                     everything once, in about two minutes
  python -m bench --rows cpu,rate --servers product,stock      only these rows and servers
  python -m bench --against emulators --stores sqlite,redis    latency on the local stack, also in two outages
  python -m bench --against api                                POST /v1/messages beside a bare Flask app, on SQLite
  python -m bench --json /tmp/before.json                      where to write the results

Every process listens on loopback only. Ctrl-C ends them all.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run."""

    rounds: int
    seconds: float
    rows: tuple[str, ...]
    servers: tuple[str, ...]
    against: tuple[str, ...]
    stores: tuple[str, ...]
    json: Path | None
    python: str


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"bench: {message} (python -m bench --help lists what there is)\n")


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Exits with 2 and one sentence on a wrong call."""
    parser = _Parser(
        prog="python -m bench",
        description="Measure the services beside other servers, in the same run (docs/performance.md).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--rounds", type=_between(int, 1, MOST_ROUNDS), default=5, help="rounds, interleaved; default 5"
    )
    parser.add_argument(
        "--seconds", type=_between(float, 0.2, MOST_SECONDS), default=3.0, help="seconds of each load; default 3"
    )
    parser.add_argument("--rows", type=_some_of("row", ROWS), default=ROWS, help=f"of {','.join(ROWS)}; default all")
    known = tuple(SERVERS)
    parser.add_argument(
        "--servers", type=_some_of("server", known), default=known, help=f"of {','.join(known)}; default all"
    )
    targets = (FAKES, EMULATORS, API)
    parser.add_argument(
        "--against",
        type=_some_of("target", targets),
        default=(FAKES,),
        help="fakes: the webhook service and instant fakes; emulators: the local stack; api: the API service; "
        "default fakes",
    )
    parser.add_argument(
        "--stores",
        type=_some_of("store", STORES),
        help=f"with emulators or api: of {','.join(STORES)}; default all, with api alone sqlite",
    )
    parser.add_argument(
        "--json", type=Path, help="the file of the results; default bench/results/<date>-<time>-<commit>.json"
    )
    parser.add_argument("--python", default=sys.executable, help="the Python that all servers run on; default this one")
    asked = parser.parse_args(arguments)
    asked.stores = asked.stores or (STORES[:1] if asked.against == (API,) else STORES)
    return Options(**vars(asked))


def _some_of(what: str, known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse_names(text: str) -> tuple[str, ...]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
                raise argparse.ArgumentTypeError(f"there is no {what} {name!r}; {hint}")
        if not names:
            raise argparse.ArgumentTypeError(f"it names no {what}; choose from {', '.join(known)}")
        return tuple(name for name in known if name in names)

    return parse_names


def _between(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], float]:
    def parse_number(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = kind(0)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return number

    return parse_number
