"""The build: its file by the API's schemas and by rules of ours, and all its steps, run against a cloud on a file."""

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fake_cloud
import pytest
import yaml
from fake_cloud import PLACEHOLDER, REPOSITORY, serving
from gcloud_lines import complaints
from google.cloud.devtools import cloudbuild_v1
from google.protobuf import json_format
from tree import ROOT, need_gcloud

from infra.release import candidate

BUILD: Mapping[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())
GIVEN = {"PROJECT_ID", "BUILD_ID"}
"""Substitutions that every build has: https://cloud.google.com/build/docs/configuring-builds/substitute-variable-values"""

SHELLS_OWN = {"PATH", "PWD"}
ORDER = ("terraform", "test", "build", "scan", "push", "deploy", "check", "promote")


def before(build: Mapping[str, Any], step: str) -> set[str]:
    """All that has ended well when this step begins."""
    waits = {one["id"]: set(one.get("waitFor", ())) - {"-"} for one in build["steps"]}
    found, waiting = set(), [step]
    while waiting:
        for one in waits.get(waiting.pop(), set()) - found:
            found.add(one)
            waiting.append(one)
    return found


def faults(build: Mapping[str, Any]) -> list[str]:
    """What no schema sees."""
    return [*_step_faults(build), *_order_faults(build), *_substitution_faults(build), *_frame_faults(build)]


def _step_faults(build: Mapping[str, Any]) -> Iterator[str]:
    for step in build["steps"]:
        name, script = step["id"], step.get("script", "")
        if not re.fullmatch(r"[\w./-]+:[\w.-]+(@sha256:[0-9a-f]{64})?", step["name"]) or ":latest" in step["name"]:
            yield f"{name}: {step['name']} is no image by a tag"
        if not re.match(r"#!/bin/sh\nset -eu\n|#!/usr/bin/env bash\nset -euo pipefail\n", script):
            yield f"{name}: the script goes on after a command that failed"
        for line in re.sub(r"\\\n\s*", " ", script).splitlines():
            if re.search(r"gcloud run (deploy|services (update|replace)) ", line):
                if '--image="$(cat ".release/$service")"' not in line:
                    yield f"{name}: an image is not deployed by the digest that was pushed"
                if "--no-traffic" not in line:
                    yield f"{name}: what was deployed gets traffic before it was checked"
                if "--tag" in line or "--revision-suffix" in line:
                    yield f"{name}: it names the revision, and Terraform wants to take the name away"
        if name == "deploy" and '--update-tags="candidate=$revision"' not in script:
            yield f"{name}: what was deployed cannot be asked"


def _order_faults(build: Mapping[str, Any]) -> Iterator[str]:
    ids = [step["id"] for step in build["steps"]]
    if len(set(ids)) < len(ids):
        yield "two steps have one id"
    for at, step in enumerate(build["steps"]):
        for one in set(step.get("waitFor", ())) - {"-"} - set(ids[:at]):
            yield f"{step['id']}: waits for {one}, which is no step before it"
        if not step.get("waitFor"):
            yield f"{step['id']}: does not say what it waits for"
    for late, early in (("push", {"test", "scan"}), ("deploy", {"push"}), ("promote", {"check", "deploy"})):
        for one in early - before(build, late):
            yield f"{late}: does not wait for {one}"


def _substitution_faults(build: Mapping[str, Any]) -> Iterator[str]:
    defined = set(build.get("substitutions", {}))
    texts = [build.get("serviceAccount", ""), *(step.get("script", "") for step in build["steps"])]
    used = {name for text in texts for name in re.findall(r"\$\{?([A-Z_][A-Z0-9_]*)", text)}
    for name in used - defined - GIVEN - SHELLS_OWN:
        yield f"${name} is used and not defined"
    for name in defined - used:
        yield f"${name} is defined and not used"


def _frame_faults(build: Mapping[str, Any]) -> Iterator[str]:
    if build.get("serviceAccount") != (
        "projects/$PROJECT_ID/serviceAccounts/pombo-build@$PROJECT_ID.iam.gserviceaccount.com"
    ):
        yield "it does not run as pombo-build, but as an account that may do more"
    if build.get("options", {}).get("logging") != "CLOUD_LOGGING_ONLY":
        yield "an account of one's own needs logging: CLOUD_LOGGING_ONLY"
    if not build.get("options", {}).get("automapSubstitutions"):
        yield "scripts do not see substitutions"
    if "bash .ci/run" not in next((step["script"] for step in build["steps"] if step["id"] == "test"), ""):
        yield "the tests are not those of CI"


