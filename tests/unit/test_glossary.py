"""docs/glossary.md: every word is a name of the code where the page says, in order, and no two words share a row."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.domain.verdicts import LimitScope
from shared.pipeline.intake import Acknowledgement, Incoming

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ROWS = re.findall(r"^\| ([a-z -]+) \| (.+) \| `(\w+)` \| `([\w/.]+)` \|$", PAGE, re.M)
EMPTY_WORDS = re.findall(r"`(\w+)`", PAGE.split("No name says")[1])


def _defined(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives to something: a class, a function, a field, a constant, an alias."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield name
            case ast.AnnAssign(target=ast.Name(id)):
                yield id
            case ast.Assign(targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize(("word", "name", "path"), [(word, name, path) for word, _, name, path in ROWS])
def test_glossary_name_is_defined_in_the_named_file(word: str, name: str, path: str) -> None:
    assert name in set(_defined(ast.parse((ROOT / path).read_text()))), word


def test_glossary_has_each_channel_term_and_each_role() -> None:
    """What an adapter's author meets first, and who is meant by a contact and by an operator."""
    door = {"account", "acknowledgement", "channel", "echo", "handshake", "incoming", "scope", "sender"}
    assert door | {"contact", "operator", "owner", "tenant"} <= {word for word, *_ in ROWS}
    assert {Incoming.__name__, Acknowledgement.__name__, LimitScope.__name__} <= {name for _, _, name, _ in ROWS}


def test_glossary_is_sorted_without_duplicates() -> None:
    words = [word for word, *_ in ROWS]
    assert words == sorted(set(words))
    assert len(ROWS) == len([line for line in PAGE.splitlines() if line.startswith("| ")]) - 1
    assert len(ROWS) >= 50


PRODUCT = re.compile(r"secret_?manager", re.I)
"""Google's name of a service."""


def test_no_name_in_the_code_contains_a_meaningless_term() -> None:
    empty = re.compile("|".join(EMPTY_WORDS), re.I)
    programs = [path for folder in ("shared", "services", "cli", "local") for path in (ROOT / folder).rglob("*.py")]
    assert len(EMPTY_WORDS) == 5
    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path in programs
        for name in [path.stem, *_defined(ast.parse(path.read_text()))]
        if empty.search(PRODUCT.sub("", name))
    ] == []
