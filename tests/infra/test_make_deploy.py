"""make deploy: one command from an empty project to the running webhook, with the true terraform and a fake project."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.release import first_secrets, public_checks, roots, source_images, variables
from infra.release.place import Place
from infra.release.roots import Root
from infra.release.services import AS_DEPLOYED
from infra.release.tools import Failed, Refused, complaint
from shared.config import SETTINGS
from tests.infra import fake_project
from tests.infra.deployment import NUMBER, ROOT, Deployment, Webhook, listening
from tests.infra.fake_project import REPOSITORY, image_served
from tests.infra.offline.toolchain import Toolchain
from tests.support.gcloud_lines import complaints
from tests.support.tree import need_gcloud

pytestmark = pytest.mark.timeout(600)  # on a busy machine, each apply takes a minute
GIVEN = {"META_APP_SECRET": "app-secret-of-meta", "WHATSAPP_ACCESS_TOKEN": "token-of-a-system-user"}
FIRST = f"--phone-number-id={NUMBER}"
NAMES = [f"pombo-{service}" for service in AS_DEPLOYED]


@pytest.fixture(scope="module")
def webhook() -> Webhook:
    return Webhook()


@pytest.fixture(scope="module")
def address(webhook: Webhook) -> Iterator[str]:
    with listening(webhook) as url:
        yield url


@pytest.fixture(scope="module")
def here(address: str) -> str:
    """The address of every public service."""
    return address.removesuffix("/webhooks/whatsapp")


@pytest.fixture(scope="module")
def make(toolchain: Toolchain, address: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Deployment]:
    return lambda: Deployment(toolchain, tmp_path_factory.mktemp("deployment"), address)


@pytest.fixture(scope="module")
def deployed(make: Callable[[], Deployment]) -> tuple[Deployment, subprocess.CompletedProcess[str]]:
    """The first deployment of an empty project. Tests that change it put it back."""
    deployment = make()
    return deployment, deployment.run("deploy", FIRST, **GIVEN)


@pytest.fixture(scope="module")
def empty(make: Callable[[], Deployment]) -> Deployment:
    """A project to which nothing comes: every test on it is refused before Terraform."""
    return make()


def calls(state: dict[str, Any], *words: str) -> list[list[str]]:
    return [call for call in state["calls"] if call[: len(words)] == list(words)]


def applies(deployment: Deployment) -> list[str]:
    """The roots that were applied."""
    return [call[0] for call in deployment.terraform_calls if call[1] == "apply"]


# ---- the first time


def test_an_empty_project_becomes_a_running_webhook(deployed: Any) -> None:
    deployment, done = deployed
    assert (done.returncode, done.stderr) == (0, "")
    state = deployment.state
    for service in NAMES:
        assert image_served(state, service).startswith(f"{REPOSITORY}/{service}@sha256:")
    assert applies(deployment) == ["bootstrap", "staging"]
    assert state["buckets"] == ["gs://my-project-1-terraform-state"]
    inits = [call for call in deployment.terraform_calls if call[1] == "init"]
    assert all("-backend-config=bucket=my-project-1-terraform-state" in call for call in inits)


def test_the_private_service_is_deployed_before_the_public_ones(deployed: Any) -> None:
    deployment, _ = deployed
    assert [it["name"] for it in deployment.state["sources"]] == NAMES
    moved = [call[3] for call in calls(deployment.state, "run", "services", "update-traffic")]
    assert moved == NAMES


def test_it_waits_for_its_first_apis_before_it_uses_them(deployed: Any) -> None:
    deployment, _ = deployed
    first, *_ = Path(f"{deployment.state_file}.waited").read_text().splitlines()
    apis = {"cloudresourcemanager", "serviceusage", "storage", "secretmanager", "run", "cloudtasks", "cloudscheduler"}
    assert set(first.split()[3:]) == apis
    assert set(deployment.state["apis"]) == {f"{api}.googleapis.com" for api in apis}
    order = [call[:2] for call in deployment.state["calls"]]
    assert order.index(["services", "enable"]) < order.index(["run", "regions"]) < order.index(["secrets", "list"])


def test_each_secret_has_its_first_version_before_the_services_read_it(deployed: Any) -> None:
    deployment, _ = deployed
    secrets = deployment.state["secrets"]
    assert {name: secrets[name] for name in GIVEN} == {name: [value] for name, value in GIVEN.items()}
    made = {name: secrets[name][0] for name in ("META_VERIFY_TOKEN", "ID_KEY", "INTERNAL_TASK_TOKEN")}
    assert all(re.fullmatch(r"[0-9a-f]{32,64}", value) for value in made.values())
    assert len(set(made.values())) == 3
    assert set(secrets) == {*GIVEN, *made}
    assert all(len(values) == 1 for values in secrets.values())


def test_no_secret_is_printed_or_an_argument(deployed: Any) -> None:
    deployment, done = deployed
    said = done.stdout + done.stderr + json.dumps([deployment.state["calls"], deployment.terraform_calls])
    said += json.dumps(deployment.state["sources"])
    values = [value for values in deployment.state["secrets"].values() for value in values]
    assert [value for value in values if value in said] == []
    written = (deployment.folder / "infra/terraform/environments/staging/terraform.tfvars").read_text()
    assert [value for value in values if value in written] == []


def test_output_lists_what_is_left_to_do_at_meta(deployed: Any, address: str) -> None:
    deployment, done = deployed
    left = done.stdout.partition("What is left is at Meta")[2]
    assert address in left
    assert "/secret-manager/secret/META_VERIFY_TOKEN/versions?project=my-project-1" in left
    assert calls(deployment.state, "secrets", "versions", "access") == []
    assert re.search(r"Commit infra/terraform/environments/staging/terraform\.tfvars", left)


def test_it_ends_by_asking_the_public_services(deployed: Any) -> None:
    _, done = deployed
    for service in ("api", "webhook"):
        assert f"The {service} service reaches its store and its queue, and refuses strangers." in done.stdout


def test_each_step_is_announced(deployed: Any) -> None:
    _, done = deployed
    assert re.findall(r"^\[(\d)/9\] ", done.stdout, re.M) == list("123456789")
    assert "Creating..." not in done.stdout, "one line for each thing that was made is enough"
    assert 130 < done.stdout.count(" complete after ") < 200


def test_the_variables_are_written_as_the_root_takes_them(deployed: Any) -> None:
    deployment, _ = deployed
    written = (deployment.folder / "infra/terraform/environments/staging/terraform.tfvars").read_text()
    assert dict(re.findall(r"^(\w+) += (.*)$", written, re.M)) == {
        "project": '"my-project-1"',
        "region": '"europe-west1"',
        "whatsapp_phone_number_id": f'"{NUMBER}"',
        "handler": '"handlers.echo:handle"',
        "alert_emails": '["jane@example.com"]',
    }


def test_gcloud_would_take_every_command_that_it_is_given(deployed: Any) -> None:
    need_gcloud()
    deployment, _ = deployed
    rolled = [
        "run",
        "services",
        "update",
        "pombo-webhook",
        "--project=p",
        "--region=europe-west1",
        "--image=a/b@sha256:1",
    ]
    commands = {" ".join(["gcloud", *(f"'{word}'" for word in call)]) for call in [*deployment.state["calls"], rolled]}
    assert complaints(sorted(commands)) == {}


# ---- again


def test_a_second_run_changes_nothing_and_asks_nothing(deployed: Any) -> None:
    deployment, _ = deployed
    before = deployment.state
    applied = applies(deployment)
    done = deployment.run("deploy")
    assert (done.returncode, done.stderr) == (0, "")
    after = deployment.state
    assert done.stdout.count("serves this source already") == len(NAMES)
    assert done.stdout.count("Nothing to change.") == 2
    assert {name: after[name] for name in ("secrets", "services", "sources", "tags", "buckets")} == {
        name: before[name] for name in ("secrets", "services", "sources", "tags", "buckets")
    }
    assert applies(deployment) == applied


@pytest.mark.slow
def test_changed_handler_is_built_alone_and_its_reversal_needs_no_build(deployed: Any) -> None:
    deployment, _ = deployed
    handler, before = deployment.folder / "handlers" / "echo.py", deployment.state
    text = handler.read_text()
    handler.write_text(f"{text}\n# changed\n")
    assert deployment.run("deploy").returncode == 0
    state = deployment.state
    assert [it["name"] for it in state["sources"][len(before["sources"]) :]] == ["pombo-internal"]
    assert image_served(state, "pombo-internal") != image_served(before, "pombo-internal")

    handler.write_text(text)
    done = deployment.run("deploy")
    assert done.returncode == 0
    after = deployment.state
    assert len(after["sources"]) == len(state["sources"]), "that image is in the registry"
    assert image_served(after, "pombo-internal") == image_served(before, "pombo-internal")


@pytest.fixture(scope="module")
def left_by_cloud_build(deployed: Any) -> dict[str, Any]:
    """The services after a run that finds them as a cancelled deployment of Cloud Build's may have left them, though
    their source serves already.
    """
    deployment, _ = deployed
    before = deployment.state
    services = deployment.state["services"]
    services["pombo-internal"] |= {"follows": False}
    services["pombo-webhook"] |= {"shared": 40, "tagged": ["candidate"]}
    deployment.change(services=services)
    assert deployment.run("deploy").returncode == 0
    after: dict[str, Any] = deployment.state["services"]
    deployment.state = before
    return after


@pytest.mark.slow
@pytest.mark.parametrize("service", ["pombo-internal", "pombo-webhook"], ids=["pinned", "shared with an old revision"])
def test_traffic_that_is_pinned_or_shared_goes_to_the_latest_revision_again(
    left_by_cloud_build: dict[str, Any], service: str
) -> None:
    after = left_by_cloud_build[service]
    assert (after["follows"], after.get("shared")) == (True, None)


@pytest.mark.slow
def test_tag_of_an_old_revision_is_removed(left_by_cloud_build: dict[str, Any]) -> None:
    assert "tagged" not in left_by_cloud_build["pombo-webhook"]


def test_moved_tag_is_not_deployed(deployed: Any) -> None:
    """pombo-build may push any image, and move any tag."""
    deployment, _ = deployed
    before = deployment.state
    stolen = f"{REPOSITORY}/pombo-internal@sha256:{'6' * 64}"
    own = f"{REPOSITORY}/pombo-internal:"
    moved = {tag: stolen if tag.startswith(own) else image for tag, image in before["tags"].items()}
    assert stolen in moved.values()
    deployment.change(tags=moved)
    assert deployment.run("deploy").returncode == 0
    after = deployment.state
    deployment.state = before
    assert stolen not in [it["image"] for it in after["services"]["pombo-internal"]["revisions"]]
    assert [it["name"] for it in after["sources"][len(before["sources"]) :]] == ["pombo-internal"]


def test_a_revision_that_does_not_start_stops_it_before_the_webhook(deployed: Any) -> None:
    deployment, _ = deployed
    before = deployment.state
    deployment.change(unready=["pombo-internal"])
    shared = deployment.folder / "shared" / "crash.py"
    text = shared.read_text()
    shared.write_text(f"{text}\n# changed\n")
    done = deployment.run("deploy")
    shared.write_text(text)
    after = deployment.state
    deployment.state = before
    assert done.returncode == 1
    assert done.stderr.startswith("pombo: gcloud run deploy pombo-internal failed: ERROR: (gcloud.run.deploy) Revision")
    assert done.stderr.count("\n") == 1
    assert image_served(after, "pombo-internal") == image_served(before, "pombo-internal")
    assert [it["name"] for it in after["sources"][len(before["sources"]) :]] == ["pombo-internal"]


@pytest.fixture
def staging(deployed: Any, monkeypatch: pytest.MonkeyPatch) -> Root:
    """The deployed root, called as the program calls it."""
    deployment, _ = deployed
    for name, value in deployment.environment.items():
        monkeypatch.setenv(name, value)
    return Root(deployment.folder / "infra/terraform/environments/staging", "my-project-1-terraform-state", {})


@pytest.mark.slow
def test_temporary_refusal_by_google_is_retried(
    deployed: Any, staging: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment, _ = deployed
    tfvars = staging.folder / "terraform.tfvars"
    tfvars.write_text(tfvars.read_text().replace('["jane@example.com"]', '["oncall@example.com"]'))
    disabled = "Error: googleapi: Error 403: Cloud Tasks API has not been used in project 1 before or it is disabled."
    deployment.refuse(disabled, "Error: Error 409: too much contention on these datastore entities. please try again.")
    assert staging.apply(pause=0)
    said = capsys.readouterr().out
    assert said.count("Google does not take all of it yet") == 2
    assert "1 to make, " in said
    assert " 1 to remove." in said, "an address of alerts may go"
    assert not staging.apply(pause=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sentences", "attempts"),
    [
        (["Error: googleapi: Error 403: The principal lacks cloudtasks.queues.create"], 1),
        (["Error: googleapi: Error 403: SERVICE_DISABLED"] * 4, 4),
    ],
    ids=["for good", "again and again"],
)
def test_lasting_refusal_by_google_ends_the_apply(
    deployed: Any, staging: Root, sentences: list[str], attempts: int
) -> None:
    deployment, _ = deployed
    tfvars = staging.folder / "terraform.tfvars"
    text, before = tfvars.read_text(), len(applies(deployment))
    tfvars.write_text(f'{text}settings = {{ log_level = "DEBUG" }}\n')
    deployment.refuse(*sentences)
    with pytest.raises(Refused) as refused:
        staging.apply(pause=0)
    tfvars.write_text(text)
    assert str(refused.value) == f"terraform apply -input=false -no-color failed: {sentences[0]}"
    assert len(applies(deployment)) - before == attempts


def test_failed_destroy_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = iter([Failed(("terraform", "destroy"), "Error: Error 409: contention"), None])

    def follow(*command: str, **_: object) -> None:
        if failure := next(failures):
            raise failure

    monkeypatch.setattr(roots, "terraform", lambda *_: "")
    monkeypatch.setattr(roots, "follow", follow)
    Root(tmp_path, "a-bucket", {}).destroy(pause=0)
    assert list(failures) == []
    assert capsys.readouterr().out == (
        "    Google does not remove all of it yet (terraform destroy failed: Error: Error 409: contention). "
        "Again in 0 s.\n"
    )


def test_an_apply_that_would_destroy_a_service_is_not_made(deployed: Any, staging: Root) -> None:
    deployment, _ = deployed
    run = deployment.folder / "infra/terraform/modules/run/main.tf"
    text, before = run.read_text(), len(applies(deployment))
    run.write_text(text.replace('name     = "pombo-${var.name}"', 'name     = "other-${var.name}"'))
    with pytest.raises(Refused, match=r"^An apply would destroy module\.pombo\.module\.run\["):
        staging.apply(pause=0)
    run.write_text(text)
    assert len(applies(deployment)) == before


@pytest.mark.parametrize(
    ("service", "which", "what", "status"),
    [
        ("webhook", "refusal", "a handshake with a wrong token", 403),
        ("webhook", "refusal_of_posts", "an unsigned webhook", 403),
        ("api", "without_key", "a list of messages without a key", 401),
    ],
)
def test_public_service_that_accepts_anything_is_refused(
    webhook: Webhook, here: str, monkeypatch: pytest.MonkeyPatch, service: str, which: str, what: str, status: int
) -> None:
    monkeypatch.setattr(webhook, which, 200)
    with pytest.raises(Refused, match=f"The {service} service answers 200 to {what}, and must answer {status}"):
        public_checks.check(service, here)


@pytest.mark.parametrize(
    "health",
    [
        (503, {}),
        (200, {"services": {"store": "connected", "queue": "away"}}),
        (200, {"services": {"store": "connected"}}),
        (200, []),
        (200, {}),
    ],
)
def test_a_public_service_that_is_not_connected_is_refused(
    webhook: Webhook, here: str, health: tuple[int, Any]
) -> None:
    good, webhook.health = webhook.health, health
    try:
        with pytest.raises(Refused, match="not that its store and its queue are connected"):
            public_checks.check("api", here, longest=0.05, pause=0.02)
    finally:
        webhook.health = good


# ---- what is built


def test_source_contains_what_the_image_can_hold(deployed: Any) -> None:
    deployment, _ = deployed
    said = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in said if line.startswith("!")} == set(source_images.FOLDERS)
    rest = {line.removeprefix("**/") for line in said if line[:1] not in ("!", "#", "*", "") or line.startswith("**/")}
    assert rest == set(source_images.LEFT_OUT)
    for source in deployment.state["sources"]:
        names = set(source["files"])
        internal = source["name"] == "pombo-internal"
        parts = {"services", "shared", "Dockerfile", ".gcloudignore", *(["handlers", "pombo"] if internal else [])}
        assert {name.split("/")[0] for name in names} == parts
        others = tuple(f"services/{kind}/" for kind in AS_DEPLOYED if source["name"] != f"pombo-{kind}")
        assert not [name for name in names if name.startswith(others)]
        assert not [name for name in names if "__pycache__" in name or name.startswith("cli/")]
        assert "shared/channels/meta/channel.py" in names


def test_the_dockerfile_needs_no_argument_and_finds_all_that_it_copies(deployed: Any) -> None:
    deployment, _ = deployed
    base = (ROOT / "services" / "base-image.txt").read_text().strip()
    for source in deployment.state["sources"]:
        kind = source["name"].removeprefix("pombo-")
        original = (ROOT / "services" / kind / "Dockerfile").read_text()
        assert source["files"]["Dockerfile"] == original.replace("ARG PYTHON_IMAGE\n", f"ARG PYTHON_IMAGE={base}\n")
        names = {Path(name) for name in source["files"]}
        for copied in re.findall(r"^COPY (?!--from)(\S+) ", original, re.M):
            assert [it for it in names if it.match(copied) or copied in map(str, it.parents)], copied


def test_a_dockerfile_that_takes_no_base_image_is_refused(tmp_path: Path) -> None:
    place = Place("my-project-1", "europe-west1", "staging", tmp_path)
    for name in ("services/webhook", "shared", "handlers"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "services/base-image.txt").write_text("python:3.11\n")
    (tmp_path / "services/webhook/Dockerfile").write_text("FROM python:3.11\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(Refused, match="does not take its base image"):
        source_images.put_together(source_images.SourceService("webhook", place), tmp_path / "out")


def test_dockerfile_that_copies_an_excluded_file_is_refused(tmp_path: Path) -> None:
    place = Place("my-project-1", "europe-west1", "staging", tmp_path)
    (tmp_path / "services/webhook").mkdir(parents=True)
    (tmp_path / "services/base-image.txt").write_text("python:3.11\n")
    (tmp_path / "secrets.txt").touch()
    (tmp_path / "services/webhook/Dockerfile").write_text("ARG PYTHON_IMAGE\nCOPY secrets.txt .\n")
    with pytest.raises(Refused, match=r"copies secrets\.txt, which \.dockerignore does not let in"):
        source_images.put_together(source_images.SourceService("webhook", place), tmp_path / "out")


def test_the_hash_of_a_source_is_of_names_and_contents(tmp_path: Path) -> None:
    def hashed(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, text in files.items():
            path = folder / name.replace("_", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return source_images.hash_of(folder)

    assert hashed(a="1", b="2") == hashed(b="2", a="1")
    different = [{"a": "1", "b": "2"}, {"a": "2", "b": "1"}, {"a": "12"}, {"a": "1", "c": "2"}, {"a": "1"}]
    different += [{"a": "1", "c_b": "2"}, {"a": "1", "c_b": "3"}, {"a": "1", "d_b": "2"}]
    assert len({hashed(**files) for files in different}) == len(different)


# ---- what is refused before anything is made

REFUSALS: list[tuple[str, dict[str, Any], tuple[str, ...], str]] = [
    ("nobody logged in", {"account": ""}, (FIRST,), "No account is logged in with gcloud: run gcloud auth login."),
    (
        "no credentials for Terraform",
        {"default_credentials": False},
        (FIRST,),
        "Terraform has no credentials: run gcloud auth application-default login.",
    ),
    ("an old gcloud", {"version": "527.0.0"}, (FIRST,), "gcloud 527.0.0 is too old: 528.0 or newer is needed."),
    (
        "no project",
        {"project": {"projectId": "another-project"}},
        (FIRST,),
        "There is no project my-project-1 that you may see: run gcloud projects create my-project-1, or log in "
        "with an account that may see it.",
    ),
    *(
        (
            f"the API of {api} off",
            {"off": [api]},
            (FIRST,),
            "An API is off in the project of the account that is logged in: with an account that may, run gcloud "
            "services enable cloudresourcemanager.googleapis.com serviceusage.googleapis.com "
            "cloudbilling.googleapis.com "
            "--project=my-project-1 (or that account's own project), and wait some minutes.",
        )
        for api in ("projects", "billing")
    ),
    (
        "a project that is going",
        {"project": {"projectId": "my-project-1", "lifecycleState": "DELETE_REQUESTED"}},
        (FIRST,),
        "my-project-1 is being deleted: gcloud projects undelete my-project-1 takes that back.",
    ),
    (
        "no billing",
        {"billing": "False"},
        (FIRST,),
        "my-project-1 has no billing: run gcloud billing projects link my-project-1 "
        "--billing-account=000000-000000-000000 with one of gcloud billing accounts list.",
    ),
    (
        "a region without Cloud Run",
        {"regions": ["us-central1", "asia-east1"]},
        (FIRST,),
        "Cloud Run is not in europe-west1. It is in: asia-east1, us-central1.",
    ),
    ("no number", {}, (), "Say the phone number ID: --phone-number-id, or the variable WHATSAPP_PHONE_NUMBER_ID."),
    (
        "a number that is none",
        {},
        ("--phone-number-id=+49 30 1",),
        "+49 30 1 is not a phone number ID: that is the long number that Meta shows beside the number (WhatsApp, API "
        "Setup), not the number itself.",
    ),
    (
        "a handler that is none",
        {},
        (FIRST, "--handler=handlers/echo.py"),
        "handlers/echo.py is not a handler: write module:function, like handlers.echo:handle.",
    ),
    (
        "no secret and no terminal",
        {},
        (FIRST,),
        "META_APP_SECRET has no value yet. Run this in a terminal, which asks for it, or give it by the variable "
        "META_APP_SECRET or by --secrets-from.",
    ),
]


@pytest.mark.parametrize(("state", "options", "sentence"), [it[1:] for it in REFUSALS], ids=[it[0] for it in REFUSALS])
def test_impossible_deployment_is_refused_in_one_sentence_before_any_change(
    empty: Deployment, state: dict[str, Any], options: tuple[str, ...], sentence: str
) -> None:
    tfvars = empty.folder / "infra/terraform/environments/staging/terraform.tfvars"
    tfvars.unlink(missing_ok=True)
    empty.state = {**fake_project.new(), **state}
    done = empty.run("deploy", *options)
    assert (done.returncode, done.stderr) == (1, f"pombo: {sentence}\n")
    assert not [call for call in empty.terraform_calls if call[1] not in ("version",)]
    assert (empty.state["buckets"], empty.state["secrets"], empty.state["sources"]) == ([], {}, [])


def test_a_region_without_a_scheduler_is_refused_unless_the_sweep_has_another(empty: Deployment) -> None:
    tfvars = empty.folder / "infra/terraform/environments/staging/terraform.tfvars"
    tfvars.unlink(missing_ok=True)
    empty.state = {**fake_project.new(), "scheduler_regions": ["us-central1"]}
    assert "Cloud Scheduler is not in europe-west1." in empty.run("deploy", FIRST).stderr
    tfvars.write_text(f'{tfvars.read_text()}scheduler_region = "us-central1"\n')
    assert "META_APP_SECRET has no value yet" in empty.run("deploy").stderr


@pytest.mark.parametrize("name", ["project", "region"])
def test_variables_of_another_deployment_are_left_alone(empty: Deployment, name: str) -> None:
    tfvars = empty.folder / "infra/terraform/environments/staging/terraform.tfvars"
    text = 'project = "my-project-1"\nregion = "europe-west1"\n'
    tfvars.write_text(re.sub(rf'^{name} = ".*"$', f'{name} = "other-1"', text, flags=re.M))
    empty.state = fake_project.new()
    done = empty.run("deploy")
    assert done.returncode == 1
    assert f'terraform.tfvars says {name} = "other-1", and you say' in done.stderr
    tfvars.unlink()


@pytest.mark.parametrize(("there", "asked"), [("prod", "staging"), ("staging", "prod")])
def test_a_project_that_has_the_other_environment_is_refused(empty: Deployment, there: str, asked: str) -> None:
    """Both roots give the same names."""
    for environment in ("staging", "prod"):
        (empty.folder / f"infra/terraform/environments/{environment}/terraform.tfvars").unlink(missing_ok=True)
    bucket = "gs://my-project-1-terraform-state"
    state = f"{bucket}/{there}/default.tfstate"
    empty.state = {**fake_project.new(), "buckets": [bucket], "objects": [state]}
    done = empty.run("deploy", FIRST, f"--environment={asked}", **GIVEN)
    assert (done.returncode, done.stderr) == (
        1,
        f"pombo: my-project-1 has {there} already, and {asked} needs a project of its own: go on with "
        f"ENVIRONMENT={there}, or, if {there} was destroyed, run gcloud storage rm {state}\n",
    )
    assert not [call for call in empty.terraform_calls if call[1] not in ("version",)]
    assert empty.state["secrets"] == {}


def test_the_state_of_an_environment_is_looked_for_where_terraform_keeps_it() -> None:
    for environment in ("staging", "prod"):
        root = ROOT / "infra/terraform/environments" / environment
        text = "".join(path.read_text() for path in root.glob("*.tf"))
        assert re.search(rf'backend "gcs" {{\s*prefix = "{environment}"\s*}}', text)


def test_prod_has_its_own_variables(empty: Deployment) -> None:
    empty.state = fake_project.new()
    empty.run("deploy", FIRST, "--environment=prod")
    assert NUMBER in (empty.folder / "infra/terraform/environments/prod/terraform.tfvars").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("META_APP_SECRET=a,b\nWHATSAPP_ACCESS_TOKEN=c\n", "META_APP_SECRET has a comma"),
        ("META_APP_SECRET= a\nWHATSAPP_ACCESS_TOKEN=c\n", "META_APP_SECRET begins or ends with a blank"),
        ("META_APP_SECRET=a\nWHATSAPP_ACCESS_TOKEN=\n", "WHATSAPP_ACCESS_TOKEN is empty"),
        ("META_APP_SECRET=a\nWHATSAPP_ACCESS_TOKEN=é\n", "WHATSAPP_ACCESS_TOKEN has a sign that no secret has"),
        ("# a comment\n\nMETA_APP_SECRET hunter2\n", "Line 3 of"),
        (None, "cannot be read (FileNotFoundError)"),
    ],
)
def test_invalid_secret_is_refused_without_its_value(
    empty: Deployment, tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "secrets"
    if text is not None:
        file.write_text(text)
    empty.state = fake_project.new()
    done = empty.run("deploy", FIRST, f"--secrets-from={file}")
    assert done.returncode == 1
    assert said in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--environment=production",), "Argument --environment: invalid choice: 'production'"),
        (("--envronment=prod",), "Unrecognized arguments: --envronment=prod"),
        (("--pro=x",), "Unrecognized arguments: --pro=x"),
    ],
)
def test_a_wrong_option_is_one_sentence(empty: Deployment, options: tuple[str, ...], said: str) -> None:
    done = empty.run("deploy", *options)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pombo: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("project", "region", "said"),
    [
        ("My Project", "europe-west1", "My Project is not a project ID"),
        ("my-project-1", "europe", "europe is not a region. Two examples: europe-west1, us-central1."),
    ],
)
def test_invalid_name_is_refused_before_any_call(empty: Deployment, project: str, region: str, said: str) -> None:
    empty.state = fake_project.new()
    done = subprocess.run(
        [
            "make",
            "deploy",
            f"PROJECT={project}",
            f"REGION={region}",
            f"PYTHON={sys.executable}",
            "-f",
            ROOT / "Makefile",
        ],
        cwd=empty.folder,
        env=empty.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said in done.stderr
    assert empty.state["calls"] == []


def test_make_deploy_explains_its_options() -> None:
    done = subprocess.run(["make", "deploy"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[0] == "pombo: say where: make deploy PROJECT=my-project REGION=europe-west1"
    done = subprocess.run(
        ["make", "-n", "deploy", "PROJECT=p", "REGION=r", "ENVIRONMENT=prod"], cwd=ROOT, capture_output=True, text=True
    )
    assert '-m infra.release.deploy --project="p" --region="r" --environment \'prod\'' in done.stdout
    old = ["make", "deploy", "PROJECT=p", "REGION=r", "PYTHON=false"]
    assert "is not Python 3.11" in subprocess.run(old, cwd=ROOT, capture_output=True, text=True, timeout=60).stderr


def test_make_deploy_help_has_examples(empty: Deployment) -> None:
    done = empty.run("deploy", "--help")
    assert done.returncode == 0
    assert "make deploy PROJECT=my-project REGION=europe-west1" in done.stdout
    assert "--pause" not in done.stdout


# ---- its parts


def test_the_secrets_that_are_lists_and_that_there_are_follow_the_configuration() -> None:
    secret = {one.name: one for one in SETTINGS if one.secret}
    assert {name for name, one in secret.items() if "list" in one.meaning} == first_secrets.LISTS
    assert {*first_secrets.ASKED, *first_secrets.MADE, "HANDLER_URL_SECRET", "REDIS_URL"} == set(secret)


def test_bootstrap_gets_a_handlers_own_secrets_and_the_redis(tmp_path: Path) -> None:
    place = Place("my-project-1", "europe-west1", "staging", tmp_path)
    place.environment_root.mkdir(parents=True)
    common = 'project = "my-project-1"\nregion = "europe-west1"\n'
    place.variables.write_text(common)
    told = {"project": "my-project-1", "region": "europe-west1"}
    assert variables.of_bootstrap(place) == told
    assert first_secrets.needed(place) == [*first_secrets.ASKED, *first_secrets.MADE]
    place.variables.write_text(
        f'{common}redis = true\nhandler_secrets = ["CLINIC_KEY", "CLINIC_PIN"]\nhandler_url = "https://example.com/a"\n'
        'kms_key = "projects/p/locations/l/keyRings/r/cryptoKeys/k"\n'
    )
    told |= {"redis": "true", "handler_secrets": '["CLINIC_KEY", "CLINIC_PIN"]'}
    assert variables.of_bootstrap(place) == {**told, "kms_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k"}
    asked = [*first_secrets.ASKED, *first_secrets.MADE, "HANDLER_URL_SECRET", "CLINIC_KEY", "CLINIC_PIN"]
    assert first_secrets.needed(place) == asked


def test_a_secret_is_asked_for_hidden_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(first_secrets.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(first_secrets.getpass, "getpass", lambda prompt: asked.append(prompt) or " typed ")
    monkeypatch.setenv("WHATSAPP_ACCESS_TOKEN", "exported")
    found = first_secrets.values_of(["META_APP_SECRET", "WHATSAPP_ACCESS_TOKEN", "HANDLER_URL_SECRET"], None)
    assert (found["META_APP_SECRET"], found["WHATSAPP_ACCESS_TOKEN"]) == ("typed", "exported")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", found["HANDLER_URL_SECRET"])
    assert asked == ["META_APP_SECRET, the app secret (App settings, Basic), hidden: "]
    assert "WHATSAPP_ACCESS_TOKEN" not in os.environ, "no program that is called later is given it"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Starting\nERROR: (gcloud.x) No.\nmore", "ERROR: (gcloud.x) No."),
        (
            "╷\n│ Error: Error creating\n│\n│   with a.b,\n│ googleapi: Error 409: busy\n╵",
            "Error: Error creating googleapi: Error 409: busy",
        ),
        ("only this", "only this"),
        ("", "no reason"),
    ],
)
def test_failure_is_reported_by_its_own_line(said: str, sentence: str) -> None:
    assert complaint(said) == sentence


CHILD = """
import signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("begun", flush=True)
end = time.monotonic() + 20
while not got and time.monotonic() < end: time.sleep(0.02)
time.sleep(0.3)
print(f"put away after {len(got)}", flush=True)
sys.exit(1)
"""


def test_ctrl_c_lets_terraform_save_its_state_and_prints_one_sentence(tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to the whole process group."""
    child = tmp_path / "terraform"
    child.write_text(f"#!{sys.executable}\n{CHILD}")
    child.chmod(0o755)
    program = (
        "from infra.release.deploy import ended; from infra.release.tools import follow; "
        "ended(lambda: follow('terraform'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "    begun\n"
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert out == "    put away after 1\n"
    assert process.returncode == 130
    assert error.splitlines()[-1] == "pombo: Stopped. The same command continues from here."
