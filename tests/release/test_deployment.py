"""The deployment: what becomes of the services in a project on a file, whatever goes wrong on the way, and back."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.release import candidate, cloud_run, tools
from infra.release.services import AS_DEPLOYED
from tests.support import fake_cloud
from tests.support.fake_cloud import PLACEHOLDER, serving
from tests.support.gcloud_lines import complaints
from tests.support.project import Candidate, Project, all_of, build_id, image, images
from tests.support.tree import ROOT, SERVICES, need_gcloud

DEPLOYED = ("release", "deploy")
"""The steps after which a deployment that was cancelled leaves most behind."""

ProjectAfter = Callable[..., Project]


def test_a_release_deploys_what_its_build_pushed_by_digest_and_gives_it_the_traffic(
    history: list[dict[str, Any]],
) -> None:
    served = [tuple(serving(state, f"pombo-{service}") for service in SERVICES) for state in history]
    assert served == [(PLACEHOLDER,) * len(SERVICES), all_of(1), all_of(2)]


@pytest.mark.timeout(600)  # on a busy machine gcloud takes minutes to read all that it knows
def test_gcloud_accepts_every_command_of_a_release_and_a_rollback(project_after: ProjectAfter) -> None:
    need_gcloud()
    project = project_after(2)
    assert project.run("rollback", *SERVICES).returncode == 0
    called = [shlex.join(call) for call in project.state["calls"] if call[0] == "gcloud"]
    assert {" ".join(call.split()[:4]) for call in called} >= {
        "gcloud run services update",
        "gcloud run services update-traffic",
        "gcloud run revisions describe",
    }
    assert complaints(called) == {}


def test_after_a_release_new_revisions_of_terraforms_get_the_traffic(project_after: ProjectAfter) -> None:
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
def test_failed_release_leaves_the_traffic_where_it_was(
    fault: dict[str, Any], stops_at: str, pushes: bool, project_after: ProjectAfter
) -> None:
    project = project_after(1)
    project.change(lambda state: state.update(fault))
    pushed = len(project.state["pushed"])
    assert project.release(2) == stops_at
    assert project.serves() == all_of(1)
    assert (len(project.state["pushed"]) > pushed) is pushes


@pytest.mark.parametrize(
    "wrong", [{"handshake": 200}, {"without_key": 200}, pytest.param({"unsigned": 200}, marks=pytest.mark.slow)]
)
def test_a_candidate_that_answers_wrongly_gets_no_traffic(
    wrong: dict[str, int], project_after: ProjectAfter, answers: Candidate
) -> None:
    for name, value in wrong.items():
        setattr(answers, name, value)
    project = project_after(1, built=True)
    assert project.release(2, (*DEPLOYED, "check")) == "check"
    assert project.serves() == all_of(1)


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
def test_candidate_that_never_connects_is_refused(
    health: tuple[int, str], answers: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate, "READY_SECONDS", 0)
    answers.health = health
    with pytest.raises(tools.Refused, match=f"answers {health[0]} to /health"):
        candidate.check(cloud_run.CloudRunService("webhook", "", "", a_status(answers.url)))


def a_status(url: str) -> dict[str, Any]:
    """Of a service whose candidate is here."""
    target = {"revisionName": "r", "tag": "candidate", "url": url}
    return {"latestCreatedRevisionName": "r", "latestReadyRevisionName": "r", "traffic": [target]}


def test_a_rollback_serves_the_image_before_and_changes_nothing_when_done_again(project_after: ProjectAfter) -> None:
    project = project_after(2)
    done = project.run("rollback", *SERVICES)
    assert done.returncode == 0, done.stderr
    assert f"pombo-webhook serves {named(all_of(1)[0])} in place of {named(all_of(2)[0])}" in done.stdout
    assert project.serves() == all_of(1)
    there = project.state["services"]
    again = project.run("rollback", *SERVICES)
    assert again.stdout.count("from before the last promotion, already.") == len(SERVICES)
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


def test_change_applied_by_terraform_after_a_release_gets_the_traffic(project_after: ProjectAfter) -> None:
    """A deployment that names its revision leaves the name in the service, where no plan of Terraform's leaves it."""
    project = project_after(2)
    project.change(lambda state: fake_cloud.apply(state, "pombo-webhook", "META_APP_SECRET=2"))
    assert serving(project.state, "pombo-webhook", "settings") == "META_APP_SECRET=2"


