"""The check of a real project, run here against a fake one: with the true terraform, from nothing to nothing."""

import hashlib
import hmac
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.release import one_message, unguarded
from infra.release.roots import Root
from infra.release.tools import Refused
from shared.channels.meta.webhook import parse
from shared.log_events import EVENTS
from tests.infra import fake_project
from tests.infra.deployment import ROOT, Deployment, Webhook, listening
from tests.infra.offline.toolchain import Toolchain
from tests.support.gcloud_lines import complaints
from tests.support.tree import need_gcloud

pytestmark = pytest.mark.timeout(900)  # on a busy machine, each apply takes a minute
ALLOWED = {"projectId": fake_project.PROJECT, "lifecycleState": "ACTIVE", "labels": {"pombo-check": "allowed"}}
QUICK = ("--pause=0.05", "--longest=2")


class Pombo:
    """The deployed services, as far as the log shows them: takes what is signed with the secret that is there."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.bodies = deployment, list[bytes]()

    def __call__(self, headers: dict[str, str], body: bytes) -> int:
        (secret,) = self.deployment.state["secrets"]["META_APP_SECRET"]
        wanted = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
        if headers["X-Hub-Signature-256"] != wanted:
            return 403
        self.bodies.append(body)
        first = ["inbound_new", "inbound_processing_finished", "tenant_needs_reauth"]
        events = ["inbound_duplicate"] if body in self.bodies[:-1] else first
        lines = [{"event": event, "correlation_id": "one", "reason": "why"} for event in [*events, "swept"]]
        self.deployment.change(logs=[*self.deployment.state["logs"], *lines])
        return 200


@pytest.fixture(scope="module")
def webhook() -> Webhook:
    return Webhook()


@pytest.fixture(scope="module")
def make(
    toolchain: Toolchain, webhook: Webhook, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Deployment]]:
    with listening(webhook) as url:

        def made() -> Deployment:
            deployment = Deployment(toolchain, tmp_path_factory.mktemp("check"), url)
            deployment.change(project=ALLOWED)
            return deployment

        yield made


Night = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def nights(make: Callable[[], Deployment], webhook: Webhook) -> tuple[Deployment, Night, Night]:
    """An empty project, and two nights: in the first the webhook takes nothing, the second is as it must be."""
    deployment = make()
    webhook.answer = lambda *_: 500
    bad = deployment.run("check_project", *QUICK)
    assert deployment.kept_state("staging")["resources"] == [], "it is destroyed all the same"
    deployment.change(secrets={}, services={}, tags={})
    webhook.answer = Pombo(deployment)
    return deployment, bad, deployment.run("check_project", *QUICK)


@pytest.fixture(scope="module")
def checked(make: Callable[[], Deployment], webhook: Webhook) -> tuple[Deployment, Night]:
    """An empty project, and a night in which all is as it must be."""
    deployment = make()
    webhook.answer = Pombo(deployment)
    return deployment, deployment.run("check_project", *QUICK)


def test_a_project_is_checked_from_nothing_to_nothing(checked: Any) -> None:
    _, done = checked
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^== (.*)$", done.stdout, re.M) == [
        "Destroy what an earlier run has left",
        "Apply, build and deploy",
        "Send a message, twice",
        "Follow it in the log",
        "Plan again",
        "Destroy",
    ]
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["checked"] == fake_project.PROJECT
    assert list(last["seconds"]) == re.findall(r"^== (.*)$", done.stdout, re.M)[1:]


def test_nothing_but_the_bucket_of_the_state_is_left(checked: Any) -> None:
    deployment, _ = checked
    for root in ("bootstrap", "staging"):
        assert deployment.kept_state(root).get("resources") == [], root
    destroyed = [call[0] for call in deployment.terraform_calls if call[1] == "destroy"]
    assert destroyed[-2:] == ["staging", "bootstrap"]
    forgotten = [call[3:] for call in deployment.terraform_calls if call[1:3] == ["state", "rm"]]
    kinds = {re.sub(r"\[.*", "", it.rpartition("google_")[2]).partition(".")[0] for call in forgotten for it in call}
    assert kinds == {"firestore_field", "firestore_index", "storage_bucket"}
    assert ["google_storage_bucket.state"] in forgotten


def test_the_message_is_one_that_the_code_takes_and_came_twice(checked: Any, webhook: Webhook) -> None:
    bodies = webhook.answer.bodies
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
    (event,) = parse(bodies[0]).events
    assert one_message.PHONE_NUMBER_ID in repr(event)


def test_both_plans_are_made_again_after_the_deployment(checked: Any) -> None:
    deployment, done = checked
    again = [call[0] for call in deployment.terraform_calls if "-detailed-exitcode" in call]
    assert again == ["bootstrap", "staging"]
    assert "Both plans are empty." in done.stdout


def test_no_secret_is_printed(checked: Any) -> None:
    deployment, done = checked
    said = done.stdout + done.stderr + json.dumps([deployment.state["calls"], deployment.terraform_calls])
    assert [value for values in deployment.state["secrets"].values() for value in values if value in said] == []


def test_checked_folder_is_unchanged(checked: Any) -> None:
    deployment, _ = checked
    assert not list(deployment.folder.rglob("terraform.tfvars"))
    assert "prevent_destroy = true" in (deployment.folder / "infra/terraform/bootstrap/main.tf").read_text()


def test_gcloud_would_take_every_command_that_the_check_gives_it(checked: Any) -> None:
    need_gcloud()
    deployment, _ = checked
    commands = {" ".join(["gcloud", *(f"'{word}'" for word in call)]) for call in deployment.state["calls"]}
    label = "gcloud alpha projects update my-check-project --update-labels=pombo-check=allowed"
    assert complaints(sorted({*commands, label})) == {}


@pytest.mark.slow
def test_second_night_starts_empty_with_new_queue_names(nights: Any) -> None:
    deployment, _, done = nights
    assert "Destroy complete! Resources: 0 destroyed." in done.stdout
    suffixes = re.findall(r'^queue_suffix = "(-\d{12})"$', deployment.variables_used, re.M)
    assert suffixes[0] != suffixes[-1]


# ---- what it finds


@pytest.mark.slow
def test_rejected_message_is_found_and_the_project_is_emptied(nights: Any) -> None:
    _, bad, _ = nights
    assert bad.returncode == 1
    assert bad.stderr == "pombo: The webhook answers 500 to a signed message, and must answer 200.\n"
    assert re.findall(r"^== (.*)$", bad.stdout, re.M)[-2:] == ["Send a message, twice", "Destroy"]
    assert "Nothing is there." in bad.stdout, "the first night of all has nothing to clean up"


def follow(monkeypatch: pytest.MonkeyPatch, *lines: tuple[str, str]) -> str:
    entries = [
        {"jsonPayload": {"event": event, "reason": "forbidden"}, "labels": {"correlation_id": which}}
        for event, which in lines
    ]
    asked = list[tuple[str, ...]]()
    monkeypatch.setattr(one_message, "gcloud", lambda *words: asked.append(words) or json.dumps(entries))
    where = one_message.Place("my-project-1", "europe-west1", "staging", ROOT)
    said = one_message.follow_it(where, "2026-11-28T00:00:00+00:00", longest=0.05, pause=0.02)
    assert 'timestamp>="2026-11-28T00:00:00+00:00"' in asked[0][2]
    return said


WHOLE = (*((event, "one") for event in one_message.OF_THE_MESSAGE), ("inbound_duplicate", ""), ("swept", ""))


def test_a_message_that_went_through_is_seen_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "refused by Meta for its invented token" in follow(monkeypatch, *WHOLE)


@pytest.mark.parametrize("event", [event for event, _ in WHOLE])
def test_a_line_that_the_log_lacks_is_named(monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    with pytest.raises(Refused, match=rf"the log has no {event} of the message"):
        follow(monkeypatch, *(line for line in WHOLE if line[0] != event))


def test_log_lines_of_two_messages_are_not_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    other = [(event, "two" if event == "tenant_needs_reauth" else which) for event, which in WHOLE]
    with pytest.raises(Refused, match="the log has no tenant_needs_reauth of the message"):
        follow(monkeypatch, *other)


@pytest.mark.parametrize("event", one_message.WRONG)
def test_a_line_that_must_not_be_there_ends_the_waiting(monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    with pytest.raises(Refused, match=rf"The log has {event}: forbidden\."):
        follow(monkeypatch, WHOLE[0], (event, ""))


@pytest.mark.parametrize("event", one_message.WRONG)
def test_a_wrong_line_is_found_beside_a_message_that_went_through(monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    with pytest.raises(Refused, match=rf"The log has {event}: forbidden\."):
        follow(monkeypatch, *WHOLE, (event, ""))


def test_a_wrong_line_that_reaches_the_log_last_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = one_message._lines
    late = {"jsonPayload": {"event": "unexpected_error", "error": "ValueError"}}
    seen = list[int]()

    def growing(where: one_message.Place, since: str) -> list[dict[str, object]]:
        seen.append(1)
        return [*read(where, since), *([late] if len(seen) > 1 else [])]

    monkeypatch.setattr(one_message, "_lines", growing)
    with pytest.raises(Refused, match=r"The log has unexpected_error: ValueError\."):
        follow(monkeypatch, *WHOLE)


def test_the_lines_that_are_looked_for_are_the_codes_own() -> None:
    assert {*one_message.OF_THE_MESSAGE, *one_message.BESIDE_IT, *one_message.WRONG} <= set(EVENTS)


def test_a_plan_that_is_not_empty_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terraform = tmp_path / "terraform"
    terraform.write_text(
        "#!/bin/sh\necho '  # module.a.b will be updated in-place'\necho 'Plan: 0 to add, 1 to change'\nexit 2\n"
    )
    terraform.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    root = Root(tmp_path, "bucket", {})
    with pytest.raises(Refused, match=r"is not empty: module\.a\.b will be updated in-place\.$"):
        root.check_unchanged()
    terraform.write_text("#!/bin/sh\necho 'Error: no network' >&2\nexit 1\n")
    with pytest.raises(Refused, match="Error: no network"):
        root.check_unchanged()
    terraform.write_text("#!/bin/sh\nexit 0\n")
    root.check_unchanged()


# ---- what it must not do


@pytest.mark.parametrize("labels", [None, {}, {"pombo-check": "no"}, {"other": "allowed"}])
def test_project_without_the_label_is_never_destroyed(
    make: Callable[[], Deployment], labels: dict[str, str] | None
) -> None:
    deployment = make()
    deployment.change(
        project={**ALLOWED, "labels": labels} if labels is not None else {**fake_project.new()["project"]}
    )
    for options in ((), ("--only-destroy",)):
        done = deployment.run("check_project", *QUICK, *options)
        assert done.returncode == 1
        assert done.stderr == (
            "pombo: my-project-1 does not say that it may be destroyed. If nothing of Pombo's in it is to stay: gcloud "
            "alpha projects update my-project-1 --update-labels=pombo-check=allowed\n"
        )
    assert not [call for call in deployment.terraform_calls if call[1] != "version"]


def test_every_guard_is_removed_in_the_copy_only(tmp_path: Path) -> None:
    unguarded.copy(ROOT, tmp_path / "copy")
    text = "".join(path.read_text() for path in (tmp_path / "copy" / "infra").rglob("*.tf"))
    code = "\n".join(line.partition("#")[0] for line in text.splitlines())
    assert not re.search(r'(prevent_destroy|deletion_protection) *= true|"PREVENT"|PROTECTION_ENABLED|"ABANDON"', code)
    assert not re.search(r"force_destroy *= false", code)
    differ = 0
    for path in (ROOT / "infra" / "terraform").rglob("*.tf"):
        if ".terraform" not in path.parts:
            copied = (tmp_path / "copy" / path.relative_to(ROOT)).read_text().splitlines()
            differ += sum(a != b for a, b in zip(path.read_text().splitlines(), copied, strict=True))
    assert 8 < differ < 30, "the copy is the real thing but for its guards"


def test_a_guard_that_is_written_otherwise_is_noticed(tmp_path: Path) -> None:
    for part in unguarded.PARTS:
        (tmp_path / "root" / part).mkdir(parents=True)
    (tmp_path / "root/infra/terraform").mkdir()
    (tmp_path / "root/infra/terraform/main.tf").write_text("prevent_destroy = true\n")
    with pytest.raises(Refused, match=r"which infra/release/unguarded\.py removes"):
        unguarded.copy(tmp_path / "root", tmp_path / "copy")


def test_help_explains_how_to_continue_after_ctrl_c() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.release.check_project", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert "--only-destroy" in done.stdout
    assert "--pause" not in done.stdout
