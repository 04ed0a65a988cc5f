"""The pages on adding a provider or a store: what they tell a newcomer to write is what the ports ask for."""

import re
from pathlib import Path
from typing import get_args

from shared.domain.verdicts import Released, SendVerdict
from shared.pipeline import ports

ROOT = Path(__file__).parents[2]
PROVIDER = (ROOT / "docs" / "adding-a-provider.md").read_text()
STORE = (ROOT / "docs" / "adding-a-store.md").read_text()


def methods_of(port: type) -> set[str]:
    return {name for name, value in vars(port).items() if callable(value) and not name.startswith("_")}


def test_every_method_of_a_channel_is_on_the_page_of_providers() -> None:
    section = PROVIDER.split("\n## What it does\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert methods_of(ports.Channel) == set(named)
    properties = {name for name, value in vars(ports.Channel).items() if isinstance(value, property)}
    assert properties == set(re.findall(r"`(\w+)`,", PROVIDER.split("Three properties")[1].split("\n\n")[0]))
    assert len(named) == len(set(named))


def test_every_verdict_of_a_send_is_on_the_page_of_providers() -> None:
    section = PROVIDER.split("\n## Errors are verdicts\n")[1].split("\n## ")[0]
    named = re.findall(r"\| `(\w+)` \|$", section, re.M)
    assert set(named) == {verdict.__name__ for verdict in get_args(SendVerdict)} - {Released.__name__}


def test_every_call_that_the_page_of_stores_promises_is_one_of_the_port() -> None:
    table = [line for line in STORE.splitlines() if line.startswith("| ")]
    named = {name for line in table for name in re.findall(r"`([a-z]+(?:_[a-z]+)?)`", line.split("|")[1])}
    assert named - methods_of(ports.Store) <= {"decide", "expire_at"}
    assert {"create", "change", "purge"} <= named


def test_the_pages_name_the_files_that_register_an_adapter() -> None:
    bootstrap = (ROOT / "shared" / "bootstrap.py").read_text()
    assert "shared/bootstrap.py" in PROVIDER
    assert "`build_store`" in STORE
    assert "def build_store(" in bootstrap
    assert "`BACKENDS`" in STORE
    assert "BACKENDS:" in (ROOT / "tests" / "contract" / "conftest.py").read_text()