def test_failed_rollback_leaves_the_traffic_and_can_be_retried(
    project_after: ProjectAfter,
) -> None:
    project = project_after(2)
    project.change(lambda state: state.update(unready=["pombo-webhook"]))
    for _ in range(2):
        done = project.run("rollback", "webhook")
        assert (done.returncode, done.stdout) == (1, "")
        assert "is not ready" in done.stderr
        assert project.serves() == all_of(2)
    project.change(lambda state: state.update(unready=[]))
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves() == images(1, 2, 2)


@pytest.mark.parametrize(("action", "serves"), [("rollback", 1), ("drop", 2)])
def test_interrupted_action_continues_between_image_and_traffic(
    action: str, serves: int, project_after: ProjectAfter
) -> None:
    project = project_after(2, built=True)
    assert project.release(3, DEPLOYED) is None
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
        ({"unready": [image("webhook", 3)]}, "deploy"),
        ({"away": [["update-traffic", "pombo-webhook"]]}, "deploy"),
        pytest.param({"unready": [image("internal", 3)]}, "deploy", marks=pytest.mark.slow),
        pytest.param({"away": [["update", "pombo-internal"]]}, "deploy", marks=pytest.mark.slow),
        pytest.param({"away": [["update", "pombo-webhook"]]}, "deploy", marks=pytest.mark.slow),
        pytest.param({"away": [["describe", "pombo-webhook"]]}, "release", marks=pytest.mark.slow),
        pytest.param({"severities": ["CRITICAL\tTrue"]}, "scan", marks=pytest.mark.slow),
    ],
)
def test_failed_release_leaves_nothing_behind(
    fault: dict[str, Any], stops_at: str, project_after: ProjectAfter, answers: Candidate
) -> None:
    project = project_after(2, built=stops_at != "scan")
    answers.unsigned = 200
    project.change(lambda state: state.update(fault))
    assert project.release(3) == stops_at
    assert project.serves() == all_of(2)
    assert applied(project)
    done = project.run("drop", *AS_DEPLOYED)
    assert done.stdout.count("has nothing to drop") == len(SERVICES)


def test_a_service_that_cannot_be_dropped_does_not_keep_the_other_from_it(project_after: ProjectAfter) -> None:
    project = project_after(2, built=True)
    assert project.release(3, DEPLOYED) is None
    project.change(lambda state: state.update(away=[["describe", "pombo-internal"]]))
    done = project.run("drop", *AS_DEPLOYED)
    assert done.returncode == 1
    assert "UNAVAILABLE" in done.stderr
    assert "pombo-webhook still serves" in done.stdout
    assert project.addresses() == ["pombo-internal-00004"]
    project.change(lambda state: state.update(away=[["describe", "pombo-internal"], ["describe", "pombo-webhook"]]))
    assert project.run("drop", *AS_DEPLOYED).stderr.count("pombo: ") == 2


def test_another_action_stops_at_the_first_service_that_is_refused(project_after: ProjectAfter) -> None:
    project = project_after(2)
    project.change(lambda state: state.update(away=[["describe", "pombo-webhook"]]))
    done = project.run("rollback", *SERVICES)
    assert (done.returncode, done.stdout) == (1, "")
    assert project.serves() == all_of(2)


@pytest.mark.parametrize(
    "denied",
    [
        "pombo-webhook",
        "pombo-internal-0",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("pombo-internal", "pombo-webhook-0")),
    ],
)
def test_a_role_that_is_missing_stops_a_deployment_before_it_changes_anything(
    denied: str, project_after: ProjectAfter
) -> None:
    """Of the service, or of its revisions alone."""
    project = project_after(2, built=True)
    project.change(lambda state: state.update(denied=[denied]))
    before = project.state["services"]
    assert project.deploy(3) == "release"
    assert "PERMISSION_DENIED" in project.said[-1]
    assert project.state["services"] == before


def test_a_first_release_that_goes_wrong_leaves_the_placeholder(
    project_after: ProjectAfter, answers: Candidate
) -> None:
    project = project_after(0, built=True)
    answers.unsigned = 200
    assert project.release(1) == "check"
    assert project.serves() == (PLACEHOLDER,) * len(SERVICES)
    assert applied(project)


