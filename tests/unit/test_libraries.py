"""The libraries: each is imported where docs/decisions/0002-libraries.md says, and nowhere else."""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_import_directions import PROJECT, ROOT, imports_of

PAGE = ROOT / "docs" / "decisions" / "0002-libraries.md"
OURS = ("services", "shared", "handlers", "pombo", "cli", "local", "infra", "examples")
BUILT_ON = {
    "functions_framework",
    "flask",
    "httpx",
    "google.cloud.tasks_v2",
    "google.cloud.firestore_v1",
    "google.cloud.logging",
    "pytest",
    "pytest_mock",
}
"""What the project is built on, whatever else comes and goes."""

BY_NAME: Mapping[str, str] = {"uvloop": "services/async_server.py"}
"""Libraries that a file names to another library, which imports them."""

OURS_AND_PYTHONS = {*sys.stdlib_module_names, *PROJECT, "infra"}

TABLE: Mapping[str, list[str]] = {
    row[1]: re.findall(r"`([^`]+)`", row[2])
    for row in re.finditer(r"^\| `([\w.]+)` \| ([^|]*) \|$", PAGE.read_text(), re.M)
}


@cache
def imported_in(path: Path) -> frozenset[str]:
    """Every module of others that a file imports, at its head or inside a function."""
    names = (one.name for one in imports_of(path.read_text(), "a.module"))
    return frozenset(name for name in names if name.partition(".")[0] not in OURS_AND_PYTHONS)


def imports(path: Path, library: str) -> bool:
    if BY_NAME.get(library) == str(path.relative_to(ROOT)) and f'"{library}"' in path.read_text():
        return True
    return any(name == library or name.startswith(f"{library}.") for name in imported_in(path))


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_the_table_has_what_the_project_is_built_on() -> None:
    assert set(TABLE) >= BUILT_ON


@pytest.mark.parametrize(("library", "place"), [(library, place) for library in TABLE for place in TABLE[library]])
def test_library_is_imported_where_the_decision_allows(library: str, place: str) -> None:
    path = ROOT / place
    assert path.is_dir() == place.endswith("/"), f"{place} is no such file or folder"
    is_imported = any(imports(file, library) for file in (files(place) if path.is_dir() else [path]))
    assert is_imported, f"{place} does not import {library}"


@pytest.mark.parametrize("library", TABLE)
def test_a_library_is_imported_nowhere_else(library: str) -> None:
    assert TABLE[library], "the decision names no place"
    assert [
        str(file.relative_to(ROOT))
        for file in files(*OURS)
        if imports(file, library) and not str(file.relative_to(ROOT)).startswith(tuple(TABLE[library]))
    ] == []


def test_every_library_that_the_project_imports_is_in_the_decision() -> None:
    assert {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files(*OURS)
        for name in imported_in(file)
        if not any(name == library or name.startswith(f"{library}.") for library in TABLE)
    } == set()
