"""docs/README.md: every page is in it, once, in a numbered order; and each is reachable from the front page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = (DOCS / "README.md").read_text()
ITEMS = re.findall(r"^(\d+)\. \[(.+?)\]\((.+?)\): (.+)$", INDEX, re.M)


def test_every_page_is_in_the_index_once() -> None:
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    listed = [target for _, _, target, _ in ITEMS]
    assert sorted(listed) == sorted([*pages, "decisions/README.md"])
    assert {name for _, name, target, _ in ITEMS if name != target} == {"decisions"}


def test_each_part_has_an_order_and_each_page_a_sentence() -> None:
    for part in INDEX.split("\n## ")[1:]:
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", part, re.M)]
        assert numbers == list(range(1, len(numbers) + 1)), part.splitlines()[0]
    assert all(sentence.endswith(".") for *_, sentence in ITEMS)


def test_the_front_page_leads_to_the_index() -> None:
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()