def test_a_deployment_that_was_cancelled_can_be_dropped_by_one_command_of_make(project_after: ProjectAfter) -> None:
    project = project_after(2, built=True)
    assert project.release(3, DEPLOYED) is None
    done = make(project, "drop-candidate", "REGION=europe-west1")
    assert (done.returncode, done.stderr) == (0, "")
    assert project.serves() == all_of(2)
    assert applied(project)


def test_release_after_a_rollback_gets_the_traffic_and_can_be_rolled_back(
    project_after: ProjectAfter,
) -> None:
    project = project_after(2, built=True)
    assert project.run("rollback", *SERVICES).returncode == 0
    assert project.release(3) is None
    assert project.serves() == all_of(3)
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves() == images(1, 3, 3)


def test_rollback_to_the_placeholder_is_refused(
    project_after: ProjectAfter,
) -> None:
    project = project_after(1)
    done = project.run("rollback", *SERVICES)
    assert done.returncode == 1
    assert done.stderr == ("pombo: pombo-webhook has no image tagged previous: at most one build was ever promoted.\n")
    assert project.serves() == all_of(1)


def test_promoting_again_changes_nothing(project_after: ProjectAfter) -> None:
    project = project_after(2)
    assert project.run("promote", *AS_DEPLOYED).returncode == 0
    assert project.run("rollback", "internal").returncode == 0
    assert project.serves() == images(2, 2, 1)


def test_unchecked_revision_is_not_promoted(project_after: ProjectAfter) -> None:
    project = project_after(1, built=True)
    assert project.release(2, DEPLOYED) is None
    project.change(lambda state: fake_cloud.add_revision(state, "pombo-webhook", "as terraform set it"))
    done = project.run("promote", "webhook")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has a newer revision than its candidate" in done.stderr


def test_a_service_that_was_never_deployed_has_no_candidate(project_after: ProjectAfter) -> None:
    done = project_after(0).run("check", "webhook")
    assert done.stderr == "pombo: pombo-webhook has no revision tagged candidate: none was deployed.\n"


def test_gcloud_error_is_passed_on_in_a_sentence(project_after: ProjectAfter) -> None:
    project = project_after(1)
    project.change(lambda state: state["services"].pop("pombo-webhook"))
    done = project.run("check", "webhook")
    assert done.returncode == 1
    assert done.stderr == (
        "pombo: gcloud run services describe failed: "
        "ERROR: (gcloud.run.services.describe) Cannot find service [pombo-webhook]\n"
    )
    os.remove(project.directory / "bin" / "gcloud")
    assert project.run("check", "webhook").stderr == (
        "pombo: gcloud is not here; install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install\n"
    )


@pytest.mark.parametrize("target", ["rollback", "drop-candidate"])
def test_make_goal_requires_project_and_region(target: str, project_after: ProjectAfter) -> None:
    done = make(project_after(2), target)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pombo: say where: make {target} PROJECT=my-project REGION=europe-west1")


def test_rollback_is_one_command_of_make(project_after: ProjectAfter) -> None:
    project = project_after(2)
    assert make(project, "rollback", "REGION=europe-west1").returncode == 0
    assert project.serves() == all_of(1)


def make(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *words, "PROJECT=my-project"]
    return subprocess.run(command, cwd=ROOT, env=project.environment, capture_output=True, text=True, timeout=60)


def test_hanging_gcloud_command_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gcloud").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "gcloud").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "GCLOUD_SECONDS", 0.2)
    with pytest.raises(tools.Refused, match=r"gcloud run services list did not end within 0\.2 s\."):
        tools.gcloud("run", "services", "list")


def test_gcloud_cannot_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gcloud").write_text("#!/bin/sh\nread answer || echo nobody\n")
    (tmp_path / "gcloud").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.gcloud("projects", "delete") == "nobody"


# ---- addresses of old revisions


def test_no_revision_has_its_own_address_after_an_action(
    history: list[dict[str, Any]], project_after: ProjectAfter
) -> None:
    """Through which an old image would go on answering, with the secrets of its day."""
    project = project_after(2, built=True)
    assert project.addresses() == []
    assert project.release(3, DEPLOYED) is None
    assert len(project.addresses()) == len(SERVICES), "for as long as it is checked"
    assert project.run("drop", *AS_DEPLOYED).returncode == 0
    assert project.addresses() == []
    assert project.run("rollback", *SERVICES).returncode == 0
    assert project.addresses() == []


