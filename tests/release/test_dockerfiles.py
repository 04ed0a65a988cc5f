"""The Dockerfiles: linted, held to rules of our own, and what they are given to build from."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dockerfile import Image, Unknown, build, context, ignore_rules, parse
from tests.support.tree import ROOT, SERVICES, files_of

DOCKERFILES = {service: (ROOT / "services" / service / "Dockerfile").read_text() for service in SERVICES}
BASE = (ROOT / "services" / "base-image.txt").read_text()
INSTALL_FLAGS = {"--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"}


def linted(hadolint: str, text: str) -> list[str]:
    """hadolint's findings."""
    done = subprocess.run([hadolint, "--format", "json", "-"], input=text, capture_output=True, text=True)
    return [f"{found['code']} {found['message']}" for found in json.loads(done.stdout)]


def faults(text: str) -> list[str]:
    """What hadolint does not look at."""
    found = []
    instructions = parse(text)
    by_name: dict[str, list[str]] = {}
    for one in instructions:
        by_name.setdefault(one.name, []).append(one.value)
    if any(value.split()[0] != "${PYTHON_IMAGE}" for value in by_name["FROM"]):
        found.append("a base image that is not the one of services/base-image.txt")
    if by_name["ARG"] != ["PYTHON_IMAGE"]:
        found.append("the base image has a default, or there is another argument")
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", by_name.get("USER", [""])[-1]):
        found.append("it does not end as a user of a number that is not root")
    if [one.name for one in instructions][-2:] != ["USER", "CMD"] or not instructions[-1].value.startswith("["):
        found.append("the end is not USER and CMD in its JSON form, which gets SIGTERM itself")
    installs = [value for value in by_name["RUN"] if " install " in value]
    if not installs or any(not set(value.split()) >= INSTALL_FLAGS for value in installs):
        found.append("pip installs what is not pinned by hash")
    if not any("compileall" in value and "unchecked-hash" in value for value in by_name["RUN"]):
        found.append("no bytecode, or one that goes by times")
    if any(value.startswith(". ") for value in by_name["COPY"]):
        found.append("the whole context is copied")
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_dockerfile_has_nothing_to_find(service: str, hadolint: str) -> None:
    assert linted(hadolint, DOCKERFILES[service]) == []
    assert faults(DOCKERFILES[service]) == []


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_starts_its_own_service_with_its_own_requirements(service: str) -> None:
    instructions = parse(DOCKERFILES[service])
    copied = [one.value for one in instructions if one.name == "COPY"]
    assert json.loads(instructions[-1].value) == ["venv/bin/python", "-m", f"services.{service}"]
    assert f"services/{service}/requirements.txt requirements.txt" in copied
    assert f"services/{service} services/{service}" in copied


MUTATIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "another base image": (lambda t: t.replace("FROM ${PYTHON_IMAGE}\n", "FROM python:3.11\n"), "base image"),
    "a default base image": (lambda t: t.replace("ARG PYTHON_IMAGE", "ARG PYTHON_IMAGE=python:3.11"), "default"),
    "root": (lambda t: t.replace("USER 65532:65532", "USER 0:0"), "not root"),
    "a user by name": (lambda t: t.replace("USER 65532:65532", "USER nobody"), "number"),
    "no user": (lambda t: t.replace("USER 65532:65532\n", ""), "not root"),
    "back to root": (lambda t: t.replace("CMD [", "USER root\nCMD ["), "not root"),
    "a shell around the command": (lambda t: re.sub(r"CMD \[.*", "CMD python -m services.webhook", t), "SIGTERM"),
    "no hashes": (lambda t: t.replace("--require-hashes", ""), "hash"),
    "what a package wants": (lambda t: t.replace("--no-deps ", ""), "hash"),
    "source packages": (lambda t: t.replace("--only-binary=:all:", ""), "hash"),
    "bytecode by times": (lambda t: t.replace("unchecked-hash", "timestamp"), "bytecode"),
    "no bytecode": (lambda t: re.sub(r"RUN python -m compileall[^\n]*\n(.*\n){2}", "", t), "bytecode"),
    "everything": (lambda t: t.replace("COPY shared shared", "COPY . ."), "whole context"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_dockerfile_breaks_its_rule(name: str) -> None:
    change, word = MUTATIONS[name]
    changed = change(DOCKERFILES["webhook"])
    assert changed != DOCKERFILES["webhook"]
    assert any(word in fault for fault in faults(changed))


BAD_LINES = {
    "DL3000": "WORKDIR app",
    "DL3003": "RUN cd /tmp && ls",
    "DL3004": "RUN sudo ls",
    "DL3006": "FROM python",
    "DL3007": "FROM python:latest",
    "DL3008": "RUN apt-get update && apt-get install -y curl",
    "DL3020": "ADD shared shared",
}


def test_the_linter_finds_faults(hadolint: str) -> None:
    text = DOCKERFILES["webhook"].replace("USER ", "\n".join([*BAD_LINES.values(), "USER "]))
    assert set(BAD_LINES) <= {found.split()[0] for found in linted(hadolint, text)}


def test_the_base_image_is_one_by_a_tag_of_the_python_that_is_tested() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    least = re.search(r'requires-python = ">=(3\.\d+)"', project)
    assert least
    assert re.fullmatch(rf"python:{re.escape(least[1])}-slim-\w+(@sha256:[0-9a-f]{{64}})?\n", BASE)


# ---- the context


def test_the_context_holds_the_code_of_the_services_and_nothing_else() -> None:
    held = context(ROOT, files_of(ROOT))
    assert {name.partition("/")[0] for name in held} == {"handlers", "pombo", "services", "shared"}
    assert not [name for name in held if name.startswith("cli/") or "__pycache__" in name]
    assert {"handlers/echo.py", "services/server.py", "services/webhook/requirements.txt", "shared/logs.py"} <= set(
        held
    )


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".git/config",
        ".pombo/pombo.sqlite",
        ".venv/bin/python",
        "examples/local.env",
        "infra/terraform/environments/prod/terraform.tfvars",
        "key.json",
        "requirements.lock",
        "shared/__pycache__/logs.cpython-311.pyc",
        "cli/main.py",
        "tests/support/stack.py",
    ],
)
def test_excluded_file_is_not_in_the_context(name: str) -> None:
    assert context(ROOT, [ROOT / name]) == {}


