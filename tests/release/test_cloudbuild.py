"""The files for Cloud Build: by the API's schemas, by rules of ours, and by what becomes of a project they run in."""

import copy
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.cloud.devtools import cloudbuild_v1
from google.protobuf import json_format

from infra.release.rollout import RolloutWatch
from infra.release.services import AS_DEPLOYED, SERVICES
from tests.support.fake_cloud import REPOSITORY
from tests.support.project import BUILD, DEPLOYMENT, Candidate, Project, all_of, answering, build_id
from tests.support.tree import ROOT

Config = dict[str, Any]
ProjectAfter = Callable[[int], Project]

BUILDER: Mapping[str, Any] = yaml.safe_load((ROOT / "infra/release/builder/cloudbuild.yaml").read_text())
FILES: Mapping[str, Mapping[str, Any]] = {
    "cloudbuild.yaml": BUILD,
    "cloudbuild-deploy.yaml": DEPLOYMENT,
    "infra/release/builder/cloudbuild.yaml": BUILDER,
}
ACCOUNTS = {
    "cloudbuild.yaml": "pombo-build",
    "cloudbuild-deploy.yaml": "pombo-deploy",
    "infra/release/builder/cloudbuild.yaml": "pombo-tools",
}
STEPS = {
    "cloudbuild.yaml": ["terraform", "test", "build", "scan"],
    "cloudbuild-deploy.yaml": ["release", "deploy", "check", "promote"],
    "infra/release/builder/cloudbuild.yaml": ["builder"],
}
GIVEN = {"PROJECT_ID", "BUILD_ID", "LOCATION"}
"""Substitutions that every build has: https://cloud.google.com/build/docs/configuring-builds/substitute-variable-values"""

SHELLS_OWN = {"PATH", "PWD"}
PUSHING = 300
"""Seconds that a build has left for what is pushed behind its last step."""


def before(build: Mapping[str, Any], step: str) -> set[str]:
    """All that has ended well when this step begins."""
    waits = {one["id"]: set(one.get("waitFor", ())) - {"-"} for one in build["steps"]}
    found, waiting = set(), [step]
    while waiting:
        for one in waits.get(waiting.pop(), set()) - found:
            found.add(one)
            waiting.append(one)
    return found


def faults(name: str, config: Mapping[str, Any]) -> list[str]:
    """What no schema sees."""
    return [
        *_step_faults(config),
        *_order_faults(config),
        *_substitution_faults(config),
        *_time_faults(config),
        *_frame_faults(name, config),
    ]


def _step_faults(build: Mapping[str, Any]) -> Iterator[str]:
    for step in build["steps"]:
        name, script = step["id"], step.get("script", "")
        substitution = re.fullmatch(r"\$(_[A-Z]+_IMAGE)", step["name"])
        default = str(build.get("substitutions", {}).get(substitution[1], "") if substitution else "")
        if not substitution:
            yield f"{name}: {step['name']} is no image that a project may have a copy of"
        elif not re.fullmatch(r"[\w./-]+:[\w.-]+(@sha256:[0-9a-f]{64})?", default) or ":latest" in default:
            yield f"{name}: {default} is no image by a tag"
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
        if name == "deploy" and '--set-tags="candidate=$revision"' not in script:
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
    for late, early in (("scan", {"build"}), ("deploy", {"release"}), ("promote", {"check", "deploy"})):
        if late in ids:
            for one in early - before(build, late):
                yield f"{late}: does not wait for {one}"


def _substitution_faults(build: Mapping[str, Any]) -> Iterator[str]:
    defined = set(build.get("substitutions", {}))
    texts = [build.get("serviceAccount", ""), *build.get("images", ())]
    texts += [step.get(key, "") for step in build["steps"] for key in ("name", "script")]
    used = {name for text in texts for name in re.findall(r"\$\{?([A-Z_][A-Z0-9_]*)", text)}
    for name in used - defined - GIVEN - SHELLS_OWN:
        yield f"${name} is used and not defined"
    for name in defined - used:
        yield f"${name} is defined and not used"