@pytest.mark.parametrize("action", ["drop", "rollback"])
def test_leftover_address_is_removed(action: str, project_after: ProjectAfter) -> None:
    """Earlier versions of these programs left tags behind."""
    project = project_after(2)
    old = {"revisionName": "pombo-webhook-00002", "tag": "previous"}
    project.change(lambda state: state["services"]["pombo-webhook"]["traffic"].append(old))
    assert project.run(action, "webhook").returncode == 0
    assert project.addresses() == []


def test_deployment_resumes_where_one_was_cancelled_in_a_step(project_after: ProjectAfter) -> None:
    project = project_after(2, built=True)
    assert project.release(3, DEPLOYED) is None
    shares = "--to-revisions=pombo-webhook-00004=25,pombo-webhook-00003=75"
    project.gcloud("run", "services", "update-traffic", "pombo-webhook", shares)
    assert project.release(4) is None, project.said
    assert project.serves() == all_of(4)
    assert project.addresses() == []
    assert project.run("rollback", "webhook").returncode == 0
    assert project.serves()[0] == image("webhook", 2), "3 never had all of it"


# ---- what the registry knows of it


def test_registry_tags_the_serving_and_the_previous_image(history: list[dict[str, Any]]) -> None:
    for number, before in ((1, None), (2, 1)):
        for service in SERVICES:
            tags = history[number]["tags"][f"{fake_cloud.REPOSITORY}/{service}"]
            wanted = {"serving": number, **({"previous": before} if before else {})}
            assert tags == {tag: image(service, it).partition("@")[2] for tag, it in wanted.items()}


def test_a_rollback_deploys_no_image_that_the_service_has_never_run(project_after: ProjectAfter) -> None:
    """Whoever may push may move the tag."""
    project = project_after(2, built=True)
    digest = image("webhook", 3).partition("@")[2]
    project.change(lambda state: state["tags"][f"{fake_cloud.REPOSITORY}/webhook"].update(previous=digest))
    done = project.run("rollback", "webhook")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"has never run {named(image('webhook', 3))}, which the registry calls previous" in done.stderr
    assert project.serves() == all_of(2)


def test_a_tag_is_never_deleted_to_be_moved(history: list[dict[str, Any]]) -> None:
    """Between the two there would be none, and the account that deploys may delete nothing."""
    called = [" ".join(call) for call in history[2]["calls"]]
    assert sum("gcloud artifacts tags update serving" in call for call in called) == len(SERVICES)
    assert not [call for call in called if "tags add" in call or "tags delete" in call]


# ---- only what a build has pushed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"status": "FAILURE"}, "is FAILURE, and must have ended in SUCCESS"),
        (
            {"serviceAccount": "projects/p/serviceAccounts/me@example.com"},
            "ran as me@example.com, and not as pombo-build",
        ),
        ({"results": {}}, "has pushed no image of webhook"),
    ],
)
def test_nothing_is_deployed_but_what_a_build_of_ours_has_pushed(
    change: dict[str, Any], sentence: str, project_after: ProjectAfter
) -> None:
    project = project_after(1, built=True)
    project.change(lambda state: state["builds"][build_id(2)].update(change))
    assert project.deploy(2) == "release"
    assert sentence in project.said[-1]
    assert project.serves() == all_of(1)


@pytest.mark.parametrize("given", ["", "latest", "00000002", f"{build_id(2)} --help"])
def test_deployment_requires_a_build_id(given: str, project_after: ProjectAfter) -> None:
    project = project_after(1)
    assert project.deploy(2, _BUILD=given) == "release"
    assert "must be the ID of the build to deploy" in project.said[-1]


def test_moved_tag_does_not_change_the_deployed_image(project_after: ProjectAfter) -> None:
    project = project_after(1, built=True)
    digest = image("webhook", 1).partition("@")[2]
    tags = {build_id(2): digest}
    project.change(lambda state: state["tags"][f"{fake_cloud.REPOSITORY}/webhook"].update(tags))
    assert project.deploy(2) is None
    assert project.serves() == all_of(2)


# ---- the traffic in steps

WORSE = [1000, 50, 80.0]
SLOW = [1000, 0, 900.0]
WELL = [1000, 5, 80.0]


def moves(project: Project) -> list[str]:
    """Who got which share of the traffic, in order."""
    found = []
    for call in project.state["calls"]:
        if call[:4] == ["gcloud", "run", "services", "update-traffic"]:
            (share,) = [word for word in call if word.startswith(("--to-", "--set-"))] or [""]
            first = share.partition("=")[2].partition(",")[0].rpartition("=")[2]
            found.append(f"{call[4].removeprefix('pombo-')} {first or 'all'}" if "--set" not in share else "")
    return [move for move in found if move]


