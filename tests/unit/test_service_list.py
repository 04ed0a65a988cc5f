"""services/names.txt is the one list of the services: what is there, what is built and what is configured agrees."""

import re
from pathlib import Path

import pytest

from cli.chaos import fault_schedule
from local.services import SERVICES
from local.stack import PORTS
from shared import config

ROOT = Path(__file__).parents[2]


def test_every_folder_of_a_service_is_in_the_list_and_no_other_is() -> None:
    folders = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert set(SERVICES) == folders
    assert len(SERVICES) == len(set(SERVICES))


def test_the_configuration_knows_these_services_in_this_order() -> None:
    assert config.SERVICES == SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_can_be_built_and_run(service: str) -> None:
    folder = ROOT / "services" / service
    assert {"Dockerfile", "requirements.txt", "main.py"} <= {path.name for path in folder.iterdir()}
    assert service in PORTS, "on one machine"


def test_chaos_kills_every_service() -> None:
    assert set(SERVICES) < set(fault_schedule.KILLED)
    assert fault_schedule.TOGETHER.split("+") == list(fault_schedule.KILLED)


@pytest.mark.parametrize(
    "name",
    [
        "Makefile",
        "local/stack.py",
        "cli/chaos/fault_schedule.py",
        "bench/__main__.py",
        "tests/support/fake_cloud.py",
        "tests/support/tree.py",
        "tests/services/test_end_to_end.py",
        "tests/services/test_privacy_canary.py",
        "tests/services/test_stack_command_line.py",
        "tests/services/test_stack_crash_points.py",
        "tests/services/test_stack_health.py",
        "tests/services/test_stack_kills.py",
        "tests/services/test_stack_store_faults.py",
        "tests/services/test_start_without_queue.py",
        "tests/services/test_up_stores.py",
        "infra/release/cloud_run.py",
        "infra/release/source_images.py",
        "infra/release/builds.py",
    ],
)
def test_files_about_all_services_repeat_no_list_of_them(name: str) -> None:
    """Another list would be forgotten when a service comes."""
    text = (ROOT / name).read_text()
    pairs = [f"{SERVICES[0]}{between}{SERVICES[1]}" for between in (" ", ", ", '", "', "+", '", "services.')]
    assert [pair for pair in pairs if pair in text and f"{pair} are" not in text] == []


@pytest.mark.parametrize("name", ["cloudbuild.yaml", "cloudbuild-deploy.yaml"])
def test_each_step_of_a_build_goes_through_all_services_the_private_one_first(name: str) -> None:
    """A file for Cloud Build cannot read the list before its source is there."""
    text = (ROOT / name).read_text()
    listed = re.findall(r"(?:for service in|candidate \w+) ((?:[a-z]+ ?)+?)(?:;| --)", text)
    assert listed
    assert {tuple(words.split()) for words in listed} == {SERVICES[::-1]}
