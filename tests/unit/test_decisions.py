"""docs/decisions: every decision is in the index, once, by its title; all have one form."""

import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
INDEX = (FOLDER / "README.md").read_text()
DECISIONS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
ROWS = re.findall(r"^\| \[(\d+)\. (.+)\]\(([\w.-]+)\) \| (.+) \| (.+) \|$", INDEX, re.M)
MOVED = re.findall(r"^\| (\d+)\. .+ \| `([\w.]+)` in `(.+)` \|$", INDEX, re.M)


def number_of(path: Path) -> int:
    return int(path.name.split("-")[0])


def test_every_decision_is_in_the_index_once_by_its_number_and_title() -> None:
    titles = {path.name: path.read_text().splitlines()[0].removeprefix("# ") for path in DECISIONS}
    assert sorted((name, f"{number}. {title}") for number, title, name, _, _ in ROWS) == sorted(titles.items())


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name)
def test_every_decision_has_the_one_form(path: Path) -> None:
    text = path.read_text()
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
    assert re.match(rf"# {number_of(path)}\. [^\n]+[^.\n]\n\n\*\*Context\.\*\* ", text)
    assert re.findall(r"^\*\*(.+?)\*\*", text, re.M) == ["Context.", "Choice.", "Consequence."]
    assert not re.search(r"^#{2,} ", text, re.M)


def test_every_row_has_a_subject_a_status_and_a_date() -> None:
    for number, _, name, status, date in ROWS:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), name
        assert status == "in force" or re.fullmatch(r"replaced by \[\d+\]\(\d{4}-[\w-]+\.md\)", status), name
        assert int(number) == int(name[:4])
    rows = [line for line in INDEX.splitlines() if line.startswith("| [")]
    assert len(rows) == len(ROWS)
    assert "## " in INDEX.split(rows[0])[0]


def test_no_number_is_used_twice_also_not_one_that_moved_into_the_code() -> None:
    numbers = [*map(number_of, DECISIONS), *(int(number) for number, *_ in MOVED)]
    assert len(numbers) == len(set(numbers))
    assert len(MOVED) == INDEX.split("## Moved into the code")[1].count("\n| ") - 1


@pytest.mark.parametrize(("number", "name", "path"), MOVED)
def test_decision_moved_into_the_code_is_explained_there(number: str, name: str, path: str) -> None:
    found: object = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    assert len((found.__doc__ or "").split()) >= 30, number
