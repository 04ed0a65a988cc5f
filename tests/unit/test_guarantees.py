"""docs/guarantees.md: every promise names what shows it, and what it names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
PROOFS = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise ")]


@pytest.mark.parametrize(("path", "name"), sorted(set(PROOFS)))
def test_a_test_that_the_page_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_every_promise_names_a_test_or_a_run(row: str) -> None:
    promise, _, proof = (cell.strip() for cell in row.strip("|").split("|"))
    assert promise.endswith(".")
    assert re.search(r"`[\w/]+\.py::\w+`|\(reliability\.md\)", proof), promise


def test_parser_reads_every_row_of_the_page() -> None:
    assert len(ROWS) >= 15
    assert len(PROOFS) >= len(ROWS)
