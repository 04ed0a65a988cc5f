"""The pages: every link leads somewhere, and every file that a page, a comment or a sentence names is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *(".ci", "bench", "cli", "docs", "examples", "handlers", "infra", "local", "pombo", "services", "shared", "tests"),
)
WRITTEN_IN = {".md", ".py", ".tf", ".hcl", ".tfvars", ".yaml", ".toml", ".env", ".txt", ""}


def _texts() -> Iterator[str]:
    """What people have written, by its path. (Not by git: a build is sent the files without it.)"""
    for path in (*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))):
        if path.suffix in WRITTEN_IN and path.is_file() and not {".terraform", "__pycache__", "corpus"} & {*path.parts}:
            yield str(path.relative_to(ROOT))


TEXTS = sorted(_texts())
PAGES = [name for name in TEXTS if name.endswith(".md")]

_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_NAMED = re.compile(
    r"(?<![\w/.$*{}-])(?:bench|cli|docs|examples|handlers|infra|local|pombo|services|shared|tests)/"
    r"(?:[\w.-]+/)*[\w-]+\.(?:py|md|tf|hcl|json|yaml|env|txt|tfvars)(?![\w-])"
)
INVENTED = re.compile(r"tests/t\.py|infra/e/.*|handlers/mine\.py|tests/test_mine\.py|.*/terraform\.tfvars")
"""Files of tests' own trees, and those that a user makes."""


def prose_of(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.S | re.M)


def anchors_of(page: str) -> set[str]:
    """What a heading is called in a link: small letters, hyphens for blanks, no punctuation."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose_of(page), re.M):
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        number = sum(1 for it in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", it))
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def _fault(page: str, target: str) -> str:
    path, _, anchor = target.partition("#")
    there = (ROOT / page).parent / path if path else ROOT / page
    if not there.exists():
        return f"{page} links to {target}, which is not there."
    if anchor and anchor not in anchors_of(str(there.resolve().relative_to(ROOT))):
        return f"{page} links to {target}, which has no such heading."
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: str) -> None:
    links = [it for it in _LINK.findall(prose_of(page)) if not it.startswith(("https:", "http:", "mailto:"))]
    assert [fault for target in links if (fault := _fault(page, target))] == []


def _named_in(name: str) -> set[str]:
    return {it for it in _NAMED.findall((ROOT / name).read_text()) if not INVENTED.fullmatch(it)}


def test_every_file_that_is_named_anywhere_is_there() -> None:
    """By its place in the repository, or beside who names it, or, on the page of guarantees, in tests/."""
    bases = {name: (ROOT, (ROOT / name).parent, ROOT / "tests") for name in TEXTS}
    assert [
        f"{name} names {named}"
        for name in TEXTS
        for named in sorted(_named_in(name))
        if not any((base / named).exists() for base in bases[name])
    ] == []


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_prose_wrap_at_120_characters(page: str) -> None:
    """Not tables, and not blocks of code, which cannot be wrapped."""
    lines = prose_of(page).splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith(("|", "    "))] == []
