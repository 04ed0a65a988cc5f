"""tests/README.md: every test file is in a table, every folder has its row, and everything that is named is there.

And the names of the tests are short enough to read in a list.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import LONGEST_FIRST

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text()
FILES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py"))


def listed() -> Iterator[str]:
    """The test files in the tables, by their paths in tests/. A name stands for a file of its section's folder."""
    for section in PAGE.split("\n## tests/")[1:]:
        title, _, text = section.partition("\n")
        folder = title if "," not in title else "."
        for cell in re.findall(r"^\| .+ \| (`.+`) \|$", text.split("\n## ")[0], re.M):
            yield from (str(Path(folder, name)) for name in re.findall(r"`([^`]+)`", cell))


def test_every_test_file_is_in_a_table_of_its_folder_once() -> None:
    assert sorted(listed()) == FILES


def test_every_file_that_starts_early_exists() -> None:
    assert set(LONGEST_FIRST) <= set(FILES)


def test_every_folder_with_tests_has_a_row_with_its_time() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", PAGE.split("\n## ")[2], re.M)
    assert sorted(rows) == sorted({Path(name).parts[0] for name in FILES})


def test_every_helper_that_the_page_names_exists() -> None:
    cells = re.findall(r"^\| (`.+`) \| ", PAGE.split("\n## Helpers")[1], re.M)
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 20
    assert [name for name in named if not (TESTS / name).exists()] == []


def test_every_test_name_has_fewer_than_80_characters() -> None:
    names = [
        name
        for file in FILES
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", (TESTS / file).read_text(), re.M)
    ]
    assert len(names) > 3_000
    assert [name for name in names if len(name) >= 80] == []
