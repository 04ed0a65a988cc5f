"""What is cited is there: nothing that people read names a page, a case or a rule by a number of some other document.

Files and links are held by test_pages.py. Here it is numbers: a docstring that is or begins with one, a number in
brackets behind a name, `case 36`, and the short names of the invariants, which docs/model.md defines.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "bench", "examples", "cli", "handlers", "infra", "local", "pombo", "services", "shared", "tests")
PROGRAMS = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts
)
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "infra").rglob("*.md")])

_NUMBERS = r"\d{1,3}(?:, \d{1,3})*"
_BEGINS_WITH_NUMBER = re.compile(rf"\s*{_NUMBERS}\s*(?:[.:,;]|$)(?!\d)")
_NUMBER_BEHIND = re.compile(rf"(?<=[a-z] )\({_NUMBERS}\)")
_CASE = re.compile(r"\b(?:case|cases|row|rule|point) \d+\b")
_LABEL = re.compile(r"\b[IO]\d{1,2}\b")

ARE_NO_CITES = {
    "The id of row 2 is empty.",
    "The title of row 1 is empty.",
    "The description of row 1 is a str, not int.",
}
"""Sentences of ours that count something."""


def _docstrings(tree: ast.AST) -> Iterator[str]:
    """Docstrings of modules, classes and functions, and the texts below a constant that explain it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# -")


_MAY_CITE = re.compile(rf'"""\s*\d|#[ -]*\d|[a-z] \({_NUMBERS}\)|{_CASE.pattern}')
"""What a source without any of these need not be parsed for: it has no cite."""


def cites_of(source: str) -> list[str]:
    """What cites a number that only another document could explain."""
    if not _MAY_CITE.search(source):
        return []
    tree = ast.parse(source)
    written = [*_docstrings(tree), *_comments(source)]
    return [
        *(text for text in written if _BEGINS_WITH_NUMBER.match(text)),
        *(text for text in [*written, *_strings(tree)] if text not in ARE_NO_CITES and _CASE.search(text)),
        *(text for text in [*written, *_strings(tree)] if _NUMBER_BEHIND.search(text)),
    ]


def test_no_program_cites_a_number_that_the_repository_does_not_explain() -> None:
    cites = {path: cites_of(path.read_text()) for path in PROGRAMS if path != Path(__file__)}
    assert [f"{path.relative_to(ROOT)}: {cite}" for path, found in cites.items() for cite in found] == []


def test_no_page_cites_a_case_by_its_number() -> None:
    cited = {str(page.relative_to(ROOT)): _CASE.findall(page.read_text()) for page in PAGES}
    assert {name: found for name, found in cited.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""36."""\n',
        'def f():\n    """21: the address is `recipient`."""\n',
        'def f():\n    """47, 48: every send is lost."""\n',
        "CASES = {'a flow, broken (28)': 1}\n",
        '"""However it is written (case 36)."""\n',
        "# 27: a portfolio\n",
        '"""As row 12 of the table says."""\n',
    ],
)
def test_a_cite_by_number_is_found(source: str) -> None:
    assert cites_of(source) != []


def _defined() -> set[str]:
    """The invariants that docs/model.md explains, each in a row of its own."""
    return set(re.findall(r"^\| ([IO]\d{1,2}) \|", (ROOT / "docs" / "model.md").read_text(), re.M))


def test_every_short_name_of_an_invariant_is_one_of_the_models_and_used_there_alone() -> None:
    named = [path for path in PROGRAMS if _LABEL.search(path.read_text())]
    model = [path for path in named if "model" in path.relative_to(ROOT).parts]
    used = {label for path in model for text in _strings(ast.parse(path.read_text())) for label in _LABEL.findall(text)}
    assert used == _defined()
    others = [path for path in named if path not in model and path != Path(__file__)]
    assert [
        str(path.relative_to(ROOT))
        for path in others
        if any(
            _LABEL.search(text) for text in [*_comments(path.read_text()), *_docstrings(ast.parse(path.read_text()))]
        )
    ] == []


def test_the_protocol_is_cited_by_its_page() -> None:
    """A page that speaks of the protocol's tables or rows names docs/protocol.md."""
    vague = re.compile(
        r"(?<!Cloud Tasks )(?:tables?|rows?) of the (?:delivery )?protocol|the protocol's tables?|protocol stands"
    )
    texts = [*PROGRAMS, *(page for page in PAGES if page.name != "protocol.md")]
    assert [
        str(path.relative_to(ROOT)) for path in texts if vague.search(path.read_text()) and path != Path(__file__)
    ] == []
