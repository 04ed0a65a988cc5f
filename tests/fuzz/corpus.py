"""The corpus: every webhook that is known to be well formed or nearly, from the samples and from what was recorded."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "tests" / "data" / "fuzz"
"""What once went wrong, a folder for each target: the smallest input that showed it."""


@cache
def webhooks() -> tuple[Any, ...]:
    """Documents as Meta sends them. They are shared: a change is made to a copy."""
    samples = [json.loads(path.read_bytes()) for path in sorted((ROOT / "examples" / "requests").glob("*.json"))]
    recorded = [
        json.loads(path.read_bytes())["body"] for path in sorted((ROOT / "tests" / "data" / "meta").glob("*.json"))
    ]
    return (*samples, *recorded)


@cache
def messages() -> tuple[Any, ...]:
    """The messages in them."""
    return tuple(_values("messages"))


@cache
def receipts() -> tuple[Any, ...]:
    return tuple(_values("statuses"))


def found(target: str) -> dict[str, bytes]:
    """What once went wrong there, by its name."""
    return {path.stem: path.read_bytes() for path in sorted((FOUND / target).iterdir())}


def _values(name: str) -> Iterator[Any]:
    for node in _nodes(webhooks()):
        held = node.get(name) if isinstance(node, dict) else None
        if isinstance(held, list):
            yield from (item for item in held if isinstance(item, dict) and item.get("id"))


def _nodes(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for inner in value:
        yield from _nodes(inner)