def _seconds(config: Mapping[str, Any]) -> float:
    """What is bounded to so many."""
    return float(str(config.get("timeout", "inf")).removesuffix("s"))


def _time_faults(build: Mapping[str, Any]) -> Iterator[str]:
    steps = {step["id"]: step for step in build["steps"]}
    for name, step in steps.items():
        if "timeout" not in step:
            yield f"{name}: it may hang until the whole build is ended"
        needed = sum(_seconds(steps[one]) for one in {*before(build, name), name} & set(steps))
        if "timeout" in step and needed + PUSHING > _seconds({"timeout": "600s", **build}):
            yield f"the build is ended before {name} may take its time: {needed + PUSHING:.0f} s"
    if "test" in steps and _seconds(steps["test"]) < ci_limit() + 120:
        yield "test: it is ended before .ci/run ends it, which says where it was"
    if "promote" in steps:
        hold = float(build["substitutions"]["_HOLD_SECONDS"])
        if _seconds(steps["promote"]) < len(SERVICES) * RolloutWatch(hold).longest + 900:
            yield "promote: it is ended within its steps of the traffic, and leaves them as they are"


def ci_limit() -> float:
    """Seconds after which .ci/run ends itself."""
    found = re.search(r"CI_LIMIT:-(\d+)m", (ROOT / ".ci" / "run").read_text())
    assert found
    return 60 * float(found[1])


def _frame_faults(name: str, build: Mapping[str, Any]) -> Iterator[str]:
    account = f"{ACCOUNTS[name]}@$PROJECT_ID.iam.gserviceaccount.com"
    if build.get("serviceAccount") != f"projects/$PROJECT_ID/serviceAccounts/{account}":
        yield f"it does not run as {ACCOUNTS[name]}, but as an account that may do more"
    if build.get("options", {}).get("logging") != "CLOUD_LOGGING_ONLY":
        yield "an account of one's own needs logging: CLOUD_LOGGING_ONLY"
    if not build.get("options", {}).get("automapSubstitutions"):
        yield "scripts do not see substitutions"
    if build.get("options", {}).get("substitutionOption") != "ALLOW_LOOSE":
        yield "Cloud Build refuses it where it does not find a substitution, as in a script's ${_NAME:-default}"
    scripts = "\n".join(step.get("script", "") for step in build["steps"])
    if name == "cloudbuild.yaml":
        if "bash .ci/run" not in next((step["script"] for step in build["steps"] if step["id"] == "test"), ""):
            yield "the tests are not those of CI"
        if re.search(r"gcloud (beta |alpha )?run|infra\.release", scripts):
            yield "it deploys, in the account that runs the tests"
    elif re.search(r"\.ci/|\bmake\b|pytest|\bpip\b|docker (run|compose)", scripts):
        yield "it runs more of the repository than what deploys"


# ---- the files