def test_the_private_service_has_all_traffic_before_a_public_one_has_any(project_after: ProjectAfter) -> None:
    """A newer private service understands what an older public one writes; not the other way round."""
    project = project_after(1, built=True)
    before = len(moves(project))
    assert project.release(2) is None
    steps = [f"{service} {share}" for service in AS_DEPLOYED for share in ("5", "25", "all")]
    assert moves(project)[before:] == steps


@pytest.mark.parametrize("worse", [WORSE, SLOW])
def test_worse_private_service_goes_back_before_a_public_one_gets_traffic(
    worse: list[float], project_after: ProjectAfter
) -> None:
    project = project_after(2, built=True)
    metrics = {"pombo-internal-00003": WELL, "pombo-internal-00004": worse}
    project.change(lambda state: state.update(metrics=metrics))
    before = len(moves(project))
    assert project.release(3) == "promote"
    assert "At 5 % of the traffic pombo-internal-00004 did worse than pombo-internal-00003" in project.said[-1]
    assert moves(project)[before : before + 2] == ["internal 5", "internal 100"]
    assert project.serves() == all_of(2)
    assert project.addresses() == []
    assert applied(project)


@pytest.mark.parametrize(("worse", "serves"), [("webhook", images(2, 3, 3)), ("api", images(2, 2, 3))])
def test_worse_public_service_goes_back_and_stops_those_after_it(
    worse: str, serves: tuple[str, ...], project_after: ProjectAfter
) -> None:
    project = project_after(2, built=True)
    metrics = {f"pombo-{service}-0000{number}": WELL for service in SERVICES for number in (3, 4)}
    project.change(lambda state: state.update(metrics={**metrics, f"pombo-{worse}-00004": WORSE}))
    assert project.release(3) == "promote"
    assert project.serves() == serves
    assert project.addresses() == []


def test_unjudgeable_candidate_goes_back(project_after: ProjectAfter, answers: Candidate) -> None:
    project = project_after(2, built=True)
    answers.metrics = lambda _: (403, {})
    assert project.release(3) == "promote"
    assert "Cloud Monitoring answers 403" in project.said[-1]
    assert project.serves() == all_of(2)


def test_too_few_requests_are_reported_and_do_not_stop_the_rollout(project_after: ProjectAfter) -> None:
    project = project_after(2, built=True)
    metrics = {"pombo-webhook-00003": WELL, "pombo-webhook-00004": [19, 19, 9000.0]}
    project.change(lambda state: state.update(metrics=metrics))
    assert project.release(3) is None
    assert "pombo-webhook-00004: it had 19 requests, too few to judge it (under 20)." in project.said[-1]
    assert project.serves() == all_of(3)


def test_placeholder_is_not_compared_with(project_after: ProjectAfter) -> None:
    project = project_after(0, built=True)
    metrics = {f"pombo-{kind}-00001": [1000, 0, 1.0] for kind in SERVICES}
    worse = {f"pombo-{kind}-00002": [1000, 0, 50.0] for kind in SERVICES}
    project.change(lambda state: state.update(metrics=metrics | worse))
    assert project.release(1) is None
    assert moves(project) == [f"{service} all" for service in AS_DEPLOYED]


def test_image_of_make_deploy_is_compared_with_and_not_seen_as_placeholder(
    project_after: ProjectAfter,
) -> None:
    project = project_after(0, built=True)
    made = [f"{fake_cloud.REPOSITORY}/pombo-{kind}@sha256:{'5' * 64}" for kind in SERVICES]

    def from_source(state: dict[str, Any]) -> None:
        state["pushed"] += made
        for image_made in made:
            fake_cloud.add_revision(state, image_made.rpartition("/")[2].partition("@")[0], image_made)

    project.change(from_source)
    assert project.release(1) is None, project.said
    steps = [f"{service} {share}" for service in AS_DEPLOYED for share in ("5", "25", "all")]
    assert moves(project) == steps
    assert project.serves() == all_of(1)
    tags = project.state["tags"][f"{fake_cloud.REPOSITORY}/webhook"]
    assert set(tags) == {"serving"}, "its digest is not of this repository"
