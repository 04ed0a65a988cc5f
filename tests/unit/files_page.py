"""python tests/unit/files_page.py: write docs/files.md from the first sentence of every module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "files.md"
PACKAGES = ("pombo", "services", "shared", "cli", "local", "infra/release", "handlers", "bench")

_HEAD = """# Files

`tests/unit/files_page.py` generates this page from the first sentence of each module; a test fails if they differ. What
each package may import is in [architecture.md](architecture.md). Which test holds which behaviour is in
[tests/README.md](../tests/README.md).
"""


def page() -> str:
    """The whole page: a table for each folder."""
    return _HEAD + "".join(_table(folder) for folder in _folders())


def _folders() -> Iterator[Path]:
    for package in PACKAGES:
        root = ROOT / package
        yield from (root, *sorted(it for it in root.rglob("*") if it.is_dir() and _modules(it)))


def _modules(folder: Path) -> list[Path]:
    return sorted(it for it in folder.glob("*.py") if it.name != "__init__.py" or it.read_text().strip())


def _table(folder: Path) -> str:
    rows = "".join(f"| `{it.name}` | {first_sentence(it)} |\n" for it in _modules(folder))
    return f"\n## {folder.relative_to(ROOT).as_posix()}\n\n| file | what is in it |\n|---|---|\n{rows}" if rows else ""


def first_sentence(path: Path) -> str:
    """Of the module's docstring. Raises ValueError where there is none."""
    text = ast.get_docstring(ast.parse(path.read_text()))
    if not text:
        raise ValueError(f"{path} has no docstring")
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