def schema(path: Path) -> int:
    return subprocess.run(
        [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.cloudbuild", path],
        capture_output=True,
    ).returncode


def protobuf(build: Mapping[str, Any]) -> cloudbuild_v1.Build:
    return json_format.ParseDict(build, cloudbuild_v1.Build.pb(cloudbuild_v1.Build()))


@pytest.mark.parametrize("name", FILES)
def test_a_file_fits_the_published_schema_and_the_apis_own(name: str) -> None:
    assert schema(ROOT / name) == 0
    assert [step.id for step in protobuf(FILES[name]).steps] == STEPS[name]


@pytest.mark.parametrize("name", FILES)
def test_a_file_keeps_our_rules(name: str) -> None:
    assert faults(name, FILES[name]) == []


def test_a_fault_of_the_schema_is_found(tmp_path: Path) -> None:
    text = (ROOT / "cloudbuild.yaml").read_text()
    for good, bad in (("waitFor: [terraform]", "waitfor: [terraform]"), ("CLOUD_LOGGING_ONLY", "SOMEWHERE")):
        assert good in text
        path = tmp_path / "cloudbuild.yaml"
        path.write_text(text.replace(good, bad))
        assert schema(path) != 0
        with pytest.raises(json_format.ParseError):
            protobuf(yaml.safe_load(path.read_text()))


def step(build: Config, name: str) -> Config:
    return next(one for one in build["steps"] if one["id"] == name)


def replaced(name: str, old: str, new: str) -> Callable[[Config], None]:
    def change(build: Config) -> None:
        assert old in step(build, name)["script"]
        step(build, name)["script"] = step(build, name)["script"].replace(old, new)

    return change


B, D = "cloudbuild.yaml", "cloudbuild-deploy.yaml"
MUTATIONS: dict[str, tuple[str, Callable[[Config], Any], str]] = {
    "a step waits for one that is not there": (B, lambda b: step(b, "scan").update(waitFor=["builds"]), "builds"),
    "a step waits for a later one": (B, lambda b: step(b, "build").update(waitFor=["scan"]), "no step before it"),
    "a step waits for nothing": (D, lambda b: step(b, "deploy").pop("waitFor"), "does not say"),
    "two steps of one name": (B, lambda b: step(b, "scan").update(id="build"), "one id"),
    "a scan without a build": (B, lambda b: step(b, "scan").update(waitFor=["test"]), "wait for build"),
    "a deployment of no build": (D, lambda b: step(b, "deploy").update(waitFor=["-"]), "wait for release"),
    "traffic without a check": (D, lambda b: step(b, "promote").update(waitFor=["deploy"]), "wait for check"),
    "a misspelt substitution": (D, replaced("deploy", "$_REGION", "$_REGOIN"), "$_REGOIN is used and not defined"),
    "a substitution that nobody uses": (B, lambda b: b["substitutions"].update(_OLD="x"), "$_OLD is defined and not"),
    "a mutable tag": (D, replaced("deploy", '"$(cat ".release/$service")"', '"x/$service:latest"'), "by the digest"),
    "the tag that was built": (D, replaced("deploy", '$(cat ".release/$service")', "x:$_BUILD"), "by the digest"),
    "traffic at once": (D, replaced("deploy", " --no-traffic", ""), "gets traffic"),
    "a deployment that cannot be asked": (D, replaced("deploy", '"candidate=', '"'), "cannot be asked"),
    "a revision with a name": (
        D,
        replaced("deploy", " --no-traffic", " --no-traffic --tag=candidate"),
        "names the revision",
    ),
    "an image of somebody else's": (B, lambda b: step(b, "scan").update(name="gcr.io/a/cli:1"), "have a copy of"),
    "an image without a tag": (B, lambda b: b["substitutions"].update(_CLI_IMAGE="gcr.io/a/cli"), "no image by a tag"),
    "an image by latest": (D, lambda b: b["substitutions"].update(_CLI_IMAGE="a/cli:latest"), "no image by a tag"),
    "a script that goes on": (B, replaced("scan", "set -euo pipefail\n", ""), "goes on"),
    "the account of everything": (B, lambda b: b.pop("serviceAccount"), "pombo-build"),
    "the account that deploys": (B, lambda b: b.update(serviceAccount=DEPLOYMENT["serviceAccount"]), "pombo-build"),
    "the account that builds": (D, lambda b: b.update(serviceAccount=BUILD["serviceAccount"]), "pombo-deploy"),
    "logs in a bucket": (B, lambda b: b["options"].update(logging="GCS_ONLY"), "CLOUD_LOGGING_ONLY"),
    "strict substitutions": (B, lambda b: b["options"].pop("substitutionOption"), "Cloud Build refuses it"),
    "scripts without substitutions": (D, lambda b: b["options"].pop("automapSubstitutions"), "do not see"),
    "other tests": (B, replaced("test", "bash .ci/run", "make check"), "not those of CI"),
    "tests in the deployment": (
        D,
        replaced("check", "python3 -m", "make check && python3 -m"),
        "more of the repository",
    ),
    "a deployment in the build": (B, replaced("scan", "echo ", "gcloud run services list; echo "), "it deploys"),
    "a step without a bound": (B, lambda b: step(b, "build").pop("timeout"), "may hang"),
    "a build that ends too soon": (B, lambda b: b.update(timeout="3600s"), "the build is ended before test"),
    "a build with the default bound": (B, lambda b: b.pop("timeout"), "the build is ended before test"),
    "a deployment that ends too soon": (D, lambda b: b.update(timeout="1800s"), "the build is ended before promote"),
    "tests that are cut off": (B, lambda b: step(b, "test").update(timeout="600s"), "before .ci/run ends it"),
    "traffic that is cut off": (D, lambda b: step(b, "promote").update(timeout="2400s"), "within its steps"),
    "traffic that is watched for too long": (
        D,
        lambda b: b["substitutions"].update(_HOLD_SECONDS="900"),
        "within its steps",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_build_file_breaks_its_rule(name: str) -> None:
    file, change, word = MUTATIONS[name]
    config = copy.deepcopy(dict(FILES[file]))
    change(config)
    assert any(word in fault for fault in faults(file, config)), faults(file, config)


# ---- what becomes of a project

MIRRORED = "europe-west1-docker.pkg.dev/my-project/pombo-tools/python@sha256:" + "1" * 64


def outcome(
    project: Project, build: Mapping[str, Any] = BUILD, deployment: Mapping[str, Any] = DEPLOYMENT
) -> list[str]:
    """What is wrong with a project in which a second release is built and deployed by these files."""
    found = []
    failed = project.build(2, build=build, _PYTHON_IMAGE=MIRRORED)
    if failed:
        found.append(f"the build fails at {failed}: {project.said[-1]}")
    state = project.state
    pushed = {it["name"] for it in state["builds"][build_id(2)]["results"]["images"]}
    found += [f"{name} was pushed and never scanned" for name in sorted(pushed - set(state["scanned"]))]
    wanted = {f"{REPOSITORY}/{service}:{build_id(2)}" for service in SERVICES}
    found += [f"{name} was never pushed" for name in sorted(wanted - pushed) if not failed]
    if not failed and project.deploy(2, deployment=deployment):
        found.append(f"the deployment fails: {project.said[-1]}")
    moved = [call for call in project.state["calls"] if call[:4] == ["gcloud", "run", "services", "update-traffic"]]
    promoted = [call[4] for call in moved[len(moved_before(state)) :] if any(it.startswith("--to-") for it in call)]
    if promoted != sorted(promoted, key=[f"pombo-{service}" for service in AS_DEPLOYED].index):
        found.append("the public service has traffic before the private one has all of it")
    if not found and project.serves() != all_of(2):
        found.append("what was built does not serve")
    return found


def moved_before(state: Mapping[str, Any]) -> list[list[str]]:
    return [call for call in state["calls"] if call[:4] == ["gcloud", "run", "services", "update-traffic"]]


def test_release_by_the_committed_files_has_no_faults(project_after: ProjectAfter) -> None:
    assert outcome(project_after(1)) == []


IN_CI = {"the public service first", "no scan"}
OUTCOMES: dict[str, tuple[str, Callable[[Config], Any], str]] = {
    "the public service first": (
        D,
        replaced("promote", "promote internal api webhook", "promote webhook api internal"),
        "before the private one",
    ),
    "the API before the private service": (
        D,
        replaced("promote", "promote internal api webhook", "promote api internal webhook"),
        "before the private one",
    ),
    "one image that is not scanned": (
        B,
        replaced("scan", "for service in internal api webhook", "for service in api webhook"),
        "internal:00000002-0000-4000-8000-000000000000 was pushed and never scanned",
    ),
    "an image of which another tag is scanned": (
        B,
        replaced("scan", "$service:$BUILD_ID", "webhook:$BUILD_ID"),
        "internal:00000002-0000-4000-8000-000000000000 was pushed and never scanned",
    ),
    "no scan": (B, lambda b: b["steps"].remove(step(b, "scan")), "was pushed and never scanned"),
    "one image that is not pushed": (B, lambda b: b["images"].pop(), "was never pushed"),
    "one image that is not built": (
        B,
        replaced("build", "for service in internal api webhook", "for service in internal api"),
        "the build fails",
    ),
    "an image that another service's Dockerfile makes": (
        B,
        replaced("build", "services/$service/Dockerfile", "services/webhook/Dockerfile"),
        "the build fails at build",
    ),
    "a registry that docker does not know": (
        B,
        replaced("build", 'gcloud auth configure-docker "$_REGION-docker.pkg.dev" --quiet\n', ""),
        "the build fails at build",
    ),
    "another registry that docker knows": (
        B,
        replaced("build", 'configure-docker "$_REGION-docker.pkg.dev"', "configure-docker gcr.io"),
        "the build fails at build",
    ),
    "a base image of somebody else's": (
        B,
        replaced("build", "${_PYTHON_IMAGE:-$(cat services/base-image.txt)}", "python:3.11"),
        "the build fails at build",
    ),
    "a build that is looked for where the services are": (
        D,
        replaced("release", '--build-region="$LOCATION"', '--build-region="$_REGION"'),
        "the deployment fails",
    ),
    "one service that is not deployed": (
        D,
        replaced("deploy", "for service in internal api webhook", "for service in internal api"),
        "the deployment fails",
    ),
    "one service that is not promoted": (
        D,
        replaced("promote", "promote internal api webhook", "promote internal api"),
        "does not serve",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_CI else pytest.mark.slow) for name in OUTCOMES]
)
def test_a_release_that_goes_another_way_is_noticed(name: str, project_after: ProjectAfter) -> None:
    file, change, word = OUTCOMES[name]
    config = copy.deepcopy(dict(FILES[file]))
    change(config)
    given = {"build" if file == B else "deployment": config}
    found = outcome(project_after(1), **given)
    assert any(word in fault for fault in found), found


def test_without_a_mirror_the_images_are_built_on_what_their_file_names(project_after: ProjectAfter) -> None:
    project = project_after(0)
    assert project.build(1, ("build",)) is None
    named = (ROOT / "services" / "base-image.txt").read_text().strip()
    builds = [call for call in project.state["calls"] if call[:2] == ["docker", "build"]]
    assert len(builds) == len(SERVICES)
    assert all(f"PYTHON_IMAGE={named}" in call for call in builds)


# ---- a step that fails


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in (B, D) for name in STEPS[file]])
def test_a_step_whose_tools_fail_ends_soon_and_fails(file: str, name: str, project_after: ProjectAfter) -> None:
    project = project_after(1)
    if file == D:
        assert project.build(2) is None
    project.tests = "gcloud fails"
    project.step_seconds = 30
    steps = STEPS[file][: STEPS[file].index(name)]
    given = {"BUILD_ID": build_id(2), "_BUILD": build_id(2), "_HOLD_SECONDS": "0"}
    assert project.run_steps(FILES[file], [one for one in steps if one != "test"] or ["none"], given) is None
    project.change(lambda state: state.update(broken=True))
    (project.directory / "bin" / "terraform").unlink()
    project.keeps_workspace = True
    assert project.run_steps(FILES[file], [name], given) == name


def test_hanging_test_step_fails(project_after: ProjectAfter) -> None:
    project = project_after(0)
    project.tests, project.step_seconds = "sleep 600", 3
    assert project.build(1, ("terraform", "test")) == "test"


def test_failing_test_leaves_no_server_thread() -> None:
    there = threading.active_count()
    with pytest.raises(LookupError), answering(Candidate()):
        raise LookupError("the test has failed")
    assert threading.active_count() == there


def test_a_release_that_fails_in_a_fixture_ends_pytest(tmp_path: Path) -> None:
    """All of pytest: a thread that is left would hold up the end of the process."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom tests.support import project\n\n\n@pytest.fixture\ndef broken():\n"
        "    with project.answering(project.Candidate()):\n        assert False, 'the build failed'\n    yield\n\n\n"
        "def test_it(broken):\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert b"the build failed" in done.stdout


# ---- the tests and the scan


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
def test_fixable_vulnerability_stops_a_build_by_its_severity(
    stop_at: str, found: list[str], stops: bool, project_after: ProjectAfter
) -> None:
    project = project_after(0)
    project.change(lambda state: state.update(severities=found))
    assert project.build(1, ("build", "scan"), _STOP_AT=stop_at) == ("scan" if stops else None)