# ---- the file


def schema(path: Path) -> int:
    return subprocess.run(
        [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.cloudbuild", path],
        capture_output=True,
    ).returncode


def protobuf(build: Mapping[str, Any]) -> cloudbuild_v1.Build:
    return json_format.ParseDict(build, cloudbuild_v1.Build.pb(cloudbuild_v1.Build()))


def test_the_build_fits_the_published_schema_and_the_apis_own() -> None:
    assert schema(ROOT / "cloudbuild.yaml") == 0
    assert [step.id for step in protobuf(BUILD).steps] == list(ORDER)


def test_the_build_keeps_our_rules() -> None:
    assert faults(BUILD) == []


def test_a_fault_of_the_schema_is_found(tmp_path: Path) -> None:
    text = (ROOT / "cloudbuild.yaml").read_text()
    for good, bad in (("waitFor: [test, scan]", "waitfor: [test, scan]"), ("CLOUD_LOGGING_ONLY", "SOMEWHERE")):
        assert good in text
        path = tmp_path / "cloudbuild.yaml"
        path.write_text(text.replace(good, bad))
        assert schema(path) != 0
        with pytest.raises(json_format.ParseError):
            protobuf(yaml.safe_load(path.read_text()))


def step(build: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in build["steps"] if one["id"] == name)


def replaced(name: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(build: dict[str, Any]) -> None:
        assert old in step(build, name)["script"]
        step(build, name)["script"] = step(build, name)["script"].replace(old, new)

    return change


MUTATIONS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a step waits for one that is not there": (lambda b: step(b, "scan").update(waitFor=["builds"]), "builds"),
    "a step waits for a later one": (lambda b: step(b, "build").update(waitFor=["scan"]), "no step before it"),
    "a step waits for nothing": (lambda b: step(b, "deploy").pop("waitFor"), "does not say"),
    "two steps of one name": (lambda b: step(b, "scan").update(id="build"), "one id"),
    "a push without the tests": (lambda b: step(b, "push").update(waitFor=["scan"]), "wait for test"),
    "a push without the scan": (lambda b: step(b, "push").update(waitFor=["test"]), "wait for scan"),
    "a deployment without a push": (lambda b: step(b, "deploy").update(waitFor=["test"]), "wait for push"),
    "traffic without a check": (lambda b: step(b, "promote").update(waitFor=["deploy"]), "wait for check"),
    "a misspelt substitution": (replaced("deploy", "$_REGION", "$_REGOIN"), "$_REGOIN is used and not defined"),
    "a substitution that nobody uses": (lambda b: b["substitutions"].update(_OLD="x"), "$_OLD is defined and not"),
    "a mutable tag": (replaced("deploy", '"$(cat ".release/$service")"', '"x/$service:latest"'), "by the digest"),
    "the tag that was built": (replaced("deploy", '$(cat ".release/$service")', "x:$BUILD_ID"), "by the digest"),
    "traffic at once": (replaced("deploy", " --no-traffic", ""), "gets traffic"),
    "a deployment that cannot be asked": (replaced("deploy", '"candidate=', '"'), "cannot be asked"),
    "a revision with a name": (
        replaced("deploy", " --no-traffic", " --no-traffic --tag=candidate"),
        "names the revision",
    ),
    "an image without a tag": (lambda b: step(b, "test").update(name="gcr.io/a/cli"), "no image by a tag"),
    "an image by latest": (lambda b: step(b, "test").update(name="gcr.io/a/cli:latest"), "no image by a tag"),
    "a script that goes on": (replaced("push", "set -euo pipefail\n", ""), "goes on"),
    "the account of everything": (lambda b: b.pop("serviceAccount"), "pombo-build"),
    "logs in a bucket": (lambda b: b["options"].update(logging="GCS_ONLY"), "CLOUD_LOGGING_ONLY"),
    "scripts without substitutions": (lambda b: b["options"].pop("automapSubstitutions"), "do not see"),
    "other tests": (replaced("test", "bash .ci/run", "make check"), "not those of CI"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_of_ours_can_fail(name: str) -> None:
    change, word = MUTATIONS[name]
    build = copy.deepcopy(dict(BUILD))
    change(build)
    assert any(word in fault for fault in faults(build)), faults(build)


# ---- the steps


@dataclass
class Candidate:
    """What answers at a candidate's address."""

    health: tuple[int, str] = (200, '{"services": {"store": "connected", "queue": "connected"}}')
    handshake: int = 403
    unsigned: int = 403
    url: str = ""


@pytest.fixture
def answers() -> Iterator[Candidate]:
    with answering(Candidate()) as says:
        yield says


@contextmanager
def answering(says: Candidate) -> Iterator[Candidate]:

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*(says.health if self.path == "/health" else (says.handshake, "")))

        def do_POST(self) -> None:
            assert "X-Hub-Signature-256" not in self.headers
            self._answer(says.unsigned, "")

        def _answer(self, status: int, body: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    says.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield says
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Project:
    """A project on a file, a work tree for its builds, and the programs of the steps' images."""

    directory: Path
    tests: str = "exit 0"
    said: list[str] = field(default_factory=list)

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.directory / "cloud.json").read_text())

    def change(self, change: Callable[[dict[str, Any]], Any]) -> None:
        state = self.state
        change(state)
        (self.directory / "cloud.json").write_text(json.dumps(state))

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.directory}/bin:/usr/bin:/bin", "FAKE_CLOUD": str(self.directory / "cloud.json")}

    def build(self, number: int, steps: Sequence[str] = ORDER, **substitutions: str) -> str | None:
        """Run every step, or these, as Cloud Build would; the step that failed, and with it the build."""
        shutil.rmtree(self.directory / "workspace", ignore_errors=True)
        for name in ("infra/release", "services"):
            shutil.copytree(ROOT / name, self.directory / "workspace" / name)
        (self.directory / "workspace" / ".ci").mkdir()
        (self.directory / "workspace" / ".ci" / "run").write_text(f"command -v terraform && {self.tests}\n")
        mapped = {"PROJECT_ID": "my-project", "BUILD_ID": f"build-{number}", **BUILD["substitutions"], **substitutions}
        for step in (one for one in BUILD["steps"] if one["id"] in steps):
            script = self.directory / "script"
            script.write_text(step["script"])
            script.chmod(0o755)
            done = subprocess.run(
                [script],
                cwd=self.directory / "workspace",
                env=self.environment | mapped,
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.said.append(done.stdout + done.stderr)
            if done.returncode != 0:
                return step["id"]
        return None

    def run(self, action: str, *services: str) -> subprocess.CompletedProcess[str]:
        """The program of the last steps, by hand."""
        place = ("--project=my-project", "--region=europe-west1")
        return subprocess.run(
            [sys.executable, "-m", "infra.release.candidate", action, *services, *place],
            cwd=ROOT,
            env=self.environment | {"PATH": str(self.directory / "bin")},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def serves(self) -> tuple[str, str]:
        return serving(self.state, "pombo-webhook"), serving(self.state, "pombo-internal")


def a_project(directory: Path, state: dict[str, Any]) -> Project:
    (directory / "bin").mkdir()
    fake = Path(__file__).with_name("fake_cloud.py")
    for name in ("gcloud", "docker", "terraform"):
        (directory / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} -IS {fake} {name} "$@"\n')
        (directory / "bin" / name).chmod(0o755)
    (directory / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (directory / "bin" / "python3").chmod(0o755)
    (directory / "cloud.json").write_text(json.dumps(state))
    return Project(directory)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the cloud was like after the first apply, after one build, and after another."""
    with answering(Candidate()) as says:
        project = a_project(tmp_path_factory.mktemp("history"), fake_cloud.new(says.url))
        states = [project.state]
        for number in (1, 2):
            assert project.build(number) is None, project.said
            states.append(project.state)
    return states


@pytest.fixture
def project_after(history: list[dict[str, Any]], answers: Candidate, tmp_path: Path) -> Callable[[int], Project]:
    """A project after so many builds."""
    return lambda builds: a_project(tmp_path, {**copy.deepcopy(history[builds]), "url": answers.url})


def image(service: str, number: int) -> str:
    return fake_cloud._digest(f"{REPOSITORY}/{service}:build-{number}")


def both(number: int) -> tuple[str, str]:
    return image("webhook", number), image("internal", number)


ProjectAfter = Callable[[int], Project]


def test_a_build_deploys_what_it_pushed_by_digest_and_gives_it_the_traffic(history: list[dict[str, Any]]) -> None:
    served = [tuple(serving(state, name) for name in ("pombo-webhook", "pombo-internal")) for state in history]
    assert served == [(PLACEHOLDER, PLACEHOLDER), both(1), both(2)]


def test_gcloud_would_take_every_command_of_a_build_and_of_a_rollback(project_after: ProjectAfter) -> None:
    need_gcloud()
    project = project_after(2)
    assert project.run("rollback", "webhook", "internal").returncode == 0
    called = [shlex.join(call) for call in project.state["calls"] if call[0] == "gcloud"]
    assert {" ".join(call.split()[:4]) for call in called} >= {
        "gcloud run services update",
        "gcloud run services update-traffic",
        "gcloud run revisions describe",
    }
    assert complaints(called) == {}


def test_after_a_build_new_revisions_of_terraforms_get_the_traffic(project_after: ProjectAfter) -> None:
    project = project_after(1)
    project.change(lambda state: fake_cloud.add_revision(state, "pombo-webhook", "as terraform set it"))
    assert project.serves()[0] == "as terraform set it"


@pytest.mark.parametrize(
    ("fault", "stops_at", "pushes"),
    [
        ({"severities": ["LOW\t", "CRITICAL\tTrue"]}, "scan", False),
        ({"unready": ["pombo-internal"]}, "deploy", True),
        ({"unready": ["pombo-webhook"]}, "deploy", True),
    ],
)
def test_a_build_that_goes_wrong_leaves_the_traffic_where_it_was(
    fault: dict[str, Any], stops_at: str, pushes: bool, project_after: ProjectAfter
) -> None:
    project = project_after(1)
    project.change(lambda state: state.update(fault))
    pushed = len(project.state["pushed"])
    assert project.build(2) == stops_at
    assert project.serves() == both(1)
    assert (len(project.state["pushed"]) > pushed) is pushes


def test_nothing_is_pushed_unless_the_tests_pass(project_after: ProjectAfter) -> None:
    project = project_after(0)
    project.tests = "exit 1"
    assert project.build(1) == "test"
    assert project.state["pushed"] == []


@pytest.mark.parametrize(
    ("stop_at", "found", "stops"),
    [
        ("CRITICAL", ["HIGH\tTrue", "\t", "LOW\t"], False),
        ("CRITICAL", ["CRITICAL\t"], False),
        ("CRITICAL", ["CRITICAL\tFalse", "LOW\tTrue"], False),
        ("HIGH", ["HIGH\tTrue"], True),
        ("HIGH", ["CRITICAL\tTrue"], True),
        ("HIGH", ["MEDIUM\tTrue"], False),
        ("HIGH", [], False),
        ("NONE", ["CRITICAL\tTrue", ""], False),
        ("SEVERE", [], True),
    ],
)
def test_a_vulnerability_that_can_be_mended_stops_a_build_by_its_severity(
    stop_at: str, found: list[str], stops: bool, project_after: ProjectAfter
) -> None:
    project = project_after(0)
    project.change(lambda state: state.update(severities=found))
    assert project.build(1, ("build", "scan"), _STOP_AT=stop_at) == ("scan" if stops else None)


@pytest.mark.parametrize("wrong", [{"handshake": 200}, {"unsigned": 200}])
def test_a_candidate_that_answers_wrongly_gets_no_traffic(
    wrong: dict[str, int], project_after: ProjectAfter, answers: Candidate
) -> None:
    for name, value in wrong.items():
        setattr(answers, name, value)
    project = project_after(1)
    assert project.build(2, ("build", "push", "deploy", "check")) == "check"
    assert project.serves() == both(1)


@pytest.mark.parametrize(
    "health",
    [
        (503, "{}"),
        (200, "{}"),
        (200, "[]"),
        (200, "<html>"),
        (200, '{"services": {}}'),
        (200, '{"services": {"store": "connected"}}'),
        (200, '{"services": {"store": "connected", "queue": "unavailable"}}'),
    ],
)
def test_a_candidate_that_is_never_connected_is_given_up(
    health: tuple[int, str], answers: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate, "READY_SECONDS", 0)
    answers.health = health
    with pytest.raises(candidate.Refused, match=f"answers {health[0]} to /health"):
        candidate.check(candidate.Service("pombo-webhook", ("", ""), a_status(answers.url)))


def a_status(url: str) -> dict[str, Any]:
    """Of a service whose candidate is here."""
    target = {"revisionName": "r", "tag": "candidate", "url": url}
    return {"latestCreatedRevisionName": "r", "latestReadyRevisionName": "r", "traffic": [target]}


def test_a_rollback_serves_the_image_before_and_changes_nothing_when_done_again(project_after: ProjectAfter) -> None:
    project = project_after(2)
    done = project.run("rollback", "webhook", "internal")
    assert done.returncode == 0, done.stderr
    assert f"pombo-webhook serves {named(both(1)[0])} in place of {named(both(2)[0])}" in done.stdout
    assert project.serves() == both(1)
    there = project.state["services"]
    again = project.run("rollback", "webhook", "internal")
    assert again.stdout.count("from before the last promotion, already.") == 2
    assert project.state["services"] == there


def named(image: str) -> str:
    """As a person is told it."""
    return image.partition("@")[2][:19]


def test_a_rollback_does_not_bring_back_the_secrets_of_then(project_after: ProjectAfter) -> None:
    project = project_after(2)
    project.change(lambda state: fake_cloud.apply(state, "pombo-webhook", "META_APP_SECRET=2"))
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves()[0] == image("webhook", 1)
    assert serving(project.state, "pombo-webhook", "settings") == "META_APP_SECRET=2"


def test_after_a_rollback_what_is_applied_gets_the_traffic_and_the_good_image(project_after: ProjectAfter) -> None:
    project = project_after(2)
    assert project.run("rollback", "webhook").returncode == 0
    project.change(lambda state: fake_cloud.apply(state, "pombo-webhook", "META_APP_SECRET=2"))
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves()[0] == image("webhook", 1)
    assert serving(project.state, "pombo-webhook", "settings") == "META_APP_SECRET=2"


def test_what_terraform_applies_after_a_build_is_taken(project_after: ProjectAfter) -> None:
    """A build that names its revision leaves the name in the service, where no plan of Terraform's leaves it."""
    project = project_after(2)
    project.change(lambda state: fake_cloud.apply(state, "pombo-webhook", "META_APP_SECRET=2"))
    assert serving(project.state, "pombo-webhook", "settings") == "META_APP_SECRET=2"


def test_a_rollback_whose_image_does_not_start_leaves_the_traffic_and_can_be_tried_again(
    project_after: ProjectAfter,
) -> None:
    project = project_after(2)
    project.change(lambda state: state.update(unready=["pombo-webhook"]))
    for _ in range(2):
        done = project.run("rollback", "webhook")
        assert (done.returncode, done.stdout) == (1, "")
        assert "is not ready" in done.stderr
        assert project.serves() == both(2)
    project.change(lambda state: state.update(unready=[]))
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves() == (image("webhook", 1), image("internal", 2))


@pytest.mark.parametrize(("action", "serves"), [("rollback", 1), ("drop", 2)])
def test_what_breaks_off_between_the_image_and_the_traffic_goes_on_from_there(
    action: str, serves: int, project_after: ProjectAfter
) -> None:
    project = project_after(2)
    assert project.build(3, ("build", "push", "deploy")) is None
    project.change(lambda state: state.update(away=[["update-traffic", "pombo-webhook"]]))
    assert "UNAVAILABLE" in project.run(action, "webhook").stderr
    for _ in range(2):
        assert project.run(action, "webhook").returncode == 0
        assert project.serves()[0] == image("webhook", serves)
        assert applied(project)


def applied(project: Project) -> bool:
    """Whether what Terraform applies now takes effect, with the image that serves."""
    serves = project.serves()[0]
    project.change(lambda state: fake_cloud.apply(state, "pombo-webhook", "META_APP_SECRET=2"))
    assert project.serves()[0] == serves
    return serving(project.state, "pombo-webhook", "settings") == "META_APP_SECRET=2"


@pytest.mark.parametrize(
    ("fault", "stops_at"),
    [
        ({}, "check"),
        ({"unready": [image("internal", 3)]}, "deploy"),
        ({"unready": [image("webhook", 3)]}, "deploy"),
        ({"away": [["update", "pombo-internal"]]}, "deploy"),
        ({"away": [["update", "pombo-webhook"]]}, "deploy"),
        ({"away": [["describe", "pombo-webhook"]]}, "deploy"),
        ({"away": [["update-traffic", "pombo-webhook"]]}, "deploy"),
        ({"severities": ["CRITICAL\tTrue"]}, "scan"),
    ],
)
def test_a_build_that_goes_wrong_leaves_nothing_of_itself_behind(
    fault: dict[str, Any], stops_at: str, project_after: ProjectAfter, answers: Candidate
) -> None:
    project = project_after(2)
    answers.unsigned = 200
    project.change(lambda state: state.update(fault))
    assert project.build(3) == stops_at
    assert project.serves() == both(2)
    assert applied(project)
    done = project.run("drop", "internal", "webhook")
    assert done.stdout.count("has nothing to drop") == 2


def test_a_first_build_that_goes_wrong_leaves_the_placeholder(project_after: ProjectAfter, answers: Candidate) -> None:
    project = project_after(0)
    answers.unsigned = 200
    assert project.build(1) == "check"
    assert project.serves() == (PLACEHOLDER, PLACEHOLDER)
    assert applied(project)


def test_a_build_that_was_cancelled_can_be_dropped_by_one_command_of_make(project_after: ProjectAfter) -> None:
    project = project_after(2)
    assert project.build(3, ("build", "push", "deploy")) is None
    done = make(project, "drop-candidate", "REGION=europe-west1")
    assert (done.returncode, done.stderr) == (0, "")
    assert project.serves() == both(2)
    assert applied(project)


def test_the_build_after_a_rollback_gets_the_traffic_and_can_be_rolled_back_in_turn(
    project_after: ProjectAfter,
) -> None:
    project = project_after(2)
    assert project.run("rollback", "webhook", "internal").returncode == 0
    assert project.build(3) is None
    assert project.serves() == both(3)
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves() == (image("webhook", 1), image("internal", 3))


def test_nobody_is_rolled_back_to_the_placeholder_which_would_take_every_webhook_and_keep_none(
    project_after: ProjectAfter,
) -> None:
    project = project_after(1)
    done = project.run("rollback", "webhook", "internal")
    assert done.returncode == 1
    assert done.stderr == (
        "pombo: pombo-webhook has no revision tagged previous: at most one build was ever promoted.\n"
    )
    assert project.serves() == both(1)


def test_promoting_again_changes_nothing(project_after: ProjectAfter) -> None:
    project = project_after(2)
    assert project.run("promote", "internal", "webhook").returncode == 0
    assert project.run("rollback", "internal").returncode == 0
    assert project.serves() == (image("webhook", 2), image("internal", 1))


def test_what_was_not_checked_is_not_promoted(project_after: ProjectAfter) -> None:
    project = project_after(1)
    project.change(lambda state: fake_cloud.add_revision(state, "pombo-webhook", "as terraform set it"))
    done = project.run("promote", "webhook")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has a newer revision than its candidate" in done.stderr


def test_a_service_that_was_never_deployed_has_no_candidate(project_after: ProjectAfter) -> None:
    done = project_after(0).run("check", "webhook")
    assert done.stderr == "pombo: pombo-webhook has no revision tagged candidate: none was deployed.\n"


def test_what_gcloud_complains_of_is_passed_on_in_a_sentence(project_after: ProjectAfter) -> None:
    project = project_after(1)
    project.change(lambda state: state["services"].pop("pombo-webhook"))
    done = project.run("check", "webhook")
    assert done.returncode == 1
    assert done.stderr == (
        "pombo: gcloud run services describe failed: "
        "ERROR: (gcloud.run.services.describe) Cannot find service [pombo-webhook]\n"
    )
    os.remove(project.directory / "bin" / "gcloud")
    assert project.run("check", "webhook").stderr == "pombo: gcloud is not here; install the Google Cloud CLI.\n"


@pytest.mark.parametrize("target", ["rollback", "drop-candidate"])
def test_where_has_to_be_said(target: str, project_after: ProjectAfter) -> None:
    done = make(project_after(2), target)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pombo: say where: make {target} PROJECT=my-project REGION=europe-west1")


def test_rollback_is_one_command_of_make(project_after: ProjectAfter) -> None:
    project = project_after(2)
    assert make(project, "rollback", "REGION=europe-west1").returncode == 0
    assert project.serves() == both(1)


def make(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *words, "PROJECT=my-project"]
    return subprocess.run(command, cwd=ROOT, env=project.environment, capture_output=True, text=True, timeout=60)
