"""services/names.txt is the one list of the services: what is there, what is built and what is configured agrees."""

from pathlib import Path

import pytest

from local.chaos import schedule
from local.services import SERVICES
from local.stack import PORTS
from shared import config

ROOT = Path(__file__).parents[2]


def test_every_folder_of_a_service_is_in_the_list_and_no_other_is() -> None:
    folders = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert set(SERVICES) == folders
    assert len(SERVICES) == len(set(SERVICES))


def test_the_configuration_knows_these_services_in_this_order() -> None:
    assert config.BOTH == SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_can_be_built_and_run(service: str) -> None:
    folder = ROOT / "services" / service
    assert {"Dockerfile", "requirements.txt", "main.py"} <= {path.name for path in folder.iterdir()}
    assert service in PORTS, "on one machine"


def test_chaos_kills_every_service() -> None:
    assert set(SERVICES) < set(schedule.KILLED)
    assert schedule.TOGETHER.split("+") == list(schedule.KILLED)


@pytest.mark.parametrize("name", ["Makefile", "local/stack.py", "local/chaos/schedule.py", "tests/release/tree.py"])
def test_who_goes_through_all_services_reads_the_list(name: str) -> None:
    """Another list would be forgotten when a service comes."""
    text = (ROOT / name).read_text()
    pairs = [f"{SERVICES[0]}{between}{SERVICES[1]}" for between in (" ", ", ", '", "', "+")]
    assert [pair for pair in pairs if pair in text and f"{pair} are" not in text] == []
