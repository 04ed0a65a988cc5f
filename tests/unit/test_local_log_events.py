"""Every event that the local cloud logs is in docs/local-cloud.md, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_event_of_the_local_cloud() -> None:
    sources = [path.read_text() for part in ("tasks", "whatsapp") for path in (ROOT / "local" / part).glob("*.py")]
    logged = {event for text in sources for event in re.findall(r"\blog(?:\.write)?\(\s*\"([a-z_]+)\"", text)}
    page = (ROOT / "docs" / "local-cloud.md").read_text()
    section = page.partition("## What the local cloud logs\n")[2].partition("\n## ")[0]
    told = {
        name
        for row in section.splitlines()
        if row.startswith("| `")
        for name in re.findall("`([a-z_]+)`", row.split("|")[1])
    }

    assert len(logged) > 10
    assert told == logged
