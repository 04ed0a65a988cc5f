"""The images, built once by the Dockerfiles' own commands, without Docker; and a project after some releases."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_cloud
from tests.support.dockerfile import Image, Library, build, context
from tests.support.project import Candidate, Project, a_project, after, answering
from tests.support.tree import ROOT, SERVICES, files_of


@pytest.fixture(scope="session")
def images() -> Iterator[Mapping[str, Image]]:
    """Both images, at a place that a user without rights can reach."""
    place = Path(tempfile.mkdtemp(prefix="pombo-images-"))
    place.chmod(0o755)
    try:
        base, files = _base(place / "bin"), context(ROOT, files_of(ROOT))
        library = Library(place / "library")

        def made(service: str) -> Image:
            text = (ROOT / "services" / service / "Dockerfile").read_text()
            return build(text, files, place / service, base, {"PYTHON_IMAGE": "this machine"}, library)

        with ThreadPoolExecutor() as pool:
            yield dict(zip(SERVICES, pool.map(made, SERVICES), strict=True))
    finally:
        shutil.rmtree(place)


def _base(directory: Path) -> Mapping[str, str]:
    """What stands for the base image: a Python that anybody may run, a pip, and where pip finds packages."""
    directory.mkdir()
    (directory / "python").symlink_to(_python())
    (directory / "pip").symlink_to(Path(sys.executable).with_name("pip"))
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "HOME"}
    return {**kept, "PATH": f"{directory}:/usr/bin:/bin"}


def _python() -> Path:
    """This Python without its virtual environment, or the system's where the way to this one is closed to others."""
    for candidate in (Path(sys.base_prefix, "bin", "python3"), Path("/usr/bin/python3")):
        path = candidate.resolve()
        if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in path.parents):
            return path
    pytest.fail("There is no Python here that a user without rights may run; install the system's python3.")


@pytest.fixture(scope="session")
def hadolint() -> str:
    """The linter's path."""
    path = Path(sys.executable).with_name("hadolint")
    assert subprocess.run([path, "--version"], capture_output=True).returncode == 0
    return str(path)


States = list[dict[str, Any]]


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> tuple[States, States]:
    """What the cloud was like after the first apply and after each of two releases; and each time after the build of
    the next release.
    """
    with answering(Candidate()) as says:
        project = a_project(tmp_path_factory.mktemp("history"), fake_cloud.new(says.url))
        released, built = [project.state], []
        for number in (1, 2, 3):
            assert project.build(number) is None, project.said
            built.append(project.state)
            if number < 3:
                assert project.deploy(number) is None, project.said
                released.append(project.state)
    return released, built


@pytest.fixture(scope="session")
def history(past: tuple[States, States]) -> States:
    """What the cloud was like after the first apply, after one release, and after another."""
    return past[0]


@pytest.fixture
def answers() -> Iterator[Candidate]:
    with answering(Candidate()) as says:
        yield says


@pytest.fixture
def project_after(past: tuple[States, States], answers: Candidate, tmp_path: Path) -> Callable[..., Project]:
    """A project after so many releases, and after the next one's build if `built`. Cloud Monitoring answers what its
    state says.
    """

    def made(releases: int, built: bool = False) -> Project:
        project = after(past[built], releases, tmp_path, answers.url)
        answers.metrics = lambda query: (200, fake_cloud.time_series(project.state, query))
        return project

    return made
