"""Every gcloud command that a person or a program is told to run, before gcloud's own linter."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.gcloud_lines import commands_in, complaints, shell_of_page
from tests.support.tree import ROOT, need_gcloud

PAGES = ("README.md", "infra/terraform/README.md", *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")))
SCRIPTS = ("Makefile", ".ci/run")
KNOWN = {"REGION": "europe-west1", "PROJECT": "my-project", "IMAGES": "_CLI_IMAGE=cli:1,_PYTHON_IMAGE=python:3"}
BUILDS = ("cloudbuild.yaml", "cloudbuild-deploy.yaml", "infra/release/builder/cloudbuild.yaml")


def commands_of(name: str) -> list[str]:
    """Of a page, a script, or the build."""
    text = (ROOT / name).read_text()
    if name in BUILDS:
        build = yaml.safe_load(text)
        scripts = "\n".join(step["script"] for step in build["steps"])
        return list(commands_in(scripts, build["substitutions"]))
    return list(commands_in(text if name in SCRIPTS else shell_of_page(text), KNOWN))


BAD = {
    "gcloud run services update pombo-webhook --imgae=x": "--imgae",
    "gcloud run servces list": "servces",
    "gcloud run servces --help": "servces",
    "gcloud secrets versions add": "SECRET",
    "gcloud artifacts docker images scan x --location=value": "--location",
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """The commands, by where they are."""
    return {name: commands_of(name) for name in (*PAGES, *SCRIPTS, *BUILDS)}


@pytest.fixture(scope="module")
def wrong(found: dict[str, list[str]], pytestconfig: pytest.Config) -> dict[str, str]:
    """What gcloud says of those, of BAD and of one that is right: in one call, which takes seconds to begin."""
    need_gcloud()
    assert pytestconfig.cache is not None
    known = pytestconfig.cache.get("gcloud/taken", {}).get(version(), [])
    commands = {command for some in found.values() for command in some}
    complained = complaints([*BAD, "gcloud run services list --region=europe-west1", *sorted(commands - set(known))])
    pytestconfig.cache.set("gcloud/taken", {version(): sorted(commands - set(complained))})
    return complained


def test_gcloud_accepts_every_documented_command(found: dict[str, list[str]], wrong: dict[str, str]) -> None:
    assert len(found["docs/deploy.md"]) > 20
    assert len(found["docs/operating.md"]) >= 3
    assert len(found["cloudbuild.yaml"]) >= 3
    assert len(found["cloudbuild-deploy.yaml"]) >= 3
    assert {name: wrong[command] for name, some in found.items() for command in some if command in wrong} == {}


def test_command_that_gcloud_rejects_is_found(wrong: dict[str, str]) -> None:
    for command, word in BAD.items():
        assert word in wrong[command]
    assert "gcloud run services list --region=europe-west1" not in wrong


def version() -> str:
    """Of gcloud, which another one's word does not count for. (From its file: to ask it costs a second.)"""
    home = Path(subprocess.run(["/bin/sh", "-c", "command -v gcloud"], capture_output=True, text=True).stdout.strip())
    return (home.resolve().parents[1] / "VERSION").read_text().strip()


@pytest.mark.parametrize(
    ("shell", "commands"),
    [
        ("gcloud run services list --region=$R", ["gcloud run services list --region=value"]),
        ("# gcloud no command\necho gcloud neither", []),
        (
            'read -rs V && printf %s "$V" | gcloud secrets versions add A --data-file=-',
            ["gcloud secrets versions add A --data-file=-"],
        ),
        ('x="$(gcloud run a "p-$s" \\\n  --format=\'value(b)\')" # said', ["gcloud run a p-value '--format=value(b)'"]),
        ('gcloud run b --image="$(cat ".r/$s")" --quiet >out', ["gcloud run b --image=value --quiet"]),
        ("for s in a; do gcloud c; done", ["gcloud c"]),
        ("gcloud d 'x; y | $Z' # a comment, gcloud e", ["gcloud d 'x; y | $Z'"]),
        ("gcloud f --project PROJECT", ["gcloud f --project value"]),
        ("gcloud g $PROJECT/$PROJECTS", ["gcloud g value/value"]),
    ],
)
def test_a_command_is_found_as_a_shell_would_see_it(shell: str, commands: list[str]) -> None:
    assert list(commands_in(shell)) == commands


def test_known_variable_is_substituted() -> None:
    assert list(commands_in("gcloud a --location=${_L}x", {"_L": "europe"})) == ["gcloud a --location=europex"]


def test_a_page_shows_commands_in_blocks_and_in_sentences() -> None:
    page = (
        "Do `gcloud a b`, or `gcloud a b --c=D`, and:\n\n    gcloud c \\\n        d\n\n"
        "```python\ngcloud no command\n```\n```sh\ngcloud e\n```\nThe gcloud f of `x gcloud g`.\n"
    )
    assert list(commands_in(shell_of_page(page))) == ["gcloud e", "gcloud c d", "gcloud a b --help", "gcloud a b --c=D"]


def test_a_build_is_sent_what_its_tests_need_and_no_state(tmp_path: Path) -> None:
    need_gcloud()
    (tmp_path / ".gcloudignore").write_text((ROOT / ".gcloudignore").read_text())
    (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    wanted = {".ci/run", ".dockerignore", "cloudbuild.yaml", "handlers/mine.py", "infra/e/example.tfvars", "tests/t.py"}
    unwanted = {
        ".git/config",
        ".pombo/pombo.sqlite",
        ".venv/bin/python",
        "infra/e/.terraform/provider",
        "infra/e/first_override.tf",
        "infra/e/terraform.tfstate",
        "infra/e/terraform.tfvars",
    }
    for name in wanted | unwanted:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    done = subprocess.run(
        ["gcloud", "meta", "list-files-for-upload", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert set(done.stdout.split()) == wanted | {".gitignore"}, done.stderr
