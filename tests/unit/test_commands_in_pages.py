"""A command in a page can be typed as it stands: pombo by its path, or the page says where it is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTE = "In a clone `pombo` is `.venv/bin/pombo`."
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: str) -> str:
    """The lines that are set as code."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", page, re.S | re.M)
    return "\n".join([*fenced, *re.findall(r"^    (.*)$", page, re.M)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_with_bare_pombo_commands_explains_where_pombo_is(page: Path) -> None:
    text = page.read_text()
    bare = re.findall(r"^(?:[A-Z_]+=\S+ )*pombo .*$", blocks(text), re.M)

    assert not bare or NOTE in text, bare


def test_pages_name_what_each_make_goal_runs_and_which_brings_pytest() -> None:
    readme, handlers = (ROOT / "README.md").read_text(), (ROOT / "docs" / "handlers.md").read_text()
    makefile = (ROOT / "Makefile").read_text()

    assert re.search(r"^test: .*quick enough for CI", makefile, re.M)
    assert re.search(r"^    make test +# .*quick enough for CI; make test-all runs all", readme, re.M)
    assert "`make setup-dev`" in readme
    assert "`make setup-dev`" in handlers
    assert "`.venv/bin/pytest tests/test_mine.py`" in handlers
    assert "pytest" in (ROOT / "requirements-dev.lock").read_text()
    assert "\npytest==" not in (ROOT / "requirements.lock").read_text(), "else make run would do"