@pytest.mark.parametrize(
    ("rules", "name", "out"),
    [
        ("*/temp*", "some/temporary.txt", True),
        ("*/temp*", "some/sub/temporary.txt", False),
        ("*/temp*", "some/temp/inside.txt", True),
        ("*/*/temp*", "some/sub/temporary.txt", True),
        ("temp?", "tempa", True),
        ("temp?", "temp", False),
        ("**/*.go", "a.go", True),
        ("**/*.go", "some/sub/a.go", True),
        ("*.md\n!README.md", "README.md", False),
        ("*.md\n!README*.md\nREADME-secret.md", "README-secret.md", True),
        ("*.md\nREADME-secret.md\n!README*.md", "README-secret.md", False),
        ("# a comment\n\n/shared/", "shared/logs.py", True),
    ],
)
def test_an_ignore_file_is_read_as_docker_documents_it(rules: str, name: str, out: bool, tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text(rules)
    assert (context(tmp_path, [tmp_path / name]) == {}) is out


def test_a_rule_is_a_pattern_and_its_direction() -> None:
    assert [out for out, _ in ignore_rules("*\n!services\n# no rule\n")] == [True, False]


# ---- the reader itself


def read(text: str, tmp_path: Path, **files: str) -> Image:
    given = {}
    for name, content in files.items():
        given[f"{name}.txt"] = tmp_path / f"{name}.txt"
        given[f"{name}.txt"].write_text(content)
    return build(text, given, tmp_path / "image", {"PATH": "/usr/bin:/bin"}, {"BASE": "base"})


STAGES = """
ARG BASE
FROM ${BASE} AS build
WORKDIR /app
ENV WHERE=/app/here \\
    WORD=/apple
COPY a.txt deep/b.txt
RUN cat deep/b.txt > "$WHERE" \\
    && echo $WORD >> "$WHERE" && rm -r deep
FROM ${BASE}
WORKDIR /app
COPY --from=build /app /app
USER 5:6
CMD ["cat", "here"]
"""


def test_a_dockerfile_is_carried_out_stage_by_stage(tmp_path: Path) -> None:
    image = read(STAGES, tmp_path, a="said\n")
    assert [path.name for path in image.directory.iterdir()] == ["here"]
    assert (image.directory / "here").read_text() == "said\n/apple\n"
    assert (image.user, image.cmd, image.env) == ("5:6", ["cat", "here"], {})


@pytest.mark.parametrize(
    "change",
    [
        ("USER 5:6", "VOLUME /data"),
        ("USER 5:6", "ENTRYPOINT cat"),
        ('CMD ["cat", "here"]', "CMD cat here"),
        ("FROM ${BASE}\n", "FROM other\n"),
        ("COPY a.txt", "COPY missing.txt"),
        ("ARG BASE", "ARG UNKNOWN"),
        ('"here"]\n', '"here"] \\'),
    ],
)
def test_unknown_instruction_stops_the_reader(change: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(Unknown):
        read(STAGES.replace(*change), tmp_path, a="said\n")
