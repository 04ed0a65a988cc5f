"""Terraform with a stand-in for the google provider, and each plan made once for all tests that read it."""

import fcntl
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.infra.offline.attached import attached
from tests.infra.offline.toolchain import Toolchain, Unavailable, set_up, types_in
from tests.infra.offline.workspace import TERRAFORM, Workspace
from tests.infra.plans import Plan
from tests.infra.variants import VARIANTS
from tests.support.machine import missing

CACHE = Path(__file__).parents[2] / ".cache" / "terraform"


@pytest.fixture(scope="session")
def toolchain() -> Iterator[Toolchain]:
    """Set up once per machine; without it these tests skip, or fail in CI."""
    try:
        made = set_up(CACHE, types_in(TERRAFORM))
    except Unavailable as error:
        missing(f"The checks of infra/terraform need Terraform and its provider's schema: {error}")
    with attached(made) as ours:
        yield ours


@pytest.fixture(scope="session")
def make_workspace(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """Makes a copy of the Terraform files for a test that changes them or their state."""
    return lambda: Workspace(toolchain, tmp_path_factory.mktemp("terraform"))


@pytest.fixture(scope="session")
def workspace(make_workspace: Callable[[], Workspace]) -> Workspace:
    """The copy that no test changes."""
    return make_workspace()


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Path:
    """A folder that the processes of one run of pytest share."""
    folder = tmp_path_factory.getbasetemp().parent / f"plans-{testrun_uid}"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def plan_of(workspace: Workspace, plans: Path) -> Callable[[str], Plan]:
    """The plan of a variant (variants.py), from an empty project."""

    @cache
    def plan(name: str) -> Plan:
        with (plans / f"{name}.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if made := file.read():
                return Plan(json.loads(made))
            root, options = VARIANTS[name]
            document = workspace.plan(root, *options)
            json.dump(document, file)
            return Plan(document)

    return plan
