"""What an image installs: what its service imports, what that needs, and nothing else, as it was tested."""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata, util

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.tree import ROOT, SERVICES
from tests.unit.test_import_directions import PROJECT, imports_of, modules
from tests.unit.test_libraries import BY_NAME

PYTHONS = ("3.11.0", "3.11.9", "3.13.1")
"""An image's Python may be any of these; each has its own markers."""

HANDLERS: Mapping[str, tuple[str, ...]] = {"webhook": (), "internal": ("handlers",), "api": ()}


def pinned(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Of each package its pin with its marker, and the hashes."""
    blocks = re.findall(r"^([\w.-]+)(==[^\\\n]+?) \\\n((?: +--hash=\S+(?: \\)?\n)+)", text, re.M)
    return {name: (pin, frozenset(re.findall(r"sha256:\w+", hashes))) for name, pin, hashes in blocks}


def installed(service: str) -> dict[str, tuple[str, frozenset[str]]]:
    return pinned((ROOT / "services" / service / "requirements.txt").read_text())


def group(service: str) -> set[str]:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return set(groups[service])


def imported(service: str) -> set[str]:
    """The modules of others that a service may come to import, from its start on and through every module of ours."""
    ours, found = modules(), set()
    waiting = [f"services.{service}.__main__", f"services.{service}.main"]
    waiting += [name for name in ours if name.partition(".")[0] in HANDLERS[service]]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        path = ours[module]
        for name in (one.name for one in imports_of(path.read_text(), module, path.name == "__init__.py")):
            if name.partition(".")[0] in PROJECT:
                parts = name.split(".")
                waiting += [one for end in range(1, len(parts) + 1) if (one := ".".join(parts[:end])) in ours]
            elif name.partition(".")[0] not in sys.stdlib_module_names:
                found.add(name)
    return found | {
        library for library, place in BY_NAME.items() if place.removesuffix(".py").replace("/", ".") in seen
    }


@cache
def owners() -> Mapping[str, str]:
    """Whose each installed file is."""
    found = {}
    for distribution in metadata.distributions():
        place, name = distribution.locate_file(""), canonicalize_name(distribution.name)
        for line in (distribution.read_text("RECORD") or "").splitlines():
            found[f"{place}/{line.partition(',')[0]}"] = name
    return found


def owner(module: str) -> str:
    """The distribution that a module, or a name in one, comes from."""
    name = module
    while name:
        try:
            spec = util.find_spec(name)
        except ModuleNotFoundError:
            spec = None
        if spec and spec.origin in owners():
            return owners()[spec.origin]
        name = name.rpartition(".")[0]
    raise AssertionError(f"nobody's: {module}")


def needed(names: set[str], python: str) -> Iterator[str]:
    """Everything that these need on one Python."""
    environment = {**default_environment(), "python_full_version": python, "python_version": python.rpartition(".")[0]}
    waiting, seen = [Requirement(name) for name in names], set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        yield key[0]
        try:
            requires = metadata.requires(wanted.name) or ()
        except metadata.PackageNotFoundError:  # a backport that this Python does without needs nothing
            continue
        for requirement in map(Requirement, requires):
            extras = wanted.extras or {""}
            if not requirement.marker or any(requirement.marker.evaluate({**environment, "extra": e}) for e in extras):
                waiting.append(requirement)


@pytest.mark.parametrize("service", SERVICES)
def test_the_group_of_a_service_is_what_it_imports(service: str) -> None:
    assert {owner(module) for module in imported(service)} == group(service)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_installs_what_its_group_needs_and_nothing_else(service: str) -> None:
    assert {name for python in PYTHONS for name in needed(group(service), python)} == set(installed(service))


def files(pins: Mapping[str, tuple[str, frozenset[str]]]) -> dict[str, tuple[str, frozenset[str]]]:
    """The version and the hashes of each package, without its marker: one file may need it on fewer systems."""
    return {name: (pin.partition(" ;")[0], hashes) for name, (pin, hashes) in pins.items()}


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_installs_the_very_files_that_are_tested(service: str) -> None:
    tested = files(pinned((ROOT / "requirements.lock").read_text()))
    assert {name: tested.get(name) for name in installed(service)} == files(installed(service))
    assert all(hashes for _, hashes in installed(service).values())


@pytest.mark.parametrize("service", SERVICES)
def test_every_line_of_the_requirements_is_read(service: str) -> None:
    text = (ROOT / "services" / service / "requirements.txt").read_text()
    assert len(re.findall(r"^[a-z]", text, re.M)) == len(installed(service))


def test_no_image_has_aiohttp_which_doubles_what_the_queues_client_imports() -> None:
    assert all("aiohttp" not in installed(service) for service in SERVICES)


def test_the_webhook_is_without_what_only_the_other_service_imports() -> None:
    absent = {
        *("certifi", "charset-normalizer", "google-api-core", "google-cloud-core", "google-cloud-firestore"),
        *("google-cloud-secret-manager", "google-cloud-tasks", "googleapis-common-protos", "grpc-google-iam-v1"),
        *("grpcio", "grpcio-status"),
        *("httpcore", "httpx", "opentelemetry-api", "proto-plus", "protobuf", "requests", "urllib3"),
    }
    assert set(installed("internal")) - set(installed("webhook")) == absent


def test_an_import_is_traced_to_its_package() -> None:
    assert owner("google.cloud.tasks_v2.CloudTasksClient") == "google-cloud-tasks"
    assert owner("google.auth.jwt") == "google-auth"
    assert {"redis", "httpcore", "google-cloud-firestore"} <= {owner(module) for module in imported("internal")}
    assert {"redis", "httptools", "orjson", "functions-framework"} <= {owner(module) for module in imported("webhook")}
